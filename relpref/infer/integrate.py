"""Hyperparameters integrated over: NUTS on evidence times prior.

The engine's evidence takes the latent vector out of the problem; what is left is a smooth density of a few hyperparameters, with
an exact gradient. NUTS explores it from the maximum, whitened by the curvature there.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from relpref.infer.evidence import Evidence
from relpref.infer.faces import CHAINS
from relpref.infer.program import Values
from relpref.infer.result import Result, code

_STEP = 1e-3  # of the differences that give the curvature at the maximum
_FLATTEST = 0.1  # smallest curvature believed in, where priors have about 1
DRAWS_INFO = ("r_hat", "ess", "divergences", "draws", "chains")
UNMIXED = 1.2  # R-hat above which the chains disagree


@dataclass(frozen=True)
class Draws:
    """Unconstrained hyperparameters drawn from evidence times prior.

    Attributes
    ----------
    values : dict from site to array, shape (k, ...)
        Chain after chain.
    info : dict
        By `DRAWS_INFO`: the largest R-hat, the smallest effective sample size, and numbers of draws and chains.
    """

    values: Values
    info: dict[str, Any]


def integrate(
    evaluate: Callable[[Values], Evidence],
    maximum: Values,
    key: Any,
    draws: int,
    warmup: int,
    progress_bar: bool,
) -> Draws:
    """Sample the hyperparameters.

    Parameters
    ----------
    evaluate : callable
        From unconstrained hyperparameters to `Evidence` with its gradient; can be traced by JAX.
    maximum : dict
        Where the chains start, spread by the curvature there.
    key : JAX key
    draws, warmup : int
        Of all chains together, and of each.
    progress_bar : bool

    Returns
    -------
    Draws
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    start, unravel = ravel_pytree(maximum)
    inverse_mass = _inverse_curvature(evaluate, start, unravel)
    chains = [jax.random.fold_in(key, chain) for chain in range(CHAINS)]
    spread = np.linalg.cholesky(inverse_mass)
    starts = jnp.stack([start + spread @ jax.random.normal(k, start.shape, start.dtype) for k in chains])
    kernel: Any = NUTS(
        potential_fn=_potential(evaluate, unravel),
        inverse_mass_matrix=jnp.asarray(inverse_mass),
        dense_mass=True,
        step_size=0.5,
    )
    sampler: Any = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=-(-draws // CHAINS),
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=progress_bar and sys.stderr.isatty(),
    )
    sampler.run(jax.random.fold_in(key, CHAINS), init_params=starts, extra_fields=("diverging",))
    by_chain = np.asarray(sampler.get_samples(group_by_chain=True))
    info = {
        "r_hat": float(np.max(split_gelman_rubin(by_chain))),
        "ess": float(np.min(effective_sample_size(by_chain))),
        "divergences": int(np.sum(np.asarray(sampler.get_extra_fields()["diverging"]))),
        "draws": by_chain.shape[0] * by_chain.shape[1],
        "chains": CHAINS,
    }
    flat = by_chain.reshape(-1, by_chain.shape[-1])
    return Draws(jax.vmap(unravel)(jnp.asarray(flat)), info)


def _potential(
    evaluate: Callable[[Values], Evidence], unravel: Callable[[Array], Values]
) -> Callable[[Array], Array]:
    """Minus log evidence minus log prior, with the engine's exact gradient; infinite where the engine fails."""

    def forward(vector: Array) -> tuple[Array, Array]:
        evidence = evaluate(unravel(vector))
        height = evidence.log_evidence + evidence.log_prior
        gradient = ravel_pytree(evidence.gradient)[0]
        fine = (evidence.info.code == code(Result.converged)) & jnp.all(jnp.isfinite(gradient))
        return jnp.where(fine, -height, jnp.inf), jnp.where(fine, -gradient, 0.0)

    @jax.custom_vjp
    def potential(vector: Array) -> Array:
        return forward(vector)[0]

    potential.defvjp(forward, lambda gradient, cotangent: (cotangent * gradient,))
    return potential


def _inverse_curvature(
    evaluate: Callable[[Values], Evidence], start: Array, unravel: Callable[[Array], Values]
) -> NDArray[np.float64]:
    """The inverse of minus the Hessian, by central differences of the gradient."""
    gradient = jax.jit(lambda vector: ravel_pytree(evaluate(unravel(vector)).gradient)[0])
    steps = _STEP * np.eye(start.size)
    rows = [np.asarray(gradient(start - step) - gradient(start + step)) / (2 * _STEP) for step in steps]
    hessian = np.stack(rows)
    if not np.all(np.isfinite(hessian)):
        return np.eye(start.size)
    curvatures, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return np.asarray((axes / np.maximum(curvatures, _FLATTEST)) @ axes.T)
