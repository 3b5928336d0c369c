"""Projections from latents to predictors, written out as rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.lax import optimization_barrier

from relpref.linalg.arrays import (
    Array,
    namespace,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DenseRows:
    """Any projection, as a matrix of shape (m, n)."""

    matrix: Array

    @classmethod
    def of(cls, apply: Callable[[Array], Array], size: int) -> "DenseRows":
        """The matrix of a linear function of a vector."""
        return cls(jax.vmap(apply, out_axes=1)(jnp.eye(size)))

    def rows(self, vectors: Array) -> Array:
        """A times an array of shape (n,) or (n, k)."""
        return self.matrix @ vectors

    def back(self, vectors: Array) -> Array:
        """Aᵀ times an array of shape (m,) or (m, k)."""
        return self.matrix.T @ vectors

    apply, adjoint = rows, back

    def gram(self, precision: Array) -> Array:
        """AᵀTA, shape (n, n)."""
        return self.matrix.T @ (precision[:, None] * self.matrix)

    def add_gram(self, precision: Any, matrix: Any) -> None:
        """Add AᵀTA to an (n, n) array of NumPy."""
        matrix += self.gram(precision)

    def times_gram(self, precision: Array, matrix: Array) -> Array:
        """AᵀTA times an (n, k) array."""
        return self.gram(precision) @ matrix

    def diagonal(self, covariance: Array) -> Array:
        """Diagonal of A Σ Aᵀ, shape (m,), for a covariance Σ."""
        return namespace(covariance).sum(self.rows(covariance) * self.matrix, axis=1)

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        return namespace(white).sum(namespace(white).square(self.matrix @ white), axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseRows:
    """A projection with few entries in each row.

    They are at most two, and those in a few columns that all rows share.
    """

    column: Array  # shape (m, k)
    entry: Array  # 0 where there is none, shape (m, k)
    size: Array  # only its length counts, the number of columns, shape (n,)

    @classmethod
    def of(cls, matrix: Any, shared: Sequence[int] = ()) -> "SparseRows | None":
        """The rows of a sparse matrix of SciPy; None if one has more than two entries.

        Entries in ``shared`` columns do not count where they are too many.
        """
        matrix = scipy.sparse.csr_array(matrix)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        number, size = matrix.shape
        count = np.diff(matrix.indptr)
        if count.max(initial=0) > 2:
            if not len(shared):
                return None
            rest = np.ones(size)
            rest[list(shared)] = 0
            others = cls.of(matrix @ scipy.sparse.diags_array(rest))
            if others is None:
                return None
            entry = matrix[:, list(shared)].toarray()
            column = np.broadcast_to(np.asarray(shared), entry.shape)
            both = zip((column, entry), (others.column, others.entry), strict=True)
            column, entry = (np.concatenate(part, axis=1) for part in both)
            return cls(column, entry, np.zeros(size))
        column, entry = np.zeros((number, 2), dtype=int), np.zeros((number, 2))
        place = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], count)
        row = np.repeat(np.arange(number), count)
        column[row, place], entry[row, place] = matrix.indices, matrix.data
        return cls(column, entry, np.zeros(size))

    @cached_property
    def matrix(self) -> Any:
        """A as a sparse matrix of SciPy, shape (m, n)."""
        number, size = len(self.column), len(self.size)
        width = self.column.shape[1]
        starts = np.arange(0, width * number + 1, width)
        return scipy.sparse.csr_array(
            (self.entry.ravel(), self.column.ravel(), starts), shape=(number, size)
        )

    @cached_property
    def places(self) -> tuple[Any, Any, Any, Any]:
        """Rows and columns of the entries of AᵀTA, row by row, and the shares of the rows of A.

        The third array tells the entry of each share, the fourth the share at precision 1.
        """
        places = len(self.size) * self.column[:, :, None] + self.column[:, None, :]
        unique, which = np.unique(places, return_inverse=True)
        return (
            *np.divmod(unique, len(self.size)),
            which.ravel(),
            self.entry[:, :, None] * self.entry[:, None, :],
        )

    def entries(self, precision: Any) -> Any:
        """The entries of AᵀTA, of NumPy, at their ``places``."""
        rows, _, which, shares = self.places
        return np.bincount(which, (precision[:, None, None] * shares).ravel(), len(rows))

    def apply(self, vector: Array) -> Array:
        """A times a vector."""
        return namespace(vector, self.column).sum(self.entry * vector[self.column], axis=1)

    def adjoint(self, vector: Array) -> Array:
        """Aᵀ times a vector."""
        if namespace(vector, self.column) is not np:
            return self.back(vector[:, None])[:, 0]
        shares = (self.entry * vector[:, None]).ravel()
        return np.bincount(self.column.ravel(), shares, len(self.size))

    def rows(self, matrix: Array) -> Array:
        """A times an (n, k) array."""
        if namespace(matrix, self.column) is np:
            return self.matrix @ matrix
        each = (
            self.entry[:, k, None] * matrix[self.column[:, k]] for k in range(self.column.shape[1])
        )
        return reduce(add, each)

    def back(self, matrix: Array) -> Array:
        """Aᵀ times an (m, k) array."""
        if namespace(matrix, self.column) is np:
            return self.matrix.T @ matrix
        shares = self.entry[:, :, None] * matrix[:, None, :]
        nothing = jnp.zeros((self.size.shape[0], matrix.shape[1]), matrix.dtype)
        return nothing.at[self.column].add(shares)

    def add_gram(self, precision: Any, matrix: Any) -> None:
        """Add AᵀTA to an (n, n) array of NumPy."""
        matrix[self.places[:2]] += self.entries(precision)

    def gram(self, precision: Array) -> Array:
        """AᵀTA, shape (n, n)."""
        size = self.size.shape[0]
        if namespace(precision, self.column) is np:
            result = np.zeros((size, size))
            self.add_gram(precision, result)
            return result
        products = precision[:, None, None] * self.entry[:, :, None] * self.entry[:, None, :]
        rows = jnp.broadcast_to(self.column[:, :, None], products.shape)
        columns = jnp.broadcast_to(self.column[:, None, :], products.shape)
        return jnp.zeros((size, size), products.dtype).at[rows, columns].add(products)

    def times_gram(self, precision: Array, matrix: Array) -> Array:
        """AᵀTA times an (n, k) array."""
        size = len(self.size)
        if namespace(precision, self.column) is not np or size <= _SPARSE:
            return self.gram(precision) @ matrix
        starts = np.searchsorted(self.places[0], np.arange(size + 1))
        gram = scipy.sparse.csr_array(
            (self.entries(precision), self.places[1], starts), shape=(size, size)
        )
        return gram @ matrix

    def diagonal(self, covariance: Array) -> Array:
        """Diagonal of A Σ Aᵀ, shape (m,), for a covariance Σ."""
        spread = covariance[self.column[:, :, None], self.column[:, None, :]]
        terms = self.entry[:, :, None] * spread * self.entry[:, None, :]
        return namespace(terms).sum(terms, axis=(1, 2))

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        # Not from the entries of VVᵀ, which would cancel for two items that are nearly the same.
        if namespace(white, self.column) is np:
            number, together = len(self.column), max(1, _TOGETHER // max(white.shape[1], 1))
            parts: Any = [self.matrix]
            if number > together:
                parts = (
                    self.matrix[start : start + together] for start in range(0, number, together)
                )
            seen = (part @ white for part in parts)
            return np.concatenate([np.einsum("ij,ij->i", part, part) for part in seen])
        # The barrier keeps XLA from fusing the gather of rows into the sum of squares, which is
        # four times slower.
        return jnp.sum(jnp.square(optimization_barrier(self.rows(white))), axis=1)


Rows = DenseRows | SparseRows
_TOGETHER = 2**19  # numbers of A V that are written out at once
_SPARSE = 200  # columns above which SciPy's sparse products are faster than those of matrices
