"""Sites, evidence and its exact gradient at given hyperparameters; those of expectation propagation."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.linalg import block_diag

from relpref.errors import UnsupportedProgramError
from relpref.infer.program import Layout, Observation, Program, Reading, Values
from relpref.infer.result import CODES, Result
from relpref.infer.sites import (
    Cavity,
    DualSpace,
    Fit,
    Info,
    Known,
    LatentSpace,
    Marginals,
    Problem,
    Sites,
    cavities,
    run,
)
from relpref.likelihoods import TiltedMoments, is_log_concave

Floats = NDArray[np.float64]

_CONVERGED, _TOO_PRECISE, _NONFINITE = map(
    CODES.index, (Result.converged, Result.too_precise, Result.nonfinite)
)
_FAR_MORE, _FEW = 4, 250  # latents for each row, and rows that are counted in any case
# Posterior sds on either side of a mean, and points there, where a factor is integrated.
_REACH, _NODES = 30.0, 241


class Evidence(NamedTuple):
    """An engine's sites at one value of the hyperparameters, and what follows from them."""

    log_evidence: Array  # log Z, without the hyperparameters' prior
    # Log density of the hyperparameters in the unconstrained space (with the Jacobian of the map to it).
    log_prior: Array
    # Of log_evidence + log_prior in the unconstrained hyperparameters; empty if it was not asked for, zeros if ``whole``.
    gradient: Values
    sites: Sites  # at the fixed point
    marginals: Marginals  # of the predictors less their prior means
    info: Info  # with what the prior's root needed as jitter
    alpha: Array  # α, shape (n,): the posterior mean is the prior mean plus K α
    weights: Array  # R, shape (n, n): the posterior covariance is K − K R K. Zeros unless ``whole``
    # V, shape (n, r): the posterior covariance is VVᵀ. Zeros unless ``whole``, None in observation space.
    white: Array | None
    # Posterior mean of the latent vector less its prior mean, shape (n,); None in observation space.
    drift: Array | None
    hyperparameters: Values  # on their supports
    location: Array  # prior mean of the latent vector, shape (n,)
    # Prior covariance of each site's named parts; of a site without, the whole under the empty name. Zeros unless ``whole``.
    blocks: dict[str, dict[str, Array]]
    # Of EP, where answers were given many times: see `error_of_copies`.
    repeated: Array | None = None


class Approximation(NamedTuple):
    """What an engine makes of a problem at given hyperparameters."""

    fit: Fit
    log_evidence: Array
    info: Info
    # From the program at other hyperparameters to a number, whose derivative is the answers' share of that of the evidence.
    answers: Callable[[Reading], Array]
    repeated: Callable[[], Array] | None = None  # of EP: gives what `Evidence.repeated` holds


# From a problem, the program at the same hyperparameters, sites to start from, a tolerance and a number of sweeps.
Approximate = Callable[[Problem, Reading, Sites, Any, Any], Approximation]


@partial(jax.jit, static_argnums=(0, 2, 3))
def evaluate(
    approximate: Approximate,
    program: Program,
    dual: bool,
    with_gradient: bool,
    unconstrained: Values,
    sites: Sites,
    tolerance: Any,
    max_sweeps: Any,
    whole: Any,
) -> Evidence:
    """Sites and evidence of a program at given hyperparameters, from the given sites.

    Only where ``whole`` is true are the (n, n) arrays filled in that a posterior is made of, and the gradient left out; a search does
    without. Where it is None, they are empty.
    """
    reading = program.read(unconstrained)
    problem = prepared(program, reading, dual)
    found = approximate(problem, reading, sites, tolerance, max_sweeps)
    space: Any = problem.space
    fit, projection, known = found.fit, problem.projection, problem.known
    precision, shift = problem.counts * fit.sites.precision, problem.counts * fit.sites.shift
    alpha = projection.adjoint(dual_vector(problem, fit))

    def arrays() -> tuple[Array, Array | None, dict[str, dict[str, Array]]]:
        blocks = {}
        for site, block in zip(program.layout.slices, reading.covariance.blocks, strict=True):
            parts = getattr(block, "parts", {"": block})
            blocks[site] = {name: part.dense() for name, part in parts.items()}
        weights = space.weights(fit.factor, precision, projection)
        return weights, fit.factor.white if space.latent else None, blocks

    weights, white, blocks, repeated = jnp.zeros((0, 0)), None, {}, None
    if whole is not None:
        unfilled = partial(jax.tree.map, jnp.zeros_like, jax.eval_shape(arrays))
        weights, white, blocks = jax.lax.cond(whole, arrays, unfilled)
        if program.layout.repeated and found.repeated is not None:
            repeated = jax.lax.cond(whole, found.repeated, partial(jnp.array, [0.0, 1.0]))
    arrived = found.info.code == _CONVERGED
    ending = found.info.code
    if known is not None:  # a Gaussian site may be so precise that rounding shows
        variance, most = space.precision_limit()
        highest = jnp.max(jnp.where(known.rows, precision, 0.0) * variance, initial=0.0)
        ending = jnp.where((highest > most) & arrived, _TOO_PRECISE, ending)
    ending = jnp.where(jnp.isfinite(found.log_evidence) | ~arrived, ending, _NONFINITE)
    evidence = Evidence(
        log_evidence=found.log_evidence,
        log_prior=reading.log_prior,
        gradient={},
        sites=fit.sites,
        marginals=fit.marginals,
        info=found.info._replace(code=ending),
        alpha=alpha,
        weights=weights,
        white=white,
        drift=space.latent_mean(fit.factor, shift, projection) if space.latent else None,
        hyperparameters=reading.hyperparameters,
        location=reading.location,
        blocks=blocks,
        repeated=repeated,
    )
    if not with_gradient:
        return evidence
    prior = prior_surrogate(program.layout, problem, fit, alpha)

    def surrogate(unconstrained: Values) -> Array:
        moving = program.read(unconstrained)
        return prior(moving) + found.answers(moving) + moving.log_prior

    gradient = jax.grad(surrogate)
    if whole is None:
        return evidence._replace(gradient=gradient(unconstrained))
    # Where the arrays of a posterior are filled in, a search is at its end.
    without = partial(jax.tree.map, jnp.zeros_like)
    return evidence._replace(gradient=jax.lax.cond(whole, without, gradient, unconstrained))


