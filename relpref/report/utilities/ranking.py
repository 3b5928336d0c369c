"""The chapter with the ranking: a picture and a table."""

import pandas as pd

from relpref.likelihoods import Probit
from relpref.report.arviz_pictures import Line, forest
from relpref.report.blocks import Block, Cell, Chapter, Picture, Text
from relpref.report.grid import grid
from relpref.report.plots import NARROW, WIDE
from relpref.report.text import counted, fixed, percent, whole
from relpref.report.utilities.groups import apart
from relpref.report.utilities.subject import INTERVAL, ROWS, Subject

_ALL_DRAWN = 40
_TOP_DRAWN, _BOTTOM_DRAWN = 25, 10


def ranking(subject: Subject) -> Chapter:
    """The chapter."""
    table = subject.ranking
    size = len(table)
    everyone = f" {whole(subject.whole.data.num_entities)} entities" if subject.within else ""
    text = (
        "The utility is what the answers reveal about how good an entity is. Only differences of utilities have a meaning, so "
        f"each is shown less the average of all{everyone}. The line is its {INTERVAL:.0%} interval: the true value lies in it with "
        f"a probability of {INTERVAL:.0%}. Two entities whose intervals overlap are not necessarily tied."
    )
    if _probit(subject):
        whose = " of a typical rater" if subject.posterior.data.comparisons.rater is not None else ""
        text += f" Of two entities whose utilities are 1 apart, the better one wins 84% of the answers{whose}; 2 apart, 98%."
    if not subject.posterior.data.num_answers:
        text = f"Nothing was answered yet, so this is what is assumed before any answer, and all places are open. {text}"
    blocks: list[Block] = [Text(text)]
    shown = list(range(size))
    caption = "Utilities less the average of all; the number beside each name is its place."
    if size > _ALL_DRAWN:
        shown = [*range(_TOP_DRAWN), *range(size - _BOTTOM_DRAWN, size)]
        caption += f" Of {counted(size, 'entity', 'entities')}, the first {_TOP_DRAWN} and the last {_BOTTOM_DRAWN} are drawn."
    if subject.groups is not None:
        caption += f" {apart(subject.groups)}"
    lines = [_line(subject, place) for place in shown]
    best, last = (subject.names.short[int(subject.order[row])] for row in (0, -1))
    description = (
        f"One row for each of {len(lines)} entities from the best, {best}, to the last, {last}: a dot for the utility and a line "
        "for its interval. The table below holds the numbers."
    )
    wide, narrow = (
        forest(lines, f"ranking{shape.width:.0f}", description, INTERVAL, shape) for shape in (WIDE, NARROW)
    )
    blocks.append(Picture(wide, caption, narrow=narrow))
    blocks.append(_table(subject))
    blocks.append(
        Text(
            "Expected place: the average over the posterior. Best: the probability that no other entity has a higher utility. "
            "Won: answers in favour of the entity, of all that were about it.",
            small=True,
        )
    )
    return Chapter("Ranking", blocks)


def _line(subject: Subject, place: int) -> Line:
    row = subject.ranking.iloc[place]
    position = int(row["position"])
    return Line(
        subject.names.full[position], place + 1, float(row["mean"]), float(row["lower"]), float(row["upper"])
    )


def _table(subject: Subject) -> Block:
    head, rows = subject.ranking.head(ROWS), []
    groups = None if subject.groups is None else pd.factorize(subject.groups[subject.order])[0] + 1
    for place, row in enumerate(head.to_dict("records"), start=1):
        position = int(row["position"])
        middle, lower, upper = (
            fixed(float(row[name]), subject.decimals) for name in ("mean", "lower", "upper")
        )
        asked = int(subject.asked[position])
        rows.append(
            [
                Cell(str(place)),
                subject.cell(position),
                Cell(middle),
                Cell(f"{lower} to {upper}"),
                Cell(fixed(float(row["expected_rank"]), 1)),
                Cell(f"{row['rank_lower']:.0f}–{row['rank_upper']:.0f}"),
                Cell(percent(float(row["p_best"]))),
                Cell(f"{subject.won[position]} of {asked}" if asked else "never asked"),
                *([] if groups is None else [Cell(whole(groups[place - 1]))]),
            ]
        )
    size = len(subject.ranking)
    entities = counted(size, "entity", "entities")
    caption = f"The first {ROWS} of {entities}" if size > ROWS else f"{entities}, best first"
    share = f"{INTERVAL:.0%}"
    columns = (
        "Place",
        "Entity",
        "Utility",
        f"{share} interval",
        "Expected place",
        f"{share} places",
        "Best",
        "Won",
        *([] if groups is None else ["Group"]),
    )
    return grid(caption, columns, rows, numeric=(0, *range(2, len(columns))), heading=1)


def _probit(subject: Subject) -> bool:
    """Whether answers are known to be winners under the probit model, where a gap has a plain meaning in answers."""
    posterior = subject.whole
    answers = posterior.data.comparisons
    graded = any(column is not None for column in (answers.tie, answers.strength, answers.probability))
    return posterior.origin is not None and not graded and posterior.likelihood == Probit()
