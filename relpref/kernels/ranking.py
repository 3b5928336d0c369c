"""Kernels on rankings as programs use them: by explicit features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpyro.distributions as dist

from relpref.data import Rankings
from relpref.errors import DataError
from relpref.kernels.features import Features
from relpref.linalg import real


@runtime_checkable
class RankingKernel(Protocol):
    """A covariance function of rankings, of the order of 1 at a full ranking, by its features."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """Its hyperparameters and their default priors, by the names of their sites."""

    def features(self, rankings: Rankings, **parameters: Any) -> Features:
        """Features of m rankings; traceable by JAX and differentiable in the hyperparameters."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class GivenFeatures:
    """The features that the rankings carry, whatever they were computed from; see `Rankings.with_features`."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """None."""
        return {}

    def features(self, rankings: Rankings) -> Features:
        """Return them as they are."""
        if rankings.features is None:
            raise DataError(
                "the rankings carry no features; give them with rankings.with_features(...), or choose another kernel"
            )
        residual = None if rankings.residual is None else real(rankings.residual)
        return Features(real(rankings.features), residual)
