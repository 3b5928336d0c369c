"""Every documented form of answers, as a frame, as dictionaries, from files, and through the
command: equal data.
"""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.cli import main
from relpref.data import PreferenceData, Rankings
from relpref.data.rankings import read_ballots
from relpref.errors import DataError
from relpref.infer import EP

PAIRS = [("a", "b"), ("b", "c"), ("a", "c"), ("b", "a")]
WON = pd.DataFrame(PAIRS, columns=["winner", "loser"])
ASKED = pd.DataFrame(PAIRS, columns=["first", "second"])
ORDERS = pd.DataFrame(
    [("x", "a", 1), ("x", "b", 2), ("x", "c", 2), ("y", "c", 1), ("y", "a", 2), ("y", "b", 3)],
    columns=["list", "item", "place"],
)
TOP = ORDERS.assign(place=[1, 2, None, 1, None, None])
CHOICES = pd.DataFrame(
    [("x", "a", True), ("x", "b", False), ("x", "c", False), ("y", "b", False), ("y", "c", True)],
    columns=["choice", "item", "chosen"],
)
EXTREMES = pd.DataFrame(
    [("a", "b", "b", "c", "a"), ("c", "b", "c", "b", None), ("b", "c", "a", "b", "c")],
    columns=["best", "worst", "item_1", "item_2", "item_3"],
)
RATERS = ["ann", "bob", "ann", "cy"]

# The table, and what the call says of it; every column that the documentation names occurs.
FORMS: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
    "winners": (WON, {}),
    "counts": (WON.assign(count=[1, 3, 2, 1]), {}),
    "ties": (WON.assign(tie=[False, True, False, False]), {}),
    "ties as numbers": (WON.assign(tie=[0, 1, 0, 0]), {}),
    "strengths": (WON.assign(strength=[1, 2, 3, 1]), {}),
    "strengths and ties": (
        WON.assign(strength=[1, None, 3, 1], tie=[False, True, False, False]),
        {},
    ),
    "raters": (WON.assign(rater=RATERS), {}),
    "groups": (WON.assign(group=["p", None, "q", "p"]), {}),
    "weights": (WON.assign(weight=[0.5, 1.0, 2.25, 1.0]), {}),
    "positions": (WON.assign(shown_first=["a", None, "c", "a"]), {}),
    "first, second, winner": (ASKED.assign(winner=["a", "c", "c", "b"]), {}),
    "blank winners": (
        ASKED.assign(winner=["a", None, "c", "b"], tie=[False, True, False, False]),
        {},
    ),
    "zeros for the strengths of ties": (
        WON.assign(strength=[1.0, 0.0, 3.0, 1.0], tie=[False, True, False, False]),
        {},
    ),
    "results": (ASKED.assign(result=[1, 0, 1, 0]), {}),
    "results with halves": (ASKED.assign(result=[1, 0.5, 0, 1]), {}),
    "results with signs": (ASKED.assign(result=[1, 0, -1, 1]), {}),
    "results and strengths": (ASKED.assign(result=[1, 0, -1, 1], strength=[2, None, 1, 1]), {}),
    "probabilities": (ASKED.assign(probability=[0.9, 0.25, 0.5, 0.6]), {}),
    "everything": (
        ASKED.assign(
            winner=["a", None, "c", "b"],
            tie=[False, True, False, False],
            strength=[1, None, 3, 2],
            rater=RATERS,
            shown_first=["b", None, "a", "a"],
            count=[1, 2, 3, 4],
            group=["p", "q", None, "p"],
            weight=[1.0, 0.5, 0.5, 1.0],
        ),
        {},
    ),
    "numbers of both sides": (
        WON.assign(length_winner=[1.0, 2.5, 3.0, 1.0], length_loser=[2.0, 2.0, 1.5, 4.0]),
        {"covariates": ["length"]},
    ),
    "categories of both sides": (
        ASKED.assign(result=[1, 0, 1, 0], style_first=list("xyxx"), style_second=list("yyxz")),
        {"covariates": ["style"]},
    ),
    "a side": (WON.assign(home=["a", None, "c", "b"]), {"covariates": ["home"]}),
    "other names": (
        WON.rename(columns={"winner": "better", "loser": "worse"}).assign(who=RATERS),
        {"columns": {"winner": "better", "loser": "worse", "rater": "who"}},
    ),
    "names of two sides": (
        ASKED.rename(columns={"first": "home", "second": "away"}).assign(
            winner=["a", "c", "c", "b"]
        ),
        {"columns": {"first": "home", "second": "away"}},
    ),
    "orders": (ORDERS, {}),
    "orders of the best few": (TOP, {}),
    "orders with columns of a list": (
        ORDERS.assign(rater=list("pppqqq"), count=[2, 2, 2, 1, 1, 1], group=["g"] * 3 + [None] * 3),
        {},
    ),
    "orders with covariates": (
        ORDERS.assign(price=[1, 2, 3, 1.5, 2, 4]),
        {"covariates": ["price"]},
    ),
    "orders by other names": (
        ORDERS.rename(columns={"list": "race", "item": "driver", "place": "rank"}),
        {"columns": {"list": "race", "item": "driver", "place": "rank"}},
    ),
    "choices": (CHOICES, {}),
    "choices as numbers": (CHOICES.assign(chosen=CHOICES["chosen"].astype(int)), {}),
    "choices with covariates": (
        CHOICES.assign(price=[1, 2, 3, 1.5, 2], rater=list("pppqq")),
        {"covariates": ["price"]},
    ),
    "best and worst": (EXTREMES, {}),
    "best and worst with columns of a list": (
        EXTREMES.assign(rater=["p", "q", "p"], count=[1, 2, 1], group=["g", None, "h"]),
        {},
    ),
    "best and worst in capitals": (EXTREMES.rename(columns=str.title), {}),
    "best and worst by other names": (
        EXTREMES.rename(columns={"best": "top", "item_1": "one"}),
        {"columns": {"best": "top", "item_1": "one"}},
    ),
}


