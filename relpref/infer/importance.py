"""Weighted hyperparameters around the maximum of evidence times prior.

Every hyperparameter is first standardized: mapped, monotonically, to a scale where its prior is the
standard normal. There evidence times prior is smooth and nearly Gaussian, and a few well-placed
evaluations integrate over it. The idea is that of Rue, Martino & Chopin (2009, "Approximate
Bayesian inference for latent Gaussian models", section 6.5). In one or two directions the points
are a lattice, of which the trapezoidal rule makes an integral that is nearly exact; in three, too,
of few answers whose likelihoods are not log-concave. In more they are those of a rule of degree 5
for the normal distribution, on axes that follow the skewness; with many latents, where a point
costs much time and memory, its corners alone, a rule of degree 3.
The same answers always have the same points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri, softmax

from relpref.data.arrays import Floats
from relpref.infer.call import Values, survey
from relpref.infer.program import Program
from relpref.infer.smoothing import smoothed
from relpref.limits import MAX_NUMBERS_OF_POINTS
from relpref.result import InferenceWarning, warn_user

# Directions of hyperparameters that are varied, by the least number of points: in more directions
# points would be too sparse.
_DIRECTIONS = ((36, 10), (16, 8), (0, 6))
_MAX_CURVED = 40  # coordinates whose curvature is worth an evaluation each
# Distance of neighbors in the lattice, in standard deviations, in one direction and in more.
_SPACING, _SPACING_OF_SEVERAL = 1.0, 1.6118548977353129
# Rows up to which the points in three directions are a lattice, too, where likelihoods are not
# log-concave, as with lapses and members: then wide posteriors have much of the evidence.
_FEW_ROWS = 100
# Fall of the logarithm below its maximum at which the lattice ends, and where a likelihood is not
# log-concave, as with lapses: then little evidence may belong to wide posteriors.
_DEPTH, _DEEP = 5.0, 7.0
MOST_POINTS = 100  # of a lattice
# Squared coordinates of the rule's points in the corners, and where the skewness of an axis is
# seen, in standard deviations.
_CORNERS, _SEEN = 1.5, 2.2
_NOTHING = 1e-9  # a point of the rule with less weight is left out
# Effective share of the rule's points below which another round follows.
_MIN_SHARE = 0.3
# Latents above which there are fewer points: each costs more, and answers are more informative.
_SMALL, FEWER_POINTS = 100, 36
_MANY, FEWEST_POINTS = 600, 16
MIN_POINTS = 8
# Points in all where members of plates are drawn at each, if memory allows it, times the rows; and
# bounds of the points. Few answers leave the noise of a rater uncertain, and sds with it.
_DRAWS_TIMES_ROWS, _FEWEST_DRAWN, _MOST_DRAWN = 10_000, 24, 96
# The mixture is not to be relied on where fewer points are effective than this share of them, or,
# of few and of many points, than these numbers.
_LEAST_EVEN, _LEAST_OF_FEW, _LEAST_OF_MANY = 0.1, 2.0, 5.0
MAX_PARETO_K = 0.7
PARETO_POINTS = 64  # Pareto's k is estimated from this many weights on
# Tolerance of the sites at a point: a mean in posterior sds, a variance relative to itself.
POINT_TOLERANCE = 1e-3
_STEP = 0.05  # of the differences that give the curvature, in prior standard deviations
_LEAST_CURVATURE = 0.5  # the prior alone gives 1
# Longest step from the maximum to that on the standardized scale, in standard deviations.
_MAX_NEWTON = 1.5
# Offsets from the prior's median at which a prior is tabulated, in the unconstrained space.
_GRID = 0.05 * np.sinh(np.linspace(-8.0, 8.0, 801))
_FARTHEST = 6.5  # standard deviations; the map is linear beyond
# Entries of ``info`` that updates do not change.
POINTS_INFO = ("points", "directions", "failed_points", "held", "averaged")


class Evaluated(NamedTuple):
    """An engine's evidence at one value of the hyperparameters."""

    log_evidence: float
    log_prior: float
    gradient: Floats  # of their sum, in the flattened unconstrained hyperparameters, shape (p,)
    result: Any  # what is kept of the evaluation


