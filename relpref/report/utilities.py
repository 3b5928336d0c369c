"""The page of a ranking: facts for the chapters on the utilities of labeled items, whose sentences are in ``utilities.html``."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import counted
from relpref.diagnostics.comparison import ATTRIBUTES, INDIVIDUAL, evidence_without_each, parts_of
from relpref.errors import DataError, RelprefError
from relpref.explore import expected_gain, next_pairs
from relpref.infer import UtilityPosterior
from relpref.infer.large.problem import answered, approximations, touched
from relpref.likelihoods import Probit
from relpref.posterior.gaussian import generator
from relpref.posterior.plots import tiers_of
from relpref.report import plots
from relpref.report.blocks import (
    Chapter,
    Contents,
    clean,
    fixed,
    in_hundred,
    isolated,
    leaders,
    listed,
    place_ranges,
    shorten,
    signed_percent,
    significant,
)
from relpref.report.model import (
    hyperparameters,
    kernels_of,
    methods,
    options_of,
    part_name,
    takes_likelihood,
)
from relpref.report.subject import ROWS, Subject

_BEST, _UNCERTAIN = 150, 50  # of more items than a matrix has room for, those that are shown
# Items with answers, among which the least known are looked for: each may cost a solution with the
# graph.
_CANDIDATES = 500


def contents(posterior: UtilityPosterior, wanted: bool | pd.DataFrame | None) -> Contents:
    """The page of a ranking; ``wanted`` is ``relations_evidence`` of `PosteriorBase.report`."""
    subject, some = _some_of(posterior) if posterior.large else (Subject(posterior), None)
    drivers, parts = _contributions(subject)
    trust = _trust(posterior, subject)
    summary = Chapter("", "utilities.html:summary", _summary(subject) | {"some": some})
    chapters = [
        _ranking(subject),
        drivers,
        Chapter("Keep in mind", "utilities.html:caveats", trust, front=True),
        _effects(posterior),
        _questions(subject),
        _places(subject),
        _pairs(subject),
        *_relations(subject),
        parts,
        _evidence(posterior, wanted),
        _asked(Subject(posterior)),
        Chapter("How far to trust it", "utilities.html:trust", trust),
        _surprises(trust["s"]),
        hyperparameters(posterior),
    ]
    return Contents("Ranking report", summary, chapters, _methods(posterior))


def _some_of(posterior: UtilityPosterior) -> tuple[Subject, dict[str, Any]]:
    """The best items and the least certain of those that answers are about, of more than a matrix has room for."""
    belief: Any = posterior.belief
    best = np.argsort(-belief.mean(), kind="stable")[:_BEST]
    known = candidates = touched(posterior.data)
    if len(known) > _CANDIDATES:
        candidates = np.sort(generator(posterior.key).choice(known, _CANDIDATES, replace=False))
    _, sd = belief.relative(candidates)
    uncertain = candidates[np.argsort(-sd, kind="stable")[:_UNCERTAIN]]
    some = posterior.about(posterior.data.labels[at] for at in np.union1d(best, uncertain))
    facts = {
        "best": len(best),
        "uncertain": len(uncertain),
        "drawn": len(candidates) < len(known),
        "candidates": len(candidates),
        "near": [clean(text, 1000) for text in approximations(posterior)],
    }
    return Subject(some, within=posterior), facts


def _effects(posterior: UtilityPosterior) -> Chapter | None:
    """What covariates of the two sides add; None without covariates."""
    table = posterior.effects
    if table.empty:
        return None
    ends = [table[end].map(significant) for end in ("lower", "upper")]
    facts = {
        "table": table,
        "intervals": [f"{lower} to {upper}" for lower, upper in zip(*ends, strict=True)],
        "categories": [
            each.name for each in posterior.data.comparisons.covariates_are if each.levels
        ],
    }
    return Chapter("Effects", "utilities.html:effects", facts)


_MOST_RATERS = 20


def _asked(subject: Subject) -> Chapter:
    """What was asked and answered."""
    data = subject.posterior.data
    facts: dict[str, Any] = {"s": subject, "data": data, "raters": None}
    if data.num_answers:
        count = np.asarray(data.count)
        facts["possible"] = data.num_items * (data.num_items - 1) // 2
        facts["ties"] = (
            None if data.comparisons.tie is None else count[np.asarray(data.comparisons.tie)].sum()
        )
        facts["typical"] = float(np.median(subject.asked))
        if data.comparisons.rater is not None:
            raters = data.comparisons.raters
            given = np.bincount(np.asarray(data.comparisons.rater), count, len(raters)).astype(int)
            most = np.argsort(-given, kind="stable")[:_MOST_RATERS]
            facts["raters"] = [(raters[rater], given[rater]) for rater in most]
    return Chapter("What was asked and answered", "utilities.html:asked", facts)


_LEADERS = 4  # that are named
_MOST_GROUPS = 3  # whose first two are named
_MOST_TIERS = 6


def _used(posterior: UtilityPosterior, part: str) -> bool:
    """Whether the model has a part; assumed where its parts are not known."""
    parts = parts_of(posterior)
    return part in parts or not parts


def _summary(subject: Subject) -> dict[str, Any]:
    """Who leads, how sure that is, and what it rests on."""
    posterior, data, order = subject.whole, subject.whole.data, subject.order
    relations = dict.fromkeys(
        data.relation_of(part) for part in data.relations if _used(posterior, part)
    )
    facts: dict[str, Any] = {
        "s": subject,
        "data": data,
        "attributes": len(data.attribute_names) if _used(posterior, ATTRIBUTES) else 0,
        "relations": [f"“{name}”" for name in relations],
    }
    if len(order) == 1 or not data.num_answers:
        return facts
    table, named = subject.ranking, subject.names.inline
    tiers = (
        [members["position"].to_list() for _, members in table.groupby("tier")]
        if "tier" in table
        else []
    )
    facts |= {
        "leaders": [named(position) for position in leaders(table)],
        "most": _LEADERS,
        "leader": table.iloc[0],
        "chance": next((in_hundred(chance) for chance in subject.beats), None),
        "settled": _settled(subject),
        "places": place_ranges(table["rank_lower"][:1], table["rank_upper"][:1])[0],
        "tiers": [
            listed([named(at) for at in tier], _LEADERS)
            for tier in tiers
            if 1 < len(tiers) <= _MOST_TIERS
        ],
    }
    if subject.groups is not None:
        sizes = np.bincount(subject.groups)
        largest = [
            group for group in np.argsort(-sizes, kind="stable")[:_MOST_GROUPS] if sizes[group] > 1
        ]
        facts["groups"] = [order[subject.groups[order] == group] for group in largest]
    return facts


_MOST_SETTLED = 300  # items, all pairs of whom are looked at once more


def _settled(subject: Subject) -> int:
    """How many items the first is settled above, all pairs at once; 0 of too many to look."""
    posterior, size = subject.posterior, len(subject.ranking)
    if subject.within is not None or not 2 < size <= _MOST_SETTLED:
        return 0
    return size - int(posterior.tiers()["rank_upper"].iloc[0])


_DRAWN = 20


def _ranking(subject: Subject) -> Chapter | None:
    """The forest; None of a single item."""
    table, names, size = subject.ranking, subject.names, len(subject.ranking)
    if size == 1:
        return None
    head = table.head(_DRAWN)
    lines = head.assign(name=[names.full[row] for row in head["position"]])
    if len(subject.beats):
        lines["told"] = [f"{in_hundred(chance)}%" for chance in subject.beats[:_DRAWN]]
    description = (
        f"One row for each of {len(lines)} items, best first, from "
        f"{names.short[subject.order[0]]}: a dot for the utility and a line for "
        "its interval. The table of all places holds the numbers."
    )
    tiers = tiers_of(table, _DRAWN)
    words = {"title": "Ranking", "description": description, "label": "utility, with 90% intervals"}
    facts = {
        "s": subject,
        "picture": plots.both(plots.forest, "ranking", lines, tiers, **words),
        "size": size,
        "drawn": len(lines),
        "tiers": tiers,
    }
    return Chapter("Ranking", "utilities.html:ranking", facts, front=True)


def _places(subject: Subject) -> Chapter:
    """The table behind the forest."""
    head = subject.ranking.head(ROWS)
    told = [(subject.won[row], subject.asked[row]) for row in head["position"]]
    answers = subject.posterior.data.comparisons
    graded = any(
        column is not None for column in (answers.tie, answers.strength, answers.probability)
    )
    facts = {
        "s": subject,
        # Winners under the probit model: there a gap has a plain meaning in answers.
        "probit": not graded
        and takes_likelihood(subject.whole)
        and subject.whole.likelihood == Probit(),
        "raters": answers.rater is not None,
        "head": head,
        "tiers": tiers_of(subject.ranking, ROWS),
        "won": [f"{won} of {asked}" if asked else "never asked" for won, asked in told],
        "groups": None
        if subject.groups is None
        else pd.factorize(subject.groups[subject.order])[0][:ROWS] + 1,
    }
    return Chapter("All places", "utilities.html:places", facts)


_PAIRED = 10


def _pairs(subject: Subject) -> Chapter | None:
    """Who of the first is better than whom."""
    first, names = subject.order[:_PAIRED], subject.names
    if len(first) < 3 or not subject.posterior.data.num_answers:
        return None
    one, other = (np.repeat(first, len(first)), np.tile(first, len(first)))
    better = subject.posterior.belief.differences(one, other).positive.reshape(len(first), -1)
    picture = plots.matrix([names.full[row] for row in first], better, "pairs")
    return Chapter(
        "Who is better than whom",
        "utilities.html:pairs",
        {"picture": picture, "number": len(first)},
    )


_MOST_DOTS, _MOST_GRAPHS = 300, 3


def _relations(subject: Subject) -> list[Chapter]:
    """Each relation as a graph, in the color of the utilities."""
    posterior = subject.posterior
    used = [name for name in posterior.data.relations if _used(posterior, name)]
    if posterior.data.num_items > _MOST_DOTS or not posterior.converged:
        return []
    found, mean = [], posterior.belief.mean()
    for row, name in enumerate(used[:_MOST_GRAPHS]):
        graph = posterior.data.relations[name]
        links = pd.DataFrame(
            {"source": graph.source, "target": graph.target, "weight": graph.weight}
        )
        if len(links):
            picture = plots.network(subject.names.full, mean - mean.mean(), links, f"relation{row}")
            found.append(
                Chapter(
                    f"The relation {clean(name)}", "utilities.html:relation", {"picture": picture}
                )
            )
    return found


_ITEMS, _PARTS = 10, 12


def _contributions(subject: Subject) -> tuple[Chapter | None, Chapter | None]:
    """What the utilities rest on, attributes and each relation: in short, and item by item; None where there is nothing to tell apart."""
    posterior = subject.whole
    try:
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            # 0/0 where all utilities are equal, and parts that cannot be told apart: told below.
            warnings.simplefilter("ignore", UserWarning)
            shares, parts = posterior.shares(), posterior.explain()
    except DataError:
        return None, None
    names = {str(part): part_name(str(part), posterior) for part in shares.index}
    for pair in posterior.alike_parts:  # only their sum is known
        both = [names[part] for part in pair]
        names = {part: " + ".join(both) if name in both else name for part, name in names.items()}
    sums = parts[list(names)].T.groupby(names, sort=False).sum().T
    shares = shares.groupby(names, sort=False).sum(min_count=1)
    if len(shares) == 1 or not np.all(np.isfinite(shares)):
        return None, None
    shares = shares.iloc[np.argsort(-shares.to_numpy(), kind="stable")]
    head, first = shares.iloc[:_PARTS], subject.order[:_ITEMS]
    kept = [str(name) for name in head.index]
    by_part = sums[kept].assign(Utility=parts["mean"]).to_numpy()[subject.chosen][first].T
    facts = {
        "s": subject,
        "parts": len(shares),
        "bars": [
            (name, signed_percent(share), float(share))
            for name, share in zip(kept, head, strict=True)
        ],
        "first": first,
        "by_part": [
            (f">{name}", [fixed(number, subject.decimals) for number in numbers])
            for name, numbers in zip([*kept, "Utility"], by_part, strict=True)
        ],
    }
    return (
        Chapter("What drives it", "utilities.html:drivers", facts, front=True),
        Chapter("Where the utilities come from", "utilities.html:contributions", facts),
    )


def _inner(name: str) -> str:
    return (
        f"the {name}"
        if name.startswith("relation ") or name in ("attributes", "item itself")
        else name
    )


_NEEDED = ("left_out", "log_evidence", "difference")


def _evidence(posterior: UtilityPosterior, wanted: bool | pd.DataFrame | None) -> Chapter | None:
    """What each part is worth: True to fit again, or a ready table; otherwise no chapter."""
    title, macro, table = "What each part is worth", "utilities.html:evidence", wanted
    if wanted is None or wanted is False:
        return None
    if wanted is True:
        try:
            table = evidence_without_each(posterior)
        except RelprefError as error:
            return Chapter(title, macro, {"table": None, "why": clean(error).rstrip(".")})
    assert isinstance(table, pd.DataFrame)
    if missing := [name for name in _NEEDED if name not in table.columns]:
        raise DataError(
            f"relations_evidence: the table lacks the column {missing[0]!r}; "
            "pass the table that relpref.diagnostics.evidence_without_each returns, or True or "
            "False"
        )
    notes = table["note"] if "note" in table else pd.Series("", table.index)
    table = table.assign(
        name=[part_name(clean(part), posterior) for part in table["left_out"]],
        inline=[isolated(clean(part)) for part in table["left_out"]],
        attributes=table["left_out"] == ATTRIBUTES,
        note=[
            clean(note) if isinstance(note, str) and note else "the fit without it did not succeed"
            for note in notes
        ],
    )
    full = "–" if posterior.log_evidence is None else fixed(posterior.log_evidence)
    return Chapter(title, macro, {"table": table, "full": full})


_FEW = 4.0  # answers about a typical item, below which intervals rest mostly on the prior
_UNEVEN = 4  # times as many answers as the item with the fewest
_FEW_EACH = (
    10  # answers for each hyperparameter, below which maximizing them makes intervals too narrow
)
_PRIOR_LEFT = 0.9  # of an item's prior standard deviation, above which its place is the prior's
_STEEP = 0.1  # slope at which a search for hyperparameters has not ended, in nats for a factor of e
_SWITCHED_OFF = 0.05  # an amplitude, where the noise of one answer is 1


def _trust(posterior: UtilityPosterior, shown: Subject) -> dict[str, Any]:
    """How far to trust it: facts about all items; of very many, about those that answers are about."""
    table, subject = shown.ranking, shown
    facts: dict[str, Any] = {
        "posterior": posterior,
        "s": None,
        "size": len(table),
        "few_each": _FEW,
        "alike": [
            [_inner(part_name(one, posterior)) for one in pair] for pair in posterior.alike_parts
        ],
        **dict.fromkeys(
            (
                "certificate",
                "wrong",
                "unreliable",
                "calibrated",
                "least",
                "never",
                "never_compared",
                "unlike",
                "odd",
                "refused",
            )
        ),
        "typical": np.inf,
        "compared": 1.0,
        "typical_width": float((table["rank_upper"] - table["rank_lower"]).median()),
    }
    facts |= _fitted(posterior)
    if posterior.large:
        facts["never_compared"] = posterior.data.num_items - len(touched(posterior.data))
        try:
            subject = Subject(answered(posterior))
        except RelprefError as error:
            return facts | {"refused": clean(error, 1000)}
    posterior, checked = subject.posterior, subject.checked
    facts |= {
        "s": subject,
        "size": len(table),
        "typical": np.inf,
        "unlike": "",
        "never": [],
        "few_each": _FEW,
    }
    if posterior.data.num_answers:
        typical, least = float(np.median(subject.asked)), subject.asked[subject.asked > 0].min()
        facts |= {"typical": typical, "never": _never(subject)}
        if _UNEVEN * least < typical:
            facts["least"] = least
            fewest = np.flatnonzero(subject.asked == least)
            many = len(fewest) > _LEADERS
            facts["least_known"] = counted(len(fewest), "item") if many else subject.several(fewest)
        facts["compared"] = subject.pairs / (
            posterior.data.num_items * (posterior.data.num_items - 1) / 2
        )
        if checked.prior_sd is not None:
            prior = np.where(checked.prior_sd > 0, checked.prior_sd, np.inf)
            left = posterior.belief.centred().sd() / prior
            facts["unlike"] = subject.several(
                np.flatnonzero((left > _PRIOR_LEFT) & (subject.asked > 0))
            )
    raters = checked.raters
    odd = (
        []
        if raters is None
        else [isolated(shorten(clean(who))) for who in raters.index[raters["at_odds"]]]
    )
    facts |= {"odd": odd, "raters": None if raters is None else raters.head(_MOST_RATERS)}
    return facts | checked.facts()


def _never(subject: Subject) -> list[dict[str, Any]]:
    """Items that were never compared, and what their places rest on."""
    data, never = subject.posterior.data, subject.asked == 0
    linked = np.zeros(data.num_items, dtype=bool)
    for part, graph in data.relations.items() if never.any() else ():
        if _used(subject.posterior, part):
            linked[graph.source] = linked[graph.target] = True
    known = ["attributes"] if data.attribute_names and _used(subject.posterior, ATTRIBUTES) else []
    kinds = ((never & linked, [*known, "relations"]), (never & ~linked, known or ["the prior"]))
    return [
        {
            "names": subject.several(np.flatnonzero(which)),
            "number": which.sum(),
            "rests": listed(rests),
        }
        for which, rests in kinds
        if which.any()
    ]


def _fitted(posterior: UtilityPosterior) -> dict[str, Any]:
    """Hyperparameters that were maximized from too little, or lie at an edge."""
    answers = posterior.data.num_answers
    if not answers or not posterior.searched or posterior.hyperparameter_draws:
        return {"few": 0, "steep": False, "off": []}
    values = {name: np.atleast_1d(value) for name, value in posterior.hyperparameters.items()}
    number = sum(value.size for value in values.values())
    off = [
        f"“{name.removesuffix('_amplitude')}”"
        for name, value in values.items()
        if name.endswith("_amplitude") and np.all(value < _SWITCHED_OFF)
    ]
    few = number if answers < _FEW_EACH * number else 0
    return {"few": few, "answers": answers, "steep": posterior.gradient_norm > _STEEP, "off": off}


_SURPRISES = 10
_SURPRISING = 0.25  # held-out probability of what was answered, below which it is shown


def _surprises(subject: Subject | None) -> Chapter | None:
    """Answers that contradict the others; None where there are none, or they cannot be left out."""
    if subject is None or not subject.posterior.data.num_answers:
        return None
    title, table, held = "Surprising answers", subject.checked.influence, subject.checked.held_out
    if held is None or table is None:
        return None
    facts: dict[str, Any] = {
        "s": subject,
        "reported": held.forecasts is None,
        "answers": held.num_answers,
    }
    if held.forecasts is not None:
        # Of the side that was answered, whatever the strength: that is what the others tell of an
        # answer.
        sides = held.chances[np.arange(len(held.outcome)), held.outcome]
        table = table.assign(probability=sides[table.index]).sort_values(
            "probability", kind="stable"
        )
        table = table[table["probability"] < _SURPRISING]
        if not len(table):
            return None
        # Every outcome under the bound, not only the one that was answered, happens with its own
        # probability.
        chances = np.where(held.forecasts.chances < _SURPRISING, held.forecasts.chances, 0.0)
        facts["count"] = int(table["count"].sum() if "count" in table else len(table))
        facts["expected"] = round(float(held.forecasts.weight @ chances.sum(axis=1)))
    head = table.head(_SURPRISES)
    facts |= {"table": head, "repeated": "count" in head and bool((head["count"] > 1).any())}
    facts["said"] = [_said(subject, row) for row in head.to_dict("records")]
    return Chapter(title, "utilities.html:surprises", facts)


def _said(subject: Subject, row: dict[Any, Any]) -> str:
    if "reported" in row:
        first, second = subject.named(row["first"]), subject.named(row["second"])
        return f"{first} over {second} with {significant(100 * row['reported'])}%"
    one, other = subject.named(row["winner"]), subject.named(row["loser"])
    if row.get("tie"):
        return f"{one} equal to {other}"
    strength = row.get("strength")
    return f"{one} over {other}" + ("" if strength is None else f", strength {strength}")


_NEXT, _MORE = 3, 10
_MOST_ITEMS = 4000  # whose covariance is looked at as a whole


def _questions(subject: Subject) -> Chapter | None:
    """What to ask next; None where there is nothing to ask."""
    title, posterior = "What to ask next", subject.whole
    size = posterior.data.num_items
    if size < 2 or not posterior.converged:
        return None
    if size > _MOST_ITEMS and subject.within is None:
        return None  # it takes long; relpref.explore.next_pairs asks about some of them
    try:
        pairs, value = next_pairs(posterior, _NEXT), expected_gain(posterior, _MORE)
    except RelprefError:
        return None
    facts = {"s": subject, "worth": value.sentence, "table": pairs}
    return Chapter(title, "utilities.html:questions", facts, front=True)


_MOST_KERNELS = 6


def _methods(posterior: UtilityPosterior) -> Chapter:
    data, parts, used = posterior.data, parts_of(posterior), kernels_of(posterior)
    options = options_of(posterior)
    known = bool(parts) and all(part in used or part == INDIVIDUAL for part in parts)
    by_kernel: dict[str, list[str]] = {}
    for part, kernel in used.items() if known else ():
        name = "the attributes" if part == ATTRIBUTES else f"“{clean(part)}”"
        by_kernel.setdefault(kernel.sentence, []).append(name)
    weights, effective = posterior.belief.weights, posterior.effective_draws
    draws: float | None = None if len(weights) == 1 or np.ptp(weights) else len(weights)
    if draws is not None and effective is not None:
        draws = min(effective, draws)
    scaled = options.get("standardize", True) and options.get("normalize", True)
    return methods(
        posterior,
        "utilities.html:methods",
        lists=posterior.lists.split(": ")[-1],
        smooth=ATTRIBUTES in parts if parts else bool(data.attribute_names),
        related=any(part not in (ATTRIBUTES, INDIVIDUAL) for part in parts),
        individual=INDIVIDUAL in parts,
        kernels=[(listed(of, _MOST_KERNELS), text) for text, of in by_kernel.items()],
        several=known and len(parts) > 1,
        known=known,
        scaled=scaled and all(kernel.unit for kernel in used.values()),
        # Relations that are not undirected, which became graphs.
        relations=[
            (clean(name), links.relation)
            for name, links in data.links.items()
            if known
            and any(part in parts for part in data.parts_of(name))
            and (links.relation.form == "random_walk" or links.relation.kind != "undirected")
        ],
        points=None if draws is None else 50 / np.sqrt(max(draws, 1.0)),
        correlated=effective is None,
    )
