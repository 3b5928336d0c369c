"""Expectation propagation: parallel site updates with a damping that adapts.

A sweep is *fresh* when it factorizes the posterior again, O(n³), and *held* when it keeps the
covariance of the last fresh one: then only the means follow the new sites, O(n²). Means need many
sweeps to settle and variances few, so a few held sweeps after each fresh one halve the number of
factorizations (Seeger & Nickisch 2011, "Fast convergent algorithms for expectation propagation
approximate Bayesian inference"). Convergence is judged at fresh sweeps only.

Sites are a fixed point of a sweep. The last few fresh sweeps tell how its updates change with the
sites, and the next step goes where they would vanish if that were linear (Anderson 1965, "Iterative
procedures for nonlinear integral equations").

On arrays of NumPy nothing is compiled, and the same code runs step by step; on arrays of JAX it can
be compiled and mapped.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relpref.infer.spaces import Factorised, Marginals, Space
from relpref.likelihoods import TiltedMoments
from relpref.linalg.arrays import (
    Array,
    choose,
    cond,
    namespace,
    on_host,
    while_loop,
)
from relpref.result import CODES, Result

# The damping shrinks by _BRAKE when a fresh sweep finds a residual that is _GROWN times as large,
# and recovers by _RELAX when it finds a smaller one.
_BRAKE, _RELAX, _SMALLEST, _GROWN = 0.6, 1.15, 0.05, 1.2
_HOPELESS = 1e-3  # damping after many steps in a row that led to unusable sites
# Held sweeps follow a fresh one with a residual below _HOLD_BELOW, at most _MOST_HELD of them, as
# long as the residual falls and until it is within _SETTLED of that of the fresh one.
_HOLD_BELOW, _MOST_HELD, _SETTLED = 0.3, 6, 0.02
# Number of earlier sweeps from which a step is extrapolated, below a residual of _NEAR. Weights of
# an absolute sum above _MOST_WEIGHT are not used; _RIDGE is added to their equations.
_EARLIER, _NEAR, _MOST_WEIGHT, _RIDGE = 3, 1.0, 8.0, 1e-10


class Sites(NamedTuple):
    """Natural parameters of the Gaussian sites, one for each *row*.

    A row that was answered k times has one site, which is written as k identical ones.
    """

    # precision and shift: τ and ν of exp(ν x − ½ τ x²), x = the projection less its prior mean,
    # shape (m,)
    precision: Array
    shift: Array

    @classmethod
    def none(cls, number: int) -> "Sites":
        """Sites that say nothing of the rows."""
        return cls(*np.zeros((2, number)))


class Cavity(NamedTuple):
    """A row's posterior without its site, if it has one."""

    mean: Array
    variance: Array


class Known(NamedTuple):
    """Rows whose likelihood is Gaussian in the predictor.

    Their sites are the likelihoods themselves and need no iteration.
    """

    rows: Array  # shape (m,)
    peak: Array  # y, where the likelihood is largest, in the coordinates of the sites, shape (m,)
    sites: Sites  # τ = 1/noise² and ν = τ y; anything where ``rows`` is false


class Problem(NamedTuple):
    """Inputs of expectation propagation."""

    space: Space
    # Number of identical answers of each row, shape (m,); a row of 0 changes nothing.
    counts: Array
    # From cavity mean and variance, shape (m,) each, and powers to `TiltedMoments`.
    tilted: Callable[..., TiltedMoments]
    # Whether each row's likelihood is log-concave, so that a negative site precision is an error,
    # shape (m,).
    log_concave: Any = True
    gaussian: Known | None = None
    joint: Any = None  # a `relpref.infer.joint.Joint`, for such engines, where rows are one outcome
    # Whether a factorization costs more than a few held sweeps; otherwise these come only after
    # many fresh ones.
    holding: bool = True
    # n of the likelihoods p^n that have one site each, shape (m,), of which a row stands for
    # counts/n; empty if n is 1 for all rows.
    power: tuple[Array, ...] = ()
    # From cavities, weights, spreads and powers to the derivatives by the answers, see
    # `relpref.infer.gradient.slopes_of_answers`.
    slopes: Callable[..., tuple[Any, ...]] | None = None
    # Whether sites have no negative precision where updates diverge otherwise, as they may where
    # likelihoods are not log-concave and priors wide. Then the evidence is not stationary in them.
    bounded: bool = False


class Fit(NamedTuple):
    """Sites and the posterior under them."""

    sites: Sites
    factor: Factorised
    marginals: Marginals


