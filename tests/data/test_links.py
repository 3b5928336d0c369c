from typing import Any

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from relpref.data import PreferenceData, Relation
from relpref.errors import DataError, UnknownLabelError

LABELS = ["a", "b", "c", "d", "e"]
ANSWERS = pd.DataFrame({"winner": ["a"], "loser": ["b"]})
# a, b and c link to d; d links to a and b.
CITES = [("a", "d"), ("b", "d"), ("c", "d"), ("d", "a"), ("d", "b")]
DRINKS = [("a", "tea"), ("b", "tea"), ("c", "tea"), ("b", "milk"), ("c", "milk"), ("e", "gin")]


def table(rows: Any) -> Any:
    return pd.DataFrame(rows, columns=["source", "target", "weight"][: len(rows[0])])


def data(relation: Any, name: str = "cites", **others: Any) -> Any:
    return PreferenceData.from_tables(LABELS, ANSWERS, {name: relation, **others})


def directed(**options: Any) -> Any:
    return data(Relation(table(CITES), kind="directed", **options))


def bipartite(rows: Any = DRINKS, **options: Any) -> Any:
    return data(Relation(table(rows), kind="bipartite", **options), "drinks")


def edges(graph: Any) -> Any:
    ends = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
    return {
        (LABELS[i] + LABELS[j]): w for (i, j), w in zip(ends, graph.weight.tolist(), strict=True)
    }


def test_a_directed_relation_has_two_roles() -> None:
    found = directed()
    assert list(found.relations) == ["cites_linking", "cites_linked"]
    assert edges(found.relations["cites_linking"]) == {"ab": 0.5, "ac": 0.5, "bc": 0.5}
    assert edges(found.relations["cites_linked"]) == {"ab": 1.0}
    counts = directed(hubs="count").relations
    assert edges(counts["cites_linking"]) == {"ab": 1.0, "ac": 1.0, "bc": 1.0}
    assert found.parts_of("cites") == ("cites_linking", "cites_linked")
    assert found.parts_of("cites_linked") == ("cites_linked",)
    assert "relation 'cites': 2 of 5 items have no edge in cites_linking" in found.notes
    assert found.links["cites"].relation.form == "roles"


def test_every_form_of_a_directed_relation() -> None:
    rows = [(source, target, 1.0 + k) for k, (source, target) in enumerate(CITES)]
    graph: Any = nx.DiGraph()
    graph.add_weighted_edges_from(rows)
    matrix = np.zeros((5, 5))
    for source, target, weight in rows:
        matrix[LABELS.index(source), LABELS.index(target)] = weight
    first, *others = (
        data(Relation(form, kind="directed")).relations
        for form in (table(rows), table(rows[::-1]), graph, sp.csr_array(matrix))
    )
    assert edges(first["cites_linking"]) == {"ab": 1.0, "ac": 1.5, "bc": 3.0}
    for other in others:
        assert {part: edges(graph) for part, graph in other.items()} == {
            part: edges(graph) for part, graph in first.items()
        }
    with pytest.raises(DataError, match="a Graph has no directions; pass a DiGraph"):
        data(Relation(nx.Graph([("a", "b")]), kind="directed"))


def test_links_are_tidied() -> None:
    found = data(Relation(table([("a", "d"), ("a", "d"), ("b", "d"), ("c", "c")]), kind="directed"))
    assert edges(found.relations["cites_linking"]) == {"ab": 1.0}
    assert "relation 'cites': 1 link from an item to itself left out" in found.notes
    assert "relation 'cites': 1 repeated edge counted once" in found.notes
    assert found.relations["cites_linked"].num_edges == 0
    assert any("so cites_linked has no edges and says nothing" in note for note in found.notes)
    with pytest.raises(
        DataError, match=r"row 1 .*edge from 'a' to 'd' has the weight 2.0, but the weight 1.0 at"
    ):
        data(Relation(table([("a", "d", 1.0), ("a", "d", 2.0)]), kind="directed"))
    with pytest.raises(DataError, match=r"edge from 'a' to 'x' has the weight 2.0"):
        bipartite([("a", "x", 1.0), ("a", "x", 2.0)])
    with pytest.raises(
        DataError, match="relation 'cites': cites_linking: .*weight 1e-120; .*rescale the weights"
    ):
        data(Relation(table([("a", "d", 1e-60), ("b", "d", 1e-60)]), kind="directed"))
    with pytest.raises(DataError, match="no edge is left"):
        data(Relation(table([("a", "a")]), kind="directed"))


def test_a_random_walk_joins_everyone() -> None:
    found = directed(form="random_walk")
    graph = found.relations["cites"]
    assert graph.num_edges == 10
    assert edges(graph)["ad"] > 5 * edges(graph)["ae"]
    assert 0.5 < graph.mean_degree < 1
    assert found.links["cites"].relation.teleport == 0.15


