"""The page of a classifier: facts for the chapters on classes of rankings, or of edges of a relation; sentences are in ``classes.html``."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from relpref.data import RelationData
from relpref.errors import RelprefError
from relpref.infer import ClassPosterior
from relpref.kernels import Kendall
from relpref.models import kronecker_classifier, ranking_classifier
from relpref.posterior.gaussian import Floats
from relpref.report.blocks import (
    Chapter,
    Contents,
    Grid,
    clean,
    counted_share,
    grid,
    percent,
    shorten,
    whole,
)
from relpref.report.model import hyperparameters, methods, options_of, program_of
from relpref.report.trust import Checked

_MOST_CLASSES = 30
_MOST_CONFUSED = 12  # classes in a table of who was taken for whom
_ROWS = 10
_REACH = 1.6449  # of a 90% interval, in standard deviations
_SURPRISING = 0.25


class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : ClassPosterior
    """

    def __init__(self, posterior: ClassPosterior) -> None:
        data: Any = posterior.data
        self.posterior, self.checked, self.options = posterior, Checked(posterior), options_of(posterior)
        self.classes = [shorten(clean(label)) for label in posterior.classes]
        self.edges = isinstance(data, RelationData)
        # Class of every example that was learned from, by its position; of edges in both directions, one.
        edges = slice(None) if not self.edges or data.distinct is None else data.distinct
        label = np.asarray(data.values.values)[edges] > 0 if self.edges else data.label
        self.label: NDArray[np.intp] = np.asarray(label, dtype=np.intp)


def contents(posterior: ClassPosterior, wanted: object = None) -> Contents:
    """The page of a classifier."""
    subject = Subject(posterior)
    held = subject.checked.held_out
    scored = held is not None and np.isfinite(held.accuracy)
    facts = {
        "classes": [f"“{name}”" for name in subject.classes],
        "number": len(subject.label),
        "edges": subject.edges,
        "accuracy": held.accuracy if held is not None and scored else None,
        "guessing": held.summary().loc["accuracy", "baseline"] if held is not None and scored else None,
    }
    chapters = [_learned(subject), _uncertain(subject), _quality(subject), _surprises(subject)]
    known = program_of(posterior) in (ranking_classifier, kronecker_classifier)
    return Contents(
        "Classification report",
        Chapter("", "classes.html:summary", facts),
        [*chapters, hyperparameters(posterior)],
        methods(
            posterior,
            "classes.html:methods",
            edges=subject.edges,
            link=subject.options.get("link", "probit") if known else None,
            several=len(subject.classes) > 2,
        ),
    )


def _learned(subject: Subject) -> Chapter:
    """What was learned from."""
    posterior = subject.posterior
    counts = np.bincount(subject.label, minlength=len(subject.classes))
    total = max(int(counts.sum()), 1)
    order = np.argsort(-counts, kind="stable") if len(counts) > _MOST_CLASSES else np.arange(len(counts))
    rows = [
        [
            subject.classes[position],
            whole(counts[position]),
            counted_share(counts[position], total, "none", ">99.9%"),
        ]
        for position in order[:_MOST_CLASSES]
    ]
    kernel, landmarks = subject.options.get("kernel"), subject.options.get("landmarks")
    if kernel is None and program_of(posterior) is ranking_classifier:
        kernel = Kendall()
    weights, rows_of_landmarks = posterior.slices.get("weight"), getattr(landmarks, "rows", None)
    features = (
        None if weights is None else (weights.stop - weights.start) // max(len(posterior.classes) - 1, 1)
    )
    facts = {
        "data": posterior.data,
        "edges": subject.edges,
        "table": grid("Classes", ("Class", "Edges" if subject.edges else "Rankings", "Share"), rows, (1, 2)),
        "without": [f"“{subject.classes[position]}”" for position in np.flatnonzero(counts == 0)],
        "kernel": None if kernel is None else type(kernel).__name__,
        "features": features,
        "landmarks": None if rows_of_landmarks is None else len(rows_of_landmarks),
        "error": float(getattr(landmarks, "error", np.nan)),
    }
    return Chapter("What was learned from", "classes.html:learned", facts)


