"""What is read first of a posterior."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.classifiers import RankingGPClassifier
from relpref.infer import EP, from_samples
from relpref.models import xpgp
from relpref.rls import ConditionalRanker

ITEMS = pd.DataFrame(
    {"price": [2.0, 3.5, np.nan, 4.0]}, index=["mocha", "su\nmatra", "instant coffee", "gesha"]
)
PAIRS = [("gesha", "instant coffee")] * 3 + [
    ("su\nmatra", "instant coffee"),
    ("mocha", "instant coffee"),
]


@pytest.fixture(scope="module")
def posterior() -> Any:
    return relpref.fit(ITEMS, PAIRS, hyperparameters="maximize")


def test_the_best_come_first_with_what_they_rest_on(posterior: Any) -> None:
    text = posterior.summary(top=3)
    lines = text.splitlines()
    assert repr(text) == text == str(text)
    assert lines[0] == f"{posterior.data.describe()}."
    best = posterior.ranking().iloc[0]
    row = (
        f"1 {posterior.ranking().index[0]} {best['mean']:+.2f} {best['lower']:+.2f} to "
        f"{best['upper']:+.2f} "
    )
    assert " ".join(lines[2].split()).startswith(row)
    assert lines[5] == "(1 more)"
    shares = posterior.shares()
    assert (
        f"attributes {shares['attributes']:.0%}, the items themselves {shares['individual']:.0%}"
        in lines[6]
    )
    assert (
        lines[7]
        == "Fitted to attributes, relations and the items themselves by EP, hyperparameters at their maximum; log evidence "
        f"{posterior.log_evidence:.2f}. Compared with the exact posterior: {posterior.info['check']}."
    )
    assert lines[-1] == f"* {posterior.data.notes[-1]}"
    assert "su\\nmatra" in text  # what would break a line is escaped


def test_parts_that_cannot_be_told_apart_are_named(posterior: Any) -> None:
    alike = replace(
        posterior, info={**posterior.info, "alike_parts": [["attributes", "individual"]]}
    )
    sentence = (
        "The answers cannot tell attributes from the items themselves: only their sum is known."
    )
    assert sentence in alike.summary()
    assert sentence not in posterior.summary()


def test_without_answers_it_says_so() -> None:
    prior: Any = EP(xpgp, hyperparameters="maximize").run(
        0, relpref.PreferenceData.from_tables(ITEMS)
    )
    assert prior.summary().startswith("No answers yet: 4 items")
    assert "Where the differences" not in prior.summary()


def test_a_fit_that_failed_says_so_first() -> None:
    failed = relpref.fit(ITEMS, PAIRS, hyperparameters="maximize", max_sweeps=1, throw=False)
    with pytest.warns(match="max_iterations"):
        text = failed.summary()
    assert text.startswith("Not to be relied on, max_iterations: The largest number of sweeps")


def test_every_posterior_has_one(posterior: Any) -> None:
    nodes = pd.DataFrame({"x": [3.0, 1.0, 2.0]}, index=list("abc"))
    games = pd.DataFrame({"source": ["a", "a"], "target": ["b", "c"], "value": [0.7, 0.6]})
    relation = ConditionalRanker(symmetry="reciprocal").fit(nodes, games).posterior_.summary()
    assert "3 conditioning nodes" in relation and "The ranking for a, for example:" in relation
    ballots = relpref.Rankings.from_orders([["a", "b"], ["b", "a"]], items=nodes)
    classes = RankingGPClassifier("cut").fit(ballots, ["u", "v"]).posterior_.summary()
    assert "'u' (1)" in classes and "Fitted by EP" in classes

    draws = {
        "utility": np.random.default_rng(0).normal(size=(40, 4)),
        "individual_amplitude": np.ones(40),
    }
    sampled = from_samples(draws, xpgp, posterior.data.without_attributes())
    assert "Fitted by samples" in sampled.summary()


def test_a_notebook_shows_the_ranking(posterior: Any) -> None:
    html = posterior._repr_html_()
    assert html.count("<tr>") == 5 and html.count("<svg") == html.count("<line") == 4
    assert "su\\nmatra" in html and "Careful" not in html and ">100%<" not in html
    labels = [f"<b>{row:050}</b>" for row in range(30)]
    many = relpref.fit(labels, list(pairwise(labels)), hyperparameters="maximize")
    html = many._repr_html_()
    assert (
        html.count("<svg") == 20 and "The first 20 of 30 are shown." in html and "<b>" not in html
    )
    assert html.count("…") == 20
    noted = replace(posterior, info={**posterior.info, "notes": ["a <note>", "another"]})
    assert noted._repr_html_().endswith(
        "</table><p><small>a &lt;note&gt;</small></p><p><small>another</small></p>"
    )