def use_dual_space(layout: Layout, space: str = "auto") -> bool:
    """Whether to work in the m x m observation space: by "auto" where it is the cheaper one.

    Never where it would not do: it takes no negative precisions, and it cancels where sites are far more precise than the prior. Of far
    more latents than rows the second is accepted; the result ``too_precise`` says then where it shows.
    """
    if space == "observation" and not layout.log_concave:
        raise UnsupportedProgramError(
            "space is 'observation', which takes log-concave likelihoods only, and one of the program's is not; leave space='auto'"
        )
    wanted = layout.num_rows <= layout.num_latents if space == "auto" else space == "observation"
    careful = layout.precise and layout.num_latents <= _FAR_MORE * max(layout.num_rows, _FEW)
    return wanted and layout.log_concave and not careful


def prepared(program: Program, reading: Reading, dual: bool) -> Problem:
    """Set up the algebra for a program at given hyperparameters."""
    covariance, projection, observations = reading.covariance, reading.projection, reading.observations
    space: DualSpace | LatentSpace
    if dual:
        space = DualSpace.build(covariance, projection)
    else:
        space = LatentSpace.build(covariance, projection, program.rows, accurate=program.layout.precise)
    counts = jnp.concatenate([observation.counts for observation in observations])
    concave = [np.full(one.value.size, is_log_concave(one.likelihood)) for one in observations]
    answers = partial(tilted, observations, reading.offset)
    known = known_sites(observations, reading.offset)
    return Problem(space, projection, counts, answers, np.concatenate(concave), known)


def known_sites(observations: tuple[Observation, ...], offset: Array) -> Known | None:
    """The sites of rows whose likelihood is Gaussian in the predictor; None where there are no such rows."""
    if not any(hasattr(observation.likelihood, "gaussian_site") for observation in observations):
        return None
    start, rows, peaks, precisions = 0, [], [], []
    for likelihood, value, _ in observations:
        its = offset[start : start + value.size]
        start += value.size
        site = getattr(likelihood, "gaussian_site", None)
        peak, precision = map(jnp.ravel, site(value)) if site else (its, jnp.zeros_like(its))
        rows.append(np.full(value.size, site is not None))
        peaks.append(peak - its)
        precisions.append(precision)
    peak, precision = jnp.concatenate(peaks), jnp.concatenate(precisions)
    return Known(jnp.asarray(np.concatenate(rows)), peak, Sites(precision, precision * peak))


def tilted(
    observations: tuple[Observation, ...], offset: Array, mean: Array, variance: Array
) -> TiltedMoments:
    """Tilted moments of every row; sites live on the projection less its prior mean, likelihoods on the predictor."""
    start, found = 0, []
    for likelihood, value, _ in observations:
        shape, rows = jnp.shape(likelihood.predictor), slice(start, start + value.size)
        location = jnp.reshape(mean[rows] + offset[rows], shape)
        moments = likelihood.tilted(value, location, jnp.reshape(variance[rows], shape))
        found.append([jnp.ravel(moment) for moment in moments])
        start += value.size
    return TiltedMoments(*(jnp.concatenate(columns) for columns in zip(*found, strict=True)))


