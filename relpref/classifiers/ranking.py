"""Classifying those who give rankings by a Gaussian process, as a scikit-learn estimator."""

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from relpref.classifiers.engines import engine_named
from relpref.classifiers.ranking_features import RankingFeatures, rankings_only
from relpref.data import Rankings
from relpref.data.messages import shown
from relpref.errors import DataError
from relpref.infer.ranks import objects
from relpref.infer.warn import warn_user
from relpref.kernels import RankingKernel
from relpref.models import ranking_classifier

_MUCH = 0.3  # of the prior variance, to be left out by landmarks


class RankingGPClassifier(ClassifierMixin, BaseEstimator):
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

    def __init__(
        self,
        kernel: str | RankingKernel = "kendall",
        *,
        graph: Any = None,
        lengthscale: Any = "median",
        link: str = "probit",
        landmarks: int = 300,
        engine: str = "ep",
        tolerance: float = 0.05,
        fixed: Mapping[str, Any] | None = None,
        priors: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.graph = graph
        self.lengthscale = lengthscale
        self.link = link
        self.landmarks = landmarks
        self.engine = engine
        self.tolerance = tolerance
        self.fixed = fixed
        self.priors = priors
        self.random_state = random_state

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
        engine = engine_named(self.engine)
        if "weight" in (self.fixed or {}):
            raise DataError(
                "fixed names the weight, which is what the rankings teach; give values of hyperparameters, such as {'amplitude': 2.0}"
            )
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
            concentration=(self.fixed or {}).get("concentration"),
            key=self.random_state,
        )
        fixed = dict(self.fixed or {})
        if self._features.source == "mallows":  # its features are computed before, so that this is no site
            fixed.pop("concentration", None)
            if "concentration" in (self.priors or {}):
                raise DataError(
                    "priors names the concentration, which cannot be learned from rankings that do not place every item; give its value "
                    "with fixed={'concentration': ...}"
                )
        prepared, self.sampling_error_ = self._features.prepare(data)
        self.posterior_: Any = engine(ranking_classifier, fixed=fixed).run(
            self.random_state,
            prepared,
            kernel=self._features.kernel,
            link=self.link,
            priors=self.priors,
            progress_bar=progress_bar,
        )
        self.landmark_error_ = _left_out(self._features.kernel, prepared, self.posterior_.hyperparameters)
        if self.landmark_error_ > _MUCH:
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