def test_a_bipartite_relation_joins_those_who_share_a_target() -> None:
    found = bipartite()
    assert edges(found.relations["drinks"]) == {"ab": 0.5, "ac": 0.5, "bc": 1.5}
    assert edges(bipartite(hubs="count").relations["drinks"]) == {"ab": 1.0, "ac": 1.0, "bc": 2.0}
    assert found.links["drinks"].targets == ("tea", "milk", "gin")
    graph = nx.Graph([(target, source) for source, target in DRINKS])
    again = data(Relation(graph, kind="bipartite"), "drinks")
    assert edges(again.relations["drinks"]) == edges(found.relations["drinks"])


def test_hubs_can_be_left_out() -> None:
    found = bipartite(max_degree=2)
    assert edges(found.relations["drinks"]) == {"bc": 1.0}
    expected = (
        "relation 'drinks': 1 target with more than 2 links left out, and with them 3 of 6 "
        "links; 1 item had no other link"
    )
    assert expected in found.notes
    assert "cites_linking: 1 target with more than 2 links" in str(directed(max_degree=2).notes)
    assert not any("left out" in note for note in bipartite(max_degree=3).notes)


def test_bad_bipartite_relations_are_refused() -> None:
    with pytest.raises(DataError, match=r"row 1 .*'target': 'b' is an item.*kind=\"directed\""):
        bipartite([("a", "tea"), ("a", "b")])
    with pytest.raises(
        UnknownLabelError, match="column 'source': 'tea' is not the label of an item"
    ):
        bipartite([("tea", "a")])
    with pytest.raises(DataError, match="a matrix has no labels"):
        data(Relation(sp.csr_array(np.eye(5)), kind="bipartite"))
    with pytest.raises(UnknownLabelError, match="'x'"):
        data(Relation(nx.Graph([("x", "y")]), kind="bipartite"))


def test_names_of_roles_are_taken() -> None:
    pairs = table([("a", "b")])
    for relations in (
        {"cites": Relation(table(CITES), kind="directed"), "cites_linking": pairs},
        {"cites_linked": pairs, "cites": Relation(table(CITES), kind="directed")},
    ):
        with pytest.raises(
            DataError, match="is a role of the directed relation 'cites' and the name of another"
        ):
            PreferenceData.from_tables(LABELS, ANSWERS, relations)


def test_relations_and_roles_can_be_left_out() -> None:
    near = table([("a", "b")])
    found = data(Relation(table(CITES), kind="directed"), near=near)
    without = found.without_relation("cites")
    assert list(without.relations) == ["near"]
    assert not without.links
    assert not any("cites" in note for note in without.notes)
    one = found.without_relation("cites_linking")
    assert list(one.relations) == ["cites_linked", "near"]
    assert one.parts_of("cites") == ("cites_linked",)
    assert list(one.extend(["f"]).relations) == ["cites_linked", "near"]
    assert not one.without_relation("cites_linked").links
    with pytest.raises(DataError, match="there is no relation 'cites'"):
        without.parts_of("cites")


def test_cliques_of_every_part() -> None:
    found = directed().with_cliques("cites")
    assert all(graph.cliques is not None for graph in found.relations.values())
    one = directed().with_cliques("cites_linked").relations
    assert [graph.cliques is not None for graph in one.values()] == [False, True]
    assert all(graph.cliques is not None for graph in found.extend(["f"]).relations.values())


def related(graph: Any) -> PreferenceData:
    graph = nx.convert_node_labels_to_integers(graph)
    labels = [f"i{node}" for node in graph]
    pairs = [(labels[one], labels[other]) for one, other in graph.edges]
    answers = pd.DataFrame({"winner": [labels[0]], "loser": [labels[1]]})
    return PreferenceData.from_tables(labels, answers, {"near": table(pairs)})


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
    graph = TOLD_APART[name]
    counted = related(graph).with_cliques("near").relations["near"].cliques
    assert counted is not None
    if nx.is_chordal(nx.Graph(graph)):  # the cliques are those of the graph itself
        linked = nx.to_numpy_array(graph) > 0
        np.fill_diagonal(counted := counted.copy(), 0)
        np.testing.assert_array_equal(counted > 0, linked)


def test_newcomers_may_not_close_a_ring_of_cliques() -> None:
    path = related(nx.path_graph(4)).with_cliques("near")
    ends = pd.DataFrame({"source": ["new", "new"], "target": ["i0", "i3"]})
    with pytest.raises(DataError, match="relation 'near': .*5 connected items into one clique"):
        path.extend(["new"], {"near": ends})
    assert path.extend(["new"], {"near": ends.head(1)}).num_items == 5


