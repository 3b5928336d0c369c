"""The gradient of the log evidence at fixed sites.

It is known by the numbers that a program reads, see `Slopes`. Answers that do not know theirs have
surrogates: functions of the moving program, which is the program at other hyperparameters, that
have the same derivative while the sites are held constant.
"""

from collections.abc import Iterable
from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial

from relpref.infer.arrow import pull_of_noise
from relpref.infer.layout import Layout, Observation, Prior, placed
from relpref.infer.program import Program
from relpref.infer.sites import Fit, Problem
from relpref.likelihoods import TiltedMoments
from relpref.likelihoods.powers import knows_derivatives, powered
from relpref.linalg import BlockDiagonal
from relpref.linalg.arrays import Array, namespace
from relpref.linalg.covariance import Pulls, at_path, joined


class Slopes(NamedTuple):
    """Derivatives of the log evidence in what a program has at given hyperparameters."""

    pulls: Pulls  # by paths in the reading
    # Functions of the moving program whose derivatives are to be added.
    surrogates: tuple[Partial, ...] = ()


class Nodes(NamedTuple):
    """Nodes less the mean, and their weighted shares of a tilted density, shape (q, m)."""

    away: Array
    share: Array


def sum_of(parts: Iterable[Slopes]) -> Slopes:
    """Derivatives of a sum."""
    pulls: Pulls = {}
    surrogates: tuple[Partial, ...] = ()
    for part in parts:
        for path, slope in part.pulls.items():
            pulls[path] = pulls[path] + slope if path in pulls else slope
        surrogates += part.surrogates
    return Slopes(pulls, surrogates)


def tilted(
    observations: tuple[Observation, ...],
    offset: Array,
    mean: Array,
    variance: Array,
    power: Any = 1.0,
) -> TiltedMoments:
    """Tilted moments of every row, of p^n for the ``power`` n, 1.0 or shape (m,).

    Means are those of sites, which approximate the projection less its prior mean; a likelihood is
    of the predictor.
    """
    columns = [
        powered(likelihood, *rest)
        for likelihood, *rest in _cut(observations, offset + mean, variance, power)
    ]
    return _rows(columns)


def at_points(
    observations: tuple[Observation, ...], offset: Array, value: Array, variance: Any = 0.0
) -> TiltedMoments:
    """Log probability of every row and its derivatives at points.

    A row of a list is the sign of a predictor with ``variance``.
    """
    columns = []
    for likelihood, answer, point, spread in _cut(
        observations, offset + value, variance + 0 * value
    ):
        given = likelihood.point(answer, point) if hasattr(likelihood, "point") else None
        columns.append(given or likelihood.tilted(answer, point, spread))
    return _rows(columns)


def slopes_of_answers(
    observations: tuple[Observation, ...],
    offset: Array,
    mean: Array,
    variance: Array,
    weight: Array,
    spread: Array,
    *power: Array,
) -> tuple[Any, ...]:
    """Derivatives of Σ log Ẑ in the arrays of each likelihood, at fixed cavities.

    Of a likelihood that does not know them they are what the surrogate needs.
    """
    parts: list[Any] = []
    arrays = offset + mean, variance, weight, spread, *power
    for likelihood, value, center, width, weights, spreads, *n in _cut(observations, *arrays):
        given = value, center, width, weights
        if knows_derivatives(likelihood):
            parts.append(likelihood.pull(*given, *(n or [1.0]), spreads))
        else:
            parts.append((weights, *n))
    return tuple(parts)


def slopes_of_answers_at(
    mean: Array, variance: Array, spread: Array, dual: Array, slopes: tuple[Any, ...]
) -> Slopes:
    """Derivatives of Σ log Ẑ at fixed cavities, from those of `slopes_of_answers`.

    By the predictor, log Ẑ has the derivative ``dual``, the dual vector.
    """
    if not all(isinstance(part, dict) for part in slopes):
        return Slopes({}, (Partial(_pull_of_answers, mean, variance, spread, dual, slopes),))
    parts = [joined(part, "observations", str(at), "likelihood") for at, part in enumerate(slopes)]
    return Slopes(reduce(or_, parts, {("offset",): dual}))


