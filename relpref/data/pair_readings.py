"""Ways to read a table of answers as pairs: winners and losers, outcomes, goals, counts."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice, permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.arrays import Floats, counted, listed
from relpref.data.readings import (
    ADVANTAGE,
    BESIDE,
    BESIDE_LOSER,
    BOTH_BAD,
    CANCELED,
    CODED,
    COUNTED,
    DECIDED,
    DEGREES,
    DOUBTFUL,
    FALSE,
    GOALS,
    ITEMS,
    KIND_OF_SIDES,
    NOT_ITEMS,
    NOT_LABELS,
    NOT_OUTCOMES,
    NUMBERS,
    OF_SIDES,
    ORDERED,
    OUTCOMES,
    RESULTS,
    SIDES,
    TIE_NAMES,
    TIES,
    TRUE,
    UNORDERED,
    UNSURE,
    VOID,
    WON,
    Reading,
    Sheet,
    is_numeric,
    plain,
    words,
)
from relpref.data.tables import Table
from relpref.errors import DataError

# How strongly the first was preferred, 1 where nothing says so, 0 for a tie, negative where the
# second was; NaN for a blank, -inf for a void answer, and inf for a cell that is not read.
Codes = Floats
_VOID = -np.inf
# The columns, by the names used here, that choose a way to read a column, and its codes.
Way = tuple[Mapping[str, Any], Codes]
_VERDICT = re.compile(r"\W*(\w[^<>=]*?)\s*(>+|<+|=+|(?<=[a-z])\+)\s*(\w[^<>=]*?)\W*").fullmatch
_WON_BY = re.compile(r"(?<=\S) (?:won|wins) (?:by |\().*")  # as in 'Ayr won by 3 runs'
_NUMBER, _COLON = r"(?:\d*\.5|\d+)", "[-–—−:x×]"
_SCORE = re.compile(
    rf"{_NUMBER} *{_COLON} *{_NUMBER}( *\(?[a-z][a-z. ]*\)?"
    rf"| *\([a-z. ]*{_NUMBER} *{_COLON} *{_NUMBER}[a-z. ]*\))?"
).fullmatch
_SHOOTOUT = re.compile(rf"(\d+) *\((\d+)\) *{_COLON} *(\d+) *\((\d+)\)")
_GOALS = (
    ("fthg", "ftag"),
    ("hg", "ag"),
    ("gf", "ga"),
    ("pf", "pa"),
    ("hruns", "vruns"),
    ("gl", "gv"),
)
_TRUTHS = {**dict.fromkeys(FALSE, "0"), **dict.fromkeys(TRUE, "1")}
_PAIR, _DECIDED = ("first", "second"), ("winner", "loser")
_SCORES = ("first_score", "second_score")
# Words for the second side that say nothing of which side this is.
_SECOND = {second for _, second in ORDERED} - {"1"}
_THIRD = {"2": "3", "b": "c", "second": "third"}
_TIE_OR_VOID = (
    " may be a tie or no answer; say unsure='tie' (--unsure tie), or unsure='drop' (--unsure drop)"
)
# What parts the names of the two sides in a cell, or in the name of a column.
_VERSUS = re.compile(
    r"(?i)(?:\s+|[._-]+)(?:vs?\.?|versus|or|gegen|contre|contra)(?:\s+|[._-]+)|\s+[x–—-]\s+"
).split
_SPOILED = 0.1  # share of rows from which on two columns hold no pairs


class Pair(NamedTuple):
    """Two columns that hold the two sides of each answer, or numbers of these."""

    first: Any
    second: Any
    rest: frozenset[str]  # the words that the two names have in common
    marker: tuple[str, ...]  # the words by which they differ
    decided: bool  # whether the first is the better
    numeric: bool
    ids: tuple["Pair", ...] = ()  # other columns with numbers of the two sides

    @property
    def doubtful(self) -> bool:
        """Whether the columns may hold numbers of the two sides, and not their labels."""
        short = not self.rest and min(map(len, self.marker)) < 4
        return self.numeric and (short or not self.rest <= NUMBERS | ITEMS)

    @property
    def ordered(self) -> bool:
        """Whether the names say which side is the first, and which is the second."""
        return self.marker in ORDERED or self[:2] == _PAIR

    def along(self, other: "Pair") -> "Pair":
        """Return numbers of the two sides in the order of ``other``, which users may name."""
        turned = other.marker not in SIDES and other.marker[::-1] in SIDES
        if not turned or self.marker in ORDERED:
            return self
        return self._replace(first=self.second, second=self.first, marker=self.marker[::-1])

    @property
    def rank(self) -> int:
        """Lower for columns that are more likely to hold the labels."""
        numbers = self.rest & NUMBERS - {"name", "title"} or self.numeric
        return 2 if numbers else 0 if not self.rest or self.rest & ITEMS else 1


class Outcome(NamedTuple):
    """One way to read who was preferred."""

    description: str
    codes: Codes
    used: tuple[Any, ...]  # the columns that hold it
    columns: Mapping[str, Any]  # these, by the names used here
    counts: Any = None  # how often the first won, the second won, and neither did, in each row
    unlikely: bool = False  # whether it is one only where another outcome says the same


def side_pairs(
    sheet: Sheet, sides: Collection[tuple[str, ...]], columns: Sequence[Any]
) -> Iterator[Pair]:
    """Yield the pairs of columns whose names differ by the words for two sides."""
    split = {column: sheet.words(column) for column in columns}
    for first, second in permutations(columns, 2):
        left, right = split[first], split[second]
        apart = [ends for ends in zip(left, right, strict=False) if ends[0] != ends[1]]
        if len(left) == len(right) and len(apart) == 1 and apart[0] in sides:
            rest = frozenset(left) - {apart[0][0]}
            numeric = is_numeric(sheet.rows((first, second)).ravel())
            yield Pair(first, second, rest, apart[0], apart[0] in DECIDED, numeric)


def repeated(sheet: Sheet) -> Iterator[Pair]:
    """Yield the pairs of columns of the same name, of which the second was renamed, as in G.1."""
    called = {name: str(sheet.table.called(name)) for name in sheet.columns}
    for first, second in permutations(sheet.columns, 2):
        again = rf"{re.escape(called[first])}(\.1| \(column \d+\))"
        if re.fullmatch(again, called[second]):
            numeric = is_numeric(sheet.rows((first, second)).ravel())
            yield Pair(first, second, frozenset(sheet.words(first)), ("", ""), False, numeric)


def _candidates(sheet: Sheet) -> list[Pair]:
    """Return all pairs of columns that may hold labels or numbers of the two sides."""
    known = next((ends for ends in (_PAIR, _DECIDED) if {*ends} <= {*sheet.columns}), ())
    pairs = list(side_pairs(sheet, DECIDED + SIDES, known or sheet.columns))
    if known:
        decided, cells = known == _DECIDED, sheet.rows(known).ravel()
        marker = pairs[0].marker if pairs else known
        if pairs and pairs[0].first != known[0]:  # named against their markers
            marker = marker[::-1]
        pairs = [Pair(*known, frozenset(), marker, decided, is_numeric(cells))]
    names = {*map(sheet.words, sheet.columns)}

    def third(pair: Pair) -> tuple[str, ...]:
        return tuple(_THIRD.get(word, word) for word in sheet.words(pair.second))

    return [
        pair
        for pair in pairs
        # Portuguese teams are called time.
        if not pair.rest
        & NOT_LABELS - ({"time"} if {"casa", "mandante"} & {*pair.marker} else {*()})
        and sheet.named & {*_PAIR, "loser"} <= {*pair[:2]}
        and (pair.decided or "loser" not in sheet.named)
        and third(pair) not in names - {sheet.words(pair.second)}
        and not (pair.decided and pair.doubtful)
        and np.mean([a == b != "" for a, b in sheet.rows(pair[:2])]) <= _SPOILED
    ]


def label_pairs(sheet: Sheet) -> list[Pair]:
    """Return the pairs of columns that are most likely to hold the labels of the two sides."""
    everything = _candidates(sheet)
    sharing = [pair for pair in everything if share_labels(sheet, pair)]
    pairs = sharing or [pair for pair in everything if not pair.numeric]
    lowest = min((pair.rank for pair in pairs), default=0)
    ids = tuple(pair for pair in everything if pair.rank == 2)
    return [pair._replace(ids=ids) for pair in pairs if pair.rank == lowest]


def share_labels(sheet: Sheet, pair: Pair) -> bool:
    """Tell whether a label is on both sides, so that the columns hold items of one set."""
    return bool({*sheet.cells(pair.first)} & {*sheet.cells(pair.second)} - {""})


def pairs(sheet: Sheet) -> Iterator[Reading]:
    """Read winners and losers, or pairs with an outcome, goals or counts of both sides."""
    for pair in label_pairs(sheet):
        # What is called other_movie may be a free text.
        if pair.marker[1] == "other" and not share_labels(sheet, pair):
            continue
        outcomes = [*(_decided if pair.decided else _outcomes)(sheet, pair)]
        for number, outcome in enumerate(outcomes):
            # Only the first outcome of winners and losers is that they are these.
            sided = pair._replace(decided=pair.decided and not number)
            ends = {} if sided.decided else dict(zip(_PAIR, pair[:2], strict=True))
            codes = np.array([np.sign(other.codes) for other in (outcomes[0], outcomes[-1])])
            # A row that tells two readings apart, or in which one side won.
            telling = np.isfinite(codes).all(axis=0) & ((codes[0] != codes[1]) | (codes[0] != 0))
            row = int((telling * (1 + (codes[0] != codes[1]))).argmax())
            code, place = outcome.codes[row], sheet.table.place(row)
            won = {1: pair.first, -1: pair.second}.get(np.isfinite(code) and np.sign(code))
            better = f"{sheet.cells(won)[row]!r} wins" if won else "nobody wins"
            example = f", by which {better} in {place.removeprefix(f'{sheet.table.name}, ')}"
            yield Reading(
                f"pairs of {pair.first!r} and {pair.second!r} with {outcome.description}"
                + example * bool(telling.any()),
                partial(_with_outcome, sheet, sided, outcome),
                outcome.columns and {**ends, **outcome.columns},
            )


def verdicts(sheet: Sheet) -> Iterator[Reading]:
    """Read verdicts such as A>B on two columns of labels, either of which may be A."""
    named = label_pairs(sheet)
    for column in sheet.columns:
        cells = [plain(cell) for cell in sheet.cells(column) if cell]
        if not all(map(_VERDICT, cells)) or not re.search("[<>]", "".join(cells)):
            continue
        others = combinations([other for other in sheet.columns if other != column], 2)
        for first, second in chain(*map(permutations, [pair[:2] for pair in named] or others)):
            # Their names are taken as a and b.
            numeric = is_numeric(sheet.rows((first, second)).ravel())
            pair = Pair(first, second, frozenset(), ("a", "b"), decided=False, numeric=numeric)
            if not named and (numeric or not share_labels(sheet, pair)):
                continue
            for outcome in islice(_read(sheet, pair, [column], 2), 1):
                row = int(np.nanargmax(np.abs(outcome.codes)))
                better = first if outcome.codes[row] > 0 else second
                yield Reading(
                    f"pairs of {first!r} and {second!r} with {outcome.description}, by which "
                    f"{sheet.cells(column)[row]!r} prefers {better!r}",
                    partial(_with_outcome, sheet, pair, outcome),
                    {**dict(zip(_PAIR, pair[:2], strict=True)), **outcome.columns},
                )


def versus(sheet: Sheet) -> Iterator[Reading]:
    """Read pairs whose two sides are in a cell, such as A vs. B, or in the name of a column."""
    table, size = sheet.table, len(sheet.table.frame)
    if {*_PAIR} & {*sheet.columns}:
        return
    parted = list[tuple[str, Table, list[list[str]]]]()
    named: dict[Any, list[str]] = {}
    answers: dict[Any, list[str]] = {}
    for column in sheet.columns:
        cells, name = sheet.cells(column), str(table.called(column)).strip(" ?")
        sides = [_VERSUS(cell) for cell in cells]
        period = {*sheet.words(column)} & (NOT_ITEMS | {"week", "season", "period"})
        if (
            not period
            and {*map(len, sides)} == {2}
            and {*next(zip(*sides, strict=True))} & {s for _, s in sides}
        ):
            parted.append((repr(column), table.without([column]), sides))
        labels = {words(label): label for label in _VERSUS(name)}
        others = {plain(cell) for cell in cells if words(cell) not in labels}
        if len(labels) == 2 and len(others) < len({*cells}) and np.inf not in map(_common, others):
            named[column] = [*labels.values()]
            answers[column] = [labels.get(words(cell), cell) for cell in cells]
    if named and "winner" not in sheet.columns:
        read = table.without(named).take(np.repeat(np.arange(size), len(named)))
        read = read.assign(winner=[*chain(*zip(*answers.values(), strict=True))])
        parted.append((listed(named), read, [*named.values()] * size))
    for column, read, sides in parted:
        first, second = map(list, zip(*sides, strict=True))
        if is_numeric(first + second):
            continue
        read = read.assign(first=first, second=second)
        read = replace(read, given={**read.given, **dict.fromkeys(_PAIR, column)})
        for reading in pairs(replace(sheet, table=read)):
            columns = {ours: name for ours, name in reading.columns.items() if ours not in _PAIR}
            what = reading.description.replace("'first' and 'second'", f"the sides in {column}")
            yield replace(reading, description=what, columns=columns)


def _decided(sheet: Sheet, pair: Pair) -> Iterator[Outcome]:
    """Yield that the first won, but for what other columns mark, and scores that contradict it."""
    columns, what = dict(zip(_DECIDED, pair[:2], strict=True)), "the first preferred"
    if marking := [column for column, _ in _marks(sheet, pair)]:
        what += f", and ties or void answers by {listed(marking)}"
    yield Outcome(what, np.ones(len(sheet.table.frame)), (), columns)
    scores = [name for name in sheet.columns if {*sheet.words(name)} & BESIDE_LOSER]
    others = chain(_read(sheet, pair, scores, 1), _goals(sheet, pair, DECIDED))
    for outcome in () if sheet.named & {*_DECIDED} else others:
        least = np.min(outcome.codes, where=np.isfinite(outcome.codes), initial=1)
        # The points of a winner may be those of a ranking, but not if none are below the loser's.
        points = {"points", "pts"} & {*chain(*map(sheet.words, outcome.used))}
        if (least < 0 and not points) or (least == 0 and len(outcome.used) > 1):
            yield outcome


def says_more(sheet: Sheet) -> bool:
    """Tell whether a column beside winner and loser says that an answer is a tie, or is void."""
    marks = (column for pair in label_pairs(sheet) for column, _ in _marks(sheet, pair))
    return any(column != "tie" for column in marks)


def _outcomes(sheet: Sheet, pair: Pair) -> list[Outcome]:
    """Return the ways to read the outcomes: by a column that is named as one, goals or counts."""
    exact, similar, others = named_outcomes(sheet, pair)
    read = partial(_read, sheet, pair)
    stated = pair.doubtful or {"winner", "result"} & sheet.named
    goals = [] if stated else [*_goals(sheet, pair, SIDES + _GOALS)]
    outcomes = [*read(exact, 1 if pair.doubtful else 2)]
    outcomes += [*read(similar, 1)] if goals and not exact else []
    outcomes += goals
    outcomes = outcomes or [*_counts(sheet, pair)] or [*read(similar, 1), *read(others, 0)]
    # Other outcomes decide which side has the score 1, unless they say 1 and 2 themselves.
    turned = {outcome.used[::-1] for outcome in outcomes if len(outcome.used) > 1}
    deciding = [
        outcome
        for outcome in outcomes
        if outcome.used not in turned
        and (
            "result" not in outcome.columns
            or not _SECOND & {*chain(*map(words, {*sheet.cells(outcome.used[0])}))}
        )
    ]
    fitting = {each.used for each in outcomes if any(_agree(each, other) for other in deciding)}
    agreed: list[Outcome] = []
    for outcome in outcomes:
        if outcome.used not in fitting and (outcome.unlikely or outcome.used[::-1] in fitting):
            continue
        for at, other in enumerate(agreed):
            if _agree(outcome, other):
                codes = np.where(np.isnan(other.codes), outcome.codes, other.codes)
                agreed[at] = other._replace(codes=codes, used=(*other.used, *outcome.used))
                break
        else:
            agreed.append(outcome)
    return agreed


def _agree(outcome: Outcome, other: Outcome) -> bool:
    """Tell whether two outcomes are the same in all rows that have both, and some have."""
    both = np.isfinite(outcome.codes + other.codes)
    same = np.sign(outcome.codes) == np.sign(other.codes)
    return bool(both.any() and same[both].all())


def named_outcomes(sheet: Sheet, pair: Pair) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the columns whose names are those of outcomes, those that are similar, and others.

    Others are returned where there are none of these: their cells alone may say that they hold
    outcomes.
    """
    if chosen := [name for name in ("winner", "result") if name in sheet.named]:
        return [name for name in chosen if name not in pair[:2]], [], []
    exact, similar, others = list[Any](), list[Any](), list[Any]()
    if sheet.named & {*_SCORES}:
        return exact, similar, others
    sides = set(pair.marker)
    both = [pair for pair in repeated(sheet) if pair.numeric and pair.rest <= GOALS]
    both += side_pairs(sheet, SIDES, sheet.columns)
    twins = {end for side in both for end in side[:2]}
    for column in sheet.columns:
        parts = set(sheet.words(column))
        of_side = parts & {"win", "wins", "won"} and parts & sides
        plainly = parts <= OUTCOMES | BESIDE | sides | {"w", "l"} and not of_side
        if column in pair[:2]:
            continue
        if parts & OUTCOMES or "".join(sheet.words(column)) in OUTCOMES:
            if column not in twins:
                (exact if plainly and not parts & DOUBTFUL - sides else similar).append(column)
        elif parts and not parts & (DOUBTFUL | NOT_LABELS | NOT_OUTCOMES):
            others.append(column)
    if exact or similar or pair.doubtful:
        others = []
    alone = all({*sheet.words(column)} & DOUBTFUL for column in similar)
    return exact, [] if alone and not exact else similar, others


