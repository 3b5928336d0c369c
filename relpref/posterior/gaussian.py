"""Distributions of a vector: a Gaussian, a mixture of them, or draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from relpref.linalg import cholesky

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Margins:
    """Beliefs about k scalars, each by itself.

    Attributes
    ----------
    mean, sd : array, shape (k,)
    positive : array, shape (k,)
        Probability that it is above zero.
    means, variances : array, shape (s, k)
        They are mixtures of s Gaussians, or of s points where the variances are 0.
    weights : array, shape (s,)
        Probability of each component.
    """

    mean: Floats
    sd: Floats
    positive: Floats
    means: Floats
    variances: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class GaussianBelief:
    """N(location, scale), as EP and the exact engines leave it.

    Parameters
    ----------
    location : array, shape (n,)
    scale : array, shape (n, n)
        Covariance.
    """

    location: Floats
    scale: Floats
    sampled: ClassVar[bool] = False  # whether it is made of draws
    large: ClassVar[bool] = False  # whether its covariance is evaluated where it is needed

    @property
    def components(self) -> "tuple[GaussianBelief, ...]":
        """The Gaussians that it is a mixture of; none of draws."""
        return (self,)

    @property
    def weights(self) -> Floats:
        """Probability of each of the s components, shape (s,)."""
        return np.ones(1)

    @property
    def size(self) -> int:
        return len(self.location)

    def mean(self) -> Floats:
        return self.location

    def covariance(self) -> Floats:
        return self.scale

    def project(self, weights: Floats) -> "GaussianBelief":
        """The belief about ``weights @ u``."""
        return GaussianBelief(weights @ self.location, weights @ self.scale @ weights.T)

    def subset(self, positions: NDArray[np.integer[Any]]) -> "GaussianBelief":
        return GaussianBelief(self.location[positions], self.scale[np.ix_(positions, positions)])

    def centred(self) -> "GaussianBelief":
        """The belief about every entry less the average, O(n²)."""
        averages = self.scale.mean(axis=0)
        scale = self.scale - averages - averages[:, None] + averages.mean()
        return GaussianBelief(self.location - self.location.mean(), scale)

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        """Gap moments: Σ_ii + Σ_jj − 2 Σ_ij (XPGP eq. 13-14)."""
        mean = self.location[first] - self.location[second]
        variance = self.scale[first, first] + self.scale[second, second] - 2 * self.scale[first, second]
        variance = np.maximum(variance, 0.0)  # rounding, where two entities are the same to the model
        sd = np.sqrt(variance)
        certain = sd == 0  # then the order is known, or there is none
        positive = np.where(certain, 0.5 + 0.5 * np.sign(mean), ndtr(mean / np.where(certain, 1.0, sd)))
        return Margins(mean, sd, positive, mean[None], variance[None], np.ones(1))

    def sd(self) -> Floats:
        """Standard deviation of every entry."""
        return np.sqrt(np.maximum(np.diagonal(self.scale), 0.0))

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        """Central interval of every entry."""
        reach = float(ndtri(0.5 + probability / 2)) * self.sd()
        return self.location - reach, self.location + reach

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Draws by the Cholesky factor of the covariance; by its eigenvectors, where it is singular up to rounding."""
        with jax.enable_x64(True):
            lower = np.asarray(cholesky(jax.numpy.asarray(self.scale)).lower)
        if not np.all(np.isfinite(lower)) and np.all(np.isfinite(self.scale)):
            values, vectors = np.linalg.eigh(self.scale)
            lower = vectors * np.sqrt(np.maximum(values, 0.0))
        return self.location + rng.standard_normal((number, self.size)) @ lower.T

    def as_mixture(self) -> tuple[Floats, Floats]:
        """What it is a mixture of: s means, shape (s, n), and covariances, shape (s, n, n), or None of points."""
        return self.location[None], self.scale[None]

    def arrays(self) -> dict[str, Any]:
        """What a file holds of it, by name."""
        return {"mean": self.location, "covariance": self.scale}


