"""The first paragraphs: what was asked, who leads, and how sure that is."""

import numpy as np

from relpref.diagnostics.relations import ATTRIBUTES, parts_of
from relpref.report.text import counted, counted_share, fixed, listed, percent
from relpref.report.utilities.subject import INTERVAL, Subject

_MOST_PAIRED = 200
_SETTLED = 0.95


def summary(subject: Subject) -> list[str]:
    """Paragraphs in plain words."""
    if len(subject.order) == 1:
        only = subject.names.inline(0)
        return [
            f"There is one entity, {only}, so there is nothing to rank: utilities are known by comparison only."
        ]
    return [_asked(subject), _leader(subject), _settled(subject)]


def _asked(subject: Subject) -> str:
    data = subject.posterior.data
    parts = parts_of(subject.posterior)
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
    return (
        f"This report ranks {counted(data.num_entities, 'entity', 'entities')}. It rests {rests}. "
        "Every place comes with an interval that says how sure it is."
    )


def _leader(subject: Subject) -> str:
    table, names = subject.ranking, subject.names
    first = table.iloc[0]
    name = names.inline(int(first["position"]))
    ranks = f"{first['rank_lower']:.0f} to {first['rank_upper']:.0f}"
    if first["rank_lower"] == first["rank_upper"]:
        ranks = f"{first['rank_lower']:.0f}"
    sure = f"with a probability of {percent(first['p_best'])} it is the best of all"
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


def _settled(subject: Subject) -> str:
    """How much of the order is decided."""
    order = subject.order[:_MOST_PAIRED]
    size = len(order)
    decided = 0
    for row in range(size - 1):
        others = order[row + 1 :]
        better = subject.posterior.belief.differences(np.full(len(others), order[row]), others).positive
        decided += int(np.sum((better >= _SETTLED) | (better <= 1 - _SETTLED)))
    pairs = size * (size - 1) // 2
    whose = f"the {size} best entities" if size < len(subject.order) else "these entities"
    share = counted_share(decided, pairs, "none", "every one")
    words = (
        f"Of the {counted(pairs, 'pair')} among {whose}, the order of {share} is settled: "
        f"one of the two is better with a probability of at least {_SETTLED:.0%}. "
    )
    gap = subject.posterior.belief.differences(order[:1], order[1:2])
    first, second = (subject.names.inline(int(position)) for position in order[:2])
    between = (
        f"{first} is better than {second} with a probability of {percent(float(gap.positive[0]))} "
        f"(a gap of {fixed(float(gap.mean[0]), subject.decimals)}, give or take {fixed(float(gap.sd[0]), subject.decimals)})."
    )
    return between if size == 2 else f"{words}Between the first two, {between}"
