"""Relations in every form and of every kind: their edges, the graphs made of them, newcomers."""

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from relpref.data import PreferenceData, Relation
from relpref.data.relation import RESERVED
from relpref.errors import DataError, UnknownLabelError
from relpref.likelihoods import Probit


def links(text: str) -> list[Any]:
    """Links as tuples: "a-b 2, c-d" are a to b of weight 2, and c to d."""
    rows: list[Any] = []
    for link in text.split(", "):
        ends, *weight = link.split()
        rows.append((*ends.split("-"), *map(float, weight)))
    return rows


LABELS = ["a", "b", "c", "d", "e"]
ANSWERS = pd.DataFrame({"winner": ["a"], "loser": ["b"]})
# a, b and c link to d; d links to a and b.
CITES = links("a-d, b-d, c-d, d-a, d-b")
DRINKS = links("a-tea, b-tea, c-tea, b-milk, c-milk, e-gin")


def table(rows: Any) -> Any:
    rows = links(rows) if isinstance(rows, str) else rows
    return pd.DataFrame(rows, columns=["source", "target", "weight"][: len(rows[0])])


def data(relation: Any, name: Any = "cites", **others: Any) -> Any:
    return PreferenceData.from_tables(LABELS, ANSWERS, {name: relation, **others})


def directed(**options: Any) -> Any:
    return Relation(table(CITES), kind="directed", **options)


def bipartite(rows: Any = DRINKS, **options: Any) -> Any:
    return Relation(table(rows), kind="bipartite", **options)


def edges(graph: Any) -> str:
    """The edges of a graph, written as `links` reads them."""
    rows = zip(graph.source, graph.target, graph.weight, strict=True)
    return ", ".join(f"{LABELS[i]}-{LABELS[j]} {weight:g}" for i, j, weight in rows)


def graphs(relation: Any) -> Any:
    """Edges of each graph of a relation, also of the data read back from its tables."""
    found = data(relation)
    parts: Any = [
        {part: edges(graph) for part, graph in each.relations.items()}
        for each in (found, PreferenceData.from_tables(*found.to_tables()))
    ]
    assert parts[0] == parts[1]
    return parts[0]


def matrix(links: Any, kind: Any = None, size: int = len(LABELS)) -> Any:
    """A sparse matrix of (source, target, weight), symmetric where no kind is given."""
    dense = np.zeros((size, size))
    for source, target, weight in links:
        ends = LABELS.index(source), LABELS.index(target)
        dense[ends] = weight
        if kind is None:
            dense[ends[::-1]] = weight
    return sp.csr_array(dense)


def graph_of(rows: Any, kind: Any) -> Any:
    graph: Any = nx.DiGraph() if kind in ("undirected", "directed") else nx.Graph()
    if kind == "bipartite":
        rows = [(target, source, weight) for source, target, weight in rows]
    graph.add_weighted_edges_from(rows)
    return graph


# Links of every kind, and the graphs that they become.
KINDS: dict[Any, tuple[Any, Any]] = {
    None: (links("b-a 2, b-c 0.5"), {"cites": "a-b 2, b-c 0.5"}),
    "undirected": (
        links("a-b 1, b-a 4, c-b 2"),
        {"cites": "a-b 4, b-c 2"},
    ),
    "directed": (
        [(*ends, 1.0 + k) for k, ends in enumerate(CITES)],
        {"cites_linking": "a-b 1, a-c 1.5, b-c 3", "cites_linked": "a-b 20"},
    ),
    "bipartite": (
        [(*ends, 1.0 + k) for k, ends in enumerate(DRINKS)],
        {"cites": "a-b 1, a-c 1.5, b-c 23"},
    ),
}
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "table": lambda rows, _: table(rows),
    "table upside down": lambda rows, _: table(rows[::-1]),
    "tuples": lambda rows, _: rows,
    "lists": lambda rows, _: [list(row) for row in rows],
    "columns": lambda rows, _: table(rows).to_dict("list"),
    "rows": lambda rows, _: table(rows).to_dict("records"),
    "networkx": graph_of,
    "array": lambda rows, kind: matrix(rows, kind).toarray(),
    "csr_array": matrix,
    "coo_matrix": lambda rows, kind: sp.coo_matrix(matrix(rows, kind)),
    "csc_array": lambda rows, kind: sp.csc_array(matrix(rows, kind)),
    "labeled": lambda rows, kind: pd.DataFrame(matrix(rows, kind).toarray(), LABELS, LABELS).loc[
        list("edbca"), list("caebd")
    ],
}


