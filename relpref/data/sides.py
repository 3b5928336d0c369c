"""Pairs of columns that hold the two sides of each answer, or numbers of these."""

import re
from collections.abc import Collection, Iterator
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.arrays import Labels, Texts
from relpref.data.readings import (
    ANSWERS,
    DECIDED,
    ITEMS,
    NOT_LABELS,
    NUMBERS,
    OPTIONS,
    ORDERED,
    RATERS,
    SIDES,
    TEXTS,
    Sheet,
    is_numeric,
    plain,
)

PAIR = ("first", "second")
WINNER_LOSER = ("winner", "loser")
_THIRD = {
    "2": "3",
    "b": "c",
    "second": "third",
    "zweite": "dritte",
    "deuxieme": "troisieme",
    "segunda": "tercera",
    "segundo": "tercero",
}
_SPOILED = 0.1  # share of rows from which on two columns hold no pairs
verdict_of = re.compile(r"\W*(\w[^<>=]*?)\s*(>+|<+|=+|(?<=[a-z])\+)\s*(\w[^<>=]*?)\W*").fullmatch


class Pair(NamedTuple):
    """Two columns that hold the two sides of each answer, or numbers of these."""

    first: Any
    second: Any
    rest: frozenset[str]  # the words that the two names have in common
    marker: Texts  # the words by which they differ
    decided: bool  # whether the first is the better
    numeric: bool
    ids: tuple["Pair", ...] = ()  # other columns with numbers of the two sides

    @property
    def ends(self) -> tuple[Any, Any]:
        """The two columns."""
        return self[:2]

    @property
    def doubtful(self) -> bool:
        """Whether the columns may hold numbers of the two sides, and not their labels."""
        short = not self.rest and min(map(len, self.marker)) < 4
        return self.numeric and (short or not self.rest <= NUMBERS | ITEMS)

    @property
    def ordered(self) -> bool:
        """Whether the names say which side is the first, and which is the second."""
        return self.marker in ORDERED or self.ends == PAIR

    def along(self, other: "Pair") -> "Pair":
        """Return numbers of the two sides in the order of ``other``, which users may name."""
        turned = other.marker[::-1] in SIDES
        if not turned or self.marker in ORDERED:
            return self
        return self._replace(first=self.second, second=self.first, marker=self.marker[::-1])

    @property
    def rank(self) -> int:
        """Lower for columns that are more likely to hold the labels."""
        numbers = self.rest & NUMBERS - {"name", "title"} or self.numeric
        return 2 if numbers else 0 if not self.rest or self.rest & ITEMS else 1


def _pair(sheet: Sheet, ends: Labels, marker: Texts, rest: Collection[str] = ()) -> Pair:
    numeric = is_numeric(sheet.texts(ends).ravel())
    return Pair(ends[0], ends[1], frozenset(rest), marker, marker in DECIDED, numeric)


def side_pairs(sheet: Sheet, sides: Collection[Texts], columns: Labels) -> Iterator[Pair]:
    """Yield the pairs of columns whose names differ by the words for two sides."""
    split = {column: sheet.words(column) for column in columns}
    for ends in permutations(columns, 2):
        left = split[ends[0]]
        right = split[ends[1]]
        apart = [both for both in zip(left, right, strict=False) if both[0] != both[1]]
        if len(left) == len(right) and len(apart) == 1 and apart[0] in sides:
            yield _pair(sheet, ends, apart[0], {*left} - {apart[0][0]})


def repeated(sheet: Sheet) -> Iterator[Pair]:
    """Yield the pairs of columns of the same name, of which the second was renamed, as in G.1."""
    called = {name: str(sheet.called(name)) for name in sheet.columns}
    for first, second in permutations(sheet.columns, 2):
        again = rf"{re.escape(called[first])}(\.1| \(column \d+\))"
        if re.fullmatch(again, called[second]):
            yield _pair(sheet, (first, second), ("", ""), sheet.words(first))