def same(one: PreferenceData, other: PreferenceData) -> None:
    assert one.labels == other.labels
    first, second = one.comparisons, other.comparisons
    assert first.columns.keys() == second.columns.keys()
    for name, column in first.columns.items():
        assert column.dtype == second.columns[name].dtype
        np.testing.assert_array_equal(column, second.columns[name])
    for name in ("raters", "groups", "strengths", "covariates_are"):
        assert getattr(first, name) == getattr(second, name)
    if first.covariate_scales is not None:
        np.testing.assert_array_equal(first.covariate_scales, second.covariate_scales)


@pytest.fixture
def read_by_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., PreferenceData]:
    """The data that ``relpref fit`` would fit."""

    def read(*arguments: object) -> PreferenceData:
        read_data: list[PreferenceData] = []

        def run(_: EP, key: Any, data: PreferenceData, **options: Any) -> None:
            read_data.append(data)
            raise DataError("the tables were read")

        monkeypatch.setattr(EP, "run", run)
        assert main(["fit", *map(str, arguments), "--out", str(tmp_path / "run")]) == 2
        return read_data[0]

    return read


def words(options: dict[str, Any]) -> list[str]:
    """Options of the command."""
    columns = [f"--columns={ours}={theirs}" for ours, theirs in options.get("columns", {}).items()]
    covariates = [f"--covariates={name}" for name in options.get("covariates", [])]
    return [*columns, *covariates]


@pytest.mark.parametrize("form", list(FORMS))
def test_a_table_says_the_same_however_it_is_given(
    form: str, tmp_path: Path, read_by_command: Callable[..., PreferenceData]
) -> None:
    table, options = FORMS[form]
    wanted = PreferenceData.from_tables(answers=table, **options)
    nothing = table.astype(object).where(table.notna(), None)
    files = [tmp_path / f"answers{ending}" for ending in (".csv", ".csv.gz")]
    for file in files:
        table.to_csv(file, index=False)
    files.append(tmp_path / "semicolons.csv")
    table.to_csv(files[-1], index=False, sep=";", decimal=",")
    values: list[Any] = [
        nothing.to_dict("records"),
        nothing.to_dict("list"),
        [row.dropna().to_dict() for _, row in table.iterrows()],  # what is blank is left out
        table.convert_dtypes(),
        table.set_axis(range(7, 7 + len(table))),
    ]
    if find_spec("pyarrow") is not None:
        files.append(tmp_path / "answers.parquet")
        table.to_parquet(files[-1])
        values.append(table.convert_dtypes(dtype_backend="pyarrow"))
    for value in values:
        same(PreferenceData.from_tables(answers=value, **options), wanted)
    readers: list[Callable[[Path], PreferenceData]] = [
        lambda file: read_by_command(file, *words(options)),
        lambda file: PreferenceData.from_files(answers_path=file, **options),
        lambda file: PreferenceData.from_tables(answers=str(file), **options),
        lambda file: PreferenceData.from_tables(answers=file, **options),
    ]
    # Every reader reads every file of one form; of the others, each file is read by one of them.
    chosen = product(readers, files) if form == "everything" else zip(readers, files, strict=False)
    for read, file in chosen:
        same(read(file), wanted)


