"""Tables of pairs as questions: columns that are part of a question, that are refused, and that are
noted.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import relpref
from relpref.diagnostics import compare, k_fold
from relpref.errors import DataError, UnknownLabelError
from relpref.explore import next_pairs

ITEMS = [f"i{at}" for at in range(5)]


def answers(number: int = 60, seed: int = 0) -> pd.DataFrame:
    """Answers with raters, an item shown first, the side at home, and the length of both sides."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 5, number)
    second = (first + rng.integers(1, 5, number)) % 5
    length = rng.integers(10, 100, (2, number))
    home, shown = rng.integers(-1, 2, (2, number))
    gap = 0.4 * (second - first) + 0.02 * (length[0] - length[1]) + 0.5 * home + 0.5 * shown
    won = gap + rng.normal(size=number) > 0
    names = np.array(ITEMS, dtype=object)

    def side(sign: Any) -> Any:
        return np.where(sign > 0, names[first], np.where(sign < 0, names[second], None))

    return pd.DataFrame(
        {
            "first": names[first],
            "second": names[second],
            "winner": names[np.where(won, first, second)],
            "rater": rng.choice(["ann", "bob", "cem"], number),
            "shown_first": side(shown),
            "home": side(home),
            "length_first": length[0],
            "length_second": length[1],
        }
    )


@pytest.fixture(scope="module")
def posterior() -> Any:
    covariates = ["home", "length"]
    options: dict[str, Any] = {"hyperparameters": "maximize", "check": False}
    return relpref.fit(items=ITEMS, answers=answers(), covariates=covariates, **options)


@pytest.fixture(scope="module")
def plain() -> Any:
    table = answers()[["first", "second", "winner"]]
    return relpref.fit(items=ITEMS, answers=table, fixed={"individual_amplitude": 1.0}, check=False)


@pytest.fixture(scope="module")
def asked() -> pd.DataFrame:
    table = answers(6, seed=1).drop(columns="winner")
    table.loc[:1, "rater"] = None
    return table


@pytest.fixture(scope="module")
def expected(posterior: Any, asked: pd.DataFrame) -> pd.DataFrame:
    """The same questions by arguments."""
    table: pd.DataFrame = posterior.prefer(
        list(zip(asked["first"], asked["second"], strict=True)),
        rater=asked["rater"].tolist(),
        shown_first=asked["shown_first"].tolist(),
        home=asked["home"].tolist(),
        covariates={end: asked[end] for end in ("length_first", "length_second")},
    )
    return table


def test_columns_are_as_arguments(posterior: Any, asked: Any, expected: Any) -> None:
    pairs = asked[["first", "second"]]
    assert np.abs(posterior.prefer(pairs)["probability"] - expected["probability"]).max() > 0.05
    found = posterior.prefer(asked)
    assert_frame_equal(found, expected)
    assert "notes" not in found.attrs
    # Some in columns and some as arguments.
    some = posterior.prefer(asked.drop(columns="home"), home=asked["home"].tolist())
    assert_frame_equal(some, expected)


def test_the_side_that_is_shown_first_is_a_label_or_a_word(posterior: Any) -> None:
    pairs = [("i0", "i1"), ("i2", "i0")]
    expected = posterior.prefer(pairs, shown_first=["i0", "i0"])
    assert not expected.equals(posterior.prefer(pairs))
    for given in ("i0", ["First", "second"], np.array(["i0", "second"])):
        assert_frame_equal(posterior.prefer(pairs, shown_first=given), expected)
    by_word = posterior.prefer(pairs, shown_first="second")
    by_label = posterior.prefer(pairs, shown_first=["i1", "i0"])
    assert_frame_equal(by_word, by_label)
    with pytest.raises(DataError, match=r"shown_first\[1\] is 'i1', which is not in the pair"):
        posterior.prefer(pairs, shown_first="i1")


def as_polars(table: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars")
    cells = table.astype(object).where(table.notna(), None)
    return polars.DataFrame(cells.to_dict("list"))


FORMS: dict[str, Any] = {
    "dictionary": lambda table: table.to_dict("list"),
    "rows": lambda table: table.to_dict("records"),
    "polars": as_polars,
    "index": lambda table: table.set_index(pd.Index(range(7, 13))),
    "categories": lambda table: table.astype({"first": "category", "rater": "category"}),
    "blanks": lambda table: table.fillna({"rater": "", "home": "", "shown_first": ""}),
    "capitals": lambda table: table.rename(columns={"first": "First", "rater": " Rater"}),
    "winner": lambda table: table.rename(
        columns=lambda name: {
            "first": "winner",
            "second": "loser",
            "length_first": "length_winner",
        }.get(name, name.replace("_second", "_loser"))
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_table(form: str, posterior: Any, asked: Any, expected: Any) -> None:
    assert_frame_equal(posterior.prefer(FORMS[form](asked)), expected)


def test_answers_that_were_held_out(posterior: Any, asked: Any, expected: Any) -> None:
    """Columns of outcomes are noted; others, too, with a warning."""
    outcomes = {
        "winner": asked["first"],
        "tie": False,
        "count": 2,
        "weight": 0.5,
        "group": "q",
        "strength": 1,
    }
    found = posterior.prefer(asked.assign(**outcomes))
    assert_frame_equal(found, expected)
    assert found.attrs["notes"] == (
        "pairs: the columns 'winner', 'tie', 'count', 'weight', 'group', 'strength' are not used",
    )
    with pytest.warns(UserWarning, match="pairs: the column 'venue' is not used"):
        found = posterior.prefer(asked.assign(tie=False, venue="x"))
    assert_frame_equal(found, expected)
    assert found.attrs["notes"] == ("pairs: the columns 'tie', 'venue' are not used",)


def test_tables_of_predictions_and_questions_are_pairs(plain: Any) -> None:
    table = plain.prefer([("i0", "i1"), ("i2", "i3")])
    again = plain.prefer(table)
    assert_frame_equal(again, table)
    assert "gap_sd" in again.attrs["notes"][0]
    assert len(plain.prefer(next_pairs(plain, 2, repeats=9))) == 2
    two = plain.prefer(pd.DataFrame({"one": ["i0", "i2"], "other": ["i1", "i3"]}))
    assert_frame_equal(two, table)
    assert plain.prefer(table[:0]).empty
    same = plain.prefer([{"first": "i0", "second": "i1"}, {"first": "i2", "second": "i3"}])
    assert_frame_equal(same, table)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("rater", "rater is .*the answers do not say who gave them; leave it out"),
        ("shown_first", "shown_first is given, .*which item was shown first; leave it out"),
        ("home", "home is given, but the answers have no covariates; leave it out"),
    ],
)
def test_columns_that_were_not_learned(plain: Any, asked: Any, column: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        plain.prefer(asked[["first", "second", column]])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"rater": "ann"}, "rater"),
        ({"shown_first": ["i0"] * 6}, "shown_first"),
        ({"home": "i0"}, "home"),
        ({"covariates": {"length_first": 3, "length_second": 2}}, "length_first"),
    ],
)
def test_a_column_and_an_argument(
    posterior: Any, asked: Any, arguments: dict[str, Any], name: str
) -> None:
    message = f"pairs: '{name}' is given in a column and as an argument; leave one of the two out"
    for form in ("index", "winner"):
        with pytest.raises(DataError, match=message):
            posterior.prefer(FORMS[form](asked), **arguments)


