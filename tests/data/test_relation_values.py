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
from relpref.errors import DataError

NODES = ("a", "b", "c")


def matrix(*rows: Any) -> np.ndarray:
    return np.array(rows, dtype=float)


def edges(text: str) -> pd.DataFrame:
    """A table of edges: "a-b 2, c-a -1" are a to b with the label 2, and c to a with −1."""
    rows = [(*link.split()[0].split("-"), float(link.split()[1])) for link in text.split(", ")]
    return pd.DataFrame(rows, columns=["source", "target", "value"])


@settings(max_examples=30, deadline=None)
@given(arrays(float, (3, 4), elements=st.sampled_from([np.nan, 0.0, 1.0, -2.5])))
def test_every_form_says_the_same(given_matrix: np.ndarray) -> None:
    nodes, objects = NODES, ("w", "x", "y", "z")
    if np.isnan(given_matrix).all():
        with pytest.raises(DataError, match="not one label"):
            read_relation(given_matrix, nodes, objects)
        return
    values = read_relation(given_matrix, nodes, objects)
    np.testing.assert_array_equal(values.mean_matrix, given_matrix)
    assert values.complete == (not np.isnan(given_matrix).any())
    frame = pd.DataFrame(given_matrix, index=nodes, columns=objects).iloc[::-1, [2, 0, 3, 1]]
    table = frame.rename_axis("source").reset_index().melt("source", var_name="target").dropna()
    rows, columns = np.nonzero(~np.isnan(given_matrix))
    stored = sparse.coo_array((given_matrix[rows, columns], (rows, columns)), shape=(3, 4))
    for form in (frame, table, stored):
        np.testing.assert_array_equal(read_relation(form, nodes, objects).mean_matrix, given_matrix)
    np.testing.assert_array_equal(values.transposed().mean_matrix, given_matrix.T)
    part = values.subset(np.array([2, 0]), np.array([1, 3]))
    np.testing.assert_array_equal(part.mean_matrix, given_matrix[np.ix_([2, 0], [1, 3])])
    highest, lowest = (
        np.where(np.isnan(given_matrix), fill, given_matrix) for fill in (-np.inf, np.inf)
    )
    assert values.varies == bool(np.any(highest.max(axis=1) > lowest.min(axis=1)))


def test_repeated_edges_are_repeated_measurements() -> None:
    values = read_relation(edges("a-b 1, a-b 0, b-c 1"), NODES)
    assert len(values.values) == 3 and not values.complete
    assert values.mean_matrix[0, 1] == 0.5
    both, shift = values.constrained("reciprocal")
    assert shift == 0.5 and len(both.values) == 6
    assert both.mean_matrix[1, 0] == 0.0 and both.mean_matrix[2, 1] == -0.5


HALF = matrix([0.5, 0.7, np.nan], [0.3, 0.5, 1.0], [np.nan, 0.0, 0.5])
SIGNED = matrix([0, 2, -1], [-2, 0, 3], [1, -3, 0])
NOISY = matrix([0.5, 1.1], [-0.1, 0.5])
ONE_WAY = matrix([1, 2, np.nan], [np.nan, 1, np.nan], [4, np.nan, 1])
BOTH_WAYS = matrix([1, 2, 4], [2, 1, np.nan], [4, np.nan, 1])


