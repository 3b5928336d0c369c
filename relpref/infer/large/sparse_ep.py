"""Expectation propagation with a sparse posterior precision, driven from the host.

The sweeps are those of `relpref.infer.sites`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.compiled import float64
from relpref.errors import InferenceError
from relpref.infer.evidence import log_evidence_of_sites
from relpref.infer.large.spaces import Shared, space_of
from relpref.infer.large.sparse import Latents, SparsePosterior
from relpref.infer.sites import Fit, Problem, Sites, by_rows, cavities, matched, run
from relpref.likelihoods import TiltedMoments
from relpref.linalg import Covariance, require_memory
from relpref.posterior.gaussian import key_words
from relpref.result import CODES, Result

Floats = NDArray[np.float64]
Tilted = Callable[..., TiltedMoments]
Progress = Callable[[int, float], object]

_STEP = 1e-4  # relative, of a difference quotient


class SparseFit(NamedTuple):
    """Sites and their posterior; NaN and None where no sweep gave a posterior."""

    sites: Sites  # NumPy arrays, shape (m,)
    parts: dict[str, Floats]  # of the mean of all utilities, less their prior means, shape (n,)
    # Standard error of the mean due to the errors of the variances, shape (n,)
    mean_error: Floats
    gap_variance: Floats  # of the rows' projections, shape (m,)
    gap_variance_error: Floats  # standard error of the estimate at these sites, 0 where it is exact
    log_evidence: float
    log_evidence_error: float
    covariance: SparsePosterior | None
    method: str  # how the variances of the gaps were found: "factorised" or "sampled"
    result: Result = Result.max_iterations
    sweeps: int = 0  # fresh ones
    residual: float = np.inf  # as in `relpref.infer.sites.Info`
    damping: float = 1.0
    detail: str = ""  # what went wrong in a solve


def fit(
    parts: Mapping[str, Covariance],
    column: ArrayLike,
    entry: ArrayLike,
    counts: ArrayLike,
    tilted: Tilted,
    *,
    power: tuple[Any, ...] = (),
    shared: Shared | None = None,
    start: Sites | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    key: Any = 0,
    samples: int = 64,
    sampled: bool | None = None,
    progress: Progress | None = None,
) -> SparseFit:
    """Run EP on many answers about many items.

    Steps and damping are those of `relpref.infer.evidence`, with solves instead of a factorized
    matrix. The fixed point is the same, up to the errors of the variances of the gaps.

    Parameters
    ----------
    parts : mapping from name to SparsePrecision or LowRank
        The prior covariance is their sum.
    column, entry : array, shape (m, 2)
        Items that each row looks at, and with which weights: +1 and −1 for a comparison, 0 where
        there is none.
    counts : array, shape (m,)
        How many identical answers each row stands for.
    tilted : callable
        From cavity means and variances, shape (m,) each, and ``power`` to `TiltedMoments`.
    power : tuple of array, shape (m,)
        n of the likelihoods p^n that have one site each; empty if it is 1 for all.
    shared : Shared, optional
        The noise that rows share, if they share any.
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
    latents = Latents.of(parts, column, entry)
    exact = latents.copies == 0 or (latents.small if sampled is None else not sampled)
    require_memory(_bytes(latents, exact, samples), "EP with a sparse precision")
    rows: Any = np.full(len(latents.column), np.nan)
    items = np.full(latents.size, np.nan)
    names = dict.fromkeys([*latents.relations, *latents.factors], items)
    method = "factorised" if exact else "sampled"
    ended = SparseFit(Sites(rows, rows), names, items, rows, rows, np.nan, np.nan, None, method)
    with float64():
        draws, no_map = None, None  # type: Any, Any

        def on_host(*given: Floats) -> TiltedMoments:
            return TiltedMoments(*map(np.asarray, tilted(*given)))

        if not exact:
            words = key_words(key)
            draws = latents.noise(np.random.default_rng(words), samples)
        space: Any = space_of(latents, 0.01 * tol, draws, shared)
        nothing: Any = np.zeros(len(rows))
        number: Any = np.asarray(counts, dtype=np.float64)
        problem = Problem(space, no_map, number, on_host, power=power)
        first = _on_host(Sites(nothing, nothing) if start is None else start)
        problem, first = by_rows(problem, first)
        try:
            fitted, log_normalizer, info = run(problem, first, tol, max_sweeps, progress)
            result, sweeps = CODES[int(info.code)], int(info.sweeps)
            residual, damping = float(info.residual), float(info.damping)
            ended = ended._replace(result=result, sweeps=sweeps, residual=residual, damping=damping)
            if sweeps and not result.empty:
                ended = _concluded(problem, fitted, log_normalizer, ended)
                for n in power:
                    ended = ended._replace(sites=Sites(*(part / n for part in ended.sites)))
        except InferenceError as error:
            ended = ended._replace(result=Result.iterations_not_converged, detail=str(error))
        except np.linalg.LinAlgError as error:
            ended = ended._replace(result=Result.prior_not_positive_definite, detail=str(error))
    return ended


