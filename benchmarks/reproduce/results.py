"""The rows of an experiment, and a table that sums them up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ranksums, wilcoxon

from benchmarks.measure import table
from benchmarks.reproduce.models import BASELINE, CONTROL, MODELS
from benchmarks.reproduce.protocol import Protocol
from benchmarks.reproduce.rows import Rows
from benchmarks.reproduce.work import KEY


class Results(Rows):
    """One row for every query, size, rerun and model.

    Parameters
    ----------
    path : Path
        Rows that are there already are kept.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, KEY)

    def done(self) -> set[tuple[Any, ...]]:
        """Protocol, query, size and rerun for which every model has its row."""
        models = self.rows.groupby(["protocol", "query", "size", "rerun"])["model"].agg(set)
        return {key for key, found in models.items() if found >= set(MODELS)}


def of(rows: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """The rows that belong to a protocol: of the queries, sizes and reruns it asks for."""
    mine = (
        (rows["protocol"] == protocol.name)
        & rows["size"].isin(protocol.sizes)
        & (rows["query"] < protocol.queries)
        & (rows["rerun"] < protocol.reruns)
    )
    return rows[mine]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for every setting, number of pairs and model.

    Parameters
    ----------
    rows : DataFrame
        Of one protocol.

    Returns
    -------
    DataFrame
        Means and standard deviations of error and AUC over queries and reruns; for all but the
        baseline the share of the baseline's mean error that is gone (``saved``), and p-values
        against the baseline: ``rank_sum`` over all errors, the paper's test, which takes the reruns
        of one query for independent; ``signed_rank`` over the queries' mean differences, which does
        not. ``control_saved`` and so on: what the relational models save against the control.
        ``failed`` counts fits that did not converge.
    """
    lines = []
    for (setting, size), group in rows.groupby(["setting", "size"], sort=True):
        by = {name: part.set_index(["query", "rerun"]) for name, part in group.groupby("model")}
        for name in MODELS:
            if name not in by:
                continue
            error, auc = by[name]["error"], by[name]["auc"]
            line = {"setting": setting, "size": size, "model": name, "runs": len(error)}
            line |= {"error": error.mean(), "error_sd": error.std(ddof=1)}
            line |= {"auc": auc.mean(), "auc_sd": auc.std(ddof=1)}
            if name != BASELINE and BASELINE in by:
                line |= _against(error, by[BASELINE]["error"], "")
            if MODELS[name].relational and CONTROL in by:
                line |= _against(error, by[CONTROL]["error"], "control_")
            line["failed"] = int((by[name]["result"] != "converged").sum())
            lines.append(line)
    return pd.DataFrame(lines)


def _against(error: pd.Series, other: pd.Series, prefix: str) -> dict[str, float]:
    difference = (error - other).groupby("query").mean().dropna()
    some = bool((difference != 0).any())
    return {
        f"{prefix}saved": float(1 - error.mean() / other.mean()) if other.mean() > 0 else np.nan,
        f"{prefix}rank_sum": float(ranksums(error.dropna(), other.dropna()).pvalue),
        f"{prefix}signed_rank": float(wilcoxon(difference).pvalue) if some else np.nan,
    }


def markdown(lines: pd.DataFrame) -> str:
    """The summary as a table for a page."""
    header = [
        "setting",
        "pairs",
        "model",
        "error",
        "AUC",
        "saves of PGP's error",
        "rank sum",
        "signed rank",
    ]
    header += ["saves of the shuffled one's", "signed rank"]
    rows = [
        [
            str(line["setting"]),
            str(line["size"]),
            MODELS[line["model"]].title,
            f"{line['error']:.3f} ± {line['error_sd']:.3f}",
            f"{line['auc']:.3f} ± {line['auc_sd']:.3f}",
            _percent(line.get("saved")),
            p_value(line.get("rank_sum")),
            p_value(line.get("signed_rank")),
            _percent(line.get("control_saved")),
            p_value(line.get("control_signed_rank")),
        ]
        for line in lines.to_dict("records")
    ]
    return table(header, rows)


def _percent(share: float | None) -> str:
    return "" if share is None or not np.isfinite(share) else f"{100 * share:.0f} %"


def p_value(value: float | None) -> str:
    """As it stands in a table."""
    if value is None or not np.isfinite(value):
        return ""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"
