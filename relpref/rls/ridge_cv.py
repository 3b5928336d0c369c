"""Estimators that choose their regularisation by hold-outs that cost no training, as RidgeCV of scikit-learn does."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_is_fitted

from relpref.errors import DataError
from relpref.infer.exact.solve import RelationProblem
from relpref.infer.relation_posterior import RelationPosterior
from relpref.kernels.pairwise import Weights
from relpref.linalg import require_memory
from relpref.rls import hold_out
from relpref.rls import hold_out as pair_out
from relpref.rls.conditional import ConditionalRanker
from relpref.rls.hold_out import leave_edge_out, leave_object_pairs_out, leave_row_out, nodes_out
from relpref.rls.node_kernels import Kernel
from relpref.rls.regularization_path import Floats, Indices, RegularizationPath, RidgeSpectrum
from relpref.rls.ridge import RLS, KernelRegressor, RankRLS, positive
from relpref.rls.splits import EdgeKFold, Measure, PerNode, concordance, per_node

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


Positions = NDArray[np.intp]

HOLD_OUTS = ("pair", "edge", "row", "column", "both")
CONDITIONAL_REGULARIZATIONS = tuple(2.0**power for power in range(-15, 6, 2))


class ConditionalRankerCV(BaseEstimator):
    """A `ConditionalRanker` whose regularisation is chosen by cross-validation.

    Parameters
    ----------
    estimator : ConditionalRanker, optional
        Its ``regularization`` is replaced by the best one; its ``tol`` and ``max_iter`` are those of all trainings.
    regularizations : sequence of float
        Values of λ to choose from; where there is a closed form, one decomposition serves them all.
    cv : {"row", "pair", "edge", "column", "both"} or splitter
        What is held out and so what the ranker is meant for: ``"pair"`` or ``"edge"`` known nodes (setting 1), ``"row"`` new
        conditioning nodes (2), ``"column"`` new objects (3), ``"both"`` both (4). ``"pair"`` (two objects of one node, exactly),
        ``"edge"`` and ``"row"`` one at a time and in closed form where that exists; else in ``folds``. Or one of the splitters of
        `relpref.rls`, with a training for each split.
    folds : int or array of int, shape (p,)
        Number of folds of nodes, at random, or the fold of each node (for ``"column"`` of each object), such as a group that leaves as a whole.
    scoring : callable, optional
        ``scoring(labels, scores)`` for one conditioning node, larger is better: `concordance` by default. It is given what one model
        predicted of one node, because scores of different models cannot be ordered: where a node's labels are in several splits
        or folds of objects it has a value in each, and all values that are defined have the same weight. Hence for single edges
        (``"edge"``, `EdgeKFold`) the default is minus the mean squared error; those of the closed form are given a node at a
        time, for measures of errors, not of order. ``"pair"`` is always scored by concordance.
    random_state : int
        For the folds.

    Attributes
    ----------
    regularization_ : float
    scores_ : array, shape (r,)
        Of each regularisation; NaN, and a warning, where conjugate gradients did not converge.
    held_out_ : array, shape (r, p, m), or None
        Held-out scores, conditioning nodes in rows; NaN where none was held out. None for pairs. With the ranking loss those of
        single edges and splitters include the offset of the conditioning node, as its training labels tell it; that of a
        node without any is unknown, and then these are NaN with `EdgeKFold` and without offset otherwise.
    ranker_ : ConditionalRanker
        Trained on everything with the best λ.
    posterior_ : RelationPosterior
        Its posterior.
    """

    def __init__(
        self,
        estimator: ConditionalRanker | None = None,
        *,
        regularizations: Sequence[float] = CONDITIONAL_REGULARIZATIONS,
        cv: str | BaseCrossValidator = "row",
        folds: int | ArrayLike = 5,
        scoring: Measure | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.regularizations = regularizations
        self.cv = cv
        self.folds = folds
        self.scoring = scoring
        self.random_state = random_state

    def fit(self, nodes: Any, relation: Any, objects: Any = None, *, progress_bar: bool = False) -> Self:
        """Choose λ and learn with it; arguments as for `ConditionalRanker.fit`.

        Raises
        ------
        DataError
            If an option does not exist or does not fit, or nothing could be scored.
        InferenceError
            If conjugate gradients converge at none of the regularisations.
        """
        ranker = ConditionalRanker() if self.estimator is None else clone(self.estimator)
        values = np.asarray(self.regularizations, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values) & (values > 0)):
            raise DataError(f"regularizations are {self.regularizations!r}; give positive numbers")
        self._check_folds()
        problem = ranker.problem(nodes, relation, objects)
        if isinstance(self.cv, str) and self.cv == "pair":
            self.held_out_: Any = None
            self.scores_ = np.array(
                [found.mean for found in leave_object_pairs_out(problem, values.tolist())]
            )
        else:
            path = RegularizationPath(values.tolist(), ranker.tol, ranker.max_iter, skip=True)
            self.held_out_, parts = self._held_out(problem, path)
            path.settle(self.held_out_)
            truth = problem.values.mean_matrix + problem.shift
            self.held_out_ += problem.shift
            self.scores_ = np.array([self._score(truth, scores, parts) for scores in self.held_out_])
        if not np.isfinite(self.scores_).any():
            what = "two different ones that leave together"
            if self._squared:
                what = "some held out and some left to learn its offset from; shuffle the edges"
            raise DataError(f"no held-out labels could be scored: no conditioning node has {what}")
        self.regularization_ = float(values[int(np.nanargmax(self.scores_))])
        # λ has been chosen; nothing is left for early stopping to do.
        ranker.set_params(regularization=self.regularization_, early_stopping=False)
        self.ranker_ = ranker.solve(problem, progress_bar=progress_bar)
        return self

    def _check_folds(self) -> None:
        folds: Any = self.folds
        if np.ndim(folds) > 1 or (
            np.ndim(folds) == 0 and not (isinstance(folds, (int, np.integer)) and folds >= 2)
        ):
            raise DataError(
                f"folds is {folds!r}; give a number of folds, at least 2, or the fold of each node"
            )
        if np.ndim(folds) == 1 and isinstance(self.cv, str) and self.cv in ("edge", "pair"):
            raise DataError(
                f"folds are those of nodes; for cv={self.cv!r} give their number, or a splitter as cv"
            )

    def _held_out(
        self, problem: RelationProblem, path: RegularizationPath
    ) -> tuple[Floats, Positions | None]:
        """Held-out scores, and numbers (p, m) of the models they come from where a node's come from several."""
        if isinstance(self.cv, BaseCrossValidator):
            return _by_splits(problem, path, self.cv)
        if self.cv not in HOLD_OUTS:
            raise DataError(f"cv is {self.cv!r}; it is one of {', '.join(HOLD_OUTS)}, or a splitter")
        if self.cv == "edge":
            if problem.closed:
                return leave_edge_out(problem, path.regularizations), None
            splitter = EdgeKFold(
                int(self.folds),  # type: ignore[arg-type]
                shuffle=True,
                random_state=self.random_state,
                symmetric=problem.kernel.one_domain,
            )
            return _by_splits(problem, path, splitter)
        if self.cv == "row" and problem.closed and problem.symmetry == "none" and np.ndim(self.folds) == 0:
            return leave_row_out(problem, path.regularizations), None
        shape = problem.values.shape
        rows = None if self.cv == "column" else self._fold_numbers(shape[0])
        columns = None if self.cv == "row" else self._fold_numbers(shape[1])
        found = nodes_out(problem, path, rows, columns)
        return found, None if columns is None else np.broadcast_to(columns, shape)

    @property
    def _squared(self) -> bool:
        """Whether single labels are scored, by their squared errors."""
        return self.scoring is None and (isinstance(self.cv, EdgeKFold) or self.cv == "edge")

    def _fold_numbers(self, count: int) -> Positions:
        if np.ndim(self.folds):
            return np.unique(np.asarray(self.folds), return_inverse=True)[1]
        number = int(self.folds)  # type: ignore[arg-type]
        if number > count:
            raise DataError(f"folds is {number}; {count} nodes make 2 to {count} folds")
        return np.random.default_rng(self.random_state).permutation(np.arange(count) % number)

    def _score(self, truth: Floats, scores: Floats, parts: Positions | None) -> float:
        seen = np.where(np.isnan(scores), np.nan, truth)
        if self._squared:
            errors = (seen - scores)[~np.isnan(seen)]
            return -float(np.mean(np.square(errors))) if errors.size else np.nan
        measure = self.scoring or concordance
        if parts is None:
            return per_node(measure, seen, scores).mean
        values = [np.empty(0)]
        for part in np.unique(parts[~np.isnan(seen)]):
            inside = np.where(parts == part, seen, np.nan)
            nodes = ~np.isnan(inside).all(axis=1)
            values.append(per_node(measure, inside[nodes], scores[nodes]).values)
        return PerNode(np.concatenate(values)).mean

    @property
    def posterior_(self) -> RelationPosterior:
        """Of the ranker trained on everything."""
        check_is_fitted(self, "ranker_")
        return self.ranker_.posterior_

    def predict(self, nodes: Any = None, objects: Any = None, return_std: bool = False) -> Any:
        """As `ConditionalRanker.predict`."""
        check_is_fitted(self, "ranker_")
        return self.ranker_.predict(nodes, objects, return_std)

    def rank(self, nodes: Any = None, objects: Any = None) -> Any:
        """As `ConditionalRanker.rank`."""
        check_is_fitted(self, "ranker_")
        return self.ranker_.rank(nodes, objects)

    def score(self, nodes: Any, relation: Any, objects: Any = None) -> float:
        """As `ConditionalRanker.score`."""
        check_is_fitted(self, "ranker_")
        return self.ranker_.score(nodes, relation, objects)


