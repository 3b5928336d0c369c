"""Predictions of labels by models that were trained without them, in closed form if possible.

Examples
--------
>>> import numpy as np
>>> from relpref.rls import ConditionalRanker, leave_row_out
>>> nodes = np.arange(8.0).reshape(4, 2)
>>> ranker = ConditionalRanker("linear").fit(nodes, np.arange(16.0).reshape(4, 4))
>>> scores = leave_row_out(ranker.problem_, [0.1, 1.0])
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseCrossValidator

from relpref.data.arrays import Floats, Indices
from relpref.data.relation_data import SIGN
from relpref.errors import DataError, InferenceError
from relpref.infer.exact.closed import KroneckerFit
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.edges import require_converged
from relpref.infer.exact.solve import RelationProblem, Scores
from relpref.kernels import Side
from relpref.linalg import require_memory
from relpref.result import InferenceWarning, Result, warn_user
from relpref.rls.spectrum import centered_eigen
from relpref.rls.splits import EdgeKFold, PerNode


def leave_edge_out(
    problem: RelationProblem, regularizations: Sequence[float], pairs: ArrayLike | None = None
) -> Floats:
    """Predict each label from all the others: both nodes are known (setting 1).

    In a symmetric or reciprocal relation (v, w) and (w, v) leave together; that costs O(p²) a pair.
    With the ranking loss the prediction includes the node's offset, estimated from its other
    labels, so that it compares with those.

    Use it for errors of single predictions, not for their order or correlation: leaving out one
    label at a time makes these too small (below chance on noise), see `leave_object_pairs_out`.

    Parameters
    ----------
    problem : RelationProblem
        Problem with a closed form.
    regularizations : sequence of float
        r positive values of λ.
    pairs : array of int, shape (q, 2), optional
        Row and column of each label to predict; all of them by default.

    Returns
    -------
    array, shape (r, p, m), or (r, q) for given pairs

    Raises
    ------
    DataError
        If the problem has no closed form, λ is not positive, or the remaining labels determine
        those left out.
    """
    problem.require_no_leak()
    p, m = problem.values.shape
    given = np.argwhere(np.ones((p, m), bool)) if pairs is None else np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise DataError(
            f"pairs are {given.dtype} of shape {given.shape}; give a row and a column for each"
        )
    if given.size and (np.any(given < 0) or np.any(given >= (p, m))):
        raise DataError(
            f"pairs reach from {given.min(axis=0)} to {given.max(axis=0)}; there are {p} x {m}"
        )
    rows, columns = given.astype(np.intp).T

    def residual(fit: KroneckerFit) -> Floats:
        return fit.dual[rows, columns] / fit.label_precision(rows, columns)

    predictions = _predictions(_labels(problem)[rows, columns], problem, regularizations, residual)
    return predictions.reshape(-1, p, m) if pairs is None else predictions


def leave_row_out(problem: RelationProblem, regularizations: Sequence[float]) -> Floats:
    """Predict the labels of each conditioning node from those of the others (setting 2).

    The node is new. Arguments and errors are those of `leave_edge_out`; a symmetric or reciprocal
    relation is refused.

    Returns
    -------
    array, shape (r, p, m)
        With the ranking loss the mean of each row is zero: the offset of a new node is unknown.
    """
    _check_two_sided(problem, "a conditioning node")
    labels, basis = _labels(problem), problem.objects.eigen
    if problem.loss == "ranking":
        # Only contrasts of a row without offset are predicted: the blocks are diagonal in the
        # eigenbasis of C G C.
        labels = labels - labels.mean(axis=1, keepdims=True)
        gram = problem.objects.gram
        centred = gram - gram.mean(axis=0)
        centred -= centred.mean(axis=1, keepdims=True)
        basis = centered_eigen(centred, gram)

    def residual(fit: KroneckerFit) -> Floats:
        left = fit.system.left
        shrinkage = 1.0 / (np.multiply.outer(left.values, basis.values) + fit.regularization)
        rotated = (fit.dual @ basis.vectors) / (np.square(left.vectors) @ shrinkage)
        return rotated @ basis.vectors.T

    return _predictions(labels, problem, regularizations, residual)


def leave_column_out(problem: RelationProblem, regularizations: Sequence[float]) -> Floats:
    """Predict the labels of each object from those of the others: the object is new (setting 3).

    Predictions for one object compare with each other. Those for different objects are by different
    models: their order within a row is below chance on noise, as with `leave_edge_out`; compare
    objects that leave together (`leave_nodes_out`). Arguments and errors are those of
    `leave_row_out`.

    Returns
    -------
    array, shape (r, p, m)
        With the ranking loss the predictions include the offsets of the conditioning nodes,
        estimated from their other labels.
    """
    _check_two_sided(problem, "an object")

    def residual(fit: KroneckerFit) -> Floats:
        left, right = fit.system.left.vectors, fit.system.right.vectors
        return left @ ((fit.rotated_dual @ right.T) / fit.block_diagonals)

    return _predictions(_labels(problem), problem, regularizations, residual)


def leave_object_pairs_out(
    problem: RelationProblem, regularizations: Sequence[float]
) -> list[PerNode]:
    """Concordance of each conditioning node over all pairs of its objects, both labels left out.

    Takes O(m³) for a node and a value of λ. The objects of a symmetric or reciprocal relation do
    not include the node itself. Arguments and errors are those of `leave_edge_out`; there must be
    three objects or more.

    Returns
    -------
    list of PerNode, length r
        Share of the pairs with different labels that are ordered rightly, equal predictions
        counting one half; NaN for a node without such pairs.
    """
    problem.require_no_leak()
    p, m = problem.values.shape
    if m < 3:
        raise DataError(
            f"there are {m} objects; without two of them nothing is left to learn a node's order "
            "from"
        )
    require_memory(8.0 * (4 * p * m + 10 * m * m), f"leaving out the pairs of {m} objects")
    labels = _labels(problem)
    return [
        PerNode(np.array([_concordance(labels[v], fit, v) for v in range(p)]))
        for fit in _fits(problem, regularizations)
    ]


def _concordance(labels: Floats, fit: KroneckerFit, node: int) -> float:
    """Concordance of a node's labels with the predictions for all pairs left out."""
    dual, block = fit.dual[node], fit.node_precision(node)
    if fit.system.symmetry != "none":
        others = np.arange(len(labels)) != node
        labels, dual, block = labels[others], dual[others], block[np.ix_(others, others)]
    gaps = np.subtract.outer(labels, labels)
    first, second = np.nonzero(np.triu(gaps != 0.0))
    if not len(first):
        return np.nan
    variance, between = np.diagonal(block), block[first, second]
    # The difference of the two residuals, by Cramer's rule.
    residual = dual[first] * (variance[second] + between)
    residual -= dual[second] * (variance[first] + between)
    residual /= variance[first] * variance[second] - between**2
    gap = gaps[first, second]
    predicted = gap - residual
    # A prediction of the size of rounding is no preference.
    slack = 1e-12 * (np.abs(gap) + np.abs(residual))
    agreement = np.where(np.abs(predicted) <= slack, 0.0, np.sign(predicted) * np.sign(gap))
    return float(0.5 + 0.5 * agreement.mean())


