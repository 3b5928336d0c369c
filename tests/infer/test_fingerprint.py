"""Which problems are told apart, and which are the same."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.infer.result import fingerprint
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
    lambda x: x[0],
    lambda x: -x,
    lambda x, y=1: x,
    lambda x, y=2: x,
    times(1.0),
    times(2.0),
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
    dist.LogNormal(0.0, 1.0).expand([2]),
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
