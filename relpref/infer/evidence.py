"""What every deterministic engine computes of a program at given hyperparameters: sites, evidence and its exact gradient."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.linalg import block_diag

from relpref.infer.program import Layout, Observation, Program, Reading, Values
from relpref.infer.result import Result, code
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
    Space,
)
from relpref.likelihoods import TiltedMoments, is_log_concave

Floats = NDArray[np.float64]

_CONVERGED, _TOO_PRECISE, _NONFINITE = map(code, (Result.converged, Result.too_precise, Result.nonfinite))
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
        V; the posterior covariance is VVᵀ. Zeros unless ``whole``, None in observation space.
    drift : Array, shape (n,), or None
        Posterior mean of the latent vector less its prior mean; None in observation space.
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


class Approximation(NamedTuple):
    """What an engine makes of a problem at given hyperparameters.

    Attributes
    ----------
    fit : Fit
    log_evidence : Array
    info : Info
    answers : callable
        From the program at other hyperparameters to a number, whose derivative is the answers' share of that of the evidence.
    repeated : callable or None
        Of EP: gives what `Evidence.repeated` holds.
    """

    fit: Fit
    log_evidence: Array
    info: Info
    answers: Callable[[Reading], Array]
    repeated: Callable[[], Array] | None = None


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

    Only where ``whole`` is true are the (n, n) arrays filled in that a posterior is made of; a search does without. Where it is
    None, they are empty.
    """
    reading = program.read(unconstrained)
    problem = build(program, reading, dual)
    found = approximate(problem, reading, sites, tolerance, max_sweeps)
    evidence = conclude(program.layout, reading, problem, found, whole)
    if not with_gradient:
        return evidence
    prior = prior_surrogate(program.layout, problem, found.fit, evidence.alpha)

    def surrogate(unconstrained: Values) -> Array:
        moving = program.read(unconstrained)
        return prior(moving) + found.answers(moving) + moving.log_prior

    def gradient() -> Values:
        return jax.grad(surrogate)(unconstrained)

    if whole is None:
        return evidence._replace(gradient=gradient())
    # Where the arrays of a posterior are filled in, a search is at its end.
    nothing = jax.tree.map(jnp.zeros_like, unconstrained)
    return evidence._replace(gradient=jax.lax.cond(whole, lambda: nothing, gradient))


def use_dual_space(layout: Layout) -> bool:
    """Whether the m x m observation space is the cheaper one, and good enough."""
    return layout.num_rows <= layout.num_latents and not needs_latent_space(layout)


def needs_latent_space(layout: Layout) -> bool:
    """Whether the m x m space would not do: it takes no negative precisions, and it cancels where sites are far more precise than the prior.

    Of far more latents than rows the second is accepted; `too_precise` says then where it shows.
    """
    careful = layout.precise and layout.num_latents <= _FAR_MORE * max(layout.num_rows, _FEW)
    return careful or not layout.log_concave


def build(program: Program, reading: Reading, dual: bool) -> Problem:
    """Set up the algebra for a program at given hyperparameters."""
    covariance, projection, observations = reading.covariance, reading.projection, reading.observations
    space: Space
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
    closed = [getattr(observation.likelihood, "gaussian_site", None) for observation in observations]
    if not any(closed):
        return None
    start, rows, peaks, precisions = 0, [], [], []
    for site, (_, value, _) in zip(closed, observations, strict=True):
        its = offset[start : start + value.size]
        start += value.size
        peak, precision = its, jnp.zeros_like(its)
        if site is not None:
            peak, precision = (jnp.ravel(part) for part in site(value))
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
        shape = jnp.shape(likelihood.predictor)
        rows = slice(start, start + value.size)
        location = jnp.reshape(mean[rows] + offset[rows], shape)
        moments = likelihood.tilted(value, location, jnp.reshape(variance[rows], shape))
        found.append(TiltedMoments(*(jnp.ravel(moment) for moment in moments)))
        start += value.size
    return TiltedMoments(*(jnp.concatenate(columns) for columns in zip(*found, strict=True)))