@pytest.mark.parametrize(
    ("given", "symmetry", "shift", "expected"),
    [
        (HALF, "reciprocal", 0.5, HALF - 0.5),
        (SIGNED, "reciprocal", 0.0, SIGNED),
        (NOISY, "reciprocal", 0.5, NOISY - 0.5),
        (ONE_WAY, "symmetric", 0.0, BOTH_WAYS),
        (ONE_WAY, "none", 0.0, ONE_WAY),
    ],
)
def test_constraints(given: Any, symmetry: Any, shift: float, expected: Any) -> None:
    values, subtracted = read_relation(given, NODES[: len(given)]).constrained(symmetry)
    assert subtracted == shift
    np.testing.assert_allclose(values.mean_matrix, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("relation", "symmetry", "message"),
    [
        (SIGNED, "symmetric", r"not symmetric: \(\d, \d\) is"),
        (edges("a-b 1, b-a 5"), "symmetric", "not symmetric"),
        (
            matrix([0.5, 0.9, 0.5], [0.3, 0.5, 0.5], [0.5, 0.5, 0.5]),
            "reciprocal",
            r"not reciprocal.*is 0\.9 and \(1, 0\) is 0\.3",
        ),
        (SIGNED, "mirror", "'mirror'"),
        (edges("a-b 0.7, a-b 0.7, c-c 5"), "reciprocal", "nothing for a node with itself"),
        (
            edges("a-b 0.7, b-a 0.3, c-c 0"),
            "reciprocal",
            r"\(2, 2\) is 0 and \(2, 2\) is 0; give 0.5 or nothing",
        ),
    ],
)
def test_contradictions_are_refused(relation: Any, symmetry: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_relation(relation, NODES).constrained(symmetry)


def test_only_one_set_of_nodes_can_be_constrained() -> None:
    with pytest.raises(DataError, match="2 nodes and 3 objects"):
        read_relation(np.ones((2, 3)), NODES[:2], NODES).constrained("symmetric")


@pytest.mark.parametrize(
    ("table", "symmetry", "number", "first"),
    [
        ("a-b 1, b-a 5, b-a 5, b-a 5", "symmetric", 8, 4.0),
        ("a-b 1, b-a -1, a-b -1, b-a 1, a-b 1, b-a -1", "reciprocal", 6, 1 / 3),
        ("a-b 1, b-a -1, b-c 1, b-c 1", "reciprocal", 8, 1.0),  # home, away, and two more
        ("a-b 1, b-a 5, c-a 0.2, c-a 0.3", "symmetric", 8, 3.0),
    ],
)
def test_every_measurement_is_in_both_directions(
    table: str, symmetry: Any, number: int, first: float
) -> None:
    """Labels given both ways are one measurement; others are one each, and all are where v < w."""
    values = read_relation(edges(table), NODES).constrained(symmetry)[0]
    assert len(values.values) == number
    assert values.mean_matrix[0, 1] == pytest.approx(first)
    assert abs(values.mean_matrix[1, 0]) == pytest.approx(first)


def test_a_node_may_be_called_value() -> None:
    frame = pd.DataFrame(np.ones((2, 2)), index=["value", "b"], columns=["value", "b"])
    assert read_relation(frame, ("value", "b")).complete


def test_later_changes_of_the_caller_change_nothing() -> None:
    given = np.ones((3, 3))
    values = read_relation(given, NODES)
    given[:] = 7
    assert values.values.max() == 1.0 and not values.values.flags.writeable


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        (np.ones((2, 2)), r"shape \(2, 2\)"),
        (np.full((3, 3), np.inf), "row 0, column 0 is inf; use NaN"),
        (sparse.coo_array(([np.nan], ([1], [2])), shape=(3, 3)), "row 1, column 2 is nan"),
        ([["a"]], "got list"),
        (edges("a-q 1"), "row 0.*'target'.*'q'"),
        (edges("a-b nan"), "value"),
        (edges("a-b 1").drop(columns="value"), "no column 'value'"),
        (pd.DataFrame(np.ones((2, 2)), index=["a", "a"], columns=["a", "b"]), "already used"),
        (pd.DataFrame({"a": ["x"]}, index=["b"]), "column 'a': 'x' is not a number"),
        (pd.DataFrame({"q": [1.0]}, index=["b"]), "relation, column 0: 'q' is not the label"),
    ],
)
def test_what_is_refused(relation: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_relation(relation, NODES)


def test_nodes_need_attributes_or_relations() -> None:
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
