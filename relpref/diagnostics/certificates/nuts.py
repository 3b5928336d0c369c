"""NUTS on the exact posterior of a program, whitened by a Gaussian that is near it.

The latent vector is written as u = location + L (c + R z) with K = L Lᵀ, and z has about the posterior N(0, I) if the Gaussian is right. What is sampled
is the program's own density whatever the Gaussian is: a wrong one costs time, not truth.
"""

import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from relpref.diagnostics.certificates.target import Target, directions, log_likelihood, whitened
from relpref.infer.belief import Floats, GaussianBelief
from relpref.infer.layout import unconstrained_values
from relpref.infer.posterior import Posterior
from relpref.infer.prepare import constrained, prepare
from relpref.infer.program import Values, read
from relpref.linalg import cholesky

_LATENT = "latent vector, whitened"  # no site of a program is called that


@dataclass(frozen=True)
class Settings:
    """How long to sample: draws of all chains together, and steps to tune each chain by."""

    draws: int
    chains: int
    warmup: int
    progress_bar: bool


@dataclass(frozen=True, eq=False)
class Chains:
    """What NUTS found.

    Attributes
    ----------
    latent : array, shape (chains, s, k)
        Draws of the chosen entries of the latent vector.
    hyperparameters : dict from site to array, shape (chains * s, ...)
        On their supports; empty where all were fixed.
    divergences : int
    """

    latent: Floats
    hyperparameters: dict[str, Floats]
    divergences: int


def sample(
    posterior: Posterior,
    chosen: NDArray[np.intp],
    belief: GaussianBelief,
    free: bool,
    key: Any,
    settings: Settings,
) -> Chains:
    """Sample the exact posterior; inside ``enable_x64``.

    Parameters
    ----------
    posterior : Posterior
        Whose program, answers and hyperparameters are meant.
    chosen : array of int, shape (k,)
        Entries of the latent vector that the answers look at; the others follow from the prior and are left out.
    belief : GaussianBelief
        About the chosen entries, to whiten by.
    free : bool
        Whether to sample the hyperparameters that the fit did not fix, too.
    key : JAX key
    settings : Settings
    """
    from numpyro.infer import MCMC, NUTS

    target = Target.of(posterior, dict(posterior.hyperparameters))
    call, layout, arrays, fixed = target.call, target.layout, target.arrays, target.fixed
    theta: Values = {}
    if free:
        assert posterior.origin is not None  # or there were no target
        origin = posterior.origin
        known = dict(origin.engine.get("fixed", {}))
        prepared = prepare(origin.program, origin.args, origin.kwargs, known, padding=False)
        fixed, layout = prepared.fixed, prepared.discovery.layout
        theta = unconstrained_values(call, arrays, posterior.hyperparameters, prepared.discovery.medians)
    prior = target.covariance[np.ix_(chosen, chosen)]
    location, lower = jnp.asarray(target.location[chosen]), cholesky(jnp.asarray(prior)).lower
    centre, spread = (
        jnp.asarray(part) for part in _whitening(target.location[chosen], prior, np.asarray(lower), belief)
    )

    def factor(reading: Any) -> tuple[Array, Array]:
        return reading.location[chosen], cholesky(reading.covariance.congruence(lambda u: u[chosen])).lower

    def latent(state: Values) -> tuple[Array, Array, Values, Array]:
        """u, its whitened form w = c + R z, all hyperparameters, and the log prior of those that are free."""
        white = centre + spread @ state[_LATENT]
        if not theta:
            return location + lower @ white, white, fixed, jnp.zeros(())
        reading = read(call, arrays, layout, {name: state[name] for name in theta}, fixed)
        moved, root = factor(reading)
        return moved + root @ white, white, {**fixed, **reading.hyperparameters}, reading.log_prior

    def potential(state: Values) -> Array:
        vector, white, values, log_prior = latent(state)
        whole = jnp.zeros(layout.num_latents).at[chosen].set(vector)
        log_density = log_likelihood(call, layout, arrays, values, whole) - 0.5 * jnp.vdot(white, white)
        return -log_density - log_prior

    starts = {
        name: jnp.broadcast_to(value, (settings.chains, *jnp.shape(value)))
        + 0.1 * jax.random.normal(jax.random.fold_in(key, at), (settings.chains, *jnp.shape(value)))
        for at, (name, value) in enumerate({_LATENT: jnp.zeros(len(centre)), **theta}.items(), start=1)
    }
    sampler: Any = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=settings.warmup,
        num_samples=-(-settings.draws // settings.chains),
        num_chains=settings.chains,
        chain_method="vectorized",
        progress_bar=settings.progress_bar and sys.stderr.isatty(),
    )
    if settings.chains == 1:
        starts = {name: value[0] for name, value in starts.items()}
    sampler.run(jax.random.fold_in(key, 0), init_params=starts, extra_fields=("diverging",))
    states = sampler.get_samples()
    vectors = np.asarray(jax.jit(lambda s: jax.lax.map(lambda one: latent(one)[0], s))(states))
    free_draws = {name: states[name] for name in theta}
    values = constrained(call, layout, arrays, fixed, free_draws) if theta else {}
    return Chains(
        vectors.reshape(settings.chains, -1, len(chosen)),
        {name: np.asarray(value) for name, value in values.items()},
        int(np.sum(np.asarray(sampler.get_extra_fields()["diverging"]))),
    )


def _whitening(
    location: Floats, prior: Floats, lower: Floats, belief: GaussianBelief
) -> tuple[Floats, Floats]:
    """C and R, so that L (c + R z) has the belief's moments about the prior mean where z is N(0, I).

    In the directions D of the prior, then turned to those of L by the orthogonal Q = L⁻¹D; where the prior has no variance, z is as
    the prior has it.
    """
    root = directions(prior)
    mean, covariance = whitened(root, belief.location - location, belief.scale)
    turn = solve_triangular(lower, root, lower=True)
    size = len(prior)
    spread = np.eye(size) + turn @ (covariance - np.eye(len(mean))) @ turn.T
    return turn @ mean, np.asarray(cholesky(jnp.asarray(0.5 * (spread + spread.T))).lower)
