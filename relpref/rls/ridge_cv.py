"""Estimators that choose their regularisation by hold-outs that cost no training, as RidgeCV of scikit-learn does."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from relpref.errors import DataError
from relpref.rls import hold_out, pair_out
from relpref.rls.measures import concordance, per_node
from relpref.rls.node_kernels import Kernel
from relpref.rls.ridge import RLS, KernelRegressor, RankRLS, positive
from relpref.rls.ridge_spectrum import Floats, Indices, RidgeSpectrum

REGULARIZATIONS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)


class ChosenRegularization(KernelRegressor):
    """What the estimators have in common: one decomposition, scores of many regularisations, a solution for the best."""

    _criteria: ClassVar[tuple[str, ...]]
    _least_examples = 3

    def __init__(
        self,
        kernel: Kernel = "linear",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        kernel_params: Mapping[str, Any] | None = None,
        regularizations: ArrayLike = REGULARIZATIONS,
        cv: str | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.regularizations = regularizations
        self.cv = cv

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Choose the regularisation and fit.

        Parameters
        ----------
        X : array or sparse matrix, shape (m, d)
            For a precomputed kernel the kernel itself, shape (m, m).
        y : array, shape (m,) or (m, outputs)
        groups : array, shape (m,), optional
            For ``cv="leave_group_out"``; for the ranking loss the query of each example, whatever ``cv`` is.
        """
        cv = self._criteria[0] if self.cv is None else self.cv
        if cv not in self._criteria:
            raise DataError(f"cv is {cv!r}; {type(self).__name__} has {', '.join(self._criteria)}")
        if cv == "leave_group_out" and groups is None:
            raise DataError('cv="leave_group_out" needs groups=, the group of each example')
        values = positive(self.regularizations)
        numbers = self._fit(X, y, groups)
        if cv == "leave_group_out" and numbers is not None and not numbers.any():
            raise DataError("groups has a single group; without it nothing is left to train on")
        self.cv_scores_ = self._scores(cv, values, numbers)
        self.best_score_ = float(self.cv_scores_.max())
        return self._solve(values[self.cv_scores_ == self.best_score_].max())

    @abstractmethod
    def _scores(self, cv: str, values: Floats, groups: Indices | None) -> Floats:
        """Score of each regularisation; greater is better."""


class RLSCV(ChosenRegularization, RLS):
    """`RLS` whose regularisation is chosen by exact hold-outs.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        See `gram`.
    regularizations : array, shape (r,)
        Positive values to choose from; each costs one product of m x m matrices at most, no training.
    cv : {"leave_one_out", "leave_pair_out", "leave_group_out"}
        What is left out; ``"leave_one_out"`` by default. The score of pairs is their concordance, that of examples and groups minus
        the mean squared error.

    Attributes
    ----------
    regularization_ : float
        The best; the largest of several equally good ones.
    cv_scores_ : array, shape (r,)
        Means over the outputs.
    best_score_ : float
    dual_coef_, X_fit_, n_features_in_, feature_names_in_
        As of `RLS`.
    """

    _criteria = ("leave_one_out", "leave_pair_out", "leave_group_out")

    def _scores(self, cv: str, values: Floats, groups: Indices | None) -> Floats:
        if cv == "leave_pair_out":
            return mean_concordance(self._spectrum, values)
        if cv == "leave_one_out" or groups is None:
            predicted = hold_out.leave_one_out(self._spectrum, values)
        else:
            predicted = hold_out.leave_group_out(self._spectrum, groups, values)
        return -np.mean(np.square(self._spectrum.labels - predicted), axis=(1, 2))


class RankRLSCV(ChosenRegularization, RankRLS):
    """`RankRLS` whose regularisation is chosen by exact hold-outs.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        See `gram`.
    regularizations : array, shape (r,)
        Positive values to choose from; each costs one product of m x m matrices at most, no training.
    cv : {"leave_pair_out", "leave_group_out"}
        What is left out: every pair (by default), or every query of `fit`'s ``groups``. The score is the concordance, of all pairs
        or the mean of the queries'.

    Attributes
    ----------
    regularization_ : float
        The best; the largest of several equally good ones.
    cv_scores_ : array, shape (r,)
        Means over the outputs.
    best_score_ : float
    dual_coef_, X_fit_, n_features_in_, feature_names_in_
        As of `RankRLS`.
    """

    _criteria = ("leave_pair_out", "leave_group_out")

    def _scores(self, cv: str, values: Floats, groups: Indices | None) -> Floats:
        spectrum = self._spectrum
        if cv == "leave_pair_out" or groups is None:
            return mean_concordance(spectrum, values)
        predicted = hold_out.leave_group_out(spectrum, groups, values)
        # One row for each query, in which the others are not observed.
        own = np.where(groups == np.arange(groups.max() + 1)[:, None], 0.0, np.nan)
        return np.array(
            [
                np.nanmean(
                    [
                        per_node(concordance, own + y, own + f).mean
                        for y, f in zip(labels, scores, strict=True)
                    ]
                )
                for labels, scores in ((spectrum.labels.T, held_out.T) for held_out in predicted)
            ]
        )


def mean_concordance(spectrum: RidgeSpectrum, values: Floats) -> Floats:
    """Leave-pair-out concordance, mean over the outputs that have different labels."""
    concordances = pair_out.leave_pair_out(spectrum, values).concordance
    defined = ~np.isnan(concordances[0])
    if not defined.any():
        raise DataError("y is constant: no pair is in an order that could be found again; check the labels")
    return concordances[:, defined].mean(axis=1)
