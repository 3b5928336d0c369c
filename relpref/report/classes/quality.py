"""The chapters on how well classes are predicted, and on the examples that surprise."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from relpref.errors import RelprefError
from relpref.infer.belief import Floats
from relpref.likelihoods import Link
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.certified import certified
from relpref.report.checked import Unknown
from relpref.report.classes.subject import Subject, example_name
from relpref.report.grid import grid
from relpref.report.predicted import calibrated, measures, notes
from relpref.report.text import clean, counted, counted_share, percent, whole

_MOST_CLASSES = 12  # in a table of who was taken for whom
_ROWS = 10
_REACH = 1.6449  # of a 90% interval, in standard deviations
_SURPRISING = 0.25


def quality(subject: Subject) -> Chapter:
    """How far to trust it."""
    blocks: list[Block] = [*certified(subject.checked.certificate)]
    held = subject.checked.held_out
    if isinstance(held, Unknown):
        blocks.append(Text(f"No example was left out and predicted: {held.why}."))
        return Chapter("How far to trust it", blocks)
    blocks += [
        Text(
            f"Each of the {counted(held.num_answers, 'example')} was left out, and its class predicted from all the others."
        ),
        measures(held),
        *notes(held),
        *calibrated(held, subject.posterior),
    ]
    classes = len(subject.classes)
    if classes <= _MOST_CLASSES:
        blocks.append(_taken_for(subject, held.chances, held.outcome))
    else:
        blocks.append(
            Text(f"A table of who was taken for whom would have {classes} rows and is left out.", small=True)
        )
    return Chapter("How far to trust it", blocks)


def _taken_for(subject: Subject, chances: Floats, outcome: NDArray[np.intp]) -> Block:
    """The confusion table of the examples left out."""
    size = len(subject.classes)
    table = np.zeros((size, size), dtype=int)
    np.add.at(table, (outcome, chances.argmax(axis=1)), 1)
    rows: list[list[Cell | str]] = [
        [name, *(whole(number) for number in row), counted_share(row[position], row.sum())]
        for position, (name, row) in enumerate(zip(subject.classes, table, strict=True))
    ]
    columns = ("Class", *(f"taken for {name}" for name in subject.classes), "Right")
    return grid("Who was taken for whom, when left out", columns, rows, range(1, size + 2))


def uncertain(subject: Subject) -> Chapter:
    """Probabilities of classes and how sure they are: the examples of which the classifier is least sure."""
    title = "Probabilities"
    posterior = subject.posterior
    try:
        chances = posterior.predict_proba()
        latent = posterior.latent() if len(subject.classes) == 2 else None
    except RelprefError as error:
        return Chapter(title, [Text(f"This is left out: {clean(error)}.")])
    values = chances.to_numpy()
    order = np.argsort(values.max(axis=1), kind="stable")[:_ROWS]
    sure = float(np.mean(values.max(axis=1) > 0.9))
    text = (
        f"Every example gets a probability for each class. {percent(sure)} of the examples have a class with a probability above 90%; "
        "below are those of which the classifier is least sure."
    )
    ends = None if latent is None else _interval(subject, latent)
    rows: list[list[Cell | str]] = []
    for row in order:
        best = int(values[row].argmax())
        line: list[Cell | str] = [
            _name(chances.index[row]),
            subject.classes[best],
            percent(values[row, best]),
        ]
        if ends is not None:
            low, high = ends[row] if best == 1 else 1 - ends[row, ::-1]
            line.append(f"{percent(low)} to {percent(high)}")
        rows.append(line)
    columns = (
        "Example",
        "Most probable class",
        "Probability",
        *(("90% interval",) if ends is not None else ()),
    )
    blocks: list[Block] = [
        Text(text),
        grid("The least certain examples", columns, rows, range(2, len(columns))),
    ]
    if ends is not None:
        small = "Interval: where the probability itself would lie if the latent function were known; the probability is the average over it."
        blocks.append(Text(small, small=True))
    return Chapter(title, blocks)


def _interval(subject: Subject, latent: pd.DataFrame) -> Floats:
    """Of the probability of the second class, shape (m, 2)."""
    link: Link = subject.options.get("link", "probit")
    mean, sd = latent["mean"].to_numpy(), latent["sd"].to_numpy()
    ends = np.stack([mean - _REACH * sd, mean + _REACH * sd], axis=1)
    return np.asarray(expit(ends) if link == "logit" else ndtr(ends))


def _name(label: object) -> str:
    if isinstance(label, tuple) and len(label) == 2:
        return example_name({"source": label[0], "target": label[1]})
    return example_name({"ranker": label})


def surprises(subject: Subject) -> Chapter | None:
    """Examples whose class the others did not expect."""
    held = subject.checked.held_out
    if isinstance(held, Unknown):
        return None
    table = held.table
    odd = table[table["probability"] < _SURPRISING].sort_values("log_score", kind="stable")
    share = np.where(held.chances < _SURPRISING, held.chances, 0.0).sum()
    text = (
        f"Of {counted(len(table), 'example')}, {whole(len(odd))} had a class whose probability was under {_SURPRISING:.0%} by all the others; "
        f"about {whole(round(float(share)))} would be expected by chance alone."
    )
    blocks: list[Block] = [Text(text)]
    if len(odd):
        rows: list[list[Cell | str]] = [
            [
                example_name(row),
                clean(row["class"]),
                percent(row["probability"]),
                subject.classes[int(held.chances[position].argmax())],
            ]
            for position, row in zip(odd.index[:_ROWS], odd.head(_ROWS).to_dict("records"), strict=True)
        ]
        columns = ("Example", "Class", "Its probability", "Expected instead")
        blocks.append(grid("What contradicts the rest, most surprising first", columns, rows, (2,)))
    return Chapter("Surprising examples", blocks)
