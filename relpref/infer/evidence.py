"""Sites, log evidence and its exact gradient at given hyperparameters.

They are computed for any engine; that of expectation propagation is here.
"""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relpref.compiled import compiled
from relpref.data.arrays import Floats
from relpref.devices import default_device
from relpref.errors import UnsupportedProgramError
from relpref.infer.arrow import ArrowSpace
from relpref.infer.call import Values, survey
from relpref.infer.gradient import (
    Nodes,
    Slopes,
    along,
    dual_vector,
    slopes_of_answers,
    slopes_of_answers_at,
    slopes_of_noise,
    slopes_of_prior,
    sum_of,
    tilted,
)
from relpref.infer.joint import Joint, slopes_at, slopes_on_host
from relpref.infer.layout import Layout, Prior, placed
from relpref.infer.program import Program
from relpref.infer.sites import Cavity, Fit, Info, Problem, Sites, by_rows, cavities, run
from relpref.infer.spaces import DualSpace, HostSpace, LatentSpace, Marginals
from relpref.likelihoods import TiltedMoments
from relpref.likelihoods.quadrature import tilted_by_nodes
from relpref.linalg import BlockDiagonal, Covariance, Dense
from relpref.linalg.arrays import Array, block_diagonal, namespace, traced
from relpref.linalg.arrays import on_host as on_host_arrays
from relpref.result import CODES, Result

_TOO_PRECISE, _NONFINITE = map(CODES.index, (Result.too_precise, Result.nonfinite))
_CHEAP = 400  # rows of a matrix up to which NumPy factorizes it in the time of two sweeps without
_BENT = 60  # sweeps with p^n that is not log-concave, before each answer has a site
_POINTS = 64  # log p of all rows is computed at a multiple of as many points
_DENSE = 1.5  # rows for each latent up to which a dense projection is cheaper in their space
_FAR_MORE, _FEW = 4, 250  # latents for each row, and rows that are counted in any case


class Evidence(NamedTuple):
    """An engine's sites at one value of the hyperparameters, and what follows from them."""

    log_evidence: Array  # log Z, without the hyperparameters' prior
    # Log density of the hyperparameters in the unconstrained space, with the Jacobian.
    log_prior: Array
    # Gradient of log_evidence + log_prior in the unconstrained hyperparameters; empty if it was not
    # requested, zeros if ``whole``.
    gradient: Values
    sites: Sites  # at the fixed point
    marginals: Marginals  # of the predictors less their prior means
    info: Info  # with the jitter that the prior's root needed
    alpha: Array  # α, shape (n,): the posterior mean is the prior mean plus K α
    # Of the latent vector: posterior mean less prior mean, shape (n,), posterior covariance
    # Σ = K − K R K and R K, shape (n, n) each. Unless ``whole``, they are zeros or None.
    drift: Array | None
    covariance: Array | None
    pulled: Array | None
    hyperparameters: Values  # on their supports
    location: Array  # prior mean of the latent vector, shape (n,)
    # Prior covariance of each site's named parts; a site without parts has it under the empty name.
    # Zeros unless ``whole``.
    blocks: dict[str, dict[str, Array]]


class Approximation(NamedTuple):
    """An engine's result for a problem at given hyperparameters."""

    fit: Fit
    log_evidence: Array
    info: Info
    # Returns the answers' share of the derivatives of the evidence. Where the evidence also depends
    # on the prior through the point of expansion, a vector v is returned, too: the derivative has a
    # term vᵀ ∂G β, where β is the dual vector and G the prior covariance of the projections.
    answers: Callable[[], tuple[Slopes, Array | None]]


