"""Hyperparameters integrated over: NUTS on evidence times prior.

The engine's evidence takes the latent vector out of the problem; what is left is a smooth density of a few hyperparameters, with
an exact gradient. NUTS explores it from the maximum, whitened by the curvature there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from relpref.infer.evidence import Evaluation, Evidence
from relpref.infer.faces import CHAINS
from relpref.infer.program import Call, Layout, Values
from relpref.infer.progress import Progress
from relpref.infer.result import Result, code
from relpref.infer.rows import SparseRows
from relpref.infer.sites import Sites

_STEP = 1e-3  # of the differences that give the curvature at the maximum
_FLATTEST = 0.1  # smallest curvature believed in, where priors have about 1
DRAWS_INFO = ("r_hat", "ess", "divergences", "draws", "chains")
UNMIXED = 1.2  # R-hat above which the chains disagree
_ROUND = 25  # steps between two looks at the progress


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


@dataclass(frozen=True)
class Target:
    """The evidence as a function of hyperparameters: what JAX compiles for.

    Attributes
    ----------
    evaluate : callable
        Of an engine.
    call : Call
    layout : Layout
    gap_space : bool
    """

    evaluate: Evaluation
    call: Call
    layout: Layout
    gap_space: bool

    def __call__(self, given: "Given", unconstrained: Values) -> Evidence:
        """With its gradient."""
        static = (self.call, self.layout, self.gap_space, True)
        arrays, entries, fixed, sites, tolerance, max_sweeps = given
        return self.evaluate(
            *static, arrays, entries, unconstrained, fixed, sites, tolerance, max_sweeps, False
        )


class Given(NamedTuple):
    """What else the evidence depends on, as `Evaluation` takes it; problems of equal shapes share one compilation."""

    arrays: tuple[Any, ...]
    entries: SparseRows | None
    fixed: Values
    sites: Sites
    tolerance: float
    max_sweeps: int


def integrate(
    target: Target,
    given: Given,
    maximum: Values,
    key: Any,
    draws: int,
    warmup: int,
    progress_bar: bool,
) -> Draws:
    """Sample the hyperparameters.

    Parameters
    ----------
    target : Target
    given : Given
    maximum : dict
        Unconstrained hyperparameters where the chains start, spread by the curvature there.
    key : JAX key
    draws, warmup : int
        Of all chains together, and of each.
    progress_bar : bool

    Returns
    -------
    Draws
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    start, unravel = ravel_pytree(maximum)
    root = _inverse_root(target, given, start, unravel)
    # Chains move in z, hyperparameters are start + root z.
    place = (given, maximum, jnp.asarray(root))
    length = -(-draws // CHAINS)
    moved, diverging = [], []
    with Progress("sampling the hyperparameters", progress_bar, "steps", "step size {:.2g}") as progress:
        for chain in range(CHAINS):
            first, second = jax.random.split(jax.random.fold_in(key, chain))
            state = _begin(target, warmup, place, jax.random.normal(first, start.shape, start.dtype), second)
            for wanted, kept in ((warmup, False), (length, True)):
                for done in range(0, wanted, _ROUND):
                    number = min(_ROUND, wanted - done)
                    state, z, diverged = _advance(target, warmup, place, state, number)
                    for _ in range(number):
                        progress.step(0, float(state.adapt_state.step_size))
                    if kept:
                        moved.append(np.asarray(z)[:number])
                        diverging.append(np.asarray(diverged)[:number])
    values = np.asarray(start) + np.concatenate(moved) @ root.T
    by_chain = values.reshape(CHAINS, length, -1)
    info = {
        "r_hat": float(np.max(split_gelman_rubin(by_chain))),
        "ess": float(np.min(effective_sample_size(by_chain))),
        "divergences": int(np.sum(np.concatenate(diverging))),
        "draws": len(values),
        "chains": CHAINS,
    }
    return Draws(jax.vmap(unravel)(jnp.asarray(values)), info)


Place = tuple[Given, Values, Array]


@partial(jax.jit, static_argnums=(0, 1))
def _begin(target: Target, warmup: int, place: Place, z: Array, key: Any) -> Any:
    """A chain before its first step."""
    return _kernel(target, warmup, place, z, key)[0]


@partial(jax.jit, static_argnums=(0, 1))
def _advance(target: Target, warmup: int, place: Place, state: Any, number: int) -> tuple[Any, Array, Array]:
    """Up to `_ROUND` steps of a chain: its state, and where each of them led, whether it diverged."""
    _, step = _kernel(target, warmup, place, state.z, state.rng_key)

    def one(row: Any, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, z, diverging = carried
        state = step(state)
        return state, z.at[row].set(state.z), diverging.at[row].set(state.diverging)

    room = (jnp.zeros((_ROUND, len(state.z)), state.z.dtype), jnp.zeros(_ROUND, bool))
    return jax.lax.fori_loop(0, number, one, (state, *room))


def _kernel(
    target: Target, warmup: int, place: Place, z: Array, key: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """NUTS: the state at z, and a step."""
    from numpyro.infer.hmc import hmc

    begin, step = hmc(potential_fn=_potential(target, place), algo="NUTS")
    return begin(z, warmup, step_size=0.5, dense_mass=True, rng_key=key), step


def _potential(target: Target, place: Place) -> Callable[[Array], Array]:
    """Minus log evidence minus log prior, with the engine's exact gradient; infinite where the engine fails."""
    given, maximum, root = place
    start, unravel = ravel_pytree(maximum)

    def potential(z: Array) -> Array:
        here = jax.lax.stop_gradient(z)
        evidence = target(given, unravel(start + root @ here))
        height = evidence.log_evidence + evidence.log_prior
        gradient = root.T @ ravel_pytree(evidence.gradient)[0]
        fine = (evidence.info.code == code(Result.converged)) & jnp.all(jnp.isfinite(gradient))
        # The engine's gradient in place of one through its iterations.
        slope = jax.lax.stop_gradient(jnp.where(fine, -gradient, 0.0))
        return jax.lax.stop_gradient(jnp.where(fine, -height, jnp.inf)) + slope @ (z - here)

    return potential


def _inverse_root(
    target: Target, given: Given, start: Array, unravel: Callable[[Array], Values]
) -> NDArray[np.float64]:
    """A root of the inverse of minus the Hessian, which is found by central differences of the gradient.

    By eigenvectors: where noise of almost nothing fits best, curvatures differ by more than a Cholesky factor bears.
    """

    def gradient(vector: Array) -> NDArray[np.float64]:
        return np.asarray(ravel_pytree(target(given, unravel(vector)).gradient)[0])

    steps = _STEP * np.eye(start.size)
    rows = [(gradient(start - step) - gradient(start + step)) / (2 * _STEP) for step in steps]
    hessian = np.stack(rows)
    if not np.all(np.isfinite(hessian)):
        return np.eye(start.size)
    curvatures, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return np.asarray(axes / np.sqrt(np.maximum(curvatures, _FLATTEST)))
