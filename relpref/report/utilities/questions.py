"""The chapter on what to ask next."""

from typing import Any

from relpref.errors import RelprefError
from relpref.explore import next_pairs, worth
from relpref.infer import Result
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.grid import cell, grid
from relpref.report.text import clean, fixed, percent, unbroken
from relpref.report.utilities.subject import Subject

_TITLE = "What to ask next"
_QUESTIONS, _MORE = 5, 10
_MOST_ENTITIES = 4000  # whose covariance is looked at as a whole


def questions(subject: Subject) -> Chapter | None:
    """The chapter; None where there is nothing to ask."""
    posterior = subject.whole
    size = posterior.data.num_entities
    if size < 2 or not Result[posterior.info["result"]].ok:
        return None
    if size > _MOST_ENTITIES and subject.within is None:
        text = f"This is left out: with {size} entities it takes long. relpref.explore.next_pairs asks about some of them (entities=)."
        return Chapter(_TITLE, [Text(text)])
    try:
        pairs, value = next_pairs(posterior, _QUESTIONS), worth(posterior, _MORE)
    except RelprefError as error:
        return Chapter(_TITLE, [Text(f"This is left out: {clean(error)}.")])
    blocks: list[Block] = [Text(unbroken(value.sentence))]
    if len(pairs):
        rows: list[list[Cell | str]] = []
        for row in pairs.to_dict("records"):
            first, second = (_named(subject, row[end]) for end in ("first", "second"))
            gap = f"{fixed(row['gap_mean'], subject.decimals)} ± {fixed(row['gap_sd'], subject.decimals)}"
            rows.append([str(len(rows) + 1), first, second, percent(row["probability"]), gap])
        columns = ("No.", "Is this better …", "… or this?", "First, as of now", "Gap")
        blocks += [
            grid("The most telling questions", columns, rows, (0, 3, 4), heading=1),
            Text(
                "Chosen together, so that none asks what another answers. First, as of now: the probability that the first is "
                "preferred. relpref ask puts such questions to a person and learns from every answer.",
                small=True,
            ),
        ]
    return Chapter(_TITLE, blocks)


def _named(subject: Subject, label: Any) -> Cell:
    """An entity, which may be none of those that the page shows."""
    return subject.cell(subject.position[label]) if label in subject.position else cell(label)