def dual_vector(problem: Problem, fit: Fit) -> Array:
    """β = ν − T·mean: the posterior mean of the projections is their prior covariance times β."""
    pull = fit.sites.shift - fit.sites.precision * fit.marginals.mean
    if problem.known is not None:
        direct = fit.sites.precision * (problem.known.peak - fit.marginals.mean)
        pull = jnp.where(problem.known.rows, direct, pull)
    return problem.counts * pull


def prior_surrogate(layout: Layout, problem: Problem, fit: Fit, alpha: Array) -> Callable[[Reading], Array]:
    """A function of the moving program whose derivative is ½ tr((ββᵀ − M) ∂(A K Aᵀ)), sites held constant.

    β is the dual vector and M = T − T A Σ Aᵀ T. With a constant projection A that is ½ tr((ααᵀ − R) ∂K); where A moves, too, in
    latent space, ⟨β μᵀ − T A Σ, ∂A⟩ is added, μ and Σ being the latent vector's posterior mean (less its prior mean) and covariance.
    """
    space: Any = problem.space
    projection, precision = problem.projection, problem.counts * fit.sites.precision
    dual, white = dual_vector(problem, fit), fit.factor.white
    if not space.latent:
        pull = jnp.outer(dual, dual) - space.dual_weights(fit.factor, precision)
        return lambda moving: 0.5 * jnp.vdot(pull, moving.covariance.congruence(moving.projection.apply))
    weights = space.weights(fit.factor, precision, projection)

    def prior(moving: Reading) -> Array:
        return 0.5 * (jnp.vdot(alpha, moving.covariance.matmul(alpha)) - moving.covariance.inner(weights))

    if layout.constant_projection:
        return prior
    mean = space.latent_mean(fit.factor, problem.counts * fit.sites.shift, projection)
    spread = precision[:, None] * (projection.rows(white) @ white.T)
    pull = jnp.outer(dual, mean) - spread
    identity = jnp.eye(len(mean), dtype=mean.dtype)
    return lambda moving: prior(moving) + jnp.vdot(pull, moving.projection.rows(identity))


def expectation_propagation(
    problem: Problem, reading: Reading, sites: Sites, tolerance: Any, max_sweeps: Any
) -> Approximation:
    """Run EP from the given sites; its evidence and what the answers do to that."""
    fit, log_normalizer, info = run(problem, sites, tolerance, max_sweeps)
    cavity = cavities(problem.counts, fit.sites, fit.marginals)
    known = problem.known
    closed = jnp.zeros(problem.counts.shape, bool) if known is None else known.rows
    counts = jnp.where(closed, 0.0, problem.counts)  # of the rows that are iterated
    log_evidence = (
        log_evidence_of_sites(counts, log_normalizer, fit.sites, cavity)
        - fit.marginals.log_determinant
        + 0.5 * jnp.vdot(counts * fit.sites.shift, fit.marginals.mean)
    )
    if known is not None:
        # A Gaussian's density at its peak, and −½ y β: the quadratic terms −½ τ y² + ½ ν·mean, which would cancel, taken together.
        height = problem.tilted(known.peak, jnp.zeros_like(known.peak)).log_normalizer
        share = problem.counts * height - 0.5 * known.peak * dual_vector(problem, fit)
        log_evidence = log_evidence + jnp.sum(jnp.where(known.rows, share, 0.0))

    def answers(moving: Reading) -> Array:
        # ∂log Z = ½ tr((ααᵀ − R) ∂K) + Σ ∂log Ẑ at a fixed point of EP, sites and cavities held constant. Of a Gaussian likelihood
        # ∂log Ẑ is the derivative of its expectation under the posterior, which does without the cavity.
        mean = jnp.where(closed, fit.marginals.mean, cavity.mean)
        found = tilted(moving.observations, moving.offset, mean, jnp.where(closed, 0.0, cavity.variance))
        spread = jnp.where(closed, 0.5 * fit.marginals.variance * found.curvature, 0.0)
        return jnp.vdot(problem.counts, found.log_normalizer - spread)

    return Approximation(fit, log_evidence, info, answers, partial(error_of_copies, problem, fit))


def log_evidence_of_sites(counts: Array, log_normalizer: Array, sites: Sites, cavity: Cavity) -> Array:
    """The rows' share of log Z; each of a row's identical sites contributes once."""
    (mean, variance), (tau, nu) = cavity, sites
    # ½ log(1 + τ/t) + ½ (τc²/t − 2νc − ν²)/(τ + t) with t = 1/variance and c = mean/variance, fit for variance = 0.
    quadratic = (tau * mean**2 - 2 * nu * mean - nu**2 * variance) / (1 + tau * variance)
    correction = 0.5 * (jnp.log1p(tau * variance) + quadratic)
    return jnp.sum(jnp.where(counts > 0, counts * (log_normalizer + correction), 0.0))


