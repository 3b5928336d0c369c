"""Regularisation of a conditional ranker by exact or K-fold cross-validation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_is_fitted

from relpref.errors import DataError
from relpref.infer.exact.solve import RelationProblem, require_converged
from relpref.infer.relation_posterior import RelationPosterior
from relpref.rls.conditional import ConditionalRanker
from relpref.rls.edge_out import leave_edge_out, leave_row_out
from relpref.rls.measures import Measure, concordance, per_node
from relpref.rls.nodes_out import leave_nodes_out
from relpref.rls.object_pairs_out import leave_object_pairs_out
from relpref.rls.splits import EdgeKFold

Floats = NDArray[np.float64]

HOLD_OUTS = ("pair", "edge", "row", "column", "both")
REGULARIZATIONS = tuple(2.0**power for power in range(-15, 6, 2))


class ConditionalRankerCV(BaseEstimator):
    """A `ConditionalRanker` whose regularisation is chosen by cross-validation.

    Parameters
    ----------
    estimator : ConditionalRanker, optional
        Its ``regularization`` is replaced by the best one.
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
        ``scoring(labels, scores)`` for one conditioning node, larger is better: `concordance` by default, averaged over nodes, and over
        the folds of objects, because scores of different models cannot be ordered. Hence for single edges the default is minus the mean
        squared error, and ``"pair"`` is always scored by concordance.
    random_state : int
        For the folds.

    Attributes
    ----------
    regularization_ : float
    scores_ : array, shape (r,)
        Of each regularisation.
    held_out_ : array, shape (r, p, m), or None
        Held-out scores, conditioning nodes in rows; NaN where none was held out. None for pairs.
    ranker_ : ConditionalRanker
        Trained on everything with the best λ.
    posterior_ : RelationPosterior
        Its posterior.
    """

    def __init__(
        self,
        estimator: ConditionalRanker | None = None,
        *,
        regularizations: Sequence[float] = REGULARIZATIONS,
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
        """
        ranker = ConditionalRanker() if self.estimator is None else clone(self.estimator)
        values = np.asarray(self.regularizations, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values) & (values > 0)):
            raise DataError(f"regularizations are {self.regularizations!r}; give positive numbers")
        problem = ranker.problem(nodes, relation, objects)
        if isinstance(self.cv, str) and self.cv == "pair":
            self.held_out_: Any = None
            self.scores_ = np.array(
                [found.mean for found in leave_object_pairs_out(problem, values.tolist())]
            )
        else:
            self.held_out_, folds = self._held_out(problem, values.tolist())
            truth = problem.values.mean_matrix
            self.scores_ = np.array([self._score(truth, scores, folds) for scores in self.held_out_])
        if not np.isfinite(self.scores_).any():
            raise DataError("no held-out labels could be scored: no conditioning node has two different ones")
        self.regularization_ = float(values[int(np.nanargmax(self.scores_))])
        ranker.set_params(regularization=self.regularization_)
        self.ranker_ = ranker.solve(problem, progress_bar=progress_bar)
        return self

    def _held_out(
        self, problem: RelationProblem, values: list[float]
    ) -> tuple[Floats, NDArray[np.intp] | None]:
        """Held-out scores, and the folds of objects whose scores come from different models."""
        if isinstance(self.cv, BaseCrossValidator):
            return _by_splits(problem, values, self.cv), None
        if self.cv not in HOLD_OUTS:
            raise DataError(f"cv is {self.cv!r}; it is one of {', '.join(HOLD_OUTS)}, or a splitter")
        if self.cv == "edge":
            if problem.closed:
                return leave_edge_out(problem, values), None
            if np.ndim(self.folds):
                raise DataError(
                    "folds are those of nodes; for cv='edge' give their number, or a splitter as cv"
                )
            splitter = EdgeKFold(
                int(self.folds),  # type: ignore[arg-type]
                shuffle=True,
                random_state=self.random_state,
                symmetric=problem.symmetry != "none",
            )
            return _by_splits(problem, values, splitter), None
        if self.cv == "row" and problem.closed and problem.symmetry == "none" and np.ndim(self.folds) == 0:
            return leave_row_out(problem, values), None
        rows = None if self.cv == "column" else self._fold_numbers(problem.values.shape[0])
        columns = None if self.cv == "row" else self._fold_numbers(problem.values.shape[1])
        return leave_nodes_out(problem, values, rows=rows, columns=columns), columns

    def _fold_numbers(self, count: int) -> NDArray[np.intp]:
        if np.ndim(self.folds):
            return np.unique(np.asarray(self.folds), return_inverse=True)[1]
        number = int(self.folds)  # type: ignore[arg-type]
        if not 2 <= number <= count:
            raise DataError(f"folds is {number}; {count} nodes make 2 to {count} folds")
        return np.random.default_rng(self.random_state).permutation(np.arange(count) % number)

    def _score(self, truth: Floats, scores: Floats, folds: NDArray[np.intp] | None) -> float:
        seen = np.where(np.isnan(scores), np.nan, truth)
        if self.scoring is None and (self.cv == "edge" or isinstance(self.cv, EdgeKFold)):
            return -float(np.nanmean(np.square(seen - scores)))
        measure = self.scoring or concordance
        if folds is None:
            return per_node(measure, seen, scores).mean
        parts = [per_node(measure, seen[:, fold], scores[:, fold]).mean for fold in _members(folds)]
        return float(np.nanmean(parts)) if np.isfinite(parts).any() else np.nan

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
    problem: RelationProblem, regularizations: Sequence[float], splitter: BaseCrossValidator
) -> Floats:
    """Held-out scores from a training for each split, each λ started from the last one's solution."""
    values = problem.values
    if problem.symmetry != "none" and not getattr(splitter, "symmetric", False):
        raise DataError(
            f"{type(splitter).__name__} would leave (w, v) behind when (v, w) is held out of a {problem.symmetry} relation; "
            "give it symmetric=True"
        )
    edges = np.column_stack([values.rows, values.columns])
    found = np.full((len(regularizations), *values.shape), np.nan)
    for train, test in splitter.split(edges):
        part = replace(problem, values=values.select(train))
        left, right = part.nodes.ask(), part.objects.ask()
        start = None
        for scores, regularization in zip(found, regularizations, strict=True):
            solution, result = part.iterate(regularization, start=start)
            require_converged(result, regularization)
            start = solution.dual
            rows, columns = values.rows[test], values.columns[test]
            scores[rows, columns] = part.kernel.at(left.side, right.side, solution.dual_matrix, rows, columns)
    return found


def _members(folds: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
