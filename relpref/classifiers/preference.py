"""Ranking of items from comparisons, as a scikit-learn classifier of pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from relpref.data.tables import as_table, is_table
from relpref.errors import DataError
from relpref.fitting import fit


@dataclass(eq=False, repr=False, kw_only=True)
class PreferenceRanker(ClassifierMixin, BaseEstimator):
    """Rank items from comparisons, and predict which of two items is preferred.

    Short for `relpref.fit`, for scikit-learn's pipelines, searches and cross-validation. To predict
    items that were never compared, leave out whole items by group (`GroupKFold`).

    Parameters
    ----------
    items, relations
        See `relpref.fit`. Give all items there, those of later predictions too: by default they are
        the labels in the training pairs.
    model, engine, hyperparameters, likelihood, attribute_kernel, relation_kernels
        See `relpref.fit`, whose defaults stand for None.
    covariates : sequence of str
        Columns of the pairs that describe the two sides, see `relpref.fit`.
    options : mapping, optional
        Further options of `relpref.fit`, such as ``{"restarts": 3}``.
    random_state : int

    Attributes
    ----------
    classes_ : array, shape (2,)
        The sorted values of y; the second says that the first item of the pair was preferred.
    posterior_ : UtilityPosterior
        Ranking with intervals, probabilities, diagnostics, next questions.
    n_features_in_ : int
        Number of columns of the pairs.
    feature_names_in_ : array of str
        Their names, if the pairs are a data frame.

    Examples
    --------
    >>> from relpref import PreferenceRanker
    >>> pairs = [("tea", "coffee"), ("tea", "water"), ("water", "coffee")]
    >>> ranker = PreferenceRanker().fit(pairs, [1, 1, 0])
    >>> ranker.predict([("tea", "water")])
    array([1])
    """

    items: Any = None
    relations: Mapping[str, Any] | None = None
    model: str = "xpgp"
    engine: str = "EP"
    hyperparameters: str | None = None
    likelihood: Any = None
    attribute_kernel: Any = None
    relation_kernels: Mapping[str, Any] | None = None
    covariates: Sequence[str] = ()
    options: Mapping[str, Any] | None = None
    random_state: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the model to answers about pairs.

        Parameters
        ----------
        X : table or array-like, shape (m, 2)
            First and second item of each pair. A table has the columns ``first`` and ``second`` (or
            two columns alone), and may have those of covariates, ``rater``, ``group``, ``count``
            and ``weight``.
        y : array-like, shape (m,)
            Two values, such as 0 and 1: the greater one where the first was preferred.

        Raises
        ------
        DataError
            If X is no table of pairs, or y has not two values.
        """
        pairs, names = _pairs(X)
        given = np.asarray(y)
        if given.shape != (len(pairs),):
            raise DataError(
                f"y has the shape {given.shape}, and X has {len(pairs)} pairs; give a value for "
                "each pair"
            )
        self.classes_ = np.unique(given)
        if len(self.classes_) != 2:
            raise DataError(
                f"y has {len(self.classes_)} classes; give two values, the greater one where the "
                "first was preferred. relpref.fit takes ties and answers of other kinds"
            )
        self.n_features_in_ = pairs.shape[1]
        if names is not None:
            self.feature_names_in_ = names
        options = {name: value for name in _CHOSEN if (value := getattr(self, name)) is not None}
        self.posterior_ = fit(
            self.items,
            pairs.assign(result=(given == self.classes_[1]).astype(float)),
            self.relations,
            self.model,
            self.random_state,
            covariates=self.covariates,
            engine=self.engine,
            progress_bar=False,
            **{**options, **(self.options or {})},
        )
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (m, 2); see `UtilityPosterior.prefer`."""
        check_is_fitted(self)
        pairs, names = _pairs(X)
        expected = getattr(self, "feature_names_in_", None)
        if pairs.shape[1] != self.n_features_in_ or (
            names is not None and expected is not None and list(names) != list(expected)
        ):
            raise DataError(
                f"X has {pairs.shape[1]} features, but PreferenceRanker is expecting "
                f"{self.n_features_in_} features as input: the columns of the training pairs"
            )
        asked = pairs.drop(columns=[name for name in _ONLY_LEARNED if name in pairs])
        first = self.posterior_.prefer(asked)["probability"].to_numpy()
        return np.stack([1 - first, first], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of each pair, shape (m,)."""
        first = self.predict_proba(X)[:, 1]
        return self.classes_[(first > 0.5).astype(int)]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log odds that the first is preferred, shape (m,)."""
        second, first = self.predict_proba(X).T
        return np.log(first) - np.log(second)


_CHOSEN = ("hyperparameters", "likelihood", "attribute_kernel", "relation_kernels")
_ONLY_LEARNED = ("count", "group", "weight")  # columns of answers, not of questions


def _pairs(X: Any) -> tuple[pd.DataFrame, NDArray[Any] | None]:
    """Return pairs as a table with the columns first and second, and the names of its columns."""
    if not is_table(X):
        cells = X if isinstance(X, np.ndarray) else np.array([tuple(row) for row in X], object)
        if cells.ndim != 2 or cells.shape[1] != 2:
            raise DataError(
                f"X has the shape {cells.shape}; give two columns, the first and the second item "
                "of each pair, or a table with the columns first and second"
            )
        return pd.DataFrame(cells, columns=["first", "second"]), None
    frame = as_table(X, "X").frame.reset_index(drop=True)
    names = np.asarray(frame.columns, dtype=object)
    if not {"first", "second"} <= set(names) and len(names) == 2:
        frame = frame.set_axis(["first", "second"], axis=1)
    if not {"first", "second"} <= set(frame.columns):
        raise DataError(
            f"X has the columns {', '.join(map(str, names))}; name those of the two items first "
            "and second"
        )
    return frame, names