MATRICES = ("array", "csr_array", "coo_matrix", "csc_array", "labeled")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_gives_the_same_graphs(kind: Any, form: str) -> None:
    rows, expected = KINDS[kind]
    if kind == "bipartite" and form in MATRICES:
        with pytest.raises(DataError, match="a matrix has no labels|no column 'source'"):
            data(Relation(FORMS[form](KINDS["directed"][0], kind), kind))
        return
    value = FORMS[form](rows, kind)
    assert graphs(Relation(value, kind)) == expected
    if kind is None:
        assert graphs(value) == graphs(Relation(value, "undirected")) == expected
    if kind == "undirected":  # the directions differ
        for remedy in ("undirected", "directed"):
            with pytest.raises(DataError, match=rf'Relation\(table, kind="{remedy}"\)'):
                data(value)


def test_an_iterator_and_links_without_weights() -> None:
    assert graphs(table("a-b")) == {"cites": "a-b 1"}
    assert graphs(nx.path_graph(["a", "b"])) == {"cites": "a-b 1"}
    rows = links("a-b, d-b 2")
    assert edges(data(iter(rows)).relations["cites"]) == "a-b 1, b-d 2"
    whole = np.array([[0, 1], [1, 0]])
    assert PreferenceData.from_tables(["a", "b"], None, {"r": whole}).relations["r"].num_edges == 1


def test_a_matrix_with_labels_names_the_items() -> None:
    named = pd.DataFrame(np.ones((4, 4)), list("badc"), list("badc"))
    assert PreferenceData.from_tables(relations={"r": named}).labels == tuple("badc")
    with pytest.raises(DataError, match="'d' is not the label of an item"):
        PreferenceData.from_tables(list("abc"), relations={"r": named})


@pytest.mark.parametrize(
    "groups", [{"a": "x", "b": "y", "c": "x", "d": None}, {"a": 1.0, "b": 2.0, "c": 1.0}]
)
def test_a_group_for_each_item(groups: dict[str, Any]) -> None:
    series = pd.Series(groups, dtype=object)
    for given in (groups, series, Relation(series, "bipartite"), Relation(series, hubs=None)):
        found = data(given)
        assert edges(found.relations["cites"]) == "a-c 1"
        assert found.links["cites"].relation.kind == "bipartite"
    with pytest.raises(DataError, match="a group for each item is no directed relation"):
        data(Relation(groups, "directed"))


def test_newcomers_keep_the_options_and_may_repeat_the_kind() -> None:
    again = Relation(table("f-a"), kind="directed")
    assert data(directed()).extend(["f"], {"cites": again}).num_items == 6
    before = data(Relation({"a": "x", "b": "x", "c": "y"}, "bipartite", hubs="count", max_degree=3))
    after = before.extend(["f"], {"cites": {"f": "x"}})
    assert after.links["cites"].relation.hubs == "count"
    assert after.relations["cites"].num_edges == 3


def alone(number: int, part: str = "it") -> str:
    return f"{number} of 5 items have no edge in {part}"


HUBS = "1 target with more than 2 links left out, and with them"
TIDIED: Any = [
    (
        table("a-b 2, b-a 2, a-b 2, c-d 1"),
        {"cites": "a-b 2, c-d 1"},
        ["2 repeated edges counted once", "1 of 5 items has no edge in it"],
    ),
    (
        table("a-a 2, b-a 0, a-b 3"),
        {"cites": "a-b 3"},
        ["1 edge of weight 0 left out", "1 link from an item to itself left out", alone(3)],
    ),
    (
        sp.coo_array(([1.0, 1.0, 0.0], ([0, 1, 2], [1, 0, 3])), shape=(5, 5)),
        {"cites": "a-b 1"},
        ["1 stored entry of weight 0 left out", alone(3)],
    ),
    (  # repeated entries of a COO matrix add up
        sp.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(5, 5)),
        {"cites": "a-b 3"},
        [alone(3)],
    ),
    *(
        (
            Relation(table([rows[at] for at in order]), "undirected"),
            {"cites": "a-b 4"},
            ["2 repeated edges counted once", alone(3)],
        )
        for rows in [links("b-a 1, a-b 4, b-a 1")]
        for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2])
    ),
    (
        Relation(table("a-d, a-d, b-d, c-c"), "directed"),
        {"cites_linking": "a-b 1", "cites_linked": ""},
        [
            "1 link from an item to itself left out",
            "1 repeated edge counted once",
            alone(3, "cites_linking"),
            "no two items share a link, so cites_linked has no edges and says nothing",
        ],
    ),
    (
        directed(),
        {"cites_linking": "a-b 0.5, a-c 0.5, b-c 0.5", "cites_linked": "a-b 1"},
        [alone(2, "cites_linking"), alone(3, "cites_linked")],
    ),
    (
        directed(hubs="count", max_degree=2),
        {"cites_linking": "", "cites_linked": "a-b 1"},
        [
            f"cites_linking: {HUBS} 3 of 5 links; 3 items had no other link",
            "no two items share a link, so cites_linking has no edges and says nothing",
            alone(3, "cites_linked"),
        ],
    ),
    (bipartite(), {"cites": "a-b 0.5, a-c 0.5, b-c 1.5"}, [alone(2)]),
    (
        bipartite(hubs="count", max_degree=3),
        {"cites": "a-b 1, a-c 1, b-c 2"},
        [alone(2)],
    ),
    (
        bipartite(max_degree=2),
        {"cites": "b-c 1"},
        [
            f"{HUBS} 3 of 6 links; 1 item had no other link",
            alone(3),
        ],
    ),
]


