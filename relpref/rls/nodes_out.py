"""Hold-outs of whole nodes, in folds and by training again: for what has no closed form."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.solve import RelationProblem
from relpref.kernels import Side
from relpref.linalg import require_memory
from relpref.rls.regularization_path import RegularizationPath

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]


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

    With ``rows`` alone the conditioning nodes are new (setting 2), with ``columns`` alone the objects (setting 3), with both
    of them both (setting 4): then a fold of rows and one of columns leave together, and only the pairs of both are predicted.
    Where nodes are ranked for one another a new node leaves as a row and as a column, whatever the setting.

    Parameters
    ----------
    problem : RelationProblem
        Any: incomplete, symmetric, with any pairwise kernel.
    regularizations : sequence of float
        r positive values of λ.
    rows, columns : array of int, shapes (p,) and (m,)
        Fold of each node, at least one of them; the same folds where nodes are ranked for one another.
    tol, max_iterations
        Of the conjugate gradients, where there is no closed form.

    Returns
    -------
    array, shape (r, p, m)
        With the ranking loss without the offsets of the conditioning nodes: they order the objects of a fold.

    Raises
    ------
    DataError
        If there are not at least two folds, or a fold leaves nothing to learn from.
    InferenceError
        If conjugate gradients do not converge.
    """
    return nodes_out(problem, RegularizationPath(regularizations, tol, max_iterations), rows, columns)


def nodes_out(
    problem: RelationProblem, path: RegularizationPath, rows: ArrayLike | None, columns: ArrayLike | None
) -> Floats:
    """`leave_nodes_out` along a path, which knows what it has skipped."""
    p, m = problem.values.shape
    one_domain = problem.nodes is problem.objects
    row_folds, column_folds = _checked(rows, p, "row"), _checked(columns, m, "column")
    if rows is None and columns is None:
        raise DataError("no folds; give rows=, columns= or both")
    if (
        one_domain
        and rows is not None
        and columns is not None
        and not np.array_equal(row_folds, column_folds)
    ):
        raise DataError(
            "rows and columns are the same nodes, which leave as both; give them the same fold numbers"
        )
    require_memory(8.0 * len(path.regularizations) * p * m, "predictions of all labels left out")
    found = np.empty((len(path.regularizations), p, m))
    for row_fold, column_fold in product(np.unique(row_folds), np.unique(column_folds)):
        new = row_folds == row_fold, column_folds == column_fold
        kept_rows = ~new[0] if rows is not None else np.full(p, True)
        kept_columns = ~new[1] if columns is not None else np.full(m, True)
        blocks = [new]
        if one_domain:
            kept_rows = kept_columns = kept_rows & kept_columns
            if rows is not None and columns is not None:
                if row_fold > column_fold:  # done with the two exchanged, which leave the same nodes
                    continue
                blocks = [new, new[::-1]]
        kept = np.flatnonzero(kept_rows), np.flatnonzero(kept_columns)
        part = _part(problem, *kept)
        for place, solution in path.solutions(part):
            for block in blocks:
                left = _asked(problem.nodes, np.flatnonzero(block[0]), kept[0])
                right = _asked(problem.objects, np.flatnonzero(block[1]), kept[1])
                found[place][np.ix_(*block)] = part.kernel.scores(left, right, solution.dual_matrix)
    return found


def _checked(folds: ArrayLike | None, count: int, name: str) -> Positions:
    """Fold numbers; a single fold where there are none."""
    if folds is None:
        return np.zeros(count, dtype=np.intp)
    numbers = np.asarray(folds)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu" or len(np.unique(numbers)) < 2:
        raise DataError(
            f"{name}s have folds of {numbers.dtype} and shape {numbers.shape}, {len(np.unique(numbers))} of them distinct; "
            f"give a fold number for each of the {count} {name}s, and at least two folds"
        )
    return numbers.astype(np.intp)


def _part(problem: RelationProblem, rows: Positions, columns: Positions) -> RelationProblem:
    """The problem among some of the nodes."""
    nodes = _domain(problem.nodes, rows)
    objects = nodes if problem.nodes is problem.objects else _domain(problem.objects, columns)
    values = problem.values.subset(rows, columns)
    try:
        return replace(problem, nodes=nodes, objects=objects, values=values)
    except DataError as error:
        raise DataError(
            f"without one of the folds {len(rows)} x {len(columns)} nodes are left, and from them nothing can be learned ({error}); "
            "take fewer or other folds, or a regularization that need not be chosen"
        ) from None


def _domain(domain: Domain, kept: Positions) -> Domain:
    """Some nodes, whose features are their places in the kernel matrix that is there already."""
    labels = tuple(domain.labels[i] for i in kept)

    def kernel(left: Positions, right: Positions | None = None) -> Floats:
        return domain.gram[np.ix_(left, left if right is None else right)]

    return Domain(labels, kept, kernel, domain.name)


def _asked(domain: Domain, asked: Positions, kept: Positions) -> Side:
    """Nodes to predict for, as the nodes that were kept see them."""
    place = np.full(len(domain.labels), -1)
    place[kept] = np.arange(len(kept))
    return Side(domain.gram[np.ix_(asked, kept)], place[asked])
