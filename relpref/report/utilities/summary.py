"""The first paragraphs: what was asked, who leads, and how sure that is."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics.relations import ATTRIBUTES, parts_of
from relpref.report.blocks import (
    Block,
    Cell,
    Chapter,
    Items,
    Text,
    clean,
    counted,
    counted_share,
    fixed,
    isolated,
    listed,
    percent,
    sentence,
    shorten,
    whole,
)
from relpref.report.certified import Unknown, certified
from relpref.report.plots import cell, grid
from relpref.report.predicted import calibrated, measures, notes
from relpref.report.utilities.evidence import contradicted
from relpref.report.utilities.subject import INTERVAL, Subject, apart

_MOST_PAIRED = 200
_SETTLED = 0.95
_MOST_GROUPS = 3  # whose first two are named


def summary(subject: Subject) -> list[str]:
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


_FEW = 4.0  # answers about a typical entity, below which intervals rest mostly on the prior
_FEW_EACH = 10  # answers for each hyperparameter, below which maximising them makes intervals too narrow
_PRIOR_LEFT = 0.9  # of an entity's prior standard deviation, above which its place is the prior's
_STEEP = 0.1  # slope at which a search for hyperparameters has not ended, in nats for a factor of e
_SWITCHED_OFF = 0.05  # an amplitude, where the noise of one answer is 1


def warnings(subject: Subject) -> list[str]:
    """The warnings, as sentences; none where nothing stands out."""
    return [
        *_convergence(subject),
        *_coverage(subject),
        *_prior(subject),
        *_agreement(subject),
        *_groups(subject),
        *_raters(subject),
        *fitted(subject),
    ]


def _convergence(subject: Subject) -> list[str]:
    result = subject.posterior.result
    if result.ok:
        return []
    return [
        f"The computation did not converge, so nothing below or above is to be relied on: {sentence(result.value)}"
    ]


def _coverage(subject: Subject) -> list[str]:
    """Entities that few or no answers are about."""
    if not subject.posterior.data.num_answers:
        return ["There are no answers, so every interval is that of the prior."]
    asked = subject.asked
    found = _never(subject, asked == 0)
    typical = float(np.median(asked))
    if typical < _FEW:
        found.append(
            f"There are few answers: {fixed(typical, 1).removesuffix('.0')} about a typical entity. "
            "The intervals rest to a good part on the prior."
        )
    return found


def _never(subject: Subject, never: NDArray[np.bool_]) -> list[str]:
    """Entities that were never compared, and what their places rest on."""
    if not never.any():
        return []
    data, parts = subject.posterior.data, parts_of(subject.posterior)
    linked = np.zeros(data.num_entities, dtype=bool)
    for part, graph in data.relations.items():
        if part in parts or not parts:
            linked[graph.source] = linked[graph.target] = True
    known = ["attributes"] if data.attribute_names and (ATTRIBUTES in parts or not parts) else []
    found = []
    for which, rests in (
        (never & linked, [*known, "relations"]),
        (never & ~linked, known or ["the prior"]),
    ):
        positions = np.flatnonzero(which)
        if len(positions):
            were = "was" if len(positions) == 1 else "were"
            places = "its place rests" if len(positions) == 1 else "their places rest"
            found.append(
                f"{_named(subject, positions)} {were} never compared; {places} on {listed(rests)} alone."
            )
    return found


def _named(subject: Subject, positions: NDArray[np.intp]) -> str:
    """Entities by name; of more than a few the names would bury their number."""
    named = [subject.names.inline(int(position)) for position in positions[:10]]
    return listed([*named, *[""] * (len(positions) - len(named))], most=10)


def _prior(subject: Subject) -> list[str]:
    """Entities of which the answers say hardly more than the prior."""
    prior = subject.checked.prior_sd
    if isinstance(prior, Unknown) or not subject.posterior.data.num_answers:
        return []
    left = subject.posterior.belief.centred().sd() / np.where(prior > 0, prior, np.inf)
    found = np.flatnonzero((left > _PRIOR_LEFT) & (subject.asked > 0))
    if not len(found):
        return []
    share = f"over {_PRIOR_LEFT:.0%} of the uncertainty before any answer is left"
    return [f"Of {_named(subject, found)} the answers say little: {share}."]


def _agreement(subject: Subject) -> list[str]:
    both = contradicted(subject)
    if not both:
        return []
    pairs = "1 pair was" if both == 1 else f"{counted(both, 'pair')} were"
    return [f"{pairs} answered both ways. That is no mistake: answers are taken to be noisy."]


def _groups(subject: Subject) -> list[str]:
    groups = subject.posterior.info.get("groups")
    return [sentence(str(groups))] if groups else []


def _raters(subject: Subject) -> list[str]:
    """Raters whose answers fit the rest worse than chance explains."""
    table = subject.checked.raters
    if isinstance(table, Unknown):
        return []
    odd = [isolated(shorten(clean(label))) for label in table.index[table["at_odds"]]]
    if not odd:
        return []
    verb = "is" if len(odd) == 1 else "are"
    return [f"{listed(odd, most=6)} {verb} at odds with the others, more than chance explains."]


def fitted(subject: Subject) -> list[str]:
    """Values that were maximised from too little, or lie at an edge."""
    posterior = subject.posterior
    answers = posterior.data.num_answers
    if not answers or not posterior.searched or posterior.hyperparameter_draws:
        return []
    found = []
    values = {name: np.atleast_1d(value) for name, value in posterior.hyperparameters.items()}
    number = sum(value.size for value in values.values())
    if number and answers < _FEW_EACH * number:
        found.append(
            f"{counted(number, 'hyperparameter')} {'was' if number == 1 else 'were'} set to the best values by {counted(answers, 'answer')}. With so few, the "
            "intervals are too narrow; a fit that averages over all plausible values, the default, mends that."
        )
    if posterior.gradient_norm > _STEEP:
        found.append("The search for hyperparameters ended before it came to a maximum.")
    off = [
        name.removesuffix("_amplitude")
        for name, value in values.items()
        if name.endswith("_amplitude") and np.all(value < _SWITCHED_OFF)
    ]
    if off:
        found.append(
            f"The fit switched off {listed([f'“{part}”' for part in off])}: the answers do not follow it."
        )
    return found


_MOST_RATERS = 20


def trust(subject: Subject, found: list[str] | None = None) -> Chapter:
    """The chapter; ``found`` are the warnings, where others are known than of the subject."""
    found = warnings(subject) if found is None else found
    blocks: list[Block] = [Items(found)] if found else []
    if not found:
        text = "Nothing stands out: every entity was asked about, no group stands alone, and the computation went as it should."
        blocks.append(Text(text))
    blocks += certified(subject.checked.certificate)
    held = subject.checked.held_out
    if isinstance(held, Unknown):
        blocks.append(Text(f"No answers were left out and predicted: {held.why}."))
        return Chapter("How far to trust it", blocks)
    text = (
        f"Each of the {counted(held.num_answers, 'answer')} was left out, and predicted from all the others. That says how well the next "
        "answer is predicted, which a model's fit to answers it has seen does not."
    )
    blocks += [Text(text), measures(held), *notes(held), *calibrated(held, subject.posterior)]
    if isinstance(subject.checked.raters, pd.DataFrame):
        blocks.append(_trust_raters(subject.checked.raters))
    return Chapter("How far to trust it", blocks)


def _trust_raters(table: pd.DataFrame) -> Block:
    rows: list[list[Cell | str]] = []
    for label, row in table.head(_MOST_RATERS).iterrows():
        rows.append(
            [
                cell(label),
                whole(int(row["answers"])),
                fixed(row["log_loss"], 3),
                fixed(row["expected"], 3),
                "at odds with the rest" if row["at_odds"] else "as expected",
            ]
        )
    columns = ("Rater", "Answers", "Log loss", "Expected", "Verdict")
    return grid("Raters, the most surprising first", columns, rows, (1, 2, 3))