def _pull_of_answers(
    mean: Array,
    variance: Array,
    spread: Array,
    dual: Array,
    slopes: tuple[Any, ...],
    moving: Prior,
) -> Array:
    """The surrogate of answers some of which do not know their derivatives."""
    total = jnp.zeros(())
    rows = _cut(moving.observations, mean, moving.offset, variance, spread, dual)
    for (likelihood, value, center, offset, *cavity, beta), part in zip(rows, slopes, strict=True):
        if isinstance(part, dict):
            total = total + jnp.vdot(beta, offset) + along(likelihood, part)
        elif isinstance(part, Nodes):
            total = total + likelihood.surrogate(value, offset + center, *part)
        else:
            weight, *power = part
            moments = powered(likelihood, value, offset + center, cavity[0], *power)
            share = moments.log_normalizer - cavity[1] * moments.curvature
            total = total + jnp.sum(weight * share)
    return total


def _cut(observations: tuple[Observation, ...], *arrays: Any) -> list[tuple[Any, ...]]:
    """Likelihoods, values and the rows of arrays in the shape of each; numbers stay."""
    parts = []
    for likelihood, value, _, rows in placed(observations):
        shape = jnp.shape(likelihood.predictor)
        cut = (
            array if isinstance(array, float) else array[rows].reshape(shape) for array in arrays
        )
        parts.append((likelihood, value, *cut))
    return parts


def _rows(columns: list[TiltedMoments]) -> TiltedMoments:
    xp = namespace(columns[0].log_normalizer)
    return TiltedMoments(
        *(xp.concatenate([xp.ravel(each) for each in part]) for part in zip(*columns, strict=True))
    )


def dual_vector(problem: Problem, fit: Fit) -> Array:
    """β = ν − T·mean: the posterior mean of the projections is their prior covariance times β."""
    pull = fit.sites.shift - fit.sites.precision * fit.marginals.mean
    if problem.gaussian is not None:
        direct = fit.sites.precision * (problem.gaussian.peak - fit.marginals.mean)
        pull = namespace(pull).where(problem.gaussian.rows, direct, pull)
    return problem.counts * pull


def slopes_of_prior(
    layout: Layout,
    problem: Problem,
    fit: Fit,
    alpha: Array,
    pulled: Array | None,
    covariance: BlockDiagonal,
    before: Array,
) -> Slopes:
    """Derivatives in the prior: ½ tr((ββᵀ − M) ∂(A K Aᵀ)) at fixed sites.

    β is the dual vector and M = T − T A Σ Aᵀ T, Σ being the posterior covariance of the latent
    vector. With α = Aᵀβ and R = AᵀMA that is ½ tr((ααᵀ − R) ∂K) and, where the projection A moves,
    ⟨(ββᵀ − M) A K, ∂A⟩. For a vector ``pulled`` v, vᵀ ∂(A K Aᵀ) β is added. ``before`` is the
    matrix K.
    """
    space: Any = problem.space
    rows, xp = space.rows, namespace(alpha)
    weights = xp.outer(alpha, alpha) - space.weights(fit.factor)
    if pulled is not None:
        back = rows.adjoint(pulled)
        weights = weights + xp.outer(back, alpha) + xp.outer(alpha, back)
    pulls = joined(covariance.pull(0.5 * weights), "covariance")
    if layout.constant_projection:
        return Slopes(pulls)
    dual = dual_vector(problem, fit)
    if space.latent:
        white, precision = fit.factor.white, fit.factor.precision
        spread = precision[:, None] * (rows.rows(white) @ white.T)
    else:
        spread = space.dual_weights(fit.factor) @ rows.rows(before)
    pull = xp.outer(dual, before @ alpha) - spread
    if pulled is not None:
        pull = pull + xp.outer(pulled, before @ alpha) + xp.outer(dual, before @ back)
    return Slopes(pulls | {("projection", "matrix"): pull})


def slopes_of_noise(
    program: Program, problem: Problem, fit: Fit, noise: tuple[Array, ...], pulled: Array | None
) -> Slopes:
    """Derivatives in the noise that rows share."""
    arrow = program.arrow
    if arrow is None or program.layout.joint:
        return Slopes({})
    space: Any = problem.space
    weights = partial(space.noise_weights, fit.factor, arrow.blocks)
    pulls = pull_of_noise(arrow.blocks, noise, dual_vector(problem, fit), weights, pulled)
    return Slopes({("noise", str(kind)): pull for kind, pull in enumerate(pulls)})


def along(tree: Any, pulls: Pulls) -> Array:
    """The sum of arrays of a tree times their derivatives."""
    return sum(jnp.vdot(slope, at_path(tree, path)) for path, slope in pulls.items())
