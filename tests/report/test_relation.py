"""The page of a relation."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.errors import DataError
from relpref.infer import RelationPosterior
from relpref.report.blocks import Chapter
from relpref.report.page import _body, _environment, render
from relpref.report.relation import Subject, average
from relpref.report.words import OURS
from relpref.rls import ConditionalRanker


def tables(p: int = 8, m: int = 6) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(3)
    nodes = pd.DataFrame(
        rng.normal(size=(p, 2)), index=[f"<b>{row}</b>" for row in range(p)], columns=["x", "y"]
    )
    objects = pd.DataFrame(
        rng.normal(size=(m, 2)), index=[f"o{row}" for row in range(m)], columns=["u", "v"]
    )
    relation = nodes.to_numpy() @ objects.to_numpy().T + 0.2 * rng.normal(size=(p, m))
    return nodes, objects, relation


def fitted(relation: np.ndarray, *tables: pd.DataFrame, **options: Any) -> RelationPosterior:
    ranker = ConditionalRanker(
        "gaussian", **{"gamma": 0.2, "standardize": False, "regularization": 1.0} | options
    )
    return ranker.fit(tables[0], relation, *tables[1:]).posterior_


@pytest.fixture(scope="module")
def complete() -> RelationPosterior:
    nodes, objects, relation = tables()
    return fitted(relation, nodes, objects)


def test_labels_are_shown_as_they_are(complete: RelationPosterior, read: Any) -> None:
    page = render(complete, title="Who likes what")
    found = read(page)
    assert found.text("h1") == ["Who likes what"]
    assert not found.all("b") and len(found.all("svg")) == 2
    assert render(complete, title="Who likes what") == page


@pytest.mark.usefixtures("without_pictures")
def test_gaps_and_nodes_without_labels(prose: Any) -> None:
    nodes, objects, relation = tables()
    relation[np.random.default_rng(0).random(relation.shape) < 0.4] = np.nan
    relation[3], relation[5, :5] = np.nan, [1.0, 2.0, 1.0, 0.0, 1.0]
    text = prose(fitted(relation, nodes, objects))
    assert "(the fewest labels)" in text and "(the most labels)" in text
    assert "Nodes without any 1" in text and "in 5 groups" in text


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize(("symmetry", "sign"), [("reciprocal", -1), ("symmetric", 1)])
def test_one_kind_of_nodes(symmetry: str, sign: int, prose: Any) -> None:
    nodes, _, _ = tables()
    half = np.random.default_rng(1).normal(size=(8, 8))
    relation = half + sign * half.T
    relation[0, 1] = relation[1, 0] = np.nan
    posterior = fitted(relation, nodes, symmetry=symmetry, loss="regression")
    text = prose(posterior)
    given, pairs = (27, 28) if sign < 0 else (35, 36)
    assert f"It rests on {given} labels of {pairs} pairs" in text
    assert "ranks 8 nodes for one another" in text and f"{symmetry}: " in text
    assert "the numbers for single nodes count it twice" in text
    subject = Subject(posterior)
    assert 2 not in set(subject.ranking(2)["position"])


def test_stopped_early(prose: Any) -> None:
    nodes, objects, relation = tables()
    relation[0, 1] = np.nan
    posterior = fitted(relation, nodes, objects, early_stopping=0.3)
    text = prose(posterior)
    assert "scores without intervals" in text


@pytest.mark.usefixtures("without_pictures")
def test_many_objects_are_cut(
    monkeypatch: pytest.MonkeyPatch, complete: RelationPosterior, prose: Any
) -> None:
    monkeypatch.setattr("relpref.report.relation.MOST_RANKED", 4)
    monkeypatch.setattr("relpref.report.relation._MOST_NODES", 5)
    monkeypatch.setattr("relpref.report.relation._MOST_PAIRS", 10)
    text = prose(complete)
    assert "Of 6 objects, the 4 with the highest scores are ranked for each node." in text
    assert "Over 5 nodes, evenly spread over the data" in text
    assert "Nothing was left out and predicted" in text


@pytest.mark.usefixtures("without_pictures")
def test_no_code_where_labels_have_no_probability(prose: Any) -> None:
    nodes, _, _ = tables()
    half = np.random.default_rng(1).normal(size=(8, 8))
    text = prose(fitted(half - half.T, nodes, symmetry="reciprocal", loss="ranking"))
    assert "so it has no probability" in text and "relpref.rls" not in text


def test_verdict_on_new_nodes_knows_its_error() -> None:
    def verdict(values: np.ndarray) -> str:
        return str(_body(_environment(OURS), Chapter("", "relation.html:verdict", average(values))))

    rng = np.random.default_rng(0)
    known = verdict(np.tile([0.7, 0.9], 50))
    assert "± 1%" in known and "about that well" in known
    assert "It may be guessing" in verdict(0.55 + 0.3 * rng.standard_normal(6))
    assert "3 nodes are too few to say" in verdict(np.ones(3))


def test_many_labels_without_a_closed_form_are_not_solved_for_again(
    monkeypatch: pytest.MonkeyPatch, prose: Any
) -> None:
    nodes, objects, relation = tables()
    relation[0, 1] = np.nan
    posterior = fitted(relation, nodes, objects)

    def computed(*_: object, **__: object) -> None:
        raise AssertionError("that takes long")

    monkeypatch.setattr("relpref.report.relation.MOST_EDGES", 40)
    monkeypatch.setattr("relpref.report.relation._MOST_LABELS", 40)
    monkeypatch.setattr("relpref.report.relation.leave_one_out", computed)
    monkeypatch.setattr("relpref.rls.hold_out.leave_nodes_out", computed)
    monkeypatch.setattr(RelationPosterior, "ranking", computed)
    text = prose(posterior)
    assert "Nothing was left out and predicted" in text and "no closed form take long" in text


def test_pages_without_items_take_no_words(complete: RelationPosterior) -> None:
    with pytest.raises(DataError, match="not about items and answers"):
        render(complete, words={"item": "coffee"})
