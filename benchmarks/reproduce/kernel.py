"""The squared exponential on distances that are computed once for all fits of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from relpref.linalg import Dense, real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SquaredExponentialOfDistances:
    """exp(-d^2 / 2 l^2) (XPGP eq. 1), an attribute kernel for `relpref.models.xpgp`.

    A thousand documents of 1433 words would otherwise be multiplied with each other at every step
    of the search.
    """

    squared: Any

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """``lengthscale``: two documents drawn at random are sqrt 2 apart, see
        `benchmarks.reproduce.problem.distances`.
        """
        return {"lengthscale": dist.LogNormal(0.0, 1.0)}

    def __call__(self, attributes: Array, *, lengthscale: Array) -> Dense:
        """The covariance; the attributes are in the distances already."""
        return Dense(jnp.exp(-0.5 * real(self.squared) / jnp.square(lengthscale)))
