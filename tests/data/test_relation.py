import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from relpref.data import PreferenceData, Relation
from relpref.data.relation import RESERVED
from relpref.errors import DataError, UnknownLabelError
from relpref.likelihoods import Probit

LABELS = ["a", "b", "c", "d"]


def table(*rows: Any) -> Any:
    columns = ["source", "target", "weight"][: len(rows[0])]
    return pd.DataFrame(rows, columns=columns)


def data(relation: Any, name: Any = "cites") -> Any:
    answers = pd.DataFrame({"winner": ["a"], "loser": ["b"]})
    return PreferenceData.from_tables(LABELS, answers, {name: relation})


def edges(relation: Any) -> Any:
    graph = data(relation).relations["cites"]
    return list(
        zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    )


def matrix(entries: Any, size: Any = 4) -> Any:
    dense = np.zeros((size, size))
    for (row, column), value in entries.items():
        dense[row, column] = value
    return sp.csr_array(dense)


SYMMETRIC = {(0, 1): 2.0, (1, 0): 2.0, (1, 2): 0.5, (2, 1): 0.5}


def test_table_graph_and_matrix_make_the_same_graph() -> None:
    rows = table(("b", "a", 2.0), ("b", "c", 0.5))
    graph: Any = nx.Graph()
    graph.add_weighted_edges_from([("c", "b", 0.5), ("a", "b", 2.0)])
    forms = [
        rows,
        graph,
        matrix(SYMMETRIC),
        sp.coo_matrix(matrix(SYMMETRIC)),
        sp.csc_array(matrix(SYMMETRIC)),
    ]
    forms += [Relation(form, kind="undirected") for form in forms] + [Relation(rows)]
    for form in forms:
        assert edges(form) == [(0, 1, 2.0), (1, 2, 0.5)]


def test_weight_defaults_to_one() -> None:
    assert edges(table(("a", "b"))) == [(0, 1, 1.0)]
    assert edges(nx.path_graph(["a", "b"])) == [(0, 1, 1.0)]


def test_repeated_edges_count_once_and_are_noted() -> None:
    found = data(table(("a", "b", 2), ("b", "a", 2), ("a", "b", 2), ("c", "d", 1)))
    assert found.relations["cites"].num_edges == 2
    assert "relation 'cites': 2 repeated edges counted once" in found.notes


def test_loops_and_zero_weights_are_dropped_and_noted() -> None:
    found = data(table(("a", "a", 2), ("b", "a", 0), ("a", "b", 3)))
    assert edges(table(("a", "a", 2), ("b", "a", 0), ("a", "b", 3))) == [(0, 1, 3.0)]
    assert "relation 'cites': 1 link from an item to itself left out" in found.notes
    assert "relation 'cites': 1 edge of weight 0 left out" in found.notes
    assert "relation 'cites': 2 of 4 items have no edge in it" in found.notes


def test_stored_zeros_of_a_matrix_are_noted() -> None:
    entries = sp.coo_array(([1.0, 1.0, 0.0], ([0, 1, 2], [1, 0, 3])), shape=(4, 4))
    assert "relation 'cites': 1 stored entry of weight 0 left out" in data(entries).notes


def test_repeated_coo_entries_add_up() -> None:
    entries = sp.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(4, 4))
    assert edges(entries) == [(0, 1, 3.0)]
    assert not any("repeated" in note for note in data(entries).notes)


def test_larger_weight_counts_where_directions_differ_and_the_kind_is_given() -> None:
    rows = table(("a", "b", 1.0), ("b", "a", 4.0), ("c", "b", 2.0))
    directed: Any = nx.DiGraph()
    directed.add_weighted_edges_from([("a", "b", 1.0), ("b", "a", 4.0), ("c", "b", 2.0)])
    asymmetric = matrix({(0, 1): 1.0, (1, 0): 4.0, (2, 1): 2.0})
    for form in (rows, directed, asymmetric):
        for kind in ("undirected", "directed"):
            with pytest.raises(DataError, match=rf'Relation\(table, kind="{kind}"\)'):
                data(form)
        assert edges(Relation(form, kind="undirected")) == [(0, 1, 4.0), (1, 2, 2.0)]


