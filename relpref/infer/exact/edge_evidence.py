"""Evidence of an incomplete relation and its derivatives, from the q x q kernel of its edges."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.data.relation_values import SIGN, RelationValues, Symmetry
from relpref.errors import UnsupportedProgramError
from relpref.infer.exact.closed import EvidenceGradient, Loss
from relpref.linalg import cholesky, require_memory


class EdgeEvidence:
    """log p(labels | K, G, λ) for any kernels.

    Parameters
    ----------
    values : RelationValues
        Of a constrained relation in both directions; each pair counts once, with noise λ/2 (λ on the diagonal).
    loss, symmetry

    Raises
    ------
    UnsupportedProgramError
        For the ranking loss of a constrained relation, which uses every label twice and so has no likelihood.
    DataError
        If memory would not suffice.
    """

    def __init__(self, values: RelationValues, loss: Loss, symmetry: Symmetry) -> None:
        if symmetry != "none" and loss == "ranking":
            raise UnsupportedProgramError(
                f"the ranking loss of a {symmetry} relation uses every label at both its ends, so it has no evidence to "
                "maximise; give all hyperparameters with fixed=, or choose them by cross-validation"
            )
        rows, columns, labels = values.rows, values.columns, values.values
        if symmetry != "none":
            kept = rows <= columns if symmetry == "symmetric" else rows < columns
            rows, columns, labels = rows[kept], columns[kept], labels[kept]
        require_memory(40.0 * len(rows) ** 2, f"the evidence of a relation with {len(rows)} edges")
        self._sign = SIGN[symmetry]
        self._arrays = tuple(jnp.asarray(x) for x in (rows, columns, labels))
        self._share = jnp.asarray(np.where((rows == columns) | (symmetry == "none"), 1.0, 0.5))
        self._groups = values.shape[0] if loss == "ranking" else 0

    def __call__(self, left: Array, right: Array, noise: float) -> tuple[float, EvidenceGradient]:
        """Evidence and its derivatives; ``left`` and ``right`` are K and G."""
        value, (by_left, by_right, by_noise) = _value_and_gradient(
            self._groups, self._sign, left, right, noise, *self._arrays, self._share
        )
        # For a kernel matrix, which is symmetric, only the symmetric part of a derivative means something.
        first, second = (0.5 * (np.asarray(x) + np.asarray(x).T) for x in (by_left, by_right))
        return float(value), EvidenceGradient(first, second, float(by_noise))


@partial(jax.jit, static_argnums=(0, 1))
def _value_and_gradient(
    groups: int,
    sign: float,
    left: Array,
    right: Array,
    noise: Array,
    rows: Array,
    columns: Array,
    labels: Array,
    share: Array,
) -> tuple[Array, tuple[Array, Array, Array]]:
    def evidence(left: Array, right: Array, noise: Array) -> Array:
        covariance = left[rows[:, None], rows] * right[columns[:, None], columns]
        if sign:
            swapped = left[rows[:, None], columns] * right[columns[:, None], rows]
            covariance = 0.5 * (covariance + sign * swapped)
        lower = cholesky(covariance + jnp.diag((noise + edge_floor(left, right)) * share)).lower
        white = jax.scipy.linalg.solve_triangular(lower, labels, lower=True)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(lower)))
        size = len(labels)
        if groups:  # restricted to contrasts within conditioning nodes, as in `KroneckerFit.log_evidence`
            indicator = jax.nn.one_hot(rows, groups, dtype=covariance.dtype)
            counts = indicator.sum(axis=0)
            present = counts > 0
            seen = jax.scipy.linalg.solve_triangular(lower, indicator, lower=True)
            inner = seen.T @ seen + jnp.diag(jnp.where(present, 0.0, 1.0))
            offsets = jnp.linalg.cholesky(inner)
            pulled = jax.scipy.linalg.solve_triangular(offsets, seen.T @ white, lower=True)
            log_determinant += 2 * jnp.sum(jnp.log(jnp.diagonal(offsets)))
            log_determinant -= jnp.sum(jnp.where(present, jnp.log(jnp.where(present, counts, 1.0)), 0.0))
            quadratic = white @ white - pulled @ pulled
            return -0.5 * (quadratic + log_determinant + (size - jnp.sum(present)) * jnp.log(2 * jnp.pi))
        return -0.5 * (white @ white + log_determinant + size * jnp.log(2 * jnp.pi))

    return jax.value_and_grad(evidence, argnums=(0, 1, 2))(left, right, noise)


def edge_floor(left: Any, right: Any) -> Any:
    """Noise that rounding adds to every label: without it the evidence of labels without noise has no maximum."""
    return 1e-14 * jnp.trace(left) * jnp.trace(right)
