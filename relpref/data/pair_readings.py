"""Ways to read a table of answers as pairs: winners and losers, outcomes, goals, counts."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed
from relpref.data.readings import ITEMS, NUMBERS, Reading, cells_of, is_numeric, words
from relpref.data.tables import Table
from relpref.errors import DataError

Codes = NDArray[np.float64]  # 1 where the first won, 0 for a tie, -1 where the second won, or NaN

# Words by which the names of two columns differ that hold the two sides of an answer.
SIDES = (
    ("first", "second"), ("1", "2"), ("a", "b"), ("left", "right"),
    ("home", "away"), ("home", "visitor"), ("home", "guest"), ("h", "a"), ("heim", "gast"),
    ("local", "visitante"), ("domicile", "exterieur"), ("red", "blue"), ("r", "b"),
    ("white", "black"), ("w", "b"), ("visitor", "opponent"), ("team", "opponent"),
    ("player", "opponent"), ("v", "o"),
)  # fmt: skip
# The same, where the first of them is the better one.
DECIDED = (
    ("winner", "loser"), ("w", "l"), ("winning", "losing"), ("better", "worse"),
    ("chosen", "rejected"), ("preferred", "rejected"), ("sieger", "verlierer"),
)  # fmt: skip
# What is left of such names: names of items go before their numbers, and ratings are no labels.
NOT_LABELS = {
    "rank", "rating", "elo", "seed", "score", "scores", "goals", "points", "pts", "runs", "wins",
    "votes", "age", "height", "length", "tokens", "count", "hand", "country", "ioc", "city",
    "date", "color", "colour", "odds", "text", "response", "answer", "conversation",
}  # fmt: skip

OUTCOMES = {
    "winner", "result", "outcome", "label", "preference", "preferred", "vote", "choice", "won",
    "ergebnis", "sieger", "resultat", "resultado", "ftr", "verdict", "winner name", "winner id",
    "match winner", "better", "chosen",
}  # fmt: skip
GOALS = {"goals", "score", "scores", "points", "pts", "runs", "sets", "tore", "buts", "goles"}
_FINAL = {"final", "full", "time", "ft", "match", "game"}  # what may stand beside goals
WINS = {"wins", "win", "votes", "won"}
FIRST_SECOND = (
    *SIDES,
    ("leftvote", "rightvote"), ("left vote", "right vote"), ("win", "loss"), ("won", "lost"),
    ("win", "lose"), ("w", "l"),
)  # fmt: skip
TIES = {
    "tie", "tied", "draw", "drawn", "d", "x", "equal", "even", "same", "tievote", "tie vote", "=",
    "no preference", "unentschieden", "remis", "gleich", "gleichstand", "egal", "nul", "match nul",
    "egalite", "égalité", "empate", "igual", "½", "1/2", "0.5", "½-½", "½–½", "1/2-1/2", "0.5-0.5",
}  # fmt: skip
BOTH_BAD = {"tie (bothbad)", "both bad", "bothbad", "bothbad vote", "bothbad_vote", "neither"}
VOID = {
    "no result", "nr", "n/r", "*", "void", "abandoned", "cancelled", "canceled", "no contest",
    "postponed", "-", "?", "–",
}  # fmt: skip
# Words of names of outcomes; of those that are in doubt alone, such as the winner of the toss.
_OF_OUTCOMES = {
    "winner", "won", "result", "outcome", "preference", "preferred", "choice", "chosen", "vote",
    "better", "label", "answer", "pick", "picked", "selected", "verdict", "decision", "score",
}  # fmt: skip
_DOUBTFUL = {"toss", "coin", "predicted", "prediction", "pred", "expected", "half", "ht", "first"}
_CANCELED = {"cancelled", "canceled", "abandoned", "void"}
_TRUE, _FALSE = {"1", "true", "yes"}, {"", "0", "false", "no"}
_SCORE = re.compile(r"(\d+(?:\.5)?|½)\s*[-–—−:]\s*(\d+(?:\.5)?|½)").fullmatch


@dataclass(frozen=True)
class Pair:
    """Two columns that hold the two sides of each answer."""

    first: Any
    second: Any
    rest: str  # what the two names have in common
    marker: tuple[str, str]  # by what they differ
    decided: bool  # whether the first is the better
    numeric: bool

    @property
    def doubtful(self) -> bool:
        """Whether the columns may hold numbers of the two sides, and not their labels."""
        return self.numeric and not set(self.rest.split()) <= NUMBERS | ITEMS

    @property
    def rank(self) -> int:
        """Lower for columns that are more likely to hold the labels."""
        parts = set(self.rest.split())
        return 2 if parts & NUMBERS or self.numeric else 0 if not parts or parts & ITEMS else 1


class Outcome(NamedTuple):
    """One way to read who was preferred."""

    description: str
    codes: Codes
    used: tuple[Any, ...]  # the columns that hold it


def side_pairs(
    table: Table, sides: Sequence[tuple[str, str]], columns: Sequence[Any]
) -> Iterator[tuple[Any, Any, str, tuple[str, str]]]:
    """Yield columns whose names differ by one word, what they have in common, and the words."""
    split = {column: words(column) for column in columns}
    for column, other in combinations(columns, 2):
        left, right = split[column], split[other]
        if len(left) != len(right):
            continue
        apart = [at for at, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
        if len(apart) != 1:
            continue
        at = apart[0]
        rest = " ".join(left[:at] + left[at + 1 :])
        if (left[at], right[at]) in sides:
            yield column, other, rest, (left[at], right[at])
        elif (right[at], left[at]) in sides:
            yield other, column, rest, (right[at], left[at])


def label_pairs(table: Table) -> list[Pair]:
    """Return the pairs of columns that are most likely to hold the labels of the two sides."""
    columns = list(table.frame.columns)
    pairs: list[Pair] = []
    sharing: dict[tuple[Any, Any], bool] = {}
    for sides, decided in ((DECIDED, True), (SIDES, False)):
        for first, second, rest, marker in side_pairs(table, sides, columns):
            if set(rest.split()) & NOT_LABELS:
                continue
            left, right = cells_of(table, first), cells_of(table, second)
            if any(a == b for a, b in zip(left, right, strict=True)) or "" in left + right:
                continue
            pair = Pair(first, second, rest, marker, decided, is_numeric(left + right))
            if decided and pair.doubtful:
                continue
            if not any((first, second) == (other.first, other.second) for other in pairs):
                pairs.append(pair)
                sharing[first, second] = bool(set(left) & set(right))
    if any(sharing.values()):
        pairs = [pair for pair in pairs if sharing[pair.first, pair.second]]
    lowest = min((pair.rank for pair in pairs), default=0)
    return [pair for pair in pairs if pair.rank == lowest]


def pairs(table: Table) -> Iterator[Reading]:
    """Read winners and losers, or pairs with an outcome, goals or counts of both sides."""
    for pair in label_pairs(table):
        if pair.decided:
            if {"winner", "loser"} != {pair.first, pair.second}:
                yield Reading(
                    f"pairs, {pair.first!r} preferred to {pair.second!r}",
                    partial(table.rename, {pair.first: "winner", pair.second: "loser"}),
                )
            continue
        left, right = cells_of(table, pair.first), cells_of(table, pair.second)
        agreed: list[Outcome] = []
        for outcome in _outcomes(table, pair, left, right):
            same = [at for at, other in enumerate(agreed) if _equal(outcome.codes, other.codes)]
            if same:  # both columns say it
                agreed[same[0]] = agreed[same[0]]._replace(
                    used=(*agreed[same[0]].used, *outcome.used)
                )
            else:
                agreed.append(outcome)
        sides = f"pairs of {pair.first!r} and {pair.second!r}"
        for outcome in agreed:
            yield Reading(
                f"{sides} with {outcome.description}",
                partial(_decided, table, pair, outcome),
            )
        if not agreed:
            for counts, description in _counts(table, pair):
                yield Reading(
                    f"{sides} with {description}",
                    partial(_counted, table, pair, counts),
                )


def _outcomes(table: Table, pair: Pair, left: list[str], right: list[str]) -> Iterator[Outcome]:
    """Yield how the outcome may be read: by a column that is named as one, or else by goals.

    A column with another name counts only where its cells are labels of their row or words for
    the sides, and no column with such a name fits.
    """
    others = [column for column in table.frame.columns if column not in (pair.first, pair.second)]
    named = [column for column in others if " ".join(words(column)) in OUTCOMES]
    hot = list(_one_hot(table, pair, others))
    if hot:
        yield from hot
        return
    sides = Sides(pair, left, right)
    readings = [
        Outcome(_named_outcome(table, column), codes, (column,))
        for column in named
        for codes in read_outcome(cells_of(table, column), sides, numbers=not pair.doubtful)
    ]
    goals = [] if pair.doubtful else list(_goals(table, pair, others))
    if not readings and not goals:
        alike = [column for column in others if set(words(column)) & _OF_OUTCOMES]
        alone = all(set(words(column)) & _DOUBTFUL for column in alike)
        readings = [
            Outcome(_named_outcome(table, column), codes, (column,))
            for column in ([] if alone else alike)
            for codes in read_outcome(cells_of(table, column), sides, numbers=False)
        ]
    yield from readings
    yield from goals


def _named_outcome(table: Table, column: Any) -> str:
    """Describe a column of outcomes."""
    bad = sum(cell.lower() in BOTH_BAD for cell in cells_of(table, column))
    return f"the outcome {column!r}" + (f" ({bad} times both were bad: a tie)" if bad else "")


class Sides(NamedTuple):
    """The two columns of a pair, and their cells as text."""

    pair: Pair
    left: list[str]
    right: list[str]


def read_outcome(cells: list[str], sides: Sides, *, numbers: bool = True) -> list[Codes]:
    """Return the distinct ways in which all cells of a column can be read as outcomes.

    Cells are labels of their row, words for the two sides, scores such as 2:1, or, with
    ``numbers``, 1 and 0 of the first or 1 and 2; words for a tie are allowed in each. Blank cells
    and words such as "no result" are NaN.
    """
    pair, left, right = sides
    plain = np.array([cell.lower() for cell in cells], dtype=object)
    at, distinct = pd.factorize(plain)
    names = (" ".join(words(pair.first)), " ".join(words(pair.second)))
    initials = (pair.marker[0][0], pair.marker[1][0])
    labels = {label.lower() for label in {*left, *right}}
    common = np.array([_common(cell, labels) for cell in distinct])

    def by_words(coding: Mapping[str, float]) -> Codes | None:
        coded = np.array([coding.get(_spoken(cell), np.inf) for cell in distinct])
        return _codes(np.where(np.isfinite(coded), coded, common)[at])

    each = np.array(cells, dtype=object)
    won = (each == np.array(left, dtype=object)) * 1.0 - (each == np.array(right, dtype=object))
    read = [_codes(np.where(won != 0, won, common[at]))]
    read += [by_words({one: 1.0, other: -1.0}) for one, other in (pair.marker, initials, names)]
    if all(codes is None for codes in read):
        # Other words for sides: "B" is one where it is no label, and the columns are 1 and 2.
        codings = [
            {first: 1.0, second: -1.0} for first, second in FIRST_SECOND if numbers or first != "1"
        ]
        if numbers:
            signs = {"1": 1.0, "0": 0.0, "-1": -1.0}
            codings.append(signs if "-1" in distinct else {"1": 1.0, "0.5": 0.0, "0": -1.0})
            codings.append({"1": 1.0, "1.5": 0.0, "2": -1.0})
        margins = np.array([_margin(cell) for cell in distinct])
        read = [by_words(coding) for coding in codings]
        read.append(_codes(np.where(np.isfinite(margins), margins, common)[at]))
    different: list[Codes] = []
    for codes in read:
        if codes is not None and not any(_equal(codes, other) for other in different):
            different.append(codes)
    return different


def _common(cell: str, labels: set[str]) -> float:
    """Return 0 for a tie, NaN for a void answer, and infinity for a cell that is neither."""
    if cell == "" or (cell in VOID and cell not in labels):
        return np.nan
    return 0.0 if cell in TIES | BOTH_BAD and cell not in labels else np.inf


def _spoken(cell: str) -> str:
    """Return a cell as the words of a name, but numbers as they are."""
    return cell if is_numeric([cell]) else " ".join(words(cell))


def _equal(one: Codes, other: Codes) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _codes(codes: Codes) -> Codes | None:
    """Return the outcomes, or None if a cell is none or no side ever won."""
    return None if np.isinf(codes).any() or not (np.abs(codes) == 1).any() else codes


def _margin(cell: str) -> float:
    """Return the sign of a score such as 2:1, and infinity for another cell."""
    score = _SCORE(cell)
    if score is None:
        return np.inf
    first, second = (0.5 if part == "½" else float(part) for part in score.groups())
    return float(np.sign(first - second))


def _one_hot(table: Table, pair: Pair, others: list[Any]) -> Iterator[Outcome]:
    """Read three columns of which one is true in each row: the first won, the second won, a tie."""
    by_words = {words(column): column for column in others}
    left, right = words(pair.first), words(pair.second)
    for name, first in by_words.items():
        stem = name[: -len(left)]
        second = by_words.get((*stem, *right))
        if name != (*stem, *left) or second is None or not set(stem) & (_OF_OUTCOMES | WINS):
            continue
        tie = by_words.get((*stem, "tie"), by_words.get((*stem, "draw")))
        if tie is None:
            raise DataError(
                f"{table.name}: {first!r} and {second!r} say who won, and there is no column "
                f"{'_'.join((*stem, 'tie'))!r}; add it, true where neither won"
            )
        used = (first, second, tie)
        marks = np.array(
            [[cell.lower() in _TRUE for cell in cells_of(table, column)] for column in used]
        )
        wrong = marks.sum(axis=0) != 1
        if wrong.any():
            raise DataError(
                f"{table.place(int(wrong.argmax()))}: exactly one of {listed(used)} is true in "
                "each row; correct the row, or drop it"
            )
        yield Outcome(f"the outcome in {listed(used)}", marks[0].astype(float) - marks[1], used)


def _goals(table: Table, pair: Pair, others: list[Any]) -> Iterator[Outcome]:
    """Read the outcome from the goals or points of the two sides."""
    candidates = [
        (first, second)
        for first, second, rest, _ in side_pairs(table, SIDES, others)
        if set(rest.split()) & GOALS and set(rest.split()) <= GOALS | _FINAL
    ]
    lower = {str(column).lower(): column for column in others}
    if {"fthg", "ftag"} <= set(lower):
        candidates.append((lower["fthg"], lower["ftag"]))
    for first, second in candidates:
        cells = cells_of(table, first), cells_of(table, second)
        if not all(map(is_numeric, cells)):
            continue
        values = [[float(cell) if cell else np.nan for cell in side] for side in cells]
        codes = np.sign(np.subtract(values[0], values[1]))
        yield Outcome(f"the result of {first!r} and {second!r}", codes, (first, second))


def _counts(table: Table, pair: Pair) -> Iterator[tuple[list[tuple[float, Any]], str]]:
    """Read how often each side won, and how often neither."""
    others = [column for column in table.frame.columns if column not in (pair.first, pair.second)]
    for first, second, rest, _ in side_pairs(table, SIDES, others):
        if not set(rest.split()) & WINS or not all(
            is_numeric(cells_of(table, column)) for column in (first, second)
        ):
            continue
        ties = [column for column in others if words(column) in (("tie",), ("ties",), ("draws",))]
        counts = [(1.0, first), (-1.0, second), *((0.0, column) for column in ties[:1])]
        yield counts, f"the counts {listed([column for _, column in counts])}"


def _decided(table: Table, pair: Pair, outcome: Outcome) -> Table:
    """Return the pairs with their winners and ties, without rows that have no outcome."""
    codes, used = outcome.codes.copy(), list(outcome.used)
    for column in table.frame.columns:
        cells = [cell.lower() for cell in cells_of(table, column)]
        if set(words(column)) & _CANCELED and set(cells) <= _TRUE | _FALSE:
            codes[[cell in _TRUE for cell in cells]] = np.nan
            used.append(column)
    rows = np.flatnonzero(~np.isnan(codes))
    notes, left_out = [], len(codes) - len(rows)
    if left_out:
        verb = "is" if left_out == 1 else "are"
        notes.append(f"{counted(left_out, 'row')} without an outcome {verb} left out")
    if pair.marker[1] == "opponent":
        once = _once(table, pair, codes, rows)
        if len(once) < len(rows):
            notes.append("each answer is in two rows, one for each side, and counted once")
        rows = once
    read = replace(table, frame=table.frame.drop(columns=used)).take(rows)
    return replace(_with_winners(read, pair, codes[rows]), notes=(*read.notes, *notes))


def _with_winners(table: Table, pair: Pair, codes: Codes) -> Table:
    """Return pairs with the columns first, second and winner, and tie if there are ties."""
    read = table.rename({pair.first: "first", pair.second: "second"})
    first, second = (read.frame[name].astype(object) for name in ("first", "second"))
    frame = read.frame.assign(
        winner=first.where(codes > 0, second).mask(codes == 0, "" if table.text else None)
    )
    if (codes == 0).any():
        frame["tie"] = [str(tie) if table.text else bool(tie) for tie in codes == 0]
    return replace(read, frame=frame)


def _once(table: Table, pair: Pair, codes: Codes, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one of the two rows of each answer, where all answers are given from both sides."""
    left, right = cells_of(table, pair.first), cells_of(table, pair.second)
    answers = [(left[row], right[row], codes[row]) for row in rows]
    mirrored = [(right[row], left[row], -codes[row] + 0.0) for row in rows]
    if Counter(answers) != Counter(mirrored):
        return rows
    kept, waiting = [], Counter[tuple[str, str, float]]()
    for row, answer, other in zip(rows.tolist(), answers, mirrored, strict=True):
        if waiting[answer]:
            waiting[answer] -= 1
        else:
            waiting[other] += 1
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _counted(table: Table, pair: Pair, counts: list[tuple[float, Any]]) -> Table:
    """Return a row for each side that won at least once, with a column ``count``."""
    used = [column for _, column in counts]
    numbers = [np.array([float(cell or 0) for cell in cells_of(table, name)]) for name in used]
    rows = np.concatenate([np.flatnonzero(values > 0) for values in numbers])
    codes = np.repeat([code for code, _ in counts], [(values > 0).sum() for values in numbers])
    read = replace(table, frame=table.frame.drop(columns=used)).take(rows)
    number = np.concatenate([values[values > 0] for values in numbers])
    count = [f"{value:g}" for value in number] if table.text else number
    return _with_winners(replace(read, frame=read.frame.assign(count=count)), pair, codes)
