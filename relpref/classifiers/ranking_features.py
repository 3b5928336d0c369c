"""How a classifier sees rankings: which kernel its program has, and which features are computed before."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.data import PreferenceData, Rankings
from relpref.errors import DataError
from relpref.kernels import (
    Cut,
    GivenFeatures,
    Kendall,
    Landmarks,
    Mallows,
    RankingKernel,
    cut_features,
    kendall_features,
    kendall_kernel,
    mallows_kernel,
    mallows_landmarks,
)
from relpref.kernels.features import factored_features
from relpref.kernels.kendall import kendall_diagonal
from relpref.kernels.mallows import mallows_variances
from relpref.kernels.positions import in_double
from relpref.linalg import cholesky

Floats = NDArray[np.float64]

NAMES = ("kendall", "cut", "mallows")
_LOOKED_AT = 100  # rankings whose error says whether there are enough samples
# Samples. With fewer the error in relation to the norm stays below the tolerance, but rankings differ by little of that norm:
# of 300 rankings of 10 of 100 items 4, 8, 16 and 32 samples classify 63, 68, 71 and 74 % of new ones correctly.
_FEWEST, _MOST = 32, 256


def rankings_only(given: Any) -> Rankings:
    """What an estimator is given, if it is rankings.

    Raises
    ------
    DataError
        If it is anything else.
    """
    if not isinstance(given, Rankings):
        raise DataError(
            f"X is a {type(given).__name__}; give Rankings: see Rankings.from_orders, from_table and from_scores"
        )
    return given


@dataclass(frozen=True, eq=False)
class RankingFeatures:
    """What was decided when the training rankings were seen, so that new ones are treated alike.

    Attributes
    ----------
    items : PreferenceData
        In the training rankings' order.
    kernel : RankingKernel
        Of the program: `GivenFeatures` where the features are computed before, by ``source``.
    source : "program", "kendall", "cut" or "mallows"
    graph : array, shape (n, n), or None
        Of the items, for cut features.
    landmarks : Rankings or None
        For the Mallows kernel of rankings that are not exhaustive, and the Kendall kernel of many items.
    concentration, samples
        For the former: λ, and linear extensions for each ranking.
    factor : array, shape (r, r), or None
        Cholesky factor of the landmarks' kernel.
    error : float
        Of the training rankings' Mallows kernel with the landmarks, see `RankingFeatures.prepare`.
    tolerance, key
        Of features that are sampled.
    partial : bool
        Whether rankings that do not place every item can be treated.
    """

    items: PreferenceData
    kernel: RankingKernel
    source: str
    graph: Floats | None = None
    landmarks: Rankings | None = None
    concentration: float = 0.0
    samples: int = _FEWEST
    factor: Floats | None = field(default=None, repr=False)
    error: float = 0.0
    tolerance: float = 0.05
    key: int = 0
    partial: bool = True

    @classmethod
    def choose(
        cls,
        kernel: str | RankingKernel,
        data: Rankings,
        *,
        graph: Any = None,
        lengthscale: Any = "median",
        landmarks: int = 300,
        tolerance: float = 0.05,
        concentration: float | None = None,
        key: int = 0,
    ) -> Self:
        """Decide how rankings like these are treated; arguments as of `relpref.classifiers.RankingGPClassifier`.

        Raises
        ------
        DataError
            If options contradict one another or the rankings.
        """
        if landmarks < 1:
            raise DataError(f"landmarks is {landmarks}; it must be at least 1")
        if kernel != "cut" and (graph is not None or lengthscale != "median"):
            raise DataError(f"graph and lengthscale belong to kernel='cut'; kernel is {kernel!r}")
        common: dict[str, Any] = {"items": data.items, "tolerance": tolerance, "key": key}
        if isinstance(kernel, RankingKernel):
            return cls(kernel=kernel, source="program", **common)
        if kernel not in NAMES:
            raise DataError(
                f"kernel is {kernel!r}; it is one of {', '.join(map(repr, NAMES))} or a kernel of relpref.kernels"
            )
        if kernel == "cut":
            cut = Cut(graph, lengthscale)
            if lengthscale == "learn":
                _require_exhaustive(data, "a graph with a lengthscale to be learned")
                return cls(kernel=cut, source="program", partial=False, **common)
            with jax.enable_x64(True):
                weights = np.asarray(cut.weights(data))
            return cls(kernel=GivenFeatures(), source="cut", graph=weights, **common)
        if kernel == "kendall":
            n = data.shape[1]
            if n * (n - 1) // 2 <= landmarks:
                return cls(kernel=GivenFeatures(), source="kendall", **common)
            few = Landmarks.choose(Kendall(), data, landmarks).rankings
            return cls(kernel=GivenFeatures(), source="kendall", landmarks=few, **common)._factored()
        given = {} if concentration is None else {"concentration": concentration}
        if data.exhaustive:
            chosen = Landmarks.choose(Mallows(), data, landmarks, **given)
            return cls(kernel=chosen, source="program", partial=False, **common)
        strength = concentration
        if strength is None:
            with jax.enable_x64(True):
                strength = float(Mallows().parameters(data)["concentration"].icdf(0.5))
        few = mallows_landmarks(data, landmarks, concentration=strength)
        found = cls(kernel=GivenFeatures(), source="mallows", landmarks=few, concentration=strength, **common)
        samples, error = _FEWEST, found._sampling_error(data, _FEWEST)
        while samples < _MOST and error > tolerance:
            samples *= 2
            error = found._sampling_error(data, samples)
        return replace(found, samples=samples, error=error)._factored()

    def prepare(self, rankings: Rankings) -> tuple[Rankings, float]:
        """Rankings as the program wants them, and the largest standard error of their features in relation to their norm.

        For Mallows features it is that of the training rankings.
        """
        data = rankings.aligned(self.items)
        if self.source == "program":
            if not self.partial:
                _require_exhaustive(data, "this kernel")
            return data, 0.0
        if self.landmarks is not None:
            return self._by_landmarks(data, self.landmarks), self.error
        if self.source == "kendall":
            return data.with_features(kendall_features(data)), 0.0
        values, error = cut_features(
            data, self.graph, normalize=True, tolerance=self.tolerance, key=self.key, return_error=True
        )
        return data.with_features(values), _largest_share(values, error)

    @property
    def _settings(self) -> dict[str, Any]:
        """Of the Mallows kernel: new rankings are seen with the number of samples and the key of the training rankings."""
        return {"concentration": self.concentration, "samples": self.samples, "key": self.key}

    def _gram(self, *rankings: Rankings) -> Floats:
        if self.source == "kendall":
            return np.asarray(kendall_kernel(*rankings))
        return np.asarray(mallows_kernel(*rankings, **self._settings))

    def _factored(self) -> Self:
        """With the landmarks' part of all features to come."""
        assert self.landmarks is not None
        return replace(self, factor=in_double(lambda gram: cholesky(gram).lower, self._gram(self.landmarks)))

    def _by_landmarks(self, data: Rankings, landmarks: Rankings) -> Rankings:
        if self.source == "kendall":
            diagonal = in_double(kendall_diagonal, data.positions)
        else:
            diagonal = mallows_variances(data, **self._settings)
        features = in_double(jax.jit(factored_features), self._gram(data, landmarks), self.factor, diagonal)
        return data.with_features(features.values, features.residual)

    def _sampling_error(self, data: Rankings, samples: int) -> float:
        """Of the kernel with the landmarks, for some of the rankings."""
        assert self.landmarks is not None
        values, error = mallows_kernel(
            data[:_LOOKED_AT],
            self.landmarks,
            **(self._settings | {"samples": samples}),
            return_error=True,
        )
        return _largest_share(values, error)


def _largest_share(values: Floats, error: Floats) -> float:
    """Largest norm of a row's standard errors in relation to that of the row."""
    norm, spread = (np.sqrt(np.sum(np.square(part), axis=1)) for part in (values, error))
    return float(np.divide(spread, norm, out=np.zeros_like(norm), where=norm > 0).max(initial=0.0))


def _require_exhaustive(data: Rankings, what: str) -> None:
    if not data.exhaustive:
        raise DataError(
            f"{what} takes rankings that place every item, and some of these do not; take kernel='kendall', kernel='cut' with a given "
            "graph or lengthscale, or rankings.completed() if what is missing comes last"
        )
