"""The chapter on what each part is worth: the evidence with and without it."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics import HeldOut
from relpref.diagnostics.relations import evidence_without_each
from relpref.errors import DataError, RelprefError
from relpref.explore import next_pairs, worth
from relpref.infer import UtilityPosterior
from relpref.report.blocks import (
    Block,
    Cell,
    Chapter,
    Items,
    Text,
    clean,
    counted,
    fixed,
    isolated,
    listed,
    percent,
    sentence,
    shorten,
    significant,
    unbroken,
    whole,
)
from relpref.report.certified import Unknown
from relpref.report.plots import cell, grid
from relpref.report.utilities.contributions import part_name
from relpref.report.utilities.subject import Subject

_TITLE = "What each part is worth"
_NEEDED = ("left_out", "log_evidence", "difference")
# Nats; a part brings two or more fitted hyperparameters, and each is worth about one nat without any meaning.
_SLIGHT, _STRONG = 3.0, 6.0


def evidence(posterior: UtilityPosterior, wanted: bool | pd.DataFrame | None) -> Chapter | None:
    """The chapter.

    Parameters
    ----------
    posterior : UtilityPosterior
    wanted : bool, DataFrame or None
        False for no chapter, None for one that says how to get it; True to fit again without each part; or the table of
        `evidence_without_each`, ready.

    Raises
    ------
    DataError
        If a ready table lacks a column.
    """
    if isinstance(wanted, pd.DataFrame):
        table = wanted
        missing = [name for name in _NEEDED if name not in table.columns]
        if missing:
            raise DataError(
                f"relations_evidence: the table lacks the column {missing[0]!r}; "
                "pass the table that relpref.diagnostics.relations.evidence_without_each returns, or True or False"
            )
    elif wanted is False:
        return None
    elif wanted is None:
        text = (
            "The model was not fitted again without each of its parts, which would take from seconds to minutes: relpref report --evidence, "
            "or relations_evidence=True, does it."
        )
        return Chapter(_TITLE, [Text(text)])
    else:
        try:
            table = evidence_without_each(posterior)
        except RelprefError as error:
            return Chapter(
                _TITLE,
                [
                    Text(
                        f"The model was not fitted again without each of its parts: {clean(error).rstrip('.')}."
                    )
                ],
            )
    blocks: list[Block] = [
        Text(
            "The log evidence measures how well a model predicted the answers before it saw them. Here the model is fitted again "
            "without one part at a time. A positive difference speaks for the part: a difference of 3 nats makes the answers 20 "
            "times as probable with the part as without it."
        ),
        _table(posterior, table),
    ]
    conclusions = [_conclusion(row) for row in table.to_dict("records")]
    blocks.append(Text(" ".join(conclusions)))
    blocks.append(
        Text(
            "Both models have their hyperparameters fitted, and the larger one can switch a part off, so its evidence is rarely "
            f"the lower. Differences under about {_SLIGHT:.0f} nats mean little.",
            small=True,
        )
    )
    return Chapter(_TITLE, blocks)


def _table(posterior: UtilityPosterior, table: pd.DataFrame) -> Block:
    full = "–" if posterior.log_evidence is None else fixed(posterior.log_evidence)
    rows = [[cell("nothing"), cell(full), cell("")]]
    for row in table.to_dict("records"):
        part = cell(part_name(clean(row["left_out"]), posterior))
        rows.append([part, cell(fixed(float(row["log_evidence"]))), cell(_signed(float(row["difference"])))])
    return grid("Log evidence, in nats", ("Left out", "Log evidence", "Gain from it"), rows, (1, 2))


def _signed(difference: float) -> str:
    text = fixed(difference)
    return f"+{text}" if difference > 0 and text != "0.00" else text


def _conclusion(row: dict[Any, Any]) -> str:
    part = str(row["left_out"])
    name = "The attributes" if part == "attributes" else f"The relation {isolated(clean(part))}"
    verb, their = ("are", "they are") if part == "attributes" else ("is", "it is")
    difference = float(row["difference"])
    if not np.isfinite(difference):
        note = row.get("note")
        reason = clean(note) if isinstance(note, str) and note else "the fit without it did not succeed"
        return f"{name}: no comparison, {reason}."
    if difference > _STRONG:
        return f"{name} {verb} strongly supported by the answers."
    if difference > _SLIGHT:
        return f"{name} {verb} supported by the answers."
    if difference >= -_SLIGHT:
        return f"{name}: the answers do not tell whether {their} needed."
    return f"{name} {verb} worse than nothing: the answers are more probable without."


_ASKED_TITLE = "What was asked and answered"
_MOST_RATERS = 20


def asked(subject: Subject) -> Chapter:
    data = subject.posterior.data
    blocks: list[Block] = [Text(f"In the data: {unbroken(clean(data.describe()))}.")]
    if data.num_answers:
        blocks.append(Text(_question(subject)))
        blocks.append(grid("Answers in numbers", ("What", "Number"), _numbers(subject), (1,)))
        if data.comparisons.rater is not None:
            blocks += _raters(subject)
    else:
        text = (
            "Nobody has answered yet. What this page says rests on attributes, relations and the prior alone."
        )
        blocks.append(Text(text))
    if data.attribute_names:
        names = listed([shorten(clean(name)) for name in data.attribute_names], most=20)
        blocks.append(Text(f"{'Attributes' if len(data.attribute_names) > 1 else 'Attribute'}: {names}."))
    if data.notes:
        blocks.append(Items([sentence(note) for note in data.notes]))
    return Chapter(_ASKED_TITLE, blocks)


def contradicted(subject: Subject) -> int:
    """Pairs that were answered both ways."""
    low, high = _pairs(subject)
    _, distinct = np.unique(low * subject.posterior.data.num_entities + high, return_counts=True)
    return int(np.sum(distinct > 1))


def _pairs(subject: Subject) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two ends of every row that names a winner, the smaller first."""
    data = subject.posterior.data
    kept = slice(None) if data.comparisons.tie is None else ~np.asarray(data.comparisons.tie)
    winner, loser = (np.asarray(end, dtype=np.int64)[kept] for end in (data.winner, data.loser))
    # By winner and loser once: the same answer by two raters, or two strengths of it, contradict nobody.
    once = np.unique(np.stack([winner, loser]), axis=1)
    return once.min(axis=0), once.max(axis=0)


