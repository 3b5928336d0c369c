"""Labels of a relation as predicted from those of other folds, exactly."""

import numpy as np
from numpy.typing import NDArray

from relpref.data.relation_values import SIGN
from relpref.diagnostics.predictive.folds import fold_of
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.diagnostics.predictive.relation_out import (
    Positions,
    distinct,
    opposites,
    require_density,
    scored_labels,
)
from relpref.infer import RelationPosterior
from relpref.infer.belief import Floats
from relpref.infer.exact.edge_scores import EdgeScores


def leave_folds_out(posterior: RelationPosterior, folds: int, rng: np.random.Generator) -> HeldOut:
    """See `k_fold`: labels U that leave together have the residuals P_UU⁻¹ a_U and the covariance σ² P_UU⁻¹.

    a, P and σ² as in `leave_label_out`; O(q³) for q labels, once for all folds. Under a constraint labels leave in both directions, and
    of those the model knows the contrasts (y ± y)/√2.
    """
    require_density(posterior)
    problem, solution = posterior.problem, posterior.solution
    values, symmetry = problem.values, problem.symmetry
    scores = EdgeScores(
        problem.kernel,
        problem.nodes,
        problem.objects,
        values,
        values.values,
        problem.loss,
        solution.regularization,
        solution.scale,
    ).direct()
    precision = scores.precision_matrix()
    kept = distinct(values, symmetry)
    rows, columns = values.rows[kept], values.columns[kept]
    low, high = (
        (rows, columns) if symmetry == "none" else (np.minimum(rows, columns), np.maximum(rows, columns))
    )
    fold = fold_of(low * values.shape[1] + high, folds, rng, "edge")
    mirror = kept if symmetry == "none" else opposites(values, SIGN[symmetry])[kept]
    mean, sd = np.full(len(kept), np.nan), np.full(len(kept), np.nan)
    for number in range(folds):
        test = np.flatnonzero(fold == number)
        first, second = kept[test], mirror[test]
        both = first != second
        # Orthonormal contrasts: of one label itself, of two (e ± e')/√2.
        size = np.where(both, np.sqrt(0.5), 1.0)
        sign = np.where(both, SIGN[symmetry], 0.0)
        block = precision[np.ix_(first, first)] + sign * precision[np.ix_(first, second)]
        block += sign[:, None] * (precision[np.ix_(second, first)] + sign * precision[np.ix_(second, second)])
        block *= np.multiply.outer(size, size)
        dual = size * (scores.dual[first] + sign * scores.dual[second])
        unknown = np.zeros(len(test), dtype=bool)
        if problem.loss == "ranking":
            block, unknown = _without_offsets(block, values.row_counts, rows[test])
        covariance = np.linalg.inv(block)
        found = values.values[first] - size * (covariance @ dual)
        spread = size * np.sqrt(solution.scale * np.diagonal(covariance))
        mean[test], sd[test] = np.where(unknown, np.nan, found), np.where(unknown, np.nan, spread)
    method = f"{folds} folds by edge, hyperparameters kept"
    return scored_labels(posterior, rows, columns, values.values[kept], mean, sd, method, ())


def _without_offsets(block: Floats, counts: Positions, rows: Positions) -> tuple[Floats, NDArray[np.bool_]]:
    """Make a block regular where all labels of a node leave, and say of which labels: nothing is known of the node's offset."""
    gone = np.bincount(rows, minlength=len(counts)) == counts
    unknown = gone[rows]
    same = (rows[:, None] == rows) & unknown
    return block + same * np.diagonal(block).max(), unknown
