"""The chapter on how far the page is to be trusted: warnings, a certificate, and answers that were left out."""

import pandas as pd

from relpref.report.blocks import Block, Cell, Chapter, Items, Text
from relpref.report.certified import certified
from relpref.report.checked import Unknown
from relpref.report.grid import cell, grid
from relpref.report.predicted import calibrated, measures, notes
from relpref.report.text import counted, fixed, whole
from relpref.report.utilities.subject import Subject
from relpref.report.utilities.warnings import warnings

_MOST_RATERS = 20


def trust(subject: Subject, found: list[str] | None = None) -> Chapter:
    """The chapter; ``found`` are the warnings, where others are known than of the subject."""
    found = warnings(subject) if found is None else found
    blocks: list[Block] = [Items(found)] if found else []
    if not found:
        text = "Nothing stands out: every entity was asked about, no group stands alone, and the computation went as it should."
        blocks.append(Text(text))
    blocks += certified(subject.checked.certificate)
    held = subject.checked.held_out
    if isinstance(held, Unknown):
        blocks.append(Text(f"No answers were left out and predicted: {held.why}."))
        return Chapter("How far to trust it", blocks)
    text = (
        f"Each of the {counted(held.num_answers, 'answer')} was left out, and predicted from all the others. That says how well the next "
        "answer is predicted, which a model's fit to answers it has seen does not."
    )
    blocks += [Text(text), measures(held), *notes(held), *calibrated(held, subject.posterior)]
    if isinstance(subject.checked.raters, pd.DataFrame):
        blocks.append(_raters(subject.checked.raters))
    return Chapter("How far to trust it", blocks)


def _raters(table: pd.DataFrame) -> Block:
    rows: list[list[Cell | str]] = []
    for label, row in table.head(_MOST_RATERS).iterrows():
        rows.append(
            [
                cell(label),
                whole(int(row["answers"])),
                fixed(row["log_loss"], 3),
                fixed(row["expected"], 3),
                "at odds with the rest" if row["at_odds"] else "as expected",
            ]
        )
    columns = ("Rater", "Answers", "Log loss", "Expected", "Verdict")
    return grid("Raters, the most surprising first", columns, rows, (1, 2, 3))
