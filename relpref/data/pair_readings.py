"""Ways to read a table of answers as pairs: winners and losers, outcomes, goals, counts."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed
from relpref.data.readings import (
    BESIDE_LOSER,
    BOTH_BAD,
    CANCELED,
    COUNTED,
    DECIDED,
    DOUBTFUL,
    FALSE,
    GOALS,
    ITEMS,
    NOT_LABELS,
    NUMBERS,
    OF_SIDES,
    OUTCOMES,
    RESULTS,
    SIDES,
    TIE_NAMES,
    TIES,
    TRUE,
    VOID,
    Reading,
    Sheet,
    is_numeric,
    plain,
    words,
)
from relpref.data.tables import Table
from relpref.errors import DataError

# 1 where the first won, 0 for a tie, -1 where the second won, NaN for a blank, 9 for a void answer.
Codes = NDArray[np.float64]
_VOID = 9.0

# Words beside those of outcomes, and beside those of a side in a cell, that say nothing more.
_BESIDE = ITEMS | NUMBERS | {"final", "match", "game", "human", "overall", "full", "ft", "who"}
_BESIDE |= {
    "which",
    "is",
    "was",
    "type",
    "the",
    "vote",
    "wins",
    "win",
    "won",
    "prefer",
    "preferred",
}
_SCORE = re.compile(
    r"(\d+(?:\.5)?|½)\s*[-–—−:]\s*(\d+(?:\.5)?|½)(\s*\(?[a-z][a-z. ]*\)?)?"
).fullmatch
_GOALS = ("fthg", "ftag"), ("hg", "ag"), ("gf", "ga"), ("pf", "pa")
_PAIR, _DECIDED = ("first", "second"), ("winner", "loser")
_SPOILED = 0.1  # share of rows from which on two columns hold no pairs


class Pair(NamedTuple):
    """Two columns that hold the two sides of each answer, or numbers of these."""

    first: Any
    second: Any
    rest: frozenset[str]  # the words that the two names have in common
    marker: tuple[str, str]  # the words by which they differ
    decided: bool  # whether the first is the better
    numeric: bool

    @property
    def doubtful(self) -> bool:
        """Whether the columns may hold numbers of the two sides, and not their labels."""
        short = not self.rest and min(map(len, self.marker)) < 4
        return self.numeric and (short or not self.rest <= NUMBERS | ITEMS)

    @property
    def rank(self) -> int:
        """Lower for columns that are more likely to hold the labels."""
        numbers = self.rest & NUMBERS - {"name", "title"} or self.numeric
        return 2 if numbers else 0 if not self.rest or self.rest & ITEMS | {"name"} else 1


class Outcome(NamedTuple):
    """One way to read who was preferred."""

    description: str
    codes: Codes
    used: tuple[Any, ...]  # the columns that hold it
    columns: Mapping[str, Any]  # these, by the names used here


def side_pairs(
    sheet: Sheet, sides: Sequence[tuple[str, str]], columns: Sequence[Any]
) -> Iterator[Pair]:
    """Yield the pairs of columns whose names differ by the words for two sides."""
    split = {column: sheet.words(column) for column in columns}
    for ends in combinations(columns, 2):
        left, right = (split[end] for end in ends)
        apart = [at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b]
        if len(left) != len(right) or len(apart) != 1:
            continue
        marker = left[apart[0]], right[apart[0]]
        if marker[::-1] in sides:
            ends, marker = ends[::-1], marker[::-1]
        if marker in sides:
            numeric = is_numeric(sheet.cells(ends[0]) + sheet.cells(ends[1]))
            rest = frozenset(left).difference(left[apart[0] : apart[0] + 1])
            yield Pair(*ends, rest, marker, marker in DECIDED, numeric)


def candidates(sheet: Sheet) -> list[Pair]:
    """Return all pairs of columns that may hold labels or numbers of the two sides."""
    known = next((ends for ends in (_PAIR, _DECIDED) if {*ends} <= {*sheet.columns}), ())
    pairs = list(side_pairs(sheet, DECIDED + SIDES, known or sheet.columns))
    if known:
        decided, cells = known == _DECIDED, [cell for end in known for cell in sheet.cells(end)]
        marker = pairs[0].marker if pairs and not decided else known
        pairs = [Pair(*known, frozenset(), marker, decided, is_numeric(cells))]
    return [
        pair
        for pair in pairs
        if not pair.rest & NOT_LABELS
        and not (pair.decided and pair.doubtful)
        and np.mean([a == b != "" for a, b in zip(*map(sheet.cells, pair[:2]), strict=True)])
        <= _SPOILED
    ]


def label_pairs(sheet: Sheet, pairs: list[Pair]) -> list[Pair]:
    """Return the pairs of columns that are most likely to hold the labels of the two sides."""
    sharing = [pair for pair in pairs if share_labels(sheet, pair)]
    pairs = sharing or [pair for pair in pairs if not pair.numeric]
    lowest = min((pair.rank for pair in pairs), default=0)
    return [pair for pair in pairs if pair.rank == lowest]


def share_labels(sheet: Sheet, pair: Pair) -> bool:
    """Tell whether a label is on both sides, so that the columns hold items of one set."""
    return bool(set(sheet.cells(pair.first)) & set(sheet.cells(pair.second)) - {""})


def pairs(sheet: Sheet) -> Iterator[Reading]:
    """Read winners and losers, or pairs with an outcome, goals or counts of both sides."""
    everything = candidates(sheet)
    for pair in label_pairs(sheet, everything):
        if pair.decided:
            outcome = _of_decided(sheet, pair)
            names = {"winner": pair.first, "loser": pair.second}
            reading = partial(_decided, sheet, pair, outcome)
            yield Reading(outcome.description, reading, {} if outcome.used else names)
            continue
        sides = f"pairs of {pair.first!r} and {pair.second!r} with"
        outcomes = _agreed(outcomes_of(sheet, pair, everything))
        counts = [] if outcomes else list(_counts(sheet, pair))
        for used, numbers in counts:
            what = f"{sides} the counts {listed(used.values())}"
            yield Reading(what, partial(_counted, sheet.table, pair, used, numbers))
        if not outcomes and not counts:
            outcomes = _agreed(other_outcomes(sheet, pair, everything))
        # NaN differs from itself.
        several = [np.nan_to_num(outcome.codes, nan=_VOID) for outcome in outcomes][:2]
        row = int(np.not_equal(*several).argmax()) if len(several) > 1 else 0
        won = {1.0: pair.first, -1.0: pair.second}
        for outcome in outcomes:
            example = ""
            if len(several) > 1:
                end = won.get(outcome.codes[row])
                better = f"{sheet.cells(end)[row]!r} wins" if end else "nobody wins"
                place = sheet.table.place(row).removeprefix(f"{sheet.table.name}, ")
                example = f", by which {better} in {place}"
            ends = {"first": pair.first, "second": pair.second}
            yield Reading(
                f"{sides} {outcome.description}{example}",
                partial(_decided, sheet, pair, outcome),
                {**ends, **outcome.columns} if outcome.columns else {},
            )


def _of_decided(sheet: Sheet, pair: Pair) -> Outcome:
    """Return that the first won, but for ties and void answers that another column says."""
    codes, used = np.ones(len(sheet.table.frame)), list[Any]()
    twins = {end for side in side_pairs(sheet, DECIDED + SIDES, sheet.columns) for end in side[:2]}
    for column in sheet.columns:
        cells = sheet.cells(column)
        numbers = is_numeric(cells) and not {*cells} <= {"1", "0.5", ""}
        if column in (*pair[:2], *twins) or not {*sheet.words(column)} & BESIDE_LOSER or numbers:
            continue
        said = [min(_common(plain(cell), set()), abs(_margin(cell))) for cell in cells]
        other = np.isin(said, (0.0, _VOID)) & ~np.isin(cells, ("-", "–", "?"))
        codes[other] = np.array(said)[other]
        used += [column] if other.any() else []
    beside = f", with the ties of {listed(used)}" if used else ""
    what = f"pairs, {pair.first!r} preferred to {pair.second!r}{beside}"
    return Outcome(what, codes, tuple(used), {})


def says_more(sheet: Sheet) -> bool:
    """Tell whether a column beside winner and loser says that an answer is a tie, or is void."""
    pairs = candidates(sheet)
    marking = any(column != "tie" for column, *_ in _marks(sheet))
    return marking or any(_of_decided(sheet, pair).used for pair in pairs)


def _agreed(outcomes: Iterator[Outcome]) -> list[Outcome]:
    """Join outcomes that are equal in all rows where both are given."""
    agreed: list[Outcome] = []
    for outcome in outcomes:
        for at, other in enumerate(agreed):
            both = (np.abs(outcome.codes) <= 1) & (np.abs(other.codes) <= 1)
            if both.any() and (outcome.codes == other.codes)[both].all():
                codes = np.where(np.isnan(other.codes), outcome.codes, other.codes)
                agreed[at] = other._replace(codes=codes, used=(*other.used, *outcome.used))
                break
        else:
            agreed.append(outcome)
    return agreed


def named_outcomes(sheet: Sheet, pair: Pair) -> tuple[list[Any], list[Any]]:
    """Return the columns whose names are those of outcomes, and those that are similar."""
    if chosen := [name for name in ("winner", "result") if name in sheet.named]:
        return chosen, []
    if "first_score" in sheet.named:
        return [], []
    exact: list[Any] = []
    similar: list[Any] = []
    sides = set(pair.marker)
    twins = {end for side in side_pairs(sheet, SIDES, sheet.columns) for end in side[:2]}
    for column in sheet.columns:
        parts = set(sheet.words(column))
        if column in (pair.first, pair.second, *twins) or not (
            parts & OUTCOMES or "".join(sheet.words(column)) in OUTCOMES
        ):
            continue
        of_side = parts & {"win", "wins", "won"} and parts & sides
        plainly = parts <= OUTCOMES | _BESIDE | sides | {"w", "l"} and not of_side
        (exact if plainly and not parts & DOUBTFUL - sides else similar).append(column)
    alone = all(set(sheet.words(column)) & DOUBTFUL for column in similar)
    return exact, [] if alone else similar


def outcomes_of(sheet: Sheet, pair: Pair, everything: Sequence[Pair]) -> Iterator[Outcome]:
    """Yield how the outcome may be read: by a column that is named as one, or else by goals."""
    exact, similar = named_outcomes(sheet, pair)
    for column in exact:
        yield from _read(sheet, pair, column, everything, numbers=not pair.doubtful)
    goals = [] if pair.doubtful or {"winner", "result"} & sheet.named else [*_goals(sheet, pair)]
    for column in similar if goals and not exact else ():
        yield from _read(sheet, pair, column, everything, numbers=False)
    yield from goals


def other_outcomes(sheet: Sheet, pair: Pair, everything: Sequence[Pair]) -> Iterator[Outcome]:
    """Yield outcomes in columns with other names, if none is named as one.

    Their cells are words for the sides, if the name has a word for an outcome, or labels.
    """
    exact, similar = named_outcomes(sheet, pair)
    for column in similar:
        yield from _read(sheet, pair, column, everything, numbers=False)
    for column in [] if exact or similar else sheet.columns:
        of_other = set(sheet.words(column)) & (DOUBTFUL | NOT_LABELS)
        if column not in (pair.first, pair.second) and not of_other:
            for outcome in _read(sheet, pair, column, everything, numbers=False):
                if "winner" in outcome.columns:
                    yield outcome


def _read(
    sheet: Sheet, pair: Pair, column: Any, everything: Sequence[Pair], *, numbers: bool
) -> Iterator[Outcome]:
    """Yield the ways to read a column of outcomes, and the name of a column of such outcomes."""
    at, distinct = pd.factorize(np.array(sheet.cells(column), dtype=object))
    bad = np.array([" ".join(words(cell)) in BOTH_BAD for cell in distinct])[at]
    described = f"the outcome {sheet.table.called(column)!r}"
    if bad.any():
        what = "left out" if sheet.both_bad == "drop" else "a tie"
        described += f" ({bad.sum()} times both were bad: {what})"
    for name, codes in read_outcome(sheet, pair, column, everything, numbers=numbers):
        codes = np.where(bad & (sheet.both_bad == "drop"), _VOID, codes)
        yield Outcome(described, codes, (column,), {name: column} if name else {})


def read_outcome(
    sheet: Sheet,
    pair: Pair,
    column: Any,
    everything: Sequence[Pair],
    *,
    numbers: bool,
    tried: list[Codes] | None = None,
) -> list[tuple[str, Codes]]:
    """Return the distinct ways in which all cells of a column can be read as outcomes.

    Cells are labels of their row, words for the two sides, scores such as 2:1, or, with
    ``numbers``, 1 and 0 of the first or 1 and 2; words for a tie are allowed in each. Beside each
    is the name, ``winner`` or ``result``, that chooses it; none where no name does. All ways are
    added to ``tried``, infinite where they fail.
    """
    each = np.array(sheet.cells(column), dtype=object)
    at, distinct = pd.factorize(each)
    distinct = [re.sub(r"^([01]),5$", r"\1.5", plain(cell)) for cell in distinct]
    labels = {*sheet.cells(pair.first), *sheet.cells(pair.second)}
    labels = {plain(label) for label in labels}
    common = np.array([_common(cell, labels) for cell in distinct])
    named, readings = set(sheet.named) & {"winner", "result"}, list[tuple[str, Codes]]()

    def add(codes: Codes, name: str = "result") -> None:
        # All cells are read, some side won, and no other way says the same.
        if tried is not None:
            tried.append(codes)
        if np.isinf(codes).any() or not (np.abs(codes) == 1).any():
            return
        if not any(np.array_equal(codes, other, equal_nan=True) for _, other in readings):
            readings.append((name, codes))

    def add_words(first: str, second: str, tie: str = "", sign: float = 1.0) -> None:
        coding = {first: sign, second: -sign, tie: 0.0}
        coding.pop("", None)
        coded = [coding.get(cell, coding.get(_side(cell, coding), np.inf)) for cell in distinct]
        add(np.where(np.isfinite(coded), coded, common)[at])

    if "result" not in named:
        for labeled in [pair, *(other for other in everything if other.rank == 2)]:
            ends = (sheet.cells(end) for end in (labeled.first, labeled.second))
            left, right = (np.array(end, dtype=object) for end in ends)
            won = (each == left) * 1.0 - (each == right)
            add(np.where(won != 0, won, common[at]), "winner")
            ties = np.array([len(cell) > 2 and cell in TIES for cell in distinct])
            tied = (won != 0) & ties[at]
            if tied.any() and not (common == 0).any():
                add(np.where(tied, 0.0, np.where(won != 0, won, common[at])), "")
    if readings and named == {"winner"}:
        return readings[:1]
    add_words(*pair.marker)
    add_words(pair.marker[0][0], pair.marker[1][0])
    add_words(" ".join(sheet.words(pair.first)), " ".join(sheet.words(pair.second)))
    if readings:
        return readings
    # Other words for sides: "B" is one where it is no label, and the columns are 1 and 2.
    for first, second in SIDES:
        if first not in "01":
            add_words(first, second)
    parts = set(sheet.words(column))
    sign = -1.0 if pair.marker[1] in parts and pair.marker[0] not in parts else 1.0
    for first, second in RESULTS if numbers or named else RESULTS[:-2]:
        add_words(first, second, "t" if first == "w" else "", sign)
    if numbers or named:
        if "2" in distinct:
            add_words("1", "2", "1.5")
        if "1" in distinct or "-1" in distinct:
            tie, second = ("0", "-1") if "-1" in distinct else ("0.5", "0")
            add_words("1", second, tie, sign)
            if parts & OF_SIDES and set(distinct) <= {"0", "1", ""} and not named:
                add_words("0", "1")
                readings[-1] = ("", readings[-1][1])
    margins = np.array([_margin(cell) for cell in distinct])
    add(np.where(np.isfinite(margins), margins, common)[at])
    return readings


def unread_rows(
    sheet: Sheet, pair: Pair, column: Any, everything: Sequence[Pair]
) -> NDArray[np.bool_]:
    """Return the rows whose cell is no outcome, in the way that reads most cells."""
    tried: list[Codes] = []
    read_outcome(sheet, pair, column, everything, numbers=not pair.doubtful, tried=tried)
    return min(map(np.isinf, tried), key=np.sum)


def _side(cell: str, sides: Collection[str]) -> str:
    """Return the words of a cell without those that say nothing of a side."""
    if is_numeric([cell]):
        return cell
    parts = words(cell)
    return " ".join(word for word in parts if word in sides or word not in _BESIDE)


def _common(cell: str, labels: set[str]) -> float:
    """Return the code of a tie, a blank or a void answer, and infinity for another cell."""
    said = {cell, " ".join(words(cell)), _side(cell, ())}
    if cell == "":
        return np.nan
    if said & VOID and cell not in labels:
        return _VOID
    return 0.0 if said & (TIES | BOTH_BAD) and cell not in labels else np.inf


def _margin(cell: str) -> float:
    """Return the sign of a score such as 2:1, and infinity for another cell."""
    score = _SCORE(cell)
    if score is None:
        return np.inf
    first, second = (0.5 if part == "½" else float(part) for part in score.groups()[:2])
    return float(np.sign(first - second))


def _goals(sheet: Sheet, pair: Pair) -> Iterator[Outcome]:
    """Read the outcome from the goals or points of the two sides."""
    sides = [
        side[:2]
        for side in side_pairs(sheet, SIDES + _GOALS, sheet.columns)
        if (side.rest & GOALS and side.rest <= GOALS) or side.marker in _GOALS
    ]
    if "first_score" in sheet.named:
        sides = [("first_score", "second_score")]
    for ends in sides:
        cells = [sheet.cells(end) for end in ends]
        if all(map(is_numeric, cells)):
            first, second = (np.array([float(c) if c else np.nan for c in end]) for end in cells)
            described = f"the result of {ends[0]!r} and {ends[1]!r}"
            names = dict(zip(("first_score", "second_score"), ends, strict=True))
            yield Outcome(described, np.sign(first - second), ends, names)


def _counts(sheet: Sheet, pair: Pair) -> Iterator[tuple[dict[float, Any], Codes]]:
    """Yield columns with how often the first won (1), the second won (-1) and neither did (0)."""
    others = [column for column in sheet.columns if column not in (pair.first, pair.second)]
    for side in side_pairs(sheet, SIDES, others):
        if not side.rest & COUNTED:
            continue
        ties = [
            column
            for column in others
            if " ".join(part for part in sheet.words(column) if part not in side.rest) in TIES
        ]
        counts = dict(zip((1.0, -1.0, 0.0), (side.first, side.second, *ties), strict=False))
        values = [_numbers(sheet.cells(column)) for column in counts.values()]
        if any(value is None for value in values):
            continue
        table = np.array(values, dtype=np.float64)
        marks = table.max() <= 1
        if marks and not ties and ("winner" in side.rest or (table.sum(axis=0) != 1).any()):
            raise DataError(
                f"{sheet.table.name}: {side.first!r} and {side.second!r} say who won, and there is "
                "no column of ties; add 'winner_tie', true where neither won"
            )
        wrong = marks & ("winner" in side.rest) & (table.sum(axis=0) != 1)
        if wrong.any():
            raise DataError(
                f"{sheet.table.place(int(wrong.argmax()))}: exactly one of "
                f"{listed(counts.values())} is true in each row; correct the row, or drop it"
            )
        yield counts, table


def _numbers(cells: list[str]) -> Codes | None:
    """Return counts, or 1 and 0 for true and false; None if a cell is neither."""
    truths = {**dict.fromkeys(FALSE, "0"), **dict.fromkeys(TRUE, "1")}
    cells = [truths.get(cell.lower(), cell) for cell in cells]
    return np.array(cells, dtype=np.float64) if all(map(str.isdecimal, cells)) else None


def _marks(sheet: Sheet) -> Iterator[tuple[Any, bool, NDArray[np.bool_]]]:
    """Yield columns that mark ties, or void answers, by true; whether it is ties; and the rows."""
    for column in sheet.columns:
        parts = {*sheet.words(column)} - {"is", "was"}
        tie, cells = " ".join(parts) in TIE_NAMES, [cell.lower() for cell in sheet.cells(column)]
        if (tie or parts & CANCELED) and {*cells} <= TRUE | FALSE:
            yield column, tie, np.isin(cells, list(TRUE))


def _decided(sheet: Sheet, pair: Pair, outcome: Outcome) -> Table:
    """Return the pairs with their winners and ties, without rows that have no outcome."""
    codes, used, table = outcome.codes.copy(), list(outcome.used), sheet.table
    for column, tie, marked in _marks(sheet):
        if column in used:
            continue
        if tie and not pair.decided:
            wrong = marked & (np.abs(codes) == 1)
            table.refuse(column, wrong, ", and yet the row has a winner; correct one of the cells")
        codes[marked] = 0.0 if tie else np.nan
        used.append(column)
    rows = np.flatnonzero(np.abs(codes) <= 1)
    notes, left_out = [], len(codes) - len(rows)
    if left_out:
        verb = "is" if left_out == 1 else "are"
        notes.append(f"{counted(left_out, 'row')} without an outcome {verb} left out")
    if pair.marker[1].startswith("opp"):
        once = _once(sheet, pair, codes, rows)
        if len(once) < len(rows):
            notes.append("each answer is in two rows, one for each side, and counted once")
        rows = once
    read = replace(table, frame=table.frame.drop(columns=used)).take(rows)
    return replace(_with_winners(read, pair, codes[rows]), notes=(*read.notes, *notes))


def _with_winners(table: Table, pair: Pair, codes: Codes) -> Table:
    """Return pairs with the columns of their form, and tie if there are ties."""
    names = dict(zip(pair[:2], _DECIDED if pair.decided else _PAIR, strict=True))
    others = {"winner", "loser", "result", "probability", "tie"} & {*table.frame.columns}
    read = table.rename({name: f"other {name}" for name in others - {*names}} | names)
    frame = read.frame
    if not pair.decided:
        first, second = (frame[name].astype(object) for name in _PAIR)
        frame = frame.assign(
            winner=first.where(codes > 0, second).mask(codes == 0, "" if table.text else None)
        )
    if (codes == 0).any():
        frame = frame.assign(
            tie=[str(tie) if table.text else bool(tie) for tie in (codes == 0).tolist()]
        )
    return replace(read, frame=frame)


def _once(sheet: Sheet, pair: Pair, codes: Codes, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one of the two rows of each answer, where all answers are given from both sides."""
    ends = (sheet.cells(end) for end in (pair.first, pair.second))
    left, right = (np.array(end, dtype=object)[rows] for end in ends)
    turned = left > right
    low, high = np.where(turned, right, left), np.where(turned, left, right)
    code = np.where(turned, -codes[rows], codes[rows]) + 0.0
    share = pd.Series(turned).groupby([low, high, code]).mean()
    return rows[~turned] if (share == 0.5).all() else rows


def _counted(table: Table, pair: Pair, counts: Mapping[float, Any], numbers: Any) -> Table:
    """Return a row for each side that won at least once, with a column ``count``."""
    sides, rows = np.nonzero(numbers)
    order = np.argsort(rows, kind="stable") if numbers.max() == 1 else np.arange(len(rows))
    sides, rows = sides[order], rows[order]
    read = replace(table, frame=table.frame.drop(columns=[*counts.values()])).take(rows)
    if numbers.max() > 1:
        count = numbers[sides, rows]
        cells = [f"{value:g}" for value in count] if table.text else count
        read = replace(read, frame=read.frame.assign(count=cells))
    return _with_winners(read, pair, np.array([*counts])[sides])