# Tilted moments of every row, from means and variances of the cavities and powers.
Moments = Callable[..., TiltedMoments]
# Arguments are a problem, sites to start from, a tolerance and a number of sweeps.
Approximate = Callable[[Problem, Sites, Any, Any], Approximation]


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
    bounded: bool = False,
) -> Evidence:
    """Sites and evidence of a program at given hyperparameters, from the given sites.

    If ``whole`` is true, the (n, n) arrays of a posterior are computed and the gradient is left
    out; a search does without these arrays. If it is None, they are empty. For ``bounded`` see
    `Problem`.

    On the host, and where JAX does not trace the call, only the program is compiled: its
    covariance, the moments of its answers and the derivatives of both. The algebra is NumPy's.
    """
    if traced(program.counts, unconstrained, sites) or default_device().platform != "cpu":
        arguments = (approximate, program, dual, with_gradient, unconstrained, sites)
        return _evaluate(*arguments, tolerance, max_sweeps, whole)
    unconstrained, sites = jax.tree.map(np.asarray, (unconstrained, sites))
    with np.errstate(all="ignore"):
        prior, moments, slopes, gradient = on_host(program, unconstrained)
        prior = prior._replace(blocks=dense_blocks(program.layout, prior.covariance))
        # In the order of the layout; JAX sorts dictionaries.
        covariance = Dense(
            block_diagonal(total(prior.blocks[site]) for site in program.layout.slices)
        )
        around = partial(slopes_on_host, program, unconstrained)
        problem = problem_of(program, prior, covariance, dual, moments, slopes, around)
        problem = problem._replace(bounded=bounded)
        result = approximate(problem, sites, tolerance, max_sweeps)
        evidence = concluded(problem, result, prior)
        if whole:
            evidence = evidence._replace(**whole_arrays(program.layout, problem, result, prior))
        if with_gradient and whole:
            evidence = evidence._replace(gradient=jax.tree.map(np.zeros_like, unconstrained))
        elif with_gradient:
            given = slopes_of(program, problem, result, prior, evidence.alpha, covariance.matrix)
            evidence = evidence._replace(gradient=gradient(given))
    return evidence


def space_of(program: Program, prior: Prior, covariance: Covariance, dual: bool) -> Any:
    """The space of a program's algebra, with the noise that rows share."""
    arrow, rows = program.arrow, prior.projection
    factors = () if arrow is None else arrow.blocks.factors(prior.noise)
    if dual:
        noise = 0.0 if arrow is None else arrow.blocks.matrix(factors)
        return DualSpace.build(covariance, rows, noise)
    build = HostSpace.of if namespace(prior.counts) is np else LatentSpace.build
    if arrow is None:
        return build(covariance, rows, program.layout.precise)
    assert arrow.rows is not None  # or observation space is required
    space = build(covariance, arrow.rows)
    return space if program.layout.joint else ArrowSpace(space, arrow.blocks, factors)


def problem_of(
    program: Program,
    prior: Prior,
    covariance: Covariance,
    dual: bool,
    moments: Moments,
    slopes: Callable[..., tuple[Any, ...]],
    around: Callable[[Array], tuple[Array, Array]],
) -> Problem:
    """The problem of a program at given hyperparameters.

    ``slopes`` are those of `Problem`, ``around`` those of `Joint`.
    """
    layout, joint = program.layout, None
    if layout.joint and program.arrow is not None:
        joint = Joint.of(program.arrow, around)
    answers = prior.counts, moments, prior.log_concave, prior.gaussian
    dear = (layout.num_rows if dual else layout.num_latents) > _CHEAP
    holding = dear or namespace(prior.counts) is not np
    power = (prior.power,) if layout.repeated else ()
    space = space_of(program, prior, covariance, dual)
    return Problem(space, *answers, joint, holding, power, slopes)


class OnHost(NamedTuple):
    """A program at given hyperparameters, on arrays of NumPy."""

    prior: Prior
    moments: Moments
    slopes: Callable[..., tuple[Any, ...]]  # see `relpref.infer.gradient.slopes_of_answers`
    # From derivatives of the log evidence, those of log evidence plus log prior in the
    # unconstrained hyperparameters.
    gradient: Callable[[Slopes], Values]


def on_host(program: Program, unconstrained: Values) -> OnHost:
    """The program at unconstrained hyperparameters."""
    filled = program.on_host(unconstrained)
    prior = filled.prior
    direct = prior.direct
    by_nodes = len(program.layout.quadrature) == len(program.layout.observed)

    def nodes(mean: Array, variance: Array, power: Any = 1.0) -> tuple[Any, ...]:
        def at(z: Array) -> tuple[Array, ...]:
            # Points are added so that few numbers of them are compiled.
            padded = np.pad(z, ((0, -len(z) % _POINTS), (0, 0)), "edge")
            return tuple(each[: len(z)] for each in _derivatives(program, unconstrained, padded))

        return tilted_by_nodes(at, prior.offset + mean, variance, power)

    def moments(*arrays: Array) -> TiltedMoments:
        if direct:
            return tilted(prior.observations, prior.offset, *arrays)
        if by_nodes:
            return nodes(*arrays)[0]
        if prior.observations:
            by_jax = _tilted(prior.observations, prior.offset, *arrays)
        else:
            by_jax = _tilted_by(program, unconstrained, *arrays)
        return TiltedMoments(*map(np.asarray, by_jax))

    def slopes(*arrays: Array) -> tuple[Any, ...]:
        if direct:
            return slopes_of_answers(prior.observations, prior.offset, *arrays)
        if by_nodes:
            mean, variance, weight, _, *power = arrays
            _, away, share = nodes(mean, variance, *power)
            sites = survey(program.call)
            sizes = [int(np.prod(sites[name].rows)) for name in program.layout.observed]
            ends = np.cumsum(sizes)[:-1]
            parts = (np.split(each, ends, axis=1) for each in (away, share * weight))
            return tuple(map(Nodes, *parts))
        return _slopes_by(program, unconstrained, *arrays)

    def gradient(slopes: Slopes) -> Values:
        result = filled.gradient(slopes.pulls)
        if not (slopes.surrogates and filled.template.answers_move):
            return result
        more = _slope(program, unconstrained, Slopes({}, slopes.surrogates), False)
        return {name: slope + np.asarray(more[name]) for name, slope in result.items()}

    return OnHost(prior, moments, slopes, gradient)


