"""Features of rankings from a submodular function of the items: the min-norm point on the tangent cone (GCK section 3)."""

from functools import partial
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from relpref.kernels.isotonic import pooled
from relpref.kernels.placements import mean_over_placements
from relpref.kernels.positions import by_rows, exhaustive_only, position_array, traced


class SubmodularFunction(Protocol):
    """A submodular function F of sets of items with F(∅) = 0: F(A) + F(B) ≥ F(A ∪ B) + F(A ∩ B) (GCK eq. 2)."""

    def __call__(self, members: Array) -> Array:
        """F(A) of many sets: from indicators (1 = in A), shape (..., n), to values, shape (...); JAX can trace it."""


def submodular_features(
    rankings: Any,
    function: SubmodularFunction,
    *,
    placements: Literal["auto", "all", "sample"] = "auto",
    tolerance: float = 0.05,
    key: Any = 0,
    return_error: bool = False,
) -> Any:
    """Features of rankings by any submodular function: the point s of least norm with s(B) ≥ F(B) for all prefixes B of a ranking.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Of any kind.
    function : SubmodularFunction
        Hashable, as functions are; one that stays the same object is compiled once.
    placements, tolerance, key, return_error
        As for `cut_features`.

    Returns
    -------
    features : array, shape (m, n)
    error : array, shape (m, n)
        Only with ``return_error``.

    Notes
    -----
    For a prefix B of the most preferred items Σ_{i in B} s_i ≥ F(B), with equality for all items. GCK eq. 7 has "≤", for prefixes
    of the least preferred; as printed, its solution for a cut would be s = 0.
    """
    positions = position_array(rankings)
    compiled = partial(_by_function, function)
    if traced(positions):
        return exhaustive_only(compiled(positions), positions)
    values, error = mean_over_placements(
        positions, lambda rows: by_rows(compiled, rows), placements=placements, tolerance=tolerance, key=key
    )
    return (values, error) if return_error else values


@partial(jax.jit, static_argnums=0)
def _by_function(function: SubmodularFunction, positions: Array) -> Array:
    return pooled(increments(function, positions), positions)


def increments(function: SubmodularFunction, positions: Array) -> Array:
    """What each block adds to F of the blocks before it, shared evenly by its items, shape (m, n) (GCK eq. 11)."""
    own, other = positions[:, :, None], positions[:, None, :]
    through, before = (other <= own).astype(float), (other < own).astype(float)
    return (function(through) - function(before)) / jnp.sum(through - before, axis=-1)
