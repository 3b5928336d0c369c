"""The chapter on answers that contradict the rest."""

import numpy as np
import pandas as pd

from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.checked import Unknown
from relpref.report.grid import cell, grid
from relpref.report.text import counted, fixed, percent, whole
from relpref.report.utilities.subject import Subject

_TITLE = "Surprising answers"
_ROWS = 10
_SURPRISING = 0.25  # held-out probability of what was answered, below which it is shown


def surprises(subject: Subject) -> Chapter | None:
    """The chapter; None where there are no answers."""
    if not subject.posterior.data.num_answers:
        return None
    table = subject.checked.influence
    if isinstance(table, Unknown):
        return Chapter(_TITLE, [Text(f"This is left out: {table.why}.")])
    if subject.posterior.data.comparisons.probability is not None:
        head, count = table.head(_ROWS), len(table)
        what = "The answers are probabilities; those that fit the others least are shown."
    else:
        odd = table[table["probability"] < _SURPRISING]
        head, count = odd.head(_ROWS), int(_counts(odd).sum())
        total, expected = int(_counts(table).sum()), float(_expected(table))
        what = (
            f"Of {counted(total, 'answer')}, {whole(count)} had a probability under {_SURPRISING:.0%} by all the others; about {whole(round(expected))} would "
            "be expected by chance alone."
        )
    blocks: list[Block] = [Text(what)]
    if len(head):
        blocks += [
            grid("What contradicts the rest, most surprising first", *_rows(subject, head)),
            Text(
                "Probability: of that answer, predicted from all the others. Weight: which utility would move farthest if the answer "
                "had not been given, in units of its uncertainty (one standard deviation). A surprising answer of much weight is the one to check.",
                small=True,
            ),
        ]
    return Chapter(_TITLE, blocks)


def _counts(table: pd.DataFrame) -> "pd.Series[int]":
    return table["count"] if "count" in table else pd.Series(1, index=table.index)


def _expected(table: pd.DataFrame) -> float:
    """How many answers as improbable there would be: each other outcome of an answer is as probable as it was predicted."""
    probability = table["probability"].to_numpy()
    # Of two outcomes with p and 1 − p the one under the bound happens with its own probability.
    lower = np.minimum(probability, 1 - probability)
    return float(_counts(table).to_numpy() @ np.where(lower < _SURPRISING, lower, 0.0))


def _rows(subject: Subject, head: pd.DataFrame) -> tuple[list[str], list[list[Cell | str]], list[int]]:
    """Columns, rows and which columns are numbers."""
    answers = subject.posterior.data.comparisons
    first, second = ("winner", "loser") if answers.probability is None else ("first", "second")
    columns = ["Answer"]
    columns += ["Rater"] if "rater" in head else []
    columns += ["Times"] if "count" in head and (head["count"] > 1).any() else []
    columns += ["Probability", "Weight"]
    rows: list[list[Cell | str]] = []
    for row in head.to_dict("records"):
        one, other = subject.named(row[first]), subject.named(row[second])
        said = f"{one} over {other}" if answers.probability is None else f"{one} against {other}"
        if row.get("tie"):
            said = f"{one} equal to {other}"
        line: list[Cell | str] = [said]
        if "Rater" in columns:
            line.append(cell(row["rater"]))
        if "Times" in columns:
            line.append(whole(int(row["count"])))
        probability = (
            percent(row["probability"]) if answers.probability is None else fixed(row["probability"])
        )
        # Leaving out moves by the shift, so the answer itself moves the other way.
        moved = f"moves {subject.named(row['entity'])} by {fixed(-row['shift'])}"
        rows.append([*line, probability, moved])
    return (
        columns,
        rows,
        [position for position, name in enumerate(columns) if name in ("Times", "Probability")],
    )
