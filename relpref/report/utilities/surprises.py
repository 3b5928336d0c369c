"""The chapter on answers that contradict the rest."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from relpref.diagnostics import HeldOut
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.checked import Unknown
from relpref.report.grid import cell, grid
from relpref.report.text import counted, fixed, percent, significant, whole
from relpref.report.utilities.subject import Subject

_TITLE = "Surprising answers"
_ROWS = 10
_SURPRISING = 0.25  # held-out probability of what was answered, below which it is shown


def surprises(subject: Subject) -> Chapter | None:
    """The chapter; None where there are no answers."""
    if not subject.posterior.data.num_answers:
        return None
    table, held = subject.checked.influence, subject.checked.held_out
    if isinstance(held, Unknown):
        return Chapter(_TITLE, [Text(f"This is left out: {held.why}.")])
    if isinstance(table, Unknown):
        return Chapter(_TITLE, [Text(f"This is left out: {table.why}.")])
    forecasts = held.forecasts
    if forecasts is None:
        head = table.head(_ROWS)
        what = "The answers are probabilities; those that fit the others least are shown."
        measure = (
            "Density: how much was to be expected of the reported probability, predicted from all the others; it is 1 on average over all "
            "that could be reported, and near 0 for a surprise."
        )
    else:
        table = _by_side(table, held)
        odd = table[table["probability"] < _SURPRISING]
        head, count = odd.head(_ROWS), int(_counts(odd).sum())
        # Every outcome under the bound, not only the one that was answered, happens with its own probability.
        chances = np.where(forecasts.chances < _SURPRISING, forecasts.chances, 0.0)
        expected = float(forecasts.weight @ chances.sum(axis=1))
        what = (
            f"Of {counted(held.num_answers, 'answer')}, {whole(count) if count else 'none'} had a probability under {_SURPRISING:.0%} by all the others; "
            f"about {whole(round(expected))} would be expected by chance alone."
        )
        whatever = ", however strongly" if "strength" in table else ""
        measure = f"Probability: of preferring that one{whatever}, or of a tie where it is one, predicted from all the others."
    blocks: list[Block] = [Text(what)]
    if len(head):
        blocks += [
            grid("What contradicts the rest, most surprising first", *_rows(subject, head)),
            Text(
                f"{measure} Weight: which utility would move farthest if the answer had not been given, in units of its uncertainty (one "
                "standard deviation). A surprising answer of much weight is the one to check.",
                small=True,
            ),
        ]
    return Chapter(_TITLE, blocks)


def _by_side(table: pd.DataFrame, held: HeldOut) -> pd.DataFrame:
    """With the probability of the side that was answered, whatever the strength, which is what the others tell of an answer."""
    answered = held.chances[np.arange(len(held.outcome)), held.outcome]
    return table.assign(probability=answered[table.index]).sort_values("probability", kind="stable")


def _counts(table: pd.DataFrame) -> "pd.Series[int]":
    return table["count"] if "count" in table else pd.Series(1, index=table.index)


def _rows(subject: Subject, head: pd.DataFrame) -> tuple[list[str], list[list[Cell | str]], list[int]]:
    """Columns, rows and which columns are numbers."""
    reported = "reported" in head
    measure = "Density" if reported else "Probability"
    columns = ["Answer"]
    columns += ["Rater"] if "rater" in head else []
    columns += ["Times"] if "count" in head and (head["count"] > 1).any() else []
    columns += [measure, "Weight"]
    rows: list[list[Cell | str]] = []
    for row in head.to_dict("records"):
        line: list[Cell | str] = [_said(subject, row)]
        if "Rater" in columns:
            line.append(cell(row["rater"]))
        if "Times" in columns:
            line.append(whole(int(row["count"])))
        line.append(fixed(row["probability"]) if reported else percent(row["probability"]))
        # Leaving out moves by the shift, so the answer itself moves the other way.
        line.append(f"moves {subject.named(row['entity'])} by {fixed(-row['shift'])}")
        rows.append(line)
    return columns, rows, [place for place, name in enumerate(columns) if name in ("Times", measure)]


def _said(subject: Subject, row: dict[Hashable, Any]) -> str:
    """An answer in words."""
    if "reported" in row:
        first, second = subject.named(row["first"]), subject.named(row["second"])
        return f"{first} over {second} with {significant(100 * row['reported'])}%"
    one, other = subject.named(row["winner"]), subject.named(row["loser"])
    if row.get("tie"):
        return f"{one} equal to {other}"
    strength = row.get("strength")
    return f"{one} over {other}" + ("" if strength is None else f", strength {strength}")
