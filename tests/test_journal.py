"""Results kept in files: which problems are told apart, and what is read back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from relpref.errors import DataError, StorageError
from relpref.infer import EP, Laplace
from relpref.journal import Journal, fingerprint
from relpref.models import preference_gp, xpgp

SLOPE = 1.0


def helper(x: Any) -> Any:
    return SLOPE * x


def through_a_helper(x: Any) -> Any:
    return helper(x) + np.mean(x)


def times(factor: Any) -> Callable[[Any], Any]:
    return lambda x: factor * x


@dataclass(frozen=True)
class Times:
    factor: float

    def __call__(self, x: Any) -> Any:
        return self.factor * x


class Opaque:
    __slots__ = ()


A_KIND = [
    xpgp,
    preference_gp,
    EP,
    Laplace,
    lambda x: x,
    lambda x: x + 1,
    lambda x: x + 2,
    lambda x: -x,
    lambda x, y=1: x,
    lambda x, y=2: x,
    times(np.ones(3)),
    times(np.ones(4)),
    Times(1.0),
    Times(2.0),
    Times(1.0).__call__,
    partial(through_a_helper, 1.0),
    partial(through_a_helper, 2.0),
    partial(through_a_helper, x=2.0),
    jax.jit(through_a_helper),
    len,
    np.exp,
    dist.Normal(0.0, 1.0),
    dist.Normal(0.0, 2.0),
    dist.HalfNormal(1.0),
    dist.LogNormal(0.0, 2.0).expand([2]),
    dist.LogNormal(0.0, 2.0).expand([3]),
    np.zeros(2),
    np.zeros((1, 2)),
    np.zeros(2, np.float32),
    np.array(["a", None], object),
    np.array(["b", None], object),
    {"a": 1},
    {"a": 2},
    {"a", "b"},
    ["1"],
    [1],
    (1,),
    [[1], 2],
    [1, [2]],
]


def test_different_problems_are_told_apart() -> None:
    found = [fingerprint(value) for value in A_KIND]
    assert len(set(found)) == len(A_KIND)


def test_the_same_problem_made_again_is_the_same() -> None:
    for first, second in (
        (times(np.ones(3)), times(np.ones(3))),
        (partial(Times(1.0), x=1), partial(Times(1.0), x=1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (dist.LogNormal(0.0, 2.0).expand([3]), dist.LogNormal(0.0, 2.0).expand([3])),
    ):
        assert fingerprint(first) == fingerprint(second)


def test_what_a_function_of_the_same_module_uses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(through_a_helper)
    monkeypatch.setitem(globals(), "SLOPE", 2.0)
    assert fingerprint(through_a_helper) != before
    monkeypatch.undo()
    assert fingerprint(through_a_helper) == before


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(DataError, match="keep none, or give a function"):
        fingerprint(times(Opaque()))


SETTINGS = {"key": [0, 1], "name": "größe"}
RECORDS = [
    {"fold": 0, "mean": np.array([1.0, np.nan, -np.inf, 0.1]), "text": "a\u2028b"},
    {"fold": 1, "mean": np.arange(6, dtype=np.int32).reshape(2, 3), "score": np.float64(0.1)},
]


def check_records(found: list[dict[str, Any]], number: int) -> None:
    assert len(found) == number
    for record, expected in zip(found, RECORDS, strict=False):
        assert record.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(record[name], value)
            assert np.asarray(record[name]).dtype == np.asarray(value).dtype


def test_a_journal_goes_on_after_an_interruption_at_any_byte(tmp_path: Path) -> None:
    file = tmp_path / "folds.jsonl"
    Journal(file, "folds", SETTINGS).add(*RECORDS)
    content = file.read_bytes()
    ends = [position + 1 for position, byte in enumerate(content) if byte == 10]
    for size in range(len(content) + 1):
        file.write_bytes(content[:size])
        journal = Journal(file, "folds", SETTINGS)
        whole = max(sum(end <= size for end in ends) - 1, 0)
        check_records(journal.records, whole)
        journal.add(*RECORDS[whole:])
        assert file.read_bytes() == content


def test_a_journal_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    file = tmp_path / "folds.jsonl"
    Journal(file, "folds", SETTINGS).add(*RECORDS)
    content = file.read_bytes()
    for kind, settings, message in (
        (
            "folds",
            SETTINGS | {"key": [0, 2]},
            r"folds.jsonl: its records have key \[0, 1\], and \[0, 2\] is",
        ),
        ("folds", {"name": "größe"}, r"have key \[0, 1\], and None is asked for"),
        ("folds", SETTINGS | {"more": 1}, "have more None, and 1 is asked for"),
        ("simulations", SETTINGS, "not a relpref simulations file; give another name"),
    ):
        with pytest.raises(StorageError, match=message):
            Journal(file, kind, settings)
    assert file.read_bytes() == content
    first, second, third, _ = content.split(b"\n")
    for line in (
        b"{]",
        b"[1]",
        b"1",
        third.replace(b"<i4", b"|O8"),
        third.replace(b'"array": "', b'"array": "!'),
    ):
        file.write_bytes(b"\n".join([first, second, line, b""]))
        with pytest.raises(StorageError, match="line 3 is damaged"):
            Journal(file, "folds", SETTINGS)
    for content, message in (
        (b"winner,loser\n", "line 1 is damaged"),
        (b"winner,loser", "not a file of relpref"),
        (b"\xff\n", "cannot be read"),
    ):
        file.write_bytes(content)
        with pytest.raises(StorageError, match=message):
            Journal(file, "folds", SETTINGS)
        assert file.read_bytes() == content
    with pytest.raises(StorageError, match="cannot be written"):
        Journal(tmp_path / "missing" / "folds.jsonl", "folds", SETTINGS)
    with pytest.raises(TypeError, match="object cannot stand in a record"):
        Journal(tmp_path / "other.jsonl", "folds", {}).add({"x": object()})