def test_heavier_reverse_edges_are_sorted_out_in_any_order() -> None:
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        rows = table(("b", "a", 1.0), ("a", "b", 4.0), ("b", "a", 1.0)).iloc[order]
        assert edges(Relation(rows, kind="undirected")) == [(0, 1, 4.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "other"}, "no kind 'other'; use 'undirected', 'directed', 'bipartite'"),
        ({"kind": "directed", "form": "paths"}, "no form 'paths'"),
        ({"kind": "bipartite", "hubs": "drop"}, "no hubs 'drop'"),
        ({"kind": "bipartite", "form": "roles"}, "form belongs to directed relations"),
        ({"hubs": "count"}, "hubs belongs to bipartite relations and the roles of directed ones"),
        ({"kind": "directed", "form": "random_walk", "max_degree": 3}, "max_degree belongs to"),
        ({"kind": "directed", "teleport": 0.1}, "teleport belongs to"),
        ({"kind": "bipartite", "max_degree": 1}, "max_degree is 1; give a whole number from 2 on"),
        ({"kind": "bipartite", "max_degree": 2.5}, "max_degree is 2.5"),
        ({"kind": "directed", "form": "random_walk", "teleport": 1.0}, "teleport is 1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, message: Any) -> None:
    with pytest.raises(DataError, match=message):
        Relation(table(("a", "b")), **options)


def test_relation_of_a_relation_is_refused() -> None:
    with pytest.raises(DataError, match="itself a Relation"):
        Relation(Relation(table(("a", "b"))))


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        (
            table(("a", "b", 1.0), ("a", "b", 2.0)),
            r"row 1 .*weight 2\.0, but the weight 1\.0 at .*row 0 ",
        ),
        (table(("a", "b", -1.0)), r"row 0 .*weight -1\.0 is negative"),
        (table(("a", "b", 1e200)), r"1e\+200 is not between"),
        (table(("a", "b", 1e-200)), r"1e-200 is not between"),
        (table(("a", "b", np.nan)), "column 'weight': the value is missing"),
        (table(("a", "b", np.inf)), "column 'weight': inf is not finite"),
        (table(("a", "b", "heavy")), "column 'weight': 'heavy' is not a number"),
        (table(("a", "a", 1.0)), "no edge is left"),
        (pd.DataFrame({"source": [], "target": []}), "no rows"),
        (
            pd.DataFrame({"from": ["a"], "target": ["b"]}),
            "no column 'source' among 'from', 'target'",
        ),
        (
            pd.DataFrame({"sorce": ["a"], "target": ["b"]}),
            "did you mean 'source' where it says 'sorce'",
        ),
        (table(("a", "b")).assign(wieght=1), "did you mean 'weight'"),
        (table(("a", None)), "row 0 .*column 'target': the label is missing"),
        (table(("a", ["b"])), "cannot be hashed"),
        (nx.MultiGraph([("a", "b")]), "MultiGraph may hold several edges"),
        (nx.DiGraph([("a", "b")]), "DiGraph is directed"),
        (nx.empty_graph(LABELS), "no edges"),
        (
            nx.Graph([("a", "b", {"weight": "x"})]),
            r"edge \('a', 'b'\), column 'weight': 'x' is not a number",
        ),
        (
            nx.Graph([("a", "b", {"weight": -2})]),
            r"edge \('a', 'b'\): the weight -2\.0 is negative",
        ),
        (nx.Graph([("a", "b", {"weight": None})]), "the value is missing"),
        (matrix({(0, 1): 1.0}), r"entry \(0, 1\) is 1\.0, entry \(1, 0\) is 0\.0"),
        (
            matrix({(0, 1): -1.0, (1, 0): -1.0}),
            r"entry \(0, 1\) for \('a', 'b'\): the weight -1\.0",
        ),
        (
            matrix({(0, 1): np.nan, (1, 0): np.nan}),
            "the weight nan is not a finite positive number",
        ),
        (matrix(SYMMETRIC, size=5), r"shape \(5, 5\), but there are 4 items"),
        (matrix(SYMMETRIC).astype(complex), "type complex128"),
        (sp.csr_array((4, 4)), "no entries"),
        (np.ones((4, 5)), r"position 0: array.* is no edge; write \(source, target\)"),
        ([("a", "b"), "ab"], "position 1: 'ab' is no edge"),
        (7, "expected a table of edges, .* got int"),
    ],
)
def test_unusable_relations_are_refused(relation: Any, message: Any) -> None:
    with pytest.raises(DataError, match="relation 'cites'.*" + message):
        data(relation)


def test_unknown_nodes_are_named_with_the_nearest_label() -> None:
    with pytest.raises(
        UnknownLabelError,
        match=r"relation 'cites', row 1 .*column 'target': 'cc' is not.*nearest: 'c'",
    ):
        data(table(("a", "b"), ("a", "cc")))
    with pytest.raises(UnknownLabelError, match="node 2: 'x' is not the label of an item"):
        data(nx.path_graph(["a", "b", "x"]))
    isolated = nx.path_graph(["a", "b"])
    isolated.add_node("y")
    with pytest.raises(UnknownLabelError, match="'y' is not"):
        data(isolated)


@pytest.mark.parametrize("name", ["", "two  words", " one", "a.b", 3, None, "a/b"])
def test_names_that_cannot_become_sites_are_refused(name: Any) -> None:
    with pytest.raises(DataError, match="cannot be the name of a relation"):
        data(table(("a", "b")), name=name)


def test_the_name_attributes_is_taken() -> None:
    with pytest.raises(DataError, match='"attributes" stands for'):
        data(table(("a", "b")), name="attributes")


def test_names_of_parameters_of_answers_are_taken() -> None:
    """Or ``rater_noise`` would pass for a parameter of the relation ``rater``."""
    with pytest.raises(
        DataError, match="'rater' is the name of a parameter of answers.*rename the relation"
    ):
        data(table(("a", "b")), name="rater")
    columns: Any = {
        name: np.ones(1) for name in ("rater", "shown_first", "tie", "strength", "probability")
    }
    sites = Probit().parameters(SimpleNamespace(**columns, strengths=2))  # type: ignore[arg-type]
    assert {site.partition("_")[0] for site in sites} == set(RESERVED)


def test_relations_must_be_a_mapping() -> None:
    answers = pd.DataFrame({"winner": ["a"], "loser": ["b"]})
    with pytest.raises(DataError, match="expected a mapping of names to edges, got DataFrame"):
        PreferenceData.from_tables(LABELS, answers, table(("a", "b")))


def test_tuple_and_mixed_labels() -> None:
    labels = [("x", 1), ("x", 2), 7, 2.5]
    answers = pd.DataFrame({"winner": [("x", 1), 7], "loser": [("x", 2), 2.5]})
    graph = nx.Graph([(("x", 1), 7), (7, 2.5)])
    rows = pd.DataFrame({"source": [("x", 1), 7], "target": [7, 2.5]})
    for form in (graph, rows):
        found = PreferenceData.from_tables(labels, answers, {"r": form}).relations["r"]
        assert found.source.tolist() == [0, 2]
        assert found.target.tolist() == [2, 3]


def test_networkx_is_not_loaded() -> None:
    code = (
        "import relpref.data, sys; sys.exit('networkx' in sys.modules or 'pyarrow.parquet' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
