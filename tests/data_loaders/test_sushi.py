from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from relpref.data_loaders import sushi
from relpref.errors import DataError

ITEMS = "".join(
    f"{number}\t{name}\t1\t0\t{number % 12}\t{number / 4}\t2\t1.5\t0.5\n"
    for number, name in enumerate([*sushi.SET_A[:5], "tako", *sushi.SET_A[5:]])
)
USERS = "501\t0\t2\t355\t0\t0\t0\t0\t0\t0\t0\n77\t1\t1\t214\t26\t6\t1\t26\t6\t1\t0\n"
A = "10 1\n0 10 5 0 3 4 6 9 8 1 7 2\n0 10 0 9 6 3 7 2 8 1 5 4\n"
B = "11 1\n0 10 5 0 3 4 6 9 8 1 7 2\n0 10 10 9 6 3 7 2 8 1 5 4\n"
SCORES = "4 1 0 3 2 4 2 1 1 2 -1\n-1 1 0 3 0 1 3 2 1 4 4\n"


def write(
    folder: Path,
    *,
    idata: str = ITEMS,
    udata: str = USERS,
    a: str = A,
    b: str = B,
    scores: str = SCORES,
) -> Path:
    texts = {
        ".idata": idata,
        ".udata": udata,
        "a.5000.10.order": a,
        "b.5000.10.order": b,
        "b.5000.10.score": scores,
    }
    for name, text in texts.items():
        (folder / f"sushi3{name}").write_text(text, encoding="utf-8")
    return folder


def test_two_users(tmp_path: Path) -> None:
    full = sushi.load("a", write(tmp_path))
    # Number 5 of set A is the salmon roe, which is number 6 of set B, not the octopus.
    assert full.rankings.orders()[0][:3] == ["ikura", "ebi", "ika"]
    assert full.rankings.kind == "full" and full.rankings.rankers == (501, 77)
    assert full.rankings.classes == ("east", "west")
    assert_array_equal(full.rankings.label, [0, 1])
    assert full.items.loc["ikura", "minor_group"] == 6 and full.scores is None
    assert full.rankings.items.attribute_names == (
        "style",
        "major_group",
        "oiliness",
        "eaten",
        "price",
        "sold",
    )
    some = sushi.load("b", tmp_path)
    assert some.rankings.orders()[1][0] == "kappa_maki" and some.rankings.kind == "non-exhaustive"
    assert some.scores is not None and np.isnan(some.scores).sum() == 2
    assert some.users.loc[77, "prefecture_before_15"] == 26


@pytest.mark.parametrize(
    ("part", "old", "new", "reason"),
    [
        ("scores", SCORES, "0 3 4 1 2 0 2 3 3 2 -1\n-1 3 4 1 4 3 1 2 3 0 0\n", "upside down"),
        ("scores", "4 1 0", "5 1 0", "scores from -1 to 4"),
        ("scores", "4 1 0", "4 1", "line 1: there are 10 values instead of 11"),
        (
            "b",
            "0 10 10 9",
            "0 10 11 9",
            r"b\.5000\.10\.order, line 3: ten different sushis below 11",
        ),
        ("b", "11 1", "10 1", "the header is '10 1', not '11 1'"),
        ("b", "0 10 10 9 6 3 7 2 8 1 5 4\n", "", "1 rankings for 2 users"),
        ("b", "0 10 10 9", "0 10 x 9", "line 3, column '3': 'x' is not a number"),
        ("udata", "26\t6\t1\t26", "26\t6\t2\t26", "column 7 is not 0 or 1"),
        ("udata", "77", "501", "a user is there twice"),
        ("udata", "355", "nan", "line 1, .*the value is missing"),
        ("idata", "ikura", "ikra", "not those of the 100 sushis"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, part: str, old: str, new: str, reason: str
) -> None:
    text = {"idata": ITEMS, "udata": USERS, "b": B, "scores": SCORES}[part]
    assert old in text
    with pytest.raises(DataError, match=reason):
        sushi.load("b", write(tmp_path, **{part: text.replace(old, new)}))


def test_missing_files(tmp_path: Path) -> None:
    (write(tmp_path) / "sushi3.idata").unlink()
    with pytest.raises(DataError, match=r"sushi3\.idata: there is no such file"):
        sushi.load("a", tmp_path)
    with pytest.raises(DataError, match="which is 'c'; choose 'a' or 'b'"):
        sushi.load("c", tmp_path)  # type: ignore[arg-type]


def test_the_published_files(real_data: Path) -> None:
    full, some = sushi.load("a"), sushi.load("b")
    assert (
        repr(full.rankings)
        == "Rankings(5,000 full rankings of 10 items, classes 'east' (3258), 'west' (1742))"
    )
    assert full.rankings.orders()[0][:3] == ["ikura", "ebi", "ika"]
    assert some.rankings.shape == (5000, 100) and set(some.rankings.kinds) == {"non-exhaustive"}
    assert ((some.rankings.positions >= 0).sum(axis=1) == 10).all()
    # Everybody ranked exactly what he or she scored, and scores fall along the ranking.
    assert some.scores is not None
    assert_array_equal(some.rankings.positions >= 0, ~np.isnan(some.scores))
    means = [some.scores[some.rankings.positions == place].mean() for place in range(10)]
    assert (np.diff(means) < 0).all()
    west = (some.users["region_before_15"] >= 6).to_numpy()
    assert_array_equal(some.rankings.label, west)