Need = Literal["level", "gradient", "result"]  # beside the evidence and the prior
# From flattened unconstrained hyperparameters, shape (k, p), and what is needed; None if the engine
# fails.
Evaluate = Callable[[Floats, Need], list[Evaluated | None]]


class Points(NamedTuple):
    """Weighted hyperparameters."""

    vectors: Floats  # flattened and unconstrained, shape (k, p)
    results: list[Any]  # what the evaluations kept
    # Of prior over proposal, shape (k,). Plus the log evidences of the points they are those of
    # evidence times prior over proposal, and log Σ exp of these is ``log_evidence``.
    prior_log_weights: Floats
    # Log of the evidence averaged over the prior; None where sites are held.
    log_evidence: float | None
    info: dict[str, Any]

    def moved(self, vectors: Floats, evaluations: list[Evaluated | None]) -> "Points":
        """Points of the same weights at other vectors; unchanged where the engine failed."""
        prior, results = self.prior_log_weights.copy(), list(self.results)
        kept = self.vectors.copy()
        for row, evaluation in enumerate(evaluations):
            if evaluation is not None:
                prior[row] += results[row][0].log_evidence - evaluation.log_evidence
                results[row], kept[row] = evaluation.result, vectors[row]
        return self._replace(vectors=kept, results=results, prior_log_weights=prior)

    @property
    def weights(self) -> Floats:
        """Weights of the points after the answers, shape (k,)."""
        evidences = [component.log_evidence for component, *_ in self.results]
        return np.asarray(softmax(self.prior_log_weights + evidences))

    def split(self, most: int) -> "Points":
        """The same points, the heavy ones repeated, so that more may be drawn at each of them.

        With their copies they are about ``most``.
        """
        copies = np.maximum(np.round(most * self.weights), 1).astype(np.int64)
        rows = np.repeat(np.arange(len(copies)), copies)
        return self._replace(
            vectors=self.vectors[rows],
            results=[self.results[row] for row in rows],
            prior_log_weights=(self.prior_log_weights - np.log(copies))[rows],
        )


class _Scale(NamedTuple):
    """A table of the monotone map of a coordinate from z ~ N(0, 1) to its unconstrained value x."""

    z: Floats
    x: Floats
    log_density: Floats  # of x


@dataclass(frozen=True)
class Coordinates:
    """The flattened unconstrained hyperparameters."""

    names: list[str]  # of the hyperparameter of each coordinate
    # None where a prior is not one of independent coordinates: then it stays as it is.
    scales: list[_Scale | None]
    free: NDArray[np.int64]  # coordinates that are hyperparameters of the whole problem: scalars
    more: NDArray[np.int64]  # entries of vectors, such as one length scale for each attribute
    # Sites that stay at the maximum: those inside a plate, such as the noise of each rater, and
    # very long vectors.
    held: list[str]


def coordinates(program: Program, maximum: Values) -> Coordinates:
    """Standardize the hyperparameters.

    Where a prior depends on another hyperparameter, that one is at its maximum.
    """
    values = {name: np.asarray(value) for name, value in maximum.items()}
    plated = {name for name, site in survey(program.call).items() if site.plated}
    filled = program.on_host(values)
    names: list[str] = []
    scales: list[_Scale | None] = []
    free: list[int] = []
    more: list[int] = []
    for name in sorted(values):  # the order in which JAX flattens dictionaries
        size = int(np.size(values[name]))
        if name not in plated:
            place = range(len(names), len(names) + size)
            (free if np.ndim(values[name]) == 0 else more).extend(place)
        names += [name] * size
        median = np.asarray(program.medians[name])
        grid = median + np.reshape(_GRID, (-1,) + (1,) * median.ndim)
        densities = None if name in plated else filled.densities(name, grid)
        if densities is not None:
            centers = np.ravel(median)
            columns = np.reshape(densities, (len(_GRID), size)).T
            scales += [
                _scale(center + _GRID, column)
                for center, column in zip(centers, columns, strict=True)
            ]
        else:
            scales += [None] * size
    held = sorted(plated & set(values))
    if len(free) + len(more) > _MAX_CURVED:
        held += sorted({names[at] for at in more})
        more = []
    return Coordinates(names, scales, np.array(free, np.int64), np.array(more, np.int64), held)


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
    return _Scale(z[kept], x[kept], log_density[kept]) if kept.sum() >= 10 else None


