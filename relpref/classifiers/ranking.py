"""Classifying those who give rankings by a Gaussian process, as a scikit-learn estimator."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from relpref.classifiers.base import WARN_VARIANCE_SHARE, GPClassifier
from relpref.data import PreferenceData, Rankings
from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.infer.result import warn_user
from relpref.kernels import (
    Cut,
    Features,
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
from relpref.kernels.graph import factored_features
from relpref.kernels.mallows import kendall_diagonal, mallows_variances
from relpref.kernels.positions import in_double
from relpref.limits import MAX_LINEAR_EXTENSIONS, MAX_RANKINGS_OF_ERROR
from relpref.linalg import cholesky
from relpref.models import ranking_classifier
from relpref.posterior.tables import objects

Floats = NDArray[np.float64]

NAMES = ("kendall", "cut", "mallows")
# Samples. With fewer the error in relation to the norm stays below the tolerance, but rankings differ by little of that norm:
# of 300 rankings of 10 of 100 items 4, 8, 16 and 32 samples classify 63, 68, 71 and 74 % of new ones correctly.
_FEWEST = 32


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


@dataclass(frozen=True, eq=False)
class LandmarkFeatures:
    """Features of rankings of any kind by a kernel with a few of them (Nyström's approximation).

    Attributes
    ----------
    landmarks : Rankings
    concentration : float or None
        λ of the Mallows kernel; None for the Kendall kernel.
    samples, key
        Of the Mallows kernel: linear extensions for each ranking, and their random key.
    """

    landmarks: Rankings
    concentration: float | None = None
    samples: int = _FEWEST
    key: int = 0

    @property
    def _options(self) -> dict[str, Any]:
        return {"concentration": self.concentration, "samples": self.samples, "key": self.key}

    def _gram(self, *rankings: Rankings) -> Floats:
        if self.concentration is None:
            return np.asarray(kendall_kernel(*rankings))
        return np.asarray(mallows_kernel(*rankings, **self._options))

    @cached_property
    def _factor(self) -> Floats:
        return np.asarray(in_double(lambda gram: cholesky(gram).lower, self._gram(self.landmarks)))

    def features(self, data: Rankings) -> tuple[Features, float]:
        """Features, and 0: for the error that sampling leaves see `sampling_error`."""
        if self.concentration is None:
            diagonal = in_double(kendall_diagonal, data.positions)
        else:
            diagonal = mallows_variances(data, **self._options)
        cross = self._gram(data, self.landmarks)
        return Features(*in_double(jax.jit(factored_features), cross, self._factor, diagonal)), 0.0

    def sampling_error(self, data: Rankings) -> float:
        """Of the kernel with the landmarks, for some of the rankings."""
        options = self._options | {"return_error": True}
        return _largest_share(*mallows_kernel(data[:MAX_RANKINGS_OF_ERROR], self.landmarks, **options))


@dataclass(frozen=True, eq=False)
class RankingFeatures:
    """What was decided when the training rankings were seen, so that new ones are treated alike.

    Attributes
    ----------
    items : PreferenceData
        In the training rankings' order.
    kernel : RankingKernel
        Of the program: `GivenFeatures` where the features are computed before.
    computed : object with ``features``, or None
        Which computes them.
    error : float
        Largest standard error of the training rankings' Mallows kernel with the landmarks in relation to its norm.
    partial : bool
        Whether rankings that do not place every item can be treated.
    """

    items: PreferenceData
    kernel: RankingKernel
    computed: "LandmarkFeatures | KendallFeatures | CutFeatures | None" = None
    error: float = 0.0
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
        if isinstance(kernel, RankingKernel):
            return cls(data.items, kernel)
        if kernel not in NAMES:
            raise DataError(
                f"kernel is {kernel!r}; it is one of {', '.join(map(repr, NAMES))} or a kernel of relpref.kernels"
            )
        if kernel == "cut" and lengthscale == "learn":
            _require_exhaustive(data, "a graph with a lengthscale to be learned")
            return cls(data.items, Cut(graph, lengthscale), partial=False)
        if kernel == "cut":
            cut = CutFeatures(graph, lengthscale=lengthscale, tolerance=tolerance, random_state=key)
            return cls(data.items, GivenFeatures(), cut.fit(data))
        n = data.shape[1]
        if kernel == "kendall" and n * (n - 1) // 2 <= landmarks:
            return cls(data.items, GivenFeatures(), KendallFeatures())
        if kernel == "kendall":
            few = Landmarks.choose(Kendall(), data, landmarks).rankings
            return cls(data.items, GivenFeatures(), LandmarkFeatures(few))
        if data.exhaustive:
            given = {} if concentration is None else {"concentration": concentration}
            return cls(data.items, Landmarks.choose(Mallows(), data, landmarks, **given), partial=False)
        if concentration is None:
            with jax.enable_x64(True):
                concentration = float(Mallows().parameters(data)["concentration"].icdf(0.5))
        few = mallows_landmarks(data, landmarks, concentration=concentration)
        computed = LandmarkFeatures(few, concentration, key=key)
        while (
            error := computed.sampling_error(data)
        ) > tolerance and computed.samples < MAX_LINEAR_EXTENSIONS:
            computed = replace(computed, samples=2 * computed.samples)
        return cls(data.items, GivenFeatures(), computed, error)

    def prepare(self, rankings: Rankings) -> tuple[Rankings, float]:
        """Rankings as the program wants them, and the largest standard error of their features in relation to their norm.

        For Mallows features it is that of the training rankings.
        """
        data = rankings.aligned(self.items)
        if self.computed is None:
            if not self.partial:
                _require_exhaustive(data, "this kernel")
            return data, 0.0
        features, error = self.computed.features(data)
        return data.with_features(*features), self.error or error


@dataclass(eq=False, repr=False, kw_only=True)
class RankingGPClassifier(ClassifierMixin, GPClassifier):
    """Who gave a ranking, with a probability: a Gaussian process classifier of rankings of any kind (GCK section 4.2).

    Parameters
    ----------
    kernel : "kendall", "cut", "mallows" or RankingKernel
        ``"cut"`` looks at a graph of the items: at ``graph``, or at the similarity of their attributes. ``"mallows"`` and
        ``"kendall"`` look at pairs of items alone.
    graph : array, shape (n, n), or str, optional
        For ``"cut"``: weights between items in their order, or the name of a relation of theirs; made of the items' attributes
        by default.
    lengthscale : "median", "learn" or float
        For ``"cut"`` on attributes: see `relpref.kernels.Cut`.
    link : {"probit", "logit"}
    landmarks : int
        How many rankings stand for all others at most, where a kernel has no features or more than so many: ``"mallows"``, and
        ``"kendall"`` with many items. The cost grows with the square; with one for each training ranking nothing is approximated.
    engine : {"ep", "laplace"}
    tolerance : float
        Of features that have to be sampled, those of non-exhaustive rankings: their standard error in relation to their norm. The kernel
        "mallows" draws 32 to 256 linear extensions of each ranking, and has a given concentration then, by default the median of
        its prior.
    fixed : dict, optional
        Values of hyperparameters that are not to be learned, such as ``{"amplitude": 2.0}``.
    priors : dict, optional
        Of hyperparameters, see `relpref.models.ranking_classifier`.
    random_state : int
        For features that are sampled, and for the posterior's draws.

    Attributes
    ----------
    posterior_ : ClassPosterior
    classes_ : array
    landmark_error_ : float
        Share of the prior variance of the training rankings that the landmarks leave out, at the hyperparameters found; 0 without
        landmarks. There is a warning where it is more than 0.3.
    sampling_error_ : float
        Largest standard error of a training ranking's features in relation to their norm (with "mallows" of its kernel with the
        landmarks, for the first hundred rankings); 0 where nothing was sampled.
    n_features_in_ : int
        Number of items.
    """

    kernel: str | RankingKernel = field(default="kendall", kw_only=False)
    graph: Any = None
    lengthscale: Any = "median"
    landmarks: int = 300
    tolerance: float = 0.05

    def fit(self, X: Rankings, y: Any = None, *, progress_bar: bool = False) -> Self:
        """Learn classes from rankings.

        Parameters
        ----------
        X : Rankings
        y : sequence of m labels, optional
            Those that the rankings carry by default.
        progress_bar : bool
            Show the search for hyperparameters where a person watches.

        Raises
        ------
        DataError
            If an option does not fit, or there is only one class.
        InferenceError
            If the engine did not converge.
        """
        fixed = self._checked_fixed()
        data = rankings_only(X)
        if y is not None:
            data = data.with_labels(y)
        if data.label is None:
            raise DataError("y is missing, and the rankings carry no labels; give one label for each ranking")
        if len(np.unique(data.label)) < 2:
            raise DataError(
                f"all rankings are of the class {shown(data.classes[data.label[0]])}; give rankings of two classes or more"
            )
        self.n_features_in_ = data.shape[1]
        self._features = RankingFeatures.choose(
            self.kernel,
            data,
            graph=self.graph,
            lengthscale=self.lengthscale,
            landmarks=self.landmarks,
            tolerance=self.tolerance,
            concentration=fixed.get("concentration"),
            key=self.random_state,
        )
        if (
            self.kernel == "mallows" and self._features.computed
        ):  # features are computed before: this is no site
            fixed.pop("concentration", None)
            if "concentration" in (self.priors or {}):
                raise DataError(
                    "priors names the concentration, which cannot be learned from rankings that do not place every item; give its value "
                    "with fixed={'concentration': ...}"
                )
        prepared, self.sampling_error_ = self._features.prepare(data)
        options = {"kernel": self._features.kernel, "priors": self.priors}
        self.posterior_ = self._run(ranking_classifier, prepared, fixed, progress_bar, **options)
        self.landmark_error_ = _left_out(self._features.kernel, prepared, self.posterior_.hyperparameters)
        if self.landmark_error_ > WARN_VARIANCE_SHARE:
            warn_user(
                f"RankingGPClassifier: the landmarks leave out {100 * self.landmark_error_:.0f} % of the prior variance of the {len(data)} training "
                "rankings, which counts as noise; give more of them with landmarks="
            )
        self.classes_: NDArray[Any] = _array(data.classes)
        return self

    def predict_proba(self, X: Rankings) -> NDArray[np.float64]:
        """Probability of each class, shape (m, number of classes), in the order of ``classes_``."""
        check_is_fitted(self, "posterior_")
        prepared, _ = self._features.prepare(rankings_only(X))
        return np.asarray(self.posterior_.predict_proba(prepared).to_numpy())

    def predict(self, X: Rankings) -> NDArray[Any]:
        """The most probable class of each ranking, shape (m,)."""
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])


def _left_out(kernel: RankingKernel, data: Rankings, hyperparameters: Mapping[str, Any]) -> float:
    """Share of the prior variance that is not in the features."""
    with jax.enable_x64(True):
        values = {name: jnp.asarray(hyperparameters[name]) for name in kernel.parameters(data)}
        features = kernel.features(data, **values)
        if features.residual is None:
            return 0.0
        left_out = float(jnp.sum(features.residual))
        return left_out / (left_out + float(jnp.sum(jnp.square(features.values))))


def _array(labels: tuple[Any, ...]) -> NDArray[Any]:
    """An array of the labels' own type, as scikit-learn's measures want it; of objects where they are of several."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], str | int | bool | float):
        return np.asarray(labels)
    return np.asarray(objects(labels))


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


