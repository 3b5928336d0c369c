"""NUTS on the hyperparameters, with an engine's evidence times prior as their density."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from relpref.infer.call import Values
from relpref.infer.evidence import Evidence
from relpref.infer.importance import inverse_root
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.linalg.arrays import on_host, ravel
from relpref.result import progress_line

CHAINS = 2  # of draws of the hyperparameters
_STEP = 1e-3  # of the differences that give the curvature at the maximum
_FLATTEST = 0.1  # smallest curvature believed in, where priors have about 1
DRAWS_INFO = ("r_hat", "ess", "divergences", "draws", "chains")
UNMIXED = 1.2  # R-hat above which the chains disagree
_ROUND = 25  # steps between two looks at the progress


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Density:
    """Evidence times prior as a density of z.

    The unconstrained hyperparameters are ``center`` + ``root`` z.
    """

    evaluate: Callable[..., Evidence] = field(metadata={"static": True})  # of an engine
    dual: bool = field(metadata={"static": True})  # whether it works in observation space
    warmup: int = field(metadata={"static": True})  # steps by which NUTS is tuned
    program: Program
    center: Values
    root: Any
    # Start of the engine and its limits.
    sites: Sites
    tolerance: float
    max_sweeps: int

    def at(self, z: Array) -> tuple[Evidence, Array]:
        """The evidence, and the gradient of its logarithm plus that of the prior."""
        flatten: Any = ravel if on_host(self.center, z) else ravel_pytree
        center, unravel = flatten(self.center)
        evidence = self.evaluate(
            self.program,
            self.dual,
            True,
            unravel(center + self.root @ z),
            self.sites,
            self.tolerance,
            self.max_sweeps,
            False,
        )
        return evidence, self.root.T @ flatten(evidence.gradient)[0]

    def potential(self, z: Array) -> Array:
        """Minus the log density, with the engine's exact gradient; infinite where it fails."""
        here = jax.lax.stop_gradient(z)
        evidence, gradient = self.at(here)
        height = evidence.log_evidence + evidence.log_prior
        fine = evidence.info.converged & jnp.all(jnp.isfinite(gradient))
        # The engine's gradient in place of one through its iterations.
        slope = jax.lax.stop_gradient(jnp.where(fine, -gradient, 0.0))
        return jax.lax.stop_gradient(jnp.where(fine, -height, jnp.inf)) + slope @ (z - here)

    def kernel(self, z: Array, key: Any) -> tuple[Any, Callable[[Any], Any]]:
        """NUTS: the state at z, and a step."""
        from numpyro.infer.hmc import hmc

        begin, step = hmc(potential_fn=self.potential, algo="NUTS")
        return begin(z, self.warmup, step_size=0.5, dense_mass=True, rng_key=key), step

    def spread(self) -> "Density":
        """A density with a root of the inverse curvature at the center.

        The curvature comes from central differences of the gradient.
        """
        steps = _STEP * np.eye(self.root.shape[0])
        gradients = [[np.asarray(self.at(sign * step)[1]) for sign in (-1, 1)] for step in steps]
        hessian = np.stack([(before - after) / (2 * _STEP) for before, after in gradients])
        return replace(self, root=inverse_root(hessian, _FLATTEST))


def sample(
    density: Density, key: Any, draws: int, progress_bar: bool
) -> tuple[Values, dict[str, Any]]:
    """Draws of unconstrained hyperparameters by NUTS, chain after chain, and `DRAWS_INFO`.

    Their density is evidence times prior.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    center, unravel = ravel_pytree(density.center)
    length = -(-draws // CHAINS)
    moved, diverging = [], []
    with progress_line("Sampling models that fit", progress_bar) as report:
        for chain in range(CHAINS):
            first, second = jax.random.split(jax.random.fold_in(key, chain))
            state = _begin(density, jax.random.normal(first, center.shape, center.dtype), second)
            for steps, kept in ((density.warmup, False), (length, True)):
                for done in range(0, steps, _ROUND):
                    number = min(_ROUND, steps - done)
                    state, z, diverged = _advance(density, state, number)
                    for _ in range(number):
                        report(0, float(state.adapt_state.step_size))
                    if kept:
                        moved.append(np.asarray(z)[:number])
                        diverging.append(np.asarray(diverged)[:number])
    values = np.asarray(center) + np.concatenate(moved) @ np.asarray(density.root).T
    by_chain = values.reshape(CHAINS, length, -1)
    info = {
        "r_hat": float(np.max(split_gelman_rubin(by_chain))),
        "ess": float(np.min(effective_sample_size(by_chain))),
        "divergences": int(np.sum(np.concatenate(diverging))),
        "draws": len(values),
        "chains": CHAINS,
    }
    return jax.vmap(unravel)(jnp.asarray(values)), info


@jax.jit
def _begin(density: Density, z: Array, key: Any) -> Any:
    """A chain before its first step."""
    return density.kernel(z, key)[0]


@jax.jit
def _advance(density: Density, state: Any, number: int) -> tuple[Any, Array, Array]:
    """Up to `_ROUND` steps of a chain: its state, the points reached, and which steps diverged."""
    _, step = density.kernel(state.z, state.rng_key)

    def advance(row: Any, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, z, diverging = carried
        state = step(state)
        return state, z.at[row].set(state.z), diverging.at[row].set(state.diverging)

    empty = (jnp.zeros((_ROUND, len(state.z)), state.z.dtype), jnp.zeros(_ROUND, bool))
    return jax.lax.fori_loop(0, number, advance, (state, *empty))
