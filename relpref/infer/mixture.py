"""A belief that is a mixture of Gaussians: one for each draw of the hyperparameters. NumPy only."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from relpref.infer.belief import Floats, GaussianBelief, Margins

_HALVINGS = 60  # of the bracket around a quantile


@dataclass(frozen=True, eq=False)
class MixtureBelief:
    """Σ_k N(location_k, scale_k)/K.

    Parameters
    ----------
    locations : array, shape (K, n)
    scales : array, shape (K, n, n)
        Covariances.
    """

    locations: Floats
    scales: Floats

    @property
    def size(self) -> int:
        """Number of entries, n."""
        return int(self.locations.shape[1])

    @cached_property
    def components(self) -> list[GaussianBelief]:
        """The Gaussians."""
        return [GaussianBelief(*both) for both in zip(self.locations, self.scales, strict=True)]

    def mean(self) -> Floats:
        """Expectation."""
        return np.asarray(self.locations.mean(axis=0))

    def covariance(self) -> Floats:
        """Covariance: within the components, and between their means."""
        centred = self.locations - self.mean()
        return np.asarray(self.scales.mean(axis=0) + centred.T @ centred / len(centred))

    def project(self, weights: Floats) -> "MixtureBelief":
        """The belief about ``weights @ u``."""
        return MixtureBelief(self.locations @ weights.T, weights @ self.scales @ weights.T)

    def centred(self) -> "MixtureBelief":
        """The belief about every entry less the average."""
        each = [component.centred() for component in self.components]
        return MixtureBelief(np.stack([b.location for b in each]), np.stack([b.scale for b in each]))

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        """Averages over the components."""
        each = [component.differences(first, second) for component in self.components]
        means = np.concatenate([margins.means for margins in each])
        variances = np.concatenate([margins.variances for margins in each])
        variance = variances.mean(axis=0) + means.var(axis=0)
        positive = np.mean([margins.positive for margins in each], axis=0)
        return Margins(means.mean(axis=0), np.sqrt(variance), positive, means, variances)

    def sd(self) -> Floats:
        """Standard deviation of every entry."""
        within = np.diagonal(self.scales, axis1=1, axis2=2).mean(axis=0)
        return np.asarray(np.sqrt(np.maximum(within, 0.0) + self.locations.var(axis=0)))

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        """Central interval of every entry."""
        return self._quantile((1 - probability) / 2), self._quantile((1 + probability) / 2)

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Draws; as many as there are components are one of each, in their order."""
        total = len(self.locations)
        # Stratified: each draw's component is random, and all take part evenly.
        which = ((np.arange(number) + rng.uniform(size=number)) * total / number).astype(int)
        draws = np.empty((number, self.size))
        for component in np.unique(which):
            rows = np.flatnonzero(which == component)
            draws[rows] = self.components[component].draw(len(rows), rng)
        return draws if number == total else rng.permutation(draws)

    def as_mixture(self) -> tuple[Floats, Floats]:
        """Its components."""
        return self.locations, self.scales

    def _quantile(self, level: float) -> Floats:
        """By bisection between the smallest and the largest quantile of the components."""
        sds = np.sqrt(np.maximum(np.diagonal(self.scales, axis1=1, axis2=2), 0.0))
        ends = self.locations + float(ndtri(level)) * sds
        low, high = ends.min(axis=0), ends.max(axis=0)
        spread = np.where(sds > 0, sds, np.finfo(float).tiny)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = ndtr((middle - self.locations) / spread).mean(axis=0) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))
