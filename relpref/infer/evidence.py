"""The EP evidence of a program at given hyperparameters, and its exact gradient."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from relpref.infer.program import Call, Layout, Observation, Reading, Values, read
from relpref.infer.result import Result, code
from relpref.infer.sites import Cavity, Info, Problem, Sites, cavities, run
from relpref.infer.spaces import EntitySpace, GapSpace, Space
from relpref.likelihoods import TiltedMoments


class Evidence(NamedTuple):
    """EP at one value of the hyperparameters.

    Attributes
    ----------
    log_evidence : Array
        log Z, without the hyperparameters' prior.
    log_prior : Array
        Log density of the hyperparameters in the unconstrained space (with the Jacobian of the map to it).
    gradient : dict
        Of log_evidence + log_prior in the unconstrained hyperparameters.
    sites : Sites
        At the fixed point.
    info : Info
    """

    log_evidence: Array
    log_prior: Array
    gradient: Values
    sites: Sites
    info: Info


class Moments(NamedTuple):
    """The Gaussian posterior of the joint latent vector, with its named parts.

    Attributes
    ----------
    mean : Array, shape (n,)
    covariance : Array, shape (n, n)
    part_means : dict, site -> part -> Array
        Posterior mean of each part of a site's covariance sum.
    part_covariances : dict, site -> part -> Array
        Posterior covariance of each part with the total, entity by entity.
    jitter : Array
        What the prior's root needed, 0 if nothing.
    """

    mean: Array
    covariance: Array
    part_means: dict[str, dict[str, Array]]
    part_covariances: dict[str, dict[str, Array]]
    jitter: Array


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


@partial(jax.jit, static_argnums=(0, 1, 2))
def evaluate(
    call: Call,
    layout: Layout,
    gap_space: bool,
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
    sites, info = run(problem, sites, tolerance, max_sweeps)
    space, projection = problem.space, problem.projection

    precision, shift = problem.counts * sites.precision, problem.counts * sites.shift
    factor = space.factorise(precision, projection)
    marginals = space.marginals(factor, precision, shift, projection)
    cavity = cavities(sites, marginals)
    log_evidence = (
        _log_evidence(problem, sites, cavity)
        - marginals.log_determinant
        + 0.5 * jnp.vdot(shift, marginals.mean)
    )

    dual = stop_gradient(shift - precision * marginals.mean)
    if isinstance(space, GapSpace):
        weights = stop_gradient(space.gap_weights(factor, precision))
    else:
        weights = stop_gradient(space.weights(factor, precision, projection))
    cavity = Cavity(*(stop_gradient(moment) for moment in cavity))

    def surrogate(unconstrained: Values) -> Array:
        # ∂log Z = ½ ∂tr((ααᵀ − R)K) + Σ ∂log Ẑ at a fixed point of EP, sites and cavities held constant.
        moving = read(call, arrays, layout, unconstrained, fixed)
        if gap_space:
            gram = moving.covariance.congruence(moving.projection.apply)
            prior = jnp.vdot(jnp.outer(dual, dual) - weights, gram)
        else:
            alpha = stop_gradient(projection.adjoint(dual))
            prior = jnp.vdot(alpha, moving.covariance.matmul(alpha)) - moving.covariance.inner(weights)
        answers = tilted(moving.observations, moving.offset, cavity.mean, cavity.variance)
        return 0.5 * prior + jnp.sum(problem.counts * answers.log_normalizer) + moving.log_prior

    gradient = jax.grad(surrogate)(unconstrained)
    fine = jnp.isfinite(log_evidence) | (info.code != code(Result.converged))
    outcome = jnp.where(fine, info.code, code(Result.nonfinite))
    return Evidence(log_evidence, reading.log_prior, gradient, sites, info._replace(code=outcome))


def _log_evidence(problem: Problem, sites: Sites, cavity: Cavity) -> Array:
    """The rows' share of log Z; each of a row's identical sites contributes once."""
    t, c = 1 / cavity.variance, cavity.mean / cavity.variance
    tau, nu = sites
    normalizer = problem.tilted(cavity.mean, cavity.variance).log_normalizer
    correction = 0.5 * jnp.log1p(tau / t) + 0.5 * (tau * c**2 / t - 2 * nu * c - nu**2) / (tau + t)
    return jnp.sum(problem.counts * (normalizer + correction))


@partial(jax.jit, static_argnums=(0, 1, 2))
def moments(
    call: Call,
    layout: Layout,
    gap_space: bool,
    arrays: tuple[Any, ...],
    unconstrained: Values,
    fixed: Values,
    sites: Sites,
) -> Moments:
    """The posterior that a set of sites stands for."""
    reading = read(call, arrays, layout, unconstrained, fixed)
    problem = build(reading, gap_space)
    space, projection = problem.space, problem.projection
    precision, shift = problem.counts * sites.precision, problem.counts * sites.shift
    factor = space.factorise(precision, projection)
    mean = space.marginals(factor, precision, shift, projection).mean
    alpha = projection.adjoint(shift - precision * mean)
    weights = space.weights(factor, precision, projection)
    pulled = reading.covariance.matmul(weights)  # K R
    prior = reading.covariance.dense()
    covariance = prior - reading.covariance.matmul(pulled.T).T
    part_means: dict[str, dict[str, Array]] = {}
    part_covariances: dict[str, dict[str, Array]] = {}
    slices = zip(layout.slices.items(), reading.covariance.blocks, strict=True)
    for (name, rows), block in slices:
        named = getattr(block, "parts", {})
        part_means[name] = {part: operator.matmul(alpha[rows]) for part, operator in named.items()}
        # Cov(part, total) = K_p − K_p R K, its diagonal.
        part_covariances[name] = {
            part: jnp.diagonal(matrix) - jnp.sum(matrix * pulled[rows, rows], axis=1)
            for part, matrix in ((part, operator.dense()) for part, operator in named.items())
        }
    return Moments(
        reading.location + reading.covariance.matmul(alpha),
        0.5 * (covariance + covariance.T),
        part_means,
        part_covariances,
        space.jitter,
    )