def are_verdicts(sheet: Sheet, column: Any) -> bool:
    """Tell whether a column holds verdicts such as A>B, and some are no ties."""
    cells = [plain(cell) for cell in {*sheet.cells(column)} - {""}]
    return all(map(verdict_of, cells)) and bool(re.search("[<>]", "".join(cells)))


def _candidates(sheet: Sheet) -> list[Pair]:
    """Return all pairs of columns that may hold labels or numbers of the two sides."""
    ends = next((both for both in (PAIR, WINNER_LOSER) if {*both} <= {*sheet.columns}), ())
    pairs = list(side_pairs(sheet, DECIDED + SIDES, ends or sheet.columns))
    if ends:
        marker = pairs[0].marker if pairs else ends
        turned = bool(pairs) and pairs[0].first != ends[0]  # named against their markers
        pair = _pair(sheet, ends, marker[::-1] if turned else marker)
        pairs = [pair._replace(decided=ends == WINNER_LOSER)]
    names = {*map(sheet.words, sheet.columns)}

    def third(pair: Pair) -> Texts:
        return tuple(_THIRD.get(word, word) for word in sheet.words(pair.second))

    return [
        pair
        for pair in pairs
        # Portuguese teams are called time.
        if not pair.rest
        & NOT_LABELS - ({"time"} if {"casa", "mandante"} & {*pair.marker} else {*()})
        and sheet.named & {*PAIR, "loser"} <= {*pair.ends}
        and (pair.decided or "loser" not in sheet.named)
        and third(pair) not in names - {sheet.words(pair.second)}
        and not (pair.decided and pair.doubtful)
        and not sheet.is_crossed
        and np.mean([a == b != "" for a, b in sheet.texts(pair.ends)]) <= _SPOILED
    ]


def label_pairs(sheet: Sheet) -> list[Pair]:
    """Return the pairs of columns that are most likely to hold the labels of the two sides.

    Beside verdicts such as A>B, these may be any that share labels.
    """
    everything = _candidates(sheet)
    sharing = [pair for pair in everything if share_labels(sheet, pair)]
    if sharing and all(pair.rest <= TEXTS for pair in sharing):
        sharing = [pair for pair in everything if pair.rest & ITEMS and not pair.rank] or sharing
    pairs = sharing or [pair for pair in everything if not pair.numeric]
    lowest = min((pair.rank for pair in pairs), default=0)
    ids = tuple(pair for pair in everything if pair.rank == 2)
    if not pairs and any(verdicts := {c for c in sheet.columns if are_verdicts(sheet, c)}):
        others = [column for column in sheet.columns if column not in verdicts]
        named = (_pair(sheet, ends, tuple(map(str, ends))) for ends in combinations(others, 2))
        return [pair for pair in named if share_labels(sheet, pair) and not pair.numeric]
    pairs = [pair._replace(ids=ids) for pair in pairs if pair.rank == lowest]
    # Other columns may hold the same as the first two.
    cells = sheet.texts(pairs[0].ends) if len(pairs) > 1 else ()
    return pairs[:1] + [p for p in pairs[1:] if not np.array_equal(sheet.texts(p.ends), cells)]


def is_unsigned(sheet: Sheet, column: Any) -> bool:
    """Tell whether a column is called answer, and no column says who gave it."""
    called = bool(sheet.parts(column) & ANSWERS)
    return called and not any(sheet.is_named(name, RATERS) for name in sheet.columns)


def is_quiz(sheet: Sheet, pair: Pair, column: Any) -> bool:
    """Tell whether a column may hold the right one of two options, which are in no other row."""
    if not (pair.rest <= OPTIONS and is_unsigned(sheet, column)):
        return False
    again = pd.Series(sheet.texts(pair.ends).ravel()).duplicated(keep=False).mean() > 0.5
    return not (again and share_labels(sheet, pair))


def share_labels(sheet: Sheet, pair: Pair) -> bool:
    """Tell whether a label is on both sides, so that the columns hold items of one set."""
    return bool({*sheet.cells(pair.first)} & {*sheet.cells(pair.second)} - {""})
