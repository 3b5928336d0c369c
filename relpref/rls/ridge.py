"""Regularized least squares for scores and for their order, as scikit-learn estimators."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from relpref.data.arrays import Floats, Indices
from relpref.errors import DataError
from relpref.linalg import require_memory
from relpref.rls import spectrum
from relpref.rls.node_kernels import KernelEstimator
from relpref.rls.spectrum import LeavePairOut, RidgeSpectrum
from relpref.rls.splits import concordance, per_node

REGULARIZATIONS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)


class KernelRegressor(RegressorMixin, KernelEstimator, ABC):
    """Base of estimators with a kernel, one eigendecomposition, and exact hold-outs from it."""

    _least_examples: ClassVar = 1

    @abstractmethod
    def _decompose(
        self, kernel: Floats, labels: Floats, queries: Indices | None
    ) -> RidgeSpectrum: ...

    def _fit(self, X: Any, y: Any, groups: ArrayLike | None) -> Indices | None:
        """Check and decompose; return the groups by number."""
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=self._least_examples,
        )
        y = np.asarray(y, dtype=np.float64)
        queries = None if groups is None else _numbered(groups, len(y))
        require_memory(6 * 8.0 * len(y) ** 2, f"a fit to {len(y)} examples")
        self._single_output = y.ndim == 1
        self._spectrum = self._decompose(self._gram(X), y.reshape(len(y), -1), queries)
        self.X_fit_ = X
        return queries

    def _solve(self, regularization: float) -> Self:
        """Set the coefficients at a regularization."""
        self.regularization_ = float(positive(regularization)[0])
        dual = self._spectrum.dual(self._spectrum.weights(self.regularization_))
        self.dual_coef_ = dual[:, 0] if self._single_output else dual
        return self

    def _gram(self, left: Any, right: Any = None) -> Floats:
        return self._node_kernel(self.kernel, self.kernel_params)(left, right)

    def predict(self, X: Any) -> Floats:
        """Scores, shape (n,) or (n, outputs), of an array or sparse matrix, shape (n, d).

        For a precomputed kernel ``X`` is the kernel with the training examples, shape (n, m).
        """
        return self._kernel_to(X) @ self.dual_coef_

    def predict_path(self, X: Any, regularizations: ArrayLike) -> Floats:
        """Scores for r values of the regularization, shape (r, n) or (r, n, outputs).

        Takes no other training.
        """
        kernel, spectrum = self._kernel_to(X), self._spectrum
        weights = map(spectrum.weights, positive(regularizations))
        duals = np.array([spectrum.dual(weight) for weight in weights])
        return (kernel @ duals)[self._index(regularizations)]

    def _kernel_to(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._gram(X, self.X_fit_)

    def leave_one_out(self, regularizations: ArrayLike | None = None) -> Floats:
        """Predict each example as after a training on all others; exact, without any training.

        Use it for errors of single predictions. Each is by another training, so that on noise their
        order is below chance; see `leave_pair_out` for the order.

        Parameters
        ----------
        regularizations : array, shape (r,), optional
            Positive values; by default that of the estimator.

        Returns
        -------
        array, shape (m,), (m, outputs), (r, m) or (r, m, outputs)
        """
        values = self._hold_out(regularizations, 1, "leave_one_out")
        return spectrum.leave_one_out(self._spectrum, values)[self._index(regularizations)]

    def leave_group_out(
        self, groups: ArrayLike, regularizations: ArrayLike | None = None
    ) -> Floats:
        """Predict the examples of each group as after a training on all other groups; exact.

        Parameters
        ----------
        groups : array, shape (m,)
            The group of each example, at least two different ones.
        regularizations
            See `leave_one_out`; the returned array has the same shape.
        """
        values = self._hold_out(regularizations, 1, "leave_group_out")
        numbers = _several(_numbered(groups, len(self._spectrum.labels)))
        predictions = spectrum.leave_group_out(self._spectrum, numbers, values)
        return predictions[self._index(regularizations)]

    def leave_pair_out(self, regularizations: ArrayLike | None = None) -> LeavePairOut:
        """Leave out every pair (of a query, where there are queries), exactly: LPO Theorem 2.

        Takes no training. One m x m product for each of the ``regularizations``, as in
        `leave_one_out`, then O(m²).
        """
        values = self._hold_out(regularizations, 2, "leave_pair_out")
        return spectrum.leave_pair_out(self._spectrum, values, self._index(regularizations))

    def _hold_out(self, regularizations: ArrayLike | None, out: int, method: str) -> Floats:
        check_is_fitted(self)
        if (count := len(self._spectrum.labels)) <= out:
            raise DataError(f"{method} leaves nothing to train on: there are {count} examples")
        require_memory(4 * 8.0 * count**2, f"{method} of {count} examples")
        return positive(self.regularization_ if regularizations is None else regularizations)

    def _index(self, regularizations: ArrayLike | None) -> Any:
        """Index of an array (r, ..., outputs) that drops the axes of a single value or output."""
        first = 0 if regularizations is None or np.ndim(regularizations) == 0 else slice(None)
        return (first, ..., 0 if self._single_output else slice(None))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.target_tags.multi_output = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class RLS(KernelRegressor):
    """Regularized least squares (kernel ridge regression): minimizes ‖y − f‖² + λ‖f‖².

    There is no intercept: center y, or add a constant to the kernel.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        See `gram`.
    regularization : float
        λ, positive: the noise variance of the Gaussian process whose posterior mean this is.

    Attributes
    ----------
    dual_coef_ : array, shape (m,) or (m, outputs)
    X_fit_ : array, shape (m, d)
    regularization_ : float

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> y = np.array([1.0, 2.0, 3.0, 5.0, 4.0, 6.0])
    >>> from relpref.rls import RLS
    >>> RLS(regularization=0.1).fit(X, y).leave_one_out().shape
    (6,)
    """

    regularization: float = 1.0

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to an array or sparse matrix (m, d), or the kernel, and y, (m,) or (m, outputs)."""
        self._fit(X, y, None)
        return self._solve(self.regularization)

    def _decompose(self, kernel: Floats, labels: Floats, queries: Indices | None) -> RidgeSpectrum:
        return RidgeSpectrum.regression(kernel, labels)