class State(NamedTuple):
    """State before the next sweep."""

    sites: Sites  # where the next sweep evaluates
    fit: Fit  # of the last fresh sweep
    mean: Array  # of the projections, as the held sweeps moved it, shape (m,)
    # Sites of the last usable fresh sweeps, the latest first, and where their updates point, shape
    # (1 + _EARLIER, 2m) each. A step to unusable sites is taken again, shorter.
    bases: Array
    aims: Array
    usable_sweeps: Array  # their number
    damping: Array  # fraction of an update that is taken
    log_normalizer: Array  # log Ẑ of every row at the last fresh sweep, shape (m,)
    # residual and held_residual: of the last usable fresh sweep, and of the last sweep
    residual: Array
    held_residual: Array
    held: Array  # number of held sweeps since; negative when the next sweep is fresh


class Info(NamedTuple):
    """Diagnostics of the sweeps."""

    sweeps: Array  # fresh ones
    # Largest mismatch of tilted and posterior moments over the rows: of the mean in posterior sds,
    # or of the variance relative to itself. 0 at a fixed point.
    residual: Array
    damping: Array
    code: Array  # index into `relpref.result.CODES`
    jitter: Array  # what was added to the prior's diagonal so that it could be factorized

    @property
    def converged(self) -> Array:
        """Whether the code is that of convergence."""
        return self.code == CODES.index(Result.converged)

    @property
    def result(self) -> Result:
        """The result that the code stands for."""
        return CODES[int(self.code)]


def begin(sites: Sites, fit: Fit) -> State:
    """The state before the first sweep; only the shapes of the fit are used."""
    xp = namespace(sites.precision)
    unit = xp.ones((), sites.precision.dtype)
    mean, nowhere, none = fit.marginals.mean, unit * xp.inf, xp.asarray(0)
    past = xp.stack([xp.concatenate(sites)] * (1 + _EARLIER))
    return State(sites, fit, mean, past, past, none, unit, mean, nowhere, nowhere, none - 1)


def with_known(known: Known | None, sites: Sites) -> Sites:
    """The sites, with those of Gaussian likelihoods in closed form."""
    return sites if known is None else choose(known.rows, known.sites, sites)


def by_rows(problem: Problem, sites: Sites) -> tuple[Problem, Sites]:
    """The problem whose rows are p^n, with its sites from those of single answers."""
    for power in problem.power:
        moments = partial(_powered, problem.tilted, power)
        problem = problem._replace(counts=problem.counts / power, tilted=moments, power=())
        sites = Sites(*(part * power for part in sites))
    return problem, sites


def _powered(moments: Any, power: Array, mean: Array, variance: Array) -> TiltedMoments:
    result: TiltedMoments = moments(mean, variance, power)
    return result


def cavities(counts: Array, sites: Sites, marginals: Marginals) -> Cavity:
    """Remove one site from each row's marginal: 1/t = v/(1 − vτ), c/t = (m − vν)/(1 − vτ).

    This form holds for v = 0, too: two items with the same utility under the prior.
    """
    removed = marginals.variance * namespace(marginals.variance).minimum(counts, 1.0)
    left = 1 - removed * sites.precision
    mean = (marginals.mean - removed * sites.shift) / left
    return Cavity(mean, marginals.variance / left)


def cavities_of_answers(
    counts: Array, power: Array, sites: Sites, marginals: Marginals
) -> tuple[Cavity, Array]:
    """Cavities of rows p^n, from n = ``power`` and sites of single answers, and n.

    It is 1 where there is no proper cavity: then each answer has a site.
    """
    xp = namespace(counts, marginals.variance)
    proper = marginals.variance * power * sites.precision < 1
    power = xp.where(proper, power, 1.0)
    of_rows = Sites(*(power * part for part in sites))
    return cavities(counts / power, of_rows, marginals), power


def matched(cavity: Cavity, moments: TiltedMoments) -> Sites:
    """The sites that take the cavities to the tilted moments."""
    shrink = 1 - cavity.variance * moments.curvature
    return Sites(
        moments.curvature / shrink, (moments.gradient + cavity.mean * moments.curvature) / shrink
    )