@pytest.mark.parametrize(("relation", "expected", "notes"), TIDIED)
def test_graphs_and_what_is_left_out(relation: Any, expected: Any, notes: Any) -> None:
    assert graphs(relation) == expected
    assert data(relation).notes == tuple(f"relation 'cites': {note}" for note in notes)


def test_the_matrix_of_the_caller_stays_as_it_is() -> None:
    entries = sp.csr_array(([1.0, 1.0, 0.0], ([0, 1, 2], [1, 0, 3])), shape=(5, 5))
    data(entries)
    assert entries.nnz == 3


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
        ({"table": Relation(links("a-b"))}, "itself a Relation"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, message: Any) -> None:
    with pytest.raises(DataError, match=message):
        Relation(**{"table": links("a-b"), **options})


ONE = links("a-b 1")


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        (
            table("a-b 1, a-b 2"),
            r"row 1 .*edge from 'a' to 'b' has the weight 2\.0, but the weight 1\.0 at .*row 0 ",
        ),
        (table([("a", "b", -1.0)]), r"row 0 .*weight -1\.0 is negative"),
        (table("a-b 1e+200"), r"1e\+200 is not between"),
        (table("a-b 1e-200"), r"1e-200 is not between"),
        (table([("a", "b", np.nan)]), "column 'weight': the value is missing"),
        (table([("a", "b", np.inf)]), "column 'weight': inf is not finite"),
        (table([("a", "b", "heavy")]), "column 'weight': 'heavy' is not a number"),
        (table("a-a 1"), "no edge is left"),
        (pd.DataFrame({"source": [], "target": []}), "no rows"),
        (
            pd.DataFrame({"from": ["a"], "target": ["b"]}),
            "no column 'source' among 'from', 'target'",
        ),
        (
            pd.DataFrame({"sorce": ["a"], "target": ["b"]}),
            "did you mean 'source' where it says 'sorce'",
        ),
        (table("a-b").assign(wieght=1), "did you mean 'weight'"),
        (table([("a", None)]), "row 0 .*column 'target': the label is missing"),
        (table([("a", ["b"])]), "cannot be hashed"),
        (nx.MultiGraph(links("a-b")), "MultiGraph may hold several edges"),
        (nx.DiGraph(links("a-b")), "DiGraph is directed"),
        (Relation(nx.Graph(links("a-b")), "directed"), "a Graph has no directions; pass a DiGraph"),
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
        (matrix(ONE, "directed"), r"entry \(0, 1\) is 1\.0, entry \(1, 0\) is 0\.0"),
        (-matrix(ONE), r"entry \(0, 1\) for \('a', 'b'\): the weight -1\.0"),
        (np.nan * matrix(ONE), "the weight nan is not a finite positive number"),
        (matrix(ONE, size=4), r"shape \(4, 4\), but there are 5 items"),
        (matrix(ONE).astype(complex), "type complex128"),
        (sp.csr_array((5, 5)), "no entries"),
        (np.ones((5, 4)), r"position 0: array.* is no edge; write \(source, target\)"),
        ([("a", "b"), "ab"], "position 1: 'ab' is no edge"),
        (7, "expected a table of edges, .* got int"),
        (
            Relation(table("a-x 1, a-x 2"), "bipartite"),
            r"edge from 'a' to 'x' has the weight 2.0",
        ),
        (
            Relation(table("a-d 1e-60, b-d 1e-60"), "directed"),
            "cites_linking: .*weight 1e-120; .*rescale the weights",
        ),
        (
            Relation(table("a-tea, a-b"), "bipartite"),
            r"row 1 .*'target': 'b' is an item.*kind=\"directed\"",
        ),
    ],
)
def test_unusable_relations_are_refused(relation: Any, message: Any) -> None:
    with pytest.raises(DataError, match="relation 'cites'.*" + message):
        data(relation)


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        (table("a-b, a-cc"), r"row 1 .*column 'target': 'cc' is not.*nearest: 'c'; correct"),
        (table("a-europe, b-asia"), "'europe' is not .*such as groups, use kind=\"bipartite\""),
        (nx.path_graph(["a", "b", "x"]), "node 2: 'x' is not the label of an item"),
        (nx.union(nx.path_graph(["a", "b"]), nx.empty_graph(["y"])), "'y' is not"),
        (
            Relation(table("tea-a"), "bipartite"),
            "column 'source': 'tea' is not the label of an item",
        ),
        (Relation(nx.Graph(links("x-y")), "bipartite"), "'x'"),
    ],
)
def test_unknown_items_are_named(relation: Any, message: str) -> None:
    with pytest.raises(UnknownLabelError, match=f"relation 'cites'.*{message}"):
        data(relation)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (name, "cannot be the name of a relation")
            for name in ("", "two  words", " one", "a.b", 3, None, "a/b")
        ),
        ("attributes", '"attributes" stands for'),
        ("rater", "'rater' is the name of a parameter of answers.*rename the relation"),
    ],
)
def test_names_that_cannot_become_sites_are_refused(name: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        data(table("a-b"), name)


def test_names_of_parameters_of_answers_are_taken() -> None:
    """Or ``rater_noise`` would pass for a parameter of the relation ``rater``."""
    columns: Any = {
        name: np.ones(1) for name in ("rater", "shown_first", "tie", "strength", "probability")
    }
    sites = Probit().parameters(SimpleNamespace(**columns, strengths=2))  # type: ignore[arg-type]
    assert {site.partition("_")[0] for site in sites} == set(RESERVED)


def test_relations_must_be_a_mapping() -> None:
    with pytest.raises(DataError, match="expected a mapping of names to edges, got DataFrame"):
        PreferenceData.from_tables(LABELS, ANSWERS, table("a-b"))


def test_names_of_roles_are_taken() -> None:
    pairs, cites = table("a-b"), Relation(table(CITES), kind="directed")
    for relations in (
        {"cites": cites, "cites_linking": pairs},
        {"cites_linked": pairs, "cites": cites},
    ):
        with pytest.raises(DataError, match="is a role of the directed relation 'cites' and the"):
            PreferenceData.from_tables(LABELS, ANSWERS, relations)


def test_tuple_and_mixed_labels() -> None:
    labels = [("x", 1), ("x", 2), 7, 2.5]
    answers = pd.DataFrame({"winner": [("x", 1), 7], "loser": [("x", 2), 2.5]})
    links = [(("x", 1), 7), (7, 2.5)]
    for form in (nx.Graph(links), links, table(links)):
        graph = PreferenceData.from_tables(labels, answers, {"r": form}).relations["r"]
        assert (graph.source.tolist(), graph.target.tolist()) == ([0, 2], [2, 3])


def test_networkx_is_not_loaded() -> None:
    code = (
        "import relpref.data, sys; sys.exit('networkx' in sys.modules or 'pyarrow.parquet' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_directed_relation_has_two_parts() -> None:
    found = data(directed())
    assert found.parts_of("cites") == ("cites_linking", "cites_linked")
    assert found.parts_of("cites_linked") == ("cites_linked",)
    assert found.links["cites"].relation.form == "roles"
    assert data(bipartite()).links["cites"].targets == ("tea", "milk", "gin")


def test_a_random_walk_joins_everyone() -> None:
    found = data(directed(form="random_walk"))
    graph = found.relations["cites"]
    assert graph.num_edges == 10
    assert graph.weight_matrix[0, 3] > 5 * graph.weight_matrix[0, 4]
    assert 0.5 < graph.mean_degree < 1
    assert found.links["cites"].relation.teleport == 0.15


def test_relations_and_roles_can_be_left_out() -> None:
    near = table("a-b")
    found = data(directed(), near=near)
    without = found.without_relation("cites")
    assert list(without.relations) == ["near"]
    assert not without.links
    assert not any("cites" in note for note in without.notes)
    role = found.without_relation("cites_linking")
    assert list(role.relations) == ["cites_linked", "near"]
    assert role.parts_of("cites") == ("cites_linked",)
    assert list(role.extend(["f"]).relations) == ["cites_linked", "near"]
    assert not role.without_relation("cites_linked").links
    with pytest.raises(DataError, match="there is no relation 'cites'"):
        without.parts_of("cites")


def test_cliques_of_every_part() -> None:
    found = data(directed()).with_cliques("cites")
    assert all(graph.cliques is not None for graph in found.relations.values())
    role = data(directed()).with_cliques("cites_linked").relations
    assert [graph.cliques is not None for graph in role.values()] == [False, True]
    assert all(graph.cliques is not None for graph in found.extend(["f"]).relations.values())


def related(graph: Any) -> PreferenceData:
    graph = nx.convert_node_labels_to_integers(graph)
    labels = [f"i{node}" for node in graph]
    pairs = [(labels[first], labels[second]) for first, second in graph.edges]
    return PreferenceData.from_tables(labels, None, {"near": table(pairs)})


ALIKE = {
    "ring": nx.cycle_graph(30),
    "torus": nx.grid_2d_graph(5, 6, periodic=True),
    "cube": nx.hypercube_graph(3),
    "wheel": nx.wheel_graph(9),
    "ring beside a path": nx.disjoint_union(nx.path_graph(20), nx.cycle_graph(6)),
    "ring with isolated items": nx.disjoint_union(nx.empty_graph(5), nx.cycle_graph(4)),
    **{f"regular {seed}": nx.random_regular_graph(3, 30, seed=seed) for seed in range(5)},
}


@pytest.mark.parametrize("name", ALIKE)
def test_cliques_are_refused_where_links_tell_no_items_apart(name: str) -> None:
    """All items of a component would be in one clique, with correlations of .9999 between unlinked
    ones, too.
    """
    with pytest.raises(DataError, match="relation 'near': .* into one clique, .*use edges"):
        related(ALIKE[name]).with_cliques("near")


TOLD_APART = {
    "path": nx.path_graph(30),
    "tree": nx.random_labeled_tree(30, seed=1),
    "grid": nx.grid_2d_graph(6, 6),
    "groups": nx.disjoint_union_all([nx.complete_graph(size) for size in (2, 3, 5)]),
    "complete": nx.complete_graph(6),
    "karate": nx.karate_club_graph(),
    "ring with one more item": nx.lollipop_graph(4, 1),
    **{f"geometric {seed}": nx.random_geometric_graph(40, 0.25, seed=seed) for seed in range(4)},
    **{f"random {seed}": nx.gnp_random_graph(40, 0.1, seed=seed) for seed in range(4)},
}


@pytest.mark.parametrize("name", TOLD_APART)
def test_cliques_are_counted_where_links_tell_items_apart(name: str) -> None:
    cliques = related(TOLD_APART[name]).with_cliques("near").relations["near"].cliques
    assert cliques is not None and cliques.max() >= 1


def test_newcomers_may_not_close_a_ring_of_cliques() -> None:
    path = related(nx.path_graph(4)).with_cliques("near")
    ends = pd.DataFrame({"source": ["new", "new"], "target": ["i0", "i3"]})
    with pytest.raises(DataError, match="relation 'near': .*5 connected items into one clique"):
        path.extend(["new"], {"near": ends})
    cliques: Any = path.extend(["new"], {"near": ends.head(1)}).relations["near"].cliques
    assert cliques.shape == (5, 5)


@pytest.mark.parametrize(
    "relation",
    [
        directed(),
        directed(max_degree=2, hubs="count"),
        directed(form="random_walk", teleport=0.3),
        bipartite(max_degree=2),
        bipartite([(source, (1, target)) for source, target in DRINKS]),
    ],
)
def test_tables_and_trees_keep_the_kind(relation: Any) -> None:
    found = data(relation)
    for again in (
        PreferenceData.from_tables(*found.to_tables()),
        jax.tree.map(lambda leaf: leaf, found),
    ):
        assert list(again.links) == list(found.links) and again.notes == found.notes
        for these, those in ((found, again), (found.extend(["f"]), again.extend(["f"]))):
            assert list(these.relations) == list(those.relations)
            for part, graph in these.relations.items():
                np.testing.assert_array_equal(
                    graph.weight_matrix, those.relations[part].weight_matrix
                )


def test_other_links_need_no_other_compilation() -> None:
    structure: Any = jax.tree.structure
    for relation, other in ((directed(), CITES[:4]), (bipartite(), DRINKS[:4])):
        found, changed = data(relation), data(Relation(table(other), kind=relation.kind))
        assert structure(found) == structure(changed)
        shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(each)] for each in (found, changed)]
        assert shapes[0] == shapes[1]
    assert structure(data(directed())) != structure(
        data(directed()).without_relation("cites_linked")
    )