def _question(subject: Subject) -> str:
    answers = subject.posterior.data.comparisons
    if answers.probability is not None:
        return "Every answer is a probability that the first of two entities is the better one."
    text = "Every answer says which of two entities is the better one"
    more = []
    if answers.tie is not None:
        more.append("or that they are equal")
    if answers.strengths > 1:
        more.append(f"how much better, in {answers.strengths} grades")
    return f"{', '.join([text, *more])}."


def _numbers(subject: Subject) -> list[list[Cell | str]]:
    data = subject.posterior.data
    answers, size = data.comparisons, data.num_entities
    count = np.asarray(answers.count)
    ends = np.sort(np.stack([np.asarray(data.winner), np.asarray(data.loser)]), axis=0)
    pairs, possible = np.unique(ends, axis=1).shape[1], size * (size - 1) // 2
    share = percent(pairs / possible) if pairs < possible else "all"
    rows: list[list[Cell | str]] = [
        ["Answers", whole(int(count.sum()))],
        ["Pairs that were asked about", f"{whole(pairs)} ({share} of the {whole(possible)} there are)"],
    ]
    if both := contradicted(subject):
        rows.append(["Pairs that were answered both ways", whole(both)])
    if answers.tie is not None:
        rows.append(["Ties", whole(int(count[np.asarray(answers.tie)].sum()))])
    about = subject.asked
    spread = f"{whole(about.min())} to {whole(about.max())}, typically {fixed(float(np.median(about)), 1).removesuffix('.0')}"
    rows.append(["Answers about one entity", spread])
    rows.append(["Entities without any", whole(int(np.sum(about == 0)))])
    return rows


def _raters(subject: Subject) -> list[Block]:
    """How much each rater answered."""
    answers = subject.posterior.data.comparisons
    given = np.bincount(np.asarray(answers.rater), np.asarray(answers.count), len(answers.raters)).astype(int)
    order = np.argsort(-given, kind="stable")[:_MOST_RATERS]
    rows: list[list[Cell | str]] = [[cell(answers.raters[rater]), whole(given[rater])] for rater in order]
    blocks: list[Block] = [grid("Who answered", ("Rater", "Answers"), rows, (1,))]
    if len(answers.raters) > _MOST_RATERS:
        text = (
            f"Of {counted(len(answers.raters), 'rater')}, the {_MOST_RATERS} with the most answers are shown."
        )
        blocks.append(Text(text, small=True))
    return blocks


_QUESTIONS_TITLE = "What to ask next"
_QUESTIONS, _MORE = 5, 10
_MOST_ENTITIES = 4000  # whose covariance is looked at as a whole


def questions(subject: Subject) -> Chapter | None:
    """The chapter; None where there is nothing to ask."""
    posterior = subject.whole
    size = posterior.data.num_entities
    if size < 2 or not posterior.converged:
        return None
    if size > _MOST_ENTITIES and subject.within is None:
        text = f"This is left out: with {size} entities it takes long. relpref.explore.next_pairs asks about some of them (entities=)."
        return Chapter(_QUESTIONS_TITLE, [Text(text)])
    try:
        pairs, value = next_pairs(posterior, _QUESTIONS), worth(posterior, _MORE)
    except RelprefError as error:
        return Chapter(_QUESTIONS_TITLE, [Text(f"This is left out: {clean(error)}.")])
    blocks: list[Block] = [Text(unbroken(value.sentence))]
    if len(pairs):
        rows: list[list[Cell | str]] = []
        for row in pairs.to_dict("records"):
            first, second = (_named(subject, row[end]) for end in ("first", "second"))
            gap = f"{fixed(row['gap_mean'], subject.decimals)} ± {fixed(row['gap_sd'], subject.decimals)}"
            rows.append([str(len(rows) + 1), first, second, percent(row["probability"]), gap])
        columns = ("No.", "Is this better …", "… or this?", "First, as of now", "Gap")
        blocks += [
            grid("The most telling questions", columns, rows, (0, 3, 4), heading=1),
            Text(
                "Chosen together, so that none asks what another answers. First, as of now: the probability that the first is "
                "preferred. relpref ask puts such questions to a person and learns from every answer.",
                small=True,
            ),
        ]
    return Chapter(_QUESTIONS_TITLE, blocks)