def _read(
    sheet: Sheet,
    pair: Pair,
    columns: Iterable[Any],
    depth: int,
) -> Iterator[Outcome]:
    """Yield the ways to read each of some columns as outcomes, in all cells."""
    for column in columns:
        at, distinct = pd.factorize(sheet.cells(column))
        cells = [" ".join(words(cell)) for cell in distinct]
        bad, unsure = (np.isin(cells, list(said))[at] for said in (BOTH_BAD, UNSURE))
        void = (bad & (sheet.both_bad == "drop")) | (unsure & (sheet.unsure == "drop"))
        described = f"the outcome {sheet.table.called(column)!r}"
        if bad.any():
            described += f" (both were bad {bad.sum()} times: {sheet.both_bad})"
        if unsure.any():
            described += f" (unsure {unsure.sum()} times: {sheet.unsure})"
        if any(not DEGREES.isdisjoint(cell.split()) for cell in cells):
            described += " (how strongly is not read)"
        # Only the name of a column tells that it holds outcomes if all of them are ties.
        plainly = depth > 1 or {"winner", "result"} & sheet.named
        for names, codes in tried_outcomes(sheet, pair, column, depth):
            if _fits(codes, not plainly):
                neither = codes == 0
                sheet.table.refuse(column, unsure & neither & (not sheet.unsure), _TIE_OR_VOID)
                codes = np.where(void & neither, _VOID, codes)
                yield Outcome(described, codes, (column,), names)


