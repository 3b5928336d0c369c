"""The page of a classifier: facts for the chapters on classes of rankings, or of edges of a relation; sentences are in ``classes.html``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from relpref.data import RelationData
from relpref.errors import RelprefError
from relpref.infer import ClassPosterior
from relpref.models import kronecker_classifier, ranking_classifier
from relpref.report.blocks import Chapter, Contents, clean, percent, shorten
from relpref.report.model import hyperparameters, kernels_of, methods, options_of, program_of
from relpref.report.trust import Checked

_MOST_CLASSES = 30
_MOST_CONFUSED = 12  # classes in a table of who was taken for whom
_ROWS = 10
_REACH = 1.6449  # of a 90% interval, in standard deviations
_SURPRISING = 0.25


class Subject:
    """A posterior with what several chapters need of it."""

    def __init__(self, posterior: ClassPosterior) -> None:
        data: Any = posterior.data
        self.posterior, self.checked, self.options = (
            posterior,
            Checked(posterior),
            options_of(posterior),
        )
        self.classes = [shorten(clean(label)) for label in posterior.classes]
        self.edges = isinstance(data, RelationData)
        # Class of every example that was learned from, by its position; of edges in both
        # directions, one.
        edges = slice(None) if not self.edges or data.distinct is None else data.distinct
        label = np.asarray(data.values.values)[edges] > 0 if self.edges else data.label
        self.label: NDArray[np.intp] = np.asarray(label, dtype=np.intp)


def contents(posterior: ClassPosterior, wanted: object = None) -> Contents:
    """The page of a classifier."""
    subject = Subject(posterior)
    quality, uncertain = _quality(subject), _uncertain(subject)
    unknown, shown = (uncertain, None) if isinstance(uncertain, str) else ("", uncertain)
    doubts = {**quality.facts, "posterior": posterior, "unknown": unknown}
    chapters = [
        shown,
        Chapter("Keep in mind", "classes.html:caveats", doubts, front=True),
        _learned(subject),
        quality,
        _surprises(subject),
        hyperparameters(posterior),
    ]
    known = program_of(posterior) in (ranking_classifier, kronecker_classifier)
    link = subject.options.get("link", "probit") if known else None
    named = [f"“{name}”" for name in subject.classes]
    facts = {"s": subject, "named": named, "held": subject.checked.held_out}
    return Contents(
        "Classification report",
        Chapter("", "classes.html:summary", facts),
        chapters,
        methods(posterior, "classes.html:methods", s=subject, link=link),
    )


def _learned(subject: Subject) -> Chapter:
    """What was learned from."""
    posterior, options = subject.posterior, subject.options
    counts = np.bincount(subject.label, minlength=len(subject.classes))
    order = (
        np.argsort(-counts, kind="stable")
        if len(counts) > _MOST_CLASSES
        else np.arange(len(counts))
    )
    kernel, landmarks = kernels_of(posterior).get("rankings"), options.get("landmarks")
    weights, rows = posterior.slices.get("weight"), getattr(landmarks, "rows", None)
    several = max(len(posterior.classes) - 1, 1)
    facts = {
        "s": subject,
        "rows": [(subject.classes[row], counts[row]) for row in order[:_MOST_CLASSES]],
        "total": max(int(counts.sum()), 1),
        "without": [f"“{subject.classes[position]}”" for position in np.flatnonzero(counts == 0)],
        "kernel": None if kernel is None else kernel.sentence,
        "features": None if weights is None else (weights.stop - weights.start) // several,
        "landmarks": None if rows is None else len(rows),
        "error": float(getattr(landmarks, "error", np.nan)),
    }
    return Chapter("What was learned from", "classes.html:learned", facts)


def _uncertain(subject: Subject) -> Chapter | str:
    """Probabilities of classes and how sure they are: the examples of which the classifier is least sure; or why there are none."""
    posterior = subject.posterior
    try:
        chances = posterior.predict_proba()
        latent = posterior.latent() if len(subject.classes) == 2 else None
    except RelprefError as error:
        return clean(error).rstrip(".")
    values = chances.to_numpy()
    rows = np.argsort(values.max(axis=1), kind="stable")[:_ROWS]
    labels = [chances.index[row] if subject.edges else (chances.index[row],) for row in rows]
    best = values[rows].argmax(axis=1)
    facts = {
        "sure": float(np.mean(values.max(axis=1) > 0.9)),
        "examples": [" – ".join(shorten(clean(end)) for end in label) for label in labels],
        "best": [subject.classes[place] for place in best],
        "chances": values[rows, best],
        "intervals": None,
    }
    if latent is not None:
        mean, sd = latent["mean"].to_numpy()[rows], latent["sd"].to_numpy()[rows]
        ends = np.stack([mean - _REACH * sd, mean + _REACH * sd], axis=1)
        ends = expit(ends) if subject.options.get("link") == "logit" else ndtr(ends)
        ends = np.where(best[:, None] == 1, ends, 1 - ends[:, ::-1])
        facts["intervals"] = [f"{percent(low)} to {percent(high)}" for low, high in ends]
    return Chapter("The least certain examples", "classes.html:uncertain", facts, front=True)


def _quality(subject: Subject) -> Chapter:
    """How far to trust it, with the confusion table of the examples left out."""
    held, size = subject.checked.held_out, len(subject.classes)
    facts = subject.checked.facts() | {"classes": subject.classes, "confused": None}
    if held is not None and size <= _MOST_CONFUSED:
        confused = np.zeros((size, size), dtype=int)
        np.add.at(confused, (held.outcome, held.chances.argmax(axis=1)), 1)
        facts["confused"] = confused
    return Chapter("How far to trust it", "classes.html:quality", facts)


def _surprises(subject: Subject) -> Chapter | None:
    """Examples whose class the others did not expect."""
    held = subject.checked.held_out
    if held is None:
        return None
    odd = held.table[held.table["probability"] < _SURPRISING].sort_values(
        "log_score", kind="stable"
    )
    head, names = odd.head(_ROWS), ["source", "target"] if subject.edges else ["ranker"]
    facts = {
        "number": len(held.table),
        "count": len(odd),
        "expected": round(float(np.where(held.chances < _SURPRISING, held.chances, 0.0).sum())),
        "table": head,
        "examples": [
            " – ".join(shorten(clean(end)) for end in row) for row in head[names].to_numpy(object)
        ],
        "instead": [subject.classes[place] for place in held.chances[head.index].argmax(axis=1)],
    }
    return Chapter("Surprising examples", "classes.html:surprises", facts)