@dataclass(eq=False, repr=False)
class CutFeatures(RankingTransformer):
    """Cut features of rankings of any kind, one for each item, see `relpref.kernels.cut_features`.

    Parameters
    ----------
    graph : array, shape (n, n), or str, optional
        Weights between items, or the name of a relation of theirs; by default a squared exponential of their standardized attributes.
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

    graph: ArrayLike | str | None = None
    _: KW_ONLY
    lengthscale: Literal["median"] | float = "median"
    keep: float | None = None
    normalize: bool = True
    placements: Literal["auto", "all", "sample", "raw"] = "auto"
    tolerance: float = 0.05
    random_state: int = 0

    def fit(self, X: Rankings, y: Any = None) -> Self:
        """Make the graph of the items."""
        data = self._keep_items(X)
        kernel = Cut(self.graph, self.lengthscale, keep=self.keep)
        with jax.enable_x64(True):
            self.graph_: Floats = np.asarray(kernel.weights(data))
        return self

    def features(self, data: Rankings) -> tuple[Features, float]:
        """Features of rankings of the same items in their order, and their largest standard error in relation to their norm."""
        values, error = cut_features(
            data,
            self.graph_,
            normalize=self.normalize,
            placements=self.placements,
            tolerance=self.tolerance,
            key=self.random_state,
            return_error=True,
        )
        return Features(values, None), _largest_share(values, error)

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, n)."""
        return np.asarray(self.features(self._aligned(X))[0].values)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        return np.array(self._labels(), dtype=object)


