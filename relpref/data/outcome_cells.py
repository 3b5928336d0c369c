"""Cells of outcomes as codes: which side was preferred, a tie, a blank or a void answer."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import Columns, Floats, Mask
from relpref.data.readings import (
    BESIDE,
    BESIDE_LOSER,
    BOTH_BAD,
    CODED,
    COMMENTS,
    DEGREES,
    KIND_OF_SIDES,
    OF_SIDES,
    RESULTS,
    TIES,
    UNORDERED,
    UNSURE,
    VOID,
    WON,
    Sheet,
    is_numeric,
    plain,
    words,
)
from relpref.data.sides import PAIR, Pair, verdict_of

# The beginning of a clause of at most four words, up to some of these.
_SHORTLY = r"(^|[.,:;(])(?= *([^ .,:;()]+ *){1,4}([.,:;()]|$))[^.,:;()]*"
_PLAYED = "(the |this )?(match|game|bout|fight|set|round)"
# Remarks on a walkover, plainly or in a short clause. Not only matches are forfeited.
_WALKOVER = re.compile(
    rf"(?i)\b(by (walk-? ?over|forfeit(ure)?)|forfeit(s|ed)? {_PLAYED})\b"
    rf"|{_SHORTLY}\b(walk-? ?over|(?<!time )forfeit(ure)?|forfait|kampflos"
    rf"|forfeit(s|ed)(?! (?!({_PLAYED}|by|to|in|at|on|due|after|before|because)\b)))\b"
).search

# How strongly the first was preferred, 1 where nothing says so, 0 for a tie, negative where the
# second was; NaN for a blank, -inf for a void answer, and inf for a cell that is not read.
Codes = Floats
VOIDED = -np.inf
# The columns, by the names used here, that choose a way to read a column, and its codes.
Way = tuple[Columns, Codes]
# As in 'Ayr won by 3 runs', 'Ayr by 3' and 'W 3-1'.
_WON_BY = re.compile(r"(?<=\S) (?:won|wins) (?:by |\().*|(?<=^[WLDT]) \d.*|(?<=\S) by \d.*")
_NUMBER = r"(?:\d*\.5|\d+)"
_COLON = "[-–—−:x×]"
_SCORE = re.compile(
    rf"{_NUMBER} *{_COLON} *{_NUMBER}( *\(?[a-z][a-z. ]*\)?"
    rf"| *\([a-z. ]*{_NUMBER} *{_COLON} *{_NUMBER}[a-z. ]*\))?"
).fullmatch
_is_grade = re.compile(r"[+-]?\d{1,2}").fullmatch
_SHOOTOUT = re.compile(rf"(\d+) *\((\d+)\) *{_COLON} *(\d+) *\((\d+)\)")


def fits(codes: Codes, least: float = 1) -> bool:
    """Tell whether all cells were read, and at least one as a strength of ``least``."""
    strongest = np.max(np.abs(codes), where=np.isfinite(codes), initial=-1)
    return bool(strongest >= least) and not np.isposinf(codes).any()


def tried_outcomes(sheet: Sheet, pair: Pair, column: Any, depth: int) -> list[Way]:
    """Return the codes of a column in each way that is tried, infinite where a cell is not read.

    Cells are labels of their row or words for the two sides; with a ``depth`` of 1, results of the
    first such as win, and scores such as 2:1; with 2, numbers such as 1 and 0. Words for a tie are
    allowed in each. Before the codes are the columns, by the names used here, that choose the way;
    none where no name does.
    """
    at, distinct = pd.factorize(sheet.cells(column))
    texts = np.array([_WON_BY.sub("", cell) for cell in distinct], dtype=object)
    each = texts[at]
    parts = sheet.parts(column)
    labels = {plain(label) for end in pair.ends for label in {*sheet.cells(end)}}
    parted = (_side_and_strength(plain(text), labels) for text in texts)
    cells, strengths = zip(*parted, strict=True)
    common = np.array([common_code(cell, labels, TIES | UNSURE) for cell in cells])
    by_result = {"result": column}
    named = sheet.named & {"winner", "result"}
    turned = by_result | {"first": pair.second, "second": pair.first}
    ways = list[Way]()

    def any_fits() -> bool:
        return any(fits(codes) for _, codes in ways)

    def add(codes: Codes, columns: Columns = by_result) -> None:
        ways.append((columns, np.where(np.isfinite(codes), codes * strengths, common)[at]))

    def add_sides(sides: Sequence[str], sign: float = 1.0, *, both: bool = False) -> None:
        coding = dict(zip(sides, (sign, -sign, 0.0), strict=False))
        codes = np.array([coding.get(_side(cell, coding, pair.rest), np.inf) for cell in cells])
        add(codes)
        if both:
            add(-codes, turned)

    if "result" not in named:
        ties = np.array([len(cell) > 2 and cell in TIES for cell in cells])[at]
        for labeled in (pair, *(other for other in pair.ids if column not in other.ends)):
            first, second = map(sheet.cells, labeled.ends)
            won = 1.0 * (each == first) - (each == second)
            ways.append(({"winner": column}, np.where(won != 0, won, common[at])))
            tied = (won != 0) & ties
            if tied.any() and not (common == 0).any():
                ways.append(({}, np.where(tied, 0.0, ways[-1][1])))
    if named == {"winner"} and any_fits():
        return [way for way in ways if fits(way[1])][:1]
    # Of sides 0 and 1, the number 1 may be the second, or that the first won.
    numbered = {*pair.marker} == {"0", "1"} and {*cells} & {*pair.marker}
    # A alone may be the first of A and B, or away.
    lone = {*cells} == {"a"} and pair.marker[1][0] == "a"
    if not numbered:
        add_sides(pair.marker)
        if not lone:
            add_sides([side[0] for side in pair.marker])
    sign = -1.0 if pair.marker[1] in parts and pair.marker[0] not in parts else 1.0
    kind = KIND_OF_SIDES.get(pair.marker)
    numbers = depth > 1 or named
    # Visitor and home stand against the order of these words: the first may be either.
    against = sheet.columns.index(pair.first) > sheet.columns.index(pair.second)
    no_first = not (pair.ordered or pair.decided) and parts.isdisjoint(pair.marker)
    no_first &= against or kind in UNORDERED
    no_result = no_first and kind not in ("white", "team")
    if numbers and ("2" in cells or any_fits()):
        add_sides(("1", "2", "1.5"), both=no_first and "x" not in cells)
    if any_fits():
        return ways
    # Words for sides of another kind: "B" is one where it is no label, and the columns are 1 and 2.
    for sides, other in {} if pair.decided else KIND_OF_SIDES.items():
        if sides[0] not in "01" and not (lone and other == kind):
            clear = pair.ordered and (other not in UNORDERED or pair.ends == PAIR)
            add_sides(sides, both=not clear and kind != other)
    if not depth:
        return ways
    for sides in RESULTS:
        add_sides(sides, sign, both=no_result)
    for cell, *coded in CODED if numbers else ():
        # Scales of preference often begin at the first side, with numbers below 0.
        if cell in cells and (cell != "-1" or named or parts & BESIDE_LOSER):
            add_sides(coded, sign, both=no_result)
    unclear = numbered or (parts & OF_SIDES and parts.isdisjoint(pair.marker))
    if numbers and unclear and "result" not in named and "0.5" not in cells:
        add(np.array([{"0": 1.0, "1": -1.0}.get(cell, np.inf) for cell in cells]), turned)
    signs = margins(cells)
    add(signs)
    if no_result and against:
        add(-signs, turned)
    if "result" in named and (middle := middle_of(cells)) is not None:
        add(np.array([int(cell) - middle if _is_grade(cell) else np.inf for cell in cells]))
    return ways


def _side_and_strength(cell: str, labels: set[str]) -> tuple[str, int]:
    """Return the side that a verdict such as A>>B names, and how strongly; other cells as is."""
    match = verdict_of(cell)
    if match is None or not labels.isdisjoint({cell, match[1], match[3]}):
        return cell, 1
    return {"<": match[3], "=": "tie"}.get(match[2][0], match[1]), len(match[2])


def _side(cell: str, sides: Collection[str], rest: Collection[str] = ()) -> str:
    """Return the words of a cell without those that say nothing of a side."""
    if is_numeric([cell]):
        return cell
    beside = BESIDE | DEGREES | {*rest}
    return " ".join(word for word in words(cell) if word in sides or word not in beside)


def common_code(cell: str, labels: Collection[str] = (), ties: Collection[str] = TIES) -> float:
    """Return the code of a tie, a blank or a void answer, and infinity for another cell."""
    said = {cell, cell.replace(" ", ""), " ".join(words(cell)), _side(cell, ())}
    if re.fullmatch(r"[-–:]*|\?", cell):
        return np.nan
    if said & VOID and cell not in labels:
        return VOIDED
    return 0.0 if said & (BOTH_BAD | {*ties}) and cell not in labels else np.inf


def void_of(cells: Iterable[str]) -> set[str]:
    """Return the cells that are blank, or say that there is no answer."""
    return {cell for cell in {*cells} if not common_code(cell) >= 0}


def margins(cells: Iterable[str]) -> Codes:
    """Return the signs of scores such as 2:1 or 1:1 (4:3), and infinity for other cells."""
    texts = [_in_sets(_SHOOTOUT.sub(r"\1:\3 (\2:\4)", cell.replace("½", ".5"))) for cell in cells]
    scores = [
        [*map(float, re.findall(_NUMBER, text)), 0, 0][:4] if _SCORE(text) else [np.nan] * 4
        for text in texts
    ]
    first, second, more, less = np.array(scores).T
    # Numbers in parentheses are those at half time, unless some are higher than those before them.
    shootout = (first == second) & (np.maximum(more, less) > np.maximum(first, second)).any()
    signs = np.sign(np.where(shootout, more - less, first - second))
    return np.where(np.isnan(signs), np.inf, signs)


def middle_of(cells: Collection[str]) -> int | None:
    """Return the middle of a scale of preference: 0 of -3 to 3, 4 of 1 to 7; None for no scale."""
    grades = {int(cell) for cell in cells if _is_grade(cell)} or {0}
    low = min(grades)
    high = max(grades)
    return 0 if low < 0 else (1 + high) // 2 if low == 1 and high in (5, 7, 9) else None


def _in_sets(text: str) -> str:
    """Return scores of sets such as 6-4 3-6 7-6 (5) as how many each side won, such as 2-1."""
    sets = re.split("[ ,;]+", re.sub(r" *\(\d+\)|[][]", "", text))
    signs = margins(sets) if len(sets) > 1 else np.zeros(1)
    won = (signs == 1).sum()
    lost = (signs == -1).sum()
    # Scores of legs or of halves may be tied, or add up to another result.
    return f"{won}-{lost}" if won != lost and won + lost == len(sets) else text


def code_of_results(first: str, second: str) -> float:
    """Return the code of results of both sides: win and resigned, or the same if neither won."""
    if first == second not in WON:
        return min(common_code(first), 0.0)
    return (first in WON) - (second in WON) or np.inf


def walkovers(sheet: Sheet, column: Any) -> Mask:
    """Mark rows whose remarks say that a match was a walkover, if at most half of them do.

    Otherwise these rows may have been kept on purpose.
    """
    void = np.zeros(len(sheet.cells(column)), bool)
    if sheet.parts(column) & COMMENTS:
        for row, cell in enumerate(sheet.cells(column)):
            void[row] = bool(_WALKOVER(cell)) or " ".join(words(cell)) in VOID
    return void & (void.sum() <= 0.5 * len(void))
