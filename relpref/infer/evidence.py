"""What every deterministic engine computes of a program at given hyperparameters: sites, evidence and its exact gradient."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.infer.program import Layout, Observation, Program, Reading, Values
from relpref.infer.result import Result, code
from relpref.infer.sites import (
    Cavity,
    EntitySpace,
    Fit,
    GapSpace,
    Info,
    Known,
    Marginals,
    Problem,
    Sites,
    Space,
)
from relpref.likelihoods import GaussianSite, TiltedMoments, is_log_concave
from relpref.linalg import Covariance

_MOST_PRECISE = 1.0001e10  # of a Gaussian site: noise/√count = 1e-5, and rounding of the square
_MOST_IN_GAP_SPACE = 1e7  # times the prior variance
_FAR_MORE, _FEW = 4, 250  # latents for each row, and rows that are counted in any case


class Evidence(NamedTuple):
    """An engine's sites at one value of the hyperparameters, and what follows from them.

    Attributes
    ----------
    log_evidence : Array
        log Z, without the hyperparameters' prior.
    log_prior : Array
        Log density of the hyperparameters in the unconstrained space (with the Jacobian of the map to it).
    gradient : dict
        Of log_evidence + log_prior in the unconstrained hyperparameters; empty if it was not asked for, zeros if ``whole``.
    sites : Sites
        At the fixed point.
    marginals : Marginals
        Of the predictors less their prior means.
    info : Info
        With what the prior's root needed as jitter.
    alpha : Array, shape (n,)
        The posterior mean is the prior mean plus K α.
    weights : Array, shape (n, n)
        R; the posterior covariance is K − K R K. Zeros unless ``whole``.
    white : Array, shape (n, r), or None
        V; the posterior covariance is VVᵀ. Zeros unless ``whole``, None in gap space.
    drift : Array, shape (n,), or None
        Posterior mean of the latent vector less its prior mean; None in gap space.
    hyperparameters : dict
        On their supports.
    location : Array, shape (n,)
        Prior mean of the latent vector.
    blocks : dict from site to (dict from part to Array)
        Prior covariance of each site's named parts; of a site without, the whole under the empty name. Zeros unless ``whole``.
    repeated : Array, shape (2,), or None
        Of EP, where answers were given many times: see `relpref.infer.ep.error_of_copies`.
    """

    log_evidence: Array
    log_prior: Array
    gradient: Values
    sites: Sites
    marginals: Marginals
    info: Info
    alpha: Array
    weights: Array
    white: Array | None
    drift: Array | None
    hyperparameters: Values
    location: Array
    blocks: dict[str, dict[str, Array]]
    repeated: Array | None = None


class Evaluation(Protocol):
    """How an engine finds the sites and the evidence of a program at given hyperparameters; a jitted function."""

    def __call__(
        self,
        program: Program,
        gap_space: bool,
        with_gradient: bool,
        unconstrained: Values,
        sites: Sites,
        tolerance: Any,
        max_sweeps: Any,
        whole: Any,
    ) -> Evidence:
        """Start from the given sites; ``gap_space`` and ``with_gradient`` are static.

        Only where ``whole`` is true are the (n, n) arrays filled in that a posterior is made of; a search does without. Where it is
        None, they are empty.
        """


def use_gap_space(layout: Layout) -> bool:
    """Whether the m x m space is the cheaper one, and good enough."""
    return layout.num_rows <= layout.num_latents and not needs_entity_space(layout)


def needs_entity_space(layout: Layout) -> bool:
    """Whether the m x m space would not do: it takes no negative precisions, and it cancels where sites are far more precise than the prior.

    Of far more latents than rows the second is accepted; `too_precise` says then where it shows.
    """
    careful = layout.precise and layout.num_latents <= _FAR_MORE * max(layout.num_rows, _FEW)
    return careful or not layout.log_concave


def build(program: Program, reading: Reading, gap_space: bool) -> Problem:
    """Set up the algebra for a program at given hyperparameters."""
    space: Space
    if gap_space:
        space = GapSpace.build(reading.covariance, reading.projection)
    else:
        space = EntitySpace.build(
            reading.covariance, reading.projection, program.rows, accurate=program.layout.precise
        )
    counts = jnp.concatenate([observation.counts for observation in reading.observations])
    concave = [np.full(one.value.size, is_log_concave(one.likelihood)) for one in reading.observations]
    answers = partial(tilted, reading.observations, reading.offset)
    known = known_sites(reading.observations, reading.offset)
    return Problem(space, reading.projection, counts, answers, np.concatenate(concave), known)


def known_sites(observations: tuple[Observation, ...], offset: Array) -> Known | None:
    """The sites of rows whose likelihood is Gaussian in the predictor; None where there are no such rows."""
    if not any(isinstance(observation.likelihood, GaussianSite) for observation in observations):
        return None
    start, rows, peaks, precisions = 0, [], [], []
    for likelihood, value, _ in observations:
        its = offset[start : start + value.size]
        start += value.size
        peak, precision = its, jnp.zeros_like(its)
        if isinstance(likelihood, GaussianSite):
            peak, precision = (jnp.ravel(part) for part in likelihood.gaussian_site(value))
        rows.append(np.full(value.size, isinstance(likelihood, GaussianSite)))
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
        shape = jnp.shape(likelihood.predictor)
        rows = slice(start, start + value.size)
        location = jnp.reshape(mean[rows] + offset[rows], shape)
        moments = likelihood.tilted(value, location, jnp.reshape(variance[rows], shape))
        found.append(TiltedMoments(*(jnp.ravel(moment) for moment in moments)))
        start += value.size
    return TiltedMoments(*(jnp.concatenate(columns) for columns in zip(*found, strict=True)))


def conclude(
    layout: Layout,
    reading: Reading,
    problem: Problem,
    fit: Fit,
    log_evidence: Array,
    info: Info,
    whole: Array | None,
) -> Evidence:
    """What every engine reports of the sites it found, the gradient left out."""
    sites, factor, marginals = fit

    def details() -> tuple[Array, Array | None, dict[str, dict[str, Array]]]:
        weights = problem.space.weights(factor, problem.counts * sites.precision, problem.projection)
        white = factor.white if isinstance(problem.space, EntitySpace) else None
        blocks = dict(zip(layout.slices, map(_parts, reading.covariance.blocks), strict=True))
        return weights, white, blocks

    def nothing() -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(details))

    if whole is None:
        weights, white, blocks = jnp.zeros((0, 0)), None, {}
    else:
        weights, white, blocks = jax.lax.cond(whole, details, nothing)
    arrived = info.code == code(Result.converged)
    fine = jnp.isfinite(log_evidence) | ~arrived
    ending = jnp.where(too_precise(problem) & arrived, code(Result.too_precise), info.code)
    return Evidence(
        log_evidence=log_evidence,
        log_prior=reading.log_prior,
        gradient={},
        sites=sites,
        marginals=marginals,
        info=info._replace(code=jnp.where(fine, ending, code(Result.nonfinite))),
        alpha=problem.projection.adjoint(dual_vector(problem, fit)),
        weights=weights,
        white=white,
        drift=problem.space.latent_mean(factor, problem.counts * sites.shift, problem.projection)
        if isinstance(problem.space, EntitySpace)
        else None,
        hyperparameters=reading.hyperparameters,
        location=reading.location,
        blocks=blocks,
    )


def gradient_of_search(
    surrogate: Callable[[Values], Array], unconstrained: Values, whole: Array | None
) -> Values:
    """The gradient where a search goes on; zeros where the arrays of a posterior are filled in, which is the end of it."""

    def gradient() -> Values:
        return jax.grad(surrogate)(unconstrained)

    if whole is None:
        return gradient()
    return jax.lax.cond(whole, lambda: jax.tree.map(jnp.zeros_like, unconstrained), gradient)


def dual_vector(problem: Problem, fit: Fit) -> Array:
    """β = ν − T·mean: the posterior mean of the projections is their prior covariance times β."""
    pull = fit.sites.shift - fit.sites.precision * fit.marginals.mean
    if problem.known is not None:
        direct = fit.sites.precision * (problem.known.peak - fit.marginals.mean)
        pull = jnp.where(problem.known.rows, direct, pull)
    return problem.counts * pull


def log_evidence_of_known(problem: Problem, fit: Fit) -> Array:
    """What each row's Gaussian likelihood adds to log Z, shape (m,); 0 for other rows.

    The density at its peak, and −½ y β: the quadratic terms −½ τ y² + ½ ν·mean, which would cancel, taken together.
    """
    known = problem.known
    if known is None:
        return jnp.zeros_like(problem.counts)
    height = problem.tilted(known.peak, jnp.zeros_like(known.peak)).log_normalizer
    share = problem.counts * height - 0.5 * known.peak * dual_vector(problem, fit)
    return jnp.where(known.rows, share, 0.0)


def too_precise(problem: Problem) -> Array:
    """Whether a Gaussian site is so precise that rounding may show: noise/√count below 1e-5, and below 1e-5 prior sds.

    In gap space, which cancels, that is below 3e-4 prior sds.
    """
    known, space = problem.known, problem.space
    if known is None:
        return jnp.asarray(False)
    precision = jnp.where(known.rows, problem.counts * known.sites.precision, 0.0)
    if isinstance(space, GapSpace):
        return jnp.max(precision * jnp.diagonal(space.gram), initial=0.0) > _MOST_IN_GAP_SPACE
    prior = jnp.minimum(1.0, space.rows.variances(space.root))
    return jnp.max(precision * prior, initial=0.0) > _MOST_PRECISE


def log_evidence_of_sites(counts: Array, log_normalizer: Array, sites: Sites, cavity: Cavity) -> Array:
    """The rows' share of log Z; each of a row's identical sites contributes once."""
    (mean, variance), (tau, nu) = cavity, sites
    # ½ log(1 + τ/t) + ½ (τc²/t − 2νc − ν²)/(τ + t) with t = 1/variance and c = mean/variance, fit for variance = 0.
    quadratic = (tau * mean**2 - 2 * nu * mean - nu**2 * variance) / (1 + tau * variance)
    correction = 0.5 * (jnp.log1p(tau * variance) + quadratic)
    return jnp.sum(jnp.where(counts > 0, counts * (log_normalizer + correction), 0.0))


def prior_surrogate(
    layout: Layout, problem: Problem, fit: Fit, evidence: Evidence
) -> Callable[[Reading], Array]:
    """A function of the moving program whose derivative is ½ tr((ββᵀ − M) ∂(A K Aᵀ)), sites held constant.

    β is the dual vector and M = T − T A Σ Aᵀ T. With a constant projection A that is ½ tr((ααᵀ − R) ∂K); where A moves, too, in
    entity space, ⟨β μᵀ − T A Σ, ∂A⟩ is added, μ and Σ being the latent vector's posterior mean (less its prior mean) and covariance.
    """
    space, precision = problem.space, problem.counts * fit.sites.precision
    if isinstance(space, GapSpace):
        dual, weights = dual_vector(problem, fit), space.gap_weights(fit.factor, precision)
        pull = jnp.outer(dual, dual) - weights
        return lambda moving: 0.5 * jnp.vdot(pull, moving.covariance.congruence(moving.projection.apply))
    alpha, weights = evidence.alpha, space.weights(fit.factor, precision, problem.projection)

    def prior(moving: Reading) -> Array:
        return 0.5 * (jnp.vdot(alpha, moving.covariance.matmul(alpha)) - moving.covariance.inner(weights))

    if layout.constant_projection:
        return prior
    white = fit.factor.white
    mean = space.latent_mean(fit.factor, problem.counts * fit.sites.shift, problem.projection)
    spread = precision[:, None] * (problem.projection.rows(white) @ white.T)
    pull = jnp.outer(dual_vector(problem, fit), mean) - spread
    identity = jnp.eye(len(mean), dtype=mean.dtype)
    return lambda moving: prior(moving) + jnp.vdot(pull, moving.projection.rows(identity))


def _parts(covariance: Covariance) -> dict[str, Array]:
    return {name: part.dense() for name, part in getattr(covariance, "parts", {"": covariance}).items()}
