"""The covariance of a field over pairs: a Kronecker product."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from relpref.linalg.cholesky import Factor
from relpref.linalg.operators import CovarianceOperator, LinearMap


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
        """Number of pairs, p·m."""
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
        """The left factor scaled."""
        return Kronecker(self.left.scaled(factor), self.right)

    def dense(self) -> Array:
        """K ⊗ G as a matrix."""
        return jnp.kron(self.left.dense(), self.right.dense())
