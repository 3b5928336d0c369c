"""Lists among answers: reduced to neighboring pairs, numbered, selected whole, joined, withdrawn
and written.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data import Rankings, best_worst, choices, orderings
from relpref.data.comparisons import changed
from relpref.errors import DataError

ITEMS = list("abcde")


def long(lists: list[list[str]]) -> pd.DataFrame:
    """Orders of blocks, such as ["a", "bc", "d"]."""
    rows = [
        (number, item, place)
        for number, blocks in enumerate(lists)
        for place, block in enumerate(blocks, 1)
        for item in block
    ]
    return pd.DataFrame(rows, columns=["no", "item", "place"])


def composed(lists: list[list[str]]) -> pd.DataFrame:
    return orderings(long(lists), list="no", item="item", position="place")


def read(table: Any, **options: Any) -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, table, **options)


def said(data: PreferenceData) -> list[tuple[int, str]]:
    answers = data.comparisons
    number = np.full(len(answers.winner), -1) if answers.list is None else answers.list
    ends = zip(answers.winner, answers.loser, strict=True)
    return [(int(one), ITEMS[w] + ITEMS[x]) for one, (w, x) in zip(number, ends, strict=True)]


BLOCKS = [["d", "a", "c"], ["b", "acd"], ["a", "bc", "d"], ["ab", "cd"], ["e", "a"]]


def test_neighboring_pairs_are_kept() -> None:
    data = read(composed(BLOCKS))
    assert said(data) == [
        (-1, "ea"),
        *[(0, "ac"), (0, "da")],
        *[(1, "ba"), (1, "bc"), (1, "bd")],
        *[(2, "ab"), (2, "ac"), (2, "bd"), (2, "cd")],
        *[(3, "ac"), (3, "ad"), (3, "bc"), (3, "bd")],
    ]
    assert data.comparisons.tie is None
    assert data.comparisons.list_sizes == (4, 4, 4, True)
    assert data.describe() == "5 items, 14 answers to 7 pairs, 13 of them in 4 lists"
    assert not data.notes


def test_ties_in_lists() -> None:
    """Of two items, an answer; of more, no pair; of all, nothing."""
    data = read(composed([["ab"], ["abc"], ["cd", "e"]]))
    assert data.comparisons.tie is not None
    assert data.comparisons.tie.tolist() == [True, False, False]
    assert said(data) == [(-1, "ab"), (0, "ce"), (0, "de")]
    assert data.notes == ("answers: 1 list with all items tied left out",)


def test_the_order_of_rows_leaves_no_trace() -> None:
    table = composed(BLOCKS)
    names = {0: "x", 1: 7, 2: "z", 3: "a", 4: "q"}
    for seed in range(3):
        shuffled = table.sample(frac=1, random_state=seed)
        shuffled["list"] = shuffled["list"].map(names)
        assert said(read(shuffled)) == said(read(table))


def test_written_and_read_again(tmp_path: Path) -> None:
    data = read(composed(BLOCKS))
    written = data.to_tables()[1]
    assert said(read(written)) == said(data)
    written.to_csv(tmp_path / "answers.csv", index=False)
    pd.DataFrame(index=ITEMS).to_csv(tmp_path / "items.csv")
    assert said(PreferenceData.from_folder(tmp_path)) == said(data)


def test_counts_repeat_lists() -> None:
    table = composed([["a", "b", "c"], ["d", "e"]])
    table["count"] = [3] * 3 + [2]
    data = read(table)
    assert data.num_answers == 2 + 3 * 2
    assert said(data)[1:] == [(at, pair) for at in range(3) for pair in ("ab", "bc")]
    assert data.comparisons.count.tolist() == [2] + [1] * 6


def test_choices() -> None:
    table = pd.DataFrame({"q": [1, 1, 1, 2, 2], "item": list("abcab"), "took": [0, 1, 0, 1, 0]})
    data = read(choices(table, question="q", item="item", chosen="took"))
    assert said(data) == [(-1, "ab"), (0, "ba"), (0, "bc")]


def test_independent_pairs() -> None:
    data = read(composed(BLOCKS), lists="pairs")
    assert data.comparisons.list is None
    assert data.num_answers == 3 + 6 + 6 + 6 + 1
    assert "the pairs of one are treated as independent" in data.notes[-1]


def test_lists_are_selected_whole() -> None:
    data = read(composed(BLOCKS))
    answers = data.comparisons
    assert answers.list is not None
    some = data.select_answers(answers.list == 1)
    assert said(some) == [(0, "ba"), (0, "bc"), (0, "bd")]
    twice = data.select_answers([1, 2, 0, 0, 2, 1])
    assert said(twice) == [(-1, "ea"), (0, "ac"), (0, "da"), (1, "ac"), (1, "da")]
    assert twice.count.tolist() == [2, 1, 1, 1, 1]
    with pytest.raises(DataError, match="a list is selected in part, of 2 rows"):
        data.select_answers([0, 1])
    mask = np.arange(len(answers.winner)) != 4
    assert answers.whole_lists(mask).tolist() == [True] * 3 + [False] * 3 + [True] * 8


def test_joined_and_withdrawn() -> None:
    data, more = read(composed(BLOCKS)), read(composed([["d", "a", "c"], ["c", "a", "b"]]))
    change = changed(data.comparisons, more.comparisons, data.labels, withdraw=False)
    both = read(composed([*BLOCKS, ["d", "a", "c"], ["c", "a", "b"]]))
    assert change.answers.list is not None and both.comparisons.list is not None
    for name, column in both.comparisons.columns.items():
        assert change.answers.columns[name].tolist() == column.tolist()
    # Each row of the old answers is where it was.
    for name in ("winner", "loser"):
        old = change.before >= 0
        assert (
            getattr(change.answers, name)[old]
            == getattr(data.comparisons, name)[change.before[old]]
        ).all()
    back = changed(change.answers, more.comparisons, data.labels, withdraw=True).answers
    for name, column in data.comparisons.columns.items():
        assert back.columns[name].tolist() == column.tolist()
    nothing = read([("a", "b")]).comparisons
    alone = changed(nothing, more.comparisons, data.labels, withdraw=False).answers
    assert alone.list is not None and alone.list.tolist() == [-1, 0, 0, 1, 1]
    with pytest.raises(DataError, match="taken back 1 times and was given 0 times"):
        changed(
            data.comparisons,
            read(composed([["e", "a", "c"]])).comparisons,
            data.labels,
            withdraw=True,
        )


def table(*pairs: str, **columns: Any) -> pd.DataFrame:
    ends = {name: [pair[end] for pair in pairs] for end, name in enumerate(("winner", "loser"))}
    return pd.DataFrame({**ends, "list": [1] * len(pairs), **columns})


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (table("ab", "bc", "ca"), r"row 0 .*: the pairs of the list contradict each other"),
        (table("ab", "bc", "ab"), r"row 2 .*: the list has this pair of items twice"),
        (table("ab", "cd"), r"row 0 .*: some pairs of the list are missing"),
        (
            table("ab", "bc", strength=[1, 2]),
            r"row 0 .*: answers with the column 'strength' cannot be in lists",
        ),
        (
            table("ab", "bc", rater=["x", "y"]),
            r"row 1 .*: the rater is not that of the list's other rows",
        ),
        (
            table("ab", "bc", count=[2, 1]),
            r"row 1 .*: the count is not that of the list's other rows",
        ),
        (
            table("ab", "bc", shown_first=["a", ""]),
            r"row 0 .*: the effect of being shown first in a list is unknown",
        ),
        (table("ab", "ac", "bc", tie=[False, True, False]), r"row 1 .*: the two are tied, but not"),
    ],
)
def test_refused(answers: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(answers)


def test_unknown_way() -> None:
    with pytest.raises(DataError, match="lists is 'some'; it is 'exact' or 'pairs'"):
        read(table("ab"), lists="some")


def test_rankings() -> None:
    orders = [
        ["d", "a", "c"],
        ["b", ("a", "c", "d")],
        ["a", ("b", "c"), "d"],
        [("a", "b"), ("c", "d")],
        ["e", "a"],
    ]
    rankings = Rankings.from_orders(orders, items=ITEMS)
    assert said(PreferenceData.from_rankings(rankings)) == said(read(composed(BLOCKS)))
    tied = PreferenceData.from_rankings(
        Rankings.from_orders([[("b", "a")], ["a", ("b", "c")]], items=ITEMS)
    )
    assert tied.comparisons.tie is not None and tied.comparisons.tie.tolist() == [
        True,
        False,
        False,
    ]
    pairs = PreferenceData.from_rankings(rankings, lists="pairs")
    assert said(pairs) == said(read(composed(BLOCKS), lists="pairs"))
    with pytest.raises(DataError, match="that of 1, number 1, is of one item alone"):
        PreferenceData.from_rankings(Rankings.from_orders([["a", "b"], ["c"]], items=ITEMS))


SHOWN = pd.DataFrame(
    {
        "one": list("aab"),
        "two": list("bbc"),
        "three": ["c", "c", ""],
        "best": list("bac"),
        "worst": list("cbb"),
    }
)


def test_best_and_worst() -> None:
    table = best_worst(SHOWN, items=["one", "two", "three"], best="best", worst="worst")
    assert said(read(table)) == [(-1, "cb"), (0, "ac"), (0, "ba"), (1, "ac"), (1, "cb")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"worst": list("bbb")}, "row 0.*'b' is the best and the worst"),
        ({"best": list("dac")}, "row 0.*'d' is none of the items of the row"),
        ({"two": list("abc")}, "row 0.*'a' is shown twice"),
        ({"worst": ["c", None, "b"]}, "row 1.*is none of the items of the row"),
    ],
)
def test_unusable_best_and_worst(change: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        best_worst(
            SHOWN.assign(**change), items=["one", "two", "three"], best="best", worst="worst"
        )
