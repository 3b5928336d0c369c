"""Few answers whose removal changes who leads: against exhaustive search and refits."""

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.diagnostics import robustness
from relpref.errors import DataError, UnsupportedProgramError

VOTES = Path(os.environ.get("RELPREF_DATA", "data"), "arena", "chatbotarena_20240814.json")


def fit(answers: Any, **fixed: Any) -> Any:
    fixed = {"individual_amplitude": 1.0} | fixed
    return relpref.fit(answers=answers, fixed=fixed, progress_bar=False, check=False)


def first(posterior: Any, top: int = 1) -> set[Any]:
    return set(posterior.ranking(ranks=False).index[:top])


def table(seed: int, rows: int = 40) -> pd.DataFrame:
    """Answers about five items, most of which are near one another."""
    rng = np.random.default_rng(seed)
    utility = np.array([0.9, 0.6, 0.4, 0.0, -1.0])
    one = rng.integers(0, 5, rows)
    two = (one + rng.integers(1, 5, rows)) % 5
    won = utility[one] - utility[two] + rng.standard_normal(rows) > 0
    ends = {"winner": np.where(won, one, two), "loser": np.where(won, two, one)}
    return pd.DataFrame({name: np.array([*"abcde"])[end] for name, end in ends.items()})


@pytest.mark.parametrize("top", [1, 2])
def test_the_refit_has_others_among_the_first(top: int) -> None:
    posterior = fit(table(0))
    result = posterior.robustness(top)
    assert result.confirmed and set(result.before) == first(posterior, top)
    assert result.answers["count"].sum() == result.number > 0 and result.total == 40
    again = posterior.update(withdraw=result.answers)
    assert first(again, top) == set(result.after) != set(result.before)
    assert f"{result.number} of 40 answers removed" in repr(result)


def test_a_handful_of_answers() -> None:
    """No warning of a refit reaches the caller; the result says what it cannot know."""
    result = robustness(fit([("a", "b"), ("b", "c")]))
    assert "nothing else connects 2 groups of items, so this rests on the prior" in repr(result)
    result = robustness(fit([("a", "b")]))
    assert repr(result) == "Robustness(no removal of answers changes who is first: 'a')"
    posterior = fit([("a", "b"), ("b", "c"), ("a", "c")])
    stopped = replace(posterior, info={**posterior.info, "result": "max_iterations"})
    with pytest.warns(relpref.infer.InferenceWarning, match="max_iterations"):
        robustness(stopped)


def test_as_few_as_an_exhaustive_search_finds() -> None:
    """The first three tables in which two answers or fewer are enough."""
    compared = 0
    for seed in range(20):
        posterior = fit(table(seed, 24))
        result = robustness(posterior)
        if not result.confirmed or result.number > 2:
            continue
        compared += 1
        rows = posterior.data.comparisons.written(posterior.data.labels).assign(count=1)
        fewer = itertools.combinations(range(len(rows)), result.number - 1)
        for some in fewer:
            if some:
                other = posterior.update(withdraw=rows.iloc[list(some)])
                assert first(other) == set(result.before)
        if compared == 3:
            break
    assert compared == 3


def test_raters_lists_and_groups() -> None:
    """A rater, a group and a list that alone put b before a."""
    fair = pd.DataFrame({"winner": [*"abacbc"] * 5, "loser": [*"bacacb"] * 5, "rater": "ann"})
    fan = pd.DataFrame({"winner": ["a"] * 6, "loser": ["b"] * 3 + ["c"] * 3, "rater": "fan"})
    reverse = pd.DataFrame({"winner": ["b"] * 4, "loser": ["a"] * 4, "rater": "bob"})
    answers = pd.concat([fair, fan, reverse], ignore_index=True)
    result = robustness(fit(answers, rater_noise=np.ones(3)))
    assert result.confirmed and ("rater", "fan") in result.units
    grouped = answers.rename(columns={"rater": "group"})
    result = robustness(fit(grouped, group_sd=0.5))
    assert ("group", "fan") in result.units and "group 'fan' is enough" in repr(result)
    orders = [("o1", "abc"), ("o2", "bac"), ("o3", "abc"), ("o4", "bca"), ("o5", "acb")]
    rows = [(name, item, place) for name, order in orders for place, item in enumerate(order, 1)]
    lists = fit(pd.DataFrame(rows, columns=["list", "item", "place"]))
    result = robustness(lists)
    assert result.confirmed and result.total == 5 and 0 < result.number < 5
    assert first(lists.update(withdraw=result.answers)) == set(result.after)


def test_what_cannot_be_removed() -> None:
    posterior = fit(table(0))
    for top in (0, 5):
        with pytest.raises(DataError, match=f"top is {top}, and there are 5 items"):
            posterior.robustness(top)
    with pytest.raises(UnsupportedProgramError, match="sites of the answers"):
        replace(posterior, sites={}).robustness()


@pytest.mark.skipif(not VOTES.exists(), reason="RELPREF_DATA has no votes on language models")
def test_votes_on_language_models() -> None:
    """The decisive votes; a greedy choice by influence computed once needs 559."""
    file = json.loads(VOTES.read_text())
    ends, wins = np.array(file["models"], dtype=object)[np.array(file["X"])], np.array(file["Y"])
    one, two = ends.T
    columns = {"winner": [*one, *two], "loser": [*two, *one], "count": wins[:, :2].T.ravel()}
    votes = pd.DataFrame(columns).query("count > 0")
    result = robustness(fit(votes))
    assert result.confirmed and result.number <= 500


def test_a_tie_is_no_change_of_who_leads() -> None:
    answers = pd.DataFrame({"winner": [*"aaabb"], "loser": [*"bbbaa"]})
    result = robustness(fit(answers))
    assert result.confirmed and result.number == 2 and result.after == ("b",)
