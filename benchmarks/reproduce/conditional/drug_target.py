"""Drugs and targets (Yamanishi et al. 2008) in the four settings of Pahikkala et al. 2013, each by the hold-out that fits it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import table
from benchmarks.reproduce.conditional.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.data_loaders import drug_target
from relpref.infer.exact.solve import RelationProblem
from relpref.rls import (
    ConditionalRanker,
    PerNode,
    auc,
    leave_column_out,
    leave_edge_out,
    leave_nodes_out,
    leave_row_out,
    per_node,
)

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

LOSSES = ("regression", "ranking")
REGULARIZATIONS = tuple(float(value) for value in 10.0 ** np.arange(-2, 3))
SHOWN = 1.0
FOLDS = 5
SETTINGS = {
    1: "both known; each pair left out",
    2: "new drug; each row left out",
    3: "new target; each column left out",
    4: f"both new; {FOLDS} x {FOLDS} folds",
}
# Scores of one model are compared with each other and with no others (only the first setting has a model for every pair): else a
# drug's only target is ranked by the one model that has seen no target of the drug, and comes last.
MEASURES = {1: "all pairs", 2: "by drug", 3: "by target", 4: "by drug and fold"}


def held_out(problem: RelationProblem, setting: int, folds: tuple[Positions, Positions]) -> Array:
    """Predictions of every pair at each regularisation."""
    if setting == 1:
        return leave_edge_out(problem, REGULARIZATIONS)
    if setting == 2:
        return leave_row_out(problem, REGULARIZATIONS)
    if setting == 3:
        return leave_column_out(problem, REGULARIZATIONS)
    return leave_nodes_out(problem, REGULARIZATIONS, rows=folds[0], columns=folds[1])


def judged(relation: Array, scores: Array, setting: int, columns: Positions) -> float:
    """AUC of the pairs that are to be told apart in a setting."""
    if setting == 1:
        return auc(relation.ravel(), scores.ravel())
    if setting == 2:
        return per_node(auc, relation, scores).mean
    if setting == 3:
        return per_node(auc, relation.T, scores.T).mean
    blocks = [
        per_node(auc, relation[:, columns == fold], scores[:, columns == fold]) for fold in range(FOLDS)
    ]
    return PerNode(np.concatenate([block.values for block in blocks])).mean


def compute(part: Part, quick: bool) -> list[Row]:
    """AUC of held-out predictions for each loss, setting and regularisation."""
    data = drug_target.load(str(part[0]))
    relation = data.interactions.to_numpy()
    rng = np.random.default_rng(2008)
    drugs, targets = (rng.permutation(size) % FOLDS for size in relation.shape)
    rows: list[Row] = []
    for loss in LOSSES:
        ranker = ConditionalRanker(kernel="precomputed", object_kernel="precomputed", loss=loss)
        problem = ranker.problem(data.drug_similarity, data.interactions, data.target_similarity)
        for setting in SETTINGS:
            predictions = held_out(problem, setting, (drugs, targets)).reshape(-1, *relation.shape)
            for value, scores in zip(REGULARIZATIONS, predictions, strict=True):
                named = {"loss": loss, "setting": setting, "regularization": value}
                rows.append(named | {"auc": judged(relation, scores, setting, targets)})
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """AUC at one regularisation fixed beforehand, and its range over all of them."""
    lines = []
    for (family, setting, loss), group in rows.groupby(["family", "setting", "loss"]):
        shown = group[np.isclose(group["regularization"], SHOWN)].iloc[0]
        span = " to ".join(f"{end:.3f}" for end in (group["auc"].min(), group["auc"].max()))
        named = [str(family), f"{setting}: {SETTINGS[int(setting)]}", MEASURES[int(setting)], str(loss)]
        lines.append([*named, f"{shown['auc']:.3f}", span])
    return table(["family", "setting", "AUC of", "loss", "at λ = 1", "over all λ"], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """AUC over the regularisation, a panel for each family."""
    families = list(drug_target.FAMILIES)
    panels = figure.subplots(1, len(families), sharey=True)
    for panel, family in zip(panels, families, strict=True):
        for (setting, loss), group in rows[rows["family"] == family].groupby(["setting", "loss"]):
            group = group.sort_values("regularization")
            panel.plot(
                group["regularization"],
                group["auc"],
                color=f"C{setting - 1}",
                linestyle="--" if loss == "ranking" else "-",
                label=f"{setting}, {loss}",
            )
        panel.set(xscale="log", xlabel="λ", title=f"{family}: {drug_target.FAMILIES[family]}")
    panels[0].set_ylabel("AUC")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)


EXPERIMENT = Experiment(
    name="drug-target",
    title="Drugs and targets in four settings",
    part=("family",),
    key=("family", "loss", "setting", "regularization"),
    parts=lambda quick: [("nr",)] if quick else [(family,) for family in drug_target.FAMILIES],
    compute=compute,
    markdown=markdown,
    draw=draw,
)