NEW_CITES = links("f-d, a-f, b-f, f-g")
NEW_DRINKS = links("f-tea, f-rum, g-rum")
NEAR, NEW_NEAR = links("a-b, b-a, b-c"), links("f-d, a-f, g-f")


@pytest.mark.parametrize(
    ("options", "old", "new"),
    [
        ({}, NEAR, NEW_NEAR),
        ({"kind": "directed"}, CITES, NEW_CITES),
        ({"kind": "directed", "max_degree": 3}, CITES, NEW_CITES),
        ({"kind": "directed", "form": "random_walk"}, CITES, NEW_CITES),
        ({"kind": "bipartite"}, DRINKS, NEW_DRINKS),
        ({"kind": "bipartite", "max_degree": 3}, DRINKS, NEW_DRINKS),
    ],
)
def test_newcomers_bring_links(options: Any, old: Any, new: Any) -> None:
    before = data(Relation(table(old), **options))
    after = before.extend(["f", "g"], {"cites": table(new)})
    relation = Relation(table(old + new), **options)
    expected = PreferenceData.from_tables([*LABELS, "f", "g"], ANSWERS, {"cites": relation})
    for part, graph in expected.relations.items():
        found = after.relations[part]
        for array in ("source", "target", "weight"):
            np.testing.assert_allclose(getattr(found, array), getattr(graph, array), rtol=1e-12)
        for scale, kept in zip(found.reference, before.relations[part].reference, strict=True):
            np.testing.assert_array_equal(scale, kept)
    # So it is with the notes: none of the smaller graphs' is left.
    assert sorted(after.notes) == sorted(expected.notes)
    # One by one comes to the same.
    steps = before.extend(["f"], {"cites": table([link for link in new if "g" not in link])})
    last = [link for link in new if "g" in link]
    steps = steps.extend(["g"], {"cites": table(last)})
    for part, graph in after.relations.items():
        np.testing.assert_allclose(
            steps.relations[part].weight_matrix, graph.weight_matrix, rtol=1e-12
        )