def _by_splits(
    problem: RelationProblem, path: RegularizationPath, splitter: BaseCrossValidator
) -> tuple[Floats, Positions]:
    """Held-out scores (r, p, m) from trainings for each split, and the split (p, m) that each comes from."""
    values = problem.values
    # A kernel of one domain is symmetric or reciprocal by itself, whatever was said of the labels.
    if problem.kernel.one_domain and not getattr(splitter, "symmetric", False):
        raise DataError(
            f"{type(splitter).__name__} would leave (w, v) behind when (v, w) is held out, and to the "
            f"{type(problem.kernel).__name__} kernel they are the same; give it symmetric=True"
        )
    p, m = values.shape
    require_memory(8.0 * (len(path.regularizations) + 5) * p * m, "predictions of all labels left out")
    found = np.full((len(path.regularizations), p, m), np.nan)
    splits = np.full((p, m), -1, dtype=np.intp)
    # EdgeKFold is about known nodes: what it holds out of a node that became new is not predicted.
    unknown = np.nan if isinstance(splitter, EdgeKFold) else 0.0
    edges = np.column_stack([values.rows, values.columns])
    for number, (train, test) in enumerate(splitter.split(edges)):
        part = replace(problem, values=values.select(train))
        rows, columns = values.rows[test], values.columns[test]
        splits[rows, columns] = number
        for place, solution in path.solutions(part):
            dual = solution.dual_matrix
            scores = _scores_at(part, dual, rows, columns)
            if part.loss == "ranking":
                scores += _offsets(part, dual, unknown)[rows]
            found[place, rows, columns] = scores
    return found, splits


def _scores_at(part: RelationProblem, dual: Weights, rows: Positions, columns: Positions) -> Floats:
    return part.kernel.at(part.nodes.ask().side, part.objects.ask().side, dual, rows, columns)


def _offsets(part: RelationProblem, dual: Weights, unknown: float) -> Floats:
    """Mean residual of each conditioning node, where the centred loss has its minimum; shape (p,)."""
    values = part.values
    residuals = values.values - _scores_at(part, dual, values.rows, values.columns)
    counts = values.row_counts
    sums = np.bincount(values.rows, residuals, minlength=len(counts))
    return np.divide(sums, counts, out=np.full(len(counts), unknown), where=counts > 0)
