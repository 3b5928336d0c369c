"""The exact posterior of a program at given hyperparameters, up to its evidence: Gaussian prior times likelihood."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.errors import UnsupportedProgramError
from relpref.infer.belief import Floats, GaussianBelief
from relpref.infer.posterior import Posterior
from relpref.infer.prepare import prepare
from relpref.infer.program import Call, Layout, Values, read

# Directions in which the prior varies less than that, relative to the one in which it varies most, are left out: their standard deviation
# is a hundred-thousandth of the largest, and rounding would decide what is seen of them.
_SMALLEST = 1e-10
_NUMBERS = 2_000_000  # in the predictors of draws that are looked at together: 16 MB


@dataclass(frozen=True, eq=False)
class Target:
    """p(answers | u) N(u; location, covariance).

    Attributes
    ----------
    call, layout, arrays, fixed
        The program, all of whose hyperparameters are fixed.
    location : array, shape (n,)
    covariance : array, shape (n, n)
    """

    call: Call
    layout: Layout
    arrays: tuple[Any, ...]
    fixed: Values
    location: Floats
    covariance: Floats

    @classmethod
    def of(cls, posterior: Posterior, hyperparameters: Values) -> "Target":
        """The posterior's program at some hyperparameters, all of them; inside ``enable_x64``."""
        origin = posterior.origin
        if origin is None:
            raise UnsupportedProgramError(
                "this posterior does not know its program, so there is nothing to hold it against; fit with a program of "
                "relpref.models before saving, or certify in the session of the fit"
            )
        prepared = prepare(origin.program, origin.args, origin.kwargs, hyperparameters, padding=False)
        call, arrays, fixed, layout = (
            prepared.call,
            prepared.arrays,
            prepared.fixed,
            prepared.discovery.layout,
        )
        location, covariance = (np.asarray(part) for part in _prior(call, layout, arrays, fixed))
        return cls(call, layout, arrays, fixed, location, covariance)

    @cached_property
    def root(self) -> Floats:
        """R with R Rᵀ = covariance, shape (n, r), see `directions`."""
        return directions(self.covariance)

    def whitened(self, belief: GaussianBelief) -> tuple[Floats, Floats]:
        """Mean, shape (r,), and covariance, shape (r, r), of a belief about w, where u = location + root w and w is N(0, I) a priori."""
        return whitened(self.root, belief.location - self.location, belief.scale)

    def log_likelihood(self, draws: Floats) -> Floats:
        """Log p(answers | u) of draws of u, shape (s, n); inside ``enable_x64``."""
        block = max(1, _NUMBERS // max(self.layout.num_rows, 1))
        found = _log_likelihoods(
            self.call, self.layout, min(block, len(draws)), self.arrays, self.fixed, jnp.asarray(draws)
        )
        return np.asarray(found)


def directions(covariance: Floats) -> Floats:
    """R with R Rᵀ = covariance, shape (n, r): orthogonal columns, one for each direction in which there is variance."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _SMALLEST * max(values.max(initial=0.0), np.finfo(float).tiny)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def whitened(root: Floats, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of w, where ``root`` w, of `directions`, has the given ones."""
    inverse = (root / np.sum(np.square(root), axis=0)).T
    found = inverse @ covariance @ inverse.T
    return inverse @ mean, 0.5 * (found + found.T)


@partial(jax.jit, static_argnums=(0, 1))
def _prior(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values) -> tuple[Array, Array]:
    reading = read(call, arrays, layout, {}, fixed)
    return reading.location, reading.covariance.dense()


@partial(jax.jit, static_argnums=(0, 1, 2))
def _log_likelihoods(
    call: Call, layout: Layout, block: int, arrays: tuple[Any, ...], fixed: Values, draws: Array
) -> Array:
    return jax.lax.map(
        lambda vector: log_likelihood(call, layout, arrays, fixed, vector), draws, batch_size=block
    )


def log_likelihood(
    call: Call, layout: Layout, arrays: tuple[Any, ...], values: Values, vector: Array
) -> Array:
    """Σ log p(answer | u) by the distributions' own densities, each row counted as often as it was answered."""
    sites = call.trace(arrays, {**values, **layout.unravel(vector)})
    total = jnp.zeros(())
    for name in layout.observed:
        site = sites[name]
        each = site["fn"].log_prob(site["value"])
        total = total + jnp.sum(each if site["scale"] is None else site["scale"] * each)
    return total
