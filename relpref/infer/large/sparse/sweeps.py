"""EP's sweeps with the algebra on the host and the rest compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.infer.evidence import log_evidence_of_sites
from relpref.infer.large.sparse.algebra import NO_FACTOR, Algebra, marginals, sites
from relpref.infer.result import CODES, Result
from relpref.infer.sites import (
    Fit,
    Sites,
    State,
    advance,
    begin,
    cavities,
    held,
    matched,
    outcome,
    unfinished,
)
from relpref.infer.spaces import Marginals
from relpref.likelihoods import TiltedMoments

Floats = NDArray[np.float64]
Tilted = Callable[[Any, Any], TiltedMoments]
Progress = Callable[[int, float], object]

_STEP = 1e-4  # relative, of a difference quotient


class Sweeps(NamedTuple):
    """Where sweeps ended.

    Attributes
    ----------
    result : Result
    number : int
        Of fresh ones, those before included.
    fit : Fit
        Of the last fresh one.
    state : State
    """

    result: Result
    number: int
    fit: Fit
    state: State


def before(first: Sites) -> Sweeps:
    """No sweep yet."""
    nothing = np.zeros(np.shape(first.shift))
    fit = Fit(first, NO_FACTOR, marginals(nothing, nothing))
    return Sweeps(Result.max_iterations, 0, fit, begin(first, fit))


def sweep(
    algebra: Algebra, tilted: Tilted, start: Sweeps, tol: float, most: int, progress: Progress | None
) -> Sweeps:
    """As `relpref.infer.sites.run`, from where other sweeps ended."""
    counts: Any = algebra.counts
    _, number, fit, state = start
    state, usable, more = begin(sites(*state.sites), fit), np.asarray(7), True
    while more and number < most:
        here = sites(*state.sites)
        fresh = bool(state.held < 0)
        if fresh:
            fit = algebra.refresh(here)
            now = fit.marginals
        else:
            now = held(algebra.response, counts, fit, here, state.mean)
        moments = tilted(*_cavities(counts, here, now))
        state, usable, going = _advance(counts, state, fit, now, moments, tol)
        more, number = bool(going), number + fresh
        if progress is not None and fresh:
            progress(number, float(state.held_residual))
    return Sweeps(CODES[int(_outcome(state, usable, tol))], number, fit, state)


def slope_of_pull(algebra: Algebra, tilted: Tilted, fit: Fit) -> Floats:
    """Derivative of each row's pull on the means, count·(ν − τ·mean), in its variance, shape (m,)."""
    counts: Any = algebra.counts
    mean, variance, _ = fit.marginals
    pulls = []
    for factor in (1 + _STEP, 1 - _STEP):
        cavity = _cavities(counts, fit.sites, marginals(mean, factor * variance))
        precision, shift = _matched(cavity, tilted(*cavity))
        pulls.append(counts * (np.asarray(shift) - np.asarray(precision) * np.asarray(mean)))
    change = 2 * _STEP * np.asarray(variance)
    return np.asarray(np.divide(pulls[0] - pulls[1], change, out=np.zeros_like(change), where=change > 0))


_cavities = jax.jit(cavities)
_matched = jax.jit(matched)
_outcome = jax.jit(outcome)


@jax.jit
def _advance(
    counts: Array, state: State, fit: Fit, now: Marginals, moments: TiltedMoments, tol: Array
) -> tuple[State, Array, Array]:
    state, usable = advance(counts, state, fit, now, moments)
    return state, usable, unfinished(state, usable, tol)


@jax.jit
def evidence_of_rows(counts: Array, log_normalizer: Array, fit: Fit) -> Array:
    """The rows' share of log Z."""
    cavity = cavities(counts, fit.sites, fit.marginals)
    return log_evidence_of_sites(counts, log_normalizer, fit.sites, cavity)