def advance(
    problem: Problem,
    state: State,
    fit: Fit,
    marginals: Marginals,
    cavity: Cavity,
    moments: TiltedMoments,
) -> tuple[State, Array]:
    """Update the sites from the tilted moments, the part of a sweep after the algebra.

    ``fit`` is that of the sweep, if it is a fresh one, else of the last fresh one; ``marginals``
    are those under the state's sites, ``cavity`` follows from them, and ``moments`` from that.

    Returns
    -------
    state : State
    usable : Array
        Bit field of a fresh sweep, 7 of a held one: 1 = finite, 2 = no negative precision, 4 = the
        marginals were finite.
    """
    counts, log_concave, gaussian = problem.counts, problem.log_concave, problem.gaussian
    sites, xp = state.sites, namespace(counts, marginals.mean)
    fresh = state.held < 0
    shrink = 1 - cavity.variance * moments.curvature  # tilted variance over cavity variance
    target = with_known(gaussian, matched(cavity, moments))
    sought = counts > 0 if gaussian is None else (counts > 0) & ~gaussian.rows
    tilted_mean = cavity.mean + cavity.variance * moments.gradient
    spread = xp.where(marginals.variance == 0, 1.0, xp.sqrt(marginals.variance))
    mean_error = abs(tilted_mean - marginals.mean) / spread
    variance_error = abs(shrink / (1 - marginals.variance * sites.precision) - 1)
    residual = xp.where(sought, xp.maximum(mean_error, variance_error), 0.0).max(initial=0.0)

    prior_ok = xp.isfinite(marginals.variance + marginals.mean).all()
    finite = prior_ok & xp.isfinite(residual) & xp.isfinite(target.shift + target.precision).all()
    # Without log-concavity a site may be negative, as long as cavities and posterior are proper;
    # else the step is taken again, shorter.
    improper = (cavity.variance < 0) & sought
    finite &= ~(improper & xp.logical_not(log_concave)).any()
    positive = ~(((target.precision < 0) & sought | improper) & log_concave).any() | ~finite
    usable = choose(fresh, finite + 2 * positive + 4 * prior_ok, 7)
    good = finite & positive
    accepted = fresh & good

    # The residual of the prior alone does not tell whether a step without damping is too long.
    shrinking = (residual < state.residual) | ~state.bases[0, : counts.size].any()
    growing = residual > _GROWN * state.residual
    adapted = choose(
        shrinking,
        xp.minimum(1.0, _RELAX * state.damping),
        choose(growing, xp.maximum(_BRAKE * state.damping, _SMALLEST), state.damping),
    )
    damping = choose(fresh, choose(good, adapted, 0.5 * state.damping), state.damping)
    latest = xp.concatenate(sites), xp.concatenate(target)
    bases, aims = (
        choose(accepted, xp.concatenate([new[None], old[:-1]]), old)
        for new, old in zip(latest, (state.bases, state.aims), strict=True)
    )
    usable_sweeps = state.usable_sweeps + accepted
    # A held sweep that failed moves nothing; a fresh one follows.
    going = choose(good, latest, (latest[0], latest[0]))
    start, end = choose(fresh, (bases[0], aims[0]), going)
    moved = start + damping * (end - start)

    def extrapolated() -> Array:
        scale = xp.tile(counts, 2) * xp.concatenate([marginals.variance, spread])
        further = _extrapolated(bases, aims, usable_sweeps, scale, damping)
        allowed = (further[: counts.size] >= 0) | ~sought | xp.logical_not(log_concave)
        return choose(allowed.all() & xp.isfinite(further).all(), further, moved)

    near = accepted & (residual < _NEAR) & (usable_sweeps > 1)
    moved = cond(near, extrapolated, lambda: moved)

    close = residual < _SETTLED * state.residual
    hold_on = good & (residual < state.held_residual) & ~close & (state.held < _MOST_HELD)
    hold = choose(fresh, problem.holding & good & (residual < _HOLD_BELOW), hold_on)
    return State(
        sites=Sites(moved[: counts.size], moved[counts.size :]),
        fit=fit,
        mean=marginals.mean,
        bases=bases,
        aims=aims,
        usable_sweeps=usable_sweeps,
        damping=damping,
        log_normalizer=choose(fresh, moments.log_normalizer, state.log_normalizer),
        residual=choose(accepted, residual, state.residual),
        held_residual=residual,
        held=choose(hold, xp.maximum(state.held, 0) + 1, -1),
    ), usable


def _extrapolated(bases: Array, aims: Array, number: Array, scale: Array, damping: Array) -> Array:
    """Sites where the updates of the last sweeps would vanish, were they linear; shape (2m,).

    NaN where they do not tell. Updates are compared in the units of ``scale``.
    """
    xp = namespace(bases)
    earlier = (np.arange(_EARLIER) < number - 1)[:, None]
    updates = aims - bases
    changes = earlier * scale * (updates[0] - updates[1:])
    sizes = xp.maximum(xp.sqrt((changes**2).sum(axis=1)), 1e-300)
    changes = changes / sizes[:, None]
    gram = changes @ changes.T + _RIDGE * np.eye(_EARLIER)
    weights = xp.linalg.solve(gram, changes @ (scale * updates[0])) / sizes
    weights = xp.where(abs(weights).sum() < _MOST_WEIGHT, weights, xp.nan)
    moved = bases + damping * updates
    return moved[0] - (earlier[:, 0] * weights) @ (moved[0] - moved[1:])


