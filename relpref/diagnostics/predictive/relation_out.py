"""Each label of a relation as predicted from all the others, exactly: Gaussian regression in closed form."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from relpref.data.relation_values import SIGN, RelationValues
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import RelationPosterior
from relpref.infer.belief import Floats
from relpref.infer.exact.closed_scores import ClosedScores
from relpref.infer.exact.edge_scores import EdgeScores
from relpref.infer.ranks import objects
from relpref.rls.edge_out import check_no_leak, own_precision

Positions = NDArray[np.intp]

_ORDER = (
    "for errors of single labels, not for their order, which one label left out at a time makes too small: for that see "
    "relpref.rls.leave_object_pairs_out"
)


def leave_label_out(posterior: RelationPosterior) -> HeldOut:
    """See `leave_one_out`: the residual of a label that is left out is a/P, and its variance σ²/P (Rasmussen & Williams 2006, eq. 5.12).

    a is its entry of the dual, P its diagonal entry of the matrix that makes the dual of the labels, σ² the scale. Under a constraint
    a label leaves in both directions, as a pair of which the model knows one contrast.
    """
    require_density(posterior)
    problem, solution = posterior.problem, posterior.solution
    kept = distinct(problem.values, problem.symmetry)
    rows, columns = problem.values.rows[kept], problem.values.columns[kept]
    labels = problem.values.values[kept]
    if isinstance(solution, ClosedScores):
        check_no_leak(problem)
        fit = problem.system(full=True).solve(solution.regularization)
        dual, own = fit.dual[rows, columns], own_precision(problem, fit, rows, columns)
    else:
        assert isinstance(solution, EdgeScores)
        dual, own = solution.dual[kept], _own_of_edges(solution, kept, problem.symmetry)
    single = np.zeros(len(kept), dtype=bool)
    if problem.loss == "ranking":  # nothing is known of the offset of a node without another label
        single = problem.values.row_counts[rows] == 1
    own = np.where(single, np.nan, own)
    # Of a contrast (y ± y)/√2 in both directions, √2 times the label, the variance is σ²/P.
    both = (problem.symmetry != "none") & (rows != columns)
    sd = np.sqrt(solution.scale / own / np.where(both, 2.0, 1.0))
    return scored_labels(
        posterior, rows, columns, labels, labels - dual / own, sd, "leave-one-out", (_ORDER,)
    )


def require_density(posterior: RelationPosterior) -> None:
    """Refuse scores that give labels no probability."""
    posterior._warn_if_not_converged()
    problem, scale = posterior.problem, posterior.solution.scale
    if problem.symmetry != "none" and problem.loss == "ranking":
        raise UnsupportedProgramError(
            f"the ranking loss of a {problem.symmetry} relation uses every label at both its ends, so labels have no probability; use "
            'loss="regression", or relpref.rls.leave_nodes_out'
        )
    if not scale > 0:
        raise DataError(f"the scale of the scores is {scale}, so labels have no probability")


def scored_labels(
    posterior: RelationPosterior,
    rows: Positions,
    columns: Positions,
    labels: Floats,
    mean: Floats,
    sd: Floats,
    method: str,
    notes: tuple[str, ...],
) -> HeldOut:
    """Predictions of labels, less the shift, as a table; labels without a prediction are left out."""
    known = np.flatnonzero(~np.isnan(mean))
    if len(known) < len(mean):
        notes = (
            *notes,
            f"{len(mean) - len(known)} labels are the only ones of their node, and cannot be predicted",
        )
    log_score = norm.logpdf(labels, mean, sd)
    table = pd.DataFrame(
        {
            "node": objects(posterior.nodes.labels[row] for row in rows),
            "object": objects(posterior.objects.labels[column] for column in columns),
            "label": labels + posterior.shift,
            "mean": mean + posterior.shift,
            "sd": sd,
            "probability": np.exp(log_score),
            "log_score": log_score,
        }
    )
    nothing = np.full(len(known), -1, dtype=np.intp)
    return HeldOut(
        table.iloc[known].reset_index(drop=True), method, notes, np.full((len(known), 3), np.nan), nothing
    )


def distinct(values: RelationValues, symmetry: str) -> Positions:
    """The labels that say something of their own, by position: of a constrained relation one direction."""
    if symmetry == "none":
        return np.arange(len(values.values))
    gap = values.columns - values.rows
    return np.flatnonzero(gap >= 0 if symmetry == "symmetric" else gap > 0)


def opposites(values: RelationValues, sign: float) -> Positions:
    """For each label of a constrained relation the one that says the same in the other direction; a node's with itself is its own.

    Where a pair was measured often, its labels are taken in the order of their values.
    """
    rows, columns = values.rows, values.columns
    forward, backward = np.flatnonzero(columns >= rows), np.flatnonzero(columns <= rows)
    forward = forward[np.lexsort((values.values[forward], columns[forward], rows[forward]))]
    backward = backward[np.lexsort((sign * values.values[backward], rows[backward], columns[backward]))]
    found = np.empty(len(rows), dtype=np.intp)
    found[backward], found[forward] = forward, backward
    return found


def _own_of_edges(solution: EdgeScores, kept: Positions, symmetry: str) -> Floats:
    """As `own_precision`, from the edges' own matrix."""
    precision = solution.precision_matrix()
    own = np.diagonal(precision)[kept]
    if symmetry == "none":
        return own
    other = opposites(solution.values, SIGN[symmetry])[kept]
    return own + np.where(other == kept, 0.0, SIGN[symmetry] * precision[kept, other])
