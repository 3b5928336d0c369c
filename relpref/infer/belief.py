"""What is believed about a vector: a Gaussian, or draws. NumPy only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from relpref.linalg import cholesky

Floats = NDArray[np.float64]


class Belief(Protocol):
    """A distribution of an n-vector that can be asked about any linear functional of it."""

    @property
    def size(self) -> int:
        """Number of entries, n."""

    def mean(self) -> Floats:
        """Expectation, shape (n,)."""

    def covariance(self) -> Floats:
        """Covariance, shape (n, n)."""

    def project(self, weights: Floats) -> "Belief":
        """The belief about ``weights @ u``, for a (k, n) array."""

    def centred(self) -> "Belief":
        """The belief about every entry less the average of all."""

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> "Margins":
        """The belief about every u[first] − u[second], one by one."""

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        """Central interval of every entry."""

    def sd(self) -> Floats:
        """Standard deviation of every entry."""

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Draws, shape (number, n)."""

    @property
    def weights(self) -> Floats:
        """Probability of each of the s components, shape (s,)."""

    def as_mixture(self) -> tuple[Floats, Floats | None]:
        """What it is a mixture of: s means, shape (s, n), and covariances, shape (s, n, n), or None of points."""


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

    @property
    def size(self) -> int:
        """Number of entries, n."""
        return len(self.location)

    def mean(self) -> Floats:
        """Expectation."""
        return self.location

    def covariance(self) -> Floats:
        """Covariance."""
        return self.scale

    def project(self, weights: Floats) -> "GaussianBelief":
        """The belief about ``weights @ u``."""
        return GaussianBelief(weights @ self.location, weights @ self.scale @ weights.T)

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

    @property
    def weights(self) -> Floats:
        """One component."""
        return np.ones(1)

    def as_mixture(self) -> tuple[Floats, Floats]:
        """Itself."""
        return self.location[None], self.scale[None]


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

    @property
    def size(self) -> int:
        """Number of entries, n."""
        return int(self.draws.shape[1])

    def mean(self) -> Floats:
        """Average."""
        return np.asarray(self.draws.mean(axis=0))

    def covariance(self) -> Floats:
        """Sample covariance."""
        return np.atleast_2d(np.cov(self.draws, rowvar=False))

    def project(self, weights: Floats) -> "DrawsBelief":
        """The draws of ``weights @ u``."""
        return DrawsBelief(self.draws @ weights.T)

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
        """Quantiles of the draws."""
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
        """Equal."""
        return np.full(len(self.draws), 1 / len(self.draws))

    def as_mixture(self) -> tuple[Floats, None]:
        """The draws, which have no spread."""
        return self.draws, None


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
