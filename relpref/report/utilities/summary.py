"""The first paragraphs: what was asked, who leads, and how sure that is."""

import numpy as np
from numpy.typing import NDArray

from relpref.diagnostics.relations import ATTRIBUTES, parts_of
from relpref.report.text import counted, counted_share, fixed, listed, percent
from relpref.report.utilities.groups import apart
from relpref.report.utilities.subject import INTERVAL, Subject

_MOST_PAIRED = 200
_SETTLED = 0.95
_MOST_GROUPS = 3  # whose first two are named


def summary(subject: Subject) -> list[str]:
    """Paragraphs in plain words."""
    if len(subject.order) == 1:
        only = subject.names.inline(0)
        return [
            f"There is one entity, {only}, so there is nothing to rank: utilities are known by comparison only."
        ]
    if not subject.posterior.data.num_answers:
        return [
            _asked(subject),
            "As nothing was answered yet, all places are open: the order below says nothing.",
        ]
    groups = subject.groups
    leader = _leader(subject) if groups is None else _leaders(subject, groups)
    return [paragraph for paragraph in (_asked(subject), leader, _settled(subject)) if paragraph]


def _asked(subject: Subject) -> str:
    data = subject.whole.data
    parts = parts_of(subject.whole)
    used = list(
        dict.fromkeys(data.relation_of(part) for part in data.relations if part in parts or not parts)
    )
    sources = (
        []
        if not data.num_answers
        else [f"on {counted(data.num_answers, 'answer')} to the question “which of the two is better?”"]
    )
    if data.attribute_names and (ATTRIBUTES in parts or not parts):
        sources.append(f"on {counted(len(data.attribute_names), 'attribute')}")
    if used:
        names = listed([f"“{name}”" for name in used], most=6)
        sources.append(f"on the {'relation' if len(used) == 1 else 'relations'} {names}")
    rests = listed(sources or ["on the prior alone"])
    if not data.num_answers:
        rests += "; nobody has answered yet"
    told = "is about the best of" if subject.within else "ranks"
    return (
        f"This report {told} {counted(data.num_entities, 'entity', 'entities')}. It rests {rests}. "
        "Every place comes with an interval that says how sure it is."
    )


def _leader(subject: Subject) -> str:
    table, names = subject.ranking, subject.names
    first = table.iloc[0]
    name = names.inline(int(first["position"]))
    ranks = f"{first['rank_lower']:.0f} to {first['rank_upper']:.0f}"
    if first["rank_lower"] == first["rank_upper"]:
        ranks = f"{first['rank_lower']:.0f}"
    sure = f"with a probability of {percent(first['p_best'])} it is the best of {'those shown' if subject.within else 'all'}"
    if first["p_best"] >= 0.95:
        words = f"{name} is the clear leader: {sure}"
    elif first["p_best"] >= 0.5:
        words = f"{name} leads: {sure}"
    else:
        words = f"No entity is a clear leader. {name} has the highest utility; {sure}"
    words += f", and its place is {ranks} (a {INTERVAL:.0%} interval)."
    others = table.iloc[1:].nlargest(3, "p_best")
    likely = others[others["p_best"] >= 0.01]
    if len(likely):
        rivals = [
            f"{names.inline(int(row['position']))} ({percent(row['p_best'])})" for _, row in likely.iterrows()
        ]
        words += f" Next in the probability of being the best: {listed(rivals)}."
    return words


def _leaders(subject: Subject, groups: NDArray[np.intp]) -> str:
    """Who is first in each group, the largest ones first."""
    words, sizes = [apart(groups)], np.bincount(groups)
    for group in np.argsort(-sizes, kind="stable")[:_MOST_GROUPS]:
        if sizes[group] > 1:
            members = subject.order[groups[subject.order] == group]
            words.append(
                f"Of the group of {counted(int(sizes[group]), 'entity', 'entities')}, {_compared(subject, members)}"
            )
    return " ".join(words)


def _settled(subject: Subject) -> str:
    """How much of the order is decided, among pairs that can be compared."""
    order, groups = subject.order[:_MOST_PAIRED], subject.groups
    decided = pairs = 0
    for row, one in enumerate(order):
        others = order[row + 1 :]
        if groups is not None:
            others = others[groups[others] == groups[one]]
        better = subject.posterior.belief.differences(np.full(len(others), one), others).positive
        decided += int(np.sum((better >= _SETTLED) | (better <= 1 - _SETTLED)))
        pairs += len(others)
    whose = f"the {len(order)} best entities" if len(order) < len(subject.order) else "these entities"
    within = "" if groups is None else " that are in one group"
    share = counted_share(decided, pairs, "none", "every one")
    words = (
        f"Of the {counted(pairs, 'pair')} among {whose}{within}, the order of {share} is settled, "
        f"which means that one of the two is better with a probability of at least {_SETTLED:.0%}."
    )
    if groups is not None:
        return words if pairs > 1 else ""
    between = _compared(subject, order)
    return f"{words} Between the first two, {between}" if pairs > 1 else between


def _compared(subject: Subject, order: NDArray[np.intp]) -> str:
    """The first of some entities against the second."""
    gap = subject.posterior.belief.differences(order[:1], order[1:2])
    first, second = (subject.names.inline(int(position)) for position in order[:2])
    mean, sd = (fixed(float(number[0]), subject.decimals) for number in (gap.mean, gap.sd))
    chance = percent(float(gap.positive[0]))
    return f"{first} is better than {second} with a probability of {chance} (a gap of {mean}, give or take {sd})."
