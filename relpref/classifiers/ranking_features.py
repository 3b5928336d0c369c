"""How a classifier sees rankings: which kernel its program has, and which features are computed before."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from relpref.data import PreferenceData, Rankings
from relpref.errors import DataError
from relpref.infer.class_posterior import aligned
from relpref.kernels import (
    Cut,
    GivenFeatures,
    Kendall,
    Landmarks,
    Mallows,
    RankingKernel,
    cut_features,
    kendall_features,
    landmark_features,
    mallows_kernel,
)

Floats = NDArray[np.float64]

NAMES = ("kendall", "cut", "mallows")
_TOGETHER = 64  # rankings whose Gram matrix is computed for its diagonal


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
        For the Mallows kernel of rankings that are not exhaustive.
    concentration : float
        For the same.
    tolerance, key
        Of features that are sampled.
    landmark_error : float
        Share of the prior variance that landmarks leave out.
    partial : bool
        Whether rankings that do not place every item can be treated.
    """

    items: PreferenceData
    kernel: RankingKernel
    source: str
    graph: Floats | None = None
    landmarks: Rankings | None = None
    concentration: float = 0.0
    tolerance: float = 0.05
    key: int = 0
    landmark_error: float = 0.0
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
            chosen = Landmarks.choose(Kendall(), data, landmarks)
            return cls(kernel=chosen, source="program", landmark_error=float(chosen.error), **common)
        given = {} if concentration is None else {"concentration": concentration}
        if data.exhaustive:
            chosen = Landmarks.choose(Mallows(), data, landmarks, **given)
            return cls(
                kernel=chosen, source="program", landmark_error=float(chosen.error), partial=False, **common
            )
        return cls._sampled_mallows(data, landmarks, concentration, common)

    @classmethod
    def _sampled_mallows(
        cls, data: Rankings, number: int, concentration: float | None, common: dict[str, Any]
    ) -> Self:
        """Random landmarks: what they would leave out costs more to find than they save."""
        strength = concentration
        if strength is None:
            with jax.enable_x64(True):
                strength = float(Mallows().parameters(data)["concentration"].icdf(0.5))
        rows = np.random.default_rng(common["key"]).permutation(len(data))[:number]
        plain = Rankings(data.items, data.positions, data.rankers)
        found = cls(
            kernel=GivenFeatures(), source="mallows", landmarks=plain[rows], concentration=strength, **common
        )
        values, residual = found._mallows(plain)
        left_out = float(np.sum(residual))
        return replace(found, landmark_error=left_out / (float(np.sum(np.square(values))) + left_out))

    def prepare(self, rankings: Rankings) -> tuple[Rankings, float]:
        """Rankings as the program wants them, and the largest standard error of their features in relation to their norm."""
        data = aligned(rankings, self.items)
        if self.source == "program":
            if not self.partial:
                _require_exhaustive(data, "this kernel")
            return data, 0.0
        if self.source == "kendall":
            return data.with_features(kendall_features(data)), 0.0
        if self.source == "mallows":
            return data.with_features(*self._mallows(data)), 0.0
        values, error = cut_features(
            data, self.graph, normalize=True, tolerance=self.tolerance, key=self.key, return_error=True
        )
        norm, spread = (np.sqrt(np.sum(np.square(part), axis=1)) for part in (values, error))
        share = np.divide(spread, norm, out=np.zeros_like(norm), where=norm > 0)
        return data.with_features(values), float(share.max(initial=0.0))

    def _mallows(self, data: Rankings) -> tuple[Floats, Floats]:
        """From draws of linear extensions, which are the same wherever a ranking occurs."""
        assert self.landmarks is not None  # the source is Mallows
        settings: dict[str, Any] = {"concentration": self.concentration, "key": self.key}
        diagonal = [
            np.diagonal(mallows_kernel(data[start : start + _TOGETHER], **settings))
            for start in range(0, len(data), _TOGETHER)
        ]
        cross = mallows_kernel(data, self.landmarks, **settings)
        corner = mallows_kernel(self.landmarks, **settings)
        parts = (cross, corner, np.concatenate(diagonal))
        with jax.enable_x64(True):
            found = landmark_features(*map(jnp.asarray, parts))
            return np.asarray(found.values), np.asarray(found.residual)


def _require_exhaustive(data: Rankings, what: str) -> None:
    if not data.exhaustive:
        raise DataError(
            f"{what} takes rankings that place every item, and some of these do not; take kernel='kendall', kernel='cut' with a given "
            "graph or lengthscale, or rankings.completed() if what is missing comes last"
        )