@dataclass(frozen=True, eq=False)
class DrawsBelief:
    """Draws, as NUTS and SVI leave them.

    Parameters
    ----------
    draws : array, shape (s, n)
    sampler : dict from name to array, shape (s,)
        What the sampler says of each draw, by the names of numpyro (``diverging``, ``num_steps``, ...).
    """

    draws: Floats
    sampler: Mapping[str, Floats] = field(default_factory=dict)
    sampled: ClassVar[bool] = True
    large: ClassVar[bool] = False
    components: ClassVar[tuple[GaussianBelief, ...]] = ()

    @property
    def size(self) -> int:
        return int(self.draws.shape[1])

    def mean(self) -> Floats:
        return np.asarray(self.draws.mean(axis=0))

    def covariance(self) -> Floats:
        return np.atleast_2d(np.cov(self.draws, rowvar=False))

    def project(self, weights: Floats) -> "DrawsBelief":
        """The draws of ``weights @ u``."""
        return DrawsBelief(self.draws @ weights.T)

    def subset(self, positions: NDArray[np.integer[Any]]) -> "DrawsBelief":
        return DrawsBelief(self.draws[:, positions])

    def centred(self) -> "DrawsBelief":
        """The draws of every entry less their average."""
        return DrawsBelief(self.draws - self.draws.mean(axis=1, keepdims=True))

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        """Averages over the draws; a tie counts one half."""
        gaps = self.draws[:, first] - self.draws[:, second]
        positive = (gaps > 0).mean(axis=0) + 0.5 * (gaps == 0).mean(axis=0)
        spread = gaps.std(axis=0, ddof=1)
        return Margins(gaps.mean(axis=0), spread, positive, gaps, np.zeros_like(gaps), self.weights)

    def sd(self) -> Floats:
        """Standard deviation of every entry."""
        return np.asarray(self.draws.std(axis=0, ddof=1))

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        tail = (1 - probability) / 2
        lower, upper = np.quantile(self.draws, [tail, 1 - tail], axis=0)
        return lower, upper

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Resample when the number differs from what is there; else the draws as they are."""
        if number == len(self.draws):
            return self.draws
        return self.draws[rng.integers(0, len(self.draws), number)]

    @property
    def weights(self) -> Floats:
        return np.full(len(self.draws), 1 / len(self.draws))

    def as_mixture(self) -> tuple[Floats, None]:
        """The draws, which have no spread."""
        return self.draws, None

    def arrays(self) -> dict[str, Any]:
        return {"draws": self.draws} | {f"sampler/{name}": value for name, value in self.sampler.items()}


def generator(key: Any) -> np.random.Generator:
    """A NumPy generator from a JAX key of either kind, or from an integer."""
    if isinstance(key, int | np.integer):
        return np.random.default_rng(int(key))
    return np.random.default_rng(key_words(key).tolist())


def as_key(key: Any) -> Any:
    """A JAX key from a seed; a key as it is."""
    return jax.random.key(int(key)) if isinstance(key, int | np.integer) else key


def key_words(key: Any) -> NDArray[np.uint32]:
    """The raw words of a JAX key of either kind."""
    if jax.numpy.issubdtype(getattr(key, "dtype", np.uint32), jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.asarray(key, dtype=np.uint32).reshape(-1)


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
    sampled: ClassVar[bool] = False
    large: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return int(self.locations.shape[1])

    @cached_property
    def components(self) -> tuple[GaussianBelief, ...]:
        return tuple(GaussianBelief(*both) for both in zip(self.locations, self.scales, strict=True))

    def mean(self) -> Floats:
        return np.asarray(self.weights @ self.locations)

    def covariance(self) -> Floats:
        """Covariance: within the components, and between their means."""
        centered = self.locations - self.mean()
        within = self.weights @ self.scales.reshape(len(self.weights), -1)
        return np.asarray(within.reshape(self.size, self.size) + (centered.T * self.weights) @ centered)

    def project(self, weights: Floats) -> "MixtureBelief":
        """The belief about ``weights @ u``."""
        return MixtureBelief(self.locations @ weights.T, weights @ self.scales @ weights.T, self.weights)

    def subset(self, positions: NDArray[np.integer[Any]]) -> "MixtureBelief":
        scales = self.scales[:, positions][:, :, positions]
        return MixtureBelief(self.locations[:, positions], scales, self.weights)

    def centred(self) -> "MixtureBelief":
        """The belief about every entry less the average."""
        each = [component.centred() for component in self.components]
        locations, scales = np.stack([b.location for b in each]), np.stack([b.scale for b in each])
        return MixtureBelief(locations, scales, self.weights)

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
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
        return self.locations, self.scales

    def arrays(self) -> dict[str, Any]:
        return {"means": self.locations, "covariances": self.scales, "weights": self.weights}

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


# A distribution of an n-vector that can be asked about any linear functional of it.
Belief = GaussianBelief | MixtureBelief | DrawsBelief


def belief_from(arrays: Mapping[str, Any]) -> Belief | None:
    """From the arrays of a file; None where it holds a covariance that is evaluated by the prior of a program."""
    if "draws" in arrays:
        told = {name.split("/")[1]: arrays[name] for name in arrays if name.startswith("sampler/")}
        return DrawsBelief(arrays["draws"], told)
    if "means" in arrays:
        means = arrays["means"]
        equal = np.full(len(means), 1 / len(means))  # of files from before there were weights
        return MixtureBelief(means, arrays["covariances"], arrays.get("weights", equal))
    if "dual/weights" in arrays or "sparse/weights" in arrays:
        return None
    return GaussianBelief(arrays["mean"], arrays["covariance"])
