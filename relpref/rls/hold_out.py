"""Exact predictions for one example, or a group, by a training without it, from one decomposition (after LPO)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve

from relpref.data.relation_data import SIGN
from relpref.errors import DataError
from relpref.infer.exact.closed import KroneckerFit
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.solve import RelationProblem
from relpref.kernels import Side
from relpref.linalg import require_memory, symmetric_eigen
from relpref.rls.regularization_path import Floats, Indices, RegularizationPath, RidgeSpectrum
from relpref.rls.splits import PerNode


def leave_one_out(spectrum: RidgeSpectrum, regularizations: Floats) -> Floats:
    """What a training on all others predicts for each example.

    Parameters
    ----------
    spectrum : RidgeSpectrum
        Of m examples, at least two, with d outputs.
    regularizations : array, shape (r,)

    Returns
    -------
    array, shape (r, m, d)
    """
    queries, sizes = spectrum.queries, spectrum.sizes
    alone = sizes[queries] == 1
    squares = np.square(spectrum.vectors)
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    for held_out, regularization in zip(predictions, regularizations, strict=True):
        weights = spectrum.weights(regularization, left_out=1)
        # Who is alone in a query has 0/0 here: its offset takes any residual, and 0 will do.
        diagonal = np.where(alone, 1.0, squares @ weights)
        residuals = spectrum.dual(weights) / diagonal[:, None]
        held_out[...] = spectrum.labels - residuals
        if spectrum.query_means is not None:  # less J r − b, see RidgeSpectrum.offsets
            means = spectrum.query_means * weights
            own = np.sum(means[queries] * spectrum.vectors, axis=1) - 1 / sizes[queries]
            held_out -= own[:, None] * residuals - (means @ spectrum.rotated)[queries]
    return predictions


def leave_group_out(spectrum: RidgeSpectrum, groups: Indices, regularizations: Floats) -> Floats:
    """What a training on all other groups predicts for the examples of each.

    Parameters
    ----------
    spectrum : RidgeSpectrum
        Of m examples with d outputs.
    groups : array of int, shape (m,)
        From 0; at least two groups.
    regularizations : array, shape (r,)

    Returns
    -------
    array, shape (r, m, d)

    Notes
    -----
    O(m u²) for a group of u examples and each regularisation, instead of a training.
    """
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    order = np.argsort(groups, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(groups))[:-1]):
        rows, own = spectrum.vectors[members], spectrum.queries[members]
        # A query that leaves as a whole takes its offset along; any value of it will do, so fix its mean residual.
        whole = (np.bincount(own, minlength=len(spectrum.sizes)) == spectrum.sizes)[own]
        same_query = (own[:, None] == own) & whole
        for held_out, regularization in zip(predictions, regularizations, strict=True):
            weights = spectrum.weights(regularization, left_out=len(members))
            weighted = rows * weights
            block = weighted @ rows.T
            block += same_query * max(block.diagonal().max(), weights.min())
            residuals = solve(block, weighted @ spectrum.rotated, assume_a="pos")
            query, response, base = spectrum.offsets(weights, members)
            held_out[members] = spectrum.labels[members] - residuals - (response @ residuals - base)[query]
    return predictions


def leave_edge_out(
    problem: RelationProblem, regularizations: Sequence[float], pairs: ArrayLike | None = None
) -> Floats:
    """Predict each label from all the others: both nodes are known (setting 1).

    Of a symmetric or reciprocal relation (v, w) and (w, v) leave together; that costs O(p²) a pair. With the ranking loss the
    prediction includes the node's offset, as its other labels tell it, so that it compares with those.

    For errors of single predictions. Not for their order or correlation, which one label left out at a time makes too small
    (below chance on noise): for that see `leave_object_pairs_out`.

    Parameters
    ----------
    problem : RelationProblem
        With a closed form.
    regularizations : sequence of float
        r positive values of λ.
    pairs : array of int, shape (q, 2), optional
        Rows and columns of the labels wanted; all of them by default.

    Returns
    -------
    array, shape (r, p, m), or (r, q) for given pairs

    Raises
    ------
    DataError
        If the problem has no closed form, λ is not positive, or labels left behind would tell those left out.
    """
    check_no_leak(problem)
    p, m = problem.values.shape
    if pairs is None:
        rows, columns = (place.ravel() for place in np.indices((p, m)))
    else:
        rows, columns = _checked_pairs(pairs, p, m)
    _require(problem, len(regularizations) * len(rows))
    labels = labels_of(problem)[rows, columns]
    found = np.empty((len(regularizations), len(rows)))
    for prediction, fit in zip(found, fits(problem, regularizations), strict=True):
        own = own_precision(problem, fit, rows, columns)
        np.subtract(labels, fit.dual[rows, columns] / own, out=prediction)
    return found.reshape(-1, p, m) if pairs is None else found


def own_precision(
    problem: RelationProblem, fit: KroneckerFit, rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> Floats:
    """What the dual of each label is divided by to give its residual when it is left out; without the scale.

    It is the inverse of the variance of the label given all others; of one that leaves in both directions, twice the variance's.
    """
    diagonal = (np.square(fit.system.left.vectors) @ _diagonals(fit))[rows, columns]
    if problem.symmetry != "none":
        # Q_UU = [[q, c], [c, q]] and a_U = (a, ±a): the residual is a/(q ± c), and a/q for a label on the diagonal.
        diagonal += SIGN[problem.symmetry] * _between_directions(fit, rows, columns)
    return np.asarray(diagonal)


def leave_row_out(problem: RelationProblem, regularizations: Sequence[float]) -> Floats:
    """Predict all labels of each conditioning node from those of the others: the node is new (setting 2).

    Parameters
    ----------
    problem : RelationProblem
        With a closed form, and not symmetric or reciprocal.
    regularizations : sequence of float
        r positive values of λ.

    Returns
    -------
    array, shape (r, p, m)
        With the ranking loss the mean of each row is zero: nothing is known of the offset of a new node.

    Raises
    ------
    DataError
        As `leave_edge_out`; or if the relation is symmetric or reciprocal.
    """
    _check_two_sided(problem, "a conditioning node")
    labels, basis = labels_of(problem), problem.objects.eigen
    values, vectors = basis.values, basis.vectors
    if problem.loss == "ranking":
        # Of a row without offset only the contrasts are predicted: the blocks are diagonal in the eigenbasis of C G C.
        labels = labels - labels.mean(axis=1, keepdims=True)
        gram = problem.objects.gram
        centred = gram - gram.mean(axis=0)
        centred -= centred.mean(axis=1, keepdims=True)
        # Centring removes what the objects have in common but not its rounding, which has the scale of G.
        scale = float(np.linalg.norm(gram))
        values, vectors = symmetric_eigen(0.5 * (centred + centred.T), "centred kernel matrix", scale=scale)
    _require(problem, len(regularizations) * labels.size)
    found = np.empty((len(regularizations), *labels.shape))
    for prediction, fit in zip(found, fits(problem, regularizations), strict=True):
        left = fit.system.left
        shrinkage = 1.0 / (np.multiply.outer(left.values, values) + fit.regularization)
        residual = (fit.dual @ vectors) / (np.square(left.vectors) @ shrinkage)
        np.subtract(labels, residual @ vectors.T, out=prediction)
    return found


def leave_column_out(problem: RelationProblem, regularizations: Sequence[float]) -> Floats:
    """Predict all labels of each object from those of the others: the object is new (setting 3).

    Predictions for one object compare with each other. Those for different objects are of different models: their order
    within a row is below chance on noise, as with `leave_edge_out`; compare objects that leave together (`leave_nodes_out`).

    Parameters
    ----------
    problem : RelationProblem
        With a closed form, and not symmetric or reciprocal.
    regularizations : sequence of float
        r positive values of λ.

    Returns
    -------
    array, shape (r, p, m)
        With the ranking loss the predictions include the offsets of the conditioning nodes, as their other labels tell them.

    Raises
    ------
    DataError
        As `leave_edge_out`; or if the relation is symmetric or reciprocal.
    """
    _check_two_sided(problem, "an object")
    labels = labels_of(problem)
    _require(problem, len(regularizations) * labels.size)
    found = np.empty((len(regularizations), *labels.shape))
    for prediction, fit in zip(found, fits(problem, regularizations), strict=True):
        left, right = fit.system.left.vectors, fit.system.right.vectors
        residual = left @ ((fit.rotated_dual @ right.T) / _diagonals(fit))
        np.subtract(labels, residual, out=prediction)
    return found


def fits(problem: RelationProblem, regularizations: Sequence[float]) -> Iterator[KroneckerFit]:
    """The closed form at each λ."""
    system = problem.system(full=True)
    for regularization in regularizations:
        yield system.solve(float(regularization))


def _diagonals(fit: KroneckerFit) -> Floats:
    """Diagonals of the blocks (κ_i G + λ)⁻¹ of Q, or of P with the ranking loss, one block in each row; shape (p, m)."""
    right = fit.system.right.vectors
    diagonals = fit.shrinkage @ np.square(right).T
    if fit.system.loss == "ranking":
        diagonals -= np.square((fit.shrinkage * fit.system.ones) @ right.T) / fit.offset_precision[:, None]
    return diagonals


def _between_directions(fit: KroneckerFit, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    """Q between (v, w) and (w, v): xᵀ D x with x = V_v ∘ V_w; 0 for v = w, which is one label and not two.

    For the reciprocal kernel the diagonal is not there at all: its coefficients are zero, and remain so.
    """
    vectors, shrinkage = fit.system.left.vectors, fit.shrinkage
    first, second = np.minimum(rows, columns), np.maximum(rows, columns)
    distinct, place = np.unique(first * len(vectors) + second, return_inverse=True)
    first, second = np.divmod(distinct, len(vectors))
    found = np.zeros(len(distinct))
    starts = np.flatnonzero(np.diff(first, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(first)), strict=True):
        both = vectors[first[start]] * vectors[second[start:end]]
        found[start:end] = np.einsum("ij,ij->i", both @ shrinkage, both)
    found[first == second] = 0.0
    return found[place]


def labels_of(problem: RelationProblem) -> Floats:
    """Y; under a constraint (Y ± Yᵀ)/2, which is what the model is trained on."""
    labels = problem.values.matrix
    sign = SIGN[problem.symmetry]
    return labels if sign == 0.0 else 0.5 * (labels + sign * labels.T)


def _require(problem: RelationProblem, answers: int) -> None:
    p, m = problem.values.shape
    require_memory(8.0 * (answers + 4 * p * m), f"predictions of {answers} labels left out")


def _checked_pairs(pairs: ArrayLike, p: int, m: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise DataError(f"pairs are {given.dtype} of shape {given.shape}; give a row and a column for each")
    if given.size and (np.any(given < 0) or np.any(given >= (p, m))):
        raise DataError(f"pairs reach from {given.min(axis=0)} to {given.max(axis=0)}; there are {p} x {m}")
    return given[:, 0].astype(np.intp), given[:, 1].astype(np.intp)


def _check_two_sided(problem: RelationProblem, what: str) -> None:
    if problem.symmetry != "none":
        raise DataError(
            f"in a {problem.symmetry} relation the labels of {what} that is new are in a row and in a column, and no "
            "closed form leaves out both; use leave_nodes_out"
        )
    check_no_leak(problem)


def check_no_leak(problem: RelationProblem) -> None:
    """Refuse what has no closed form, and a relation whose labels say everything twice if nobody told."""
    if not problem.closed:
        raise DataError(
            "hold-outs in closed form need a completely observed relation, the Kronecker kernel, and for the ranking loss "
            "symmetry='none'; use leave_nodes_out or cross-validation with relpref.rls.EdgeKFold"
        )
    if problem.symmetry != "none" or problem.nodes is not problem.objects or len(problem.nodes.gram) < 3:
        return
    labels = problem.values.matrix
    scale = 1e-9 * np.abs(labels).max()
    off = ~np.eye(len(labels), dtype=bool)
    for kind, sums in (("symmetric", labels - labels.T), ("reciprocal", labels + labels.T)):
        if np.ptp(sums[off]) <= scale:
            raise DataError(
                f"the labels are {kind}, but symmetry is 'none': (w, v) would tell what is left out at (v, w); use "
                f"symmetry={kind!r} with loss='regression', or leave_nodes_out"
            )


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


def leave_object_pairs_out(problem: RelationProblem, regularizations: Sequence[float]) -> list[PerNode]:
    """Concordance of each conditioning node over all pairs of its objects, both labels left out.

    O(m³) for a node and a value of λ. The objects of a symmetric or reciprocal relation do not include the node itself.

    Parameters
    ----------
    problem : RelationProblem
        With a closed form.
    regularizations : sequence of float
        r positive values of λ.

    Returns
    -------
    list of PerNode, length r
        Share of the pairs with different labels that are ordered rightly, equal predictions counting one half; NaN for a
        node without such pairs.

    Raises
    ------
    DataError
        If the problem has no closed form, there are fewer than three objects, λ is not positive, or labels left behind would
        tell those left out.
    """
    check_no_leak(problem)
    p, m = problem.values.shape
    if m < 3:
        raise DataError(
            f"there are {m} objects; without two of them nothing is left to learn a node's order from"
        )
    require_memory(8.0 * (4 * p * m + 10 * m * m), f"leaving out the pairs of {m} objects")
    labels = labels_of(problem)
    found = []
    for fit in fits(problem, regularizations):
        blocks = _Blocks(fit)
        found.append(PerNode(np.array([_concordance(labels[v], fit.dual[v], blocks, v) for v in range(p)])))
    return found


class _Blocks:
    """The blocks of Q, or of P with the ranking loss, between the labels of one conditioning node."""

    def __init__(self, fit: KroneckerFit) -> None:
        self.fit = fit
        system = fit.system
        self.squared = np.square(system.left.vectors)
        if system.loss == "ranking":
            pulled = (fit.shrinkage * system.ones) @ system.right.vectors.T
            self.pulled = pulled / np.sqrt(fit.offset_precision)[:, None]

    def __getitem__(self, node: int) -> Floats:
        system, shrinkage = self.fit.system, self.fit.shrinkage
        right = system.right.vectors
        block = (right * (self.squared[node] @ shrinkage)) @ right.T
        if system.loss == "ranking":
            block -= (self.pulled.T * self.squared[node]) @ self.pulled
        if system.symmetry != "none":
            both = right * right[node]
            block += SIGN[system.symmetry] * (both @ shrinkage @ both.T)
        return block


def _concordance(labels: Floats, dual: Floats, blocks: _Blocks, node: int) -> float:
    block = blocks[node]
    if blocks.fit.system.symmetry != "none":
        others = np.arange(len(labels)) != node
        labels, dual, block = labels[others], dual[others], block[np.ix_(others, others)]
    gaps = np.subtract.outer(labels, labels)
    first, second = np.nonzero(np.triu(gaps != 0.0))
    if not len(first):
        return np.nan
    own, between = np.diagonal(block), block[first, second]
    # The two residuals' difference, by Cramer's rule.
    residual = dual[first] * (own[second] + between) - dual[second] * (own[first] + between)
    residual /= own[first] * own[second] - between**2
    gap = gaps[first, second]
    predicted = gap - residual
    # A residual of rounding's size is no preference.
    slack = 1e-12 * (np.abs(gap) + np.abs(residual))
    agreement = np.where(np.abs(predicted) <= slack, 0.0, np.sign(predicted) * np.sign(gap))
    return float(0.5 + 0.5 * agreement.mean())


# Pairs treated at once: what the summary makes of them stays in the cache, what is handed out in some megabytes.
_CACHED, _HANDED_OUT = 2**15, 2**18
# What rounding leaves of the difference of two identical examples, relative to the largest label.
_TIE = 1e-10


class HeldOutPairs(NamedTuple):
    """Some pairs with their held-out predictions.

    Attributes
    ----------
    first, second : array of int, shape (q,)
        The two examples of each pair, first < second.
    predicted_first, predicted_second : array, shape (q,), (q, d), (r, q) or (r, q, d)
        What ``predict`` gives for them after a training without both: an axis for the regularisations where several were
        given, one for the outputs where there are several. Of a ranking loss only the differences are identified.
    """

    first: Indices
    second: Indices
    predicted_first: Floats
    predicted_second: Floats


@dataclass(frozen=True, eq=False)
class LeavePairOut:
    """Every pair left out in turn, or every pair of a query where there are queries.

    Attributes
    ----------
    concordance : float or array, shape (d,), (r,) or (r, d)
        Share of the pairs with different labels whose held-out predictions have the same order; equal predictions count one
        half (they are equal up to 1e-10 of the largest label, which is rounding). NaN without such a pair.
    """

    concordance: Any
    _spectrum: RidgeSpectrum = field(repr=False)
    _regularizations: Floats = field(repr=False)
    _index: Any = field(repr=False)

    @property
    def auc(self) -> Any:
        """The concordance of labels with two values: an unbiased estimate of the area under the ROC curve (LPO section 5).

        Raises
        ------
        DataError
            If an output has more than two values.
        """
        for members in _queries(self._spectrum):
            for output, labels in enumerate(self._spectrum.labels[members].T):
                if (values := len(np.unique(labels))) > 2:
                    raise DataError(
                        f"AUC is for two labels and output {output} has at least {values}; use concordance"
                    )
        return self.concordance

    def pairs(self) -> Iterator[HeldOutPairs]:
        """All pairs with their predictions, in blocks of at most some 250,000 predictions (or one row of pairs)."""
        size = _HANDED_OUT // (len(self._regularizations) * self._spectrum.labels.shape[1])
        for members in _queries(self._spectrum):
            vectors = self._spectrum.vectors[members]
            systems = [
                PairSystems.of(self._spectrum, members, vectors, regularization)
                for regularization in self._regularizations
            ]
            for start, stop in _row_blocks(len(members), size):
                row, column = np.triu_indices(stop - start, 1, len(members) - start)
                predicted = np.array(
                    [system.predictions(start, stop)[..., row, column] for system in systems]
                )
                predicted = np.swapaxes(predicted, 2, 3)  # (r, 2, q, d)
                yield HeldOutPairs(
                    members[start + row],
                    members[start + column],
                    predicted[:, 0][self._index],
                    predicted[:, 1][self._index],
                )


def leave_pair_out(spectrum: RidgeSpectrum, regularizations: Floats, index: Any = ...) -> LeavePairOut:
    """Leave out every pair.

    Parameters
    ----------
    spectrum : RidgeSpectrum
        Of m examples, at least three, with d outputs.
    regularizations : array, shape (r,)
    index : optional
        What to take of arrays that have an axis for the regularisations first and one for the outputs last.

    Notes
    -----
    One m x m product for each regularisation, then O(m² d).
    """
    score = np.zeros((len(regularizations), spectrum.labels.shape[1]))
    different = np.zeros(spectrum.labels.shape[1])
    tie = _TIE * np.abs(spectrum.labels).max(axis=0)
    for members in _queries(spectrum):
        vectors = spectrum.vectors[members]
        different += [_different(labels) for labels in spectrum.labels[members].T]
        for scored, regularization in zip(score, regularizations, strict=True):
            systems = PairSystems.of(spectrum, members, vectors, regularization)
            scored += systems.surplus(systems.products(), tie)
    with np.errstate(invalid="ignore"):  # 0/0 where all labels are the same
        concordance = 0.5 + 0.5 * score / different
    return LeavePairOut(concordance[index][()], spectrum, regularizations, index)


class PairSystems(NamedTuple):
    """(P_UU) r = (P y)_U for all pairs U of some examples, at one regularisation.

    Attributes
    ----------
    vectors, weights : array, shape (u, m) and (m,)
        P = W diag(weights) Wᵀ.
    diagonal, dual : array, shape (u,) and (u, d)
        Diagonal of P, and P y.
    labels : array, shape (u, d)
    response, base : array, shape (u,) and (d,)
        For the offset, see `RidgeSpectrum.offsets`.
    whole : bool
        Whether the only pair is all of its query.
    """

    vectors: Floats
    weights: Floats
    diagonal: Floats
    dual: Floats
    labels: Floats
    response: Floats
    base: Floats
    whole: bool

    @classmethod
    def of(
        cls, spectrum: RidgeSpectrum, members: Indices, vectors: Floats, regularization: float
    ) -> "PairSystems":
        """Of the pairs of some members, whose rows of W are ``vectors``."""
        weights = spectrum.weights(regularization, left_out=2)
        diagonal = np.square(vectors) @ weights
        dual = (vectors * weights) @ spectrum.rotated
        _, response, base = spectrum.offsets(weights, members)
        whole = len(members) == 2 and spectrum.query_means is not None
        return cls(vectors, weights, diagonal, dual, spectrum.labels[members], response[0], base[0], whole)

    def products(self) -> Floats:
        """P, shape (u, u)."""
        factor = self.vectors * np.sqrt(self.weights)
        return factor @ factor.T

    def surplus(self, products: Floats, tie: Floats) -> Floats:
        """Pairs in the right order less pairs in the wrong order, shape (d,); overwrites the diagonal of P."""
        result = np.zeros(len(tie))
        for start, stop in _row_blocks(len(products), _CACHED):
            counted = np.tri(stop - start, len(products) - start, dtype=bool)
            left, right = self.residuals(products[start:stop, start:], start)
            for output, labels in enumerate(self.labels.T):
                gap = labels[start:stop, None] - labels[start:]
                gap[counted] = 0.0
                held_out = (gap - (left[output] - right[output])) * np.sign(gap)
                result[output] += np.count_nonzero(held_out > tie[output])
                result[output] -= np.count_nonzero(held_out < -tie[output])
        return result

    def predictions(self, start: int, stop: int) -> Floats:
        """What both examples of the pairs of some rows with all columns from the first of them get, shape (2, d, rows, columns)."""
        products = (self.vectors[start:stop] * self.weights) @ self.vectors[start:].T
        left, right = self.residuals(products, start)
        offset = (
            self.response[start:stop, None] * left + self.response[start:] * right - self.base[:, None, None]
        )
        labels = self.labels.T
        return np.array(
            [labels[:, start:stop, None] - left - offset, labels[:, None, start:] - right - offset]
        )

    def residuals(self, products: Floats, start: int) -> tuple[Floats, Floats]:
        """Labels of the left and of the right example minus their predictions with an offset, each of shape (d, rows, columns).

        ``products`` is the part of P from the row and the column ``start``; what comes out left of and on its diagonal
        has no meaning.
        """
        np.fill_diagonal(products, 0.0)
        left, right = self.diagonal[start : start + len(products), None], self.diagonal[start:]
        if self.whole:
            # P_UU = a (1 −1; −1 1) leaves the offset open; the residuals with mean 0 are those of 2a I.
            products, left, right = 0.0 * products, 2 * left, 2 * right
        determinant = left * right - np.square(products)
        own, other = self.dual.T[:, start : start + len(products), None], self.dual.T[:, None, start:]
        return (right * own - products * other) / determinant, (left * other - products * own) / determinant


def _queries(spectrum: RidgeSpectrum) -> Iterator[Indices]:
    """The examples of each query that has a pair."""
    order = np.argsort(spectrum.queries, kind="stable")
    for members in np.split(order, np.cumsum(spectrum.sizes)[:-1]):
        if len(members) > 1:
            yield members


def _row_blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Rows of an upper triangle, as many at once as have about so many elements."""
    start = 0
    while start < count - 1:
        stop = min(start + max(1, size // (count - start)), count)
        yield start, stop
        start = stop


def _different(labels: Floats) -> int:
    """Number of pairs with different labels."""
    counts = np.unique(labels, return_counts=True)[1]
    return int(len(labels) ** 2 - np.sum(np.square(counts))) // 2
