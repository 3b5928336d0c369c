"""The regularisation of a conditional ranker: hold-outs against training again, and the choice itself."""

from typing import Any

import numpy as np
import pytest

from relpref.errors import DataError
from relpref.rls import (
    BothKFold,
    ConditionalRanker,
    ConditionalRankerCV,
    EdgeKFold,
    SourceKFold,
    ranking_error,
)

LAMBDAS = (0.01, 0.3, 10.0)


def data(n: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(n, 2))
    return nodes, np.sin(nodes @ np.array([[1, 2], [-1, 1]]) @ nodes.T) + 0.3 * rng.normal(size=(n, n))


@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("unknown", [0.0, 0.2])
def test_rows_held_out(loss: str, unknown: float) -> None:
    nodes, relation = data()
    relation[np.random.default_rng(1).random(relation.shape) < unknown] = np.nan
    base = ConditionalRanker("gaussian", gamma=0.5, loss=loss, tol=1e-11)
    folds = np.arange(9)
    chosen = ConditionalRankerCV(base, regularizations=LAMBDAS, folds=folds).fit(nodes, relation)
    # One node on its own: it leaves as row and as column where nodes are ranked for one another.
    rest = np.delete(np.arange(9), 4)
    again = ConditionalRanker("gaussian", gamma=0.5, loss=loss, tol=1e-11, regularization=LAMBDAS[1])
    again.fit(nodes[rest], relation[np.ix_(rest, rest)])
    expected = again.predict(nodes[[4]], nodes)
    np.testing.assert_allclose(chosen.held_out_[1, 4], expected[0], atol=1e-7)
    assert chosen.regularization_ == LAMBDAS[int(np.argmax(chosen.scores_))]
    assert chosen.ranker_.regularization == chosen.regularization_
    assert chosen.predict().shape == (9, 9)


def test_a_splitter_is_a_training_for_each_split() -> None:
    nodes, relation = data()
    base = ConditionalRanker("gaussian", gamma=0.5, tol=1e-11)
    edges = np.column_stack(np.nonzero(np.ones((9, 9))))
    for splitter in (EdgeKFold(3), SourceKFold(3), BothKFold(3)):
        chosen = ConditionalRankerCV(base, regularizations=LAMBDAS, cv=splitter).fit(nodes, relation)
        train, test = next(iter(splitter.split(edges)))
        known = np.full((9, 9), np.nan)
        known[tuple(edges[train].T)] = relation[tuple(edges[train].T)]
        again = ConditionalRanker("gaussian", gamma=0.5, tol=1e-11, regularization=LAMBDAS[2]).fit(
            nodes, known
        )
        places = tuple(edges[test].T)
        np.testing.assert_allclose(chosen.held_out_[2][places], again.predict()[places], atol=1e-6)


@pytest.mark.parametrize("cv", ["pair", "edge", "row", "column", "both"])
@pytest.mark.parametrize("symmetry", ["none", "symmetric"])
@pytest.mark.parametrize("loss", ["ranking", "regression"])
def test_every_hold_out_chooses(cv: str, symmetry: str, loss: str) -> None:
    nodes, relation = data()
    if symmetry == "symmetric":
        relation = 0.5 * (relation + relation.T)
    base = ConditionalRanker("gaussian", gamma=0.5, symmetry=symmetry, loss=loss)
    if cv == "pair" and (symmetry, loss) == ("symmetric", "ranking"):
        with pytest.raises(DataError, match="closed form"):
            ConditionalRankerCV(base, regularizations=LAMBDAS, cv=cv).fit(nodes, relation)
        return
    chosen = ConditionalRankerCV(base, regularizations=LAMBDAS, cv=cv, folds=3).fit(nodes, relation)
    assert np.isfinite(chosen.scores_).all() and chosen.regularization_ in LAMBDAS


def test_scoring_and_refusals() -> None:
    nodes, relation = data()

    def score(labels: Any, scores: Any) -> float:
        return -ranking_error(labels, scores)

    chosen = ConditionalRankerCV(regularizations=LAMBDAS, scoring=score).fit(nodes, relation)
    assert (chosen.scores_ <= 0).all()
    with pytest.raises(DataError, match="cv is 'rows'"):
        ConditionalRankerCV(cv="rows").fit(nodes, relation)
    with pytest.raises(DataError, match="positive"):
        ConditionalRankerCV(regularizations=[0.0]).fit(nodes, relation)
    with pytest.raises(DataError, match="folds is 99"):
        ConditionalRankerCV(cv="both", folds=99).fit(nodes, relation)
    symmetric = 0.5 * (relation + relation.T)
    with pytest.raises(DataError, match="symmetric=True"):
        ConditionalRankerCV(ConditionalRanker(symmetry="symmetric"), cv=EdgeKFold(3)).fit(nodes, symmetric)
