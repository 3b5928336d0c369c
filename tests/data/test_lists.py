"""Lists among answers: read from every form, reduced to neighboring pairs, selected whole, joined,
taken back and written.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relpref
from relpref import PreferenceData
from relpref.data import Rankings
from relpref.data.comparisons import changed
from relpref.data.rankings import read_ballots
from relpref.data.tables import Table
from relpref.errors import DataError

ITEMS = list("abcde")
ORDER, CHOICE, SHOWN = (
    ["list", "item", "place"],
    ["choice", "item", "chosen"],
    ["best", "worst", "item_1", "item_2", "item_3"],
)
ORDERS = pd.DataFrame(
    [("x", "a", 1), ("x", "b", 2), ("x", "c", None), ("y", "c", 1), ("y", "a", 1), ("y", "d", 2)],
    columns=ORDER,
)


def orders(lists: list[list[str]]) -> pd.DataFrame:
    """Orders of blocks, such as ["a", "bc", "d"]."""
    rows = [
        (number, item, place)
        for number, blocks in enumerate(lists)
        for place, block in enumerate(blocks, 1)
        for item in block
    ]
    return pd.DataFrame(rows, columns=ORDER)


def read(table: Any, **options: Any) -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, table, **options)


def pairs_of(data: PreferenceData) -> list[tuple[int, str]]:
    answers = data.comparisons
    number = np.full(len(answers.winner), -1) if answers.list is None else answers.list
    ends = zip(number.tolist(), answers.winner, answers.loser, strict=True)
    return [(at, ITEMS[winner] + ITEMS[loser]) for at, winner, loser in ends]


def same(one: Any, other: Any) -> None:
    """Equal columns."""
    assert one.columns.keys() == other.columns.keys()
    for name, column in one.columns.items():
        np.testing.assert_allclose(column, other.columns[name], rtol=1e-12, err_msg=name)


BLOCKS = [["d", "a", "c"], ["b", "acd"], ["a", "bc", "d"], ["ab", "cd"], ["e", "a"]]


@pytest.mark.parametrize(
    ("table", "pairs", "note"),
    [
        (
            orders(BLOCKS),
            [
                (-1, "ea"),
                *[(0, "ac"), (0, "da")],
                *[(1, "ba"), (1, "bc"), (1, "bd")],
                *[(2, "ab"), (2, "ac"), (2, "bd"), (2, "cd")],
                *[(3, "ac"), (3, "ad"), (3, "bc"), (3, "bd")],
            ],
            "orders",
        ),
        (ORDERS, [(0, "ab"), (0, "bc"), (1, "ad"), (1, "cd")], "orders"),
        (
            pd.DataFrame(
                [(1, "a", 0), (1, "b", 1), (1, "c", 0), (2, "a", True), (2, "b", False)],
                columns=CHOICE,
            ),
            [(-1, "ab"), (0, "ba"), (0, "bc")],
            "choices",
        ),
        (
            pd.DataFrame(
                [("b", "c", "a", "b", "c"), ("a", "b", "a", "b", "c"), ("c", "b", "b", "c", "")],
                columns=SHOWN,
            ),
            [(-1, "cb"), (0, "ac"), (0, "ba"), (1, "ac"), (1, "cb")],
            "the best 'best' and the worst 'worst' of 'item_1', 'item_2', 'item_3'",
        ),
    ],
    ids=["blocks", "unplaced", "choices", "extremes"],
)
def test_neighboring_pairs_are_kept(
    table: Any, pairs: list[tuple[int, str]], note: str, tmp_path: Path
) -> None:
    """And written as orders, from which the same answers are read."""
    data = read(table)
    assert pairs_of(data) == pairs and f" read as {note}" in data.notes[0]
    assert data.comparisons.tie is None
    written = data.to_tables()[1]
    same(read(written).comparisons, data.comparisons)
    written.to_csv(tmp_path / "answers.csv", index=False)
    pd.DataFrame(index=ITEMS).to_csv(tmp_path / "items.csv")
    assert pairs_of(PreferenceData.from_folder(tmp_path)) == pairs
    # The pairs themselves, as an answer store keeps them.
    kept = Table(data.comparisons.table(ITEMS), "answers", neighbors=True)
    same(read(kept).comparisons, data.comparisons)


def test_sizes() -> None:
    data = read(orders(BLOCKS))
    assert data.comparisons.list_sizes == (4, 4, 4, True)
    assert data.describe() == "5 items, 14 answers to 7 pairs, 13 of them in 4 lists"


def test_ties_in_lists() -> None:
    """Of two items, an answer; of more, no pair; of all, nothing."""
    data = read(orders([["ab"], ["abc"], ["cd", "e"]]))
    assert data.comparisons.tie is not None
    assert data.comparisons.tie.tolist() == [True, False, False]
    assert pairs_of(data) == [(-1, "ab"), (0, "ce"), (0, "de")]
    assert data.notes[1] == "answers: 1 list with all items tied left out"
    with pytest.raises(DataError, match="all items of each list are tied.*leave such lists out"):
        read(orders([["abc"]]))
    averages = ORDERS.assign(place=[1.5, 1.5, None, 1, 2, 3])  # ranks averaged over ties
    assert pairs_of(read(averages))[:2] == [(0, "ac"), (0, "bc")]


def placed(items: str, places: list[float | None]) -> Any:
    """Orders of some of the items, one of which has a place."""
    entries = st.tuples(st.sampled_from(items), st.sampled_from(places))
    rows = st.lists(entries, min_size=2, unique_by=lambda entry: entry[0])
    return rows.filter(lambda rows: any(place is not None for _, place in rows))


# Of three items, many lists are equal.
LISTS = st.one_of(placed("abc", [1.0, 2.0, None]), placed("abcde", [1.0, 2.0, 3.0, None]))


def brute_force(lists: list[list[tuple[str, float | None]]]) -> list[tuple[str, str, bool, int]]:
    """The pairs of neighboring blocks with the number of their list; no place is below all."""
    pairs = []
    for at, entries in enumerate(lists):
        blocks = [
            sorted(item for item, place in entries if place == here)
            for here in (1.0, 2.0, 3.0, None)
        ]
        blocks = [block for block in blocks if block]
        if len(blocks) == 1 and len(entries) == 2:
            pairs.append((*blocks[0], True, at))
        for above, below in pairwise(blocks):
            pairs += [(best, worst, False, at) for best in above for worst in below]
    return sorted(pairs)  # type: ignore[arg-type]


def contents(data: PreferenceData) -> dict[Any, list[Any]]:
    """Labels of the copies of each answer, by its pairs; those of answers about two are None."""
    answers = data.comparisons
    number = np.full(len(answers.winner), -1) if answers.list is None else answers.list
    ties = np.zeros(len(number), bool) if answers.tie is None else answers.tie
    pairs = list(zip(answers.winner, answers.loser, ties, strict=True))
    pairs = [(ITEMS[winner], ITEMS[loser], bool(tie)) for winner, loser, tie in pairs]
    labels: dict[Any, list[Any]] = {}
    for pair, count, at in zip(pairs, answers.count.tolist(), number.tolist(), strict=True):
        if at < 0:
            labels[frozenset([pair])] = [None] * count
    for at, label in enumerate(answers.lists):
        key = frozenset(pair for pair, here in zip(pairs, number, strict=True) if here == at)
        labels.setdefault(key, []).append(label)
    assert len(answers) == len(labels) and answers.answers.count.sum() == sum(
        map(len, labels.values())
    )
    return {key: sorted(labels[key], key=str) for key in labels}


def expected(lists: dict[int, Any]) -> dict[Any, list[Any]]:
    """The same as `contents`, by brute force."""
    labels: dict[Any, list[Any]] = {}
    for at, entries in sorted(lists.items(), key=lambda item: str(item[0])):
        pairs = frozenset((best, worst, tie) for best, worst, tie, _ in brute_force([entries]))
        if pairs:
            labels.setdefault(pairs, []).append(None if len(pairs) == 1 else at)
    return labels


@settings(deadline=None, max_examples=30)
@given(st.lists(LISTS, min_size=2, max_size=12), st.integers(1, 11), st.randoms())
def test_random_orders(lists: Any, split: int, random: Any) -> None:
    """Read, joined, taken back, chosen and written; labels never keep equal lists apart."""
    split = min(split, len(lists) - 1)
    entries = dict(enumerate(lists))
    parts = [
        {at: rows for at, rows in entries.items() if (at < split) == first} for first in (1, 0)
    ]
    if not all(expected(part) for part in parts):
        return

    def data_of(part: dict[int, Any]) -> PreferenceData:
        rows = [(at, *row) for at, rows in part.items() for row in rows]
        return read(pd.DataFrame(random.sample(rows, len(rows)), columns=ORDER))

    data, first, second = map(data_of, (entries, *parts))
    assert contents(data) == expected(entries)
    joined = changed(first.comparisons, second.comparisons, ITEMS, withdraw=False)
    same(joined.answers, data.comparisons)
    assert contents(replace(data, comparisons=joined.answers)) == expected(entries)
    pairs, old = np.stack([data.winner, data.loser]), joined.before >= 0
    before = np.stack([first.winner, first.loser])[:, joined.before[old]]
    np.testing.assert_array_equal(pairs[:, old], before)
    assert len(set(joined.before[old].tolist())) == old.sum() == len(first.winner)
    back = changed(joined.answers, second.comparisons, ITEMS, withdraw=True)
    for name, column in first.comparisons.columns.items():
        np.testing.assert_array_equal(back.answers.columns[name], column, err_msg=name)
    assert contents(replace(data, comparisons=back.answers)) == expected(parts[0])
    pairs = np.stack([first.winner, first.loser])
    np.testing.assert_array_equal(np.stack([data.winner, data.loser])[:, back.before], pairs)
    with pytest.raises(DataError, match=r"taken back \d+ times and was given \d+ times"):
        changed(first.comparisons, data.comparisons, ITEMS, withdraw=True)
    same(read(data.to_tables()[1]).comparisons, data.comparisons)
    positions = random.choices(range(len(data.comparisons)), k=5)
    some = data.select_comparisons(positions).comparisons
    count = data.comparisons.answers.count * np.bincount(positions, minlength=len(data.comparisons))
    assert some.answers.count.tolist() == count[count > 0].tolist()


def test_many_lists_are_merged_at_once() -> None:
    """Without a loop over pairs of lists; labels of a merged one are all kept."""
    rng = np.random.default_rng(0)
    order = rng.permuted(np.tile(np.arange(4), (20_000, 1)), axis=1)
    table = {"list": np.repeat(np.arange(20_000), 4), "item": np.array(ITEMS)[order.ravel()]}
    answers = read(pd.DataFrame({**table, "place": np.tile([1, 2, 3, 4], 20_000)})).comparisons
    assert len(answers) == 24 and answers.answers.count.sum() == 20_000
    assert sorted(answers.lists) == list(range(20_000)) and answers.num_lists == 20_000
    label = answers.answers.label(0)
    assert len(label) == answers.answers.count[0] and len(set(map(tuple, order[list(label)]))) == 1


def test_counts_repeat_lists() -> None:
    data = read(orders([["a", "b", "c"], ["d", "e"]]).assign(count=[3] * 3 + [2] * 2))
    assert data.num_answers == 2 + 3 * 2 and len(data.comparisons) == 2
    assert pairs_of(data)[1:] == [(at, pair) for at in range(3) for pair in ("ab", "bc")]
    assert data.comparisons.count.tolist() == [2] + [1] * 6
    assert data.to_tables()[1]["count"].tolist() == [2] * 2 + [3] * 3
    assert data.comparisons.lists == (0, 0, 0) and data.comparisons.answers.label(1) == 0


def test_a_list_is_one_answer() -> None:
    data = read(orders(BLOCKS))
    answers = data.comparisons
    assert len(answers) == 5
    assert answers.answers.of_rows.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert answers.answers.first().tolist() == [0, 1, 3, 6, 10]
    some = data.select_answers([2])
    assert pairs_of(some) == [(0, "ba"), (0, "bc"), (0, "bd")]
    twice = data.select_answers([1, 0, 0, 1])
    assert pairs_of(twice) == [(-1, "ea"), (0, "ac"), (0, "da"), (1, "ac"), (1, "da")]
    assert twice.count.tolist() == [2, 1, 1, 1, 1]
    with pytest.raises(DataError, match=r"give one of shape \(5,\)"):
        data.select_answers(np.ones(14, dtype=bool))
    among = answers.among(np.array([item != "e" for item in ITEMS]))
    assert among.tolist() == [False] + [True] * 4
    for by, groups in (("answer", [0, 1, 2, 3, 4]), ("pair", [4, 6, 7, 8, 9])):
        assert data.answer_groups(by)[0].tolist() == groups


def test_joined_and_withdrawn() -> None:
    later = [["d", "a", "c"], ["c", "a", "b"]]
    data, more = read(orders(BLOCKS)), read(orders(later))
    change = changed(data.comparisons, more.comparisons, data.labels, withdraw=False)
    # Each row of the old answers is where it was.
    for name in ("winner", "loser"):
        old = change.before >= 0
        after, before = getattr(change.answers, name), getattr(data.comparisons, name)
        assert (after[old] == before[change.before[old]]).all()
    nothing = read([("a", "b")]).comparisons
    alone = changed(nothing, more.comparisons, data.labels, withdraw=False).answers
    assert alone.list is not None and alone.list.tolist() == [-1, 0, 0, 1, 1]
    other = read(orders([["e", "a", "c"]])).comparisons
    with pytest.raises(DataError, match="taken back 1 times and was given 0 times"):
        changed(data.comparisons, other, data.labels, withdraw=True)


def test_what_a_list_shares_is_written_and_read() -> None:
    """Raters, groups, and covariates, of which the differences count."""
    table = orders([["ab", "c", "d"], ["e", "a"], ["c", "e", "bd"]]).assign(
        rater=[*"xxxx", *"yy", *"xxxx"], group=[*"pppp", None, None, *"qqqq"]
    )
    table["length"], table["style"] = np.arange(10) ** 2, list("slslslslsl")
    names = ["length", "style"]
    data = read(table, covariates=names)
    again = read(data.to_tables()[1], covariates=names).comparisons
    same(again, data.comparisons)
    assert again.raters == ("x", "y") and again.groups == ("p", "q")


def test_columns_of_a_list() -> None:
    with pytest.raises(DataError, match="some answers have weights and some are in lists"):
        relpref.fit(answers=ORDERS.assign(weight=0.5))
    with pytest.raises(DataError, match="'strength' cannot be in lists"):
        read(ORDERS.assign(strength=1))
    with pytest.raises(DataError, match="'q' is not the group of the first row of its list"):
        read(ORDERS.assign(group=["p", "q", "p", "q", "q", "q"]))
    with pytest.raises(DataError, match="effect of being shown first in a list is unknown"):
        read(ORDERS.assign(shown_first=["a"] * 3 + ["c"] * 3))
    two = orders([["a", "b"]]).assign(shown_first="b")
    assert read(two).comparisons.columns["shown_first"].tolist() == [-1]
    with pytest.raises(DataError, match="a table of pairs has no column 'list'; write a list as"):
        read(pd.DataFrame({"winner": ["a"], "loser": ["b"], "list": [1]}))


def test_a_file_of_orders_has_other_names_and_raters(tmp_path: Path) -> None:
    file = tmp_path / "tastings.csv"
    file.write_text(
        "tasting;rank;bean;who\r\n1;1;Huila;Ann\r\n1;2;Mocha;Ann\r\n1;2;Kona;Ann\r\n"
        "2;1;Kona;Bo\r\n2;2;Huila;Bo\r\n"
    )
    columns = {"list": "tasting", "place": "rank", "item": "bean", "rater": "who"}
    data = PreferenceData.from_tables(answers=file, columns=columns)
    assert data.comparisons.num_lists == 1 and data.comparisons.raters == ("Ann", "Bo")
    assert data.num_comparisons == 3 and data.labels == ("Huila", "Mocha", "Kona")
    file.write_text("tasting;rank;bean;who\n1;1;Huila;Ann\n1;2;Mocha;Bo\n")
    said = "line 3, column 'who': 'Bo' is not the rater of the first row"
    with pytest.raises(DataError, match=said):
        PreferenceData.from_tables(answers=file, columns=columns)


def test_cells_of_lists_that_cannot_be_compared_by_hash_are_refused() -> None:
    table = pd.DataFrame(
        {"list": [1, 1], "item": ["a", "b"], "place": [1, 2], "rater": [["x"]] * 2}
    )
    with pytest.raises(DataError, match="cannot be hashed"):
        read(table)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(  # codes for items that did not finish would make these the best
            (
                f"list,item,place\n1,a,1\n1,b,2\n1,c,{place}\n",
                f"line 4, column 'place': '{place}' is no place, which start at 1.*leave the cell",
            )
            for place in ("0", "-1", "0.5")
        ),
        (
            "list,item,place\n1,a,1\n1,b,behind\n",
            "line 3, column 'place': 'behind' is not a number",
        ),
        # A pair is at the line of its list.
        ("list,item,place\n1,a,1\n1,b,2\n2,a,1\n2,z,2\n", r"answers\.csv, line 4.*'z'"),
        ("choice,item,chosen\n1,a,yes\n1,b,no\n", "'yes' is not a number; write true or false"),
    ],
)
def test_bad_files_are_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=said):
        read(file)


@pytest.mark.parametrize(
    ("columns", "rows", "said"),
    [
        (
            ORDER,
            [(1, "a", 1), (1, "b", 2), (2, "a", 1), (2, "b", 2), (2, "a", 3)],
            r"row 4 .*'a' is twice in this list; drop",
        ),
        (
            ORDER,
            [(1, "a", 1), (1, "b", 2), (2, "c", 1)],
            r"row 2 .*this list orders nothing; give at least two",
        ),
        (ORDER, [(1, "a", None), (1, "b", None)], "row 0 .*this list orders nothing"),
        (ORDER, [(1, "a", 1), (None, "b", 2)], "row 1 .*the cell is blank; say to which list"),
        (
            ORDER,
            [(1, "a", 1), (1, "b", 2), (2, "a", 1), (2, "z", 2)],
            r"row 2 \(index label 2\), column 'item': 'z' is not",
        ),
        (
            ["list", "item", "height"],
            [(1, "a", 1), (1, "b", 2)],
            r"orders have the columns list, item, place: rename",
        ),
        (
            ["item", "place"],
            [("a", 1), ("b", 2)],
            r"no column 'list' among 'item', 'place'; orders have the columns list, item, place",
        ),
        (
            CHOICE,
            [(1, "a", 1), (2, "a", 1), (2, "b", 0)],
            r"row 0 .*this question has one alternative alone.*; add",
        ),
        (
            CHOICE,
            [(1, "a", 1), (1, "b", 0), (1, "b", 0)],
            r"row 2 .*'b' is twice in this choice; drop",
        ),
        (CHOICE, [(1, "a", 1), (1, "b", 1)], r"row 0 .*2 alternatives are chosen; mark exactly"),
        (CHOICE, [(1, "a", 0), (1, "b", 0)], r"row 0 .*0 alternatives are chosen; mark exactly"),
        (CHOICE, [(1, "a", 1), (1, "z", 0)], r"row 0 \(index label 0\), column 'item': 'z' is not"),
        (
            SHOWN,
            [("a", "b", "a", "b", "c"), ("a", "a", "a", "b", "c")],
            r"row 1 .*'a' is the best and the worst; correct",
        ),
        (SHOWN, [("a", "b", "a", "b", "b")], r"row 0 .*'b' is twice in this list; drop one"),
        (
            SHOWN,
            [("a", "d", "a", "b", "c")],
            r"row 0 .*column 'worst': 'd' is none of the items of the row.*; name",
        ),
        (SHOWN, [("a", None, "a", "b", "c")], r"row 0 .*'worst'.* is none of the items"),
        (SHOWN, [("a", "b", "a", "b", "z")], r"row 0 \(index label 0\).*'z' is not the label"),
        (
            ["best", "worst"],
            [("a", "b")],
            r"no column 'item_1'.*; name the columns of what was shown item_1",
        ),
    ],
)
def test_bad_lists_are_named(columns: list[str], rows: list[tuple[object, ...]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(pd.DataFrame(rows, columns=columns))


def test_rankings_are_answers(tmp_path: Path) -> None:
    """With their items, attributes included."""
    blocks = [[tuple(block) if len(block) > 1 else block for block in order] for order in BLOCKS]
    rankings = Rankings.from_orders(blocks, items=ITEMS)
    assert pairs_of(PreferenceData.from_rankings(rankings)) == pairs_of(read(orders(BLOCKS)))
    same(read(rankings).comparisons, read(orders(BLOCKS)).comparisons)
    tied = Rankings.from_orders([[("b", "a")], ["a", ("b", "c")]], items=ITEMS)
    answers = PreferenceData.from_rankings(tied).comparisons
    assert answers.tie is not None and answers.tie.tolist() == [True, False, False]
    with pytest.raises(DataError, match="that of 1, number 1, is of one item alone"):
        PreferenceData.from_rankings(Rankings.from_orders([["a", "b"], ["c"]], items=ITEMS))
    with pytest.raises(DataError, match="order nothing; leave"):
        PreferenceData.from_rankings(Rankings.from_orders([[("a", "b", "c")]]))
    items = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=list("abc"))
    for data in (
        PreferenceData.from_tables(None, Rankings.from_orders([["b", "a"]], items=items)),
        PreferenceData.from_tables(items, Rankings.from_orders([["b", "a"]], items=list("abc"))),
    ):
        assert data.labels == ("a", "b", "c") and data.attribute_names == ("x",)
        assert (data.winner.tolist(), data.loser.tolist()) == ([1], [0])
    file = tmp_path / "votes.toc"
    file.write_text(
        "# DATA TYPE: toc\n# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 2\n# ALTERNATIVE NAME 1: a\n"
        "# ALTERNATIVE NAME 2: b\n# ALTERNATIVE NAME 3: c\n1: 1,2,3\n1: 3,{1,2}\n"
    )
    voted = Rankings.from_orders([["a", "b", "c"], ["c", ("a", "b")]])
    same(read(read_ballots(file)).comparisons, read(voted).comparisons)
    assert relpref.fit(answers=str(file)).data.comparisons.num_lists == 2
