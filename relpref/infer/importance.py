"""Hyperparameters integrated over by importance points around the maximum of evidence times prior.

Every hyperparameter is first standardized: mapped, monotonically, to a scale where its prior is the standard normal. On that scale
evidence times prior is nearly Gaussian, and exactly so where the answers say nothing. A Student-t proposal with the curvature at the
maximum then needs few points, laid out evenly. The idea of a few weighted runs in place of a sampler is that of
Rue, Martino & Chopin (2009, "Approximate Bayesian inference for latent Gaussian models", section 6.5); weights correct for what the
proposal misses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to
from scipy.special import fdtri, gammaln, logsumexp, ndtri

from relpref.infer.program import Program, Values, shapes_of, survey
from relpref.infer.result import InferenceWarning, warn_user
from relpref.likelihoods.tilted import unwrap

Floats = NDArray[np.float64]

MAX_DIRECTIONS = 6  # directions of hyperparameters that are varied: points in more are too sparse
_MAX_CURVED = 40  # coordinates whose curvature is worth an evaluation each
POINTS = {1: 24, 2: 24, 3: 36, 4: 48, 5: 60, 6: 60}  # by the number of directions, at most
ROUNDS = 3  # in which they come, each from a proposal with the moments of the points before
_MIN_SHARE = 0.25  # of the points that are to be effective; otherwise as many again follow
MAX_NUMBERS = 10_000_000  # in the covariances of all points (80 MB), each of which a quick update moves
# Latents above which there are fewer points: each costs more, and answers say more.
_SMALL, FEWER_POINTS = 100, 36
MIN_POINTS = 24
MIN_EFFECTIVE = 5.0  # effective points below which the mixture is not to be relied on
MAX_PARETO_K = 0.7
PARETO_POINTS = 64  # Pareto's k is estimated from this many weights on
_FREEDOM = 7.0  # degrees of freedom of the proposal
POINT_TOLERANCE = 1e-3  # of the sites at a point: a mean in posterior sds, a variance relative to itself
_STEP = 0.05  # of the differences that give the curvature, in prior standard deviations
_LEAST_CURVATURE = 0.5  # the prior alone gives 1
_MAX_NEWTON = 1.5  # longest step from the maximum to that on the standardized scale, in standard deviations

# Offsets from the prior's median at which a prior is tabulated, in the unconstrained space.
_GRID = 0.05 * np.sinh(np.linspace(-8.0, 8.0, 801))
_FARTHEST = 6.5  # standard deviations; the map goes on linearly beyond


POINTS_INFO = ("points", "directions", "failed_points", "held")  # of ``info``, what updates do not change


class Evaluated(NamedTuple):
    """What the points need of an engine's evidence at one value of the hyperparameters.

    Attributes
    ----------
    log_evidence, log_prior : float
    gradient : array, shape (p,)
        Of their sum, in the flattened unconstrained hyperparameters.
    result : Any
        What is kept of the evaluation.
    """

    log_evidence: float
    log_prior: float
    gradient: Floats
    result: Any


# From flattened unconstrained hyperparameters, shape (k, p), and whether the results are wanted; None where the engine fails.
Evaluate = Callable[[Floats, bool], list[Evaluated | None]]


class Points(NamedTuple):
    """Weighted hyperparameters.

    Attributes
    ----------
    vectors : array, shape (k, p)
        Flattened and unconstrained.
    results : list of k
        What the evaluation there kept.
    prior_log_weights : array, shape (k,)
        Of prior over proposal. Those of evidence times prior over proposal are these plus the log evidences of the points, and
        log Σ exp of them is ``log_evidence``.
    log_evidence : float or None
        Log of the evidence averaged over the prior; None where sites are held.
    info : dict
    """

    vectors: Floats
    results: list[Any]
    prior_log_weights: Floats
    log_evidence: float | None
    info: dict[str, Any]


class _Scale(NamedTuple):
    """The monotone map of one coordinate from z, where its prior is standard normal, to its unconstrained value x."""

    z: Floats
    x: Floats
    log_density: Floats  # of x, at the table's values


@dataclass(frozen=True)
class Coordinates:
    """The flattened unconstrained hyperparameters.

    Attributes
    ----------
    names : list of (site, index)
        Of each coordinate.
    scales : list of _Scale or None
        None where a prior is not one of independent coordinates: then it stays as it is.
    free : array of int
        Coordinates that are hyperparameters of the whole problem: scalars.
    more : array of int
        Entries of vectors, such as one length scale for each attribute.
    held : list of str
        Sites that stay at the maximum: those inside a plate, such as the noise of each rater, and very long vectors.
    """

    names: list[tuple[str, int]]
    scales: list[_Scale | None]
    free: NDArray[np.int64]
    more: NDArray[np.int64]
    held: list[str]

    @property
    def number(self) -> int:
        """How many are not held."""
        return len(self.free) + len(self.more)


def coordinates(program: Program, maximum: Values) -> Coordinates:
    """Standardize the hyperparameters, at the values of the maximum where one prior depends on another."""
    values = {name: jnp.asarray(value) for name, value in maximum.items()}
    priors = _priors(program, values)
    plated = {site.name for site in survey(program.call, shapes_of(program.arrays)) if site.plated}
    names: list[tuple[str, int]] = []
    scales: list[_Scale | None] = []
    free: list[int] = []
    more: list[int] = []
    held: list[str] = []
    for name in sorted(values):  # the order in which JAX flattens dictionaries
        size = int(np.size(values[name]))
        if name in plated:
            held.append(name)
        else:
            place = range(len(names), len(names) + size)
            (free if np.ndim(values[name]) == 0 else more).extend(place)
        names += [(name, index) for index in range(size)]
        scales += (
            [None] * size if name in plated else _scales(priors[name], np.asarray(program.medians[name]))
        )
    if len(free) + len(more) > _MAX_CURVED:
        held += sorted({names[at][0] for at in more})
        more = []
    return Coordinates(names, scales, np.array(free, np.int64), np.array(more, np.int64), held)


@jax.jit
def _priors(program: Program, values: Values) -> dict[str, Any]:
    """The priors at unconstrained values, without what plates and the like wrap around them."""
    sites = program.sites(jnp.zeros(program.layout.num_latents), values)
    return {name: unwrap(sites[name]["fn"]) for name in values}


def _scales(base: Any, median: Floats) -> list[_Scale | None]:
    size = max(median.size, 1)
    if base.event_dim or tuple(base.batch_shape) not in ((), median.shape):
        return [None] * size
    centers = np.broadcast_to(np.ravel(median), (size,))
    if base.batch_shape == ():
        densities = [np.asarray(_log_density(base, center + _GRID)) for center in centers]
    else:
        densities = list(np.asarray(_log_density(base, centers[None] + _GRID[:, None])).T)
    return [_scale(center + _GRID, density) for center, density in zip(centers, densities, strict=True)]


@jax.jit
def _log_density(distribution: Any, raw: Array) -> Array:
    transform = biject_to(distribution.support)
    value = transform(raw)
    return distribution.log_prob(value) + transform.log_abs_det_jacobian(raw, value)


def _scale(x: Floats, log_density: Floats) -> _Scale | None:
    """Tabulate z = Φ⁻¹(P(x)); None where the table does not hold the prior."""
    log_density = np.where(np.isfinite(log_density), log_density, -np.inf)
    density = np.exp(log_density - log_density.max())
    pieces = 0.5 * (density[1:] + density[:-1]) * np.diff(x)
    total = pieces.sum()
    if not np.isfinite(total) or total <= 0 or max(density[0], density[-1]) > 1e-4:
        return None
    below = np.concatenate([[0.0], np.cumsum(pieces)]) / total
    above = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]]) / total
    with np.errstate(divide="ignore"):
        z = np.where(below < 0.5, ndtri(below), -ndtri(above))
    kept = np.abs(z) < _FARTHEST
    kept[1:] &= z[1:] > z[:-1] + 1e-9
    if kept.sum() < 10:
        return None
    return _Scale(z[kept], x[kept], log_density[kept])


def _line(at: Any, x: Floats, y: Floats) -> tuple[Any, Any]:
    """Linear interpolation, and extrapolation along the first and last piece; and the slope."""
    left = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
    slope = (y[left + 1] - y[left]) / (x[left + 1] - x[left])
    return y[left] + slope * (at - x[left]), slope


class _Target:
    """Evidence times prior as a function of z, the standardized hyperparameters; of several, shape (k, d), at once."""

    def __init__(self, evaluate: Evaluate, coords: Coordinates, maximum: Floats) -> None:
        self.evaluate, self._maximum = evaluate, maximum
        self._moving = np.concatenate([coords.free, coords.more])
        scales = [(column, coords.scales[at]) for column, at in enumerate(self._moving)]
        self._scales = [(column, scale) for column, scale in scales if scale is not None]
        self.origin = maximum[self._moving].astype(float)
        for column, scale in self._scales:
            self.origin[column] = _line(self.origin[column], scale.x, scale.z)[0]

    def vectors(self, z: Floats) -> Floats:
        """Flattened unconstrained hyperparameters, shape (k, p)."""
        moved = z.copy()
        for column, scale in self._scales:
            moved[:, column] = _line(z[:, column], scale.z, scale.x)[0]
        x = np.repeat(self._maximum[None], len(z), axis=0)
        x[:, self._moving] = moved
        return x

    def heights(self, z: Floats, found: list[Evaluated | None]) -> Floats:
        """Log of evidence times prior, as a density of z; minus infinity where the engine fails."""
        height = np.array([-np.inf if one is None else one.log_evidence + one.log_prior for one in found])
        for column, scale in self._scales:
            height += np.log(_line(z[:, column], scale.z, scale.x)[1])
        return height

    def gradient(self, z: Floats, found: Evaluated) -> Floats:
        """Of the height at one z, shape (d,); on the standardized scale that of the prior is −z."""
        gradient = found.gradient[self._moving].copy()
        for column, scale in self._scales:
            _, slope = _line(z[column], scale.z, scale.x)
            piece = np.clip(np.searchsorted(scale.z, z[column]) - 1, 0, len(scale.z) - 2)
            step = scale.x[piece + 1] - scale.x[piece]
            of_prior = (scale.log_density[piece + 1] - scale.log_density[piece]) / step
            gradient[column] = slope * (gradient[column] - of_prior) - z[column]
        return gradient


class _Proposal(NamedTuple):
    """center + root w, w a d-dimensional Student-t variable."""

    center: Floats
    root: Floats

    def log_density(self, z: Floats) -> Floats:
        """Of points, shape (k, d)."""
        size = len(self.root)
        w = np.linalg.solve(self.root, (z - self.center).T)
        constant = (
            gammaln((_FREEDOM + size) / 2) - gammaln(_FREEDOM / 2) - size / 2 * np.log(_FREEDOM * np.pi)
        )
        kernel = -0.5 * (_FREEDOM + size) * np.log1p(np.sum(np.square(w), axis=0) / _FREEDOM)
        return np.asarray(constant + kernel - np.linalg.slogdet(self.root)[1])


def importance_points(
    evaluate: Evaluate,
    coords: Coordinates,
    maximum: Floats,
    at_maximum: Evaluated,
    rng: np.random.Generator,
    most: int,
    report: Callable[[int, float], None],
) -> Points:
    """Weighted points around the maximum.

    Parameters
    ----------
    evaluate : callable
    coords : Coordinates
    maximum : array, shape (p,)
        Flattened unconstrained hyperparameters.
    at_maximum : Evaluated
    rng : numpy Generator
        Draws the axes and distances of the design.
    most : int
        Points, at the most.
    report : callable
        Called with the number of points and how many of them are effective, after each round.

    Returns
    -------
    Points
    """
    target = _Target(evaluate, coords, maximum)
    hessian, gradient = _curvature(target, at_maximum)
    varied, rest = _directions(hessian, len(coords.free))
    root = inverse_root(varied.T @ hessian @ varied)
    newton = root.T @ (varied.T @ gradient)  # in units of the root
    newton *= min(1.0, _MAX_NEWTON / max(float(np.linalg.norm(newton)), 1e-300))
    groups = max(min(POINTS[len(root)], most) // (2 * len(root)), 1)
    proposals = [_Proposal(root @ newton, root)]
    moves, heights = np.empty((0, len(root))), np.empty(0)
    found: list[Evaluated | None] = []
    turns: list[Floats] = []
    while True:
        if not turns:
            strata = (np.arange(groups) + rng.uniform(size=groups)) / groups
            turns = [strata[turn::ROUNDS] for turn in range(min(ROUNDS, groups))]
        new = _layout(proposals[-1], turns.pop(0), rng)
        places = target.origin + new @ varied.T
        more = evaluate(target.vectors(places), True)
        moves = np.concatenate([moves, new])
        heights = np.concatenate([heights, target.heights(places, more)])
        found += more
        # All points so far together come from the mixture of the proposals so far.
        densities = np.stack([proposal.log_density(moves) for proposal in proposals])
        log_weights = heights - (logsumexp(densities, axis=0) - np.log(len(proposals)))
        enough = effective(log_weights)
        report(len(moves), enough)
        again = len(proposals) <= ROUNDS and enough < _MIN_SHARE * len(moves) and len(moves) < most
        if not turns and not again:
            break
        proposals.append(_moved(proposals[0], moves, log_weights))
    kept = [(row, one) for row, one in enumerate(found) if one is not None]
    rows = [row for row, _ in kept]
    info: dict[str, Any] = {"points": len(kept), "effective_points": enough, "directions": len(root)}
    if len(found) > len(kept):
        info["failed_points"] = len(found) - len(kept)
    if rest.shape[1] or coords.held:
        names = {coords.names[at][0] for at in coords.more} if rest.shape[1] else set()
        info["held"] = [*coords.held, *sorted(names)]
    if len(kept) >= PARETO_POINTS:
        info["pareto_k"] = pareto_k(log_weights[rows])
    total: float | None = None
    scale = float(logsumexp(log_weights[rows]))
    if rows and not coords.held:
        # The integral over what is varied, and over the other directions by Laplace's method.
        total = scale - np.log(len(log_weights))
        total += 0.5 * rest.shape[1] * np.log(2 * np.pi)
        total -= 0.5 * float(np.linalg.slogdet(rest.T @ hessian @ rest)[1])
        scale -= total  # so that weights and evidences add up to this one
    return Points(
        vectors=target.vectors(target.origin + moves[rows] @ varied.T),
        results=[one.result for _, one in kept],
        prior_log_weights=log_weights[rows] - [one.log_evidence for _, one in kept] - scale,
        log_evidence=total,
        info=info,
    )


def most_points(size: int) -> int:
    """How many points there may be for so many latents."""
    room = MAX_NUMBERS // max(size, 1) ** 2
    return min(room, FEWER_POINTS) if size > _SMALL else room


def effective(log_weights: Floats) -> float:
    """Number of effective points, (Σw)²/Σw²; 0 where no weight is finite."""
    if not np.any(np.isfinite(log_weights)):
        return 0.0
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


def pareto_k(log_weights: Floats) -> float:
    """Shape of the generalized Pareto distribution of the largest weights (Vehtari et al. 2024, "Pareto smoothed importance sampling").

    By the estimator of Zhang & Stephens (2009) with the weak prior of that paper. Above 0.7 averages with these weights are not reliable.
    """
    size = len(log_weights)
    tail = int(min(0.2 * size, 3 * np.sqrt(size)))
    ordered = np.exp(np.sort(log_weights) - log_weights.max())
    excess = ordered[-tail:] - ordered[-tail - 1]
    if excess[-1] <= 0:
        return -np.inf
    number = 30 + int(np.sqrt(tail))
    middle = max(excess[int(tail / 4 + 0.5) - 1], 1e-300)
    b = (1 - np.sqrt(number / (np.arange(1, number + 1) - 0.5))) / (3 * middle) + 1 / excess[-1]
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    height = tail * (np.log(-b / k) - k - 1)
    best = float(np.sum(b * np.exp(height - logsumexp(height))))
    shape = float(np.log1p(-best * excess).mean())
    return (tail * shape + 5.0) / (tail + 10.0)


def warn_of_weights(info: Mapping[str, Any]) -> None:
    """Say where a few points have most of the weight."""
    found = None
    if info["effective_points"] < MIN_EFFECTIVE:
        found = (
            f"only {info['effective_points']:.1f} of {info['points']} weighted hyperparameters are effective"
        )
    elif info.get("pareto_k", 0.0) > MAX_PARETO_K:
        found = f"Pareto's k of the weights of the hyperparameters is {info['pareto_k']:.2f}, above {MAX_PARETO_K}"
    if found:
        warn_user(
            f"{found}: means and intervals may be off; fit with hyperparameters='nuts', or give tighter priors",
            InferenceWarning,
        )


def _curvature(target: _Target, at_maximum: Evaluated) -> tuple[Floats, Floats]:
    """Minus the Hessian, with eigenvalues bounded from below, and the gradient at the maximum, by differences of the exact gradient."""
    here = target.gradient(target.origin, at_maximum)
    hessian = np.eye(len(here))
    left = np.arange(len(here))
    for step in (_STEP, -_STEP):
        places = target.origin + step * np.eye(len(here))[left]
        there = target.evaluate(target.vectors(places), False) if len(left) else []
        for row, place, one in zip(left, places, there, strict=True):
            if one is not None:
                hessian[row] = (here - target.gradient(place, one)) / step
        left = left[[one is None for one in there]]
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return (vectors * np.maximum(values, _LEAST_CURVATURE)) @ vectors.T, here


def _directions(hessian: Floats, free: int) -> tuple[Floats, Floats]:
    """Bases of what is varied and of the rest: the scalars first, then the flattest directions of the vectors' entries."""
    size = len(hessian)
    if size <= MAX_DIRECTIONS:
        return np.eye(size), np.empty((size, 0))
    block = slice(free, None) if free < MAX_DIRECTIONS else slice(None, free)
    chosen = MAX_DIRECTIONS - free if free < MAX_DIRECTIONS else MAX_DIRECTIONS
    _, vectors = np.linalg.eigh(hessian[block, block])  # the flattest first
    basis = np.eye(size)
    basis[block, block] = vectors
    start = free if free < MAX_DIRECTIONS else 0
    varied = [*range(start), *range(start, start + chosen)]
    return basis[:, varied], np.delete(basis, varied, axis=1)


