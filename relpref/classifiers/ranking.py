"""Classification of rankings by a Gaussian process, as a scikit-learn estimator."""

from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from relpref.classifiers.base import WARN_VARIANCE_SHARE, GPClassifier
from relpref.compiled import float64
from relpref.data import PreferenceData, Rankings
from relpref.data.arrays import shown
from relpref.errors import DataError
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
    mallows_landmarks,
)
from relpref.kernels.ranking import LandmarkFeatures, SampledMallows, medians
from relpref.limits import MAX_LINEAR_EXTENSIONS, MAX_RANKINGS_OF_ERROR
from relpref.models import ranking_classifier
from relpref.posterior.tables import objects
from relpref.result import warn_user
from relpref.skeleton import evaluated

Floats = NDArray[np.float64]

NAMES = ("kendall", "cut", "concave", "mallows")
# Number of samples. With fewer the error in relation to the norm stays below the tolerance, but
# rankings differ by little of that norm: of 300 rankings of 10 of 100 items 4, 8, 16 and 32 samples
# classify 63, 68, 71 and 74 % of new ones correctly.
_MIN_SAMPLES = 32


def rankings_only(X: Any) -> Rankings:
    """Refuse anything but rankings."""
    if not isinstance(X, Rankings):
        raise DataError(
            f"X is a {type(X).__name__}; give Rankings, such as Rankings.from_orders(X)"
        )
    return X


def _largest_share(values: Floats, error: Floats) -> float:
    """Largest norm of a row's standard errors in relation to that of the row."""
    norm, spread = (np.linalg.norm(part, axis=1) for part in (values, error))
    return float(np.divide(spread, norm, out=np.zeros_like(norm), where=norm > 0).max(initial=0.0))


def _left_out(features: Features) -> float:
    """Share of the prior variance that is not in the features."""
    left_out = 0.0 if features.residual is None else float(np.sum(features.residual))
    return left_out / (left_out + float(np.sum(np.square(features.values)))) if left_out else 0.0


def _require_exhaustive(data: Rankings, what: str) -> None:
    if not data.exhaustive:
        raise DataError(
            f"{what} takes rankings that place every item, and some of these do not; take "
            "kernel='kendall', 'cut' or 'concave' with a given graph or lengthscale, or "
            "rankings.completed() if what is missing comes last"
        )


class Treatment(NamedTuple):
    """Decisions at the training rankings, by which new ones are treated alike."""

    items: PreferenceData  # in the training rankings' order
    kernel: RankingKernel  # of the program: `GivenFeatures` where the features are computed before
    computed: "LandmarkFeatures | KendallFeatures | CutFeatures | None" = None
    error: float = 0.0  # of the training rankings' Mallows kernel with the landmarks
    exhaustive: bool = False  # whether it takes only rankings that place every item

    def prepare(self, rankings: Rankings) -> tuple[Rankings, float]:
        """Rankings in the form of the program, and the largest standard error of their features.

        The error is relative to the norm; for Mallows it is that of the training.
        """
        data = rankings.aligned(self.items)
        if self.computed is None:
            if self.exhaustive:
                _require_exhaustive(data, "this kernel")
            return data, 0.0
        features, error = self.computed.features(data)
        return data.with_features(*features), self.error or error


