"""The EP evidence of a program at given hyperparameters, and its exact gradient."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from relpref.infer.program import Call, Layout, Observation, Reading, Values, read
from relpref.infer.result import Result, code
from relpref.infer.sites import Cavity, Info, Problem, Sites, cavities, run
from relpref.infer.spaces import EntitySpace, GapSpace, Space
from relpref.likelihoods import TiltedMoments
from relpref.linalg import CovarianceOperator


class Evidence(NamedTuple):
    """EP at one value of the hyperparameters.

    Attributes
    ----------
    log_evidence : Array
        log Z, without the hyperparameters' prior.
    log_prior : Array
        Log density of the hyperparameters in the unconstrained space (with the Jacobian of the map to it).
    gradient : dict
        Of log_evidence + log_prior in the unconstrained hyperparameters; empty if it was not asked for.
    sites : Sites
        At the fixed point.
    info : Info
        With what the prior's root needed as jitter.
    alpha : Array, shape (n,)
        The posterior mean is the prior mean plus K α.
    weights : Array, shape (n, n), or None
        R; the posterior covariance is K − K R K. None where nobody needs it.
    white : Array, shape (n, r), or None
        V; the posterior covariance is VVᵀ. None in gap space.
    hyperparameters : dict
        On their supports.
    location : Array, shape (n,)
        Prior mean of the latent vector.
    blocks : dict from site to (dict from part to Array)
        Prior covariance of each site's named parts; of a site without, the whole under the empty name.
    """

    log_evidence: Array
    log_prior: Array
    gradient: Values
    sites: Sites
    info: Info
    alpha: Array
    weights: Array | None
    white: Array | None
    hyperparameters: Values
    location: Array
    blocks: dict[str, dict[str, Array]]


def use_gap_space(layout: Layout) -> bool:
    """Whether the m x m space is the cheaper one; it is the only one for a projection that hyperparameters change."""
    return layout.num_rows <= layout.num_latents or not layout.constant_projection


def build(reading: Reading, gap_space: bool) -> Problem:
    """Set up EP for a program at given hyperparameters."""
    space: Space
    if gap_space:
        space = GapSpace.build(reading.covariance, reading.projection)
    else:
        space = EntitySpace.build(reading.covariance, reading.projection)
    counts = jnp.concatenate([observation.counts for observation in reading.observations])
    return Problem(space, reading.projection, counts, partial(tilted, reading.observations, reading.offset))


def tilted(
    observations: tuple[Observation, ...], offset: Array, mean: Array, variance: Array
) -> TiltedMoments:
    """Tilted moments of every row; sites live on the projection less its prior mean, likelihoods on the predictor."""
    start, found = 0, []
    for likelihood, value, _ in observations:
        shape = jnp.shape(likelihood.predictor)
        rows = slice(start, start + value.size)
        location = jnp.reshape(mean[rows] + offset[rows], shape)
        moments = likelihood.tilted(value, location, jnp.reshape(variance[rows], shape))
        found.append(TiltedMoments(*(jnp.ravel(moment) for moment in moments)))
        start += value.size
    return TiltedMoments(*(jnp.concatenate(columns) for columns in zip(*found, strict=True)))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def evaluate(
    call: Call,
    layout: Layout,
    gap_space: bool,
    with_gradient: bool,
    arrays: tuple[Any, ...],
    unconstrained: Values,
    fixed: Values,
    sites: Sites,
    tolerance: Array,
    max_sweeps: Array,
) -> Evidence:
    """Run EP from the given sites and return the evidence with its gradient."""
    reading = read(call, arrays, layout, unconstrained, fixed)
    problem = build(reading, gap_space)
    (sites, factor, marginals), log_normalizer, info = run(problem, sites, tolerance, max_sweeps)
    space, projection = problem.space, problem.projection
    precision, shift = problem.counts * sites.precision, problem.counts * sites.shift
    cavity = cavities(sites, marginals)
    log_evidence = (
        _log_evidence(problem.counts, log_normalizer, sites, cavity)
        - marginals.log_determinant
        + 0.5 * jnp.vdot(shift, marginals.mean)
    )

    dual = shift - precision * marginals.mean
    alpha = projection.adjoint(dual)
    in_entities = isinstance(space, EntitySpace)
    parts = max(len(getattr(block, "parts", ())) for block in reading.covariance.blocks)
    weights = space.weights(factor, precision, projection)
    fine = jnp.isfinite(log_evidence) | (info.code != code(Result.converged))
    found = Evidence(
        log_evidence=log_evidence,
        log_prior=reading.log_prior,
        gradient={},
        sites=sites,
        info=info._replace(code=jnp.where(fine, info.code, code(Result.nonfinite))),
        alpha=alpha,
        weights=weights if with_gradient or not in_entities or parts > 1 else None,
        white=factor.white if in_entities else None,
        hyperparameters=reading.hyperparameters,
        location=reading.location,
        blocks=dict(zip(layout.slices, map(_parts, reading.covariance.blocks), strict=True)),
    )
    if not with_gradient:
        return found
    gap_weights = space.gap_weights(factor, precision) if isinstance(space, GapSpace) else weights

    def surrogate(unconstrained: Values) -> Array:
        # ∂log Z = ½ ∂tr((ααᵀ − R)K) + Σ ∂log Ẑ at a fixed point of EP, sites and cavities held constant.
        moving = read(call, arrays, layout, unconstrained, fixed)
        if isinstance(space, GapSpace):
            gram = moving.covariance.congruence(moving.projection.apply)
            prior = jnp.vdot(jnp.outer(dual, dual) - gap_weights, gram)
        else:
            prior = jnp.vdot(alpha, moving.covariance.matmul(alpha)) - moving.covariance.inner(weights)
        answers = tilted(moving.observations, moving.offset, cavity.mean, cavity.variance)
        return 0.5 * prior + jnp.sum(problem.counts * answers.log_normalizer) + moving.log_prior

    return found._replace(gradient=jax.grad(surrogate)(unconstrained))


def _parts(covariance: CovarianceOperator) -> dict[str, Array]:
    return {name: part.dense() for name, part in getattr(covariance, "parts", {"": covariance}).items()}


def _log_evidence(counts: Array, log_normalizer: Array, sites: Sites, cavity: Cavity) -> Array:
    """The rows' share of log Z; each of a row's identical sites contributes once."""
    (mean, variance), (tau, nu) = cavity, sites
    # ½ log(1 + τ/t) + ½ (τc²/t − 2νc − ν²)/(τ + t) with t = 1/variance and c = mean/variance, fit for variance = 0.
    quadratic = (tau * mean**2 - 2 * nu * mean - nu**2 * variance) / (1 + tau * variance)
    correction = 0.5 * (jnp.log1p(tau * variance) + quadratic)
    return jnp.sum(counts * (log_normalizer + correction))
