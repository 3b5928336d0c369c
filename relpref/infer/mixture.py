"""A belief that is a mixture of Gaussians: one for each value of the hyperparameters. NumPy only."""

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
    """Σ_k weights_k N(locations_k, scales_k).

    Parameters
    ----------
    locations : array, shape (K, n)
    scales : array, shape (K, n, n)
        Covariances.
    weights : array, shape (K,)
        They add up to 1.
    """

    locations: Floats
    scales: Floats
    weights: Floats

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
        return np.asarray(self.weights @ self.locations)

    def covariance(self) -> Floats:
        """Covariance: within the components, and between their means."""
        centered = self.locations - self.mean()
        within = self.weights @ self.scales.reshape(len(self.weights), -1)
        return np.asarray(within.reshape(self.size, self.size) + (centered.T * self.weights) @ centered)

    def project(self, weights: Floats) -> "MixtureBelief":
        """The belief about ``weights @ u``."""
        return MixtureBelief(self.locations @ weights.T, weights @ self.scales @ weights.T, self.weights)

    def centred(self) -> "MixtureBelief":
        """The belief about every entry less the average."""
        each = [component.centred() for component in self.components]
        locations, scales = np.stack([b.location for b in each]), np.stack([b.scale for b in each])
        return MixtureBelief(locations, scales, self.weights)

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        """Averages over the components."""
        each = [component.differences(first, second) for component in self.components]
        means = np.concatenate([margins.means for margins in each])
        variances = np.concatenate([margins.variances for margins in each])
        mean = self.weights @ means
        variance = self.weights @ (variances + np.square(means - mean))
        positive = self.weights @ np.stack([margins.positive for margins in each])
        return Margins(mean, np.sqrt(variance), positive, means, variances, self.weights)

    def sd(self) -> Floats:
        """Standard deviation of every entry."""
        within = self.weights @ np.diagonal(self.scales, axis1=1, axis2=2)
        between = self.weights @ np.square(self.locations - self.mean())
        return np.asarray(np.sqrt(np.maximum(within, 0.0) + between))

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        """Central interval of every entry."""
        return self._quantile((1 - probability) / 2), self._quantile((1 + probability) / 2)

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Draws; as many as there are components of equal weight are one of each, in their order."""
        which = self.draw_components(number, rng)
        draws = np.empty((number, self.size))
        for component in np.unique(which):
            rows = np.flatnonzero(which == component)
            draws[rows] = self.components[component].draw(len(rows), rng)
        in_order = number == len(self.weights) and np.array_equal(which, np.arange(number))
        return draws if in_order else rng.permutation(draws)

    def draw_components(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """A component for each of a number of draws, in ascending order, shape (number,).

        Stratified: each draw's component is random, and all take part by their weights.
        """
        ends = np.cumsum(self.weights)
        places = (np.arange(number) + rng.uniform(size=number)) / number * ends[-1]
        return np.minimum(np.searchsorted(ends, places, side="right"), len(ends) - 1)

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
            below = self.weights @ ndtr((middle - self.locations) / spread) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))
