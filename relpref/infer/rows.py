"""The projection A row by row, for the algebra of sites: AᵀTA, and the variances of Au.

A comparison's row has two entries, +1 and −1. Then AᵀTA is the Laplacian of a weighted graph, four numbers for each row, and two rows of
a root give a variance. Rows with more entries are kept as a matrix.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import optimization_barrier
from numpy.typing import NDArray

Whole = NDArray[np.integer]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DenseRows:
    """Any projection.

    Parameters
    ----------
    matrix : Array, shape (m, n)
    """

    matrix: Array

    def gram(self, precision: Array) -> Array:
        """AᵀTA, shape (n, n)."""
        return self.matrix.T @ (precision[:, None] * self.matrix)

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        return jnp.sum(jnp.square(self.matrix @ white), axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseRows:
    """A projection with at most two entries in each row.

    Parameters
    ----------
    column : Array of int, shape (m, 2)
    entry : Array, shape (m, 2)
        0 where there is none.
    size : Array, shape (n,)
        Carries the number of columns only.
    """

    column: Array
    entry: Array
    size: Array

    @classmethod
    def of(
        cls, row: Whole, column: Whole, entry: NDArray[np.float64], shape: tuple[int, int]
    ) -> "SparseRows":
        """From the entries, at most two in a row, of an array of a shape."""
        order = np.argsort(row, kind="stable")
        row, column, entry = row[order], column[order], entry[order]
        place = np.zeros(len(row), dtype=int)
        place[1:] = row[1:] == row[:-1]
        columns, entries = np.zeros((shape[0], 2), dtype=int), np.zeros((shape[0], 2))
        columns[row, place], entries[row, place] = column, entry
        return cls(jnp.asarray(columns), jnp.asarray(entries), jnp.zeros(shape[1]))

    def gram(self, precision: Array) -> Array:
        """AᵀTA, shape (n, n)."""
        size = self.size.shape[0]
        products = precision[:, None, None] * self.entry[:, :, None] * self.entry[:, None, :]
        rows = jnp.broadcast_to(self.column[:, :, None], products.shape)
        columns = jnp.broadcast_to(self.column[:, None, :], products.shape)
        return jnp.zeros((size, size), products.dtype).at[rows, columns].add(products)

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        # Not from the entries of VVᵀ, which would cancel for two entities that are nearly the same. Without the barrier XLA fuses
        # the gather of rows into the sum of squares, element by element and four times slower.
        first, second = (self.entry[:, k, None] * white[self.column[:, k]] for k in (0, 1))
        return jnp.sum(jnp.square(optimization_barrier(first + second)), axis=1)


Rows = DenseRows | SparseRows
