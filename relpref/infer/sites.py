"""Expectation propagation: parallel site updates with a damping that adapts.

Pure functions, `init` and `step`; `run` iterates them to a fixed point inside one compiled loop.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from relpref.infer.result import Result, code
from relpref.infer.spaces import Factorised, Map, Marginals, Space
from relpref.likelihoods import TiltedMoments

# The damping shrinks by _BRAKE when a sweep made the residual larger and recovers by _RELAX when it made it smaller.
_BRAKE, _RELAX, _SMALLEST = 0.6, 1.15, 0.05
_HOPELESS = 1e-3  # damping after many steps in a row that led to unusable sites


class Sites(NamedTuple):
    """Natural parameters of the Gaussian sites, one for each *row* (a row of count k holds k identical sites).

    Attributes
    ----------
    precision, shift : Array, shape (m,)
        τ and ν of exp(ν x − ½ τ x²), x = the projection less its prior mean.
    """

    precision: Array
    shift: Array


class Cavity(NamedTuple):
    """A row's posterior with one copy of its site removed."""

    mean: Array
    variance: Array


class Problem(NamedTuple):
    """What EP needs to know.

    Attributes
    ----------
    space : Space
    projection : Map
    counts : Array, shape (m,)
        How many identical answers each row stands for.
    tilted : callable
        From cavity mean and variance, shape (m,) each, to `TiltedMoments`.
    """

    space: Space
    projection: Map
    counts: Array
    tilted: Callable[[Array, Array], TiltedMoments]


class Fit(NamedTuple):
    """Sites, and the posterior they stand for.

    Attributes
    ----------
    sites : Sites
    factor : Factorised
    marginals : Marginals
    """

    sites: Sites
    factor: Factorised
    marginals: Marginals


class State(NamedTuple):
    """What the next step needs.

    Attributes
    ----------
    sites : Sites
        Where the next step evaluates.
    fit : Fit
        Of the last usable sites.
    aim : Sites
        Where their update points; a step that led to unusable sites is taken again, shorter.
    damping : Array
        Fraction of an update that is taken.
    residual : Array
        Of ``fit``.
    """

    sites: Sites
    fit: Fit
    aim: Sites
    damping: Array
    residual: Array


class Info(NamedTuple):
    """How the sweeps went.

    Attributes
    ----------
    sweeps : Array
    residual : Array
        Largest mismatch of tilted and posterior moments over the rows: of the mean in posterior sds, or of the variance
        relative to itself. 0 at a fixed point.
    damping : Array
    code : Array
        Index into `relpref.infer.result.CODES`.
    jitter : Array
        What was added to the prior's diagonal so that it could be factorised.
    """

    sweeps: Array
    residual: Array
    damping: Array
    code: Array
    jitter: Array


def init(problem: Problem, sites: Sites) -> State:
    """Start from given sites (zeros, or those of a similar problem)."""
    shapes = jax.eval_shape(lambda: posterior(problem, sites))
    fit = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    one = jnp.ones((), sites.precision.dtype)
    return State(sites, fit, sites, one, one * jnp.inf)


def cavities(sites: Sites, marginals: Marginals) -> Cavity:
    """Remove one site from each row's marginal: t = 1/v − τ, c = m/v − ν."""
    precision = 1 / marginals.variance - sites.precision
    return Cavity((marginals.mean / marginals.variance - sites.shift) / precision, 1 / precision)


def step(problem: Problem, state: State) -> tuple[State, Array, Array]:
    """One sweep: refresh every marginal, match every row's moments, move by the damping.

    Returns
    -------
    state : State
    residual : Array
        Of the sites the sweep started from.
    usable : Array
        Bit field: 1 = finite, 2 = no negative precision, 4 = the marginals were finite.
    """
    sites = state.sites
    fit = posterior(problem, sites)
    marginals = fit.marginals
    cavity = cavities(sites, marginals)
    moments = problem.tilted(cavity.mean, cavity.variance)
    shrink = 1 - cavity.variance * moments.curvature  # tilted variance over cavity variance
    target = Sites(moments.curvature / shrink, (moments.gradient + cavity.mean * moments.curvature) / shrink)
    tilted_mean = cavity.mean + cavity.variance * moments.gradient
    mean_error = jnp.abs(tilted_mean - marginals.mean) / jnp.sqrt(marginals.variance)
    variance_error = jnp.abs(cavity.variance * shrink / marginals.variance - 1)
    residual = jnp.max(jnp.maximum(mean_error, variance_error), initial=0.0)

    prior_ok = jnp.all(jnp.isfinite(marginals.variance)) & jnp.all(jnp.isfinite(marginals.mean))
    finite = (
        prior_ok
        & jnp.isfinite(residual)
        & jnp.all(jnp.isfinite(target.shift) & jnp.isfinite(target.precision))
    )
    positive = jnp.all((target.precision >= 0) & (cavity.variance > 0)) | ~finite
    usable = finite + 2 * positive + 4 * prior_ok

    good = finite & positive
    shrinking = residual < state.residual
    damping = jnp.where(
        shrinking, jnp.minimum(1.0, _RELAX * state.damping), jnp.maximum(_BRAKE * state.damping, _SMALLEST)
    )
    damping = jnp.where(good, damping, 0.5 * state.damping)
    fit = _choose(good, fit, state.fit)
    aim = _choose(good, target, state.aim)
    moved = Sites(*(old + damping * (new - old) for old, new in zip(fit.sites, aim, strict=True)))
    return State(moved, fit, aim, damping, jnp.where(good, residual, state.residual)), residual, usable


def posterior(problem: Problem, sites: Sites) -> Fit:
    """The posterior under the sites, each counted as often as its row."""
    space, projection = problem.space, problem.projection
    precision, shift = problem.counts * sites.precision, problem.counts * sites.shift
    factor = space.factorise(precision, projection)
    return Fit(sites, factor, space.marginals(factor, precision, shift, projection))


def run(
    problem: Problem, sites: Sites, tolerance: float | Array, max_sweeps: int | Array
) -> tuple[Fit, Info]:
    """Sweep until the residual is within the tolerance, the sweeps are used up, or no damping helps.

    Returns
    -------
    fit : Fit
        Of the last usable sites.
    info : Info
    """

    def unfinished(carry: tuple[State, Array, Array]) -> Array:
        state, sweeps, usable = carry
        stuck = state.damping < _HOPELESS
        hopeless = (usable != 7) & ~jnp.isfinite(state.residual)
        return (state.residual > tolerance) & (sweeps < max_sweeps) & ~stuck & ~hopeless

    def sweep(carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
        state, _, usable = step(problem, carry[0])
        return state, carry[1] + 1, usable

    state, sweeps, usable = jax.lax.while_loop(
        unfinished, sweep, (init(problem, sites), jnp.asarray(0), jnp.asarray(7))
    )
    outcome = jnp.select(
        [
            state.residual <= tolerance,
            usable & 4 == 0,
            usable & 1 == 0,
            usable & 2 == 0,
            state.damping < _HOPELESS,
        ],
        [
            code(Result.converged),
            code(Result.prior_not_positive_definite),
            code(Result.nonfinite),
            code(Result.negative_precision),
            code(Result.diverged),
        ],
        code(Result.max_iterations),
    )
    return state.fit, Info(sweeps, state.residual, state.damping, outcome, problem.space.jitter)


def _choose(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
