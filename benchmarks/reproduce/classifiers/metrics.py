"""How good probabilities of two classes are, beside what is had without looking: the share of the
classes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.dummy import DummyClassifier
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    log_loss,
    roc_auc_score,
)

Floats = NDArray[np.float64]
Scores = dict[str, float]

EDGES = tuple(float(edge) for edge in np.linspace(0.0, 1.0, 11))


def judge(truth: ArrayLike, probability: ArrayLike) -> Scores:
    """Accuracy, AUC, average precision (AUPR), log loss, F1 and expected calibration error.

    Parameters
    ----------
    truth : array of {0, 1} or bool, shape (m,)
    probability : array, shape (m,)
        Of 1.

    Returns
    -------
    dict
        AUC and average precision are NaN where all labels are the same.
    """
    truth, probability = np.asarray(truth).astype(int), np.asarray(probability, dtype=np.float64)
    said = (probability > 0.5).astype(int)
    ranked = 0 < truth.mean() < 1
    return {
        "accuracy": float(accuracy_score(truth, said)),
        "auc": float(roc_auc_score(truth, probability)) if ranked else np.nan,
        "average_precision": float(average_precision_score(truth, probability))
        if ranked
        else np.nan,
        "log_loss": float(log_loss(truth, probability, labels=[0, 1])),
        "f1": float(f1_score(truth, said, zero_division=0.0)),
        "calibration_error": calibration_error(reliability(truth, probability)),
    }


def constant_class(known: ArrayLike, truth: ArrayLike) -> Scores:
    """The same of the constant classifier, which says of everything the share of 1 among the known
    labels.

    F1 is that of the better constant answer, which is always to say 1: where classes are balanced
    it is 2/3, and beats what looks for the truth.
    """
    known, truth = np.asarray(known).astype(int), np.asarray(truth).astype(int)
    nothing = np.zeros((len(known), 1)), np.zeros((len(truth), 1))
    share = DummyClassifier(strategy="prior").fit(nothing[0], known).predict_proba(nothing[1])
    probability = share[:, -1] if share.shape[1] == 2 else np.full(len(truth), float(known[0]))
    return judge(truth, probability) | {
        "f1": float(f1_score(truth, np.ones(len(truth)), zero_division=0.0))
    }


def reliability(truth: ArrayLike, probability: ArrayLike, edges: ArrayLike = EDGES) -> pd.DataFrame:
    """How often it is 1 where a probability is said, bin by bin.

    Parameters
    ----------
    truth, probability : array, shape (m,)
    edges : array
        Of the bins, from 0 to 1; ten of equal width by default.

    Returns
    -------
    DataFrame
        By bin that is not empty: ``count``, ``said`` (mean probability), ``happened`` (share of 1),
        and ``standard_error``, by which the latter would stray if what was said were right.
    """
    truth, probability = (
        np.asarray(truth, dtype=np.float64),
        np.asarray(probability, dtype=np.float64),
    )
    edges = np.asarray(edges)
    # The last bin is closed on both sides.
    bin_ = np.minimum(np.searchsorted(edges, probability, side="right") - 1, len(edges) - 2)
    rows = pd.DataFrame(
        {
            "bin": bin_,
            "said": probability,
            "happened": truth,
            "variance": probability * (1 - probability),
        }
    ).groupby("bin")
    count = rows.size()
    return pd.DataFrame(
        {
            "count": count,
            "said": rows["said"].mean(),
            "happened": rows["happened"].mean(),
            "standard_error": np.sqrt(rows["variance"].sum()) / count,
        }
    )


def calibration_error(table: pd.DataFrame) -> float:
    """Expected calibration error: the mean gap between what was said and what happened (Guo et al.
    2017).
    """
    return float(np.average(np.abs(table["said"] - table["happened"]), weights=table["count"]))
