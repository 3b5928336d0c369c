"""The JSON document of a ranking against the posterior's own answers."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relpref
from relpref.errors import UnsupportedProgramError
from relpref.posterior.gaussian import GaussianBelief


@pytest.fixture(scope="module")
def posterior() -> Any:
    """Two items that lead with many answers, one of them never compared with the third."""
    answers = [("a", "c"), ("b", "c"), ("a", "d"), ("b", "d")] * 60 + [
        ("c", "d"),
        ("a", "b"),
        ("b", "a"),
    ]
    return relpref.fit(answers=answers, fixed={"individual_amplitude": 1.0}, check=False)


def test_document(posterior: Any) -> None:
    document = json.loads(posterior.to_json(0.8))
    ranking, tiers = posterior.ranking(0.8), posterior.tiers()
    assert (document["interval"], document["probability"]) == (0.8, 0.95)
    assert document["items"] == 4
    rows = document["ranking"]
    assert [row["item"] for row in rows] == list(ranking.index)
    for name in ranking:
        np.testing.assert_array_equal([row[name] for row in rows], ranking[name])
    tied = [row["tied_with_leader"] for row in rows]
    assert tied == (tiers["tier"] == 1).tolist() and tied[:2] == [True, True] and not all(tied)
    assert len(document["pairs"]) == 6
    for pair in document["pairs"]:
        first, second = pair["first"], pair["second"]
        assert ranking.index.get_loc(first) < ranking.index.get_loc(second)
        expected = posterior.prefer([(first, second)]).iloc[0]
        assert pair["gap"] == pytest.approx(expected["gap_mean"])
        assert pair["probability"] == pytest.approx(expected["p_better"])
        assert pair["lower"] < pair["gap"] < pair["upper"]
        # A pair that is told apart differs by at least the critical value of a single pair.
        assert pair["tied"] or expected["gap_mean"] > 1.96 * expected["gap_sd"]
        if first == rows[0]["item"]:
            row = next(row for row in rows if row["item"] == second)
            assert pair["tied"] == row["tied_with_leader"]


def test_limits(posterior: Any) -> None:
    document = json.loads(posterior.to_json(top=3, pairs=2))
    assert (len(document["ranking"]), len(document["pairs"]), document["items"]) == (3, 1, 4)
    for pairs in (0, 1):
        assert json.loads(posterior.to_json(pairs=pairs))["pairs"] == []


def test_unknown_numbers_are_null(posterior: Any) -> None:
    nothing = GaussianBelief(np.full(4, np.nan), np.full((4, 4), np.nan))
    document = json.loads(replace(posterior, belief=nothing).to_json())
    assert document["ranking"][0]["mean"] is None and document["ranking"][0]["tier"] is None
    assert document["ranking"][0]["tied_with_leader"]


def test_too_many_items_for_a_matrix(posterior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(posterior), "large", property(lambda self: True))
    for method in ("to_json", "tiers"):
        with pytest.raises(UnsupportedProgramError, match=rf"subset\(labels\).{method}\(\)"):
            getattr(posterior, method)()