@dataclass(eq=False, repr=False, kw_only=True)
class RankingGPClassifier(ClassifierMixin, GPClassifier):
    """Classify rankings of any kind by a Gaussian process, with probabilities (GCK section 4.2).

    Parameters
    ----------
    kernel : "kendall", "cut", "concave", "mallows" or RankingKernel
        ``"cut"`` and ``"concave"`` use a graph of the items: ``graph``, or the similarity of their
        attributes; see ``function`` of `relpref.kernels.Cut`. ``"mallows"`` and ``"kendall"`` use
        pairs of items alone.
    graph : array, shape (n, n), or str, optional
        For ``"cut"`` and ``"concave"``: weights between items in their order, or the name of a
        relation; by default made of the items' attributes (``"concave"``: equal ones if there are
        no attributes).
    lengthscale : "median", "learn" or float
        For these on attributes: see `relpref.kernels.Cut`.
    link, engine : {"probit", "logit"}, {"ep", "laplace"}
    landmarks : int
        Maximum number of rankings that represent all others, used if a kernel has no features, or
        more of them: ``"mallows"``, and ``"kendall"`` with many items. The cost grows with the
        square; with one for each training ranking nothing is approximated.
    tol : float
        Standard error, relative to the norm, of features that are sampled, those of non-exhaustive
        rankings. The kernel "mallows" draws 32 to 256 linear extensions of each
        ranking, at a given concentration, by default the median of its prior.
    fixed, priors : dict, optional
        Values of hyperparameters that are not learned, such as ``{"amplitude": 2.0}``, and
        priors of the others, see `relpref.models.ranking_classifier`.
    random_state : int
        Seed of features that are sampled, and of the posterior's draws.

    Attributes
    ----------
    posterior_ : ClassPosterior
    classes_ : array
    landmark_error_ : float
        Share of the prior variance of the training rankings that the landmarks leave out, at the
        learned hyperparameters; 0 without landmarks. There is a warning where it is more than 0.3.
    sampling_error_ : float
        Largest standard error of a training ranking's features in relation to their norm (with
        "mallows" of its kernel with the landmarks, for the first hundred rankings); 0 where nothing
        was sampled.
    n_features_in_ : int
        Number of items.

    Examples
    --------
    >>> from relpref import Rankings
    >>> ballots = Rankings.from_orders([["tea", "coffee"], ["coffee", "tea"]] * 4)
    >>> classes = ["late", "early"] * 4
    >>> from relpref.classifiers import RankingGPClassifier
    >>> classifier = RankingGPClassifier("kendall").fit(ballots, classes)
    >>> classifier.predict(ballots[:2]).tolist()
    ['late', 'early']
    """

    kernel: str | RankingKernel = field(default="kendall", kw_only=False)
    graph: Any = None
    lengthscale: Any = "median"
    landmarks: int = 300
    tol: float = 0.05

    def fit(self, X: Rankings, y: Any = None, *, progress_bar: bool = False) -> Self:
        """Learn classes from rankings, by default those that the rankings carry.

        Raises
        ------
        DataError, InferenceError
            If an option does not fit, there is only one class, or the engine did not converge.
        """
        fixed = self._checked_fixed()
        data = rankings_only(X)
        if y is not None:
            data = data.with_labels(y)
        if data.label is None:
            raise DataError(
                "y is missing, and the rankings carry no labels; give one label for each ranking"
            )
        if len(np.unique(data.label)) < 2:
            raise DataError(
                f"all rankings are of the class {shown(data.classes[data.label[0]])}; give two "
                "classes"
            )
        self.n_features_in_ = data.shape[1]
        self._treatment = self.treatment(data, fixed.get("concentration"))
        kernel = self._treatment.kernel
        # With features that are computed before, the program has no such site.
        if self.kernel == "mallows" and self._treatment.computed:
            fixed.pop("concentration", None)
            if "concentration" in (self.priors or {}):
                raise DataError(
                    "priors names the concentration, which cannot be learned from rankings that do "
                    "not place every item; give its value "
                    "with fixed={'concentration': ...}"
                )
        prepared, self.sampling_error_ = self._treatment.prepare(data)
        options = {"kernel": kernel, "priors": self.priors}
        self.posterior_ = self._run(ranking_classifier, prepared, fixed, progress_bar, **options)
        learned = self.posterior_.hyperparameters
        values = {name: np.asarray(learned[name]) for name in kernel.parameters(prepared)}
        features = evaluated(lambda values: kernel.features(prepared, **values), values)
        self.landmark_error_ = _left_out(features)
        if self.landmark_error_ > WARN_VARIANCE_SHARE:
            warn_user(
                f"RankingGPClassifier: the landmarks leave out {100 * self.landmark_error_:.0f} % "
                f"of the prior variance of the {len(data)} training "
                "rankings, which counts as noise; give more of them with landmarks="
            )
        self.classes_: NDArray[Any] = _array(data.classes)
        return self

    def treatment(self, data: Rankings, concentration: float | None = None) -> Treatment:
        """Decide how to treat rankings; refuse options that contradict one another or the data."""
        kernel, most = self.kernel, self.landmarks
        if most < 1:
            raise DataError(f"landmarks is {most}; it must be at least 1")
        graphical = kernel in ("cut", "concave")
        if not graphical and (self.graph is not None or self.lengthscale != "median"):
            raise DataError(
                f"graph and lengthscale belong to kernel='cut' and 'concave'; kernel is {kernel!r}"
            )
        if isinstance(kernel, RankingKernel):
            return Treatment(data.items, kernel)
        if kernel not in NAMES:
            raise DataError(
                f"kernel is {kernel!r}; it is one of {', '.join(map(repr, NAMES))} or a kernel of "
                "relpref.kernels"
            )
        by_features = partial(Treatment, data.items, GivenFeatures())
        if graphical:
            options = {"lengthscale": self.lengthscale, "function": kernel}
            if self.lengthscale == "learn":
                _require_exhaustive(data, "a graph with a lengthscale to be learned")
                return Treatment(data.items, Cut(self.graph, **options), exhaustive=True)
            options |= {"tol": self.tol, "random_state": self.random_state}
            return by_features(CutFeatures(self.graph, **options).fit(data))
        n = data.shape[1]
        if kernel == "kendall":
            if n * (n - 1) // 2 <= most:
                return by_features(KendallFeatures())
            few = Landmarks.choose(Kendall(), data, most).rankings
            return by_features(LandmarkFeatures(Kendall(), few))
        if data.exhaustive:
            at = {} if concentration is None else {"concentration": concentration}
            return Treatment(
                data.items, Landmarks.choose(Mallows(), data, most, **at), exhaustive=True
            )
        if concentration is None:
            concentration = float(medians(Mallows(), data)["concentration"])
        few = mallows_landmarks(data, most, concentration=concentration)
        sampled = SampledMallows(concentration, _MIN_SAMPLES, self.random_state)
        while True:
            cross = sampled.gram(data[:MAX_RANKINGS_OF_ERROR], few, return_error=True)
            error = _largest_share(*cross)
            if error <= self.tol or sampled.samples >= MAX_LINEAR_EXTENSIONS:
                return by_features(LandmarkFeatures(sampled, few), error)
            sampled = replace(sampled, samples=2 * sampled.samples)

    def predict_proba(self, X: Rankings) -> Floats:
        """Probability of each class, shape (m, number of classes), in the order of ``classes_``."""
        check_is_fitted(self, "posterior_")
        prepared, _ = self._treatment.prepare(rankings_only(X))
        return np.asarray(self.posterior_.predict_proba(prepared).to_numpy())

    def predict(self, X: Rankings) -> NDArray[Any]:
        """The most probable class of each ranking, shape (m,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def _array(labels: tuple[Any, ...]) -> NDArray[Any]:
    """Array of labels of one type, for scikit-learn's measures; of objects if types differ."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], str | int | float):
        return np.asarray(labels)
    return np.asarray(objects(labels))


