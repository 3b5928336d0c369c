"""Laplace's approximation as an engine: the Gaussian that touches the posterior at its mode."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from relpref.description import Description
from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import Approximation, evaluate
from relpref.infer.gradient import (
    Slopes,
    at_points,
    dual_vector,
    slopes_of_answers_at,
    sum_of,
)
from relpref.infer.joint import Around, half_trace, heights, slope_along
from relpref.infer.sites import Fit, Info, Problem, Sites, ending, posterior, with_known
from relpref.likelihoods import TiltedMoments
from relpref.linalg.arrays import Array, cond, namespace, while_loop
from relpref.result import Result

_SHORTEST = 2.0**-30  # fraction of a Newton step below which no ascent is expected


class Point(NamedTuple):
    """A point of the ascent."""

    value: Array  # x, the projections, shape (m,)
    dual: Array  # β with x = (prior covariance of the projections) β, shape (m,)
    height: Array  # Σ log p − ½ βᵀx, the log posterior density up to a constant
    around: Around | None  # of rows that are taken together


class State(NamedTuple):
    """State before the next step: its start, and results of the last step."""

    point: Point
    fit: Fit
    residual: Array
    fraction: Array
    usable: Array
    steps: Array


def sites_at(problem: Problem, value: Array) -> Sites:
    """The Gaussian sites that touch the likelihoods at x; a cavity without variance is a point."""
    moments = problem.tilted(value, namespace(value).zeros_like(value))
    return with_known(
        problem.gaussian, Sites(moments.curvature, moments.gradient + moments.curvature * value)
    )


def climbing(sites: Sites, value: Array) -> Sites:
    """Sites of the same slope at x, with negative curvatures set to 0."""
    precision = namespace(sites.precision).maximum(sites.precision, 0.0)
    return Sites(precision, sites.shift + (precision - sites.precision) * value)


def at_point(problem: Problem, value: Array) -> tuple[Array, TiltedMoments]:
    """Counts of the rows and the moments of their likelihoods at x.

    Rows of `Problem.joint` have the count 0 and any moments.
    """
    if problem.joint is None:
        return problem.counts, problem.tilted(value, namespace(value).zeros_like(value))
    alone = problem.joint.alone
    return problem.counts * alone, problem.tilted(value, 1 - alone)


def point_at(problem: Problem, value: Array, dual: Array) -> Point:
    """Point of x and β; every row counts as often as it was answered."""
    xp = namespace(problem.counts, value)
    counts, moments = at_point(problem, value)
    height = xp.sum(counts * moments.log_normalizer) - 0.5 * xp.vdot(dual, value)
    around = None if problem.joint is None else problem.joint.at(value)
    return Point(value, dual, height if around is None else height + around.height, around)


def touching(problem: Problem, point: Point) -> Fit:
    """The posterior under the sites that touch the likelihoods at a point x.

    Where rows are taken together, the sites have the precision 0 and the slopes at the new mean
    under the quadratic forms at x: their dual vector is that of the posterior.
    """
    value, joint, around = point.value, problem.joint, point.around
    if around is None:
        return posterior(problem, sites_at(problem, value))
    xp = namespace(problem.counts, value)
    counts, moments = at_point(problem, value)
    slope = counts * moments.gradient + around.slope
    weights = joint.weights(counts * moments.curvature, around.second)
    factor = problem.space.factorise(weights)
    marginals = problem.space.marginals(factor, slope + joint.times(weights, value))
    dual = slope + joint.times(weights, value - marginals.mean)
    return Fit(Sites(0 * dual, dual / xp.maximum(problem.counts, 1.0)), factor, marginals)


def beginning(problem: Problem, sites: Sites) -> Fit:
    """The posterior under the given sites.

    Where rows are taken together, the prior with the mean that has their dual vector.
    """
    if problem.joint is None:
        return posterior(problem, with_known(problem.gaussian, sites))
    nothing = problem.joint.weights(0 * problem.counts, 0 * problem.joint.directions)
    factor = problem.space.factorise(nothing)
    marginals = problem.space.marginals(factor, problem.counts * sites.shift)
    return Fit(sites, factor, marginals)


def run(
    problem: Problem, sites: Sites, tolerance: float | Array, max_steps: int | Array
) -> tuple[Fit, Info]:
    """Climb from the mean under the given sites until a full step moves nothing.

    The residual is the largest move of a full step, in posterior sds.
    """
    xp = namespace(problem.counts, sites.precision)

    def point(fit: Fit) -> Point:
        return point_at(problem, fit.marginals.mean, dual_vector(problem, fit))

    def step(state: State) -> State:
        here = state.point
        fit = touching(problem, here)
        if not concave:
            # Away from a mode the curvature may make the posterior improper; without its negative
            # part the step still climbs.
            proper = xp.all(xp.isfinite(fit.marginals.mean)) & xp.all(fit.marginals.variance >= 0)
            fit = cond(
                proper,
                lambda: fit,
                lambda: posterior(problem, climbing(sites_at(problem, here.value), here.value)),
            )
        ahead = point(fit)
        sd = xp.sqrt(fit.marginals.variance)
        move = xp.abs(ahead.value - here.value) / xp.where(sd == 0, 1.0, sd)
        residual = xp.max(move, initial=0.0)

        def blend(fraction: Array) -> Point:
            value = here.value + fraction * (ahead.value - here.value)
            dual = here.dual + fraction * (ahead.dual - here.dual)
            return point_at(problem, value, dual)

        def too_long(carry: tuple[Array, Point]) -> Array:
            fraction, reached = carry
            slack = rounding * (1 + xp.abs(here.height))  # near the top
            higher = reached.height >= here.height - slack
            return ~higher & (fraction > _SHORTEST)

        fraction, reached = while_loop(
            too_long, lambda carry: (0.5 * carry[0], blend(0.5 * carry[0])), (xp.ones(()), ahead)
        )
        finite = xp.isfinite(residual) & xp.all(xp.isfinite(fit.sites.precision))
        positive = xp.all((fit.sites.precision >= 0) | ~xp.asarray(problem.log_concave)) | ~finite
        usable = finite + 2 * positive + 4 * xp.all(xp.isfinite(fit.marginals.variance))
        return State(reached, fit, residual, fraction, usable, state.steps + 1)

    def unfinished(state: State) -> Array:
        moving = (state.residual > tolerance) & (state.fraction > _SHORTEST)
        return moving & (state.usable == 7) & (state.steps < max_steps)

    concave = bool(np.all(problem.log_concave)) or problem.joint is not None
    # Integrals of lists are on grids that move with x.
    rounding = 1e-12 if problem.joint is None else 1e-8
    first = beginning(problem, sites)
    nowhere = xp.full((), xp.inf)
    start = State(point(first), first, nowhere, xp.ones(()), xp.asarray(7), xp.asarray(0))
    state = while_loop(unfinished, step, start)
    outcome = ending(
        [
            (state.usable & 4 == 0, Result.prior_not_positive_definite),
            (state.usable & 1 == 0, Result.nonfinite),
            (state.usable & 2 == 0, Result.negative_precision),
            (state.residual <= tolerance, Result.converged),
            (state.fraction <= _SHORTEST, Result.diverged),
        ]
    )
    return state.fit, Info(
        state.steps, state.residual, state.fraction, outcome, problem.space.jitter
    )


def laplace(problem: Problem, sites: Sites, tolerance: Any, max_sweeps: Any) -> Approximation:
    """Find the mode, Laplace's evidence and its gradient.

    See Rasmussen & Williams (2006), eq. 3.32 and 5.21-5.24.
    """
    fit, info = run(problem, sites, tolerance, max_sweeps)
    value = fit.marginals.mean
    dual = dual_vector(problem, fit)
    height = point_at(problem, value, dual).height
    answers = partial(_answers, problem, fit, dual)
    return Approximation(fit, height - fit.marginals.log_determinant, info, answers)


def _answers(problem: Problem, fit: Fit, dual: Array) -> tuple[Slopes, Array]:
    """Dependence of the evidence on the answers, see `Approximation`.

    The log determinant depends on the mode through the curvatures there: slope = its derivative in
    x, pulled back through dx = (I + GT)⁻¹ (dG β + G dg), with G the prior covariance of the
    projections and g the slopes of the log likelihoods.
    """
    space: Any = problem.space
    value, joint = fit.marginals.mean, problem.joint
    counts, point = problem.counts, 0 * value
    if joint is not None:
        counts, point = counts * joint.alone, 1 - joint.alone
    spread = counts * fit.marginals.variance
    slope = namespace(counts).where(counts > 0, -0.5 * spread * _bends(problem, value), 0.0)
    among: tuple[Array, ...] = ()
    if joint is not None:
        among = (joint.roots(space.covariance(fit.factor)),)
        slope = slope + joint.bend(value, *among)
    response = space.response(fit.factor, slope)
    if joint is None:
        pulled = slope - counts * fit.sites.precision * response
    else:
        pulled = slope - joint.times(fit.factor.precision, response)
    # G times the pullback is the posterior covariance times the slope: ΣA = G (I + TG)⁻¹.
    if joint is None:
        moved = _slopes_of_answers(problem, fit, slope, spread, response)
        if not moved.surrogates:
            return moved, pulled
    answers = Partial(_pull_of_answers, counts, value, point, spread, response, *among)
    return Slopes({}, (answers,)), pulled


# Distances of points around x, in units of a step, and weights of differences for the first and the
# second derivative there.
_STEP = 3e-3
_AROUND = np.arange(-2.0, 3.0)
_FIRST = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / (12 * _STEP)
_SECOND = np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / (12 * _STEP**2)


def _bends(problem: Problem, value: Array) -> Array:
    """Derivatives of the curvatures at x, shape (m,)."""
    nothing = 0 * value
    return sum(
        weight * problem.tilted(value + _STEP * move, nothing).curvature
        for move, weight in zip(_AROUND, _FIRST, strict=True)
        if weight
    )


def _slopes_of_answers(
    problem: Problem, fit: Fit, slope: Array, spread: Array, response: Array
) -> Slopes:
    """Derivatives of `_pull_of_answers`, where likelihoods know those of log p.

    The slope g and the curvature k of log p move by its first and second derivative in x.
    """
    assert problem.slopes is not None
    value, counts, nothing = fit.marginals.mean, problem.counts, 0 * spread
    _, gradient, curvature = problem.tilted(value, nothing)
    dual, parts = counts * (gradient - response * curvature) + slope, []
    for move, first, second in zip(_AROUND, _FIRST, _SECOND, strict=True):
        weight = counts * (move == 0) + first * counts * response + 0.5 * second * spread
        at, here = value + _STEP * move, dual * (move == 0)
        given = problem.slopes(at, nothing, weight, nothing)
        parts.append(slopes_of_answers_at(at, nothing, nothing, here, given))
    return sum_of(parts)


def _pull_of_answers(
    counts: Array,
    value: Array,
    point: Array,
    spread: Array,
    response: Array,
    *rest: Any,
) -> Array:
    *among, moving = rest
    moments = at_points(moving.observations, moving.offset, value, point)
    total: Any = 0.0
    if among:  # of rows that are taken together
        each = (value[:, None], np.ones(1)), half_trace(value, *among), slope_along(value, response)
        points, shares = (jnp.concatenate(part, axis=-1) for part in zip(*each, strict=True))
        total = jnp.vdot(shares, heights(moving.observations, moving.offset, points))
    return total + (
        jnp.vdot(counts, moments.log_normalizer)
        - 0.5 * jnp.vdot(spread, moments.curvature)
        # G dg: the move of x with the slopes, under a fixed prior.
        + jnp.vdot(response, counts * moments.gradient)
    )


class Laplace(GaussianEngine):
    """Laplace's approximation on a numpyro program: a Gaussian at the posterior's mode.

    The baseline of most packages. It takes a handful of Newton steps, but the mode of a
    skewed posterior lies off its mean: expect means half a posterior standard deviation off, and an
    evidence off by nats where answers are few. ``tol`` bounds the last Newton step, in posterior
    standard deviations.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> from relpref.infer import Laplace
    >>> from relpref.models import xpgp
    >>> posterior = Laplace(xpgp).run(0, data)
    """

    name: ClassVar[str] = "Laplace"
    at_mode: ClassVar[bool] = True
    evaluate = staticmethod(partial(evaluate, laplace))

    @classmethod
    def describe(cls) -> Description:
        return Description(
            "The posterior was approximated by Laplace's method: a Gaussian at its mode, as curved "
            "as it is there (Williams and Barber "
            "1998). Where answers are few its means lie too near to 0; expectation propagation is "
            "more accurate.",
            "C. K. I. Williams and D. Barber (1998). Bayesian Classification with Gaussian "
            "Processes. IEEE Transactions on Pattern "
            "Analysis and Machine Intelligence 20(12).",
        )
