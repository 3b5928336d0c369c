"""Distributions of a vector: mixtures of Gaussians, one Gaussian among them, and draws."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf
from scipy.special import ndtr, ndtri

from relpref.blas import threads_for
from relpref.limits import JITTERS

Floats = NDArray[np.float64]
Positions = NDArray[np.integer[Any]]
_HALVINGS = 60  # of the bracket around a quantile


@dataclass(frozen=True)
class Margins:
    """Distributions of k scalars: mixtures of s Gaussians, or s points if variances are 0.

    ``mean``, ``sd`` and ``positive``, the probability that it is above zero (a tie counts one
    half), have shape (k,); the ``means`` and ``variances`` of the components shape (s, k), their
    ``weights`` shape (s,).
    """

    mean: Floats
    sd: Floats
    positive: Floats
    means: Floats
    variances: Floats
    weights: Floats

    @classmethod
    def of(
        cls, means: Floats, variances: Floats, weights: Floats, unbiased: float = 1.0
    ) -> "Margins":
        """The mixtures; ``unbiased`` is a factor of the variance, of draws."""
        mean = weights @ means
        variance = unbiased * (weights @ (variances + np.square(means - mean)))
        above = 0.5 + 0.5 * np.sign(means)  # of points: the order is known, or there is none
        spread = variances != 0
        above[spread] = ndtr(means[spread] / np.sqrt(variances[spread]))
        return cls(mean, np.sqrt(variance), weights @ above, means, variances, weights)


@dataclass(frozen=True, eq=False)
class MixtureBelief:
    """Mixture of Gaussians Σ_k weights_k N(locations_k, scales_k).

    Means have the shape (K, n), covariances (K, n, n), and weights add up to 1.
    """

    locations: Floats
    scales: Any  # None of draws, which are points
    weights: Floats
    sampled: ClassVar[bool] = False  # whether it is made of draws
    large: ClassVar[bool] = False  # whether its covariance is evaluated where it is needed

    @property
    def size(self) -> int:
        return int(self.locations.shape[1])

    @cached_property
    def components(self) -> "tuple[GaussianBelief, ...]":
        """The Gaussians that it is a mixture of; none of draws."""
        return tuple(
            GaussianBelief(*both) for both in zip(self.locations, self.scales, strict=True)
        )

    @property
    def equal(self) -> bool:
        """Whether it has several components of equal weight, as draws have."""
        return len(self.weights) > 1 and not np.ptp(self.weights)

    def mean(self) -> Floats:
        return np.asarray(self.weights @ self.locations)

    def covariance(self) -> Floats:
        """Within the components, and between their means."""
        centred = self.locations - self.mean()
        within = self.weights @ self.scales.reshape(len(self.weights), -1)
        return np.asarray(
            within.reshape(self.size, self.size) + (centred.T * self.weights) @ centred
        )

    def sd(self) -> Floats:
        """Standard deviation of every entry."""
        within = self.weights @ np.diagonal(self.scales, axis1=1, axis2=2)
        between = self.weights @ np.square(self.locations - self.mean())
        return np.asarray(np.sqrt(np.maximum(within, 0.0) + between))

    def project(self, weights: Floats) -> "MixtureBelief":
        """The distribution of ``weights @ u``."""
        return mixture(self.locations @ weights.T, weights @ self.scales @ weights.T, self.weights)

    def subset(self, positions: Positions | slice) -> "MixtureBelief":
        """Distribution of some entries; a slice makes no copy."""
        scales = self.scales[:, positions][:, :, positions]
        return mixture(self.locations[:, positions], scales, self.weights)

    def centred(self) -> "MixtureBelief":
        """The distribution of every entry less the average, O(n²)."""
        averages = self.scales.mean(axis=1)
        scales = self.scales - averages[:, None]
        scales -= averages[:, :, None]
        scales += averages.mean(axis=1)[:, None, None]
        return mixture(
            self.locations - self.locations.mean(axis=1, keepdims=True), scales, self.weights
        )

    def differences(self, first: Positions, second: Positions) -> Margins:
        """Differences of utilities, with variances Σ_ii + Σ_jj − 2 Σ_ij (XPGP eq. 13-14)."""
        scales, means = self.scales, self.locations[:, first] - self.locations[:, second]
        variances = (
            scales[:, first, first] + scales[:, second, second] - 2 * scales[:, first, second]
        )
        # Rounding may make it negative, where two items are the same to the model.
        return Margins.of(means, np.maximum(variances, 0.0), self.weights)

    def rows(self, columns: Positions, entries: Floats) -> Margins:
        """Margins of Σ_k entries_k u[columns_k], for rows of shape (m, k)."""
        means = np.sum(self.locations[:, columns] * entries, axis=2)
        spread = self.scales[:, columns[:, :, None], columns[:, None, :]]
        variances = np.einsum("smij,mi,mj->sm", spread, entries, entries)
        return Margins.of(means, np.maximum(variances, 0.0), self.weights)

    def pull(self, columns: Positions, entries: Floats) -> Floats:
        """Covariance of every entry with Σ_k entries_k u[columns_k], shape (K, n)."""
        return np.asarray(np.einsum("skn,k->sn", self.scales[:, columns], entries))

    def changed(
        self, locations: Floats, columns: Floats, shares: Floats, weights: Floats
    ) -> "MixtureBelief":
        """Mixture with other means and weights, and covariances less W diag(c) Wᵀ.

        W has the shape (K, n, c), c the shape (K, c).
        """
        scales = (columns * shares[:, None]) @ np.swapaxes(columns, 1, 2)
        return mixture(locations, np.subtract(self.scales, scales, out=scales), weights)

    def positive(self) -> Floats:
        """Probability that each entry is above zero, a tie counting one half."""
        return self.rows(np.arange(self.size)[:, None], np.ones((self.size, 1))).positive

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        """Central interval of every entry."""
        return self._quantile((1 - probability) / 2), self._quantile((1 + probability) / 2)

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Draw from the mixture; K draws at equal weights are one of each component, in order."""
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

    def arrays(self) -> dict[str, Any]:
        """Arrays for a file, by name."""
        return {"means": self.locations, "covariances": self.scales, "weights": self.weights}

    def _quantile(self, level: float) -> Floats:
        """Quantile of each entry, by bisection between the components' quantiles."""
        sds = np.sqrt(np.maximum(np.diagonal(self.scales, axis1=1, axis2=2), 0.0))
        ends = self.locations + float(ndtri(level)) * sds
        low, high = ends.min(axis=0), ends.max(axis=0)
        spread = np.where(sds > 0, sds, np.finfo(float).tiny)
        for _ in range(_HALVINGS if len(ends) > 1 else 0):
            middle = 0.5 * (low + high)
            below = self.weights @ ndtr((middle - self.locations) / spread) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))


