"""The JSON document of a ranking against the posterior's own answers."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
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
    rows = pd.DataFrame(document["ranking"]).set_index("item")
    pd.testing.assert_frame_equal(rows[ranking.columns], ranking, check_names=False)
    tied = rows["tied_with_leader"]
    assert tied.tolist() == (tiers["tier"] == 1).tolist() == [True, True, False, False]
    pairs = pd.DataFrame(document["pairs"])
    told = posterior.prefer(pairs[["first", "second"]])
    np.testing.assert_allclose(pairs[["gap", "probability"]], told[["gap_mean", "p_better"]])
    assert ((pairs["lower"] < pairs["gap"]) & (pairs["gap"] < pairs["upper"])).all()
    # A pair that is told apart differs by at least the critical value of a single pair.
    assert (pairs["tied"] | (told["gap_mean"] > 1.96 * told["gap_sd"])).all()
    first, second = (ranking.index.get_indexer(pairs[end]) for end in ("first", "second"))
    assert len(pairs) == 6 and np.all(first < second)
    assert pairs["tied"][first == 0].tolist() == tied.iloc[second[first == 0]].tolist()


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
