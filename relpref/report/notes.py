"""The chapter on the data, with what a reader should be warned about."""

import numpy as np

from relpref.report.blocks import Block, Chapter, Items, Text
from relpref.report.subject import Subject
from relpref.report.text import clean, counted, fixed, listed, shorten, unbroken

_FEW = 4.0  # answers about a typical entity, below which intervals rest mostly on the prior


def notes(subject: Subject) -> Chapter:
    """The chapter."""
    data = subject.posterior.data
    blocks: list[Block] = [Text(f"In the data: {unbroken(clean(data.describe()))}.")]
    if data.attribute_names:
        names = listed([shorten(clean(name)) for name in data.attribute_names], most=20)
        blocks.append(Text(f"{'Attributes' if len(data.attribute_names) > 1 else 'Attribute'}: {names}."))
    warnings = [
        *_coverage(subject),
        *_agreement(subject),
        *_groups(subject),
        *(sentence(note) for note in data.notes),
    ]
    if warnings:
        blocks.append(Items(warnings))
    else:
        blocks.append(Text("Nothing stands out: every entity was asked about, and no row needed tidying."))
    return Chapter("Data and warnings", blocks)


def sentence(text: str) -> str:
    """A note as a sentence."""
    text = clean(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _coverage(subject: Subject) -> list[str]:
    """Entities that few or no answers are about."""
    asked = subject.asked
    found = []
    never = [int(position) for position in np.flatnonzero(asked == 0)]
    if never:
        names = listed([subject.names.inline(position) for position in never], most=10)
        word = "was" if len(never) == 1 else "were"
        rest = "its place rests" if len(never) == 1 else "their places rest"
        found.append(f"{names} {word} never compared; {rest} on attributes and relations alone.")
    typical = float(np.median(asked))
    if typical < _FEW:
        found.append(
            f"There are few answers: {fixed(typical, 1).removesuffix('.0')} about a typical entity. "
            "The intervals rest to a good part on the prior."
        )
    return found


def _agreement(subject: Subject) -> list[str]:
    """Pairs that were answered both ways."""
    data = subject.posterior.data
    low, high = np.minimum(data.winner, data.loser), np.maximum(data.winner, data.loser)
    _, distinct = np.unique(low.astype(np.int64) * data.num_entities + high, return_counts=True)
    both = int(np.sum(distinct > 1))
    if not both:
        return []
    pairs = "1 pair was" if both == 1 else f"{counted(both, 'pair')} were"
    return [f"{pairs} answered both ways. That is no mistake: answers are taken to be noisy."]


def _groups(subject: Subject) -> list[str]:
    groups = subject.posterior.info.get("groups")
    return [sentence(str(groups))] if groups else []
