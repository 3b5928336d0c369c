"""Page of a classifier of rankings or edges: facts for the template ``classes.html``."""

from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from relpref.data import RelationData
from relpref.data.arrays import Array, Indices
from relpref.errors import RelprefError
from relpref.infer import ClassPosterior
from relpref.models import kronecker_classifier, ranking_classifier
from relpref.posterior.names import shorten
from relpref.report.blocks import Chapter, Contents, clean, percent, spans
from relpref.report.model import kernels_of, options_of, program_of
from relpref.report.trust import Checked

_MOST_CLASSES = 30
_MOST_CONFUSED = 12  # classes in a confusion table
_ROWS = 10
_REACH = 1.6449  # half the width of a 90% interval, in standard deviations
_SURPRISING = 0.25  # held-out probability of a class, below which an example is shown


class Subject:
    """Posterior with values that several chapters need."""

    def __init__(self, posterior: ClassPosterior) -> None:
        data: Any = posterior.data
        self.posterior, self.checked = posterior, Checked(posterior)
        self.options = options_of(posterior)
        self.classes = [shorten(clean(label)) for label in posterior.classes]
        self.edges = isinstance(data, RelationData)
        # Class of every training example by its position; an edge in both directions counts once.
        edges = slice(None) if not self.edges or data.distinct is None else data.distinct
        label = data.values.values[edges] > 0 if self.edges else data.label
        self.label: Indices = np.asarray(label, dtype=np.intp)


def contents(posterior: ClassPosterior, *_: object) -> Contents:
    """Contents of the page of a classifier."""
    subject = Subject(posterior)
    quality, uncertain = _quality(subject), _uncertain(subject)
    unknown, shown = (uncertain, None) if isinstance(uncertain, str) else ("", uncertain)
    doubts = {**quality.facts, "unknown": unknown}
    chapters = [
        shown,
        Chapter("Keep in mind", "classes.html:caveats", doubts, front=True),
        _learned(subject),
        quality,
        _surprises(subject),
    ]
    link = None
    if program_of(posterior) in (ranking_classifier, kronecker_classifier):
        link = subject.options.get("link", "probit")
    named = [f"“{name}”" for name in subject.classes]
    facts = {"s": subject, "named": named, "held": subject.checked.held_out}
    return Contents("Classification report", facts, chapters, {"s": subject, "link": link})


def _learned(subject: Subject) -> Chapter:
    """Chapter on the training examples."""
    posterior, options = subject.posterior, subject.options
    counts = np.bincount(subject.label, minlength=len(subject.classes))
    order = np.arange(len(counts))
    if len(counts) > _MOST_CLASSES:
        order = np.argsort(-counts, kind="stable")
    kernel, landmarks = kernels_of(posterior).get("rankings"), options.get("landmarks")
    weights, rows = posterior.slices.get("weight"), getattr(landmarks, "rows", None)
    several = max(len(posterior.classes) - 1, 1)
    facts = {
        "s": subject,
        "names": [subject.classes[row] for row in order[:_MOST_CLASSES]],
        "counts": counts[order[:_MOST_CLASSES]],
        "total": max(counts.sum(), 1),
        "without": [f"“{subject.classes[row]}”" for row in np.flatnonzero(counts == 0)],
        "kernel": None if kernel is None else kernel.sentence,
        "features": None if weights is None else (weights.stop - weights.start) // several,
        "landmarks": None if rows is None else len(rows),
        "error": getattr(landmarks, "error", np.nan),
    }
    return Chapter("What was learned from", "classes.html:learned", facts)


def _uncertain(subject: Subject) -> Chapter | str:
    """Chapter on the least certain examples; the reason if there are no probabilities."""
    posterior = subject.posterior
    try:
        predictions = posterior.predict_proba()
        latent = posterior.latent() if len(subject.classes) == 2 else None
    except RelprefError as error:
        return clean(error).rstrip(".")
    values = predictions.to_numpy()
    rows = np.argsort(values.max(axis=1), kind="stable")[:_ROWS]
    labels = predictions.index[rows].to_frame().to_numpy(object)
    best = values[rows].argmax(axis=1)
    facts = {
        "sure": np.mean(values.max(axis=1) > 0.9),
        "examples": _examples(labels),
        "best": [subject.classes[place] for place in best],
        "chances": values[rows, best],
        "intervals": None,
    }
    if latent is not None:
        mean, sd = latent["mean"].to_numpy()[rows], latent["sd"].to_numpy()[rows]
        ends = np.stack([mean - _REACH * sd, mean + _REACH * sd], axis=1)
        ends = expit(ends) if subject.options.get("link") == "logit" else ndtr(ends)
        ends = np.where(best[:, None] == 1, ends, 1 - ends[:, ::-1])
        facts["intervals"] = spans(*ends.T, percent)
    return Chapter("The least certain examples", "classes.html:uncertain", facts, front=True)


def _examples(labels: Array) -> list[str]:
    """Names of examples: a ranker, or both nodes of an edge."""
    return [" – ".join(shorten(clean(end)) for end in ends) for ends in labels]


def _quality(subject: Subject) -> Chapter:
    """Chapter on diagnostics, with a confusion table of examples left out."""
    held, size = subject.checked.held_out, len(subject.classes)
    facts = subject.checked.facts() | {"classes": subject.classes, "confused": None}
    if held is not None and size <= _MOST_CONFUSED:
        confused = np.zeros((size, size), dtype=int)
        np.add.at(confused, (held.outcome, held.chances.argmax(axis=1)), 1)
        facts["confused"] = confused
    return Chapter("How far to trust it", "classes.html:quality", facts)


def _surprises(subject: Subject) -> Chapter | None:
    """Chapter on examples whose class has a small probability given all others."""
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
        "expected": round(held.chances[held.chances < _SURPRISING].sum()),
        "table": head,
        "examples": _examples(head[names].to_numpy(object)),
        "instead": [subject.classes[place] for place in held.chances[head.index].argmax(axis=1)],
    }
    return Chapter("Surprising examples", "classes.html:surprises", facts)