def _named(subject: Subject, label: Any) -> Cell:
    """An entity, which may be none of those that the page shows."""
    return subject.cell(subject.position[label]) if label in subject.position else cell(label)


_SURPRISES_TITLE = "Surprising answers"
_ROWS = 10
_SURPRISING = 0.25  # held-out probability of what was answered, below which it is shown


def surprises(subject: Subject) -> Chapter | None:
    """The chapter; None where there are no answers."""
    if not subject.posterior.data.num_answers:
        return None
    table, held = subject.checked.influence, subject.checked.held_out
    if isinstance(held, Unknown):
        return Chapter(_SURPRISES_TITLE, [Text(f"This is left out: {held.why}.")])
    if isinstance(table, Unknown):
        return Chapter(_SURPRISES_TITLE, [Text(f"This is left out: {table.why}.")])
    forecasts = held.forecasts
    if forecasts is None:
        head = table.head(_ROWS)
        what = "The answers are probabilities; those that fit the others least are shown."
        measure = (
            "Density: how much was to be expected of the reported probability, predicted from all the others; it is 1 on average over all "
            "that could be reported, and near 0 for a surprise."
        )
    else:
        table = _by_side(table, held)
        odd = table[table["probability"] < _SURPRISING]
        head, count = odd.head(_ROWS), int(_counts(odd).sum())
        # Every outcome under the bound, not only the one that was answered, happens with its own probability.
        chances = np.where(forecasts.chances < _SURPRISING, forecasts.chances, 0.0)
        expected = float(forecasts.weight @ chances.sum(axis=1))
        what = (
            f"Of {counted(held.num_answers, 'answer')}, {whole(count) if count else 'none'} had a probability under {_SURPRISING:.0%} by all the others; "
            f"about {whole(round(expected))} would be expected by chance alone."
        )
        whatever = ", however strongly" if "strength" in table else ""
        measure = f"Probability: of preferring that one{whatever}, or of a tie where it is one, predicted from all the others."
    blocks: list[Block] = [Text(what)]
    if len(head):
        blocks += [
            grid("What contradicts the rest, most surprising first", *_rows(subject, head)),
            Text(
                f"{measure} Weight: which utility would move farthest if the answer had not been given, in units of its uncertainty (one "
                "standard deviation). A surprising answer of much weight is the one to check.",
                small=True,
            ),
        ]
    return Chapter(_SURPRISES_TITLE, blocks)


def _by_side(table: pd.DataFrame, held: HeldOut) -> pd.DataFrame:
    """With the probability of the side that was answered, whatever the strength, which is what the others tell of an answer."""
    answered = held.chances[np.arange(len(held.outcome)), held.outcome]
    return table.assign(probability=answered[table.index]).sort_values("probability", kind="stable")


def _counts(table: pd.DataFrame) -> "pd.Series[int]":
    return table["count"] if "count" in table else pd.Series(1, index=table.index)


def _rows(subject: Subject, head: pd.DataFrame) -> tuple[list[str], list[list[Cell | str]], list[int]]:
    """Columns, rows and which columns are numbers."""
    reported = "reported" in head
    measure = "Density" if reported else "Probability"
    columns = ["Answer"]
    columns += ["Rater"] if "rater" in head else []
    columns += ["Times"] if "count" in head and (head["count"] > 1).any() else []
    columns += [measure, "Weight"]
    rows: list[list[Cell | str]] = []
    for row in head.to_dict("records"):
        line: list[Cell | str] = [_said(subject, row)]
        if "Rater" in columns:
            line.append(cell(row["rater"]))
        if "Times" in columns:
            line.append(whole(int(row["count"])))
        line.append(fixed(row["probability"]) if reported else percent(row["probability"]))
        # Leaving out moves by the shift, so the answer itself moves the other way.
        line.append(f"moves {subject.named(row['entity'])} by {fixed(-row['shift'])}")
        rows.append(line)
    return columns, rows, [place for place, name in enumerate(columns) if name in ("Times", measure)]


def _said(subject: Subject, row: dict[Hashable, Any]) -> str:
    if "reported" in row:
        first, second = subject.named(row["first"]), subject.named(row["second"])
        return f"{first} over {second} with {significant(100 * row['reported'])}%"
    one, other = subject.named(row["winner"]), subject.named(row["loser"])
    if row.get("tie"):
        return f"{one} equal to {other}"
    strength = row.get("strength")
    return f"{one} over {other}" + ("" if strength is None else f", strength {strength}")
