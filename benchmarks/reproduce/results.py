"""The rows of an experiment: kept on disk as they come, and summed up in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ranksums, wilcoxon

from benchmarks.measure import table
from benchmarks.reproduce.models import BASELINE, MODELS
from benchmarks.reproduce.protocol import Protocol
from benchmarks.reproduce.work import COLUMNS, KEY, Row
from relpref.files import replaced


class Results:
    """A CSV file with one row for every query, size, rerun and model; replaced whole at each addition.

    Parameters
    ----------
    path : Path
        Rows that are there already are kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(COLUMNS))

    def done(self) -> set[tuple[Any, ...]]:
        """Protocol, query, size and rerun for which every model has its row."""
        models = self.rows.groupby(["protocol", "query", "size", "rerun"])["model"].agg(set)
        return {key for key, found in models.items() if found >= set(MODELS)}

    def add(self, rows: list[Row]) -> None:
        """Write more rows; a row replaces an earlier one of the same key."""
        more = pd.DataFrame(rows, columns=list(COLUMNS))
        joined = pd.concat([self.rows, more]) if len(self.rows) else more
        self.rows = joined.drop_duplicates(list(KEY), keep="last").sort_values(list(KEY), ignore_index=True)
        with replaced(self._path) as part:
            self.rows.to_csv(part, index=False)


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
        Means and standard deviations of error and AUC over queries and reruns; for all but the baseline the share of the baseline's
        mean error that is gone (``reduction``), and p-values against the baseline: ``rank_sum`` over all errors, the paper's test,
        which takes the reruns of one query for independent; ``signed_rank`` over the queries' mean differences, which does not.
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
                line |= _against(error, by[BASELINE]["error"])
            line["failed"] = int((by[name]["result"] != "converged").sum())
            lines.append(line)
    return pd.DataFrame(lines)


def _against(error: pd.Series, baseline: pd.Series) -> dict[str, float]:
    difference = (error - baseline).groupby("query").mean().dropna()
    some = bool((difference != 0).any())
    return {
        "reduction": float(1 - error.mean() / baseline.mean()) if baseline.mean() > 0 else np.nan,
        "rank_sum": float(ranksums(error.dropna(), baseline.dropna()).pvalue),
        "signed_rank": float(wilcoxon(difference).pvalue) if some else np.nan,
    }


def markdown(lines: pd.DataFrame) -> str:
    """The summary as a table for a page."""
    header = ("setting", "pairs", "model", "error", "AUC", "error saved", "p, rank sum", "p, signed rank")
    rows = []
    for line in lines.to_dict("records"):
        compared = np.isfinite(line.get("reduction", np.nan))
        rows.append(
            (
                str(line["setting"]),
                str(line["size"]),
                MODELS[line["model"]].title,
                f"{line['error']:.3f} ± {line['error_sd']:.3f}",
                f"{line['auc']:.3f} ± {line['auc_sd']:.3f}",
                f"{100 * line['reduction']:.0f} %" if compared else "",
                _p(line["rank_sum"]) if compared else "",
                _p(line["signed_rank"]) if compared else "",
            )
        )
    return table(header, rows)


def _p(value: float) -> str:
    return "" if not np.isfinite(value) else "< 0.0001" if value < 1e-4 else f"{value:.2g}"