def _fits(codes: Codes, least: float = 1) -> bool:
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
    each, parts = sheet.cells(column), {*sheet.words(column)}
    each = np.array([_WON_BY.sub("", cell) for cell in each], dtype=object)
    at, distinct = pd.factorize(each)
    distinct = [re.sub(r"^([01]),5$", r"\1.5", plain(cell)) for cell in distinct]
    labels = {plain(label) for label in {*sheet.cells(pair.first), *sheet.cells(pair.second)}}
    distinct, strengths = zip(*(_verdict(cell, labels) for cell in distinct), strict=True)
    common = np.array([_common(cell, labels, TIES | UNSURE) for cell in distinct])
    by_label, by_result = {"winner": column}, {"result": column}
    named, ways = sheet.named & {"winner", "result"}, list[Way]()

    turned = {"first": pair.second, "second": pair.first, **by_result}

    def add(read: Callable[[str], float], columns: Mapping[str, Any] = by_result) -> None:
        codes = np.array([*map(read, distinct)])
        ways.append((columns, np.where(np.isfinite(codes), codes * strengths, common)[at]))

    def add_words(sides: Sequence[str], sign: float = 1.0, *, both: bool = False) -> None:
        coding = dict(zip(sides, (sign, -sign, 0.0), strict=False))

        def code(cell: str) -> float:
            return coding.get(_side(cell, coding, pair.rest), np.inf)

        add(code)
        if both:
            add(lambda cell: -code(cell), turned)

    if "result" not in named:
        ties = np.array([len(cell) > 2 and cell in TIES for cell in distinct])[at]
        for labeled in (pair, *(other for other in pair.ids if column not in other[:2])):
            first, second = map(sheet.cells, labeled[:2])
            won = 1.0 * (each == first) - (each == second)
            ways.append((by_label, np.where(won != 0, won, common[at])))
            tied = (won != 0) & ties
            if tied.any() and not (common == 0).any():
                ways.append(({}, np.where(tied, 0.0, ways[-1][1])))
    if named == {"winner"} and any(_fits(codes) for _, codes in ways):
        return [way for way in ways if _fits(way[1])][:1]
    add_words(pair.marker)
    add_words([side[0] for side in pair.marker])
    fits, numbers = any(_fits(codes) for _, codes in ways), depth > 1 or named
    sign = -1.0 if pair.marker[1] in parts and pair.marker[0] not in parts else 1.0
    kind = KIND_OF_SIDES.get(pair.marker)
    no_first = kind in UNORDERED and not pair.ordered and parts.isdisjoint(pair.marker)
    if numbers and (fits or "2" in distinct):
        add_words(("1", "2", "1.5"), both=no_first)
    if fits or _fits(ways[-1][1]):
        return ways
    # Other words for sides: "B" is one where it is no label, and the columns are 1 and 2. Beside
    # home and away, A>B and B>A may be verdicts of which A is either side, or orders of A and B.
    apart = not (pair.ordered or pair.decided or named) and re.fullmatch(
        "[^=]*[<>][^=]*", "".join({*each})
    )
    for sides, other in {} if apart or pair.decided else KIND_OF_SIDES.items():
        if sides[0] not in "01":
            clear = pair.ordered and (other not in UNORDERED or pair[:2] == _PAIR)
            clear |= kind == other
            add_words(sides, both=not clear)
    if not depth:
        return ways
    for sides in RESULTS:
        add_words(sides, sign)
    for cell, *coded in CODED if numbers else ():
        # Scales of preference often begin at the first side, with numbers below 0.
        if cell in distinct and (cell != "-1" or named or parts & BESIDE_LOSER):
            add_words(coded, sign, both=no_first)
    if numbers and parts & OF_SIDES and {*distinct} <= {"0", "1", ""} and not named:
        add(lambda cell: {"0": 1.0, "1": -1.0}.get(cell, np.inf), turned)
    add(dict(zip(distinct, _margins(distinct), strict=True)).__getitem__)
    if "result" in named and "-" in "".join(distinct):
        signed = re.compile(r"[+-]?\d{1,2}").fullmatch
        add(lambda cell: float(cell) if signed(cell) else np.inf)
    return ways


