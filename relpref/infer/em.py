"""Hyperparameters by expectation maximisation, the method of the paper (XPGP section 4.3)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from relpref.infer.evidence import Evidence, tilted
from relpref.infer.faces import latent_moments
from relpref.infer.maximise import Search, gradient_norm, usable
from relpref.infer.program import Call, Layout, Values, read
from relpref.infer.result import CODES
from relpref.infer.sites import Sites

# EM creeps: each step closes a fixed fraction of what is left. It ends when a step gains less than this in log evidence plus prior.
_GAIN = 1e-5
_NODES = 24  # of the quadrature under each predictor's marginal, for likelihoods with parameters of their own


def expectation_maximisation(
    context: tuple[Call, Layout, tuple[Any, ...], Values],
    evaluate: Callable[[Values, Sites], Evidence],
    with_gradient: Callable[[Values, Sites], Evidence],
    start: Values,
    sites: Sites,
    max_steps: int,
    report: Callable[[int, float], None],
) -> Search:
    """Alternate the engine at fixed hyperparameters (E) with hyperparameters for a fixed posterior (M).

    Parameters
    ----------
    context : tuple of Call, Layout, arrays and fixed hyperparameters
        The program, as `relpref.infer.program.read` takes it.
    evaluate : callable
        From unconstrained hyperparameters and starting sites to `Evidence`: the E-step.
    with_gradient : callable
        Likewise, with the gradient of the evidence.
    start : dict
        Unconstrained hyperparameters.
    sites : Sites
        Where the engine starts at first.
    max_steps : int
        Pairs of an E-step and an M-step.
    report : callable
        Called with the number of steps and the objective after each.
    """
    evidence = evaluate(start, sites)
    best = Search(start, evidence, 1, np.inf, False)
    while best.evaluations < max_steps and usable(evidence):
        current = _maximise_bound(context, best.unconstrained, evidence)
        before, evidence = best.objective, evaluate(current, evidence.sites)
        best.evaluations += 1
        if not usable(evidence):
            best.failures.append(CODES[int(evidence.info.code)])
            break
        best.unconstrained, best.evidence = current, evidence
        report(best.evaluations, best.objective)
        if abs(best.objective - before) < _GAIN:
            best.converged = True
            break
    best.gradient_norm = gradient_norm(with_gradient(best.unconstrained, best.evidence.sites))
    return best


def _maximise_bound(
    context: tuple[Call, Layout, tuple[Any, ...], Values], start: Values, evidence: Evidence
) -> Values:
    """The M-step."""
    from scipy.optimize import minimize

    call, layout, arrays, fixed = context
    mean, covariance = (jnp.asarray(array) for array in latent_moments(layout, evidence))
    vector, unravel = ravel_pytree(start)

    def objective(x: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        at = unravel(jnp.asarray(x))
        value, slope = _lower_bound(call, layout, arrays, fixed, at, mean, covariance, evidence.marginals)
        return -float(value), -np.asarray(ravel_pytree(slope)[0])

    found = minimize(objective, np.asarray(vector), jac=True, method="L-BFGS-B", options={"maxiter": 50})
    return unravel(jnp.asarray(found.x))


@partial(jax.jit, static_argnums=(0, 1))
def _lower_bound(
    call: Call,
    layout: Layout,
    arrays: tuple[Any, ...],
    fixed: Values,
    unconstrained: Values,
    mean: Array,
    covariance: Array,
    marginals: Any,
) -> tuple[Array, Values]:
    """E_q[log N(u; 0, K)] + E_q[log p(answers | u)] + log prior and its gradient; q is held fixed (XPGP eq. 15-16).

    The paper leaves the second term out, because its likelihood has no parameters; where it has some, they move by it.
    """

    def bound(unconstrained: Values) -> Array:
        reading = read(call, arrays, layout, unconstrained, fixed)
        lower = reading.covariance.root().lower
        white_mean = solve_triangular(lower, mean - reading.location, lower=True)
        half = solve_triangular(lower, covariance, lower=True)
        white = jnp.trace(solve_triangular(lower, half.T, lower=True))
        prior = -0.5 * (white_mean @ white_mean + white) - jnp.sum(jnp.log(jnp.diagonal(lower)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)

        def at_node(node: Array) -> Array:
            value = marginals.mean + jnp.sqrt(marginals.variance) * node
            answers = tilted(reading.observations, reading.offset, value, jnp.zeros_like(value))
            counts = jnp.concatenate([observation.counts for observation in reading.observations])
            return jnp.vdot(counts, answers.log_normalizer)

        answers = jax.vmap(at_node)(jnp.asarray(nodes)) @ jnp.asarray(weights / weights.sum())
        return prior + answers + reading.log_prior

    value, slope = jax.value_and_grad(bound)(unconstrained)
    return value, slope