class RankingTransformer(TransformerMixin, BaseEstimator):
    """Base of transformers of rankings: they bring later rankings into the order of their items.

    Attributes
    ----------
    items_ : PreferenceData
    n_features_in_ : int
        Number of items.
    """

    def fit(self, X: Rankings, y: Any = None) -> Self:
        """Learn the items, and the quantities that the features depend on."""
        self._learn(X)
        return self

    def _learn(self, X: Any) -> Rankings:
        data = rankings_only(X)
        self.items_, self.n_features_in_ = data.items, data.shape[1]
        return data

    def features(self, data: Rankings) -> tuple[Features, float]:
        """Features of rankings of the items in order, and their largest relative standard error."""
        raise NotImplementedError

    def transform(self, X: Rankings) -> Floats:
        """Features, shape (m, r)."""
        check_is_fitted(self, "items_")
        return np.asarray(self.features(rankings_only(X).aligned(self.items_))[0].values)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        check_is_fitted(self, "items_")
        return np.array(self._names([str(label) for label in self.items_.labels]), dtype=object)

    def _names(self, items: list[str]) -> list[str]:
        return items


@dataclass(eq=False, repr=False)
class CutFeatures(RankingTransformer):
    """Cut features of rankings of any kind, one for each item, see `relpref.kernels.cut_features`.

    Parameters
    ----------
    graph, lengthscale, keep, function
        See `relpref.kernels.Cut`; the lengthscale is "median" or a number.
    normalize, placements, tol
        See `relpref.kernels.cut_features`.
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
    function: Literal["cut", "concave"] = "cut"
    normalize: bool = True
    placements: Literal["auto", "all", "sample", "raw"] = "auto"
    tol: float = 0.05
    random_state: int = 0

    def _learn(self, X: Any) -> Rankings:
        data = super()._learn(X)
        with float64():
            kernel = Cut(self.graph, self.lengthscale, keep=self.keep, function=self.function)
            self.graph_: Floats = np.asarray(kernel.weights(data))
        return data

    def features(self, data: Rankings) -> tuple[Features, float]:
        values, error = cut_features(
            data,
            self.graph_,
            function=self.function,
            normalize=self.normalize,
            placements=self.placements,
            tol=self.tol,
            rng_key=self.random_state,
            return_error=True,
        )
        return Features(values), _largest_share(values, error)


class KendallFeatures(RankingTransformer):
    """Features of pairs of items, whose inner products are the Kendall kernel.

    See `relpref.kernels.kendall_features`.
    """

    def features(self, data: Rankings) -> tuple[Features, float]:
        return Features(kendall_features(data)), 0.0

    def _names(self, items: list[str]) -> list[str]:
        return [f"{first} > {second}" for first, second in combinations(items, 2)]


@dataclass(eq=False, repr=False)
class MallowsFeatures(RankingTransformer):
    """Features for rankings of any kind by the Mallows kernel with landmarks (Nyström).

    Parameters
    ----------
    number : int
        Maximum number of landmarks, chosen among the rankings of `fit`.
    concentration : float, optional
        λ; 4/(n(n − 1)) by default, with which two random full rankings have the kernel e⁻¹ or so.
    samples : int
        Number of linear extensions drawn for a non-exhaustive ranking.
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

    def fit_transform(self, X: Rankings, y: Any = None, **fit_params: Any) -> Floats:
        """Choose landmarks, and return the features of the rankings that they were chosen from."""
        data = super()._learn(X)
        if not len(data) or self.number < 1:
            raise DataError(
                f"MallowsFeatures: {self.number} landmarks of {len(data)} rankings; give 1 at least"
            )
        n = max(self.n_features_in_, 2)
        self.concentration_ = (
            4.0 / (n * (n - 1)) if self.concentration is None else self.concentration
        )
        self.landmarks_ = mallows_landmarks(data, self.number, concentration=self.concentration_)
        self._features = LandmarkFeatures(
            SampledMallows(self.concentration_, self.samples, self.random_state), self.landmarks_
        )
        features, _ = self.features(data)
        self.landmark_error_ = _left_out(features)
        return np.asarray(features.values)

    def _learn(self, X: Any) -> Any:
        return self.fit_transform(X)

    def features(self, data: Rankings) -> tuple[Features, float]:
        return self._features.features(data)

    def _names(self, items: list[str]) -> list[str]:
        return [f"mallows{number}" for number in range(len(self.landmarks_))]
