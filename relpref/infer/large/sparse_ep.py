"""Expectation propagation with a sparse posterior precision.

The sweeps are those of `relpref.infer.sites`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from relpref.compiled import float64
from relpref.data.arrays import Floats
from relpref.errors import InferenceError
from relpref.infer.evidence import Approximation, expectation_propagation
from relpref.infer.large.covariance import PosteriorCovariance
from relpref.infer.large.spaces import SeenRows, SparseSpace
from relpref.infer.large.sparse import Latents
from relpref.infer.sites import Problem, Sites, by_rows, cavities, matched
from relpref.likelihoods import TiltedMoments
from relpref.linalg import Covariance, require_memory
from relpref.posterior.gaussian import key_words
from relpref.result import Result

Tilted = Callable[..., TiltedMoments]
Progress = Callable[[int, float], object]

_STEP = 1e-4  # relative, of a difference quotient


class Fitted(NamedTuple):
    """A fit at known hyperparameters; NaN and None where no sweep gave a posterior."""

    means: dict[str, Floats]  # of the parts, shape (n,) each; they add up to the posterior mean
    covariance: PosteriorCovariance | None
    log_evidence: float
    sites: dict[str, Floats]  # ``precision`` and ``shift``, shape (m,)
    result: Result
    info: dict[str, Any]
    # Of a sparse precision: variances of the rows' projections, and the standard error of the mean
    # due to their errors, shape (n,)
    gaps: Any = None  # Variances
    mean_error: Any = None


def fit(
    parts: Mapping[str, Covariance],
    seen: SeenRows,
    counts: Floats,
    tilted: Tilted,
    *,
    power: tuple[Any, ...] = (),
    start: Sites | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    key: Any = 0,
    samples: int = 64,
    sampled: bool | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Run EP on many answers about many items.

    Steps and damping are those of `relpref.infer.evidence`, with solves instead of a factorized
    matrix. The fixed point is the same, up to the errors of the variances of the gaps.

    Parameters
    ----------
    parts : mapping from name to SparsePrecision or LowRank
        The prior covariance is their sum.
    seen : SeenRows
        Rows of at most two items each, and the noise that they share.
    counts : array, shape (m,)
        How many identical answers each row stands for.
    tilted : callable
        From cavity means and variances, shape (m,) each, and ``power`` to `TiltedMoments`.
    power : tuple of array, shape (m,)
        n of the likelihoods p^n that have one site each; empty if it is 1 for all.
    start : Sites, optional
        Where to start; without sites by default.
    tol : float
        Largest mismatch of tilted and posterior moments; every solve is a hundred times as
        accurate.
    key : JAX key or int
        For the samples; the same key gives the same answers.
    samples : int
        Behind each estimated variance; its error falls with their root.
    sampled : bool, optional
        Whether variances are estimated, or exact ones by a dense factor, O((Rn)³) for each sweep;
        by size if not given.
    progress : callable, optional
        Told the number of each fresh sweep and its residual.
    """
    latents = Latents.of(parts, seen.rows, seen.blocks)
    exact = latents.copies == 0 or (latents.small if sampled is None else not sampled)
    require_memory(_bytes(latents, exact, samples), "EP with a sparse precision")
    rows, items = (np.full(size, np.nan) for size in (len(seen.rows.column), latents.size))
    names = dict.fromkeys([*latents.relations, *latents.factors], items)
    info: dict[str, Any] = {"variances": "factorised" if exact else "sampled"}
    result, nothing = Result.max_iterations, {"precision": rows, "shift": rows}
    with float64(), np.errstate(all="ignore"):
        draws = None if exact else latents.noise(np.random.default_rng(key_words(key)), samples)
        space: Any = SparseSpace.of(latents, seen, 0.01 * tol, draws)
        problem = Problem(space, np.asarray(counts, np.float64), tilted, power=power)
        first = start or Sites.none(len(rows))
        try:
            approximation = expectation_propagation(problem, first, tol, max_sweeps, progress)
            result, outcome = approximation.info.result, approximation.info
            info |= {
                "iterations": int(outcome.sweeps),
                "residual": float(outcome.residual),
                "damping": float(outcome.damping),
            }
            if not result.empty:
                return _concluded(problem, approximation, result, info)
        except InferenceError as error:
            result, info["detail"] = Result.iterations_not_converged, str(error)
        except np.linalg.LinAlgError as error:
            result, info["detail"] = Result.prior_not_positive_definite, str(error)
    return Fitted(names, None, np.nan, nothing, result, info)


def _bytes(latents: Latents, exact: bool, samples: int) -> float:
    """Peak memory of the sweeps: dense factors, or noise, solutions and their right-hand sides."""
    unknowns, rows = latents.copies * latents.size, latents.projection.shape[0]
    attributes = latents.factor.shape[1] * (2.0 * unknowns + 3 * latents.size + 4 * rows)
    if exact:
        return 8 * (attributes + 3.0 * unknowns**2)
    return 8 * (attributes + samples * (6.0 * unknowns + 4 * rows))


def _concluded(
    problem: Problem, approximation: Approximation, result: Result, info: dict[str, Any]
) -> Fitted:
    """The posterior of the last fresh sweep, and its evidence."""
    space: Any = problem.space
    fit = approximation.fit
    factor: Any = fit.factor
    shift = problem.counts * fit.sites.shift
    parts = factor.by_part(space.pull(factor, shift), "mean")  # held sweeps have moved it
    gaps = space.variances(factor)
    half, half_error = factor.half_log_ratio()
    # The errors of the variances move the means, to first order by the change of each row's pull.
    error = np.zeros(space.inner.size)
    if gaps.deviations.size:
        moved = factor.matmul(
            space.pull(factor, _slope_of_pull(problem, approximation)[:, None] * gaps.deviations)
        )
        error = np.sqrt(np.sum(moved**2, axis=1))
    variance = np.where(gaps.value > 0, gaps.value, np.inf)
    info |= {
        "gap_sd_error": float(np.max(gaps.error / (2 * variance), initial=0.0)),
        "mean_error": float(np.max(error, initial=0.0)),
        "log_evidence_error": float(half_error),
    }
    log_evidence = float(approximation.log_evidence) - float(half)
    sites = fit.sites._asdict()
    return Fitted(parts, space.lasting(factor), log_evidence, sites, result, info, gaps, error)


def _slope_of_pull(problem: Problem, approximation: Approximation) -> Floats:
    """Derivative of each row's pull, count·(ν − τ·mean), in its variance, shape (m,)."""
    rows, sites = by_rows(problem, approximation.fit.sites)
    marginals = approximation.fit.marginals
    mean, variance, _ = marginals

    def pull(factor: float) -> Any:
        cavity = cavities(rows.counts, sites, marginals._replace(variance=factor * variance))
        precision, shift = matched(cavity, rows.tilted(*cavity))
        return np.asarray(rows.counts * (shift - precision * mean))

    change = 2 * _STEP * np.asarray(variance)
    moved = pull(1 + _STEP) - pull(1 - _STEP)
    return np.asarray(np.divide(moved, change, out=np.zeros_like(change), where=change > 0))
