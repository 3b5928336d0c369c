import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.data.parts import neighborhood
from relpref.errors import DataError, UnknownLabelError


def item_table(**changes: Any) -> Any:
    columns = {"size": [1.0, 2.0, 3.0, 6.0], "heavy": [True, False, True, True]} | changes
    return pd.DataFrame(columns, index=["a", "b", "c", "d"])


def answers(*pairs: Any, **columns: Any) -> Any:
    pairs = pairs or ("ab", "bc", "ab")
    return pd.DataFrame(map(list, pairs), columns=["winner", "loser"]).assign(**columns)


def links(*pairs: Any, **columns: Any) -> Any:
    return pd.DataFrame(map(list, pairs), columns=["source", "target"]).assign(**columns)


def example(**changes: Any) -> Any:
    arguments = {
        "items": item_table(),
        "answers": answers(),
        "relations": {"zeta": links("ab", "bc"), "alpha": links("cd", weight=[2.5])},
    }
    return PreferenceData.from_tables(**(arguments | changes))


def same(first: Any, second: Any) -> None:
    """Compare what a model sees, byte by byte, and the labels."""
    assert first.labels == second.labels
    assert list(map(type, first.labels)) == list(map(type, second.labels))
    assert first.attribute_names == second.attribute_names
    assert list(first.relations) == list(second.relations)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_fields() -> None:
    data = example()
    assert data.labels == ("a", "b", "c", "d")
    assert (data.num_items, data.num_comparisons, data.num_answers) == (4, 2, 3)
    assert data.attribute_names == ("size", "heavy")
    np.testing.assert_array_equal(data.attributes, [[1, 1], [2, 0], [3, 1], [6, 1]])
    assert data.attributes.dtype == data.attribute_scale.dtype == np.float64
    np.testing.assert_allclose(data.attribute_center, [3, 0.75])
    np.testing.assert_allclose(data.attribute_scale, item_table().astype(float).std(ddof=0))
    assert (data.winner.tolist(), data.loser.tolist(), data.count.tolist()) == (
        [0, 1],
        [1, 2],
        [2, 1],
    )
    assert data.winner.dtype == data.loser.dtype == data.count.dtype == np.int32
    assert data.answered
    assert list(data.relations) == ["zeta", "alpha"]