def _line(at: Any, x: Floats, y: Floats) -> tuple[Any, Any]:
    """Linear interpolation, and extrapolation along the first and last piece; and the slope."""
    left = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
    slope = (y[left + 1] - y[left]) / (x[left + 1] - x[left])
    return y[left] + slope * (at - x[left]), slope


class _Target(NamedTuple):
    """Evidence times prior as a function of standardized hyperparameters z, shape (k, d)."""

    evaluate: Evaluate
    maximum: Floats
    moving: NDArray[np.int64]  # coordinates that z has
    scales: list[tuple[int, _Scale]]  # of entries of z

    def at(self, z: Floats, need: Need) -> tuple[Floats, list[Evaluated | None], Floats]:
        """Evaluate at z.

        Returns flattened unconstrained hyperparameters, shape (k, p), their evaluations, and log
        evidence times prior as a density of z.
        """
        x = np.repeat(self.maximum[None], len(z), axis=0)
        x[:, self.moving] = z
        height = np.zeros(len(z))
        for column, scale in self.scales:
            x[:, self.moving[column]], slope = _line(z[:, column], scale.z, scale.x)
            height += np.log(slope)
        evaluations = self.evaluate(x, need)
        here = [
            -np.inf if evaluation is None else evaluation.log_evidence + evaluation.log_prior
            for evaluation in evaluations
        ]
        return x, evaluations, here + height

    def gradient(self, z: Floats, evaluation: Evaluated) -> Floats:
        """Gradient of the height at one z, shape (d,).

        That of the prior is −z on the standardized scale.
        """
        gradient = evaluation.gradient[self.moving].copy()
        for column, scale in self.scales:
            slope = _line(z[column], scale.z, scale.x)[1]
            of_prior = _line(z[column], scale.z, scale.log_density)[1]  # by z, as the slope
            gradient[column] = slope * gradient[column] - of_prior - z[column]
        return gradient


class _Axes(NamedTuple):
    """A map from u to z = center + root s(u), where s bends each coordinate as its skewness asks.

    s_i(u) = scale_i (exp(bend_i u) − 1)/bend_i, which is scale_i u where nothing is bent.
    """

    center: Floats  # shape (d,)
    root: Floats  # shape (d, d)
    scale: Floats  # shape (d,)
    bend: Floats  # shape (d,)

    @classmethod
    def fitted(cls, height: "_Height", center: Floats, root: Floats) -> "_Axes":
        """The map under which the logarithm falls by ½u² on either side of each axis."""
        steps = _SEEN * np.concatenate([root.T, -root.T])
        levels = height(np.concatenate([center[None], center + steps]), "level")[2]
        with np.errstate(invalid="ignore"):  # where the engine failed at both places
            drop = np.fmax(levels[0] - levels[1:], 0.1)
        # A parabola through the level that is seen falls by ½_SEEN² at this distance.
        reach = np.clip(_SEEN**2 / np.sqrt(2 * drop), 0.5 * _SEEN, 2.5 * _SEEN)
        right, left = np.split(reach, 2)
        bend = np.log(right / left) / _SEEN
        bend = np.where(np.abs(bend) < 1e-3, 1e-3, bend)
        return cls(center, root, right * bend / np.expm1(bend * _SEEN), bend)

    def at(self, u: Floats) -> tuple[Floats, Floats]:
        """Places z, shape (k, d), and the logarithms of the map's Jacobian there."""
        bent = self.scale * np.expm1(self.bend * u) / self.bend
        log_jacobian = np.sum(np.log(self.scale) + self.bend * u, axis=1)
        return self.center + bent @ self.root.T, log_jacobian + np.linalg.slogdet(self.root)[1]


# From places in the directions that are varied, shape (k, d), and what is needed, to what
# `_Target.at` returns.
_Height = Callable[[Floats, Need], tuple[Floats, list[Evaluated | None], Floats]]


class _Rule(NamedTuple):
    """Evaluations whose weighted sum is an integral."""

    places: Floats  # in the directions that are varied, shape (k, d)
    vectors: Floats  # flattened and unconstrained, shape (k, p)
    results: list[Evaluated | None]
    log_weights: Floats  # shape (k,)
    share: float  # of the points that are effective, compared with a Gaussian


