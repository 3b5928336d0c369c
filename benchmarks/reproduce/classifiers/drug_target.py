"""Drugs and targets (Yamanishi et al. 2008): probabilities of interactions in the four settings of
Pahikkala et al. 2013, and whether they hold.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import table
from benchmarks.reproduce.classifiers.metrics import constant_class, judge, reliability
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.classifiers import KroneckerGPClassifier
from relpref.data_loaders import drug_target
from relpref.data_loaders.drug_target import DrugTarget
from relpref.rls import BothKFold, ConditionalRanker, EdgeKFold, SourceKFold, TargetKFold

Array = NDArray[np.float64]

LANDMARKS: dict[str, int | None] = {"nr": None, "gpcr": 1000}
LEAST = 1e-3  # what RLS says of a probability stays this far from 0 and 1
# Of the bins of the reliability table: most probabilities are small.
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
BINS = range(len(EDGES) - 1)


@dataclass(frozen=True)
class Setting:
    """What is new in the test, by the number it has in the papers."""

    number: int
    splitter: Any


SETTINGS = {
    "both known": Setting(1, EdgeKFold(3, shuffle=True, random_state=2008)),
    "new drug": Setting(2, SourceKFold(3, shuffle=True, random_state=2008)),
    "new target": Setting(3, TargetKFold(3, shuffle=True, random_state=2008)),
    "both new": Setting(4, BothKFold(3, shuffle=True, random_state=2008)),
}


def held_out(data: DrugTarget, setting: str, fold: int) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """The interactions with what is not known in the training blanked, and which are judged."""
    shape = data.interactions.shape
    edges = np.column_stack(np.divmod(np.arange(shape[0] * shape[1]), shape[1]))
    train, test = list(SETTINGS[setting].splitter.split(edges))[fold]
    known, judged = (np.zeros(shape, dtype=bool) for _ in range(2))
    known.flat[train], judged.flat[test] = True, True
    return data.interactions.where(known), judged


def gaussian_process(
    data: DrugTarget, known: pd.DataFrame, landmarks: int | None
) -> tuple[Array, dict[str, float]]:
    """Probabilities, and what the landmarks leave out."""
    estimator = KroneckerGPClassifier("precomputed", landmarks=landmarks)
    with warnings.catch_warnings():  # the tables say what is left out
        warnings.filterwarnings("ignore", ".* landmarks leave out", UserWarning)
        estimator.fit(data.drug_similarity, known, data.target_similarity)
    more = {
        "landmarks": len(estimator.landmarks_),
        "left_out": estimator.landmark_error_,
        "amplitude": estimator.posterior_.hyperparameters["amplitude"],
    }
    return estimator.predict_proba().to_numpy(), more


def least_squares(
    data: DrugTarget, known: pd.DataFrame, landmarks: int | None
) -> tuple[Array, dict[str, float]]:
    """Scores of regression at λ = 1, which was fixed beforehand, taken for probabilities."""
    ranker = ConditionalRanker(
        "precomputed", object_kernel="precomputed", loss="regression", regularization=1.0
    )
    scores = ranker.fit(data.drug_similarity, known, data.target_similarity).predict()
    return np.clip(scores.to_numpy(), LEAST, 1 - LEAST), {}


METHODS: dict[str, Callable[..., tuple[Array, dict[str, float]]]] = {
    "GP classifier": gaussian_process,
    "RLS": least_squares,
}
CONSTANT = "share of interactions"


def compute(part: Part, quick: bool) -> list[Row]:
    """Each method's scores on one fold, and its reliability table."""
    family, setting, fold = str(part[0]), str(part[1]), int(part[2])
    data = drug_target.load(family)
    known, judged = held_out(data, setting, fold)
    truth = data.interactions.to_numpy()[judged]
    labels = known.to_numpy()
    rows: list[Row] = [{"method": CONSTANT} | constant_class(labels[~np.isnan(labels)], truth)]
    for name, method in METHODS.items():
        start = time.perf_counter()
        found, more = method(data, known, 60 if quick else LANDMARKS[family])
        seconds = time.perf_counter() - start
        bins = reliability(truth, found[judged], EDGES).reindex(BINS)
        flat = {
            f"{column}_{at}": bins.loc[at, column]
            for at in BINS
            for column in ("count", "said", "happened")
        }
        rows.append(
            {"method": name, "seconds": seconds} | judge(truth, found[judged]) | more | flat
        )
    return rows


def parts(quick: bool) -> list[Part]:
    """A fold of a setting of a family."""
    if quick:
        return [("nr", setting, 0) for setting in SETTINGS]
    return [
        (family, setting, fold)
        for family in drug_target.FAMILIES
        for setting, of in SETTINGS.items()
        for fold in range(of.splitter.get_n_splits())
    ]