def test_it_is_immutable() -> None:
    data = example()
    for name in ("attributes", "attribute_center", "attribute_scale", "winner", "loser", "count"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[0] = 0
    with pytest.raises(FrozenInstanceError):
        data.winner = data.loser
    with pytest.raises(TypeError):
        data.relations["new"] = data.relations["zeta"]
    # Equality is identity: data sets can be keys of a cache.
    assert data != example()
    assert len({data, data, example()}) == 2


def test_the_tables_given_are_not_changed_and_not_shared() -> None:
    items, comparisons = item_table(), answers()
    before = items.copy(), comparisons.copy()
    data = PreferenceData.from_tables(items, comparisons)
    pd.testing.assert_frame_equal(items, before[0])
    pd.testing.assert_frame_equal(comparisons, before[1])
    items.loc["a", "size"] = 100.0
    assert data.attributes[0, 0] == 1.0


def test_describe_and_repr() -> None:
    data = example()
    line = (
        "4 items, 2 attributes, 3 answers to 2 pairs, relations: zeta (3 nodes, 2 edges), "
        "alpha "
        "(2 nodes, 1 edge)"
    )
    assert data.describe() == line
    assert repr(data) == f"PreferenceData({line})"
    assert example(relations=None, answers=answers("ab", "ba")).describe() == (
        "4 items, 2 attributes, 2 answers to 1 pair"
    )
    colored = item_table().assign(color=list("rgbr"), weight=[1.0, None, 2.0, 3.0])
    assert "4 items, 4 attributes, " in example(items=colored).describe()
    assert "2 pairs, not answered" in data.without_answers().describe()
    many = answers("ab", count=[12_000])
    assert "12,000 answers to 1 pair" in example(answers=many).describe()


def test_groups() -> None:
    data = example(relations={"r": links("cd")}, answers=answers("ab"))
    group = data.groups()
    assert group.shape == (4,)
    assert group[0] == group[1] != group[2] == group[3]
    assert set(example().groups().tolist()) == {0}


def test_index() -> None:
    data = example()
    found = data.index(["d", "a", "a"])
    assert found.tolist() == [3, 0, 0]
    assert found.dtype == np.int32
    assert data.index(pd.Series(["b"])).tolist() == [1]
    assert data.index([]).tolist() == []
    with pytest.raises(UnknownLabelError, match="labels, position 1: 'aa' is not .*nearest: 'a'"):
        data.index(["a", "aa"])
    with pytest.raises(DataError, match="pass a list of labels"):
        data.index("ab")


def test_integer_labels_match_numpy_integers_but_not_text() -> None:
    data = PreferenceData.from_tables(
        pd.DataFrame({"x": [0.0, 1.0]}, index=np.array([10, 20])),
        pd.DataFrame({"winner": [10], "loser": [20]}),
    )
    assert data.labels == (10, 20)
    assert all(type(label) is int for label in data.labels)
    assert data.index(np.array([20], dtype=np.int8)).tolist() == [1]
    with pytest.raises(
        UnknownLabelError, match="the item 10 is of type int, this label of type str"
    ):
        data.index(["10"])


def test_standardized_attributes_of_constant_large_and_tiny_columns() -> None:
    items = item_table(size=[0.1] * 4, big=[1e99, -1e99, 1e99, -1e99], tiny=[0.0, 5e-324, 0.0, 0.0])
    data = example(items=items)
    standardized = data.standardized_attributes()
    assert np.isfinite(standardized).all()
    np.testing.assert_array_equal(standardized[:, 0], np.zeros(4))
    assert data.attribute_scale[0] == 1.0
    np.testing.assert_allclose(standardized[:, 2], [1, -1, 1, -1])


def test_nullable_categorical_and_object_numbers() -> None:
    items = item_table(
        nullable=pd.array([1, 2, 3, 4], dtype="Int64"),
        flag=pd.array([True, False, True, True], dtype="boolean"),
        category=pd.Categorical([1, 2, 1, 2]),
        mixed=pd.Series([1, 2.5, np.int8(3), True], dtype=object, index=list("abcd")).to_numpy(),
        sparse=pd.arrays.SparseArray([0.0, 0, 0, 7]),
    )
    data = example(items=items)
    np.testing.assert_array_equal(
        data.attributes[:, 2:].T,
        [[1, 2, 3, 4], [1, 0, 1, 1], [1, 2, 1, 2], [1, 2.5, 3, 1], [0, 0, 0, 7]],
    )


def test_counts_are_read_from_whole_floats() -> None:
    assert example(answers=answers("ab", count=[2.0])).count.tolist() == [2]
    assert example(answers=answers("ab", count=pd.array([3], dtype="Int64"))).count.tolist() == [3]


def test_without_answers() -> None:
    data = example().without_answers()
    assert not data.answered
    assert data.winner is not None
    same(data, example())
    assert data.with_comparisons(answers("ab")).answered


def test_select_comparisons() -> None:
    data = example(answers=answers("ab", "bc", "cd", count=[1, 2, 3]))
    for chosen in ([True, False, True], [0, 2], [2, 0], np.array([-1, 0])):
        picked = data.select_comparisons(chosen)
        assert (picked.winner.tolist(), picked.count.tolist()) == ([0, 2], [1, 3])
    assert data.select_comparisons([1, 1, 0]).count.tolist() == [1, 4]
    assert data.select_comparisons([]).num_comparisons == 0
    assert data.select_comparisons(np.zeros(3, dtype=bool)).describe()
    empty: Any
    for empty in ([], np.zeros(0, dtype=bool)):
        assert example(answers=None).select_comparisons(empty).num_comparisons == 0
    with pytest.raises(DataError, match=r"mask has the shape \(0,\)"):
        data.select_comparisons(np.zeros(0, dtype=bool))
    with pytest.raises(DataError, match=r"mask has the shape \(2,\); give one of shape \(3,\)"):
        data.select_comparisons([True, False])
    with pytest.raises(DataError, match="index 3 is out of bounds"):
        data.select_comparisons([0, 3])
    with pytest.raises(DataError, match="must be of integer .*give a mask of booleans"):
        data.select_comparisons([0.5])
    with pytest.raises(DataError, match=r"the shape is \(1, 2\)"):
        data.select_comparisons([[0, 1]])


def test_a_neighborhood_has_the_answers_and_edges_among_its_items() -> None:
    data = example(answers=answers("ab", "bc", "ab", "cd", "da"))
    near = neighborhood(data, 3)
    assert near.labels == ("a", "b", "c")
    items, compared, relations = near.to_tables()
    assert compared[["winner", "loser"]].to_numpy().tolist() == [["a", "b"], ["b", "c"]]
    assert compared["count"].tolist() == [2, 1]
    assert items["size"].tolist() == [1.0, 2.0, 3.0]
    assert len(relations["zeta"]) == 2 and not len(relations["alpha"])
    alone = neighborhood(data.without_relation("zeta").without_relation("alpha"), 2)
    assert alone.labels == ("a", "b") and alone.num_answers == 2


def test_with_comparisons_replaces_them_and_their_notes() -> None:
    data = example().with_comparisons(answers("dc"))
    assert (data.winner.tolist(), data.loser.tolist()) == ([3], [2])
    assert not any(note.startswith("comparisons") for note in data.notes)
    assert data.relations["zeta"] is data.relations["zeta"]
    with pytest.raises(UnknownLabelError):
        data.with_comparisons(answers("xy"))


def test_without_relation_and_without_attributes() -> None:
    data = example()
    assert list(data.without_relation("zeta").relations) == ["alpha"]
    assert not any("zeta" in note for note in data.without_relation("zeta").notes)
    bare = data.without_attributes()
    assert bare.attributes.shape == bare.standardized_attributes().shape == (4, 0)
    assert bare.attribute_names == ()
    with pytest.raises(
        DataError,
        match="no relation 'zetta'; the relations are 'zeta', 'alpha'; did you mean 'zeta'",
    ):
        data.without_relation("zetta")
    assert not bare.without_relation("zeta").without_relation("alpha").relations


def newcomers(*labels: Any, **columns: Any) -> Any:
    defaults = {"heavy": [0.0] * len(labels), "size": np.arange(len(labels)) + 10.0}
    return pd.DataFrame(defaults | columns, index=list(labels))


def test_extend_appends_and_freezes_the_scales() -> None:
    data = example()
    larger = data.extend(newcomers("e", "f"), {"alpha": links("ed", "ef", weight=[3.0, 1.0])})
    assert larger.labels == ("a", "b", "c", "d", "e", "f")
    np.testing.assert_array_equal(
        larger.attributes[4:], [[10, 0], [11, 0]]
    )  # columns in the old order
    np.testing.assert_array_equal(larger.attribute_center, data.attribute_center)
    np.testing.assert_array_equal(larger.attribute_scale, data.attribute_scale)
    np.testing.assert_array_equal(larger.winner, data.winner)
    assert larger.relations["alpha"].num_edges == 3
    assert larger.relations["zeta"].num_nodes == 6
    for name, graph in data.relations.items():
        for got, expected in zip(larger.relations[name].reference, graph.reference, strict=True):
            np.testing.assert_array_equal(got, expected)
    assert larger.index(["f"]).tolist() == [5]
    again = larger.extend(newcomers("g"))
    np.testing.assert_array_equal(
        again.relations["alpha"].reference.mean_degree, data.relations["alpha"].mean_degree
    )


def test_extend_with_labels_only() -> None:
    data = example(items=["a", "b", "c", "d"])
    assert data.extend(["e"]).num_items == 5
    assert data.extend(pd.DataFrame(index=["e"])).attributes.shape == (5, 0)


@pytest.mark.parametrize(
    ("items", "relations", "message"),
    [
        (None, {"zeta": links("ab")}, "no newcomers"),
        (newcomers("a"), None, r"row 0 \(label 'a'\): 'a' is an item already"),
        (newcomers("e", "e"), None, "already used"),
        (
            ["e"],
            None,
            "lack the attribute 'size'; give a DataFrame with the columns 'size', 'heavy'",
        ),
        (
            newcomers("e").rename(columns={"size": "sise"}),
            None,
            r"lack the attribute 'size' \(or is 'sise' meant",
        ),
        (
            newcomers("e", colour=[1.0]),
            None,
            "have the attribute 'colour', but only 'size', 'heavy' are known",
        ),
        (newcomers("e"), {"zetta": links("ea")}, "no relation 'zetta'"),
        (newcomers("e"), {"zeta": links("ea", "cd")}, "row 1 .*both 'c' and 'd' are known already"),
        (newcomers("e"), {"zeta": links("ex")}, "'x' is not the label"),
        (newcomers("e"), {"zeta": links("ee")}, "no edge is left"),
    ],
)
def test_unusable_newcomers_are_refused(items: Any, relations: Any, message: Any) -> None:
    with pytest.raises(DataError, match=message):
        example().extend(items, relations)


def test_tables_round_trip() -> None:
    data = example()
    same(data, PreferenceData.from_tables(*data.to_tables()))
    items, comparisons, relations = data.to_tables()
    assert items.index.name == "item"
    assert list(comparisons.columns) == ["winner", "loser", "count"]
    assert list(relations["alpha"].columns) == ["source", "target", "weight"]


def test_multiindex_labels_become_tuples_and_round_trip() -> None:
    index = pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)])
    data = PreferenceData.from_tables(
        pd.DataFrame({"v": [1.0, 2, 3]}, index=index),
        pd.DataFrame({"winner": [("x", 1)], "loser": [("y", 1)]}),
    )
    assert data.labels == (("x", 1), ("x", 2), ("y", 1))
    assert type(data.labels[0][1]) is int
    same(data, PreferenceData.from_tables(*data.to_tables()))