def total(parts: Mapping[str, Any]) -> Any:
    """The sum of a site's named covariances."""
    return reduce(add, parts.values())


@partial(jax.jit, static_argnums=(0, 2, 3))
def _evaluate(
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
    """Sites and evidence, see `evaluate`, in one compiled function."""
    prior = program.read(unconstrained)
    counts, power = jnp.asarray(prior.counts), jnp.asarray(prior.power)
    blocks = dense_blocks(program.layout, prior.covariance)
    prior = prior._replace(blocks=blocks, counts=counts, power=power)
    answers = prior.observations, prior.offset
    moments, slopes = partial(tilted, *answers), partial(slopes_of_answers, *answers)
    around = partial(slopes_at, prior)
    problem = problem_of(program, prior, prior.covariance, dual, moments, slopes, around)
    result = approximate(problem, sites, tolerance, max_sweeps)
    evidence = concluded(problem, result, prior)
    before = prior.covariance.dense()
    given = slopes_of(program, problem, result, prior, evidence.alpha, before)
    slope = partial(_slope, program, unconstrained, given, True)
    if whole is None:
        return evidence._replace(gradient=slope()) if with_gradient else evidence
    arrays = partial(whole_arrays, program.layout, problem, result, prior)
    unfilled = partial(jax.tree.map, jnp.zeros_like, jax.eval_shape(arrays))
    evidence = evidence._replace(**jax.lax.cond(whole, arrays, unfilled))
    if not with_gradient:
        return evidence
    # A search has ended when the arrays of a posterior are computed.
    flat = partial(jax.tree.map, jnp.zeros_like, unconstrained)
    return evidence._replace(gradient=jax.lax.cond(whole, flat, slope))


def slopes_of(
    program: Program,
    problem: Problem,
    result: Approximation,
    prior: Prior,
    alpha: Array,
    before: Array,
) -> Slopes:
    """Derivatives of the log evidence in what the program reads."""
    answers, pulled = result.answers()
    of_prior = problem, result.fit, alpha, pulled, prior.covariance, before
    noise = slopes_of_noise(program, problem, result.fit, prior.noise, pulled)
    return sum_of([slopes_of_prior(program.layout, *of_prior), answers, noise])


def dense_blocks(layout: Layout, covariance: BlockDiagonal) -> dict[str, dict[str, Array]]:
    """Matrices of the named parts of each site's covariance, see `Evidence.blocks`."""
    blocks = {}
    for site, block in zip(layout.slices, covariance.blocks, strict=True):
        parts = getattr(block, "parts", {"": block})
        blocks[site] = {name: part.dense() for name, part in parts.items()}
    return blocks


@compiled
def _derivatives(program: Program, unconstrained: Values, z: Array) -> tuple[Array, ...]:
    """Log p of all rows and two derivatives at points, shape (k, m)."""
    parts = []
    for likelihood, value, _, rows in placed(program.read(unconstrained).observations):
        points = z[:, rows].reshape(-1, *jnp.shape(likelihood.predictor))
        parts.append([each.reshape(len(z), -1) for each in likelihood.derivatives(value, points)])
    return tuple(jnp.concatenate(each, axis=1) for each in zip(*parts, strict=True))


@compiled
def _tilted_by(program: Program, unconstrained: Values, *given: Array) -> TiltedMoments:
    reading = program.read(unconstrained)
    return tilted(reading.observations, reading.offset, *given)


@compiled
def _slopes_by(program: Program, unconstrained: Values, *given: Array) -> tuple[Any, ...]:
    reading = program.read(unconstrained)
    return slopes_of_answers(reading.observations, reading.offset, *given)


@compiled(static_argnums=3)
def _slope(program: Program, unconstrained: Values, slopes: Slopes, with_prior: bool) -> Values:
    """Gradient of log evidence, and of the log prior, by a function with the same derivative."""

    def surrogate(unconstrained: Values) -> Array:
        moving = program.read(unconstrained)
        total = along(moving, slopes.pulls) + sum(pull(moving) for pull in slopes.surrogates)
        return total + moving.log_prior if with_prior else total

    return jax.grad(surrogate)(unconstrained)


def concluded(problem: Problem, result: Approximation, prior: Prior) -> Evidence:
    """The evidence, without its gradient and the (n, n) arrays."""
    space: Any = problem.space
    fit, gaussian = result.fit, problem.gaussian
    xp = namespace(problem.counts)
    arrived, ending = result.info.converged, result.info.code
    if gaussian is not None:  # a Gaussian site may be so precise that rounding shows
        precision = problem.counts * fit.sites.precision
        variance, most = space.precision_limit()
        highest = xp.max(xp.where(gaussian.rows, precision, 0.0) * variance, initial=0.0)
        ending = xp.where((highest > most) & arrived, _TOO_PRECISE, ending)
    finite = xp.isfinite(result.log_evidence)
    ending = xp.where(arrived & xp.logical_not(finite), _NONFINITE, ending)
    return Evidence(
        log_evidence=result.log_evidence,
        log_prior=prior.log_prior,
        gradient={},
        sites=fit.sites,
        marginals=fit.marginals,
        info=result.info._replace(code=ending),
        alpha=space.rows.adjoint(dual_vector(problem, fit)),
        drift=None,
        covariance=None,
        pulled=None,
        hyperparameters=prior.hyperparameters,
        location=prior.location,
        blocks={},
    )


def whole_arrays(
    layout: Layout, problem: Problem, result: Approximation, prior: Prior
) -> dict[str, Any]:
    """The fields of `Evidence` that are computed only if ``whole``."""
    space: Any = problem.space
    fit, rows = result.fit, space.rows
    if problem.joint is not None:
        drift = space.root @ (space.root.T @ rows.adjoint(dual_vector(problem, fit)))
    elif space.latent:
        drift = space.latent_mean(fit.factor, problem.counts * fit.sites.shift)
    if space.latent:
        covariance = space.covariance(fit.factor)
        pulled = space.pulled(fit.factor, covariance)
    else:
        before = block_diagonal(total(prior.blocks[site]) for site in layout.slices)
        drift = before @ rows.adjoint(dual_vector(problem, fit))
        pulled = rows.back(space.dual_weights(fit.factor) @ rows.rows(before))
        covariance = before - before @ pulled
        covariance = 0.5 * (covariance + covariance.T)
    return {
        "drift": drift,
        "covariance": covariance,
        "pulled": pulled,
        "blocks": prior.blocks,
    }


def use_dual_space(layout: Layout, space: str = "auto") -> bool:
    """Whether to work in the m x m observation space; "auto" chooses the cheaper one.

    Observation space takes no negative precisions, and it loses digits where sites are far more
    precise than the prior. That loss is accepted only with far more latents than rows; where it
    shows, the result is ``too_precise``.
    """
    if space == "observation" and not layout.log_concave:
        raise UnsupportedProgramError(
            "space is 'observation', which takes log-concave likelihoods only, and one of the "
            "program's is not; leave space='auto'"
        )
    if layout.observation_only and (space == "latent" or not layout.log_concave):
        raise UnsupportedProgramError(
            "some answers share noise, as those of one list do, and look at more than two latents "
            "each or at what hyperparameters change: "
            "then space is 'observation', for log-concave likelihoods only"
        )
    if layout.observation_only:
        return True
    if layout.joint:
        if space == "observation":
            raise UnsupportedProgramError(
                "some answers are lists, whose curvature Laplace takes in the space of latents; "
                "leave space='auto'"
            )
        return False
    most = layout.num_latents * (1.0 if layout.constant_projection else _DENSE)
    cheaper = layout.num_rows <= most if space == "auto" else space == "observation"
    careful = layout.precise and layout.num_latents <= _FAR_MORE * max(layout.num_rows, _FEW)
    return cheaper and layout.log_concave and not careful


_tilted = compiled(tilted)


def expectation_propagation(
    problem: Problem,
    sites: Sites,
    tolerance: Any,
    max_sweeps: Any,
    progress: Callable[[int, float], object] | None = None,
) -> Approximation:
    """Run expectation propagation from the given sites; for ``progress`` see `run`.

    Where p^n is not log-concave, the rows that contradict it may have no proper cavity without its
    site; then each of the n answers has one. Where updates diverge nevertheless, sites may be
    ``bounded``.
    """
    rows, start = by_rows(problem, sites)
    bent = problem.power and on_host_arrays(sites) and not np.all(problem.log_concave)
    most = min(max_sweeps, _BENT) if bent else max_sweeps
    fit, log_normalizer, info = run(rows, start, tolerance, most, progress)
    if bent and not info.converged:
        single = problem._replace(power=())
        return expectation_propagation(single, sites, tolerance, max_sweeps, progress)
    if problem.bounded and not info.converged and not np.all(problem.log_concave):
        rows = rows._replace(tilted=partial(_bounded, rows.tilted), log_concave=True)
        start = Sites(np.maximum(start.precision, 0.0), start.shift)
        fit, log_normalizer, info = run(rows, start, tolerance, max_sweeps, progress)
    cavity, xp = cavities(rows.counts, fit.sites, fit.marginals), namespace(problem.counts)
    gaussian = problem.gaussian
    closed = xp.zeros(problem.counts.shape, bool) if gaussian is None else gaussian.rows
    counts = xp.where(closed, 0.0, rows.counts)  # of those that are iterated
    log_evidence = (
        xp.sum(log_of_sites(counts, log_normalizer, fit.sites, cavity))
        - fit.marginals.log_determinant
        + 0.5 * xp.vdot(counts * fit.sites.shift, fit.marginals.mean)
    )
    for power in problem.power:
        fit = fit._replace(sites=Sites(*(part / power for part in fit.sites)))
    if gaussian is not None:
        # A Gaussian's density at its peak, and −½ y β: the quadratic terms −½ τ y² + ½ ν·mean,
        # which would cancel, taken together.
        height = problem.tilted(gaussian.peak, xp.zeros_like(gaussian.peak)).log_normalizer
        share = problem.counts * height - 0.5 * gaussian.peak * dual_vector(problem, fit)
        log_evidence = log_evidence + xp.sum(xp.where(gaussian.rows, share, 0.0))
    # For a Gaussian likelihood ∂log Ẑ is the derivative of the expectation of the log likelihood
    # under the posterior, which needs no cavity.
    mean = xp.where(closed, fit.marginals.mean, cavity.mean)
    variance = xp.where(closed, 0.0, cavity.variance)
    spread = xp.where(closed, 0.5 * fit.marginals.variance, 0.0)

    def answers() -> tuple[Slopes, Array | None]:
        # ∂log Z = ½ tr((ααᵀ − R) ∂K) + Σ ∂log Ẑ at a fixed point of EP, sites and cavities held
        # constant.
        assert problem.slopes is not None
        slopes = problem.slopes(mean, variance, rows.counts, spread, *problem.power)
        dual = dual_vector(problem, fit)
        return slopes_of_answers_at(mean, variance, spread, dual, slopes), None

    return Approximation(fit, log_evidence, info, answers)


def _bounded(tilted: Moments, mean: Array, variance: Array) -> TiltedMoments:
    """Moments that no site of negative precision matches: variances do not grow."""
    moments = tilted(mean, variance)
    return moments._replace(curvature=np.maximum(moments.curvature, 0.0))


def log_of_sites(counts: Array, log_normalizer: Array, sites: Sites, cavity: Cavity) -> Array:
    """The rows' shares of log Z, shape (m,); each of a row's identical sites contributes once."""
    (mean, variance), (tau, nu), xp = cavity, sites, namespace(counts, log_normalizer)
    # ½ log(1 + τ/t) + ½ (τc²/t − 2νc − ν²)/(τ + t) with t = 1/variance and c = mean/variance, fit
    # for variance = 0.
    quadratic = (tau * mean**2 - 2 * nu * mean - nu**2 * variance) / (1 + tau * variance)
    correction = 0.5 * (xp.log1p(tau * variance) + quadratic)
    return xp.where(counts > 0, counts * (log_normalizer + correction), 0.0)


def latent_moments(evidence: Evidence) -> tuple[Floats, Floats]:
    """Posterior mean, shape (n,), and covariance, shape (n, n), of the joint latent vector."""
    mean = np.asarray(evidence.location) + np.asarray(evidence.drift)
    return mean, np.asarray(evidence.covariance)
