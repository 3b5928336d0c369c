"""OHSUMED (XPGP Fig. 2): relevance feedback on medical abstracts.

LETOR's document similarities, the paper's relation, are not among the files. Three stand-ins, each
a setting of its own:

same          all 25 features are attributes, and nearest neighbors among the same features are the
relation: what the relation
              adds is another kernel on the same numbers;
held-back     the ten features of the titles are the attributes; nearest neighbors among the other
fifteen (abstract, and title
              with abstract) are the relation, so that it holds what the attributes do not, as the
              paper's did;
file          the relation is a file of the user's own, over the documents' labels, and all features
are attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.reproduce.neighbours import DERIVED, nearest_neighbours
from benchmarks.reproduce.problem import Problem, distances
from benchmarks.reproduce.protocol import Protocol, Source
from relpref import PreferenceData
from relpref.data import Table
from relpref.data_loaders import letor
from relpref.data_loaders.edges import read_edges

TITLE_FEATURES = 10
_FEWEST_PAIRS = 400  # so that at least as many pairs remain as are known


@cache
def _queries(source: Source) -> dict[str, letor.LetorQuery]:
    return letor.load_queries(source.data)


def chosen(source: Source, number: int = 10, seed: int = 2009) -> list[str]:
    """Random queries among those with enough pairs."""
    eligible = [
        qid for qid, query in _queries(source).items() if len(query.preferences()) >= _FEWEST_PAIRS
    ]
    return [str(qid) for qid in np.random.default_rng(seed).permutation(eligible)[:number]]


def load(source: Source, query: int) -> dict[str, Problem]:
    """The settings of one query."""
    one = _queries(source)[chosen(source)[query]]
    title, other = one.features.iloc[:, :TITLE_FEATURES], one.features.iloc[:, TITLE_FEATURES:]
    if source.relation is not None:
        table = among(read_edges(source.relation), one.features.index)
        return {"file": _problem(one, one.features, {"similarity": table})}
    return {
        "same": _problem(one, one.features, {DERIVED: nearest_neighbours(one.features)}),
        "held-back": _problem(one, title, {DERIVED: nearest_neighbours(other)}),
    }


def among(table: Table, labels: Iterable[str]) -> Table:
    """Keep the edges between the documents of one query, from the file of a whole collection."""
    inside = table.frame[["source", "target"]].isin(set(labels)).all(axis=1).to_numpy()
    lines = None if table.lines is None else np.asarray(table.lines)[inside]
    return replace(table, frame=table.frame[inside], lines=lines)


def _problem(one: letor.LetorQuery, attributes: pd.DataFrame, relations: dict[str, Any]) -> Problem:
    """All features are attributes of the data; distances are those of some of them."""
    data = PreferenceData.from_tables(one.features, one.preferences(), relations)
    values = attributes.to_numpy()
    scale = values.std(axis=0)
    return Problem(data, distances(values / np.where(scale > 0, scale, 1)))


PROTOCOL = Protocol("ohsumed", "OHSUMED, LETOR 2.0 (XPGP Fig. 2)", (100, 150, 200), load)
