"""Runs without answers, with one item, and with very many."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.infer import UtilityPosterior
from relpref.posterior.gaussian import DrawsBelief, GaussianBelief
from relpref.report.page import render
from relpref.report.subject import Subject, places_of

pytestmark = pytest.mark.usefixtures("without_pictures")
SAMPLES = {"engine": "samples", "result": "converged", "iterations": 50, "chains": 1}


def of_size(make: Any, size: int, draws: int = 50, answers: Any = None) -> UtilityPosterior:
    index = pd.Index([f"item {row}" for row in range(size)], dtype=object)
    data = PreferenceData.from_tables(
        pd.DataFrame({"x": np.arange(size), "y": np.arange(size) % 7.0}, index=index), answers
    )
    values = np.random.default_rng(0).normal(size=(draws, size)) + np.linspace(1, -1, size)
    changes: dict[str, Any] = {"parts": {}, "sites": {}, "log_evidence": None, "info": SAMPLES}
    # Made of a small one: the covariance of many items would not fit into memory.
    small = make()
    changes |= {"origin": replace(small.origin, args=(data,)), "belief": DrawsBelief(values)}
    return replace(small, data=data, slices={"utility": slice(0, size)}, **changes)


def test_without_answers(make: Any, prose: Any) -> None:
    text = prose(of_size(make, 6))
    assert "A ranking of 6 items, based on 2 attributes." in text
    assert "There are no answers, so every interval is that of the prior." in text
    assert "Surprising answers" not in text


def test_one_item(make: Any, prose: Any) -> None:
    text = prose(of_size(make, 1))
    assert "so there is nothing to rank" in text and "What to ask next" not in text


def test_places_of_some_are_the_ranking_s(make: Any) -> None:
    posterior = of_size(make, 12, draws=1000)
    table = posterior.ranking()
    expected = table.loc[[f"item {row}" for row in (0, 5, 11)]]
    found = places_of(posterior, np.array([0, 5, 11]))
    # `ranking` draws 4000 times from the same 1000 draws: 0.05 is more than 5 standard errors of an
    # average of places.
    np.testing.assert_allclose(found["expected_rank"], expected["expected_rank"], atol=0.3)
    np.testing.assert_allclose(found["p_best"], expected["p_best"], atol=0.03)
    gaussian = make(belief=GaussianBelief(np.arange(8.0)[::-1], 1e-6 * np.eye(8)))
    assert places_of(gaussian, np.array([0, 7]))["expected_rank"].tolist() == [1, 8]


@pytest.mark.parametrize("size", [200, pytest.param(50_000, marks=pytest.mark.slow)])
def test_many_items_are_summarised(
    size: int, make: Any, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relpref.report.subject.ALL_RANKED", 100)
    answers = pd.DataFrame(
        {"winner": ["item 0"] * 30, "loser": [f"item {row}" for row in range(1, 31)]}
    )
    posterior = of_size(make, size, answers=answers)
    text = render(posterior)
    assert len(text) < 500_000
    found = read(text)
    assert f"The first 50 of {size:,} items" in found.text("caption")
    assert f"and {size - 40:,} more were never compared" in found.prose
    assert len(Subject(posterior).ranking) == size
