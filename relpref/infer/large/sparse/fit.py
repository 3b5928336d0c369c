"""Expectation propagation with a sparse posterior precision: the algebra of each sweep on the host."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import scipy.linalg
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError, InferenceError
from relpref.infer.belief import as_key
from relpref.infer.ep import log_evidence_of_sites
from relpref.infer.large.sparse.latents import Latents
from relpref.infer.large.sparse.posterior import SparsePosterior
from relpref.infer.large.sparse.relations import Factorised, Iterative, Noise, Relations, Sampled
from relpref.infer.result import CODES, Result
from relpref.infer.sites import (
    Fit,
    Sites,
    State,
    advance,
    begin,
    cavities,
    held,
    outcome,
    unfinished,
)
from relpref.infer.spaces import Marginals
from relpref.likelihoods import TiltedMoments
from relpref.linalg import ImplicitCovariance

Floats = NDArray[np.float64]


Method = Literal["factorised", "sampled"]


class SparseInfo(NamedTuple):
    """How the sweeps went.

    Attributes
    ----------
    result : Result
    sweeps : int
        Fresh ones.
    residual, damping : float
        As in `relpref.infer.sites.Info`.
    method : {"factorised", "sampled"}
        How the variances of the gaps were found.
    detail : str
        What went wrong in a solve; empty otherwise.
    """

    result: Result
    sweeps: int
    residual: float
    damping: float
    method: Method
    detail: str


class SparseFit(NamedTuple):
    """Sites, and the posterior they stand for; NaN and None where no sweep gave one.

    Attributes
    ----------
    sites : Sites
        NumPy arrays, shape (m,).
    mean : array, shape (n,)
        Of all utilities, less their prior means.
    parts : dict from part to array, shape (n,)
        What adds up to the mean.
    gap_mean, gap_variance, gap_variance_error : array, shape (m,)
        Of the rows' projections; the standard error of the variance is 0 where it is exact.
    log_evidence, log_evidence_error : float
    info : SparseInfo
    covariance : SparsePosterior or None
    """

    sites: Sites
    mean: Floats
    parts: dict[str, Floats]
    gap_mean: Floats
    gap_variance: Floats
    gap_variance_error: Floats
    log_evidence: float
    log_evidence_error: float
    info: SparseInfo
    covariance: SparsePosterior | None


def fit(
    parts: Mapping[str, ImplicitCovariance],
    column: ArrayLike,
    entry: ArrayLike,
    counts: ArrayLike,
    tilted: Callable[[Any, Any], TiltedMoments],
    *,
    start: Sites | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    key: Any = 0,
    samples: int = 64,
    variances: Literal["auto", "factorised", "sampled"] = "auto",
    progress: Callable[[int, float], object] | None = None,
) -> SparseFit:
    """Run EP on many answers about many entities.

    The fixed point is that of `relpref.infer.ep`, as near to it as the variances of the gaps: the same steps and the same damping,
    with solves instead of a factorised matrix.

    Parameters
    ----------
    parts : mapping from name to SparsePrecision or LowRank
        The prior covariance is their sum.
    column : array of int, shape (m, 2)
        Entities that each row looks at.
    entry : array, shape (m, 2)
        With which weights: +1 and −1 for a comparison, 0 where there is none.
    counts : array, shape (m,)
        How many identical answers each row stands for.
    tilted : callable
        From cavity means and variances, shape (m,) each, to `TiltedMoments`.
    start : Sites, optional
        Where to start; without sites by default.
    tol : float
        Largest mismatch of tilted and posterior moments; every solve is a hundred times as accurate.
    max_sweeps : int
    key : JAX key or int
        For the samples; the same key gives the same answers.
    samples : int
        Behind each estimated variance; its error falls with their root.
    variances : {"auto", "factorised", "sampled"}
        Exact ones by a dense factor, O((Rn)³) for each sweep, or estimates from samples; "auto" chooses by size.
    progress : callable, optional
        Told the number of each fresh sweep and its residual.

    Returns
    -------
    SparseFit

    Raises
    ------
    DataError
        If arguments do not fit together or a part has no sparse form.
    """
    if variances not in ("auto", "factorised", "sampled"):
        raise DataError(f"variances is {variances!r}; it is 'auto', 'factorised' or 'sampled'")
    if samples < 8:
        raise DataError(f"samples is {samples}; it must be at least 8")
    latents, counts, first = _checked(parts, column, entry, counts, start)
    with jax.enable_x64(True):
        sampled = latents.copies > 0 and (
            variances == "sampled" or (variances == "auto" and not latents.small)
        )
        noise = _noise(latents, key, samples) if sampled else None
        return _sweep(_Algebra(latents, counts, 0.01 * tol, noise), tilted, first, tol, max_sweeps, progress)


def _noise(latents: Latents, key: Any, samples: int) -> Noise:
    words = np.asarray(jax.random.key_data(as_key(key)))
    return Noise.draw(latents, np.random.default_rng(words), samples)


class _Algebra:
    """The posterior of the last fresh sweep."""

    def __init__(self, latents: Latents, counts: Floats, tol: float, noise: Noise | None) -> None:
        self.latents, self.counts, self._tol, self._noise = latents, counts, tol, noise
        self.method: Method = "factorised" if noise is None else "sampled"
        self._last: dict[str, Floats] = {}
        self.relations: Relations | None = None
        self.posterior: SparsePosterior | None = None
        self.error = np.zeros(len(counts))
        self.parts: dict[str, Floats] = {}

    def refresh(self, sites: Sites) -> Fit:
        """The posterior under the sites."""
        latents = self.latents
        weights = np.asarray(self.counts * np.asarray(sites.precision))
        relations: Relations = (
            Factorised(latents, weights)
            if self._noise is None
            else Sampled(latents, weights, self._tol, self._last, self._noise)
        )
        self.relations, self.posterior = relations, SparsePosterior.under(latents, relations, weights)
        variance, self.error = self.posterior.gap_variances(relations.variances())
        mean = self.response(self.counts * np.asarray(sites.shift))
        return Fit(sites, _NO_FACTOR, _marginals(mean, variance))

    def response(self, pull: Any) -> Any:
        """Posterior covariance of the projections times a vector."""
        assert self.posterior is not None
        self.parts = self.posterior.by_part(self.latents.projection.T @ pull, "mean")
        return np.asarray(self.latents.projection @ self.mean)

    def lasting(self, posterior: SparsePosterior) -> SparsePosterior:
        """Without the random numbers and the solutions that only further sweeps would need."""
        if self._noise is None:
            return posterior
        return replace(posterior, relations=Iterative(self.latents, posterior.weights, self._tol))

    @property
    def mean(self) -> Floats:
        """Of all utilities, after the last response."""
        return np.asarray(sum(self.parts.values()))


def _sweep(
    algebra: _Algebra,
    tilted: Callable[[Any, Any], TiltedMoments],
    first: Sites,
    tol: float,
    max_sweeps: int,
    progress: Callable[[int, float], object] | None,
) -> SparseFit:
    """`relpref.infer.sites.run`, with the algebra on the host."""
    counts: Any = algebra.counts
    nothing = np.zeros(len(counts))
    fit = Fit(first, _NO_FACTOR, _marginals(nothing, nothing))
    state, usable, more, sweeps = begin(first, fit), np.asarray(7), True, 0

    def info(result: Result, detail: str = "") -> SparseInfo:
        residual, damping = float(state.residual), float(state.damping)
        return SparseInfo(result, sweeps, residual, damping, algebra.method, detail)

    try:
        while more and sweeps < max_sweeps:
            sites = _sites(*state.sites)
            fresh = bool(state.held < 0)
            if fresh:
                fit = algebra.refresh(sites)
                marginals = fit.marginals
            else:
                marginals = held(algebra.response, counts, fit, sites, state.mean)
            moments = tilted(*_cavities(counts, sites, marginals))
            state, usable, going = _advance(counts, state, fit, marginals, moments, tol)
            more, sweeps = bool(going), sweeps + fresh
            if progress is not None and fresh:
                progress(sweeps, float(state.held_residual))
        result = CODES[int(_outcome(state, usable, tol))]
        if result.empty or algebra.posterior is None:
            return _nothing(algebra, info(result))
        return _found(algebra, fit, state, info(result))
    except InferenceError as error:
        return _nothing(algebra, info(Result.iterations_not_converged, str(error)))
    except scipy.linalg.LinAlgError as error:
        return _nothing(algebra, info(Result.prior_not_positive_definite, str(error)))


def _found(algebra: _Algebra, fit: Fit, state: State, info: SparseInfo) -> SparseFit:
    """The posterior of the last fresh sweep, and its evidence (`relpref.infer.ep.evaluate`)."""
    posterior, relations = algebra.posterior, algebra.relations
    assert posterior is not None and relations is not None
    counts, shift = algebra.counts, np.asarray(fit.sites.shift)
    gap_mean = algebra.response(counts * shift)  # held sweeps have moved it
    half, error = posterior.half_log_ratio(relations.half_log_ratio())
    rows = _evidence_of_rows(counts, state.log_normalizer, fit.sites, fit.marginals)
    variance: Any = fit.marginals.variance
    return SparseFit(
        fit.sites,
        algebra.mean,
        algebra.parts,
        gap_mean,
        variance,
        algebra.error,
        float(rows) - float(half) + 0.5 * float((counts * shift) @ gap_mean),
        float(error),
        info,
        algebra.lasting(posterior),
    )


def _nothing(algebra: _Algebra, info: SparseInfo) -> SparseFit:
    """No number at all."""
    latents = algebra.latents
    rows, entities = np.full(len(algebra.counts), np.nan), np.full(latents.size, np.nan)
    parts = dict.fromkeys([*latents.relations, *latents.factors], entities)
    return SparseFit(
        _sites(rows, rows), entities, parts, rows, rows, rows, float("nan"), float("nan"), info, None
    )


def _checked(
    parts: Mapping[str, ImplicitCovariance],
    column: ArrayLike,
    entry: ArrayLike,
    counts: ArrayLike,
    start: Sites | None,
) -> tuple[Latents, Floats, Sites]:
    """The arguments in the types they are used in."""
    columns, entries = np.asarray(column, dtype=np.intp), np.asarray(entry, dtype=np.float64)
    number = np.asarray(counts, dtype=np.float64)
    if columns.shape != (number.size, 2) or entries.shape != columns.shape or number.ndim != 1:
        raise DataError(
            f"column, entry and counts have shapes {columns.shape}, {entries.shape} and {number.shape}; they are (m, 2), (m, 2) and (m,)"
        )
    latents = Latents.of(parts, columns, entries)
    if columns.size and not (columns.min() >= 0 and columns.max() < latents.size):
        raise DataError(
            f"column reaches from {columns.min()} to {columns.max()}; the {latents.size} entities are counted from 0"
        )
    nothing = np.zeros_like(number)
    first = _sites(nothing, nothing) if start is None else _sites(*start)
    for name, values in (
        ("entry", entries),
        ("counts", number),
        ("the sites' precision", first.precision),
        ("the sites' shift", first.shift),
    ):
        if not np.all(np.isfinite(values)):
            raise DataError(f"{name} is not finite everywhere; look for NaN in the data")
    for name, values in (("counts", number), ("the sites' precision", first.precision)):
        if np.any(np.asarray(values) < 0):
            raise DataError(f"{name} has the negative entry {np.min(values)}; it must not be negative")
    return latents, number, first


def _sites(precision: Any, shift: Any) -> Sites:
    return Sites(np.asarray(precision, np.float64), np.asarray(shift, np.float64))  # type: ignore[arg-type]  # on the host


def _marginals(mean: Any, variance: Any) -> Marginals:
    return Marginals(mean, variance, np.zeros(()))  # type: ignore[arg-type]  # the determinant comes last


_NO_FACTOR: Any = ()  # the host keeps it
_cavities = jax.jit(cavities)
_outcome = jax.jit(outcome)


@jax.jit
def _advance(
    counts: Array, state: State, fit: Fit, marginals: Marginals, moments: TiltedMoments, tol: Array
) -> tuple[State, Array, Array]:
    state, usable = advance(counts, state, fit, marginals, moments)
    return state, usable, unfinished(state, usable, tol)


@jax.jit
def _evidence_of_rows(counts: Array, log_normalizer: Array, sites: Sites, marginals: Marginals) -> Array:
    return log_evidence_of_sites(counts, log_normalizer, sites, cavities(counts, sites, marginals))