def conclude(
    layout: Layout, reading: Reading, problem: Problem, found: Approximation, whole: Array | None
) -> Evidence:
    """What is reported of the sites, the gradient left out."""
    fit, space, projection = found.fit, problem.space, problem.projection
    precision, shift = problem.counts * fit.sites.precision, problem.counts * fit.sites.shift

    def details() -> tuple[Array, Array | None, dict[str, dict[str, Array]]]:
        blocks = [
            {name: part.dense() for name, part in getattr(block, "parts", {"": block}).items()}
            for block in reading.covariance.blocks
        ]
        white = space.posterior_root(fit.factor)
        return (
            space.weights(fit.factor, precision, projection),
            white,
            dict(zip(layout.slices, blocks, strict=True)),
        )

    def nothing(compute: Callable[[], Any]) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(compute))

    weights, white, blocks, repeated = jnp.zeros((0, 0)), None, {}, None
    if whole is not None:
        weights, white, blocks = jax.lax.cond(whole, details, lambda: nothing(details))
        if layout.repeated and found.repeated is not None:
            repeated = jax.lax.cond(whole, found.repeated, lambda: jnp.array([0.0, 1.0]))
    arrived = found.info.code == _CONVERGED
    fine = jnp.isfinite(found.log_evidence) | ~arrived
    ending = jnp.where(too_precise(problem) & arrived, _TOO_PRECISE, found.info.code)
    return Evidence(
        log_evidence=found.log_evidence,
        log_prior=reading.log_prior,
        gradient={},
        sites=fit.sites,
        marginals=fit.marginals,
        info=found.info._replace(code=jnp.where(fine, ending, _NONFINITE)),
        alpha=projection.adjoint(dual_vector(problem, fit)),
        weights=weights,
        white=white,
        drift=space.latent_mean(fit.factor, shift, projection),
        hyperparameters=reading.hyperparameters,
        location=reading.location,
        blocks=blocks,
        repeated=repeated,
    )


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
    """Whether a Gaussian site is so precise that rounding may show, see `DualSpace.precision_limit`."""
    known = problem.known
    if known is None:
        return jnp.asarray(False)
    precision = jnp.where(known.rows, problem.counts * known.sites.precision, 0.0)
    variance, most = problem.space.precision_limit()
    return jnp.max(precision * variance, initial=0.0) > most


def log_evidence_of_sites(counts: Array, log_normalizer: Array, sites: Sites, cavity: Cavity) -> Array:
    """The rows' share of log Z; each of a row's identical sites contributes once."""
    (mean, variance), (tau, nu) = cavity, sites
    # ½ log(1 + τ/t) + ½ (τc²/t − 2νc − ν²)/(τ + t) with t = 1/variance and c = mean/variance, fit for variance = 0.
    quadratic = (tau * mean**2 - 2 * nu * mean - nu**2 * variance) / (1 + tau * variance)
    correction = 0.5 * (jnp.log1p(tau * variance) + quadratic)
    return jnp.sum(jnp.where(counts > 0, counts * (log_normalizer + correction), 0.0))


def prior_surrogate(layout: Layout, problem: Problem, fit: Fit, alpha: Array) -> Callable[[Reading], Array]:
    """A function of the moving program whose derivative is ½ tr((ββᵀ − M) ∂(A K Aᵀ)), sites held constant.

    β is the dual vector and M = T − T A Σ Aᵀ T. With a constant projection A that is ½ tr((ααᵀ − R) ∂K); where A moves, too, in
    latent space, ⟨β μᵀ − T A Σ, ∂A⟩ is added, μ and Σ being the latent vector's posterior mean (less its prior mean) and covariance.
    """
    space: Any = problem.space
    projection, precision = problem.projection, problem.counts * fit.sites.precision
    dual, white = dual_vector(problem, fit), space.posterior_root(fit.factor)
    if white is None:
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


class Component(NamedTuple):
    """A posterior at one value of the hyperparameters, read off an engine's arrays, which can be forgotten then.

    Attributes
    ----------
    mean : array, shape (n,)
    covariance : array, shape (n, n)
    parts : dict from site
        To the means of its named parts, E[part] = K_p α, and their covariances with the total, the diagonal of K_p − K_p R K.
    sites : dict
        ``precision`` and ``shift`` of the answers.
    log_evidence : float
    """

    mean: Floats
    covariance: Floats
    parts: dict[str, tuple[dict[str, Floats], dict[str, Floats]]]
    sites: dict[str, Floats]
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
        return cls(mean, covariance, found, sites_of(evidence, answered), float(evidence.log_evidence))


def sites_of(evidence: Evidence, answered: int) -> dict[str, Floats]:
    """The sites of the first ``answered`` rows."""
    return {
        "precision": np.asarray(evidence.sites.precision)[:answered],
        "shift": np.asarray(evidence.sites.shift)[:answered],
    }


def latent_moments(layout: Layout, evidence: Evidence) -> tuple[Floats, Floats]:
    """Posterior mean, shape (n,), and covariance, shape (n, n), of the joint latent vector."""
    alpha = np.asarray(evidence.alpha)
    totals = {
        site: np.sum([np.asarray(part) for part in parts.values()], axis=0)
        for site, parts in evidence.blocks.items()
    }
    mean = np.array(evidence.location)
    for site, rows in layout.slices.items():
        mean[rows] += totals[site] @ alpha[rows]
    if evidence.white is not None:
        white = np.asarray(evidence.white)
        return np.asarray(evidence.location) + np.asarray(evidence.drift), white @ white.T
    total = block_diag(*(totals[site] for site in layout.slices))  # JAX sorts dictionaries
    covariance = total - total @ np.asarray(evidence.weights) @ total
    return mean, 0.5 * (covariance + covariance.T)
