"""Laplace's approximation as an engine: the Gaussian that touches the posterior at its mode."""

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import (
    Evaluation,
    Evidence,
    build,
    conclude,
    dual_vector,
    gradient_of_search,
    prior_surrogate,
    tilted,
)
from relpref.infer.mode import log_likelihood, run
from relpref.infer.program import Call, Layout, Values, read
from relpref.infer.rows import SparseRows
from relpref.infer.sites import Sites
from relpref.likelihoods import TiltedMoments


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def evaluate(
    call: Call,
    layout: Layout,
    gap_space: bool,
    with_gradient: bool,
    arrays: tuple[Any, ...],
    rows: SparseRows | None,
    unconstrained: Values,
    fixed: Values,
    sites: Sites,
    tolerance: Array,
    max_sweeps: Array,
    whole: Array | None,
) -> Evidence:
    """Find the mode and return Laplace's evidence with its gradient (Rasmussen & Williams 2006, eq. 3.32 and 5.21-5.24)."""
    reading = read(call, arrays, layout, unconstrained, fixed)
    problem = build(layout, reading, gap_space, rows)
    fit, info = run(problem, sites, tolerance, max_sweeps)
    counts, value, dual = problem.counts, fit.marginals.mean, dual_vector(problem, fit)
    height = log_likelihood(problem, value) - 0.5 * jnp.vdot(dual, value)
    found = conclude(layout, reading, problem, fit, height - fit.marginals.log_determinant, info, whole)
    if not with_gradient:
        return found

    # The log determinant depends on the mode through the curvatures there. slope = its derivative in x, pulled back through
    # dx = (I + GT)⁻¹ (dG β + G dg), with G the prior covariance of the projections and g the slopes of the log likelihoods.
    def curvature(at: Array) -> Array:
        return problem.tilted(at, jnp.zeros_like(at)).curvature

    _, steeper = jax.jvp(curvature, (value,), (jnp.ones_like(value),))
    spread = counts * fit.marginals.variance
    slope = -0.5 * spread * steeper
    pulled = slope - counts * fit.sites.precision * problem.space.response(
        fit.factor, slope, problem.projection
    )

    prior = prior_surrogate(layout, problem, fit, found)

    def surrogate(unconstrained: Values) -> Array:
        moving = read(call, arrays, layout, unconstrained, fixed)
        answers: TiltedMoments = tilted(moving.observations, moving.offset, value, jnp.zeros_like(value))
        # G dg: what the moving slopes do to x, the prior held still.
        drift = reading.projection.apply(
            reading.covariance.matmul(reading.projection.adjoint(counts * answers.gradient))
        )
        moved = moving.projection.apply(moving.covariance.matmul(moving.projection.adjoint(dual)))
        return (
            prior(moving)
            + jnp.vdot(counts, answers.log_normalizer)
            - 0.5 * jnp.vdot(spread, answers.curvature)
            + jnp.vdot(pulled, moved + drift)
            + moving.log_prior
        )

    return found._replace(gradient=gradient_of_search(surrogate, unconstrained, whole))


class Laplace(GaussianEngine):
    """Laplace's approximation on a numpyro program: a Gaussian at the posterior's mode.

    The baseline that most packages use. It takes a handful of Newton steps, but the mode of a skewed posterior lies off its
    mean: expect means half a posterior standard deviation off, and an evidence off by nats where answers are few. Parameters as in
    `GaussianEngine`; ``tol`` bounds the last Newton step, in posterior standard deviations.
    """

    name: ClassVar[str] = "Laplace"
    evaluate: ClassVar[Evaluation] = staticmethod(evaluate)
