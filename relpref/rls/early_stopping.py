"""Early stopping by how well conditioning nodes that were held out are ranked for."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.infer.exact.iterative import EarlyStopping
from relpref.infer.exact.solve import RelationProblem
from relpref.rls.measures import concordance, per_node

Floats = NDArray[np.float64]


def hold_nodes_out(
    problem: RelationProblem, fraction: float | bool, patience: int, seed: int
) -> tuple[RelationProblem, EarlyStopping]:
    """Take the edges of some conditioning nodes out of a problem, and watch how well those nodes are ranked for.

    Parameters
    ----------
    problem : RelationProblem
    fraction : float or True
        Of the conditioning nodes with two different labels, the only ones with a concordance; True: a tenth.
    patience : int
        See `EarlyStopping`.
    seed : int
        Of the choice of nodes.

    Returns
    -------
    RelationProblem
        With the other edges.
    EarlyStopping

    Raises
    ------
    DataError
        If no such node is left.
    """
    share = 0.1 if fraction is True else float(fraction)
    if not 0 < share < 1:
        raise DataError(f"early_stopping is {fraction}; it is a fraction between 0 and 1")
    values = problem.values
    labels = values.mean_matrix
    ranked = np.flatnonzero(np.fmax.reduce(labels, axis=1) > np.fmin.reduce(labels, axis=1))
    count = max(1, round(share * len(ranked)))
    if count >= len(ranked):
        raise DataError(
            f"early_stopping holds out {count} of {len(ranked)} conditioning nodes with two different labels; too few are left: "
            "choose the regularization by ConditionalRankerCV with cv='edge' instead"
        )
    held = np.random.default_rng(seed).choice(ranked, count, replace=False)
    out = np.isin(values.rows, held)
    if (
        problem.kernel.one_domain
    ):  # symmetric or reciprocal, by itself at least: both directions leave together
        out |= np.isin(values.columns, held)
    kept = replace(problem, values=values.select(~out))
    truth = labels[held]
    left, right = kept.nodes.ask([kept.nodes.labels[row] for row in held]), kept.objects.ask()

    def held_out_concordance(dual: Floats) -> float:
        scores = kept.kernel.scores(left.side, right.side, kept.dual_matrix(dual))
        return per_node(concordance, truth, scores).mean

    return kept, EarlyStopping(held_out_concordance, patience)