def _lattice(height: _Height, center: Floats, root: Floats, most: int, depth: float) -> _Rule:
    """The trapezoidal rule on a lattice, a triangular one in two directions, else a cubic one.

    From the center on, neighbors are evaluated as long as they may be within ``depth`` of the
    maximum: a concave function lies below the line through its last two points.
    """
    size = len(root)
    spacing = _SPACING if size == 1 else _SPACING_OF_SEVERAL
    # The nearest neighbors are in the directions of the corners of a simplex, and opposite.
    basis = spacing * np.linalg.cholesky((1 + 1 / size) * np.eye(size) - 1 / size)
    corners = np.unique([*np.eye(size, dtype=int), np.ones(size, int)], axis=0)
    steps = [tuple(step) for step in np.concatenate([corners, -corners]).tolist()]
    levels: dict[tuple[int, ...], float] = {}
    vectors: list[Floats] = []
    results: list[Evaluated | None] = []
    queue: list[tuple[int, ...]] = [(0,) * size]
    while queue:
        evaluated = height(center + np.array(queue) @ basis @ root.T, "result")
        vectors.append(evaluated[0])
        results += evaluated[1]
        levels |= zip(queue, evaluated[2], strict=True)
        floor, guesses = max(levels.values()) - depth, dict[tuple[int, ...], float]()
        for place, level in levels.items():
            for step in steps if level > floor else ():
                ahead = tuple(a + b for a, b in zip(place, step, strict=True))
                behind = tuple(a - b for a, b in zip(place, step, strict=True))
                if ahead not in levels:
                    guess = 2 * level - levels.get(behind, level + 0.5 * spacing**2)
                    guesses[ahead] = max(guess, guesses.get(ahead, -np.inf))
        likely = [place for place in guesses if guesses[place] > floor]
        queue = sorted(likely, key=lambda place: -guesses[place])[: most - len(levels)]
    log_volume = np.linalg.slogdet(basis @ root.T)[1]
    places = center + np.array(list(levels)) @ basis @ root.T
    log_weights = np.array(list(levels.values())) + log_volume
    return _Rule(places, np.concatenate(vectors), results, log_weights, 1.0)


def _corners(size: int, most: int) -> Floats:
    """Corners of a cube, shape (k, d): a fraction of them from five directions on.

    Averages of products of up to five coordinates are those of all corners, except the product of
    all five directions; of seven directions and more, and of six with few points, of products of up
    to three; and with fewer than ``FEWEST_POINTS``, of five or six directions, of products of two.
    """
    free = size if size < 5 else 4 if size == 5 or most <= FEWER_POINTS and size < 9 else 5
    free = min(free, 3) if most < FEWEST_POINTS else free
    corners = np.array(list(product((-1.0, 1.0), repeat=free)))
    factors: Any = combinations(range(free), 3 if free > 3 else 2)
    if size == free + 1:
        factors = [range(free)]
    generated = [corners[:, each].prod(axis=1) for each in map(list, factors)]
    return np.column_stack([corners, *generated[: size - free]])


def _symmetric(height: _Height, axes: _Axes, most: int) -> _Rule:
    """The rule of degree 5 for the normal distribution: center, points on axes and corners.

    It is that of McNamee & Stenger (1967), "Construction of fully symmetric numerical integration
    formulas": its weights follow from the moments E[u_i²] = 1, E[u_i⁴] = 3 and E[u_i² u_j²] = 1.
    With at most ``FEWEST_POINTS``, corners alone are a rule of degree 3.
    """
    size = len(axes.root)
    u = _corners(size, most)
    weights = np.full(len(u), 1 / len(u))
    if most > FEWEST_POINTS:
        reach = np.sqrt(2 * _CORNERS / (_CORNERS - 1))
        on_axis, in_corner = (_CORNERS - 1) ** 2 / (4 * _CORNERS**2), 1 / _CORNERS**2
        units = np.concatenate([np.eye(size), -np.eye(size)])
        u = np.concatenate([np.zeros((1, size)), reach * units, np.sqrt(_CORNERS) * u])
        center = 1 - 2 * size * on_axis - in_corner
        weights = np.r_[center, np.full(len(units), on_axis), in_corner * weights]
        used = weights > _NOTHING  # the center of ten directions is not
        u, weights = u[used], weights[used]
    places, log_jacobian = axes.at(u)
    vectors, results, levels = height(places, "result")
    log_normal = -0.5 * np.sum(np.square(u), axis=1) - 0.5 * size * np.log(2 * np.pi)
    log_ratio = levels + log_jacobian - log_normal
    ratio = np.exp(log_ratio - max(log_ratio.max(), np.finfo(float).min))
    share = float((weights @ ratio) ** 2 / max(weights @ ratio**2, np.finfo(float).tiny))
    return _Rule(places, vectors, results, np.log(weights) + log_ratio, share)


