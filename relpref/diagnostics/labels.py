"""Labels of a relation as predicted from the others, by the closed form of Gaussian regression.

The residual of labels U that leave together is P_UU⁻¹ a_U and their covariance σ² P_UU⁻¹ (Rasmussen & Williams 2006, eq. 5.12): a is the
dual, P the matrix that makes the dual of the labels, σ² the scale. Under a constraint a label leaves in both directions, as a pair
of which the model knows one contrast, (y ± y)/√2.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from relpref.data.arrays import counted
from relpref.data.relation_data import SIGN
from relpref.diagnostics.held_out import HeldOut
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.exact.solve import opposites
from relpref.infer.relation_posterior import RelationPosterior
from relpref.posterior.gaussian import Floats
from relpref.posterior.tables import objects

Positions = NDArray[np.intp]

_ORDER = (
    "for errors of single labels, not for their order, which one label left out at a time makes too small: for that see "
    "relpref.rls.leave_object_pairs_out"
)


def fold_of(groups: NDArray[Any], folds: int, rng: np.random.Generator, name: str) -> Positions:
    """A fold for each of some things, those of one group together."""
    numbers = pd.factorize(groups)[0]
    count = int(numbers.max(initial=-1)) + 1
    if count < folds:
        raise DataError(f"{counted(count, name)} cannot make {folds} folds; give fewer")
    return np.asarray(rng.permutation(count) * folds // count)[numbers]


def leave_label_out(posterior: RelationPosterior) -> HeldOut:
    """See `leave_one_out`."""
    _require_density(posterior)
    problem, solution = posterior.problem, posterior.solution
    values, symmetry = problem.values, problem.symmetry
    kept = values.distinct(symmetry)
    rows, columns = values.rows[kept], values.columns[kept]
    dual, own = solution.left_out(kept)
    if problem.loss == "ranking":  # nothing is known of the offset of a node without another label
        own = np.where(values.row_counts[rows] == 1, np.nan, own)
    # Of a contrast in both directions, √2 times the label, the variance is σ²/P.
    both = (symmetry != "none") & (rows != columns)
    sd = np.sqrt(solution.scale / own / np.where(both, 2.0, 1.0))
    mean = values.values[kept] - dual / own
    return _scored(posterior, kept, mean, sd, "leave-one-out", (_ORDER,))


def leave_label_folds_out(posterior: RelationPosterior, folds: int, rng: np.random.Generator) -> HeldOut:
    """See `k_fold`; O(q³) for q labels, once for all folds."""
    _require_density(posterior)
    problem, solution = posterior.problem, posterior.solution
    values, symmetry = problem.values, problem.symmetry
    scores = solution.by_edges()
    precision, kept = scores.precision_matrix(), values.distinct(symmetry)
    fold = fold_of(values.pairs(symmetry)[kept], folds, rng, "edge")
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
            # Where all labels of a node leave, nothing is known of its offset; the block is made regular.
            rows = values.rows[first]
            unknown = (np.bincount(rows, minlength=len(values.row_counts)) == values.row_counts)[rows]
            block += ((rows[:, None] == rows) & unknown) * np.diagonal(block).max()
        covariance = np.linalg.inv(block)
        found = values.values[first] - size * (covariance @ dual)
        spread = size * np.sqrt(solution.scale * np.diagonal(covariance))
        mean[test], sd[test] = np.where(unknown, np.nan, found), np.where(unknown, np.nan, spread)
    return _scored(posterior, kept, mean, sd, f"{folds} folds by edge, hyperparameters kept", ())


def _require_density(posterior: RelationPosterior) -> None:
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


def _scored(
    posterior: RelationPosterior,
    kept: Positions,
    mean: Floats,
    sd: Floats,
    method: str,
    notes: tuple[str, ...],
) -> HeldOut:
    """Predictions of some labels, less the shift, as a table; labels without a prediction are left out."""
    values = posterior.problem.values
    labels = values.values[kept]
    known = np.flatnonzero(~np.isnan(mean))
    if len(known) < len(mean):
        alone = len(mean) - len(known)
        notes = (*notes, f"{alone} labels are the only ones of their node, and cannot be predicted")
    log_score = norm.logpdf(labels, mean, sd)
    table = pd.DataFrame(
        {
            "node": objects(posterior.nodes.labels[row] for row in values.rows[kept]),
            "object": objects(posterior.objects.labels[column] for column in values.columns[kept]),
            "label": labels + posterior.shift,
            "mean": mean + posterior.shift,
            "sd": sd,
            "probability": np.exp(log_score),
            "log_score": log_score,
        }
    )
    outcome = np.full(len(known), -1, dtype=np.intp)
    table = table.iloc[known].reset_index(drop=True)
    return HeldOut(table, method, notes, np.full((len(known), 3), np.nan), outcome)
