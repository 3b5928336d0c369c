"""Drugs and targets (Yamanishi et al. 2008) in the four settings of Pahikkala et al. 2013, each by
the hold-out that fits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import table
from benchmarks.reproduce.experiment import Experiment, Part
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
    leave_object_pairs_out,
    leave_row_out,
    per_node,
)

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

LOSSES = ("regression", "ranking")
REGULARIZATIONS = tuple(float(value) for value in 10.0 ** np.arange(-2, 3))
SHOWN = 1.0
FOLDS = 5


@dataclass(frozen=True)
class Setting:
    """A hold-out.

    Attributes
    ----------
    title : str
        What is new, and what is left out.
    over : str
        Within what predictions are compared with each other.
    judge : callable
        From a problem, its labels and the fold of each drug and target to the AUC at each
        regularization.
    """

    title: str
    over: str
    judge: Callable[[RelationProblem, Array, tuple[Positions, Positions]], Iterable[float]]


def _pairs(
    problem: RelationProblem, relation: Array, folds: tuple[Positions, Positions]
) -> Iterable[float]:
    return [found.mean for found in leave_object_pairs_out(problem, REGULARIZATIONS)]


def _edges(
    problem: RelationProblem, relation: Array, folds: tuple[Positions, Positions]
) -> Iterable[float]:
    return [
        per_node(auc, relation, scores).mean for scores in leave_edge_out(problem, REGULARIZATIONS)
    ]


def _rows(
    problem: RelationProblem, relation: Array, folds: tuple[Positions, Positions]
) -> Iterable[float]:
    return [
        per_node(auc, relation, scores).mean for scores in leave_row_out(problem, REGULARIZATIONS)
    ]


def _columns(
    problem: RelationProblem, relation: Array, folds: tuple[Positions, Positions]
) -> Iterable[float]:
    return [
        per_node(auc, relation.T, scores.T).mean
        for scores in leave_column_out(problem, REGULARIZATIONS)
    ]


def _both(
    problem: RelationProblem, relation: Array, folds: tuple[Positions, Positions]
) -> Iterable[float]:
    rows, columns = folds
    for scores in leave_nodes_out(problem, REGULARIZATIONS, rows=rows, columns=columns):
        of_fold = [
            per_node(auc, relation[:, columns == at], scores[:, columns == at])
            for at in range(FOLDS)
        ]
        yield PerNode(np.concatenate([found.values for found in of_fold])).mean


SETTINGS = {
    "1": Setting("both known; two labels of a drug left out", "by drug", _pairs),
    "1, control": Setting("both known; one label left out", "by drug, of different models", _edges),
    "2": Setting("new drug; its row left out", "by drug", _rows),
    "3": Setting("new target; its column left out", "by target", _columns),
    "4": Setting(f"both new; {FOLDS} x {FOLDS} folds left out", "by drug and fold", _both),
}


def compute(part: Part, quick: bool) -> list[Row]:
    """AUC of held-out predictions for each loss, setting and regularization."""
    data = drug_target.load(str(part[0]))
    relation = data.interactions.to_numpy()
    rng = np.random.default_rng(2008)
    drugs, targets = (rng.permutation(size) % FOLDS for size in relation.shape)
    rows: list[Row] = []
    for loss in LOSSES:
        ranker = ConditionalRanker(kernel="precomputed", object_kernel="precomputed", loss=loss)
        problem = ranker.problem(data.drug_similarity, data.interactions, data.target_similarity)
        for name, setting in SETTINGS.items():
            found = setting.judge(problem, relation, (drugs, targets))
            rows += [
                {"loss": loss, "setting": name, "regularization": value, "auc": score}
                for value, score in zip(REGULARIZATIONS, found, strict=True)
            ]
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """AUC at one regularization fixed beforehand, and its range over all of them."""
    lines = []
    for (family, setting, loss), group in rows.groupby(["family", "setting", "loss"]):
        shown = group[np.isclose(group["regularization"], SHOWN)].iloc[0]
        span = " to ".join(f"{end:.3f}" for end in (group["auc"].min(), group["auc"].max()))
        held_out = SETTINGS[str(setting)]
        named = [str(family), f"{setting}: {held_out.title}", held_out.over, str(loss)]
        lines.append([*named, f"{shown['auc']:.3f}", span])
    return table(["family", "setting", "AUC of", "loss", "at λ = 1", "over all λ"], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """AUC over the regularization, a panel for each family."""
    families = list(drug_target.FAMILIES)
    panels = figure.subplots(1, len(families), sharey=True)
    for panel, family in zip(panels, families, strict=True):
        for (setting, loss), group in rows[rows["family"] == family].groupby(["setting", "loss"]):
            group = group.sort_values("regularization")
            panel.plot(
                group["regularization"],
                group["auc"],
                color=f"C{list(SETTINGS).index(str(setting))}",
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
