"""Hold-outs of a completely observed relation in closed form: each prediction as if its labels had never been there.

For least squares with the system matrix Q = (K⊗G + λ)⁻¹ and the dual coefficients a = Q y, the residuals of a set U of labels
that are left out together are (Q_UU)⁻¹ a_U. With the ranking loss, whose conditioning nodes have a flat offset, the same
holds of P = Q − Q B (Bᵀ Q B)⁻¹ Bᵀ Q, B the indicators of the nodes (block Gaussian elimination; for a single label this is
the leave-one-out formula of ridge regression). In the eigenbasis K = V diag(κ) Vᵀ, G = U diag(γ) Uᵀ every Q_UU below is
diagonal or a number: each λ costs a few products of matrices. New rows with the ranking loss need one eigendecomposition
more, and labels that leave in both directions O(p²) each.

A relation that is symmetric or reciprocal says everything twice. There (v, w) and (w, v) leave together, and a new node leaves
as a row and as a column (`relpref.rls.leave_nodes_out`); otherwise labels of pure noise would be predicted nearly perfectly.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.data.relation_values import SIGN
from relpref.errors import DataError
from relpref.infer.exact.closed import KroneckerFit
from relpref.infer.exact.solve import RelationProblem
from relpref.linalg import require_memory, symmetric_eigen

Floats = NDArray[np.float64]


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
