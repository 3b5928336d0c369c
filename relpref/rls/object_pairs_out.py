"""Leave-pair-out for conditional ranking: how well each node's objects are ordered by models that saw neither of the two.

Single labels left out cannot be compared with each other: without its largest label a ranking's average falls, so that on
labels of pure noise the predictions order backwards. Two labels that leave together can (Pahikkala et al. 2008; Airola et
al. 2011). The residuals of w and w' in the row of v are, as in `relpref.rls.edge_out`, (Q_UU)⁻¹ a_U with Q_UU two by two, taken
from the m x m block of Q between the labels of v:

    regression     U diag(g) Uᵀ,                                    g_j = Σ_i V_vi² D_ij,   D_ij = 1/(κ_i γ_j + λ)
    ranking        less Nᵀ diag(V_vi²/c_i) N,                       N_ij = (M_i 1)_j,  c_i = 1ᵀ M_i 1,  M_i = (κ_i G + λ)⁻¹
    symmetric or   V diag(g) Vᵀ ± X D Xᵀ,                           X = V diag(V_v): both labels leave in both directions
    reciprocal
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relpref.data.relation_values import SIGN
from relpref.errors import DataError
from relpref.infer.exact.closed import KroneckerFit
from relpref.infer.exact.solve import RelationProblem
from relpref.linalg import require_memory
from relpref.rls.edge_out import check_no_leak, fits, labels_of
from relpref.rls.measures import PerNode

Floats = NDArray[np.float64]


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
