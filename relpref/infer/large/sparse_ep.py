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
from relpref.infer.evidence import log_evidence_of_sites
from relpref.infer.large.sparse import (
    Estimate,
    Factorised,
    Iterative,
    Latents,
    Noise,
    Sampled,
    SparsePosterior,
    exact_variances,
)
from relpref.infer.result import CODES, Result
from relpref.infer.sites import (
    Fit,
    Marginals,
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
from relpref.likelihoods import TiltedMoments
from relpref.linalg import Covariance, require_memory
from relpref.posterior.gaussian import as_key

Floats = NDArray[np.float64]
Method = Literal["factorised", "sampled", "refined"]


class Algebra:
    """The posterior of the last fresh sweep.

    Parameters
    ----------
    latents : Latents
    counts : array, shape (m,)
    tol : float
        Of every solve.
    noise : Noise or None
        None for dense factors.

    Attributes
    ----------
    mean, parts : array of shape (n,), and dict of such arrays
        What the last response stands for, and what it is made of.
    """

    def __init__(self, latents: Latents, counts: Floats, tol: float, noise: Noise | None) -> None:
        self.latents, self.counts = latents, counts
        self._tol, self._noise = tol, noise
        self._last: dict[str, Floats] = {}
        self._relations: Factorised | Sampled
        self._posterior: SparsePosterior
        self._ratio = np.ones(len(counts))
        self.parts: dict[str, Floats] = {}

    def refresh(self, given: Sites) -> Fit:
        """The posterior under given sites."""
        weights = np.asarray(self.counts * np.asarray(given.precision))
        if self._noise is None:
            self._relations = Factorised(self.latents, weights)
        else:
            self._relations = Sampled(self.latents, weights, self._tol, self._last, self._noise)
        self._posterior = SparsePosterior.under(self.latents, self._relations, weights)
        mean = self.response(self.counts * np.asarray(given.shift))
        return Fit(given, NO_FACTOR, marginals(mean, self.gap_variances().value))

    def response(self, pull: Any) -> Any:
        """Posterior covariance of the projections times a vector."""
        self.parts = self._posterior.by_part(self.latents.projection.T @ pull, "mean")
        return np.asarray(self.latents.projection @ self.mean)

    @property
    def mean(self) -> Floats:
        return np.asarray(sum(self.parts.values()))

    def gap_variances(self) -> Estimate:
        """Of the rows, with standard errors."""
        value, error = self._relations.variances
        return self._posterior.gap_variances(Estimate(self._ratio * value, self._ratio * error))

    def refine(self) -> Floats:
        """From now on take variances in the ratio of exact to estimated ones under the sites of now.

        The random numbers are the same in every sweep, so the ratio hardly depends on the sites.

        Returns
        -------
        array, shape (m,)
            Exact less estimated variance of the rows so far.
        """
        value = self._relations.variances.value
        exact = exact_variances(self.latents, self._relations)
        wrong = exact - self._ratio * value
        self._ratio = exact / value
        return wrong

    def half_log_ratio(self) -> Estimate:
        """Half the log ratio of prior to posterior volume."""
        return self._posterior.half_log_ratio(self._relations.half_log_ratio())

    def mean_error(self, slope: Floats, wrong: Floats | None) -> Floats:
        """What the errors of the variances do to the means, shape (n,), to first order.

        Parameters
        ----------
        slope : array, shape (m,)
            Of each row's pull ν − τ·mean in its variance.
        wrong : array, shape (m,), or None
            Error of each variance; None takes the samples' (the infinitesimal jackknife: each sample is left out in turn).
        """
        deviations = self._relations.deviations if wrong is None else wrong[:, None]
        if not deviations.size:
            return np.zeros(self.latents.size)
        pull = self.latents.projection.T @ (slope[:, None] * deviations)
        return np.asarray(np.sqrt(np.sum(self._posterior.matmul(pull) ** 2, axis=1)))

    def lasting(self) -> SparsePosterior:
        """Without the random numbers and the solutions that only further sweeps would need."""
        if self._noise is None:
            return self._posterior
        relations = Iterative(self.latents, self._posterior.weights, self._tol)
        return replace(self._posterior, relations=relations)


NO_FACTOR: Any = ()  # of a `Fit`: the host keeps it


def sites(precision: Any, shift: Any) -> Sites:
    found: Any = Sites
    return found(np.asarray(precision, np.float64), np.asarray(shift, np.float64))


def marginals(mean: Any, variance: Any) -> Marginals:
    """Marginals on the host, before the determinant is known."""
    found: Any = Marginals
    return found(mean, variance, np.zeros(()))


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


# Variances are refined until they are as near as this, relative to themselves.
_NEAR, _MOST_REFINED = 1e-4, 6


class SparseInfo(NamedTuple):
    """How the sweeps went.

    Attributes
    ----------
    result : Result
    sweeps : int
        Fresh ones.
    residual, damping : float
        As in `relpref.infer.sites.Info`.
    method : {"factorised", "sampled", "refined"}
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
    mean, mean_error : array, shape (n,)
        Of all utilities, less their prior means; and what the errors of the variances do to it, as a standard error.
    parts : dict from part to array, shape (n,)
        What adds up to the mean.
    gap_mean, gap_variance, gap_variance_error : array, shape (m,)
        Of the rows' projections; the standard error is that of the estimate at these sites, 0 where it is exact.
    log_evidence, log_evidence_error : float
    info : SparseInfo
    covariance : SparsePosterior or None
    """

    sites: Sites
    mean: Floats
    mean_error: Floats
    parts: dict[str, Floats]
    gap_mean: Floats
    gap_variance: Floats
    gap_variance_error: Floats
    log_evidence: float
    log_evidence_error: float
    info: SparseInfo
    covariance: SparsePosterior | None


def fit(
    parts: Mapping[str, Covariance],
    column: ArrayLike,
    entry: ArrayLike,
    counts: ArrayLike,
    tilted: Tilted,
    *,
    start: Sites | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    key: Any = 0,
    samples: int = 64,
    variances: Literal["auto", "factorised", "sampled", "refined"] = "auto",
    progress: Progress | None = None,
) -> SparseFit:
    """Run EP on many answers about many entities.

    The fixed point is that of `relpref.infer.ep`, as near to it as the variances of the gaps: the same steps and the same damping,
    with solves instead of a factorized matrix.

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
    variances : {"auto", "factorised", "sampled", "refined"}
        Exact ones by a dense factor, O((Rn)³) for each sweep; estimates from samples; or these, corrected until they agree with exact
        ones to 1e-4, two to four times one solve for each entity in a row. "auto" takes one of the first two by size.
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
    if variances not in ("auto", "factorised", "sampled", "refined"):
        raise DataError(f"variances is {variances!r}; it is 'auto', 'factorised', 'sampled' or 'refined'")
    if samples < 8:
        raise DataError(f"samples is {samples}; it must be at least 8")
    latents, number, first = _checked(parts, column, entry, counts, start)
    method: Method = "factorised" if variances == "auto" and latents.small else "sampled"
    method = "factorised" if latents.copies == 0 else method if variances == "auto" else variances
    require_memory(_bytes(latents, method, samples), "EP in sparse entity space")
    with jax.enable_x64(True):
        noise = None if method == "factorised" else _noise(latents, key, samples)
        algebra = Algebra(latents, number, 0.01 * tol, noise)
        swept, wrong, detail = before(first), None, ""
        try:
            swept = sweep(algebra, tilted, swept, tol, max_sweeps, progress)
            if method == "refined":
                swept, wrong = _refined(algebra, tilted, swept, tol, max_sweeps, progress)
            if swept.number and not swept.result.empty:
                return _found(algebra, tilted, swept, method, wrong)
        except InferenceError as error:
            swept, detail = swept._replace(result=Result.iterations_not_converged), str(error)
        except scipy.linalg.LinAlgError as error:
            swept, detail = swept._replace(result=Result.prior_not_positive_definite), str(error)
        return _nothing(algebra, _info(swept, method, detail))


def _bytes(latents: Latents, method: Method, samples: int) -> float:
    """Memory of the arrays that are largest where the sweeps need most: factors, or noise, solutions and what they are made of."""
    unknowns, rows = latents.copies * latents.size, len(latents.column)
    rank = sum(factor.shape[1] for factor in latents.factors.values())
    attributes = rank * (2.0 * unknowns + 3 * latents.size + 4 * rows)
    if method == "factorised":
        return 8 * (attributes + 3.0 * unknowns**2)
    return 8 * (attributes + samples * (6.0 * unknowns + 4 * rows))


def _noise(latents: Latents, key: Any, samples: int) -> Noise:
    words = np.asarray(jax.random.key_data(as_key(key)))
    return Noise.draw(latents, np.random.default_rng(words), samples)


def _refined(
    algebra: Algebra,
    tilted: Tilted,
    swept: Sweeps,
    tol: float,
    most: int,
    progress: Progress | None,
) -> tuple[Sweeps, Floats]:
    """Sweeps with variances that were corrected by exact ones, and how wrong the last of them are."""
    wrong = algebra.refine()
    for _ in range(_MOST_REFINED):
        if not swept.result.ok or np.all(np.abs(wrong) <= _NEAR * np.asarray(swept.fit.marginals.variance)):
            break
        swept = sweep(algebra, tilted, swept, tol, swept.number + most, progress)
        wrong = algebra.refine()
    return swept, wrong


def _info(swept: Sweeps, method: Method, detail: str = "") -> SparseInfo:
    residual, damping = float(swept.state.residual), float(swept.state.damping)
    return SparseInfo(swept.result, swept.number, residual, damping, method, detail)


def _found(
    algebra: Algebra, tilted: Tilted, swept: Sweeps, method: Method, wrong: Floats | None
) -> SparseFit:
    """The posterior of the last fresh sweep, and its evidence (`relpref.infer.ep.evaluate`)."""
    fit, counts = swept.fit, algebra.counts
    pull = counts * np.asarray(fit.sites.shift)
    gap_mean = algebra.response(pull)  # held sweeps have moved it
    mean, parts = algebra.mean, algebra.parts
    variance, error = algebra.gap_variances()
    mean_error = algebra.mean_error(slope_of_pull(algebra, tilted, fit), wrong)
    half, half_error = algebra.half_log_ratio()
    rows = evidence_of_rows(counts, swept.state.log_normalizer, fit)
    return SparseFit(
        sites(*fit.sites),
        mean,
        mean_error,
        parts,
        gap_mean,
        variance,
        error if wrong is None else np.abs(wrong),
        float(rows) - float(half) + 0.5 * float(pull @ gap_mean),
        float(half_error),
        _info(swept, method),
        algebra.lasting(),
    )


def _nothing(algebra: Algebra, info: SparseInfo) -> SparseFit:
    latents, nan = algebra.latents, float("nan")
    rows, entities = np.full(len(algebra.counts), nan), np.full(latents.size, nan)
    parts = dict.fromkeys([*latents.relations, *latents.factors], entities)
    nowhere = sites(rows, rows)
    return SparseFit(nowhere, entities, entities, parts, rows, rows, rows, nan, nan, info, None)


def _checked(
    parts: Mapping[str, Covariance],
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
    first = sites(nothing, nothing) if start is None else sites(*start)
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