MEASURES = {
    "auc": "AUC",
    "average_precision": "AUPR",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
}


def markdown(rows: pd.DataFrame) -> str:
    """Averages over folds; then how often it was an interaction where a probability was said."""
    lines = []
    for family, setting, of in by_setting(rows):
        for name in (*METHODS, CONSTANT):
            mean = of[of["method"] == name][[*MEASURES]].mean()
            shown = [f"{mean[measure]:.3f}" for measure in MEASURES]
            lines.append([family, f"{SETTINGS[setting].number}: {setting}", name, *shown])
    scores = table(["family", "setting", "method", *MEASURES.values()], lines)
    lines = []
    for family, setting, of in by_setting(rows[rows["method"] == "GP classifier"]):
        bins = pooled(of).reindex(BINS)
        shown = [
            f"{line['said']:.3f} → {line['happened']:.3f} ({line['count']:.0f})"
            if line["count"] > 0
            else ""
            for _, line in bins.iterrows()
        ]
        lines.append([family, setting, *shown])
    names = [f"{low:g} to {high:g}" for low, high in pairwise(EDGES)]
    about = (
        rows[rows["method"] == "GP classifier"]
        .groupby("family")[["landmarks", "left_out", "seconds"]]
        .mean()
    )
    costs = "; ".join(
        f"{family}: {line['landmarks']:.0f} landmarks leave out {line['left_out']:.0%} of the "
        "prior variance, a fit takes "
        f"{line['seconds']:.0f} s"
        for family, line in about.iterrows()
    )
    return (
        f"{scores}\n\nAverages over folds. {costs} (compilation and prediction of all pairs "
        "included).\n\n"
        "What the Gaussian process said and how often it happened, in all folds together (number "
        "of pairs):\n\n"
        f"{table(['family', 'setting', *names], lines)}"
    )


def by_setting(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """The rows of each family and setting, in the order of the settings' numbers."""
    for family in dict.fromkeys(rows["family"]):
        for setting in SETTINGS:
            of = rows[(rows["family"] == family) & (rows["setting"] == setting)]
            if len(of):
                yield family, setting, of


def pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """One reliability table of several: by bin that is not empty, count, said and happened."""
    found = {}
    for at in BINS:
        count = rows[f"count_{at}"].fillna(0.0)
        if count.sum():
            means = {
                name: np.average(rows[f"{name}_{at}"].fillna(0.0), weights=count)
                for name in ("said", "happened")
            }
            found[at] = {"count": count.sum(), **means}
    return pd.DataFrame.from_dict(found, orient="index", columns=["count", "said", "happened"])


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Reliability diagrams: a row for each family, a panel for each method, a line for each
    setting.

    Bars are two standard errors if what was said is right: they reach the diagonal where it may be.
    An arrowhead on the lower edge says that it never happened, or less often than LEAST.
    """
    families = list(dict.fromkeys(rows["family"]))
    panels = figure.subplots(len(families), len(METHODS), sharex=True, sharey=True, squeeze=False)
    for family, line in zip(families, panels, strict=True):
        for name, panel in zip(METHODS, line, strict=True):
            panel.plot([LEAST, 1], [LEAST, 1], color="0.7", linewidth=1)
            of = rows[(rows["family"] == family) & (rows["method"] == name)]
            for at, (_, setting, group) in enumerate(by_setting(of)):
                bins = pooled(group)
                happened = np.maximum(bins["happened"], LEAST)  # the axis has no 0
                error = 2 * np.sqrt(bins["said"] * (1 - bins["said"]) / bins["count"])
                low, high = (np.clip(bins["happened"] + by, LEAST, 1) for by in (-error, error))
                panel.errorbar(
                    bins["said"],
                    happened,
                    (happened - low, high - happened),
                    color=f"C{at}",
                    marker="o",
                    markersize=3,
                    linewidth=1,
                    label=setting,
                )
                below = bins["happened"] < LEAST
                panel.plot(bins["said"][below], happened[below], f"C{at}v", markersize=7)
            panel.set(
                xscale="log",
                yscale="log",
                xlim=(LEAST, 1.2),
                ylim=(LEAST / 1.3, 1.2),
                title=f"{family}: {name}",
            )
    for panel in panels[-1]:
        panel.set_xlabel("said")
    for panel in panels[:, 0]:
        panel.set_ylabel("happened")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False
    )


EXPERIMENT = Experiment(
    name="drug-target-probabilities",
    title="Probabilities of drug-target interactions",
    part=("family", "setting", "fold"),
    key=("family", "setting", "fold", "method"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(8, 6),
)
