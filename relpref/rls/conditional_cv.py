"""Choosing the regularization of conditional rankings by cross-validation."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_is_fitted

from relpref.blas import threads_for
from relpref.data.arrays import Floats, Indices
from relpref.errors import DataError
from relpref.infer.exact.solve import RelationProblem
from relpref.infer.relation_posterior import RelationPosterior
from relpref.rls.conditional import ConditionalRanker, RelationRanker
from relpref.rls.hold_out import (
    RegularizationPath,
    leave_edge_out,
    leave_object_pairs_out,
    leave_row_out,
    nodes_out,
    splits_out,
)
from relpref.rls.ridge import positive
from relpref.rls.splits import EdgeKFold, Measure, PerNode, concordance, per_node

HOLD_OUTS = ("pair", "edge", "row", "column", "both")
REGULARIZATIONS = tuple(2.0**power for power in range(-15, 6, 2))


@dataclass(eq=False, repr=False)
class ConditionalRankerCV(RelationRanker):
    """A `ConditionalRanker` whose regularization is chosen by cross-validation.

    Parameters
    ----------
    estimator : ConditionalRanker, optional
        The best ``regularization`` replaces that of the estimator; ``tol`` and ``max_iter`` are
        those of all trainings.
    regularizations : sequence of float
        Values of λ to choose from; where there is a closed form, one decomposition serves them all.
    cv : {"row", "pair", "edge", "column", "both"} or splitter
        Part that is held out, and so the purpose of the ranker: ``"pair"`` or ``"edge"`` for known
        nodes (setting 1), ``"row"`` for new conditioning nodes (2), ``"column"`` for new objects
        (3), ``"both"`` for both (4). ``"pair"`` (two objects of one node, exactly), ``"edge"`` and
        ``"row"`` leave one at a time, in closed form where that exists; else in ``folds``. Or one
        of the splitters of `relpref.rls`, with a training for each split.
    folds : int or array of int, shape (p,)
        Number of folds of nodes, at random, or the fold of each node (for ``"column"`` of each
        object), such as a group whose nodes leave together.
    scoring : callable, optional
        ``scoring(labels, scores)`` for one conditioning node, larger is better: `concordance` by
        default. It gets the predictions of one model for one node, because scores of different
        models cannot be ordered; all values that are defined have the same weight. Hence for single
        edges (``"edge"``, `EdgeKFold`) the default is minus the mean squared error; those of the
        closed form are scored a node at a time, for measures of errors, not of order. ``"pair"`` is
        always scored by concordance.
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    regularization_ : float
    scores_ : array, shape (r,)
        Score of each regularization; NaN, and a warning, where conjugate gradients did not
        converge.
    held_out_ : array, shape (r, p, m), or None
        Held-out scores, conditioning nodes in rows; NaN where none was held out. None for pairs.
        With the ranking loss those of single edges and splitters include the offset of the
        conditioning node, estimated from its training labels; a node without any has an unknown
        offset, and its scores are NaN with `EdgeKFold` and without offset otherwise.
    ranker_ : ConditionalRanker
        Ranker trained on everything with the best λ.
    posterior_ : RelationPosterior
        Posterior of this ranker.

    Examples
    --------
    >>> import numpy as np
    >>> from relpref.rls import ConditionalRankerCV
    >>> rng = np.random.default_rng(0)
    >>> nodes, relation = rng.normal(size=(6, 2)), rng.normal(size=(6, 6))
    >>> ranker = ConditionalRankerCV(regularizations=[0.1, 1.0], cv="row")
    >>> ranker.fit(nodes, relation).regularization_ in (0.1, 1.0)
    True
    """

    estimator: ConditionalRanker | None = None
    _: KW_ONLY
    regularizations: Sequence[float] = REGULARIZATIONS
    cv: str | BaseCrossValidator = "row"
    folds: int | ArrayLike = 5
    scoring: Measure | None = None
    random_state: int = 0

    def fit(
        self, nodes: Any, relation: Any, objects: Any = None, *, progress_bar: bool = False
    ) -> Self:
        """Choose λ and learn with it; arguments and errors as for `ConditionalRanker.fit`."""
        ranker = ConditionalRanker() if self.estimator is None else clone(self.estimator)
        values = positive(self.regularizations)
        self._check_folds()
        problem = ranker.problem(nodes, relation, objects)
        with threads_for(max(problem.values.shape)):
            if self.cv == "pair":
                self.held_out_: Any = None
                concordances = leave_object_pairs_out(problem, values.tolist())
                self.scores_ = np.array([measure.mean for measure in concordances])
            else:
                path = RegularizationPath(values.tolist(), ranker.tol, ranker.max_iter, skip=True)
                self.held_out_, parts = self._held_out(problem, path)
                path.drop_skipped(self.held_out_)
                truth = problem.values.mean_matrix + problem.shift
                self.held_out_ += problem.shift
                self.scores_ = np.array(
                    [self._score(truth, scores, parts) for scores in self.held_out_]
                )
            if not np.isfinite(self.scores_).any():
                missing = (
                    "some held out and some left to learn its offset from; shuffle the edges"
                    if self._squared
                    else "two different ones that leave together"
                )
                raise DataError(
                    f"no held-out labels could be scored: no conditioning node has {missing}"
                )
            self.regularization_ = float(values[int(np.nanargmax(self.scores_))])
            # λ has been chosen; nothing is left for early stopping to do.
            ranker.set_params(regularization=self.regularization_, early_stopping=False)
            self.ranker_ = ranker.solve(problem, progress_bar=progress_bar)
        return self

    def _check_folds(self) -> None:
        folds: Any = self.folds
        number = isinstance(folds, (int, np.integer)) and folds >= 2
        if not number and np.ndim(folds) != 1:
            raise DataError(
                f"folds is {folds!r}; give a number of folds, at least 2, or the fold of each node"
            )
        if not number and self.cv in ("edge", "pair"):
            raise DataError(
                f"folds are those of nodes; for cv={self.cv!r} give their number, or a splitter as "
                "cv"
            )

    def _held_out(
        self, problem: RelationProblem, path: RegularizationPath
    ) -> tuple[Floats, Indices | None]:
        """Held-out scores, and the number of the model of each (p, m) where a node has several."""
        cv, folds = self.cv, self.folds
        if not isinstance(cv, BaseCrossValidator) and cv not in HOLD_OUTS:
            raise DataError(f"cv is {cv!r}; it is one of {', '.join(HOLD_OUTS)}, or a splitter")
        if cv == "edge" and problem.closed:
            return leave_edge_out(problem, path.regularizations), None
        if cv == "edge":
            symmetric, seed = problem.kernel.one_domain, self.random_state
            cv = EdgeKFold(folds, shuffle=True, random_state=seed, symmetric=symmetric)
        if not isinstance(cv, str):
            return splits_out(problem, path, cv)
        shape = problem.values.shape
        one_by_one = cv == "row" and np.ndim(folds) == 0
        if one_by_one and problem.closed and problem.symmetry == "none":
            return leave_row_out(problem, path.regularizations), None
        rows = None if cv == "column" else self._fold_numbers(shape[0])
        columns = None if cv == "row" else self._fold_numbers(shape[1])
        scores = nodes_out(problem, path, rows, columns)
        return scores, None if columns is None else np.broadcast_to(columns, shape)

    @property
    def _squared(self) -> bool:
        """Whether scores are squared errors of single labels."""
        return self.scoring is None and (isinstance(self.cv, EdgeKFold) or self.cv == "edge")

    def _fold_numbers(self, count: int) -> Indices:
        if np.ndim(self.folds):
            return np.asarray(self.folds)
        number: Any = self.folds
        if number > count:
            raise DataError(f"folds is {number}; {count} nodes make 2 to {count} folds")
        return np.random.default_rng(self.random_state).permutation(np.arange(count) % number)

    def _score(self, truth: Floats, scores: Floats, parts: Indices | None) -> float:
        """Score of one regularization; ``parts`` are the numbers of models, see `_held_out`."""
        labels = np.where(np.isnan(scores), np.nan, truth)
        if self._squared:
            errors = (labels - scores)[~np.isnan(labels)]
            return -float(np.mean(np.square(errors))) if errors.size else np.nan
        models = [True] if parts is None else [parts == part for part in np.unique(parts)]
        values = []
        for model in models:
            inside = np.where(model, labels, np.nan)
            nodes = ~np.isnan(inside).all(axis=1)
            measured = per_node(self.scoring or concordance, inside[nodes], scores[nodes])
            values.append(measured.values)
        return PerNode(np.concatenate(values)).mean

    @property
    def posterior_(self) -> RelationPosterior:
        """Posterior of the ranker trained on everything."""
        check_is_fitted(self, "ranker_")
        return self.ranker_.posterior_
