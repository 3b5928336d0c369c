"""The page of a ranking: facts for the chapters on the utilities of labelled entities, whose sentences are in ``utilities.html``."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL, evidence_without_each, parts_of
from relpref.errors import DataError, RelprefError
from relpref.infer import UtilityPosterior
from relpref.infer.large.answered import answered, approximations
from relpref.infer.large.problem import touched
from relpref.likelihoods import Probit
from relpref.posterior.gaussian import generator
from relpref.report import plots
from relpref.report.answers import asked, questions, surprises
from relpref.report.blocks import (
    Cell,
    Chapter,
    Contents,
    Grid,
    cell,
    clean,
    counted,
    fixed,
    grid,
    isolated,
    listed,
    percent,
    shorten,
    signed_percent,
    whole,
)
from relpref.report.model import hyperparameters, kernels_of, methods, options_of, part_name, takes_likelihood
from relpref.report.subject import ROWS, Subject

_BEST, _UNCERTAIN = 150, 50  # of more entities than a matrix has room for, those that are shown
_CANDIDATES = 500  # entities with answers, among which the least known are looked for: each may cost a solution with the graph


def contents(posterior: UtilityPosterior, wanted: bool | pd.DataFrame | None) -> Contents:
    """The page of a ranking; ``wanted`` is ``relations_evidence`` of `relpref.report.write`."""
    subject = Subject(posterior)
    lead: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if posterior.large:
        subject, lead = _some_of(posterior)
    chapters: list[Chapter | None] = [asked(Subject(posterior)), _ranking(subject), _contributions(subject)]
    chapters.append(_evidence(posterior, wanted))
    if posterior.large:
        never = posterior.data.num_entities - len(touched(posterior.data))
        more = {"never_compared": never} | _fitted(posterior)
        try:
            known = Subject(answered(posterior))
        except RelprefError as error:
            facts = more | {"refused": clean(error, 1000)}
            chapters.append(Chapter("How far to trust it", "utilities.html:not_trusted", facts))
        else:
            chapters += [_trust(known, more), surprises(known)]
    else:
        chapters += [_trust(subject, more), surprises(subject)]
    chapters += [questions(subject), hyperparameters(posterior)]
    summary = Chapter("", "utilities.html:summary", _summary(subject) | {"some": lead})
    return Contents("Ranking report", summary, chapters, _methods(posterior))


def _some_of(posterior: UtilityPosterior) -> tuple[Subject, dict[str, Any]]:
    """The best entities and the least certain of those that answers are about, of more than a matrix has room for."""
    belief: Any = posterior.belief
    best = np.argsort(-belief.mean(), kind="stable")[:_BEST]
    known = candidates = touched(posterior.data)
    if len(known) > _CANDIDATES:
        candidates = np.sort(generator(posterior.key).choice(known, _CANDIDATES, replace=False))
    _, sd = belief.relative(candidates)
    uncertain = candidates[np.argsort(-sd, kind="stable")[:_UNCERTAIN]]
    some = posterior.about(posterior.data.entities[at] for at in np.union1d(best, uncertain))
    facts = {
        "shown": some.data.num_entities,
        "best": len(best),
        "uncertain": len(uncertain),
        "drawn": len(candidates) < len(known),
        "candidates": len(candidates),
        "near": [clean(text, 1000) for text in approximations(posterior)],
    }
    return Subject(some, within=posterior), facts


_MOST_PAIRED = 200
_SETTLED = 0.95
_MOST_GROUPS = 3  # whose first two are named


def _used(posterior: UtilityPosterior, part: str) -> bool:
    """Whether the model has a part; assumed where its parts are not known."""
    parts = parts_of(posterior)
    return part in parts or not parts


def _summary(subject: Subject) -> dict[str, Any]:
    """What was asked, who leads, and how sure that is."""
    posterior, data, order = subject.whole, subject.whole.data, subject.order
    relations = dict.fromkeys(data.relation_of(part) for part in data.relations if _used(posterior, part))
    facts = {
        "only": subject.names.inline(0) if len(order) == 1 else "",
        "entities": data.num_entities,
        "answers": data.num_answers,
        "attributes": len(data.attribute_names) if _used(posterior, ATTRIBUTES) else 0,
        "relations": [f"“{name}”" for name in relations],
    }
    if facts["only"] or not subject.posterior.data.num_answers:
        return facts
    facts["groups"] = _apart(subject)
    if subject.groups is None:
        return facts | {"leader": _leader(subject), "settled": _settled(subject)}
    sizes, leaders = np.bincount(subject.groups), []
    for group in np.argsort(-sizes, kind="stable")[:_MOST_GROUPS]:
        if sizes[group] > 1:
            members = order[subject.groups[order] == group]
            leaders.append((int(sizes[group]), _compared(subject, members)))
    return facts | {"leaders": leaders, "settled": _settled(subject)}


def _apart(subject: Subject) -> dict[str, int] | None:
    """How entities fall into groups that cannot be compared."""
    if subject.groups is None:
        return None
    sizes = np.bincount(subject.groups)
    return {"entities": len(subject.groups), "groups": len(sizes), "alone": int(np.sum(sizes == 1))}


def _leader(subject: Subject) -> dict[str, Any]:
    table, names = subject.ranking, subject.names
    first, others = table.iloc[0], table.iloc[1:].nlargest(3, "p_best")
    likely = others[others["p_best"] >= 0.01]
    ends = [f"{first[name]:.0f}" for name in ("rank_lower", "rank_upper")]
    return {
        "name": names.inline(int(first["position"])),
        "best": float(first["p_best"]),
        "places": " to ".join(dict.fromkeys(ends)),
        "rivals": [
            f"{names.inline(int(position))} ({percent(best)})"
            for position, best in zip(likely["position"], likely["p_best"], strict=True)
        ],
    }


def _settled(subject: Subject) -> dict[str, Any]:
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
    best = len(order) if len(order) < len(subject.order) else 0
    first = _compared(subject, order) if groups is None else None
    return {"pairs": pairs, "decided": decided, "best": best, "first": first}


def _compared(subject: Subject, order: NDArray[np.intp]) -> dict[str, str]:
    """The first of some entities against the second."""
    gap = subject.posterior.belief.differences(order[:1], order[1:2])
    first, second = (subject.names.inline(int(position)) for position in order[:2])
    mean, sd = (fixed(float(number[0]), subject.decimals) for number in (gap.mean, gap.sd))
    return {
        "first": first,
        "second": second,
        "mean": mean,
        "sd": sd,
        "chance": percent(float(gap.positive[0])),
    }


_ALL_DRAWN = 40
_TOP_DRAWN, _BOTTOM_DRAWN = 25, 10


def _ranking(subject: Subject) -> Chapter:
    table, names = subject.ranking, subject.names
    size = len(table)
    shown = list(range(size))
    if size > _ALL_DRAWN:
        shown = [*range(_TOP_DRAWN), *range(size - _BOTTOM_DRAWN, size)]
    lines = [
        plots.Line(names.full[int(row.position)], place + 1, row.mean, row.lower, row.upper)
        for place, row in zip(shown, table.iloc[shown].astype(float).itertuples(), strict=True)
    ]
    best, last = (names.short[int(subject.order[row])] for row in (0, -1))
    description = (
        f"One row for each of {len(lines)} entities from the best, {best}, to the last, {last}: a dot for the utility and a line "
        "for its interval. The table below holds the numbers."
    )
    answers, posterior = subject.posterior.data.comparisons, subject.whole
    graded = any(column is not None for column in (answers.tie, answers.strength, answers.probability))
    facts = {
        "answers": subject.posterior.data.num_answers,
        "everyone": subject.whole.data.num_entities if subject.within else None,
        # Winners under the probit model: there a gap has a plain meaning in answers.
        "probit": not graded and takes_likelihood(posterior) and posterior.likelihood == Probit(),
        "raters": answers.rater is not None,
        "groups": _apart(subject),
        "entities": size,
        "cut": size > _ALL_DRAWN,
        "top": _TOP_DRAWN,
        "bottom": _BOTTOM_DRAWN,
        "picture": plots.both(
            plots.forest,
            "ranking",
            lines,
            description=description,
            quantity="utility",
            measured=" less the average of all",
        ),
        "table": _places(subject),
    }
    return Chapter("Ranking", "utilities.html:ranking", facts)


def _places(subject: Subject) -> Grid:
    head, rows, size = subject.ranking.head(ROWS), [], len(subject.ranking)
    groups = None if subject.groups is None else pd.factorize(subject.groups[subject.order])[0] + 1
    for place, row in enumerate(head.to_dict("records"), start=1):
        position = int(row["position"])
        middle, lower, upper = (
            fixed(float(row[name]), subject.decimals) for name in ("mean", "lower", "upper")
        )
        asked = int(subject.asked[position])
        line = [
            str(place),
            subject.cell(position),
            middle,
            f"{lower} to {upper}",
            fixed(float(row["expected_rank"]), 1),
            f"{row['rank_lower']:.0f}–{row['rank_upper']:.0f}",
            percent(float(row["p_best"])),
            f"{subject.won[position]} of {asked}" if asked else "never asked",
        ]
        rows.append(line if groups is None else [*line, whole(groups[place - 1])])
    entities = counted(size, "entity", "entities")
    caption = f"The first {ROWS} of {entities}" if size > ROWS else f"{entities}, best first"
    columns = ["Place", "Entity", "Utility", "90% interval", "Expected place", "90% places", "Best", "Won"]
    columns += [] if groups is None else ["Group"]
    return grid(caption, columns, rows, numeric=(0, *range(2, len(columns))), heading=1)


_ENTITIES, _PARTS = 10, 12


def _contributions(subject: Subject) -> Chapter:
    """What the utilities rest on: attributes and each relation."""
    posterior = subject.whole
    title, place = "What the utilities rest on", "utilities.html:contributions"
    try:
        if not posterior.parts:
            raise DataError("the posterior does not know the parts of its prior")
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            # 0/0 where all utilities are equal, and parts that cannot be told apart: told below.
            warnings.simplefilter("ignore", UserWarning)
            shares, parts = posterior.shares(), posterior.explain()
        names = {str(part): part_name(str(part), posterior) for part in shares.index}
        if len(names) > 1 and not np.all(np.isfinite(shares)):
            raise DataError("all utilities are equal, so there is no spread to explain")
    except DataError as error:
        return Chapter(title, "common.html:left_out", {"why": clean(error)})
    if len(names) == 1:
        return Chapter(title, place, {"single": _inner(*names.values())})
    shares = shares.iloc[np.argsort(-shares.to_numpy(), kind="stable")]
    head = shares.iloc[:_PARTS]
    kept = [names[str(part)] for part in head.index]
    percents = [signed_percent(share) for share in head]
    words = listed([f"{_inner(name)} {share}" for name, share in zip(kept, percents, strict=True)], 6)
    alike = [[_inner(part_name(one, posterior)) for one in pair] for pair in posterior.alike_parts]
    facts = {
        "single": "",
        "words": words,
        "alike": alike,
        "parts": len(shares),
        "shown": len(head),
        "picture": plots.both(
            plots.bars, "shares", kept, head, description=f"One bar for each part: {words}."
        ),
        "table": grid("Shares", ("Part", "Share"), list(zip(kept, percents, strict=True)), [1]),
        "by_entity": _by_entity(subject, parts[[*head.index, "mean"]], [*kept, "Utility"]),
    }
    return Chapter(title, place, facts)


def _inner(name: str) -> str:
    return f"the {name}" if name.startswith("relation ") or name in ("attributes", "entity itself") else name


def _by_entity(subject: Subject, parts: pd.DataFrame, names: Sequence[str]) -> Grid:
    """Signed contributions to the utilities of the leading entities."""
    relative = parts.to_numpy()[subject.chosen]
    rows = [
        [
            str(place),
            subject.cell(int(position)),
            *(fixed(number, subject.decimals) for number in relative[position]),
        ]
        for place, position in enumerate(subject.order[:_ENTITIES], start=1)
    ]
    caption = f"Where the utilities of the first {len(rows)} come from"
    return grid(caption, ["Place", "Entity", *names], rows, [0, *range(2, 2 + len(names))], heading=1)


_NEEDED = ("left_out", "log_evidence", "difference")


def _evidence(posterior: UtilityPosterior, wanted: bool | pd.DataFrame | None) -> Chapter | None:
    """What each part is worth: False for no chapter, None for one that says how to get it, True to fit again; or a ready table."""
    title, table = "What each part is worth", wanted
    if wanted is False:
        return None
    if wanted is None:
        return Chapter(title, "utilities.html:evidence", {"table": None, "why": ""})
    if wanted is True:
        try:
            table = evidence_without_each(posterior)
        except RelprefError as error:
            facts = {"table": None, "why": clean(error).rstrip(".")}
            return Chapter(title, "utilities.html:evidence", facts)
    assert isinstance(table, pd.DataFrame)
    missing = [name for name in _NEEDED if name not in table.columns]
    if missing:
        raise DataError(
            f"relations_evidence: the table lacks the column {missing[0]!r}; "
            "pass the table that relpref.diagnostics.relations.evidence_without_each returns, or True or False"
        )
    full = "–" if posterior.log_evidence is None else fixed(posterior.log_evidence)
    rows: list[list[Cell | str]] = [["nothing", full, ""]]
    parts: list[dict[str, Any]] = []
    for row in table.to_dict("records"):
        part, difference, note = str(row["left_out"]), float(row["difference"]), row.get("note")
        gain = f"{'+' if fixed(difference) != '0.00' and difference > 0 else ''}{fixed(difference)}"
        rows.append([cell(part_name(clean(part), posterior)), fixed(float(row["log_evidence"])), gain])
        noted = clean(note) if isinstance(note, str) and note else "the fit without it did not succeed"
        parts.append({"name": isolated(clean(part)), "attributes": part == ATTRIBUTES, "note": noted})
        parts[-1] |= {"difference": difference, "known": np.isfinite(difference)}
    columns = ("Left out", "Log evidence", "Gain from it")
    found = {"table": grid("Log evidence, in nats", columns, rows, (1, 2)), "parts": parts}
    return Chapter(title, "utilities.html:evidence", found)


_MOST_RATERS = 20
_FEW = 4.0  # answers about a typical entity, below which intervals rest mostly on the prior
_FEW_EACH = 10  # answers for each hyperparameter, below which maximizing them makes intervals too narrow
_PRIOR_LEFT = 0.9  # of an entity's prior standard deviation, above which its place is the prior's
_STEEP = 0.1  # slope at which a search for hyperparameters has not ended, in nats for a factor of e
_SWITCHED_OFF = 0.05  # an amplitude, where the noise of one answer is 1


def _trust(subject: Subject, more: dict[str, Any]) -> Chapter:
    """How far to trust it; ``more`` is what is known of all entities, where the subject is about some."""
    posterior, checked = subject.posterior, subject.checked
    facts: dict[str, Any] = {"posterior": posterior, "never_compared": 0} | _fitted(posterior) | more
    facts |= {"typical": None, "unlike": "", "both": subject.contradicted, "odd": []}
    facts["never"] = []
    if posterior.data.num_answers:
        typical = float(np.median(subject.asked))
        facts["typical"] = fixed(typical, 1).removesuffix(".0") if typical < _FEW else None
        facts["never"] = _never(subject)
        if checked.prior_sd is not None:
            prior = np.where(checked.prior_sd > 0, checked.prior_sd, np.inf)
            left = posterior.belief.centred().sd() / prior
            facts["unlike"] = subject.several(np.flatnonzero((left > _PRIOR_LEFT) & (subject.asked > 0)))
    table = checked.raters
    if table is not None:
        facts["odd"] = [isolated(shorten(clean(label))) for label in table.index[table["at_odds"]]]
        rows = [
            [
                cell(label),
                whole(int(row["answers"])),
                fixed(row["log_loss"], 3),
                fixed(row["expected"], 3),
                "at odds with the rest" if row["at_odds"] else "as expected",
            ]
            for label, row in table.head(_MOST_RATERS).iterrows()
        ]
        columns = ("Rater", "Answers", "Log loss", "Expected", "Verdict")
        facts["raters"] = grid("Raters, the most surprising first", columns, rows, (1, 2, 3))
    return Chapter("How far to trust it", "utilities.html:trust", facts | checked.facts())


def _never(subject: Subject) -> list[dict[str, Any]]:
    """Entities that were never compared, and what their places rest on."""
    data, never = subject.posterior.data, subject.asked == 0
    if not never.any():
        return []
    linked = np.zeros(data.num_entities, dtype=bool)
    for part, graph in data.relations.items():
        if _used(subject.posterior, part):
            linked[graph.source] = linked[graph.target] = True
    known = ["attributes"] if data.attribute_names and _used(subject.posterior, ATTRIBUTES) else []
    kinds = ((never & linked, [*known, "relations"]), (never & ~linked, known or ["the prior"]))
    return [
        {
            "names": subject.several(np.flatnonzero(which)),
            "one": np.sum(which) == 1,
            "rests": listed(rests),
        }
        for which, rests in kinds
        if which.any()
    ]


def _fitted(posterior: UtilityPosterior) -> dict[str, Any]:
    """Hyperparameters that were maximized from too little, or lie at an edge."""
    answers, maximized = (
        posterior.data.num_answers,
        posterior.searched and not posterior.hyperparameter_draws,
    )
    if not answers or not maximized:
        return {"few": 0, "steep": False, "off": []}
    values = {name: np.atleast_1d(value) for name, value in posterior.hyperparameters.items()}
    number = sum(value.size for value in values.values())
    off = [
        f"“{name.removesuffix('_amplitude')}”"
        for name, value in values.items()
        if name.endswith("_amplitude") and np.all(value < _SWITCHED_OFF)
    ]
    return {
        "few": number if answers < _FEW_EACH * number else 0,
        "answers": answers,
        "steep": posterior.gradient_norm > _STEEP,
        "off": off,
    }


_MOST_KERNELS = 6


def _methods(posterior: UtilityPosterior) -> Chapter:
    parts, used, options = parts_of(posterior), kernels_of(posterior), options_of(posterior)
    known = bool(parts) and all(part in used or part == INDIVIDUAL for part in parts)
    by_kernel: dict[str, list[str]] = {}
    for part, kernel in used.items():
        name = "the attributes" if part == ATTRIBUTES else f"“{clean(part)}”"
        by_kernel.setdefault(kernel.sentence, []).append(name)
    weights = posterior.belief.weights
    draws: float | None = None if len(weights) == 1 or np.ptp(weights) else len(weights)
    effective = posterior.effective_draws
    if draws is not None and effective is not None:
        draws = min(effective, draws)
    return methods(
        posterior,
        "utilities.html:methods",
        lists=posterior.lists.split(": ")[-1],
        smooth=ATTRIBUTES in parts if parts else bool(posterior.data.attribute_names),
        related=any(part not in (ATTRIBUTES, INDIVIDUAL) for part in parts),
        individual=INDIVIDUAL in parts,
        kernels=[(listed(of, _MOST_KERNELS), text) for text, of in by_kernel.items()] if known else [],
        several=known and len(parts) > 1,
        known=known,
        scaled=options.get("standardize", True)
        and options.get("normalize", True)
        and all(kernel.unit for kernel in used.values()),
        relations=_relations(posterior) if known else [],
        coverage=posterior.engine == "EP" and posterior.searched,
        points=None if draws is None else fixed(50 / np.sqrt(max(draws, 1.0)), 0),
        correlated=effective is None,
    )


def _relations(posterior: UtilityPosterior) -> list[dict[str, str]]:
    """Relations that are not undirected, which became graphs."""
    used = parts_of(posterior)
    return [
        {"name": clean(name), "form": str(links.relation.form), "kind": str(links.relation.kind)}
        for name, links in posterior.data.links.items()
        if any(part in used for part in posterior.data.parts_of(name))
        and (links.relation.form == "random_walk" or links.relation.kind != "undirected")
    ]