def changed(column: str, value: Any) -> Any:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        cells = table[column].tolist()
        cells[3] = value
        return table.assign(**{column: cells}).set_index(pd.Index(range(7, 13)))

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (changed("rater", "dan"), UnknownLabelError, r"rater\[3\]: 'dan' has given no answer"),
        (changed("first", None), DataError, r"index label 10\), column 'first': the label is miss"),
        (changed("shown_first", "i9"), UnknownLabelError, "'i9' is not the label of an item"),
        (changed("home", "i9"), UnknownLabelError, r"index label 10\), column 'home': 'i9' is not"),
        (
            changed("length_first", np.nan),
            DataError,
            r"pairs, row 3 \(index label 10\), column 'length_first': nan is no value",
        ),
        (
            lambda table: table.drop(columns="length_second"),
            DataError,
            "'length_first' and none 'length_second'",
        ),
        (
            lambda table: table.drop(columns="second"),
            DataError,
            "no columns 'first' and 'second' among",
        ),
        (
            lambda table: table.rename(columns={"length_first": "lenght_first"}),
            DataError,
            "'lenght_first' is not used .*did you mean 'length_first'",
        ),
        (
            lambda table: FORMS["winner"](table).rename(columns={"length_winner": "length_first"}),
            DataError,
            "'length_first' is not used",
        ),
        (
            lambda table: pd.concat([table, table[["rater"]]], axis=1),
            DataError,
            "'rater' occurs twice",
        ),
    ],
)
def test_refused(posterior: Any, asked: Any, change: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        posterior.prefer(change(asked))


def test_short_ways(plain: Any, posterior: Any) -> None:
    options: dict[str, Any] = {"items": ITEMS[:3], "repeats": 9, "rater": "ann"}
    assert_frame_equal(posterior.next_pairs(2, **options), next_pairs(posterior, 2, **options))
    folds = k_fold(plain, 3)
    expected = compare({"this": plain, "other": folds})
    assert_frame_equal(plain.compare(folds), expected)
    assert_frame_equal(plain.compare({"other": folds}), expected)
    assert relpref.compare is compare


def test_fewer_questions_than_asked_for_are_noted(plain: Any) -> None:
    with pytest.warns(
        UserWarning, match="0 questions of 3 can be asked: .*; raise repeats to ask again"
    ):
        assert plain.next_pairs(3).empty
    with pytest.warns(UserWarning, match=r"max_wrong above 0\.01 allows more"):
        assert plain.next_pairs(repeats=99, max_wrong=0.01).empty


def test_a_run_that_was_saved(posterior: Any, asked: Any, expected: Any, reloaded: Any) -> None:
    loaded = reloaded(posterior)
    assert_frame_equal(loaded.prefer(asked), expected)


def test_frames_of_polars_give_the_same_numbers() -> None:
    pytest.importorskip("polars")
    rng = np.random.default_rng(5)
    items = pd.DataFrame({"item": ITEMS, "x": rng.normal(size=5), "kind": list("uvuvu")})
    links = pd.DataFrame({"source": ["i0", "i1"], "target": ["i2", "i3"]})
    table, options = answers(), {"covariates": ["home", "length"], "hyperparameters": "maximize"}
    tables = [items, table, links, answers(6, seed=1), pd.DataFrame({"a": ["i0"], "b": ["i4"]})]
    results = []
    for form in (lambda each: each, as_polars):
        each, asked, edges, more, pairs = map(form, tables)
        fitted: Any = relpref.fit(
            each.set_index("item") if form is not as_polars else each,
            asked,
            {"near": edges},
            **options,  # type: ignore[arg-type]
        )
        results.append(
            [
                fitted.ranking(),
                fitted.prefer(more),
                fitted.update(more).ranking(),
                fitted.next_pairs(pairs=pairs, repeats=99),
                fitted.explain(),
            ]
        )
    for one, other in zip(*results, strict=True):
        assert isinstance(other, pd.DataFrame)
        assert_frame_equal(one, other, check_exact=True)