@pytest.mark.parametrize(
    "found",
    [
        directed(),
        directed(max_degree=2, hubs="count"),
        directed(form="random_walk", teleport=0.3),
        bipartite(max_degree=2),
        bipartite([(source, (1, target)) for source, target in DRINKS]),
    ],
)
def test_tables_and_trees_keep_the_kind(found: Any) -> None:
    copies = (
        PreferenceData.from_tables(*found.to_tables()),
        jax.tree.map(lambda leaf: leaf, found),
    )
    for again in copies:
        assert list(again.links) == list(found.links)
        assert {part: edges(graph) for part, graph in again.relations.items()} == {
            part: edges(graph) for part, graph in found.relations.items()
        }
        assert again.notes == found.notes
        later = [some.extend(["f"]).relations for some in (found, again)]
        for part in found.relations:
            np.testing.assert_array_equal(later[0][part].weight, later[1][part].weight)


def structure(tree: Any) -> Any:
    return jax.tree.structure(tree)


def test_other_links_need_no_other_compilation() -> None:
    for one, other in ((directed(), CITES[:4]), (bipartite(), DRINKS[:4])):
        ((name, links),) = one.links.items()
        changed = data(Relation(table(other), kind=links.relation.kind), name)
        assert structure(one) == structure(changed)
        shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(some)] for some in (one, changed)]
        assert shapes[0] == shapes[1]
    assert structure(directed()) != structure(directed().without_relation("cites_linked"))


NEW_CITES = [("f", "d"), ("a", "f"), ("b", "f"), ("f", "g")]
NEW_DRINKS = [("f", "tea"), ("f", "rum"), ("g", "rum")]


@pytest.mark.parametrize(
    ("name", "options", "old", "new"),
    [
        ("cites", {"kind": "directed"}, CITES, NEW_CITES),
        ("cites", {"kind": "directed", "max_degree": 3}, CITES, NEW_CITES),
        ("cites", {"kind": "directed", "form": "random_walk"}, CITES, NEW_CITES),
        ("drinks", {"kind": "bipartite"}, DRINKS, NEW_DRINKS),
        ("drinks", {"kind": "bipartite", "max_degree": 3}, DRINKS, NEW_DRINKS),
    ],
)
def test_newcomers_bring_links(name: str, options: Any, old: Any, new: Any) -> None:
    before = data(Relation(table(old), **options), name)
    after = before.extend(["f", "g"], {name: table(new)})
    relation = Relation(table(old + new), **options)
    expected = PreferenceData.from_tables([*LABELS, "f", "g"], ANSWERS, {name: relation})
    for part, graph in expected.relations.items():
        found = after.relations[part]
        for array in ("source", "target", "weight"):
            np.testing.assert_allclose(getattr(found, array), getattr(graph, array), rtol=1e-12)
        for scale, kept in zip(found.reference, before.relations[part].reference, strict=True):
            np.testing.assert_array_equal(scale, kept)
    # So it is with the notes: none of the smaller graphs' is left.
    assert sorted(after.notes) == sorted(expected.notes)
    # One by one comes to the same.
    steps = before.extend(["f"], {name: table([link for link in new if "g" not in link])})
    last = [link for link in new if "g" in link and (name == "cites" or link[0] == "g")]
    steps = steps.extend(["g"], {name: table(last)})
    for part, graph in after.relations.items():
        np.testing.assert_allclose(
            steps.relations[part].weight_matrix, graph.weight_matrix, rtol=1e-12
        )


def test_notes_of_an_undirected_relation_follow_its_newcomers() -> None:
    before = data(table([("a", "b"), ("b", "a"), ("b", "c")]))
    assert "relation 'cites': 2 of 5 items have no edge in it" in before.notes
    after = before.extend(["f"], {"cites": table([("f", "d")])})
    assert "relation 'cites': 1 of 6 items has no edge in it" in after.notes
    assert set(before.notes) - set(after.notes) == {
        "relation 'cites': 2 of 5 items have no edge in it"
    }


def test_links_of_newcomers_that_do_not_fit_are_refused() -> None:
    found = directed()
    with pytest.raises(DataError, match="both 'a' and 'c' are known already"):
        found.extend(["f"], {"cites": table([("f", "a"), ("a", "c")])})
    with pytest.raises(
        DataError, match="'cites_linking' is a role of the relation 'cites'; give its links"
    ):
        found.extend(["f"], {"cites_linking": table([("f", "a")])})
    with pytest.raises(DataError, match="read as a directed relation with other options"):
        found.extend(["f"], {"cites": Relation(table([("f", "a")]), kind="undirected")})
    assert (
        found.extend(["f"], {"cites": Relation(table([("f", "a")]), kind="directed")}).num_items
        == 6
    )
    with pytest.raises(
        DataError, match="read as an undirected relation, but the newcomers' is directed"
    ):
        data(table(CITES[:3])).extend(
            ["f"], {"cites": Relation(table([("f", "a")]), kind="directed")}
        )
    drinks = bipartite()
    with pytest.raises(DataError, match="'a' is known already"):
        drinks.extend(["f"], {"drinks": table([("a", "rum")])})
    with pytest.raises(
        DataError, match="'tea' is what items link to in the bipartite relation 'drinks'"
    ):
        drinks.extend(["tea"])
    with pytest.raises(DataError, match="'f' is an item"):
        drinks.extend(["f"], {"drinks": table([("f", "f")])})