def _uncertain(subject: Subject) -> Chapter:
    """Probabilities of classes and how sure they are: the examples of which the classifier is least sure."""
    title, posterior = "Probabilities", subject.posterior
    try:
        chances = posterior.predict_proba()
        latent = posterior.latent() if len(subject.classes) == 2 else None
    except RelprefError as error:
        return Chapter(title, "common.html:left_out", {"why": clean(error)})
    values = chances.to_numpy()
    ends = None if latent is None else _interval(subject, latent)
    rows = []
    for row in np.argsort(values.max(axis=1), kind="stable")[:_ROWS]:
        best, label = int(values[row].argmax()), chances.index[row]
        name = " – ".join(shorten(clean(end)) for end in (label if subject.edges else (label,)))
        line = [name, subject.classes[best], percent(values[row, best])]
        if ends is not None:
            low, high = ends[row] if best == 1 else 1 - ends[row, ::-1]
            line.append(f"{percent(low)} to {percent(high)}")
        rows.append(line)
    columns = [
        "Example",
        "Most probable class",
        "Probability",
        *(["90% interval"] if ends is not None else []),
    ]
    facts = {
        "sure": float(np.mean(values.max(axis=1) > 0.9)),
        "intervals": ends is not None,
        "table": grid("The least certain examples", columns, rows, range(2, len(columns))),
    }
    return Chapter(title, "classes.html:uncertain", facts)


def _interval(subject: Subject, latent: pd.DataFrame) -> Floats:
    """Of the probability of the second class, shape (m, 2)."""
    mean, sd = latent["mean"].to_numpy(), latent["sd"].to_numpy()
    ends = np.stack([mean - _REACH * sd, mean + _REACH * sd], axis=1)
    return np.asarray(expit(ends) if subject.options.get("link") == "logit" else ndtr(ends))


def _quality(subject: Subject) -> Chapter:
    """How far to trust it."""
    held, classes = subject.checked.held_out, len(subject.classes)
    facts = subject.checked.facts() | {"classes": classes, "confused": None}
    if held is not None and classes <= _MOST_CONFUSED:
        facts["confused"] = _taken_for(subject, held.chances, held.outcome)
    return Chapter("How far to trust it", "classes.html:quality", facts)


def _taken_for(subject: Subject, chances: Floats, outcome: NDArray[np.intp]) -> Grid:
    """The confusion table of the examples left out."""
    size = len(subject.classes)
    table = np.zeros((size, size), dtype=int)
    np.add.at(table, (outcome, chances.argmax(axis=1)), 1)
    rows = [
        [name, *(whole(number) for number in row), counted_share(row[position], row.sum())]
        for position, (name, row) in enumerate(zip(subject.classes, table, strict=True))
    ]
    columns = ("Class", *(f"taken for {name}" for name in subject.classes), "Right")
    return grid("Who was taken for whom, when left out", columns, rows, range(1, size + 2))


def _surprises(subject: Subject) -> Chapter | None:
    """Examples whose class the others did not expect."""
    held = subject.checked.held_out
    if held is None:
        return None
    odd = held.table[held.table["probability"] < _SURPRISING].sort_values("log_score", kind="stable")
    names = ("source", "target") if subject.edges else ("ranker",)
    rows = [
        [
            " – ".join(shorten(clean(row[name])) for name in names),
            clean(row["class"]),
            percent(row["probability"]),
            subject.classes[int(held.chances[position].argmax())],
        ]
        for position, row in zip(odd.index[:_ROWS], odd.head(_ROWS).to_dict("records"), strict=True)
    ]
    columns = ("Example", "Class", "Its probability", "Expected instead")
    facts = {
        "number": len(held.table),
        "count": len(odd),
        "expected": round(float(np.where(held.chances < _SURPRISING, held.chances, 0.0).sum())),
        "table": grid("What contradicts the rest, most surprising first", columns, rows, (2,))
        if rows
        else None,
    }
    return Chapter("Surprising examples", "classes.html:surprises", facts)