class KendallFeatures(RankingTransformer):
    """A feature for each pair of items, whose inner products are the Kendall kernel, see `relpref.kernels.kendall_features`."""

    def fit(self, X: Rankings, y: Any = None) -> Self:
        """Learn which items there are."""
        self._keep_items(X)
        return self

    def features(self, data: Rankings) -> tuple[Features, float]:
        """Features of rankings of the same items in their order, which have no error."""
        return Features(kendall_features(data), None), 0.0

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, n(n − 1)/2)."""
        return np.asarray(self.features(self._aligned(X))[0].values)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """``a > b`` for each pair."""
        labels = self._labels()
        first, second = np.triu_indices(len(labels), 1)
        return np.array(
            [f"{labels[i]} > {labels[j]}" for i, j in zip(first, second, strict=True)], dtype=object
        )


@dataclass(eq=False, repr=False)
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

    number: int = 300
    _: KW_ONLY
    concentration: float | None = None
    samples: int = 32
    random_state: int = 0

    def fit(self, X: Rankings, y: Any = None) -> Self:
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
        self._features = LandmarkFeatures(
            self.landmarks_, self.concentration_, self.samples, self.random_state
        )
        found, _ = self._features.features(data)
        left_out = float(np.sum(np.asarray(found.residual)))
        self.landmark_error_ = left_out / float(np.sum(np.square(found.values)) + left_out)
        return np.asarray(found.values)

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, number of landmarks)."""
        return np.asarray(self._features.features(self._aligned(X))[0].values)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """``mallows0``, ``mallows1``, ...."""
        check_is_fitted(self, "landmarks_")
        return np.array([f"mallows{number}" for number in range(len(self.landmarks_))], dtype=object)