def _verdict(cell: str, labels: set[str]) -> tuple[str, int]:
    """Return the side that a verdict such as A>>B names, and how strongly; other cells as is."""
    match = _VERDICT(cell)
    if match is None or not labels.isdisjoint({cell, match[1], match[3]}):
        return cell, 1
    return {"<": match[3], "=": "tie"}.get(match[2][0], match[1]), len(match[2])


def _side(cell: str, sides: Collection[str], rest: Collection[str] = ()) -> str:
    """Return the words of a cell without those that say nothing of a side."""
    if is_numeric([cell]):
        return cell
    beside = BESIDE | DEGREES | {*rest}
    return " ".join(word for word in words(cell) if word in sides or word not in beside)


def _common(cell: str, labels: Collection[str] = (), ties: Collection[str] = TIES) -> float:
    """Return the code of a tie, a blank or a void answer, and infinity for another cell."""
    said = {cell, " ".join(words(cell)), _side(cell, ())}
    if cell in ("", "-", "–", "?"):
        return np.nan
    if said & VOID and cell not in labels:
        return _VOID
    return 0.0 if said & (BOTH_BAD | {*ties}) and cell not in labels else np.inf


def _margins(cells: Iterable[str]) -> Floats:
    """Return the signs of scores such as 2:1 or 1:1 (4:3), and infinity for other cells."""
    texts = [_SHOOTOUT.sub(r"\1:\3 (\2:\4)", cell.replace("½", ".5")) for cell in cells]
    scores = [
        [*map(float, re.findall(_NUMBER, text)), 0, 0][:4] if _SCORE(text) else [np.nan] * 4
        for text in texts
    ]
    first, second, more, less = np.array(scores).T
    # Numbers in parentheses are those at half time, unless some are higher than those before them.
    shootout = (first == second) & (np.maximum(more, less) > np.maximum(first, second)).any()
    margins = np.sign(np.where(shootout, more - less, first - second))
    return np.where(np.isnan(margins), np.inf, margins)