def error_of_copies(problem: Problem, fit: Fit) -> Array:
    """How far a row's identical sites are from their joint factor: an error of a mean in exact sds, and the worst ratio of an sd.

    EP takes k equal answers for k factors, each with a Gaussian site. Here all of them are taken out together and the posterior of the
    row's projection is integrated numerically; exact where nothing else approximates.
    """
    mean, variance, _ = fit.marginals
    counts, (tau, nu) = problem.counts, fit.sites
    left = 1 - variance * counts * tau
    rows = (counts > 1) & (left > 0) & (variance > 0)
    if problem.known is not None:
        rows &= ~problem.known.rows
    left = jnp.where(rows, left, 1.0)
    sd = jnp.sqrt(jnp.where(rows, variance, 1.0))
    point, slope = left / jnp.square(sd), (mean - jnp.square(sd) * counts * nu) / jnp.square(sd)

    def log_density(z: Array) -> Array:
        x = mean + sd * z
        answers = problem.tilted(x, jnp.zeros_like(x)).log_normalizer
        return jnp.where(rows, counts * answers - 0.5 * point * jnp.square(x) + slope * x, -0.5 * z**2)

    nodes = jnp.linspace(-_REACH, _REACH, _NODES)
    highest = jax.lax.fori_loop(
        0, _NODES, lambda at, top: jnp.maximum(top, log_density(nodes[at])), jnp.full_like(mean, -jnp.inf)
    )

    def add(sums: Array, z: Array) -> tuple[Array, None]:
        weight = jnp.exp(log_density(z) - highest)
        return sums + weight * jnp.stack([z**0, z, z**2])[:, None], None

    (total, first, second), _ = jax.lax.scan(add, jnp.zeros((3, len(mean))), nodes)
    centre = first / total
    spread = jnp.sqrt(second / total - jnp.square(centre))
    shift = jnp.max(jnp.where(rows, jnp.abs(centre) / spread, 0.0), initial=0.0)
    log_ratio = jnp.where(rows, -jnp.log(spread), 0.0)
    worst = log_ratio[jnp.argmax(jnp.abs(log_ratio))]
    return jnp.stack([shift, jnp.exp(worst)])


def latent_moments(layout: Layout, evidence: Evidence) -> tuple[Floats, Floats]:
    """Posterior mean, shape (n,), and covariance, shape (n, n), of the joint latent vector."""
    location = np.asarray(evidence.location)
    if evidence.white is not None:
        white = np.asarray(evidence.white)
        return location + np.asarray(evidence.drift), white @ white.T
    blocks = (evidence.blocks[site] for site in layout.slices)  # JAX sorts dictionaries
    total = block_diag(*(np.sum([np.asarray(part) for part in parts.values()], axis=0) for parts in blocks))
    covariance = total - total @ np.asarray(evidence.weights) @ total
    return location + total @ np.asarray(evidence.alpha), 0.5 * (covariance + covariance.T)


class Component(NamedTuple):
    """A posterior at one value of the hyperparameters, read off an engine's arrays, which can be forgotten then."""

    mean: Floats  # shape (n,)
    covariance: Floats  # shape (n, n)
    # Of each site: means of its named parts, E[part] = K_p α, and their covariances with the total, the diagonal of K_p − K_p R K.
    parts: dict[str, tuple[dict[str, Floats], dict[str, Floats]]]
    sites: dict[str, Floats]  # ``precision`` and ``shift`` of the answers
    log_evidence: float

    @classmethod
    def of(cls, layout: Layout, evidence: Evidence, answered: int) -> "Component":
        """Of an evaluation with its whole arrays; the first ``answered`` rows are answers."""
        mean, covariance = latent_moments(layout, evidence)
        alpha, found = np.asarray(evidence.alpha), {}
        for site, rows in layout.slices.items():
            named = {part: np.asarray(matrix) for part, matrix in evidence.blocks[site].items() if part}
            means = {part: matrix @ alpha[rows] for part, matrix in named.items()}
            if len(named) <= 1:
                shares = {part: np.array(np.diagonal(covariance[rows, rows])) for part in named}
            else:
                total = np.sum(list(named.values()), axis=0)
                pulled = total @ np.asarray(evidence.weights)[rows, rows]
                shares = {
                    part: np.diagonal(matrix) - np.sum(matrix * pulled, axis=1)
                    for part, matrix in named.items()
                }
            found[site] = means, shares
        sites = {name: np.asarray(value)[:answered] for name, value in evidence.sites._asdict().items()}
        return cls(mean, covariance, found, sites, float(evidence.log_evidence))
