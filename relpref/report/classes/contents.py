"""The chapters of the page, in their order."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from relpref.data import RelationData
from relpref.errors import RelprefError
from relpref.infer import ClassPosterior
from relpref.likelihoods import Link
from relpref.posterior.gaussian import Floats
from relpref.report.blocks import (
    Block,
    Cell,
    Chapter,
    Contents,
    Items,
    Text,
    clean,
    counted,
    counted_share,
    listed,
    percent,
    sentence,
    shorten,
    unbroken,
    whole,
)
from relpref.report.certified import Checked, Unknown, certified
from relpref.report.hyperparameters import hyperparameters
from relpref.report.methods import approximation
from relpref.report.plots import grid
from relpref.report.predicted import calibrated, measures, notes


@dataclass(frozen=True)
class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : ClassPosterior
    """

    posterior: ClassPosterior

    @cached_property
    def checked(self) -> Checked:
        return Checked(self.posterior)

    @cached_property
    def classes(self) -> list[str]:
        return [shorten(clean(label)) for label in self.posterior.classes]

    @cached_property
    def label(self) -> NDArray[np.intp]:
        """Class of every example that was learned from, by its position in ``classes``; of edges in both directions, one."""
        data = self.posterior.data
        if isinstance(data, RelationData):
            kept = slice(None) if data.distinct is None else data.distinct
            return (np.asarray(data.values.values)[kept] > 0).astype(np.intp)
        assert data.label is not None  # it was fitted to
        return np.asarray(data.label, dtype=np.intp)

    @property
    def kind(self) -> str:
        return "edge" if isinstance(self.posterior.data, RelationData) else "ranking"

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of the program, as far as they are known."""
        return {} if self.posterior.origin is None else self.posterior.origin.keywords


def example_name(row: dict[str, Any]) -> str:
    """An example within a sentence, from a row of the diagnostics' table."""
    if "source" in row:
        return f"{shorten(clean(row['source']))} – {shorten(clean(row['target']))}"
    return shorten(clean(row["ranker"]))


_MOST_CLASSES = 30


def summary(subject: Subject) -> list[str]:
    number = len(subject.label)
    classes = listed([f"“{name}”" for name in subject.classes], 6)
    text = f"This report is about a classifier that learned the classes {classes} from {counted(number, subject.kind)}."
    held = subject.checked.held_out
    if isinstance(held, Unknown) or not np.isfinite(held.accuracy):
        return [text]
    base = held.summary().loc["accuracy", "baseline"]
    quality = (
        f"Of examples that were left out, it put {percent(held.accuracy)} into the right class; who always names the most frequent "
        f"class is right in {percent(base)} of the cases."
    )
    return [text, quality]


def learned(subject: Subject) -> Chapter:
    data = subject.posterior.data
    counts = np.bincount(subject.label, minlength=len(subject.classes))
    total = max(int(counts.sum()), 1)
    order = np.argsort(-counts, kind="stable") if len(counts) > _MOST_CLASSES else np.arange(len(counts))
    rows: list[list[Cell | str]] = [
        [
            subject.classes[position],
            whole(counts[position]),
            percent(counts[position] / total) if counts[position] else "none",
        ]
        for position in order[:_MOST_CLASSES]
    ]
    blocks: list[Block] = [
        Text(f"In the data: {unbroken(clean(data.describe()))}."),
        grid("Classes", ("Class", f"{subject.kind.capitalize()}s", "Share"), rows, (1, 2)),
    ]
    if (counts == 0).any():
        none = listed([f"“{subject.classes[position]}”" for position in np.flatnonzero(counts == 0)], 6)
        blocks.append(Text(f"There is no example of {none}, so what is said of it rests on the prior."))
    facts = [*_features(subject), *_landmarks(subject)]
    if facts:
        blocks.append(Items(facts))
    return Chapter("What was learned from", blocks)


def _features(subject: Subject) -> list[str]:
    posterior = subject.posterior
    if isinstance(posterior.data, RelationData):
        return []
    kernel = subject.options.get("kernel")
    name = "Kendall" if kernel is None and subject.options else type(kernel).__name__
    said = (
        f"The kernel of rankings is {name}"
        if kernel is not None or subject.options
        else "The kernel of rankings is not known any more"
    )
    weights = posterior.slices.get("weight")
    if weights is not None:
        each = (weights.stop - weights.start) // max(len(posterior.classes) - 1, 1)
        said += f", with {counted(each, 'feature')}"
    return [f"{said}."]


def _landmarks(subject: Subject) -> list[str]:
    landmarks = subject.options.get("landmarks")
    rows = getattr(landmarks, "rows", None)
    if rows is None:
        return []
    error = float(getattr(landmarks, "error", np.nan))
    said = (
        f"The latent function is written in {counted(len(rows), 'landmark')}: edges that stand for all others"
    )
    if error > 0:
        return [
            sentence(
                f"{said}. They leave out {percent(error)} of the prior's variance, which is noise of each edge's own"
            )
        ]
    return [
        f"{said}. They leave nothing out, so this is the Gaussian process itself."
        if error == 0
        else f"{said}."
    ]


_QUALITY_MOST_CLASSES = 12  # in a table of who was taken for whom
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
    if classes <= _QUALITY_MOST_CLASSES:
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


def contents(posterior: ClassPosterior) -> Contents:
    """The page of a classifier."""
    subject = Subject(posterior)
    chapters = [
        learned(subject),
        uncertain(subject),
        quality(subject),
        surprises(subject),
        hyperparameters(posterior),
    ]
    kept = [chapter for chapter in chapters if chapter is not None]
    return Contents(
        "Classification report", summary(subject), kept, [_model(subject), approximation(posterior)]
    )


def _model(subject: Subject) -> str:
    link = "the logistic function" if subject.options.get("link") == "logit" else "Φ"
    if isinstance(subject.posterior.data, RelationData):
        return (
            f"Whether a relation holds between two nodes has the probability {link} of a latent Gaussian process over edges, whose covariance is "
            "the product of a kernel of the first nodes and one of the second (Pahikkala et al. 2010)."
        )
    text = f"The class of who gave a ranking has the probability {link} of a latent Gaussian process over rankings."
    if len(subject.classes) > 2:
        text += (
            " Several classes are decisions in sequence: stop at the first class or go on, and so on (Agresti 2013). The order of the "
            "classes is part of the model."
        )
    return text
