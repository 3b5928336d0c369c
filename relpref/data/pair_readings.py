"""Ways to read a table of answers as pairs: winners and losers, outcomes, goals, counts."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.arrays import Columns, Texts, counted, listed
from relpref.data.outcome_cells import (
    VOIDED,
    Codes,
    code_of_results,
    common_code,
    fits,
    margins,
    tried_outcomes,
    void_of,
    walkovers,
)
from relpref.data.readings import (
    ADVANTAGE,
    BESIDE,
    BESIDE_LOSER,
    BOTH_BAD,
    COMMENTS,
    COUNTED,
    DECIDED,
    DEGREES,
    DOUBTFUL,
    FALSE,
    GOALS,
    MARGINS,
    NO_VERDICTS,
    NOT_ITEMS,
    NOT_LABELS,
    NOT_OUTCOMES,
    NUMBERS,
    ORDERED,
    OUTCOMES,
    SHORT_GOALS,
    SHOWN,
    SIDES,
    SWAPPED,
    TIE_NAMES,
    TIES,
    TRUE,
    UNSURE,
    VOID,
    Reading,
    Readings,
    Sheet,
    cells_note,
    is_numeric,
    plain,
    words,
)
from relpref.data.sides import (
    PAIR,
    WINNER_LOSER,
    Pair,
    are_verdicts,
    is_quiz,
    label_pairs,
    repeated,
    share_labels,
    side_pairs,
)
from relpref.errors import DataError

_TRUTHS = dict.fromkeys(FALSE, "0") | dict.fromkeys(TRUE, "1")
_SCORES = ("first_score", "second_score")
_TIE_OR_VOID = (
    " may be a tie or no answer; say unsure='tie' (--unsure tie), or unsure='drop' (--unsure drop)"
)
# What parts the names of the two sides in a cell, or in the name of a column.
_VERSUS = re.compile(
    r"(?i)(?:\s+|[._-]+)(?:vs?\.?|versus|or|gegen|contre|contra)(?:\s+|[._-]+)|\s+[x–—@-]\s+"
).split


# Cells of results that were not played to the end, such as 3-0 ff and 6-3 2-1 RET.
_CUT_SHORT = re.compile(
    r"(?i)(.*[^a-z])?(ff|forfeit(ed)?|w/?o|walkover|ret(ired|irement)?|def(ault)?|awarded|awd"
    r"|abandoned|aufgabe|abandon|kampflos)\.?\)?|.*\d[fr]"
).fullmatch
_AT = " @ "  # between the visitor and home
_APART = ("club", "opponent")  # sides whose answers may be in two rows each


class Outcome(NamedTuple):
    """One way to read who was preferred."""

    description: str
    codes: Codes
    used: frozenset[Any]  # the columns that hold it
    columns: Columns  # these, by the names used here
    counts: Any = None  # how often the first won, the second won, and neither did, in each row
    unlikely: bool = False  # whether it is one only where another outcome says the same


def pairs(sheet: Sheet) -> Readings:
    """Read winners and losers, or pairs with an outcome, goals or counts of both sides."""
    for pair in label_pairs(sheet):
        # What is called other_movie may be a free text.
        if pair.marker[1] == "other" and not share_labels(sheet, pair):
            continue
        outcomes = [*(_decided if pair.decided else _outcomes)(sheet, pair)]
        for number, outcome in enumerate(outcomes):
            # Only the first outcome of winners and losers is that they are these.
            sided = pair._replace(decided=pair.decided and not number)
            ends = {} if sided.decided else dict(zip(PAIR, pair.ends, strict=True))
            said = np.array([other.codes for other in (outcomes[0], outcomes[-1])], float)
            codes = np.where(np.isfinite(said), np.sign(said), np.nan)
            # A row that tells two readings apart, or in which one side won.
            apart = codes[0] != codes[1]
            telling = np.isfinite(codes).all(axis=0) & (apart | (codes[0] != 0))
            row = int((telling * (1 + apart)).argmax())
            code = outcome.codes[row]
            place = sheet.place(row)
            won = {1: pair.first, -1: pair.second}.get(np.isfinite(code) and np.sign(code))
            better = f"{sheet.cells(won)[row]!r} wins" if won else "nobody wins"
            example = f", by which {better} in {place.removeprefix(f'{sheet.name}, ')}"
            outcome = outcome._replace(columns=outcome.columns and {**ends, **outcome.columns})
            yield Reading(
                f"pairs of {sheet.called(pair.first)!r} and {sheet.called(pair.second)!r} with "
                + outcome.description
                + example * bool(telling.any()),
                partial(_with_outcome, sheet, sided, outcome),
                outcome.columns,
            )


def versus(sheet: Sheet) -> Readings:
    """Read pairs whose two sides are in a cell, such as A vs. B."""
    for column in sheet.columns:
        cells = sheet.cells(column)
        sides = [*map(_VERSUS, cells)]
        if {*map(len, sides)} == {2} and not sheet.parts(column) & NOT_ITEMS:
            first, second = zip(*sides, strict=True)
            if {*first} & {*second}:
                at_home = {_AT in cell for cell in cells}
                ends = ("visitor", "home") if at_home == {True} else PAIR
                if len(at_home) == 2:  # the first may be either, and each answer in two rows
                    ends = _APART
                where = repr(sheet.called(column))
                yield from _parted(sheet.without([column]), where, sides, ends, [column])


def versus_in_names(sheet: Sheet) -> Readings:
    """Read pairs whose two sides are in the names of columns, such as A vs. B, or A or B?."""
    named = {}
    answers = []
    for column in sheet.columns:
        name = str(sheet.called(column)).strip(" ?")
        cells = sheet.cells(column)
        labels = {words(side): side for side in _VERSUS(name)}
        others = {plain(cell) for cell in cells if words(cell) not in labels}
        ties = len(others) < len({*cells}) and np.inf not in map(common_code, others)
        if len(labels) == 2 and ties:
            named[column] = [*labels.values()]
            answers.append([labels.get(words(cell), cell) for cell in cells])
    if named and "winner" not in sheet.columns:
        size = len(sheet.frame)
        read = sheet.without(named).take(np.repeat(np.arange(size), len(named)))
        read = read.assign(winner=[*chain(*zip(*answers, strict=True))])
        yield from _parted(read, listed(named), [*named.values()] * size)


def crossed(sheet: Sheet) -> Readings:
    """Read counts of wins, or results, of items in rows against those that name columns.

    The name of the column of the items in rows says whether these won, or are first in results.
    """
    label = sheet.columns[0]
    items = sheet.cells(label)
    if not sheet.is_crossed:
        return
    cells = sheet.texts(items)
    numbers = pd.DataFrame(cells).apply(pd.to_numeric, errors="coerce")
    if numbers.iloc[:-1].sum().equals(numbers.iloc[-1]):  # sums
        items = items[:-1]
        cells = cells[:-1, :-1]
    apart = (items[:, np.newaxis] != items) & (cells != "")
    counts = all(map(str.isdecimal, cells[apart]))
    rows, at = np.nonzero(apart & ~(counts & (cells == "0")))
    read = sheet.without([label, *items]).take(rows)
    cells = cells[rows, at]
    kind, answers = ("count", cells.astype(int)) if counts else ("result", cells)
    ends, names = (WINNER_LOSER, WINNER_LOSER) if counts else (PAIR, _APART)
    for end, first, second in ((ends[0], rows, at), (ends[1], at, rows)):
        table = read.assign(**{names[0]: items[first], names[1]: items[second], kind: answers})
        if not sheet.named & {*ends} - {end}:
            what = f"{kind}s in which the item in {sheet.called(label)!r} is the {end}"
            for reading in pairs(replace(table, named=frozenset())):
                yield reading._replace(description=what, columns={end: label})


def _parted(
    table: Sheet,
    where: str,
    sides: list[list[str]],
    ends: Sequence[str] = PAIR,
    parted: Sequence[Any] = (),
) -> Readings:
    """Read pairs whose sides were elsewhere than in two columns, such as in one, ``parted``."""
    first, second = map(list, zip(*sides, strict=True))
    if {*PAIR, *ends} & {*table.columns} or is_numeric(first + second):
        return
    # The user may say by the name of the column which side is before the other.
    names = {("first",): PAIR, ("second",): PAIR[::-1]}.get(tuple(parted), ends)
    read = table.assign(**dict(zip(names, (first, second), strict=True)))
    read = replace(read, given={**read.given, **dict(zip(names, ends, strict=True))})
    for reading in pairs(read):
        columns = {ours: name for ours, name in reading.columns.items() if ours not in PAIR}
        columns |= {PAIR[ends[0] != reading.columns.get("first")]: column for column in parted}
        what = re.sub("'\\w+' and '\\w+'", f"the sides in {where}", reading.description, count=1)
        read = reading.table()
        read = replace(read, given={**read.given, **dict.fromkeys(PAIR, where)})
        yield Reading(what, partial(replace, read), columns)


def _decided(sheet: Sheet, pair: Pair) -> Iterator[Outcome]:
    """Yield that the first won, but for what other columns mark, and scores that contradict it."""
    columns = dict(zip(WINNER_LOSER, pair.ends, strict=True))
    what = "the first preferred"
    if marking := [column for column, _ in _marks(sheet, pair)]:
        what += f", and ties or void answers by {listed(marking)}"
    yield Outcome(what, np.ones(len(sheet.frame)), frozenset(), columns)
    scores = [name for name in sheet.columns if sheet.parts(name) & BESIDE_LOSER]
    others = chain(_read(sheet, pair, scores, 1), _goals(sheet, pair, DECIDED))
    for outcome in () if sheet.named & {*WINNER_LOSER} else others:
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
    # A judge that is a program may disagree with people, but a winner's hand says nothing.
    beside = [name for name in similar if not sheet.parts(name) & NO_VERDICTS]
    stated = pair.doubtful or {"winner", "result"} & sheet.named
    goals = [] if stated else [*_goals(sheet, pair, SIDES + SHORT_GOALS)]
    outcomes = [*read(exact, 1 if pair.doubtful else 2)]
    outcomes += [*read(beside if exact else similar, 1)] if goals or exact else []
    outcomes += goals
    outcomes = outcomes or [*_counts(sheet, pair)] or [*read(similar, 1), *read(others, 0)]
    given = {"winner", "result", "swapped"} & sheet.named
    for name, how, swapped in _swaps(sheet, pair) if not given or "swapped" in given else ():
        turned = [
            outcome._replace(
                description=f"{outcome.description}, sides exchanged where {name!r} {how}",
                codes=np.where(swapped & np.isfinite(outcome.codes), -outcome.codes, outcome.codes),
                columns={**outcome.columns, "swapped": name},
            )
            for outcome in outcomes
            if "result" in outcome.columns
            # What names a side by its column names no place on a screen.
            and (
                how == "is true"
                or given
                or pair.marker[0] not in chain(*map(words, sheet.cells(*outcome.used)))
            )
        ]
        outcomes = turned if given else outcomes + turned
    # Columns that are read in one way alone decide how others are, such as whose the score 1 is.
    ways = Counter(outcome.used for outcome in outcomes)
    deciding = [outcome for outcome in outcomes if ways[outcome.used] == 1]

    def fitting(outcome: Outcome) -> bool:
        return any(_agree(outcome, other) for other in deciding)

    decided = {outcome.used for outcome in outcomes if fitting(outcome)}
    agreed: list[Outcome] = []
    for outcome in outcomes:
        if (outcome.unlikely or outcome.used in decided) and not fitting(outcome):
            continue
        for at, other in enumerate(agreed):
            if _agree(outcome, other):
                codes = np.where(np.isnan(other.codes), outcome.codes, other.codes)
                agreed[at] = other._replace(codes=codes, used=other.used | outcome.used)
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
        return [name for name in chosen if name not in pair.ends], [], []
    exact = list[Any]()
    similar = list[Any]()
    others = list[Any]()
    if sheet.named & {*_SCORES}:
        return exact, similar, others
    sides = {*pair.marker}
    both = [pair for pair in repeated(sheet) if pair.numeric and pair.rest <= GOALS]
    both += side_pairs(sheet, SIDES, sheet.columns)
    twins = {end for side in both for end in side.ends}
    for column in sheet.columns:
        parts = sheet.parts(column)
        cells = sheet.cells(column)
        amounts = is_numeric({*cells} - void_of(cells)) or sheet.marked(column) is not None
        # Numbers of one side say nothing without those of the other; of chess, they do.
        points = parts & sides and parts & GOALS & NOT_LABELS - {"result"} and "0.5" not in cells
        of_side = parts & {"win", "wins", "won"} and parts & sides
        plainly = parts <= OUTCOMES | BESIDE | sides | {"w", "l"} and not of_side
        if column in pair.ends or ((points or column in twins) and amounts):
            continue
        if is_quiz(sheet, pair, column):
            return [], [], []
        if are_verdicts(sheet, column):
            exact.append(column)
        elif parts & OUTCOMES or "".join(sheet.words(column)) in OUTCOMES:
            (exact if plainly and not parts & DOUBTFUL - sides else similar).append(column)
        elif parts and not parts & (DOUBTFUL | NOT_LABELS | NOT_OUTCOMES):
            others.append(column)
    if exact or similar or pair.doubtful:
        others = []
    alone = all(sheet.parts(column) & DOUBTFUL for column in similar)
    return exact, [] if alone and not exact else similar, others


def _read(sheet: Sheet, pair: Pair, columns: Iterable[Any], depth: int) -> Iterator[Outcome]:
    """Yield the ways to read each of some columns as outcomes, in all cells."""
    for column in columns:
        at, distinct = pd.factorize(sheet.cells(column))
        cells = [" ".join(words(cell)) for cell in distinct]
        bad, unsure = (np.isin(cells, list(said))[at] for said in (BOTH_BAD, UNSURE))
        void = (bad & (sheet.both_bad == "drop")) | (unsure & (sheet.unsure == "drop"))
        described = f"the outcome {sheet.called(column)!r}"
        if bad.any():
            described += f" (both were bad {bad.sum()} times: {sheet.both_bad})"
        if unsure.any():
            described += f" (unsure {unsure.sum()} times: {sheet.unsure})"
        margin = sheet.parts(column) & MARGINS
        if margin or any(DEGREES & {*cell.split()} for cell in cells):
            described += " (how strongly is not read)"
        # Only the name of a column tells that it holds outcomes if all of them are ties.
        plainly = depth > 1 or {"winner", "result"} & sheet.named
        for names, codes in tried_outcomes(sheet, pair, column, depth):
            if fits(codes, not plainly):
                neither = codes == 0
                sheet.refuse(column, unsure & neither & (not sheet.unsure), _TIE_OR_VOID)
                codes = np.where(void & neither, VOIDED, np.sign(codes) if margin else codes)
                yield Outcome(described, codes, frozenset({column}), names)


def _swaps(sheet: Sheet, pair: Pair) -> Iterator[tuple[Any, str, Any]]:
    """Yield columns that tell in which rows the two sides were exchanged, if any, and how."""
    for column in sheet.named & {"swapped"} or sheet.columns:
        parts = sheet.parts(column)
        cells = sheet.cells(column)
        named = column == "swapped" or parts & SWAPPED
        if named and np.any(truths := sheet.marked(column)):
            yield column, "is true", truths
        elif pair.marker[1] in parts:
            continue
        elif column not in (*pair.ends, "shown_first") and (named or parts & SHOWN):
            tried = tried_outcomes(replace(sheet, named=frozenset()), pair, column, 0)
            ways = [codes for _, codes in tried if fits(codes)]
            last = max(cells)
            if {last} < {*cells} <= {last, last[::-1], f"a{last[1:]}"}:  # as AB and BA
                yield column, f"is {last!r}", cells == last
            elif ways:
                yield column, f"names {pair.second!r}", ways[0] < 0


def _goals(sheet: Sheet, pair: Pair, markers: Sequence[Texts]) -> Iterator[Outcome]:
    """Read the outcome from the goals or points of the two sides, told apart by ``markers``."""
    sides = [
        (side.ends, side.marker)
        for side in (side.along(pair) for side in side_pairs(sheet, markers, sheet.columns))
        if (side.rest & GOALS and side.rest <= GOALS | BESIDE) or side.marker in SHORT_GOALS
        if not {"penalty", "points"} <= side.rest  # of which few win
    ]
    if sheet.named & {*_SCORES}:
        sides = [(_SCORES, pair.marker)] if {*_SCORES} <= sheet.named else []
    before: dict[int, Any] = {1: np.nan, -1: np.nan}
    for ends, marker in sides:
        cells = [*map(sheet.cells, ends)]
        void = [*void_of(chain(*cells))]
        cells = [np.where(np.isin(side, void), "", side) for side in cells]
        sure = marker == pair.marker
        numeric = all(map(is_numeric, cells))
        if numeric:
            first, second = (pd.to_numeric(pd.Series(goals)).to_numpy() for goals in cells)
            # Numbers of a result may be places; those that add up to 1 are not.
            sure &= bool((first + second == 1).all()) or ends == _SCORES
            if sheet.parts(ends[0]) & {"result", "res"} and not sure:
                continue
            for end in ends:
                sheet.check_marks(sheet.frame[end])
            codes = np.sign(first - second)
            described = "the higher of"
        else:
            codes = np.array([*map(code_of_results, *cells)])
            described = "the winner by"
            if not fits(codes):
                continue
        described += f" {sheet.called(ends[0])!r} and {sheet.called(ends[1])!r}"
        either = marker in ORDERED and not pair.ordered
        # Home is most often the side 1, where it is before the other.
        at = [*map(sheet.columns.index, (*pair.ends, *ends))]
        home = pair.marker[0] in ADVANTAGE["home"] and marker != ("a", "b")
        by_place = home and at[0] < at[1] and at[2] < at[3]
        for sign in (1, -1)[: 1 + either]:
            said = np.where(np.isfinite(codes), sign * codes, codes)
            if numeric:  # penalties are blank where goals decide
                said = before[sign] = np.where(np.isnan(said), before[sign], said)
            how = f" ({ends[0]!r} of {pair.ends[::sign][0]!r}{', which is first' * by_place})"
            names = dict(zip(_SCORES, ends[::sign], strict=True))
            used = frozenset(ends)
            unlikely = by_place and sign < 0
            yield Outcome(described + how * either, said, used, names, unlikely=unlikely)


def _counts(sheet: Sheet, pair: Pair) -> Iterator[Outcome]:
    """Read how often each side won and neither did, or by 1 and 0 which of the three holds."""
    others = [column for column in sheet.columns if column not in pair.ends]
    for side in side_pairs(sheet, SIDES, others):
        by_count = side.rest & COUNTED
        if not by_count and (side.numeric or not side.rest & OUTCOMES) or side.rest & DOUBTFUL:
            continue
        side = side.along(pair)
        ties = [
            name
            for name in others
            if " ".join(part for part in sheet.words(name) if part not in side.rest) in TIES
        ]
        used = (*side.ends, *ties[:1])
        texts = [[_TRUTHS.get(cell.lower(), cell) for cell in sheet.cells(name)] for name in used]
        if not all(cell.isdecimal() for cells in texts for cell in cells):
            continue
        counts = np.array(texts, dtype=np.float64)
        wrong = counts.sum(axis=0) != 1
        if wrong.any() and not by_count:
            continue
        if counts.max() <= 1 and wrong.any() and ("winner" in side.rest or not ties):
            raise DataError(
                f"{sheet.place(int(wrong.argmax()))}: not exactly one of {listed(used)} is "
                "true; correct the row, or drop it, or add 'winner_tie', true where neither won"
            )
        none = np.full(len(wrong), np.nan)
        yield Outcome(f"the counts {listed(used)}", none, frozenset(used), {}, counts)


def _marks(sheet: Sheet, pair: Pair) -> Iterator[tuple[Any, Codes]]:
    """Yield columns that mark ties or void answers beside an outcome, and the codes of these."""
    for column in sheet.columns:
        parts = sheet.parts(column) - {"is", "was", "both"}
        cells = sheet.cells(column)
        tie = " ".join(parts) in TIE_NAMES
        truths = sheet.marked(column)
        numbers = is_numeric(cells) and not {*cells} <= {"1", "0.5", ""}
        if (tie or parts & VOID - NUMBERS) and truths is not None:
            yield column, np.where(truths, 0.0 if tie else VOIDED, np.nan)
        elif pair.decided and parts & BESIDE_LOSER and column not in pair.ends and not numbers:
            texts = [*map(plain, cells)]
            said = np.minimum([*map(common_code, texts)], np.abs(margins(texts)))
            if (said <= 0).any() or any(map(_CUT_SHORT, cells)):
                yield column, said
        elif not sheet.named & {"winner", "result", "first_score"} and (
            (void := walkovers(sheet, column)).any()
        ):
            yield column, np.where(void, VOIDED, np.nan)


def _with_outcome(sheet: Sheet, pair: Pair, outcome: Outcome) -> Sheet:
    """Return the pairs with their winners and ties, without rows that have no outcome."""
    codes = outcome.codes.astype(float)
    used = [*outcome.used, *sheet.named & {"swapped"}]
    notes = []
    if outcome.counts is not None:
        rows, sides = np.nonzero(outcome.counts.T)
        count = outcome.counts[sides, rows]
        read = sheet.without(used).take(rows)
        read = read.assign(count=count.astype(int)) if count.max() > 1 else read
        return _with_winners(read, pair, np.array([1.0, -1.0, 0.0])[sides])
    for column, marks in _marks(sheet, pair):
        if column in used:
            continue
        wrong = (marks == 0) & np.isfinite(codes) & (codes != 0) & (not pair.decided)
        sheet.refuse(column, wrong, ", and yet the row has a winner; correct one of the cells")
        codes = np.where(marks <= 0, marks, codes)
        used.append(column)
        if sheet.parts(column) & COMMENTS:
            void = sheet.cells(column)[marks < 0]
            what = f"left out by {sheet.called(column)!r}"
            counts = f"; {sheet.option(outcome.columns)} counts them" * bool(outcome.columns)
            notes += [note + counts for note in cells_note(what, void)]
    for end in pair.ends:
        codes[[cell.lower() == "bye" for cell in sheet.cells(end)]] = np.nan
    rows = np.flatnonzero(np.isfinite(codes))
    if left_out := len(codes) - len(rows):
        notes.append(f"left out: {counted(left_out, 'row')} without an outcome")
    if pair.marker[1].startswith("opp"):
        left, right = (sheet.cells(end)[rows] for end in pair.ends)
        answers = Counter(zip(left, right, codes[rows], strict=True))
        if answers == Counter(zip(right, left, -codes[rows], strict=True)):
            notes.append("each answer is in two rows, one for each side, and counted once")
            rows = rows[left < right]
    for column in sheet.columns:
        if column in used or sheet.parts(column) & (BESIDE_LOSER | COMMENTS):
            what = f"counted, though not played to the end by {sheet.called(column)!r}"
            notes += cells_note(what, [*filter(_CUT_SHORT, sheet.cells(column)[rows])])
    if "shown_first" in sheet.columns:  # by labels, or by words for sides
        tried = tried_outcomes(replace(sheet, named=frozenset()), pair, "shown_first", 0)
        for first in [first for _, first in tried if fits(first)][:1]:
            left, right = (sheet.frame[end].to_numpy(dtype=object) for end in pair.ends)
            shown = np.where(first > 0, left, np.where(first < 0, right, None))
            sheet = sheet.assign(shown_first=shown)
    read = sheet.without(used).take(rows)
    return _with_winners(read, pair, codes[rows]).noted(*notes)


def _with_winners(table: Sheet, pair: Pair, codes: Codes) -> Sheet:
    """Return pairs with the columns of their form, and tie if there are ties."""
    names = dict(zip(pair.ends, WINNER_LOSER if pair.decided else PAIR, strict=True))
    others = {*PAIR, *WINNER_LOSER, "result", "probability", "tie"} & {*table.columns}
    read = table.rename({name: f"other {name}" for name in others - {*names}} | names)
    columns = {"tie": codes == 0} if (codes == 0).any() else {}
    columns |= {"strength": np.abs(codes).astype(int)} if (np.abs(codes) > 1).any() else {}
    if not pair.decided:
        ends = [read.frame[name].to_numpy(dtype=object) for name in PAIR]
        columns["winner"] = np.where(codes > 0, *ends)
        columns["winner"][codes == 0] = None
    return read.assign(**columns)