def _bytes(latents: Latents, exact: bool, samples: int) -> float:
    """Peak memory of the sweeps: dense factors, or noise, solutions and their right-hand sides."""
    unknowns, rows = latents.copies * latents.size, len(latents.column)
    attributes = latents.factor.shape[1] * (2.0 * unknowns + 3 * latents.size + 4 * rows)
    if exact:
        return 8 * (attributes + 3.0 * unknowns**2)
    return 8 * (attributes + samples * (6.0 * unknowns + 4 * rows))


def _on_host(sites: Sites) -> Sites:
    arrays: Any = [np.asarray(values, np.float64) for values in sites]
    return Sites(*arrays)


def _concluded(problem: Problem, fit: Fit, log_normalizer: Any, ended: SparseFit) -> SparseFit:
    """The posterior of the last fresh sweep, and its evidence (`relpref.infer.evidence`)."""
    space: Any = problem.space
    factor: Any = fit.factor
    counts = problem.counts
    shift = np.asarray(counts * fit.sites.shift)
    parts = factor.by_part(space.pull(factor, shift), "mean")  # held sweeps have moved it
    mean = np.asarray(sum(parts.values()))
    variance, variance_error, deviations = space.variances(factor)
    half, half_error = factor.half_log_ratio()
    cavity = cavities(counts, fit.sites, fit.marginals)
    rows = log_evidence_of_sites(counts, log_normalizer, fit.sites, cavity)
    # The errors of the variances move the means, to first order by the change of each row's pull.
    error = np.zeros(len(mean))
    if deviations.size:
        moved = factor.matmul(
            space.pull(factor, _slope_of_pull(problem, fit)[:, None] * deviations)
        )
        error = np.sqrt(np.sum(moved**2, axis=1))
    return ended._replace(
        sites=_on_host(fit.sites),
        parts=parts,
        mean_error=error,
        gap_variance=variance,
        gap_variance_error=variance_error,
        log_evidence=float(rows)
        - float(half)
        + 0.5 * float(shift @ space.response(factor, shift, None)),
        log_evidence_error=float(half_error),
        covariance=space.lasting(factor),
    )


def _slope_of_pull(problem: Problem, fit: Fit) -> Floats:
    """Derivative of each row's pull, count·(ν − τ·mean), in its variance, shape (m,)."""
    counts, (mean, variance, _) = problem.counts, fit.marginals

    def pull(factor: float) -> Any:
        cavity = cavities(counts, fit.sites, fit.marginals._replace(variance=factor * variance))
        precision, shift = matched(cavity, problem.tilted(*cavity))
        return np.asarray(counts * (shift - precision * mean))

    change = 2 * _STEP * np.asarray(variance)
    moved = pull(1 + _STEP) - pull(1 - _STEP)
    return np.asarray(np.divide(moved, change, out=np.zeros_like(change), where=change > 0))
