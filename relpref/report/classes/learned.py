"""The first paragraphs, and the chapter on what was learned from."""

import numpy as np

from relpref.data import RelationData
from relpref.report.blocks import Block, Cell, Chapter, Items, Text
from relpref.report.checked import Unknown
from relpref.report.classes.subject import Subject
from relpref.report.grid import grid
from relpref.report.text import clean, counted, listed, percent, sentence, unbroken, whole

_MOST_CLASSES = 30


def summary(subject: Subject) -> list[str]:
    """Paragraphs in plain words."""
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
    """The chapter."""
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