def held(
    response: Callable[[Array], Array], counts: Array, fit: Fit, sites: Sites, mean: Array
) -> Marginals:
    """Marginals under new sites, with covariance and cavity precisions of the last fresh sweep.

    The mean solves m = m₀ + Γ(ν − ν₀ − (τ − τ₀) m), with Γ and m₀ of the sites τ₀ and ν₀; one
    step of that iteration is taken. ``response`` multiplies a vector by the covariance Γ.
    """
    change, variance = sites.precision - fit.sites.precision, fit.marginals.variance
    pull = counts * (sites.shift - fit.sites.shift) - counts * change * mean
    moved = fit.marginals.mean + response(pull)
    return Marginals(moved, variance / (1 + variance * change), fit.marginals.log_determinant)


def posterior(problem: Problem, sites: Sites) -> Fit:
    """The posterior under the sites, each counted as often as its row."""
    precision, shift = problem.counts * sites.precision, problem.counts * sites.shift
    factor = problem.space.factorise(precision)
    return Fit(sites, factor, problem.space.marginals(factor, shift))


def run(
    problem: Problem,
    sites: Sites,
    tolerance: float | Array,
    max_sweeps: int | Array,
    progress: Callable[[int, float], object] | None = None,
) -> tuple[Fit, Array, Info]:
    """Sweep from given sites until the residual is within the tolerance.

    It also ends after ``max_sweeps`` or where no damping helps. Returns the fit of the last fresh
    sweep, log Ẑ of every row there, and the diagnostics. ``progress``, with NumPy only, is called
    with the number of each fresh sweep and its residual.
    """
    space, counts = problem.space, problem.counts

    def more(carry: tuple[State, Array, Array]) -> Array:
        state, sweeps, usable = carry
        hopeless = (usable != 7) & ~namespace(state.residual).isfinite(state.residual)
        arrived = (state.residual <= tolerance) & (usable == 7)
        stuck = state.damping < _HOPELESS
        return ~arrived & ~stuck & ~hopeless & (sweeps < max_sweeps)

    def fresh(state: State) -> tuple[Fit, Marginals]:
        fit = posterior(problem, state.sites)
        return fit, fit.marginals

    def hold(state: State) -> tuple[Fit, Marginals]:
        response = partial(space.response, state.fit.factor)
        return state.fit, held(response, counts, state.fit, state.sites, state.mean)

    def sweep(carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
        state, sweeps, _ = carry
        fit, marginals = cond(state.held < 0, fresh, hold, state)
        cavity = cavities(counts, state.sites, marginals)
        moments = problem.tilted(*cavity)
        after, usable = advance(problem, state, fit, marginals, cavity, moments)
        sweeps = sweeps + (state.held < 0)
        if progress is not None and state.held < 0:
            progress(int(sweeps), float(after.held_residual))
        return after, sweeps, usable

    sites = with_known(problem.gaussian, sites)
    if on_host(sites):
        number: Array = np.asarray(0)
        marginals = Marginals(sites.shift, sites.shift, None)
        nothing: Any = Fit(sites, None, marginals)  # type: ignore[arg-type]
    else:
        number = jnp.asarray(0)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(partial(posterior, problem), sites))
    state, sweeps, usable = while_loop(more, sweep, (begin(sites, nothing), number, number + 7))
    stuck = state.damping < _HOPELESS
    finite = namespace(state.residual).isfinite(state.residual)
    code = ending(
        [
            (state.residual <= tolerance, Result.converged),
            (stuck & finite & (usable & 2 != 0), Result.diverged),
            (usable & 4 == 0, Result.prior_not_positive_definite),
            (usable & 1 == 0, Result.nonfinite),
            (usable & 2 == 0, Result.negative_precision),
            (stuck, Result.diverged),
        ]
    )
    info = Info(sweeps, state.residual, state.damping, code, space.jitter)
    return state.fit, state.log_normalizer, info


def ending(reasons: list[tuple[Array, Result]]) -> Array:
    """Code of the first result whose reason holds; ``max_iterations`` where none does."""
    code: Array = CODES.index(Result.max_iterations)
    for reason, result in reversed(reasons):
        code = choose(reason, CODES.index(result), code)
    return code
