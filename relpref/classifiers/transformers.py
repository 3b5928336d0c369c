"""Features of rankings as scikit-learn transformers."""

from typing import Any, Literal, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from relpref.classifiers.ranking_features import rankings_only
from relpref.data import Rankings
from relpref.errors import DataError
from relpref.kernels import (
    Cut,
    Features,
    cut_features,
    kendall_features,
    mallows_features,
    mallows_landmarks,
)

Floats = NDArray[np.float64]


class RankingTransformer(TransformerMixin, BaseEstimator):
    """What the transformers of rankings share: they keep the items, in whose order later rankings are brought.

    Attributes
    ----------
    items_ : PreferenceData
    n_features_in_ : int
        Number of items.
    """

    def _keep_items(self, X: Any) -> Rankings:
        data = rankings_only(X)
        self.items_ = data.items
        self.n_features_in_ = data.shape[1]
        return data

    def _aligned(self, X: Any) -> Rankings:
        check_is_fitted(self, "items_")
        return rankings_only(X).aligned(self.items_)

    def _labels(self) -> list[str]:
        check_is_fitted(self, "items_")
        return [str(label) for label in self.items_.entities]


class CutFeatures(RankingTransformer):
    """Cut features of rankings of any kind, one for each item, see `relpref.kernels.cut_features`.

    Parameters
    ----------
    graph : array, shape (n, n), or str, optional
        Weights between items, or the name of a relation of theirs; by default a squared exponential of their standardised attributes.
    lengthscale : "median" or float
        Of that squared exponential.
    keep : float, optional
        Only this share of the pairs of items, the heaviest, keep their weights.
    normalize : bool
        Divide by `relpref.kernels.cut_scale`.
    placements : "auto", "all", "sample" or "raw"
        How non-exhaustive rankings are treated.
    tolerance : float
        Of what is sampled.
    random_state : int

    Attributes
    ----------
    graph_ : array, shape (n, n)
        Weights between the items.
    """

    def __init__(
        self,
        graph: ArrayLike | str | None = None,
        *,
        lengthscale: Literal["median"] | float = "median",
        keep: float | None = None,
        normalize: bool = True,
        placements: Literal["auto", "all", "sample", "raw"] = "auto",
        tolerance: float = 0.05,
        random_state: int = 0,
    ) -> None:
        self.graph = graph
        self.lengthscale = lengthscale
        self.keep = keep
        self.normalize = normalize
        self.placements = placements
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: Rankings, y: Any = None) -> Self:
        """Make the graph of the items."""
        data = self._keep_items(X)
        kernel = Cut(self.graph, self.lengthscale, keep=self.keep)
        with jax.enable_x64(True):
            self.graph_: Floats = np.asarray(kernel.weights(data))
        return self

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, n)."""
        data = self._aligned(X)
        return np.asarray(
            cut_features(
                data,
                self.graph_,
                normalize=self.normalize,
                placements=self.placements,
                tolerance=self.tolerance,
                key=self.random_state,
            )
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The items' labels."""
        return np.array(self._labels(), dtype=object)


class KendallFeatures(RankingTransformer):
    """A feature for each pair of items, whose inner products are the Kendall kernel, see `relpref.kernels.kendall_features`."""

    def fit(self, X: Rankings, y: Any = None) -> Self:
        """Learn which items there are."""
        self._keep_items(X)
        return self

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, n(n − 1)/2)."""
        return np.asarray(kendall_features(self._aligned(X)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """``a > b`` for each pair."""
        labels = self._labels()
        first, second = np.triu_indices(len(labels), 1)
        return np.array(
            [f"{labels[i]} > {labels[j]}" for i, j in zip(first, second, strict=True)], dtype=object
        )


class MallowsFeatures(RankingTransformer):
    """A feature for each landmark ranking, by the Mallows kernel (Nyström's approximation), see `relpref.kernels.mallows_features`.

    Parameters
    ----------
    number : int
        Landmarks, chosen among the rankings of `fit`, at most.
    concentration : float, optional
        λ; 4/(n(n − 1)) by default, with which two random full rankings have the kernel e⁻¹ or so.
    samples : int
        Linear extensions drawn for a non-exhaustive ranking.
    random_state : int

    Attributes
    ----------
    concentration_ : float
    landmarks_ : Rankings
    landmark_error_ : float
        Share of the rankings' prior variance that the landmarks leave out.
    """

    def __init__(
        self,
        number: int = 300,
        *,
        concentration: float | None = None,
        samples: int = 32,
        random_state: int = 0,
    ) -> None:
        self.number = number
        self.concentration = concentration
        self.samples = samples
        self.random_state = random_state

    def fit(self, X: Rankings, y: Any = None) -> Self:
        """Choose landmarks."""
        self._fit(X)
        return self

    def fit_transform(self, X: Rankings, y: Any = None, **fit_params: Any) -> Floats:
        """Choose landmarks, and the features of the rankings that they were chosen from."""
        return self._fit(X)

    def _fit(self, X: Any) -> Floats:
        data = self._keep_items(X)
        if not len(data) or self.number < 1:
            raise DataError(
                f"MallowsFeatures: {self.number} landmarks out of {len(data)} rankings; one is needed"
            )
        n = max(self.n_features_in_, 2)
        self.concentration_ = 4.0 / (n * (n - 1)) if self.concentration is None else self.concentration
        self.landmarks_ = mallows_landmarks(data, self.number, concentration=self.concentration_)
        found = self._features(data)
        left_out = float(np.sum(np.asarray(found.residual)))
        self.landmark_error_ = left_out / float(np.sum(np.square(found.values)) + left_out)
        return np.asarray(found.values)

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, number of landmarks)."""
        return np.asarray(self._features(self._aligned(X)).values)

    def _features(self, data: Rankings) -> Features:
        return mallows_features(
            data,
            self.landmarks_,
            concentration=self.concentration_,
            samples=self.samples,
            key=self.random_state,
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """``mallows0``, ``mallows1``, ...."""
        check_is_fitted(self, "landmarks_")
        return np.array([f"mallows{number}" for number in range(len(self.landmarks_))], dtype=object)