@dataclass(eq=False, repr=False, kw_only=True)
class RankRLS(KernelRegressor):
    """Regularized least squares on differences of labels: learns an order and its gaps.

    Minimizes Σ_{i<j} ((y_i − y_j) − (f_i − f_j))² + λ‖f‖² over all pairs (LPO eq. 5, with the
    Laplacian m I − 11ᵀ). With ``groups``, the queries of the examples, it minimizes Σ_q ‖C_q (y_q −
    f_q)‖² + λ‖f‖² with the centering C_q = I − 11ᵀ/l of a query of l examples (CR10 eq. 12): pairs
    of different queries are not compared, and those of a query are weighted by 1/l. So one query of
    m examples at λ is the same as none at mλ. Only differences of predictions (within a query) have
    a meaning; hence `score` is the concordance, not R².

    Parameters and attributes are those of `RLS`; the sum of ``dual_coef_`` over each query is 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> y = np.array([1.0, 2.0, 3.0, 5.0, 4.0, 6.0])
    >>> from relpref.rls import RankRLS
    >>> float(RankRLS().fit(X, y).leave_pair_out().concordance.round(2))
    0.93
    """

    regularization: float = 1.0
    _least_examples: ClassVar = 2

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Fit like `RLS`; ``groups`` are the query of each example, any labels, shape (m,)."""
        self._fit(X, y, groups)
        return self._solve(self.regularization)

    def _decompose(self, kernel: Floats, labels: Floats, queries: Indices | None) -> RidgeSpectrum:
        numbers = np.zeros(len(labels), dtype=np.intp) if queries is None else queries
        first = np.unique(numbers, return_index=True)[1]
        if np.all(labels == labels[first][numbers]):
            where = "" if queries is None else " within each group"
            raise DataError(
                f"y is constant{where}: no example ranks above another, so there is nothing to "
                "learn"
            )
        return RidgeSpectrum.ranking(kernel, labels, queries)

    def score(self, X: Any, y: Any) -> float:
        """`concordance` of labels and predictions as one query; its mean over the outputs."""
        arrays = np.asarray(y, dtype=np.float64), self.predict(X)
        columns = zip(*(array.reshape(len(array), -1).T for array in arrays), strict=True)
        return float(np.mean([concordance(*column) for column in columns]))


@dataclass(eq=False, repr=False, kw_only=True)
class ChosenRegularization(KernelRegressor):
    """Base of estimators that score many regularizations by exact hold-outs and take the best."""

    regularizations: ArrayLike = REGULARIZATIONS
    cv: str | None = None
    _criteria: ClassVar[tuple[str, ...]]
    _least_examples: ClassVar = 3

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Choose the regularization and fit like `RLS`.

        ``groups``, shape (m,), are for ``cv="leave_group_out"``; for the ranking loss the query of
        each example, whatever ``cv`` is.
        """
        cv = self._criteria[0] if self.cv is None else self.cv
        if cv not in self._criteria:
            raise DataError(f"cv is {cv!r}; {type(self).__name__} has {', '.join(self._criteria)}")
        if cv == "leave_group_out" and groups is None:
            raise DataError('cv="leave_group_out" needs groups=, the group of each example')
        values = positive(self.regularizations)
        numbers = self._fit(X, y, groups)
        if cv == "leave_pair_out":
            self.cv_scores_ = self._pair_scores(values)
        elif cv == "leave_one_out" or numbers is None:
            self.cv_scores_ = self._score(spectrum.leave_one_out(self._spectrum, values), None)
        else:
            held_out = spectrum.leave_group_out(self._spectrum, _several(numbers), values)
            self.cv_scores_ = self._score(held_out, numbers)
        self.best_score_ = float(self.cv_scores_.max())
        return self._solve(values[self.cv_scores_ == self.best_score_].max())

    def _pair_scores(self, values: Floats) -> Floats:
        """Leave-pair-out concordance: mean over the outputs that have different labels."""
        concordances = spectrum.leave_pair_out(self._spectrum, values).concordance
        defined = ~np.isnan(concordances[0])
        if not defined.any():
            raise DataError(
                "y is constant: no pair is in an order that could be found again; check the labels"
            )
        return np.asarray(concordances[:, defined].mean(axis=1))

    @abstractmethod
    def _score(self, predicted: Floats, groups: Indices | None) -> Floats:
        """Score held-out predictions (r, m, outputs) at each regularization; greater is better."""