def inverse_root(precision: Floats, least: float = 0.0) -> Floats:
    """A root of the inverse, eigenvalues bounded from below; the identity where it is not finite.

    By eigenvectors: where noise of almost nothing fits best, curvatures differ by more than a Cholesky factor bears.
    """
    if not np.all(np.isfinite(precision)):
        return np.eye(len(precision))
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    return np.asarray(vectors / np.sqrt(np.maximum(values, least)))


def _layout(proposal: _Proposal, strata: Floats, rng: np.random.Generator) -> Floats:
    """Points of a proposal, 2d for each quantile of their distance: along both directions of d random orthogonal axes.

    Such spherical-radial designs (Genz & Monahan 1998, "Stochastic integration rules for infinite regions") have the right mean and
    covariance in every group.
    """
    size = len(proposal.root)
    distances = np.sqrt(size * fdtri(size, _FREEDOM, 1e-3 + (1 - 2e-3) * strata))
    axes = np.concatenate([np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in strata])
    w = np.repeat(distances, size)[:, None] * axes
    return np.asarray(proposal.center + np.concatenate([w, -w]) @ proposal.root.T)


def _moved(first: _Proposal, moves: Floats, log_weights: Floats) -> _Proposal:
    """A proposal with the moments of the weighted points, as far as these are known."""
    if not np.any(np.isfinite(log_weights)):
        return _Proposal(first.center, 0.5 * first.root)
    weights = np.exp(log_weights - logsumexp(log_weights))
    center = weights @ moves
    centered = moves - center
    known = effective(log_weights) / (effective(log_weights) + len(center))
    covariance = known * (centered.T * weights) @ centered + (1 - known) * first.root @ first.root.T
    return _Proposal(center, np.linalg.cholesky(covariance))