class GaussianBelief(MixtureBelief):
    """N(location, scale), a mixture of one; ``scale`` is the covariance, shape (n, n)."""

    def __init__(self, location: Floats, scale: Floats) -> None:
        super().__init__(location[None], scale[None], np.ones(1))

    @property
    def location(self) -> Floats:
        return np.asarray(self.locations[0])

    @property
    def scale(self) -> Floats:
        return np.asarray(self.scales[0])

    @property
    def components(self) -> "tuple[GaussianBelief, ...]":
        return (self,)

    def covariance(self) -> Floats:
        return self.scale

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        with threads_for(self.size):
            return self.location + rng.standard_normal((number, self.size)) @ root_of(self.scale).T

    def arrays(self) -> dict[str, Any]:
        return {"mean": self.location, "covariance": self.scale}


def mixture(locations: Floats, scales: Floats, weights: Floats) -> MixtureBelief:
    """Mixture of K Gaussians, or the Gaussian if there is one."""
    if len(weights) == 1:
        return GaussianBelief(locations[0], scales[0])
    return MixtureBelief(locations, scales, weights)


class DrawsBelief(MixtureBelief):
    """Draws, shape (s, n), as NUTS and SVI leave them: points of equal weight.

    ``sampler`` holds what the sampler says of each draw, by the names of numpyro (``diverging``,
    ``num_steps``, ...).
    """

    sampled: ClassVar[bool] = True
    components: ClassVar[tuple[GaussianBelief, ...]] = ()
    sampler: Mapping[str, Floats]

    def __init__(self, draws: Floats, sampler: Mapping[str, Floats] | None = None) -> None:
        super().__init__(draws, None, np.full(len(draws), 1 / len(draws)))
        object.__setattr__(self, "sampler", sampler or {})

    @property
    def draws(self) -> Floats:
        return self.locations

    def mean(self) -> Floats:
        return np.asarray(self.draws.mean(axis=0))

    def covariance(self) -> Floats:
        return np.atleast_2d(np.cov(self.draws, rowvar=False))

    def sd(self) -> Floats:
        return np.asarray(self.draws.std(axis=0, ddof=1))

    def project(self, weights: Floats) -> "DrawsBelief":
        return DrawsBelief(self.draws @ weights.T)

    def subset(self, positions: Positions | slice) -> "DrawsBelief":
        return DrawsBelief(self.draws[:, positions], self.sampler)

    def centred(self) -> "DrawsBelief":
        return DrawsBelief(self.draws - self.draws.mean(axis=1, keepdims=True))

    def differences(self, first: Positions, second: Positions) -> Margins:
        return self._margins(self.draws[:, first] - self.draws[:, second])

    def rows(self, columns: Positions, entries: Floats) -> Margins:
        return self._margins(np.sum(self.draws[:, columns] * entries, axis=2))

    def _margins(self, values: Floats) -> Margins:
        size = len(self.draws)
        margins = Margins.of(values, np.zeros_like(values), self.weights, size / (size - 1))
        return replace(
            margins, positive=0.5 + 0.5 * np.sign(values).mean(axis=0)
        )  # exact, where all agree

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        tail = (1 - probability) / 2
        lower, upper = np.quantile(self.draws, [tail, 1 - tail], axis=0)
        return lower, upper

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Resample when the number differs from what is there; else the draws as they are."""
        if number == len(self.draws):
            return self.draws
        return self.draws[rng.integers(0, len(self.draws), number)]

    def arrays(self) -> dict[str, Any]:
        return {"draws": self.draws} | {
            f"sampler/{name}": value for name, value in self.sampler.items()
        }


def root_of(covariance: Floats) -> Floats:
    """Cholesky factor of Σ, with a little jitter if needed; else a root from eigenvectors."""
    if not np.all(np.isfinite(covariance)):
        return np.full_like(covariance, np.nan)
    unit = len(covariance) * np.finfo(np.float64).eps * np.mean(np.abs(np.diagonal(covariance)))
    for jitter in JITTERS:  # as `relpref.linalg.cholesky` does
        lower, failed = dpotrf(covariance + jitter * unit * np.eye(len(covariance)), lower=1)
        if not failed:
            return np.asarray(lower)
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


Belief = MixtureBelief  # a distribution of an n-vector


def belief_from(arrays: Mapping[str, Any]) -> Belief | None:
    """Belief from the arrays of a file; None where its covariance needs a program's prior."""
    if "draws" in arrays:
        sampler = {
            name.split("/")[1]: arrays[name] for name in arrays if name.startswith("sampler/")
        }
        return DrawsBelief(arrays["draws"], sampler)
    if "means" in arrays:
        return MixtureBelief(arrays["means"], arrays["covariances"], arrays["weights"])
    if "dual/weights" in arrays or "sparse/weights" in arrays:
        return None
    return GaussianBelief(arrays["mean"], arrays["covariance"])


def generator(key: Any) -> np.random.Generator:
    """A NumPy generator from a JAX key of either kind, or from an integer."""
    if isinstance(key, int | np.integer):
        return np.random.default_rng(int(key))
    return np.random.default_rng(key_words(key).tolist())


def as_key(key: Any) -> Any:
    """A JAX key from a seed; a key as it is."""
    import jax

    return jax.random.key(int(key)) if isinstance(key, int | np.integer) else key


def key_words(key: Any) -> NDArray[np.uint32]:
    """The raw words of a JAX key of either kind, or of that of a seed."""
    if not isinstance(key, np.ndarray):
        import jax

        if isinstance(key, int | np.integer):
            usual = jax.config.jax_default_prng_impl == "threefry2x32"  # type: ignore[attr-defined]
            if usual and 0 <= key < 2**31:
                return np.array(
                    [0, key], dtype=np.uint32
                )  # as JAX makes them, without compiling that
            key = as_key(key)
        if jax.numpy.issubdtype(getattr(key, "dtype", np.uint32), jax.dtypes.prng_key):
            key = jax.random.key_data(key)
    return np.asarray(key, dtype=np.uint32).reshape(-1)