def importance_points(
    program: Program,
    evaluate: Evaluate,
    coords: Coordinates,
    maximum: Floats,
    at_maximum: Evaluated,
    most: int,
    report: Callable[[int, float], None],
) -> Points:
    """Weighted points around the maximum: not many more than ``most``.

    ``maximum`` has the flattened unconstrained hyperparameters, shape (p,). ``report`` is called
    with the number of points and the effective number.
    """
    moving = np.concatenate([coords.free, coords.more])
    origin, scales = maximum[moving].astype(float), []
    for column, scale in enumerate([coords.scales[at] for at in moving]):
        if scale is not None:
            scales.append((column, scale))
            origin[column] = _line(origin[column], scale.x, scale.z)[0]
    target = _Target(evaluate, maximum, moving, scales)
    hessian, gradient = _curvature(target, origin, at_maximum)
    number = next(number for least, number in _DIRECTIONS if most >= least)
    varied, rest = _directions(hessian, len(coords.free), number)
    root = inverse_root(varied.T @ hessian @ varied)
    newton = root.T @ (varied.T @ gradient)  # in units of the root
    newton *= min(1.0, _MAX_NEWTON / max(float(np.linalg.norm(newton)), 1e-300))
    center = root @ newton

    def height(places: Floats, need: Need) -> tuple[Floats, list[Evaluated | None], Floats]:
        return target.at(origin + places @ varied.T, need)

    log_concave = program.layout.log_concave
    few = not log_concave and program.layout.num_rows <= _FEW_ROWS
    if len(root) <= (3 if few else 2):
        depth = _DEPTH if log_concave else _DEEP
        rule = _lattice(height, center, root, min(most, MOST_POINTS), depth)
    else:
        rule = _symmetric(height, _Axes.fitted(height, center, root), most)
        if rule.share < _MIN_SHARE and np.any(np.isfinite(rule.log_weights)):
            # Another one with the moments of the weighted points, as far as they determine these.
            weights = np.exp(rule.log_weights - logsumexp(rule.log_weights))
            middle, enough = weights @ rule.places, effective(rule.log_weights)
            centered, confidence = rule.places - middle, enough / (enough + len(middle))
            covariance = (
                confidence * (centered.T * weights) @ centered + (1 - confidence) * root @ root.T
            )
            values, axes = np.linalg.eigh(covariance)
            again = _Axes.fitted(height, middle, axes * np.sqrt(values))
            rule = max(rule, _symmetric(height, again, most), key=lambda other: other.share)
    log_weights, evaluations = rule.log_weights, rule.results
    enough = effective(log_weights)
    report(len(evaluations), enough)
    rows = [row for row, evaluation in enumerate(evaluations) if evaluation is not None]
    kept = [evaluation for evaluation in evaluations if evaluation is not None]
    info: dict[str, Any] = {
        "points": len(kept),
        "effective_points": enough,
        "directions": len(root),
    }
    if len(evaluations) > len(kept):
        info["failed_points"] = len(evaluations) - len(kept)
    if rest.shape[1] or coords.held:
        names = {coords.names[at] for at in coords.more} if rest.shape[1] else set()
        info["held"] = [*coords.held, *sorted(names)]
    total: float | None = None
    highest = float(logsumexp(log_weights[rows])) if rows else 0.0
    if rows and not coords.held:
        # The integral over what is varied, and over the other directions by Laplace's method.
        total = highest + 0.5 * rest.shape[1] * np.log(2 * np.pi)
        total -= 0.5 * float(np.linalg.slogdet(rest.T @ hessian @ rest)[1])
        highest -= total  # so that weights and evidences add up to this one
    return Points(
        vectors=rule.vectors[rows],
        results=[evaluation.result for evaluation in kept],
        prior_log_weights=log_weights[rows] - [each.log_evidence for each in kept] - highest,
        log_evidence=total,
        info=info,
    )