def _goals(sheet: Sheet, pair: Pair, markers: Sequence[tuple[str, ...]]) -> Iterator[Outcome]:
    """Read the outcome from the goals or points of the two sides, told apart by ``markers``."""
    sides = [
        (side[:2], side.marker)
        for side in (side.along(pair) for side in side_pairs(sheet, markers, sheet.columns))
        if (side.rest & GOALS and side.rest <= GOALS | BESIDE) or side.marker in _GOALS
    ]
    if sheet.named & {*_SCORES}:
        sides = [(_SCORES, pair.marker)] if {*_SCORES} <= sheet.named else []
    before: dict[int, Any] = {1: np.nan, -1: np.nan}
    for ends, marker in sides:
        cells, sure = [*map(sheet.cells, ends)], marker == pair.marker
        numeric = all(map(is_numeric, cells))
        if numeric:
            first, second = (pd.to_numeric(pd.Series(goals)).to_numpy() for goals in cells)
            # Numbers of a result may be places; those that add up to 1 are not.
            sure &= bool((first + second == 1).all()) or ends == _SCORES
            if {"result", "res"} & {*sheet.words(ends[0])} and not sure:
                continue
            for end in ends:
                sheet.table.check_marks(sheet.table.frame[end])
            codes, described = np.sign(first - second), "the higher of"
        else:
            codes, described = np.array([*map(_apart, *cells)]), "the winner by"
            if not _fits(codes):
                continue
        described += f" {ends[0]!r} and {ends[1]!r}"
        either = marker in ORDERED and not pair.ordered
        # Home is most often the side 1, where it is before the other.
        at = [*map(sheet.columns.index, (*pair[:2], *ends))]
        home = pair.marker[0] in ADVANTAGE["home"] and marker != ("a", "b")
        by_place = home and at[0] < at[1] and at[2] < at[3]
        for sign in (1, -1)[: 1 + either]:
            scores, unlikely = ends[::sign], by_place and sign < 0
            said = np.where(np.isfinite(codes), sign * codes, codes)
            if numeric:  # penalties are blank where goals decide
                said = before[sign] = np.where(np.isnan(said), before[sign], said)
            how = f" ({ends[0]!r} of {pair[:2][::sign][0]!r}{', which is first' * by_place})"
            names = dict(zip(_SCORES, scores, strict=True))
            yield Outcome(described + how * either, said, scores, names, unlikely=unlikely)


