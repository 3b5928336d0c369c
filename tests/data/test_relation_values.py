"""Labels of relations, in every form that they come in."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from relpref.data import RelationData, RelationValues, read_relation
from relpref.errors import DataError, UnknownLabelError

NODES = ("a", "b", "c")


def matrix(*rows: Any) -> np.ndarray:
    return np.array(rows, dtype=float)


@settings(max_examples=30, deadline=None)
@given(arrays(float, (3, 4), elements=st.sampled_from([np.nan, 0.0, 1.0, -2.5])))
def test_every_form_says_the_same(given_matrix: np.ndarray) -> None:
    nodes, objects = NODES, ("w", "x", "y", "z")
    if np.isnan(given_matrix).all():
        with pytest.raises(DataError, match="not one label"):
            read_relation(given_matrix, nodes, objects)
        return
    whole = read_relation(given_matrix, nodes, objects)
    np.testing.assert_array_equal(whole.mean_matrix, given_matrix)
    assert whole.complete == (not np.isnan(given_matrix).any())
    frame = pd.DataFrame(given_matrix, index=nodes, columns=objects).iloc[::-1, [2, 0, 3, 1]]
    rows, columns = np.nonzero(~np.isnan(given_matrix))
    edges = pd.DataFrame(
        {
            "source": np.array(nodes)[rows],
            "target": np.array(objects)[columns],
            "value": given_matrix[rows, columns],
        }
    ).sample(frac=1, random_state=0)
    stored = sparse.coo_array((given_matrix[rows, columns], (rows, columns)), shape=(3, 4))
    for form in (frame, edges, stored):
        np.testing.assert_array_equal(read_relation(form, nodes, objects).mean_matrix, given_matrix)
    np.testing.assert_array_equal(whole.transposed().mean_matrix, given_matrix.T)
    part = whole.subset(np.array([2, 0]), np.array([1, 3]))
    np.testing.assert_array_equal(part.mean_matrix, given_matrix[np.ix_([2, 0], [1, 3])])
    highest, lowest = (
        np.where(np.isnan(given_matrix), fill, given_matrix) for fill in (-np.inf, np.inf)
    )
    assert whole.varies == bool(np.any(highest.max(axis=1) > lowest.min(axis=1)))


def test_repeated_edges_are_repeated_measurements() -> None:
    edges = pd.DataFrame(
        {"source": ["a", "a", "b"], "target": ["b", "b", "c"], "value": [1.0, 0.0, 1.0]}
    )
    values = read_relation(edges, NODES)
    assert len(values.values) == 3 and not values.complete
    assert values.mean_matrix[0, 1] == 0.5
    both, shift = values.constrained("reciprocal")
    assert shift == 0.5 and len(both.values) == 6
    assert both.mean_matrix[1, 0] == 0.0 and both.mean_matrix[2, 1] == -0.5


def test_constraints() -> None:
    half = matrix([0.5, 0.7, np.nan], [0.3, 0.5, 1.0], [np.nan, 0.0, 0.5])
    values, shift = read_relation(half, NODES).constrained("reciprocal")
    assert shift == 0.5
    np.testing.assert_allclose(values.mean_matrix, half - 0.5)
    signed = matrix([0, 2, -1], [-2, 0, 3], [1, -3, 0])
    values, shift = read_relation(signed, NODES).constrained("reciprocal")
    assert shift == 0.0 and values.complete
    noisy = matrix([0.5, 1.1], [-0.1, 0.5])
    assert read_relation(noisy, NODES[:2]).constrained("reciprocal")[1] == 0.5
    one_way = matrix([1, 2, np.nan], [np.nan, 1, np.nan], [4, np.nan, 1])
    values, _ = read_relation(one_way, NODES).constrained("symmetric")
    np.testing.assert_array_equal(
        values.mean_matrix, matrix([1, 2, 4], [2, 1, np.nan], [4, np.nan, 1])
    )
    with pytest.raises(DataError, match=r"not symmetric: \(\d, \d\) is"):
        read_relation(signed, NODES).constrained("symmetric")
    with pytest.raises(DataError, match=r"not reciprocal.*is 0\.9 and \(1, 0\) is 0\.3"):
        read_relation(matrix([0.5, 0.9], [0.3, 0.5]), NODES[:2]).constrained("reciprocal")
    with pytest.raises(DataError, match="2 nodes and 3 objects"):
        read_relation(np.ones((2, 3)), NODES[:2], NODES).constrained("symmetric")
    with pytest.raises(DataError, match="'mirror'"):
        read_relation(signed, NODES).constrained("mirror")  # type: ignore[arg-type]


def test_every_measurement_is_in_both_directions() -> None:
    """Labels given both ways are one measurement; others are one each, and all are where v < w."""

    def both_ways(table: list[tuple[str, str, float]], symmetry: Any) -> RelationValues:
        edges = pd.DataFrame(table, columns=["source", "target", "value"])
        return read_relation(edges, NODES).constrained(symmetry)[0]

    several = both_ways(
        [("a", "b", 1.0), ("b", "a", 5.0), ("b", "a", 5.0), ("b", "a", 5.0)], "symmetric"
    )
    assert (
        len(several.values) == 8 and several.mean_matrix[0, 1] == several.mean_matrix[1, 0] == 4.0
    )
    games = [
        ("a", "b", 1.0),
        ("b", "a", -1.0),
        ("a", "b", -1.0),
        ("b", "a", 1.0),
        ("a", "b", 1.0),
        ("b", "a", -1.0),
    ]
    assert len(both_ways(games, "reciprocal").values) == 6
    contradiction = [("a", "b", 1.0), ("b", "a", 5.0)]
    with pytest.raises(DataError, match="not symmetric"):
        both_ways(contradiction, "symmetric")
    once = [
        ("a", "b", 1.0),
        ("b", "a", -1.0),
        ("b", "c", 1.0),
        ("b", "c", 1.0),
    ]  # home, away, and two more
    assert len(both_ways(once, "reciprocal").values) == 8
    loop = [("a", "b", 0.7), ("a", "b", 0.7), ("c", "c", 5.0)]
    with pytest.raises(DataError, match="nothing for a node with itself"):
        both_ways(loop, "reciprocal")
    with pytest.raises(DataError, match=r"\(2, 2\) is 0 and \(2, 2\) is 0; give 0.5 or nothing"):
        both_ways([("a", "b", 0.7), ("b", "a", 0.3), ("c", "c", 0.0)], "reciprocal")
    measured = both_ways([*contradiction, ("c", "a", 0.2), ("c", "a", 0.3)], "symmetric")
    assert measured.mean_matrix[0, 1] == measured.mean_matrix[1, 0] == 3.0


def test_a_node_may_be_called_value() -> None:
    frame = pd.DataFrame(np.ones((2, 2)), index=["value", "b"], columns=["value", "b"])
    assert read_relation(frame, ("value", "b")).complete


def test_later_changes_of_the_caller_change_nothing() -> None:
    given = np.ones((3, 3))
    values = read_relation(given, NODES)
    given[:] = 7
    assert values.values.max() == 1.0 and not values.values.flags.writeable


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 2\)"):
        read_relation(np.ones((2, 2)), NODES)
    with pytest.raises(DataError, match="use NaN"):
        read_relation(np.full((3, 3), np.inf), NODES)
    with pytest.raises(DataError, match="got list"):
        read_relation([["a"]], NODES)
    edges = pd.DataFrame({"source": ["a"], "target": ["q"], "value": [1.0]})
    with pytest.raises(UnknownLabelError, match="row 0.*'target'.*'q'"):
        read_relation(edges, NODES)
    with pytest.raises(DataError, match="value"):
        read_relation(edges.assign(target="b", value=np.nan), NODES)
    with pytest.raises(DataError, match="no column 'value'"):
        read_relation(edges.drop(columns="value"), NODES)
    frame = pd.DataFrame(np.ones((2, 2)), index=["a", "a"], columns=["a", "b"])
    with pytest.raises(DataError, match="already used"):
        read_relation(frame, NODES)
    with pytest.raises(DataError, match="nothing tells one from another"):
        RelationData.from_tables(pd.DataFrame(index=["a", "b"]), np.ones((2, 2)))


def test_a_complete_relation_has_no_index() -> None:
    values = RelationValues.of_matrix(np.arange(6.0).reshape(2, 3))
    assert values.edges is None
    assert list(values.rows) == [0, 0, 0, 1, 1, 1] and list(values.columns) == [0, 1, 2, 0, 1, 2]
    some = values.select([0, 4])
    assert list(some.rows) == [0, 1] and not some.complete


def test_edges_of_every_pair_are_complete() -> None:
    rows, columns = (ends.ravel() for ends in np.indices((2, 3)))
    order = np.random.default_rng(0).permutation(6)
    labels = order.astype(np.float64)
    values = RelationValues.of_edges((2, 3), rows[order], columns[order], labels)
    assert values.complete
    np.testing.assert_array_equal(values.matrix, np.arange(6.0).reshape(2, 3))
    assert not RelationValues.of_edges((2, 3), rows, 0 * columns, labels).complete


def test_distinct_edges_of_a_constrained_relation() -> None:
    """Each pair of nodes once; a node with itself only where its label may be other than 0."""
    values = RelationValues.of_matrix(np.zeros((3, 3)))
    ends = {
        symmetry: list(zip(values.rows[kept], values.columns[kept], strict=True))
        for symmetry in ("none", "symmetric", "reciprocal")
        for kept in [values.distinct(symmetry)]
    }
    assert len(ends["none"]) == 9
    assert ends["symmetric"] == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert ends["reciprocal"] == [(0, 1), (0, 2), (1, 2)]