HEAD = (
    "# DATA TYPE: {kind}\n# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 3\n"
    "# ALTERNATIVE NAME 1: a\n# ALTERNATIVE NAME 2: b\n# ALTERNATIVE NAME 3: c\n"
)
BALLOTS: dict[str, tuple[str, list[Any], Any]] = {
    "soc": ("2: 1,2,3\n1: 3,1,2\n", [["a", "b", "c"]] * 2 + [["c", "a", "b"]], None),
    "toc": ("2: 1,{2,3}\n1: 3,1,2\n", [["a", ("b", "c")]] * 2 + [["c", "a", "b"]], None),
    "soi": ("2: 1\n1: 3,1,2\n", [["a", ("b", "c")]] * 2 + [["c", "a", "b"]], "top-k"),
    "toi": ("2: 2,1\n1: {3,2},1\n", [["b", "a"]] * 2 + [[("c", "b"), "a"]], "subset"),
}


@pytest.mark.parametrize("kind", list(BALLOTS))
def test_rankings_say_the_same_from_files(
    kind: str, tmp_path: Path, read_by_command: Callable[..., PreferenceData]
) -> None:
    text, orders, incomplete = BALLOTS[kind]
    file = tmp_path / f"votes.{kind}"
    file.write_text(HEAD.format(kind=kind) + text)
    items = ["a", "b", "c"]
    rankings = Rankings.from_orders(orders, items)
    wanted = PreferenceData.from_tables(answers=rankings)
    options = ["--incomplete", incomplete] if incomplete else []
    same(PreferenceData.from_tables(answers=read_ballots(file, incomplete)), wanted)
    same(PreferenceData.from_tables(items, rankings), wanted)
    same(PreferenceData.from_tables(items).with_comparisons(rankings), wanted)
    same(read_by_command(file, *options), wanted)


def test_pairs_alone_say_the_same() -> None:
    wanted = PreferenceData.from_tables(answers=WON)
    for value in (
        PAIRS,
        tuple(PAIRS),
        iter(PAIRS),
        np.array(PAIRS),
        [list(pair) for pair in PAIRS],
    ):
        same(PreferenceData.from_tables(answers=value), wanted)


def test_blanks_of_lists_are_blanks_in_every_form(tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_text("best,worst,item_1,item_2,item_3\na,b,b, ,a\n")
    items = ["a", "b"]
    same(PreferenceData.from_tables(items, file), PreferenceData.from_tables(items, [("a", "b")]))
    for column in ("list", "choice"):
        table = ORDERS if column == "list" else CHOICES
        cells = [None, *table[column][1:]]
        table.assign(**{column: cells}).to_csv(file, index=False)
        for value in (file, table.assign(**{column: cells})):
            with pytest.raises(DataError, match=f"column '{column}': the cell is blank"):
                PreferenceData.from_tables(answers=value)


def test_a_file_of_the_best_and_the_worst_is_fitted(tmp_path: Path) -> None:
    file, run = tmp_path / "answers.csv", tmp_path / "run"
    EXTREMES.to_csv(file, index=False)
    held = {"individual_amplitude": 1.0}
    by_frame = relpref.fit(answers=EXTREMES, fixed=held, progress_bar=False)
    by_file = relpref.fit(answers=str(file), fixed=held, progress_bar=False)
    for given, out in ((file, run), (run / "data" / "comparisons.csv", tmp_path / "again")):
        assert (
            main(
                ["fit", str(given), "--fixed=individual_amplitude=1", "--quiet", "--out", str(out)]
            )
            == 0
        )
    others: list[Any] = [by_file, relpref.load(run), relpref.load(tmp_path / "again")]
    for other in others:
        pd.testing.assert_frame_equal(other.ranking(rng_key=0), by_frame.ranking(rng_key=0))
    more = Rankings.from_orders([["c", "a", "b"]])
    updated = by_frame.update(more)
    assert updated.data.comparisons.num_lists == by_frame.data.comparisons.num_lists + 1