def repeated_point(result: Any, here: Evaluated, number: int) -> Points:
    """Points of equal weight at fixed hyperparameters, for members to be drawn at each."""
    equal = np.full(number, -np.log(number))
    info = {"points": number, "effective_points": float(number), "directions": 0}
    return Points(np.empty((number, 0)), [result] * number, equal, here.log_evidence, info)


def drawn_points(size: int, rows: int) -> int:
    """Number of points at each of which members of plates are drawn."""
    number = int(np.clip(_DRAWS_TIMES_ROWS / max(rows, 1), _FEWEST_DRAWN, _MOST_DRAWN))
    return min(number, most_points(size))


def most_points(size: int) -> int:
    """Largest number of points for so many latents."""
    most = MAX_NUMBERS_OF_POINTS // max(size, 1) ** 2
    if size > _MANY:
        return min(most, FEWEST_POINTS)
    return min(most, FEWER_POINTS) if size > _SMALL else most


def effective(log_weights: Floats) -> float:
    """Number of effective points, (Σw)²/Σw²; 0 where no weight is finite."""
    if not np.any(np.isfinite(log_weights)):
        return 0.0
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


def are_too_few(number: int, enough: float) -> bool:
    """Whether so many effective points, of a number of them, are too few to be relied on."""
    return enough < float(np.clip(_LEAST_EVEN * number, _LEAST_OF_FEW, _LEAST_OF_MANY))


def judged(log_weights: Floats, drawn: bool = True) -> dict[str, Any]:
    """Entries of ``info`` about weights of evidence times prior over proposal.

    Warns where a few points have most of the weight, or, if they were ``drawn``, where the tail of
    the weights is heavy.
    """
    number, enough, message = len(log_weights), effective(log_weights), None
    info = {"points": number, "effective_points": enough}
    if drawn and number >= PARETO_POINTS:
        info["pareto_k"] = shape = float(smoothed(log_weights).k_hat)
        if shape > MAX_PARETO_K:
            message = (
                f"Pareto's k of the weights of the hyperparameters is {shape:.2f}, above "
                f"{MAX_PARETO_K}"
            )
    if are_too_few(number, enough):
        message = f"only {enough:.1f} of {number} weighted hyperparameters are effective"
    if message is not None:
        warn_user(
            f"{message}: means and intervals may be off; fit with hyperparameters='nuts', or give "
            "tighter priors",
            InferenceWarning,
        )
    return info


def _curvature(target: _Target, origin: Floats, at_maximum: Evaluated) -> tuple[Floats, Floats]:
    """Minus the Hessian and the gradient at the maximum.

    The Hessian is by differences of the exact gradient, with eigenvalues bounded from below.
    """
    here = target.gradient(origin, at_maximum)
    hessian = np.eye(len(here))
    left = np.arange(len(here))
    for step in (_STEP, -_STEP):
        places = origin + step * np.eye(len(here))[left]
        evaluations = target.at(places, "gradient")[1] if len(left) else []
        for row, place, evaluation in zip(left, places, evaluations, strict=True):
            if evaluation is not None:
                hessian[row] = (here - target.gradient(place, evaluation)) / step
        left = left[[evaluation is None for evaluation in evaluations]]
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return (vectors * np.maximum(values, _LEAST_CURVATURE)) @ vectors.T, here


def _directions(hessian: Floats, free: int, most: int) -> tuple[Floats, Floats]:
    """Bases of at most ``most`` directions that are varied, and of the rest.

    Scalars come first, then the flattest directions of the vectors' entries.
    """
    size = len(hessian)
    if size <= most:
        return np.eye(size), np.empty((size, 0))
    block = slice(free, None) if free < most else slice(None, free)
    _, vectors = np.linalg.eigh(hessian[block, block])  # the flattest first
    basis = np.eye(size)
    basis[block, block] = vectors
    return basis[:, :most], basis[:, most:]


def inverse_root(precision: Floats, least: float = 0.0) -> Floats:
    """A root of the inverse, eigenvalues bounded from below; the identity where it is not finite.

    It is computed from eigenvectors: where noise near 0 fits best, curvatures differ by more than
    a Cholesky factor allows.
    """
    if not np.all(np.isfinite(precision)):
        return np.eye(len(precision))
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    return np.asarray(vectors / np.sqrt(np.maximum(values, least)))