def test_pickle_and_copy() -> None:
    data = example()
    for again in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data), copy.copy(data)):
        same(data, again)
        assert again.notes == data.notes


def test_pytree_keeps_labels_and_the_order_of_relations() -> None:
    data = example()
    again = jax.tree.map(lambda leaf: leaf, data)
    same(data, again)
    assert again.notes == data.notes
    assert list(again.relations) == ["zeta", "alpha"]
    placeholders = jax.tree.map(lambda leaf: object(), data)
    assert repr(placeholders) == "PreferenceData(4 items, traced)"
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(data)]
    assert "._graphs['alpha'].weight_matrix" in paths


def test_equal_shapes_share_one_compilation() -> Any:
    traces = []

    @jax.jit
    def difference(data: Any) -> Any:
        traces.append(repr(data))
        value = data.standardized_attributes()[:, 0]
        low = (
            data.relations["zeta"].spectrum.eigenvalues[1]
            + data.relations["zeta"].reference.mean_degree
        )
        return value[data.winner] - value[data.loser] + low

    first = example()
    second = PreferenceData.from_tables(
        item_table().set_axis(list("wxyz")),
        answers("xw", "yz", count=[4, 1]),
        {"zeta": links("wx", "yz"), "alpha": links("wz")},
    )
    with jax.enable_x64(False):
        one, two = difference(first), difference(second)
        assert len(traces) == 1
        difference(first.without_answers())
        assert len(traces) == 2
    with jax.enable_x64(True):
        for data, narrow in ((first, one), (second, two)):
            assert difference(data).dtype == jnp.float64
            np.testing.assert_allclose(difference(data), narrow, rtol=1e-5)


def test_it_maps_over_a_batch_of_attributes() -> None:
    data = example()
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), data)
    totals = jax.vmap(lambda each: each.standardized_attributes().sum(axis=0))(batch)
    np.testing.assert_allclose(totals, np.zeros((2, 2)), atol=1e-5)
