"""Covariance operators that remember their structure.

Everything outside this folder asks an operator for what it needs (a product, a projection, a root) and never assumes
that a dense matrix lies underneath.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from operator import add
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from relpref.linalg.eigen import Factor, cholesky

LinearMap = Callable[[Array], Array]


@runtime_checkable
class CovarianceOperator(Protocol):
    """A symmetric positive semidefinite n x n operator K."""

    @property
    def size(self) -> int: ...

    def matmul(self, vectors: Array) -> Array:
        """K times ``vectors``, shape (n,) or (n, k)."""

    def congruence(self, apply: LinearMap) -> Array:
        """A K Aᵀ, shape (m, m), for the linear map ``apply`` from (n,) to (m,)."""

    def inner(self, weights: Array) -> Array:
        """Σ_ij weights_ij K_ij for an (n, n) array, the derivative's inner product; shape ()."""

    def root(self) -> Factor:
        """A dense L with L Lᵀ = K, shape (n, r), and the jitter that was needed."""

    def scaled(self, factor: Array) -> "CovarianceOperator":
        """``factor`` times K, for a positive scalar."""

    def dense(self) -> Array:
        """K as an (n, n) array."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """A covariance held as a matrix.

    Parameters
    ----------
    matrix : Array, shape (n, n)
    """

    matrix: Array

    @property
    def size(self) -> int:
        return int(self.matrix.shape[-1])

    def matmul(self, vectors: Array) -> Array:
        return self.matrix @ vectors

    def congruence(self, apply: LinearMap) -> Array:
        """A K Aᵀ, by mapping the rows and then the columns."""
        rows = jax.vmap(apply, in_axes=1, out_axes=1)(self.matrix)
        return jax.vmap(apply)(rows)

    def inner(self, weights: Array) -> Array:
        return jnp.vdot(weights, self.matrix)

    def root(self) -> Factor:
        return cholesky(self.matrix)

    def scaled(self, factor: Array) -> "Dense":
        return Dense(factor * self.matrix)

    def dense(self) -> Array:
        return self.matrix


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spectral:
    """V diag(values) Vᵀ: a function of a symmetric matrix whose eigenvectors are known.

    Parameters
    ----------
    values : Array, shape (k,)
        Not negative.
    vectors : Array, shape (n, k)
        V; its columns are orthonormal.
    """

    values: Array
    vectors: Array

    @property
    def size(self) -> int:
        return int(self.vectors.shape[0])

    def matmul(self, vectors: Array) -> Array:
        inner = self.vectors.T @ vectors
        return self.vectors @ (self.values[(...,) + (None,) * (inner.ndim - 1)] * inner)

    def congruence(self, apply: LinearMap) -> Array:
        """(A V) diag(values) (A V)ᵀ, without K itself."""
        rows = jax.vmap(apply, in_axes=1, out_axes=1)(self.vectors)
        return (rows * self.values) @ rows.T

    def inner(self, weights: Array) -> Array:
        """Σ_k values_k (Vᵀ W V)_kk."""
        return jnp.vdot(self.values, jnp.sum(self.vectors * (weights @ self.vectors), axis=0))

    def root(self) -> Factor:
        return cholesky(self.dense())

    def scaled(self, factor: Array) -> "Spectral":
        return Spectral(factor * self.values, self.vectors)

    def dense(self) -> Array:
        return (self.vectors * self.values) @ self.vectors.T


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class NamedSum:
    """A sum of covariances whose parts keep their names.

    Parameters
    ----------
    parts : mapping from str to CovarianceOperator
        At least one; all of one size.
    """

    parts: Mapping[str, CovarianceOperator]

    def tree_flatten(self) -> tuple[tuple[CovarianceOperator, ...], tuple[str, ...]]:
        """Children and names, in the order they were given (JAX would sort a dictionary's keys)."""
        return tuple(self.parts.values()), tuple(self.parts)

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], parts: Iterable[CovarianceOperator]) -> "NamedSum":
        """The inverse of `tree_flatten`."""
        return cls(dict(zip(names, parts, strict=True)))

    @property
    def size(self) -> int:
        return next(iter(self.parts.values())).size

    def matmul(self, vectors: Array) -> Array:
        return reduce(add, (part.matmul(vectors) for part in self.parts.values()))

    def congruence(self, apply: LinearMap) -> Array:
        """A K Aᵀ, part by part."""
        return reduce(add, (part.congruence(apply) for part in self.parts.values()))

    def inner(self, weights: Array) -> Array:
        return reduce(add, (part.inner(weights) for part in self.parts.values()))

    def root(self) -> Factor:
        """Cholesky factor of the sum."""
        return cholesky(self.dense())

    def scaled(self, factor: Array) -> "NamedSum":
        return NamedSum({name: part.scaled(factor) for name, part in self.parts.items()})

    def dense(self) -> Array:
        """The sum as a matrix."""
        return reduce(add, (part.dense() for part in self.parts.values()))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BlockDiagonal:
    """The joint covariance of independent Gaussian vectors, laid one after the other.

    Parameters
    ----------
    blocks : tuple of CovarianceOperator
        At least one.
    """

    blocks: tuple[CovarianceOperator, ...]

    @property
    def size(self) -> int:
        """Number of rows, over all blocks."""
        return sum(block.size for block in self.blocks)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each block lies in the joint vector."""
        ends = list(accumulate((block.size for block in self.blocks), initial=0))
        return tuple(slice(start, stop) for start, stop in pairwise(ends))

    def matmul(self, vectors: Array) -> Array:
        return jnp.concatenate([b.matmul(vectors[s]) for b, s in zip(self.blocks, self.slices, strict=True)])

    def congruence(self, apply: LinearMap) -> Array:
        """A K Aᵀ as the sum over blocks, each seen through its own columns of A."""
        return reduce(
            add,
            (b.congruence(self._restrict(apply, s)) for b, s in zip(self.blocks, self.slices, strict=True)),
        )

    def inner(self, weights: Array) -> Array:
        """Σ_ij weights_ij K_ij; the weights between blocks do not matter."""
        return reduce(add, (b.inner(weights[s, s]) for b, s in zip(self.blocks, self.slices, strict=True)))

    def root(self) -> Factor:
        """The blocks' roots on the diagonal, and the largest jitter."""
        factors = [block.root() for block in self.blocks]
        jitter = reduce(jnp.maximum, (factor.jitter for factor in factors))
        return Factor(jax.scipy.linalg.block_diag(*(factor.lower for factor in factors)), jitter)

    def scaled(self, factor: Array) -> "BlockDiagonal":
        return BlockDiagonal(tuple(block.scaled(factor) for block in self.blocks))

    def dense(self) -> Array:
        return jax.scipy.linalg.block_diag(*(block.dense() for block in self.blocks))

    def _restrict(self, apply: LinearMap, block: slice) -> LinearMap:
        def restricted(vector: Array) -> Array:
            return apply(jnp.pad(vector, (block.start, self.size - block.stop)))

        return restricted


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kronecker:
    """K ⊗ G: covariance K(v, v') G(w, w') of the pairs (v, w), row by row.

    Parameters
    ----------
    left : CovarianceOperator
        K, of size p.
    right : CovarianceOperator
        G, of size m.
    """

    left: CovarianceOperator
    right: CovarianceOperator

    @property
    def size(self) -> int:
        return self.left.size * self.right.size

    def matmul(self, vectors: Array) -> Array:
        """K X Gᵀ for every vector, with X its (p, m) matrix."""
        p, m = self.left.size, self.right.size
        matrices = jnp.reshape(vectors, (p, m, -1))
        inner = jnp.reshape(self.left.matmul(jnp.reshape(matrices, (p, -1))), (p, m, -1))
        swapped = jnp.reshape(jnp.swapaxes(inner, 0, 1), (m, -1))
        outer = jnp.reshape(self.right.matmul(swapped), (m, p, -1))
        return jnp.reshape(jnp.swapaxes(outer, 0, 1), vectors.shape)

    def congruence(self, apply: LinearMap) -> Array:
        """A (K ⊗ G) Aᵀ, by mapping the rows and then the columns."""
        rows = jax.vmap(apply, in_axes=1, out_axes=1)(self.dense())
        return jax.vmap(apply)(rows)

    def inner(self, weights: Array) -> Array:
        """Σ weights · (K ⊗ G), through the weights summed against G."""
        p, m = self.left.size, self.right.size
        blocks = jnp.reshape(weights, (p, m, p, m))
        return self.left.inner(jnp.einsum("iajb,ab->ij", blocks, self.right.dense()))

    def root(self) -> Factor:
        """The Kronecker product of the factors' roots, and the larger jitter of the two."""
        left, right = self.left.root(), self.right.root()
        return Factor(jnp.kron(left.lower, right.lower), jnp.maximum(left.jitter, right.jitter))

    def scaled(self, factor: Array) -> "Kronecker":
        return Kronecker(self.left.scaled(factor), self.right)

    def dense(self) -> Array:
        """K ⊗ G as a matrix."""
        return jnp.kron(self.left.dense(), self.right.dense())
