"""The belief about more values than their covariance has room for."""

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from relpref.errors import DataError
from relpref.infer.belief import Floats, GaussianBelief, Margins
from relpref.linalg import ImplicitCovariance

_PAIRS = 2000  # of which covariances are worked out together
_MARGINS = tuple(field.name for field in fields(Margins) if field.name != "weights")
_WHOLE = 3000  # values of which the covariance is simply worked out


class PosteriorCovariance(ImplicitCovariance, Protocol):
    """A covariance that knows what people ask of it."""

    def relative_variance(self, rows: Any) -> Floats:
        """Variance of some entries less the average of all, shape (r,)."""

    def shares(self, rows: Any) -> dict[str, Floats]:
        """Covariance of each part of the prior with the total of some entries, shape (r,)."""


@dataclass(frozen=True, eq=False)
class ImplicitBelief:
    """A Gaussian whose covariance is evaluated where it is asked for.

    Parameters
    ----------
    location : array, shape (n,)
    implicit : PosteriorCovariance
        Of size n.
    """

    location: Floats
    implicit: PosteriorCovariance

    @property
    def size(self) -> int:
        """Number of entries, n."""
        return len(self.location)

    def mean(self) -> Floats:
        """Expectation."""
        return self.location

    def about(self, positions: NDArray[np.integer[Any]]) -> GaussianBelief:
        """The belief about some entries."""
        positions = np.asarray(positions)
        scale = self.implicit.block(positions, positions)
        return GaussianBelief(self.location[positions], 0.5 * (scale + scale.T))

    def relative(self, positions: NDArray[np.integer[Any]]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of some entries less the average of all."""
        variance = self.implicit.relative_variance(positions)
        return self.location[positions] - self.location.mean(), np.sqrt(variance)

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        """The belief about every u[first] − u[second], one by one."""
        found = [self._differences(*pairs) for pairs in _groups(np.asarray(first), np.asarray(second))]
        joined = (np.concatenate([getattr(part, name) for part in found], axis=-1) for name in _MARGINS)
        mean, sd, positive, means, variances = joined
        return Margins(mean, sd, positive, means, variances, self.weights)

    def _differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        positions, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        places = places.reshape(2, -1)
        return self.about(positions).differences(places[0], places[1])

    def project(self, weights: Floats) -> GaussianBelief:
        """The belief about ``weights @ u``, whose entries that are not 0 must be few."""
        used = np.flatnonzero(np.any(weights != 0, axis=0))
        self._check(len(used), "weights that are not 0 for")
        return self.about(used).project(weights[:, used])

    def covariance(self) -> Floats:
        """Covariance, of a few thousand entries at most."""
        return self._whole("the covariance of").covariance()

    def centred(self) -> GaussianBelief:
        """The belief about every entry less the average, of a few thousand entries at most."""
        return self._whole("the covariance of").centred()

    def interval(self, probability: float) -> tuple[Floats, Floats]:
        """Central interval of every entry, of a few thousand at most."""
        reach = float(ndtri(0.5 + probability / 2)) * self.sd()
        return self.location - reach, self.location + reach

    def sd(self) -> Floats:
        """Standard deviation of every entry, of a few thousand at most."""
        return self._whole("standard deviations of").sd()

    def draw(self, number: int, rng: np.random.Generator) -> Floats:
        """Draws of all entries, of a few thousand at most."""
        return self._whole("draws of").draw(number, rng)

    @property
    def weights(self) -> Floats:
        """One component."""
        return np.ones(1)

    def as_mixture(self) -> tuple[Floats, Floats]:
        """Mean and covariance, of a few thousand entries at most."""
        return self._whole("the covariance of").as_mixture()

    def _whole(self, what: str) -> GaussianBelief:
        self._check(self.size, what)
        return self.about(np.arange(self.size))

    def _check(self, number: int, what: str) -> None:
        if number > _WHOLE:
            raise DataError(
                f"{what} {number} entities were asked for; of so many they are worked out for some at a time: "
                "posterior.about(labels) is the posterior of those, and ranking(top=...) gives intervals of the best"
            )


def _groups(
    first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs in groups whose covariances have room."""
    number = max(1, -(-len(first) // _PAIRS))
    return list(zip(np.array_split(first, number), np.array_split(second, number), strict=True))
