"""Questions of runs whose answers have covariates, groups, lists or weights."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from relpref.ask.learning import up_to_date
from relpref.ask.loop import Loop
from relpref.errors import DataError
from relpref.infer import UtilityPosterior
from relpref.runs import load_run

ITEMS = "name,size\n" + "".join(f"e{i},{i % 3}\n" for i in range(6))
HOME = "winner,loser,home,length_winner,length_loser,style_winner,style_loser\n" + "".join(
    f"e{i},e{(i + k) % 6},{('e' + str(i), 'e' + str((i + k) % 6), '')[i % 3]},{i}.25,{k},{'ab'[i % 2]},{'bc'[k % 2]}\n"
    for i in range(6)
    for k in (1, 2)
)
GROUPS = "winner,loser,group,rater\n" + "".join(
    f"e{i},e{(i + k) % 6},{'' if i == 5 else 7 * i + k},{rater}\n"
    for i in range(6)
    for k in (1, 2)
    for rater in ("ann", "ben")
)
LISTS = "list,item,place\n" + "".join(
    f"{j},e{(j + k) % 6},{k}\n" for j in range(4) for k in range(1, 4)
)
WEIGHTS = "winner,loser,weight\ne0,e1,2.5\ne1,e2,1\ne3,e2,0.5\ne5,e4,1\n"
AMPLITUDES = {
    "attributes_amplitude": 1,
    "attributes_lengthscale": 1,
    "attributes_linear_share": 0.5,
    "individual_amplitude": 1,
}


@pytest.fixture(scope="module")
def fitted(fit: Any) -> Any:
    """A run of the command line from one table of answers."""

    def fitted(answers: str, options: str = "", **held: float) -> Path:
        return cast(Path, fit(ITEMS, answers, options, **AMPLITUDES, **held))

    return fitted


def answer(loop: Loop, number: int, rater: str = "ann") -> list[tuple[Any, Any]]:
    """Prefers the item with the smaller number."""
    pairs = []
    for _ in range(number):
        question = loop.question(rater)
        assert question is not None
        loop.answer(question.id, "first" if question.first < question.second else "second", rater)
        pairs.append((question.first, question.second))
    return pairs


def means(posterior: Any) -> Any:
    return (
        posterior.ranking(ranks=False).loc[[f"e{i}" for i in range(6)], ["mean", "sd"]].to_numpy()
    )


@pytest.mark.parametrize("kind", ["covariates", "groups", "weights"])
def test_a_run_of_the_command_line_asks_and_learns(kind: str, fitted: Any, tmp_path: Path) -> None:
    run = {
        "covariates": lambda: fitted(HOME, "--covariates home,length,style", effect_scale=0.7),
        "groups": lambda: fitted(GROUPS, group_sd=1.1, rater_spread=0.2, rater_noise=1),
        "weights": lambda: fitted(WEIGHTS),
    }[kind]()
    with Loop.open(run, score="variance") as loop:
        start = loop.posterior
        pairs = answer(loop, 3)
        assert not loop.trouble and loop.posterior.data.num_answers == start.data.num_answers + 3
        loop.refine()
        known, table = loop.posterior, loop.posterior.data.comparisons
        alone = loop.own_ranking("ann")
        file = tmp_path / f"{kind}.csv"
        assert loop.export_answers(file) == known.data.num_answers
        undone = loop.undo("ann")
        assert undone is not None and (undone.first, undone.second) == pairs[-1]
        assert not loop.trouble and loop.posterior.data.num_answers == start.data.num_answers + 2
    # Sides of a question are equal, and it is a group of its own.
    told = pd.DataFrame([sorted(pair) for pair in pairs], columns=["winner", "loser"])
    if kind == "covariates":
        told = told.assign(
            home=None, length_winner=3, length_loser=3, style_winner="a", style_loser="a"
        )
    if kind == "groups":
        told = told.assign(group=["x", "y", "z"], rater="ann")
    expected = start.update(told)
    np.testing.assert_allclose(means(known), means(expected), atol=2e-3)
    # The exported table says as much as the run knows, and others can read it.
    again = start.data.with_comparisons(pd.read_csv(file))
    assert again.comparisons.columns.keys() == table.columns.keys() | {"rater", "shown_first"}
    for name in {"covariates", "weight", "count"} & table.columns.keys():
        np.testing.assert_array_equal(
            np.sort(table.columns[name], axis=0), np.sort(again.comparisons.columns[name], axis=0)
        )
    if kind == "groups":
        assert alone is not None
        groups = [np.asarray(each.group) for each in (table, again.comparisons)]
        sizes = [np.bincount(group[group >= 0]) for group in groups]
        assert sorted(sizes[0]) == sorted(sizes[1]) == [1, 1, 1, *[2] * 10]
    posterior, waiting = up_to_date(load_run(run))
    assert waiting == 1 and posterior.data.num_answers == start.data.num_answers + 2


def test_answers_about_one_pair_are_one_group(fitted: Any) -> None:
    run = fitted(GROUPS, group_sd=1.5, rater_spread=0.2, rater_noise=1)
    start, pairs = cast(UtilityPosterior, load_run(run).posterior), [("e0", "e3")]
    with Loop.open(run, score="variance", pairs=pairs, repeats=2) as loop:
        for rater in ("ann", "ben", "eve"):
            answer(loop, 1, rater)
        loop.refine()
        answers = loop.posterior.data.comparisons
        asked = (answers.winner == 0) & (answers.loser == 3)
        assert asked.sum() == 3 and len(set(np.asarray(answers.group)[asked])) == 1
        told = pd.DataFrame({"winner": "e0", "loser": "e3", "rater": ["ann", "ben", "eve"]})
        gaps = {}
        for name, group in (("one", ["q"] * 3), ("own", ["q", "r", "s"])):
            gaps[name] = start.update(told.assign(group=group)).prefer("e0", "e3")["gap_mean"][0]
        assert loop.posterior.prefer("e0", "e3")["gap_mean"][0] == pytest.approx(
            gaps["one"], abs=2e-3
        )
        assert gaps["own"] - gaps["one"] > 0.02


def test_lists_travel_whole(fitted: Any, tmp_path: Path) -> None:
    run = fitted(LISTS)
    more = tmp_path / "more.csv"
    more.write_text("list,item,place\n0,e5,1\n0,e3,2\n0,e0,3\n")
    with Loop.open(run, score="variance") as loop:
        start = loop.posterior
        answer(loop, 1)
        assert loop.posterior.quick_answers == 1
        answer(loop, 1)
        loop.undo("ann")
        assert not loop.trouble and loop.posterior.data.num_answers == start.data.num_answers + 1
        assert loop.import_answers(more) == 2
        assert not loop.trouble
        assert loop.posterior.data.comparisons.num_lists == 5
        file = tmp_path / "all.csv"
        loop.export_answers(file)
    again = start.data.with_comparisons(pd.read_csv(file))
    assert (
        again.comparisons.num_lists == 5 and again.num_comparisons == start.data.num_comparisons + 3
    )


def test_tables_of_another_kind_are_refused(fitted: Any, tmp_path: Path) -> None:
    run, more = fitted(WEIGHTS), tmp_path / "more.csv"
    more.write_text("winner,loser,group\ne0,e1,q\n")
    with (
        Loop.open(run) as loop,
        pytest.raises(DataError, match="has a column 'group', unlike the answers"),
    ):
        loop.import_answers(more)
    run = fitted(HOME, "--covariates home", effect_scale=0.7)
    more.write_text("winner,loser\ne0,e1\n")
    with Loop.open(run) as loop:
        with pytest.raises(DataError, match=r"no column 'home'.*give it"):
            loop.import_answers(more)
        more.write_text("winner,loser,home\ne0,e1,e1\n")
        assert loop.import_answers(more) == 1 and not loop.trouble
        assert loop.posterior.data.num_answers == 13
