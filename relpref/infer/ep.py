"""Expectation propagation as an engine."""

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
    log_evidence_of_sites,
    prior_surrogate,
    tilted,
)
from relpref.infer.program import Call, Layout, Values, read
from relpref.infer.rows import SparseRows
from relpref.infer.sites import Sites, cavities, run


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
    """Run EP from the given sites and return the evidence with its gradient."""
    reading = read(call, arrays, layout, unconstrained, fixed)
    problem = build(reading, gap_space, rows)
    fit, log_normalizer, info = run(problem, sites, tolerance, max_sweeps)
    cavity = cavities(problem.counts, fit.sites, fit.marginals)
    log_evidence = (
        log_evidence_of_sites(problem.counts, log_normalizer, fit.sites, cavity)
        - fit.marginals.log_determinant
        + 0.5 * jnp.vdot(problem.counts * fit.sites.shift, fit.marginals.mean)
    )
    found = conclude(layout, reading, problem, fit, log_evidence, info, whole)
    if not with_gradient:
        return found

    prior = prior_surrogate(layout, problem, fit, found)

    def surrogate(unconstrained: Values) -> Array:
        # ∂log Z = ½ tr((ααᵀ − R) ∂K) + Σ ∂log Ẑ at a fixed point of EP, sites and cavities held constant.
        moving = read(call, arrays, layout, unconstrained, fixed)
        answers = tilted(moving.observations, moving.offset, cavity.mean, cavity.variance)
        return prior(moving) + jnp.sum(problem.counts * answers.log_normalizer) + moving.log_prior

    return found._replace(gradient=jax.grad(surrogate)(unconstrained))


class EP(GaussianEngine):
    """Expectation propagation on a numpyro program (XPGP section 4.1, on one-dimensional projections).

    The most accurate of the engines that do not sample: means within a few hundredths of a posterior standard deviation, the
    evidence within a few tenths of a nat. Parameters as in `GaussianEngine`; ``tol`` bounds the largest mismatch of tilted and
    posterior moments.
    """

    name: ClassVar[str] = "EP"
    evaluate: ClassVar[Evaluation] = staticmethod(evaluate)
