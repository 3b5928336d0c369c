"""Classifiers with four kernels, judged on the same rankings held out, and the constant one beside
them.
"""

from __future__ import annotations

import time

import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.reproduce.classifiers.metrics import constant_class, judge
from benchmarks.reproduce.rows import Row
from relpref import Rankings
from relpref.classifiers import RankingGPClassifier
from relpref.kernels import item_graph

NAMES = ("cut", "kendall", "mallows", "concave")
CONSTANT = "constant"
SCORES = ("accuracy", "auc", "log_loss", "f1")
TEST_SHARE = 0.2


def judged(
    rankings: Rankings, seed: int, mallows_landmarks: int, keep: float | None = None
) -> list[Row]:
    """Train on four fifths, judge on the rest: a row for each kernel, one for the constant
    classifier.

    Parameters
    ----------
    rankings : Rankings
        Of two classes.
    seed : int
        Of the split.
    mallows_landmarks : int
        How many rankings stand for all others in the Mallows kernel, whose features these are.
    keep : float, optional
        Share of the heaviest edges of the item graph that are kept for the kernels that have one;
        all by default.
    """
    train, test = train_test_split(
        rankings, test_size=TEST_SHARE, random_state=seed, stratify=rankings.label
    )
    rows: list[Row] = [{"kernel": CONSTANT} | constant_class(train.label, test.label)]
    for name in NAMES:
        graph = (
            item_graph(rankings.items.standardized_attributes(), keep=keep)
            if name in ("cut", "concave")
            else None
        )
        classifier = RankingGPClassifier(name, graph=graph)
        if name == "mallows":
            classifier.set_params(landmarks=mallows_landmarks)
        begin = time.perf_counter()
        classifier.fit(train)
        chance = classifier.predict_proba(test)[:, 1]
        rows.append(
            {
                "kernel": name,
                **judge(test.label, chance),
                "amplitude": classifier.posterior_.hyperparameters["amplitude"],
                "landmark_error": classifier.landmark_error_,
                "sampling_error": classifier.sampling_error_,
                "seconds": time.perf_counter() - begin,
            }
        )
    return rows


def spread(values: pd.Series) -> str:
    """Mean and its standard error."""
    return (
        f"{values.mean():.3f} ± {values.sem():.3f}" if len(values) > 1 else f"{values.mean():.3f}"
    )