def _apart(first: str, second: str) -> float:
    """Return the code of results of both sides: win and resigned, or the same if neither won."""
    if first == second not in WON:
        return min(_common(first), 0.0)
    return (first in WON) - (second in WON) or np.inf


def _counts(sheet: Sheet, pair: Pair) -> Iterator[Outcome]:
    """Read how often each side won and neither did, or by 1 and 0 which of the three holds."""
    others = [column for column in sheet.columns if column not in pair[:2]]
    for side in side_pairs(sheet, SIDES, others):
        if not side.rest & COUNTED:
            continue
        side = side.along(pair)
        ties = [
            name
            for name in others
            if " ".join(part for part in sheet.words(name) if part not in side.rest) in TIES
        ]
        used = (*side[:2], *ties[:1])
        texts = [[_TRUTHS.get(cell.lower(), cell) for cell in sheet.cells(name)] for name in used]
        if not all(cell.isdecimal() for cells in texts for cell in cells):
            continue
        counts = np.array(texts, dtype=np.float64)
        wrong = counts.sum(axis=0) != 1
        if counts.max() <= 1 and wrong.any() and ("winner" in side.rest or not ties):
            raise DataError(
                f"{sheet.table.place(int(wrong.argmax()))}: not exactly one of {listed(used)} is "
                "true; correct the row, or drop it, or add 'winner_tie', true where neither won"
            )
        none = np.full(len(wrong), np.nan)
        yield Outcome(f"the counts {listed(used)}", none, used, {}, counts)