class RLSCV(ChosenRegularization, RLS):
    """`RLS` whose regularization is chosen by exact hold-outs.

    Parameters
    ----------
    regularizations : array, shape (r,)
        Positive values to choose from; each costs one product of m x m matrices at most, no
        training.
    cv : {"leave_one_out", "leave_pair_out", "leave_group_out"}
        Part that is left out; ``"leave_one_out"`` by default. The score of pairs is their
        concordance, that of examples and groups minus the mean squared error.

    Attributes
    ----------
    regularization_ : float
        The best; the largest of several equally good ones.
    cv_scores_ : array, shape (r,)
        Means over the outputs; the best is ``best_score_``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> y = np.array([1.0, 2.0, 3.0, 5.0, 4.0, 6.0])
    >>> from relpref.rls import RLSCV
    >>> RLSCV(regularizations=[0.1, 10.0]).fit(X, y).regularization_
    0.1
    """

    _criteria = ("leave_one_out", "leave_pair_out", "leave_group_out")

    def _score(self, predicted: Floats, groups: Indices | None) -> Floats:
        return -np.mean(np.square(self._spectrum.labels - predicted), axis=(1, 2))


class RankRLSCV(ChosenRegularization, RankRLS):
    """`RankRLS` whose regularization is chosen by exact hold-outs.

    Parameters and attributes are those of `RLSCV`, except ``cv``.

    Parameters
    ----------
    cv : {"leave_pair_out", "leave_group_out"}
        Part that is left out: every pair (by default), or every query of `fit`'s ``groups``. The
        score is the concordance, of all pairs or the mean over the queries.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> y = np.array([1.0, 2.0, 3.0, 5.0, 4.0, 6.0])
    >>> from relpref.rls import RankRLSCV
    >>> RankRLSCV(regularizations=[0.1, 10.0]).fit(X, y).regularization_
    10.0
    """

    _criteria = ("leave_pair_out", "leave_group_out")

    def _score(self, predicted: Floats, groups: Indices | None) -> Floats:
        assert groups is not None  # the only criterion but pairs
        # One row for each query, in which the others are not observed.
        rows = np.where(groups == np.arange(groups.max() + 1)[:, None], 0.0, np.nan)
        means = [
            [
                per_node(concordance, rows + labels, rows + scores).mean
                for labels, scores in zip(self._spectrum.labels.T, held_out.T, strict=True)
            ]
            for held_out in predicted
        ]
        return np.asarray(np.nanmean(means, axis=1))


def positive(regularization: ArrayLike) -> Floats:
    """Check values of the regularization, and return them with shape (r,)."""
    values = np.atleast_1d(np.asarray(regularization, dtype=np.float64))
    if values.ndim != 1 or values.size == 0:
        raise DataError(
            f"regularizations have shape {values.shape}; give a vector of positive numbers"
        )
    if np.any(wrong := ~(np.isfinite(values) & (values > 0))):
        raise DataError(f"a regularization is {values[wrong][0]:g}; it must be positive and finite")
    return values


def _numbered(groups: ArrayLike, count: int) -> Indices:
    """Number the groups from 0, one number for each example."""
    if len(column := column_or_1d(groups)) != count:
        raise DataError(f"groups has {len(column)} entries for {count} examples")
    return np.unique(column, return_inverse=True)[1]


def _several(groups: Indices) -> Indices:
    """Return the numbers, if there are at least two groups."""
    if not groups.any():
        raise DataError("groups has a single group; without it nothing is left to train on")
    return groups
