"""Summaries of posteriors in plain text."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import label, text_table
from relpref.description import model_words

_PARTS = {"individual": "the items themselves"}


class Summary(str):
    """Text that is displayed as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def forest(table: pd.DataFrame, top: int, interval: float, what: str, value: str) -> str:
    """First rows of a ranking, with columns mean, lower, upper, and possibly tier and p_best."""
    shown = table.head(top)
    header = ["", what, value, f"{100 * interval:g}% interval"]
    columns = [
        [f"{place}" for place in range(1, len(shown) + 1)],
        [label(row_name(name)) for name in shown.index],
        [signed(mean) for mean in shown["mean"]],
        [
            f"{signed(lower)} to {signed(upper)}" if np.isfinite(upper - lower) else ""
            for lower, upper in zip(shown["lower"], shown["upper"], strict=True)
        ],
    ]
    if "p_best" in shown:
        header.append("best")
        columns.append([percent(chance) for chance in shown["p_best"]])
    if "tier" in shown and table["tier"].max() > 1:
        header.append("tier")
        columns.append([f"{tier}" for tier in shown["tier"]])
    text = text_table(header, list(zip(*columns, strict=True)), left=(1,))
    hidden = len(table) - len(shown)
    return f"{text}\n({hidden} more)" if hidden else text


def signed(value: float) -> str:
    rounded = round(value, 2)
    return f"{rounded:+.2f}" if rounded else "0.00"


def row_name(name: Hashable, between: str = " ") -> str:
    """Label of a row as text; parts of a tuple are separated."""
    return between.join(map(str, name)) if isinstance(name, tuple) else str(name)


def percent(chance: float) -> str:
    if np.isnan(chance):
        return ""
    return "<1%" if chance < 0.01 else ">99%" if chance > 0.99 else f"{chance:.0%}"


def sources(shares: pd.Series, indistinguishable: Sequence[tuple[str, str]] = ()) -> str:
    """Shares of the model's parts in the differences, and indistinguishable parts, in words."""
    listed = ", ".join(f"{_PARTS.get(name, name)} {share:.0%}" for name, share in shares.items())
    pairs = ([_PARTS.get(name, name) for name in pair] for pair in indistinguishable)
    sums = (
        f" The answers cannot tell {first} from {second}: only their sum is known."
        for first, second in pairs
    )
    return f"Where the differences come from: {listed}.{''.join(sums)}"


def fitted(posterior: Any) -> str:
    """The origin of the posterior."""
    model = posterior.info.get("model")
    how = {
        "integrate": ", averaged over hyperparameters",
        "nuts": ", averaged over draws of the hyperparameters",
        "maximize": ", hyperparameters at their maximum",
        "em": ", hyperparameters at their maximum",
    }.get(str(posterior.info.get("hyperparameters")), "")
    evidence = (
        "" if posterior.log_evidence is None else f"; log evidence {posterior.log_evidence:.2f}"
    )
    words = f" to {model_words(model)}" if model else ""
    check = posterior.info.get("check")
    compared = f" Compared with the exact posterior: {check}." if check else ""
    return f"Fitted{words} by {posterior.engine}{how}{evidence}.{compared}"