def _marks(sheet: Sheet, pair: Pair) -> Iterator[tuple[Any, Codes]]:
    """Yield columns that mark ties or void answers beside an outcome, and the codes of these."""
    for column in sheet.columns:
        parts, cells = {*sheet.words(column)} - {"is", "was", "both"}, sheet.cells(column)
        tie, lower = " ".join(parts) in TIE_NAMES, [cell.lower() for cell in cells]
        numbers = is_numeric(cells) and not {*cells} <= {"1", "0.5", ""}
        if (tie or parts & CANCELED) and {*lower} <= TRUE | FALSE:
            yield column, np.where(np.isin(lower, [*TRUE]), 0.0 if tie else _VOID, np.nan)
        elif pair.decided and parts & BESIDE_LOSER and column not in pair[:2] and not numbers:
            texts = [*map(plain, cells)]
            said = np.minimum([*map(_common, texts)], np.abs(_margins(texts)))
            if (said <= 0).any():
                yield column, said


def _with_outcome(sheet: Sheet, pair: Pair, outcome: Outcome) -> Table:
    """Return the pairs with their winners and ties, without rows that have no outcome."""
    codes, used, table, notes = (
        outcome.codes.astype(float),
        list(outcome.used),
        sheet.table,
        list[str](),
    )
    if outcome.counts is not None:
        rows, sides = np.nonzero(outcome.counts.T)
        count = outcome.counts[sides, rows]
        read = table.without(used).take(rows)
        read = read.assign(count=count.astype(int)) if count.max() > 1 else read
        return _with_winners(read, pair, np.array([1.0, -1.0, 0.0])[sides])
    for column, marks in _marks(sheet, pair):
        if column in used:
            continue
        wrong = (marks == 0) & np.isfinite(codes) & (codes != 0) & (not pair.decided)
        table.refuse(column, wrong, ", and yet the row has a winner; correct one of the cells")
        codes = np.where(marks <= 0, marks, codes)
        used.append(column)
    for end in pair[:2]:
        codes[[cell.lower() == "bye" for cell in sheet.cells(end)]] = np.nan
    rows = np.flatnonzero(np.isfinite(codes))
    if left_out := len(codes) - len(rows):
        notes.append(f"left out: {counted(left_out, 'row')} without an outcome")
    if pair.marker[1].startswith("opp"):
        left, right = (sheet.cells(end)[rows] for end in pair[:2])
        answers = Counter(zip(left, right, codes[rows], strict=True))
        if answers == Counter(zip(right, left, -codes[rows], strict=True)):
            notes.append("each answer is in two rows, one for each side, and counted once")
            rows = rows[left < right]
    read = table.without(used).take(rows)
    return replace(_with_winners(read, pair, codes[rows]), notes=(*read.notes, *notes))


def _with_winners(table: Table, pair: Pair, codes: Codes) -> Table:
    """Return pairs with the columns of their form, and tie if there are ties."""
    names = dict(zip(pair[:2], _DECIDED if pair.decided else _PAIR, strict=True))
    others = {*_PAIR, *_DECIDED, "result", "probability", "tie"} & {*table.frame.columns}
    read = table.rename({name: f"other {name}" for name in others - {*names}} | names)
    columns: dict[str, Any] = {"tie": codes == 0} if (codes == 0).any() else {}
    columns |= {"strength": np.abs(codes).astype(int)} if (np.abs(codes) > 1).any() else {}
    if not pair.decided:
        ends = [read.frame[name].to_numpy(dtype=object) for name in _PAIR]
        columns["winner"] = np.where(codes > 0, *ends)
        columns["winner"][codes == 0] = None
    return read.assign(**columns)