def _predictions(
    labels: Floats,
    problem: RelationProblem,
    regularizations: Sequence[float],
    residual: Callable[[KroneckerFit], Floats],
) -> Floats:
    """Labels minus their residuals at each λ, shape (r, ...)."""
    p, m = problem.values.shape
    answers = len(regularizations) * labels.size
    require_memory(8.0 * (answers + 4 * p * m), f"predictions of {answers} labels left out")
    predictions = np.empty((len(regularizations), *labels.shape))
    for prediction, fit in zip(predictions, _fits(problem, regularizations), strict=True):
        np.subtract(labels, residual(fit), out=prediction)
    return predictions


def _fits(problem: RelationProblem, regularizations: Sequence[float]) -> Iterator[KroneckerFit]:
    """Solutions in closed form at each λ."""
    system = problem.system(full=True)
    return (system.solve(float(regularization)) for regularization in regularizations)


def _labels(problem: RelationProblem) -> Floats:
    """Labels Y that the model is trained on; under a constraint (Y ± Yᵀ)/2."""
    labels, sign = problem.values.matrix, SIGN[problem.symmetry]
    return labels if sign == 0.0 else 0.5 * (labels + sign * labels.T)


def _check_two_sided(problem: RelationProblem, what: str) -> None:
    if problem.symmetry != "none":
        raise DataError(
            f"in a {problem.symmetry} relation the labels of {what} that is new are in a row and "
            "in a column, and no closed form leaves out both; use leave_nodes_out"
        )
    problem.require_no_leak()


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Values of λ, each solved for on every part of a relation.

    ``tol`` and ``max_iterations`` limit the conjugate gradients, where there is no closed form.
    With ``skip`` a λ at which they do not converge is left out from then on, and its position is in
    ``skipped``; otherwise that is an error.
    """

    regularizations: Sequence[float]
    tol: float
    max_iterations: int | None
    skip: bool = False
    skipped: set[int] = field(default_factory=set, init=False)

    def solutions(self, part: RelationProblem) -> Iterator[tuple[int, Scores]]:
        """Solve at each λ, with scale 1; yield its position and the solution."""
        if part.closed:
            for place, regularization in enumerate(self.regularizations):
                yield place, part.closed_scores(float(regularization), scale=1.0)
            return
        start = None
        # A small λ alone takes many iterations; from the solution of a larger one it takes few.
        for place in np.argsort(self.regularizations, kind="stable")[::-1].tolist():
            if place in self.skipped:
                continue
            regularization = float(self.regularizations[place])
            scores, result = part.iterate(
                regularization,
                start=start,
                tol=self.tol,
                max_iterations=self.max_iterations,
                scale=1.0,
            )
            start = scores.dual
            if self.skip and result.reason != "converged":
                self.skipped.add(place)
                continue
            require_converged(result, regularization)
            yield place, scores

    def drop_skipped(self, predictions: Floats) -> None:
        """Set predictions (r, ...) of skipped λ to NaN, with a warning; refuse if none is left."""
        if not self.skipped:
            return
        places = sorted(self.skipped)
        values = ", ".join(f"{self.regularizations[place]:.3g}" for place in places)
        remedy = "raise max_iter or tol of the ranker, or take larger regularizations"
        if len(places) == len(self.regularizations):
            raise InferenceError(
                f"conjugate gradients did not converge at any of the regularizations {values}; "
                f"{remedy}",
                Result.iterations_not_converged,
            )
        predictions[places] = np.nan
        warn_user(
            f"conjugate gradients did not converge at the regularizations {values}, which have no "
            f"score; {remedy}",
            InferenceWarning,
        )


def leave_nodes_out(
    problem: RelationProblem,
    regularizations: Sequence[float],
    *,
    rows: ArrayLike | None = None,
    columns: ArrayLike | None = None,
    tol: float = 1e-8,
    max_iterations: int | None = None,
) -> Floats:
    """Predict all pairs of nodes by models that were trained without those nodes, in folds.

    With ``rows`` alone the conditioning nodes are new (setting 2), with ``columns`` alone the
    objects (setting 3), with both of them both (setting 4): then a fold of rows and one of columns
    leave together, and only the pairs of both are predicted. Where nodes are ranked for one another
    a new node leaves as a row and as a column, whatever the setting.

    Parameters
    ----------
    problem : RelationProblem
        Any problem: incomplete, symmetric, with any pairwise kernel.
    regularizations : sequence of float
        r positive values of λ.
    rows, columns : array of int, shapes (p,) and (m,)
        Fold of each node, at least two; the same folds where nodes are ranked for one another.
    tol, max_iterations
        Limits of the conjugate gradients, where there is no closed form.

    Returns
    -------
    array, shape (r, p, m)
        With the ranking loss without the offsets of the conditioning nodes: they order the objects
        of a fold.
    """
    path = RegularizationPath(regularizations, tol, max_iterations)
    return nodes_out(problem, path, rows, columns)


def nodes_out(
    problem: RelationProblem,
    path: RegularizationPath,
    rows: ArrayLike | None,
    columns: ArrayLike | None,
) -> Floats:
    """Predict as `leave_nodes_out` along a path, which may skip values of λ."""
    p, m = problem.values.shape
    one_domain, both = problem.nodes is problem.objects, rows is not None and columns is not None
    row_folds, column_folds = _folds(rows, p, "row"), _folds(columns, m, "column")
    if rows is None and columns is None:
        raise DataError("no folds; give rows=, columns= or both")
    if one_domain and both and not np.array_equal(row_folds, column_folds):
        raise DataError(
            "rows and columns are the same nodes, which leave as both; give them the same fold "
            "numbers"
        )
    require_memory(8.0 * len(path.regularizations) * p * m, "predictions of all labels left out")
    predictions = np.empty((len(path.regularizations), p, m))
    for row_fold, column_fold in product(np.unique(row_folds), np.unique(column_folds)):
        new = row_folds == row_fold, column_folds == column_fold
        kept_rows, kept_columns = ~new[0] | (rows is None), ~new[1] | (columns is None)
        blocks = [new]
        if one_domain:
            kept_rows = kept_columns = kept_rows & kept_columns
        if one_domain and both:
            # The two folds exchanged leave the same nodes.
            if row_fold > column_fold:
                continue
            blocks.append(new[::-1])
        kept = np.flatnonzero(kept_rows), np.flatnonzero(kept_columns)
        part = _part(problem, *kept)
        for place, solution in path.solutions(part):
            for block in blocks:
                left = _side(problem.nodes, np.flatnonzero(block[0]), kept[0])
                right = _side(problem.objects, np.flatnonzero(block[1]), kept[1])
                scores = part.kernel.scores(left, right, solution.dual_matrix)
                predictions[place][np.ix_(*block)] = scores
    return predictions


def _folds(folds: ArrayLike | None, count: int, name: str) -> Indices:
    """Checked fold numbers; a single fold where none are given."""
    if folds is None:
        return np.zeros(count, dtype=np.intp)
    numbers = np.asarray(folds)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu" or len(np.unique(numbers)) < 2:
        raise DataError(
            f"{name}s have folds of {numbers.dtype} and shape {numbers.shape}, "
            f"{len(np.unique(numbers))} of them distinct; give a fold number for each of the "
            f"{count} {name}s, and at least two folds"
        )
    return numbers.astype(np.intp)


def _part(problem: RelationProblem, rows: Indices, columns: Indices) -> RelationProblem:
    """Restrict a problem to some of the nodes."""
    nodes = _domain(problem.nodes, rows)
    objects = nodes if problem.nodes is problem.objects else _domain(problem.objects, columns)
    values = problem.values.subset(rows, columns)
    try:
        return replace(problem, nodes=nodes, objects=objects, values=values)
    except DataError as error:
        raise DataError(
            f"without one of the folds {len(rows)} x {len(columns)} nodes are left, and from them "
            f"nothing can be learned ({error}); take fewer or other folds, or a regularization "
            "that need not be chosen"
        ) from None


def _domain(domain: Domain, kept: Indices) -> Domain:
    """Restrict a domain to some nodes; their positions in the kernel matrix are the features."""

    def kernel(left: Indices, right: Indices | None = None) -> Floats:
        return domain.gram[np.ix_(left, left if right is None else right)]

    return Domain(tuple(domain.labels[i] for i in kept), kept, kernel, domain.name)


def _side(domain: Domain, asked: Indices, kept: Indices) -> Side:
    """Nodes to predict for: their kernel with the nodes that were kept, and positions in these."""
    place = np.full(len(domain.labels), -1)
    place[kept] = np.arange(len(kept))
    return Side(domain.gram[np.ix_(asked, kept)], place[asked])


def splits_out(
    problem: RelationProblem, path: RegularizationPath, splitter: BaseCrossValidator
) -> tuple[Floats, Indices]:
    """Scores (r, p, m) of edges from trainings without each split, and numbers of splits (p, m)."""
    values = problem.values
    # A kernel of one domain is symmetric or reciprocal, whatever ``symmetry`` the labels have.
    if problem.kernel.one_domain and not getattr(splitter, "symmetric", False):
        raise DataError(
            f"{type(splitter).__name__} would leave (w, v) behind when (v, w) is held out, and to "
            f"the {type(problem.kernel).__name__} kernel they are the same; give it symmetric=True"
        )
    p, m = values.shape
    count = len(path.regularizations)
    require_memory(8.0 * (count + 5) * p * m, "predictions of all labels left out")
    predictions = np.full((count, p, m), np.nan)
    splits = np.full((p, m), -1, dtype=np.intp)
    # EdgeKFold is for known nodes: labels of a node that became new are not predicted.
    unknown = np.nan if isinstance(splitter, EdgeKFold) else 0.0
    edges = np.column_stack([values.rows, values.columns])
    for number, (train, test) in enumerate(splitter.split(edges)):
        part = replace(problem, values=values.select(train))
        rows, columns = values.rows[test], values.columns[test]
        splits[rows, columns] = number
        for place, solution in path.solutions(part):
            scores = solution.at(rows, columns)
            if part.loss == "ranking":
                scores += _offsets(solution, unknown)[rows]
            predictions[place, rows, columns] = scores
    return predictions, splits


def _offsets(solution: Scores, unknown: float) -> Floats:
    """Mean residuals of conditioning nodes, which minimize the centered loss; shape (p,)."""
    values = solution.problem.values
    residuals = values.values - solution.at(values.rows, values.columns)
    counts = values.row_counts
    sums = np.bincount(values.rows, residuals, minlength=len(counts))
    return np.divide(sums, counts, out=np.full(len(counts), unknown), where=counts > 0)