@pytest.mark.parametrize(
    ("relation", "items", "more", "message"),
    [
        (directed(), ["f"], {"cites": links("f-a, a-c")}, "both 'a' and 'c' are known"),
        (directed(), ["f"], {"cites_linking": links("f-a")}, "is a role .*give its links under"),
        (
            directed(),
            ["f"],
            {"cites": Relation(links("f-a"), "undirected")},
            "read as a directed relation with other options",
        ),
        (
            table(CITES[:3]),
            ["f"],
            {"cites": Relation(links("f-a"), "directed")},
            "read as an undirected relation, but the newcomers' is directed",
        ),
        (
            table(CITES[:3]),
            ["f"],
            {"cites": {"f": "x"}},
            "read as an undirected relation, but the newcomers' is bipartite",
        ),
        (bipartite(), ["f"], {"cites": links("a-rum")}, "'a' is known already"),
        (bipartite(), ["f"], {"cites": links("f-f")}, "'f' is an item"),
        (bipartite(), ["tea"], None, "'tea' is what items link to in the bipartite relation"),
    ],
)
def test_links_of_newcomers_that_do_not_fit_are_refused(
    relation: Any, items: Any, more: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        data(relation).extend(items, more)


def test_a_bipartite_graph_of_networkx_takes_either_end_as_the_item() -> None:
    graph = nx.Graph([("tea", "a"), ("b", "tea")])
    relations = {"drinks": Relation(graph, kind="bipartite")}
    read = PreferenceData.from_tables(answers=ANSWERS, relations=relations)
    assert read.labels == ("a", "b") and read.links["drinks"].targets == ("tea",)
    graph.add_edge("c", "gin")
    with pytest.raises(DataError, match="'c' and 'gin' are linked, and neither is in the answers"):
        PreferenceData.from_tables(answers=ANSWERS, relations=relations)
