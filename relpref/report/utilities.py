"""Page of a ranking by utilities: facts for the template ``utilities.html``."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.attributes import given_columns
from relpref.diagnostics.comparison import ATTRIBUTES, INDIVIDUAL, evidence_without_each, parts_of
from relpref.errors import DataError, RelprefError
from relpref.infer import UtilityPosterior
from relpref.infer.large.problem import answered, approximations, touched
from relpref.likelihoods import Probit
from relpref.posterior.effects import partial_effects
from relpref.posterior.gaussian import generator
from relpref.posterior.names import shorten
from relpref.posterior.plots import tiers_of
from relpref.report import plots
from relpref.report.blocks import (
    Chapter,
    Contents,
    Facts,
    clean,
    fixed,
    in_hundred,
    isolated,
    lead,
    listed,
    place_ranges,
    significant,
)
from relpref.report.model import (
    kernels_of,
    options_of,
    part_name,
    takes_likelihood,
)
from relpref.report.subject import ROWS, Subject
from relpref.report.words import Words
from relpref.result import InferenceWarning

_BEST, _UNCERTAIN = 150, 50  # shown of more items than fit in a matrix
# Items with answers whose uncertainty is compared: each may cost a solution with the graph.
_CANDIDATES = 500


def contents(
    posterior: UtilityPosterior, evidence: bool | pd.DataFrame | None, words: Words
) -> Contents:
    """Contents of the page of a ranking; see `posterior.report` for ``evidence``."""
    subject, some = Subject(posterior, words=words), None
    if posterior.large:
        subject, some = _some_of(posterior, words)
    drivers, parts = _contributions(subject)
    trust = _trust(posterior, subject)
    summary = _summary(subject) | {"some": some}
    chapters = [
        _ranking(subject),
        drivers,
        _attributes(subject.full),
        _effects(posterior),
        Chapter("Keep in mind", "utilities.html:caveats", trust, front=True),
        _questions(subject),
        _places(subject),
        _pairs(subject),
        parts,
        _evidence(posterior, evidence),
        _asked(Subject(posterior, words=words)),
        Chapter("How far to trust it", "utilities.html:trust", trust),
        _surprises(trust["s"]),
    ]
    return Contents("Ranking report", summary, chapters, _methods(posterior))


def _some_of(posterior: UtilityPosterior, words: Words) -> tuple[Subject, Facts]:
    """Subject of the best and of the least certain items, of more than fit in a matrix."""
    belief: Any = posterior.belief
    best = np.argsort(-belief.mean(), kind="stable")[:_BEST]
    items = candidates = touched(posterior.data)
    if len(items) > _CANDIDATES:
        candidates = np.sort(generator(posterior.key).choice(items, _CANDIDATES, replace=False))
    _, sd = belief.relative(candidates)
    uncertain = candidates[np.argsort(-sd, kind="stable")[:_UNCERTAIN]]
    some = posterior.subset(posterior.data.labels[at] for at in np.union1d(best, uncertain))
    facts = {
        "best": len(best),
        "uncertain": len(uncertain),
        "drawn": len(candidates) < len(items),
        "candidates": len(candidates),
        "near": [clean(text, 1000) for text in approximations(posterior)],
    }
    return Subject(some, within=posterior, words=words), facts


def _effects(posterior: UtilityPosterior) -> Chapter | None:
    """Chapter on effects of covariates; None without covariates."""
    table = posterior.effects
    if table.empty:
        return None
    facts = {
        "table": table,
        "categories": [
            covariate.name
            for covariate in posterior.data.comparisons.covariates_are
            if covariate.levels
        ],
    }
    return Chapter("Effects", "utilities.html:effects", facts, front=True)


_MOST_ITEMS = 4000  # whose full covariance is used
_MOST_ATTRIBUTES, _MOST_CURVES = 12, 4


def _attributes(posterior: UtilityPosterior) -> Chapter | None:
    """Chapter on effects of attributes; None without attributes, answers or a known program."""
    data = posterior.data
    if not data.attribute_names or not data.num_answers or data.num_items > _MOST_ITEMS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InferenceWarning)  # the page says so elsewhere
            effects = posterior.attribute_effects()
            effects = effects.sort_values("mean", key=abs, ascending=False, kind="stable")
            clear = (effects["shape"] != "unclear") & (effects["change"] == "one sd")
            drawn = effects.index[clear].tolist()[:_MOST_CURVES]
            curves = partial_effects(posterior, drawn, 0.9) if drawn else []
    except RelprefError:
        return None
    table = effects.head(_MOST_ATTRIBUTES)
    facts = {
        "table": table,
        "number": len(effects),
        "changes": [
            change if np.isnan(unit) else f"{change} ({significant(unit)})"
            for change, unit in zip(table["change"], table["unit"], strict=True)
        ],
        "picture": plots.curves(curves, "attributes") if curves else None,
    }
    return None if table.empty else Chapter("Attributes", "utilities.html:attributes", facts, True)


_MOST_RATERS = 20


def _asked(subject: Subject) -> Chapter:
    """Chapter on the answers."""
    data = subject.posterior.data
    facts: Facts = {"s": subject, "data": data, "raters": None}
    facts["columns"] = [shorten(clean(name)) for name in given_columns(data.attribute_names)]
    # Options of another fit are nothing to readers.
    facts["notes"] = [note for note in data.notes if "(--" not in note]
    if data.num_answers:
        count, answers = data.count, data.comparisons
        facts["possible"] = data.num_items * (data.num_items - 1) // 2
        facts["ties"] = None if answers.tie is None else count[answers.tie].sum()
        facts["typical"] = np.median(subject.asked)
        if answers.rater is not None:
            raters = answers.raters
            given = np.bincount(answers.rater, count, len(raters)).astype(int)
            most = np.argsort(-given, kind="stable")[:_MOST_RATERS]
            facts["raters"] = [(raters[rater], given[rater]) for rater in most]
    return Chapter("What was asked and answered", "utilities.html:asked", facts)


_LEADERS = 4  # items with names
_MOST_GROUPS = 3  # groups with the names of their first two items
_MOST_TIERS = 6


def _used(posterior: UtilityPosterior, part: str) -> bool:
    """Whether the model has a part; true if its parts are unknown."""
    parts = parts_of(posterior)
    return part in parts or not parts


def _summary(subject: Subject) -> Facts:
    """Facts about the leaders, their certainty, and the data."""
    posterior, data, order = subject.full, subject.full.data, subject.order
    relations = dict.fromkeys(
        data.relation_of(part) for part in data.relations if _used(posterior, part)
    )
    facts: Facts = {
        "s": subject,
        "data": data,
        "attributes": len(given_columns(data.attribute_names))
        if _used(posterior, ATTRIBUTES)
        else 0,
        "relations": [f"“{name}”" for name in relations],
    }
    if len(order) == 1 or not data.num_answers:
        return facts
    table, named = subject.ranking, subject.names.inline
    tiers = table.groupby("tier")["position"] if "tier" in table else ()
    facts |= {
        "lead": lead(table, named, subject.words("items")),
        "chance": next((in_hundred(chance) for chance in subject.beats), None),
        "places": place_ranges(table["rank_lower"][:1], table["rank_upper"][:1])[0],
        "tiers": [listed([*map(named, tier)], _LEADERS) for _, tier in tiers]
        if 1 < len(tiers) <= _MOST_TIERS
        else [],
    }
    if subject.groups is not None:
        sizes = subject.sizes
        largest = np.argsort(-sizes, kind="stable")[:_MOST_GROUPS]
        facts["groups"] = [
            order[subject.groups[order] == group] for group in largest if sizes[group] > 1
        ]
    return facts


_DRAWN = 20


def _ranking(subject: Subject) -> Chapter | None:
    """Chapter with the picture; None for a single item."""
    table, names, size = subject.ranking, subject.names, len(subject.ranking)
    if size == 1:
        return None
    head = table.head(_DRAWN)
    lines = head.assign(name=[names.full[row] for row in head["position"]])
    if len(subject.beats):
        lines["note"] = [f"{in_hundred(chance)}%" for chance in subject.beats[:_DRAWN]]
    description = (
        f"One row for each of {len(lines)} {subject.words('items')}, best first, from "
        f"{names.short[subject.order[0]]}: a dot for the utility and a line for its interval. The "
        "table of all places holds the numbers."
    )
    tiers = tiers_of(table, _DRAWN)
    words = {"title": "Ranking", "description": description, "label": "utility, with 90% intervals"}
    facts = {
        "s": subject,
        "picture": plots.forest("ranking", lines, tiers, **words),
        "size": size,
        "drawn": len(lines),
        "tiers": tiers,
    }
    return Chapter("Ranking", "utilities.html:ranking", facts, front=True)


def _places(subject: Subject) -> Chapter:
    """Chapter with the table of places."""
    head = subject.ranking.head(ROWS)
    counts = [(subject.won[row], subject.asked[row]) for row in head["position"]]
    answers = subject.posterior.data.comparisons
    graded = {"tie", "strength", "probability"} & answers.columns.keys()
    facts = {
        "s": subject,
        # A gap of utilities has a simple meaning for winners under the probit model.
        "probit": not graded
        and takes_likelihood(subject.full)
        and subject.full.likelihood == Probit(),
        "raters": answers.rater is not None,
        "head": head,
        "tiers": tiers_of(subject.ranking, ROWS),
        "won": [f"{won} of {asked}" if asked else "never asked" for won, asked in counts],
        "groups": None
        if subject.groups is None
        else pd.factorize(subject.groups[subject.order])[0][:ROWS] + 1,
    }
    return Chapter("All places", "utilities.html:places", facts)


_PAIRED = 10


def _pairs(subject: Subject) -> Chapter | None:
    """Chapter that compares the first items with each other."""
    first = subject.order[:_PAIRED]
    if len(first) < 3 or not subject.posterior.data.num_answers:
        return None
    better = [
        subject.posterior.belief.differences(first, np.full(len(first), other)).positive
        for other in first
    ]
    columns = [
        (
            f"{'~' * (place > 6)}>{place + 1}",
            ["–" if row == place else in_hundred(p) for row, p in enumerate(chances)],
        )
        for place, chances in enumerate(better)
    ]
    facts = {"items": subject.names.cells(first), "columns": columns}
    return Chapter("Who is better than whom", "utilities.html:pairs", facts)


_ITEMS, _PARTS = 10, 12


def _contributions(subject: Subject) -> tuple[Chapter | None, Chapter | None]:
    """Chapters on the parts of the utilities; None if there is only one part."""
    posterior = subject.full
    try:
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            # 0/0 for equal utilities, and parts that cannot be told apart: treated below.
            warnings.simplefilter("ignore", UserWarning)
            shares, parts = posterior.shares(), posterior.explain()
    except DataError:
        return None, None
    names = {part: part_name(part, posterior, subject.words) for part in shares.index}
    for pair in posterior.indistinguishable_parts:  # only their sum is determined
        both = [names[part] for part in pair]
        names = {part: " + ".join(both) if name in both else name for part, name in names.items()}
    sums = parts[list(names)].T.groupby(names, sort=False).sum().T
    shares = shares.groupby(names, sort=False).sum(min_count=1)
    if len(shares) == 1 or not np.all(np.isfinite(shares)):
        return None, None
    head = shares.sort_values(ascending=False, kind="stable").head(_PARTS)
    first = subject.order[:_ITEMS]
    facts = {
        "s": subject,
        "parts": len(shares),
        "shares": head,
        "first": first,
        "by_part": sums[head.index].assign(Utility=parts["mean"]).iloc[subject.chosen[first]],
    }
    return (
        Chapter("What drives it", "utilities.html:drivers", facts, front=True),
        Chapter("Where the utilities come from", "utilities.html:contributions", facts),
    )


_NEEDED = ("left_out", "log_evidence", "difference")


def _evidence(posterior: UtilityPosterior, table: Any) -> Chapter | None:
    """Chapter on the evidence of each part, from a table or, if True, from further fits."""
    title, macro = "What each part is worth", "utilities.html:evidence"
    if table is None or table is False:
        return None
    if table is True:
        try:
            table = evidence_without_each(posterior)
        except RelprefError as error:
            return Chapter(title, macro, {"table": None, "why": clean(error).rstrip(".")})
    if missing := [name for name in _NEEDED if name not in table.columns]:
        raise DataError(
            f"relations_evidence: the table lacks the column {missing[0]!r}; pass the table that "
            "relpref.diagnostics.evidence_without_each returns, or True or False"
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
# Answers for each hyperparameter, below which maximizing makes intervals too narrow.
_FEW_EACH = 10
# Share of an item's prior standard deviation, above which its place rests on the prior.
_PRIOR_LEFT = 0.9
_STEEP = 0.1  # slope of a search that has not ended, in nats for a factor of e
_SWITCHED_OFF = 0.05  # amplitude, where the noise of an answer is 1


def _trust(posterior: UtilityPosterior, shown: Subject) -> Facts:
    """Facts about the reliability of the page; with very many items, of those with answers."""
    table, subject = shown.ranking, shown
    facts: Facts = {
        "posterior": posterior,
        "s": None,
        "size": len(table),
        "few_each": _FEW,
        "alike": [
            [f"the {part_name(part, posterior, shown.words)}" for part in pair]
            for pair in posterior.indistinguishable_parts
        ],
        **dict.fromkeys(("certificate", "wrong", "unreliable", "calibrated", "refused")),
        **dict.fromkeys(("least", "never", "never_compared", "unlike", "odd")),
        "typical": np.inf,
        "compared": 1.0,
        "typical_width": (table["rank_upper"] - table["rank_lower"]).median(),
    }
    facts |= _fitted(posterior)
    if posterior.large:
        facts["never_compared"] = posterior.data.num_items - len(touched(posterior.data))
        try:
            subject = Subject(answered(posterior), words=shown.words)
        except RelprefError as error:
            return facts | {"refused": clean(error, 1000)}
    posterior, checked = subject.posterior, subject.checked
    facts["s"] = subject
    if posterior.data.num_answers:
        typical, least = np.median(subject.asked), subject.asked[subject.asked > 0].min()
        facts |= {"typical": typical, "never": _never(subject)}
        if _UNEVEN * least < typical:
            facts["least"] = least
            fewest = np.flatnonzero(subject.asked == least)
            many = len(fewest) > _LEADERS
            number = subject.words.counted(len(fewest), "item")
            facts["least_known"] = number if many else subject.several(fewest)
        size = posterior.data.num_items
        facts["compared"] = subject.pairs / (size * (size - 1) / 2)
        if checked.prior_sd is not None:
            prior = np.where(checked.prior_sd > 0, checked.prior_sd, np.inf)
            left = posterior.belief.centred().sd() / prior
            unlike = np.flatnonzero((left > _PRIOR_LEFT) & (subject.asked > 0))
            facts["unlike"] = subject.several(unlike)
    raters = facts["raters"] = checked.raters
    if raters is not None:
        facts["raters"] = raters.head(_MOST_RATERS)
        odd = raters.index[raters["at_odds"]]
        facts["odd"] = [isolated(shorten(clean(rater))) for rater in odd]
    return facts | checked.facts()


def _never(subject: Subject) -> list[Facts]:
    """Items without comparisons, and the basis of their places."""
    data, never = subject.posterior.data, subject.asked == 0
    linked = np.zeros(data.num_items, dtype=bool)
    for part, graph in data.relations.items() if never.any() else ():
        if _used(subject.posterior, part):
            linked[graph.source] = linked[graph.target] = True
    used = bool(data.attribute_names) and _used(subject.posterior, ATTRIBUTES)
    basis = ["attributes"] if used else []
    kinds = ((never & linked, [*basis, "relations"]), (never & ~linked, basis or ["the prior"]))
    return [
        {
            "names": subject.several(np.flatnonzero(which)),
            "number": which.sum(),
            "rests": listed(rests),
        }
        for which, rests in kinds
        if which.any()
    ]


def _fitted(posterior: UtilityPosterior) -> Facts:
    """Facts about hyperparameters that are not determined well by the answers."""
    answers = posterior.data.num_answers
    if not answers or not posterior.searched or posterior.hyperparameter_draws:
        return {"few": 0, "steep": False, "off": []}
    number = sum(map(np.size, posterior.hyperparameters.values()))
    off = [
        f"“{name.removesuffix('_amplitude')}”"
        for name, value in posterior.hyperparameters.items()
        if name.endswith("_amplitude") and np.max(value) < _SWITCHED_OFF
    ]
    few = number if answers < _FEW_EACH * number else 0
    return {"few": few, "answers": answers, "steep": posterior.gradient_norm > _STEEP, "off": off}


_SURPRISES = 10
_SURPRISING = 0.25  # held-out probability of an answer, below which it is shown


def _surprises(subject: Subject | None) -> Chapter | None:
    """Chapter on answers that contradict the others; None without them or without hold-outs."""
    if subject is None or not subject.posterior.data.num_answers:
        return None
    title = subject.words("Surprising answers")
    table, held = subject.checked.influence, subject.checked.held_out
    if held is None or table is None:
        return None
    rows = held.forecasts or held
    facts: Facts = {
        "s": subject,
        "reported": held.forecasts is None,
        "answers": rows.num_answers,
    }
    if held.forecasts is not None:
        # The probability of the preferred side, whatever the strength.
        sides = held.chances[np.arange(len(held.outcome)), held.outcome]
        table = table.assign(probability=sides[table.index]).sort_values(
            "probability", kind="stable"
        )
        table = table[table["probability"] < _SURPRISING]
        if not len(table):
            return None
        # By chance, each outcome under the bound happens with its probability.
        chances = np.where(held.forecasts.chances < _SURPRISING, held.forecasts.chances, 0.0)
        facts["count"] = table["count"].sum() if "count" in table else len(table)
        facts["expected"] = round(held.forecasts.weight @ chances.sum(axis=1))
    head = table.head(_SURPRISES)
    facts |= {"table": head, "repeated": "count" in head and (head["count"] > 1).any()}
    facts["said"] = [_answer(subject, row) for row in head.to_dict("records")]
    return Chapter(title, "utilities.html:surprises", facts)


def _answer(subject: Subject, row: dict[Any, Any]) -> str:
    """Answer in words."""
    if "reported" in row:
        first, second = subject.named(row["first"]), subject.named(row["second"])
        return f"{first} over {second} with {significant(100 * row['reported'])}%"
    winner, loser = subject.named(row["winner"]), subject.named(row["loser"])
    if row.get("tie"):
        return f"{winner} equal to {loser}"
    strength = row.get("strength")
    return f"{winner} over {loser}" + ("" if strength is None else f", strength {strength}")


def _questions(subject: Subject) -> Chapter | None:
    """Chapter on the next questions; None if there is nothing to ask."""
    size = subject.full.data.num_items
    # Of many items without a covariance it takes long; relpref.explore.next_pairs asks about some.
    long = size > _MOST_ITEMS and subject.within is None
    if size < 2 or not subject.full.converged or long or subject.questions is None:
        return None
    table, gain = subject.questions
    facts = {"s": subject, "worth": subject.words(gain.sentence), "table": table}
    return Chapter("What to ask next", "utilities.html:questions", facts, front=True)


_MOST_KERNELS = 6


def _methods(posterior: UtilityPosterior) -> Facts:
    """Facts about the model and its computation."""
    data, parts, used = posterior.data, parts_of(posterior), kernels_of(posterior)
    options = options_of(posterior)
    # Whether the kernel of each part is known.
    described = bool(parts) and all(part in used or part == INDIVIDUAL for part in parts)
    by_kernel: dict[str, list[str]] = {}
    for part, kernel in used.items() if described else ():
        name = "the attributes" if part == ATTRIBUTES else f"“{clean(part)}”"
        by_kernel.setdefault(kernel.sentence, []).append(name)
    weights, effective = posterior.belief.weights, posterior.effective_draws
    points = None  # the simulation error where all draws have equal weights
    if len(weights) > 1 and not np.ptp(weights):
        draws = len(weights) if effective is None else min(effective, len(weights))
        points = 50 / np.sqrt(max(draws, 1.0))
    scaled = options.get("standardize", True) and options.get("normalize", True)
    return {
        "lists": posterior.lists.split(": ")[-1],
        "smooth": ATTRIBUTES in parts if parts else bool(data.attribute_names),
        "related": any(part not in (ATTRIBUTES, INDIVIDUAL) for part in parts),
        "individual": INDIVIDUAL in parts,
        "kernels": [(listed(of, _MOST_KERNELS), text) for text, of in by_kernel.items()],
        "several": described and len(parts) > 1,
        "described": described,
        "scaled": scaled and all(kernel.unit for kernel in used.values()),
        # Relations that are not undirected, which became graphs.
        "relations": [
            (clean(name), links.relation)
            for name, links in data.links.items()
            if described
            and any(part in parts for part in data.parts_of(name))
            and (links.relation.form == "random_walk" or links.relation.kind != "undirected")
        ],
        "points": points,
        "correlated": effective is None,
    }
