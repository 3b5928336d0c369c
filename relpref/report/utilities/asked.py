"""The chapter on what was asked and answered: how much, about whom, and by whom."""

import numpy as np
from numpy.typing import NDArray

from relpref.report.blocks import Block, Cell, Chapter, Items, Text
from relpref.report.grid import cell, grid
from relpref.report.text import clean, counted, fixed, listed, percent, sentence, shorten, unbroken, whole
from relpref.report.utilities.subject import Subject

_TITLE = "What was asked and answered"
_MOST_RATERS = 20


def asked(subject: Subject) -> Chapter:
    """The chapter."""
    data = subject.posterior.data
    blocks: list[Block] = [Text(f"In the data: {unbroken(clean(data.describe()))}.")]
    if data.num_answers:
        blocks.append(Text(_question(subject)))
        blocks.append(grid("Answers in numbers", ("What", "Number"), _numbers(subject), (1,)))
        if data.comparisons.rater is not None:
            blocks += _raters(subject)
    else:
        text = (
            "Nobody has answered yet. What this page says rests on attributes, relations and the prior alone."
        )
        blocks.append(Text(text))
    if data.attribute_names:
        names = listed([shorten(clean(name)) for name in data.attribute_names], most=20)
        blocks.append(Text(f"{'Attributes' if len(data.attribute_names) > 1 else 'Attribute'}: {names}."))
    if data.notes:
        blocks.append(Items([sentence(note) for note in data.notes]))
    return Chapter(_TITLE, blocks)


def contradicted(subject: Subject) -> int:
    """Pairs that were answered both ways."""
    low, high = _pairs(subject)
    _, distinct = np.unique(low * subject.posterior.data.num_entities + high, return_counts=True)
    return int(np.sum(distinct > 1))


def _pairs(subject: Subject) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two ends of every row that names a winner, the smaller first."""
    data = subject.posterior.data
    kept = slice(None) if data.comparisons.tie is None else ~np.asarray(data.comparisons.tie)
    winner, loser = (np.asarray(end, dtype=np.int64)[kept] for end in (data.winner, data.loser))
    # By winner and loser once: the same answer by two raters, or two strengths of it, contradict nobody.
    once = np.unique(np.stack([winner, loser]), axis=1)
    return once.min(axis=0), once.max(axis=0)


def _question(subject: Subject) -> str:
    answers = subject.posterior.data.comparisons
    if answers.probability is not None:
        return "Every answer is a probability that the first of two entities is the better one."
    text = "Every answer says which of two entities is the better one"
    more = []
    if answers.tie is not None:
        more.append("or that they are equal")
    if answers.strengths > 1:
        more.append(f"how much better, in {answers.strengths} grades")
    return f"{', '.join([text, *more])}."


def _numbers(subject: Subject) -> list[list[Cell | str]]:
    data = subject.posterior.data
    answers, size = data.comparisons, data.num_entities
    count = np.asarray(answers.count)
    ends = np.sort(np.stack([np.asarray(data.winner), np.asarray(data.loser)]), axis=0)
    pairs, possible = np.unique(ends, axis=1).shape[1], size * (size - 1) // 2
    share = percent(pairs / possible) if pairs < possible else "all"
    rows: list[list[Cell | str]] = [
        ["Answers", whole(int(count.sum()))],
        ["Pairs that were asked about", f"{whole(pairs)} ({share} of the {whole(possible)} there are)"],
    ]
    if both := contradicted(subject):
        rows.append(["Pairs that were answered both ways", whole(both)])
    if answers.tie is not None:
        rows.append(["Ties", whole(int(count[np.asarray(answers.tie)].sum()))])
    about = subject.asked
    spread = f"{whole(about.min())} to {whole(about.max())}, typically {fixed(float(np.median(about)), 1).removesuffix('.0')}"
    rows.append(["Answers about one entity", spread])
    rows.append(["Entities without any", whole(int(np.sum(about == 0)))])
    return rows


def _raters(subject: Subject) -> list[Block]:
    """How much each rater answered."""
    answers = subject.posterior.data.comparisons
    given = np.bincount(np.asarray(answers.rater), np.asarray(answers.count), len(answers.raters)).astype(int)
    order = np.argsort(-given, kind="stable")[:_MOST_RATERS]
    rows: list[list[Cell | str]] = [[cell(answers.raters[rater]), whole(given[rater])] for rater in order]
    blocks: list[Block] = [grid("Who answered", ("Rater", "Answers"), rows, (1,))]
    if len(answers.raters) > _MOST_RATERS:
        text = (
            f"Of {counted(len(answers.raters), 'rater')}, the {_MOST_RATERS} with the most answers are shown."
        )
        blocks.append(Text(text, small=True))
    return blocks
