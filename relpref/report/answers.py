"""Facts for the chapters on answers: what was asked, which answers surprise, and what to ask next."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from relpref.diagnostics import HeldOut
from relpref.errors import RelprefError
from relpref.explore import next_pairs, worth
from relpref.report.blocks import (
    Cell,
    Chapter,
    Grid,
    cell,
    clean,
    fixed,
    grid,
    percent,
    shorten,
    significant,
    whole,
)
from relpref.report.subject import Subject

_MOST_RATERS = 20


def asked(subject: Subject) -> Chapter:
    """What was asked and answered."""
    data = subject.posterior.data
    facts: dict[str, Any] = {
        "data": data,
        "answers": data.comparisons,
        "attributes": [shorten(clean(name)) for name in data.attribute_names],
    }
    if data.num_answers:
        facts["table"] = grid("Answers in numbers", ("What", "Number"), _numbers(subject), (1,))
    if data.num_answers and data.comparisons.rater is not None:
        raters, of = data.comparisons.raters, np.asarray(data.comparisons.rater)
        given = np.bincount(of, np.asarray(data.comparisons.count), len(raters)).astype(int)
        order = np.argsort(-given, kind="stable")[:_MOST_RATERS]
        rows = [[cell(raters[rater]), whole(given[rater])] for rater in order]
        facts |= {"raters": len(raters), "by_rater": grid("Who answered", ("Rater", "Answers"), rows, (1,))}
    return Chapter("What was asked and answered", "utilities.html:asked", facts)


def _numbers(subject: Subject) -> list[tuple[str, str]]:
    data, about = subject.posterior.data, subject.asked
    answers, size = data.comparisons, data.num_entities
    count = np.asarray(answers.count)
    ends = np.sort(np.stack([np.asarray(data.winner), np.asarray(data.loser)]), axis=0)
    pairs, possible = np.unique(ends, axis=1).shape[1], size * (size - 1) // 2
    share = percent(pairs / possible) if pairs < possible else "all"
    typical = fixed(float(np.median(about)), 1).removesuffix(".0")
    rows = [
        ("Answers", whole(int(count.sum()))),
        ("Pairs that were asked about", f"{whole(pairs)} ({share} of the {whole(possible)} there are)"),
    ]
    if subject.contradicted:
        rows.append(("Pairs that were answered both ways", whole(subject.contradicted)))
    if answers.tie is not None:
        rows.append(("Ties", whole(int(count[np.asarray(answers.tie)].sum()))))
    return [
        *rows,
        ("Answers about one entity", f"{whole(about.min())} to {whole(about.max())}, typically {typical}"),
        ("Entities without any", whole(int(np.sum(about == 0)))),
    ]


_SURPRISES = 10
_SURPRISING = 0.25  # held-out probability of what was answered, below which it is shown


def surprises(subject: Subject) -> Chapter | None:
    """Answers that contradict the others; None where there are no answers."""
    if not subject.posterior.data.num_answers:
        return None
    title, table, held = "Surprising answers", subject.checked.influence, subject.checked.held_out
    if held is None or table is None:
        why = subject.checked.why
        return Chapter(title, "common.html:left_out", {"why": why.get("held_out") or why["influence"]})
    facts: dict[str, Any] = {"reported": held.forecasts is None, "answers": held.num_answers}
    if held.forecasts is not None:
        table = _by_side(table, held)
        table = table[table["probability"] < _SURPRISING]
        counts = table["count"].sum() if "count" in table else len(table)
        # Every outcome under the bound, not only the one that was answered, happens with its own probability.
        chances = np.where(held.forecasts.chances < _SURPRISING, held.forecasts.chances, 0.0)
        expected = float(held.forecasts.weight @ chances.sum(axis=1))
        facts |= {"count": int(counts), "expected": round(expected), "strengths": "strength" in table}
    head = table.head(_SURPRISES)
    facts["table"] = _said_table(subject, head) if len(head) else None
    return Chapter(title, "utilities.html:surprises", facts)


def _by_side(table: pd.DataFrame, held: HeldOut) -> pd.DataFrame:
    """With the probability of the side that was answered, whatever the strength, which is what the others tell of an answer."""
    answered = held.chances[np.arange(len(held.outcome)), held.outcome]
    return table.assign(probability=answered[table.index]).sort_values("probability", kind="stable")


def _said_table(subject: Subject, head: pd.DataFrame) -> Grid:
    reported, times = "reported" in head, "count" in head and (head["count"] > 1).any()
    measure = "Density" if reported else "Probability"
    columns = ["Answer", *["Rater"] * ("rater" in head), *["Times"] * bool(times), measure, "Weight"]
    rows = []
    for row in head.to_dict("records"):
        line: list[Cell | str] = [_said(subject, row)]
        line += [cell(row["rater"])] if "rater" in head else []
        line += [whole(int(row["count"]))] if times else []
        line.append(fixed(row["probability"]) if reported else percent(row["probability"]))
        # Leaving out moves by the shift, so the answer itself moves the other way.
        rows.append([*line, f"moves {subject.named(row['entity'])} by {fixed(-row['shift'])}"])
    numeric = [place for place, name in enumerate(columns) if name in ("Times", measure)]
    return grid("What contradicts the rest, most surprising first", columns, rows, numeric)


def _said(subject: Subject, row: dict[Hashable, Any]) -> str:
    if "reported" in row:
        first, second = subject.named(row["first"]), subject.named(row["second"])
        return f"{first} over {second} with {significant(100 * row['reported'])}%"
    one, other = subject.named(row["winner"]), subject.named(row["loser"])
    if row.get("tie"):
        return f"{one} equal to {other}"
    strength = row.get("strength")
    return f"{one} over {other}" + ("" if strength is None else f", strength {strength}")


_QUESTIONS, _MORE = 5, 10
_MOST_ENTITIES = 4000  # whose covariance is looked at as a whole


def questions(subject: Subject) -> Chapter | None:
    """What to ask next; None where there is nothing to ask."""
    title, posterior = "What to ask next", subject.whole
    size = posterior.data.num_entities
    if size < 2 or not posterior.converged:
        return None
    if size > _MOST_ENTITIES and subject.within is None:
        why = f"with {size} entities it takes long. relpref.explore.next_pairs asks about some of them (entities=)"
        return Chapter(title, "common.html:left_out", {"why": why})
    try:
        pairs, value = next_pairs(posterior, _QUESTIONS), worth(posterior, _MORE)
    except RelprefError as error:
        return Chapter(title, "common.html:left_out", {"why": clean(error)})
    rows = []
    for number, row in enumerate(pairs.to_dict("records"), start=1):
        # An entity may be none of those that the page shows.
        ends = [
            subject.cell(subject.position[label]) if label in subject.position else cell(label)
            for label in (row["first"], row["second"])
        ]
        gap = f"{fixed(row['gap_mean'], subject.decimals)} ± {fixed(row['gap_sd'], subject.decimals)}"
        rows.append([str(number), *ends, percent(row["probability"]), gap])
    columns = ("No.", "Is this better …", "… or this?", "First, as of now", "Gap")
    table = grid("The most telling questions", columns, rows, (0, 3, 4), heading=1) if rows else None
    return Chapter(title, "utilities.html:questions", {"worth": value.sentence, "table": table})
