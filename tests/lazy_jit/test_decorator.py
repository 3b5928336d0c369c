"""When functions run as steps, when JAX compiles them, and what is kept of both."""

import gc
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.lazy_jit import clear, decorator, functions, lazy_jit, primitives, steps


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    clear()
    yield
    clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was compiled."""
    names: list[str] = []

    def note(event: str, duration_secs: float, **more: Any) -> None:
        if event.endswith("backend_compile_duration"):
            names.append(str(more.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    return names


def entries() -> list[Any]:
    return sorted(decorator._kept.values(), key=lambda entry: entry.used)


def test_nothing_is_compiled_for_little_work(compiled: list[str]) -> None:
    @lazy_jit
    def unheard_of(x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T + jnp.eye(3)).sum()

    for _ in range(3):
        assert isinstance(unheard_of(np.eye(3)), np.float32)
    assert not compiled
    assert np.asarray(jax.jit(unheard_of)(np.eye(3))) == unheard_of(np.eye(3))
    assert compiled  # as a part of another compiled function


def test_how_often_a_call_came_before_does_not_matter() -> None:
    """A call is run as steps or compiled by its own cost alone: numbers are equal to the last
    bit.
    """
    traces = []

    @lazy_jit
    def f(x: Any) -> Any:
        traces.append(1)
        return {"a": jnp.exp(x), "b": (None, x.sum())}

    results = [f(np.arange(4.0)) for _ in range(1000)]
    (entry,) = entries()
    assert len(traces) == 1 and entry.compiled._cache_size() == 0
    for result in results:
        assert type(result["a"]) is np.ndarray and not result["a"].flags.writeable
        assert type(result["b"][1]) is np.float32 and result["b"][0] is None
        assert_allclose(result["a"], np.exp(np.arange(4.0)), rtol=1e-6)


def test_a_long_loop_is_given_up_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_START", 1e-3 * steps._CALLS)

    @lazy_jit
    def count(most: Any) -> Any:
        return jax.lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, s[1] / 2), (0, 1.0))

    assert count(10)[0] == 10
    assert entries()[0].compiled._cache_size() == 0
    assert count(100_000)[0] == 100_000
    assert entries()[0].compiled._cache_size() == 1
    assert count(7)[0] == 7 and entries()[0].steps is not None


def test_large_arrays_are_compiled_at_once(compiled: list[str]) -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        for _ in range(5):
            x = jnp.exp(x) + 1
        return x.sum()

    f(np.zeros(10_000_000, np.float32))
    assert entries()[0].compiled._cache_size() == 1


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any
    name: str = "pair"


jax.tree_util.register_dataclass(Pair, ["first", "second"], ["name"])


def test_trees_go_in_and_come_out() -> None:
    @lazy_jit
    def f(pair: Any, nothing: Any, *, scale: Any = 2.0) -> Any:
        return Pair(pair.first * scale, {}, pair.name), nothing, [], (pair.second,)

    pair, nothing, empty, (second,) = f(Pair(np.ones(2), 3, "q"), None, scale=3)
    assert pair.name == "q" and pair.second == {} and nothing is None and empty == []
    assert_array_equal(pair.first, [3, 3])
    assert second == 3 and second.dtype == np.int32
    f(Pair(np.ones(2), 3, "p"), None, scale=3)
    f(Pair(np.ones(2), 3, "p"), (), scale=3)
    f(Pair(np.ones(2), 3, "p"), ())
    assert len(entries()) == 4


def test_static_arguments_by_place_and_by_name() -> None:
    @lazy_jit(static_argnums=(1,), static_argnames="mode")
    def f(x: Any, power: int, y: Any = 1.0, mode: str = "a") -> Any:
        return x**power + (y if mode == "a" else -y)

    assert f(2.0, 3) == 9 and f(2.0, power=3) == 9 and f(y=2.0, x=2.0, power=2) == 6
    assert f(2.0, 3, 1.0, "b") == 7 and f(2.0, 3, mode="b") == 7
    with pytest.raises((TypeError, ValueError), match="hash"):
        f(2.0, [3])


def test_methods() -> None:
    class Thing:
        scale = 3.0

        @lazy_jit(static_argnums=0)
        def times(self, x: Any) -> Any:
            return self.scale * x

    assert Thing().times(2.0) == 6
    assert Thing.times.__name__ == "times"


def test_signatures() -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        return x * np.float32(2)

    for x in (
        1,
        1.0,
        True,
        np.float32(1),
        np.int8(1),
        np.ones(1),
        np.ones(2),
        jnp.ones(2),
        jnp.asarray(1.0),
        np.array(1.0),
    ):
        wanted = jax.jit(lambda x: x * np.float32(2))(x)
        found = f(x)
        assert (
            found.dtype == wanted.dtype and found.shape == wanted.shape and np.all(found == wanted)
        )
    assert f(np.ones(2)).dtype == np.float32
    with jax.enable_x64(True):
        assert f(np.ones(2)).dtype == np.float64
        assert f(1.0).dtype == np.float32  # a number of Python gives way
    assert f(np.ones(2)).dtype == np.float32


def test_inside_of_transformations_it_is_jit() -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        return jnp.sin(x) * x

    x = np.linspace(0, 1, 5)
    assert_allclose(jax.vmap(f)(x), f(x), rtol=1e-6)
    assert_allclose(jax.grad(f)(1.0), np.sin(1) + np.cos(1), rtol=1e-6)
    assert jax.eval_shape(f, x).shape == (5,)
    assert "jit" in str(jax.make_jaxpr(f)(x))
    # A function that meets no tracer but is called where one is at work.
    assert_allclose(jax.jit(lambda y: f(x) + y)(1.0), f(x) + 1, rtol=1e-6)
    assert_allclose(jax.vmap(lambda y: f(x) + y)(x), f(x)[None] + x[:, None], rtol=1e-6)


def test_results_are_nobodys_to_change() -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        return x, x.T, x[0], jnp.zeros(3), x + 1

    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    results = f(x)
    assert not any(result.flags.writeable for result in results)
    x[:] = 7
    assert_array_equal(results[0], np.arange(6.0).reshape(2, 3))
    assert_array_equal(results[2], np.arange(3.0))


def test_what_only_jax_can_do(caplog: pytest.LogCaptureFixture) -> None:
    @lazy_jit
    def draw(key: Any) -> Any:
        return jax.random.normal(jax.random.split(key)[0], (3,)), key

    values, key = draw(jax.random.key(0))
    assert type(values) is np.ndarray and isinstance(key, jax.Array)

    @lazy_jit
    def decomposed(x: Any) -> Any:
        return jnp.linalg.svd(x)[1] + 1  # one operation is left to JAX

    assert_allclose(decomposed(np.diag([1.0, 3.0])), [4, 2], rtol=1e-6)
    assert entries()[-1].steps is not None

    @lazy_jit
    def loud(x: Any) -> Any:
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        return x + 1

    seen: list[float] = []
    with caplog.at_level("DEBUG", "relpref.lazy_jit"):
        assert loud(1.0) == 2 and entries()[-1].steps is None
    assert caplog.messages == ["loud is compiled: effects"]
    jax.effects_barrier()
    assert seen == [1.0]


def test_no_warnings_and_no_errors_of_arithmetic() -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        return (
            x / 0,
            jnp.log(-x),
            jnp.linalg.cholesky(-jnp.eye(2) * x),
            jnp.exp(x * 1e30),
            jnp.int32(2**31 - 1) + x.astype(int),
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infinite, missing, factor, large, _ = f(np.float32(1))
    assert np.isinf(infinite) and np.isnan(missing) and np.isnan(factor[0, 0]) and np.isinf(large)


def test_the_number_of_signatures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decorator, "_MOST_STEPS", 20)

    class Result:
        pass

    @lazy_jit(static_argnums=1)
    def f(x: Any, result: Any) -> Any:
        return x + 1

    kept = Result()
    gone = weakref.ref(kept)
    f(np.zeros(3), kept)
    first = entries()[0]
    size = first.size
    for number in range(4, 50):
        f(np.zeros(number), None)
        f(np.zeros(4), None)
    assert len(entries()) * size <= 20 + size
    assert first not in entries() and any(entry.used for entry in entries())
    del kept, first
    gc.collect()
    assert gone() is None
    clear()
    assert not entries()


@pytest.mark.defects_expected
def test_jax_does_what_was_not_foreseen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> Any:
        raise ValueError

    @lazy_jit
    def f(x: Any) -> Any:
        return jnp.linalg.cholesky(jnp.cbrt(x))

    monkeypatch.setitem(functions.NAMES, "cholesky", refuse)
    assert f(np.eye(2) + 1)[0, 0] > 1 and entries()[-1].compiled._cache_size() == 1
    monkeypatch.setitem(primitives.RULES, "cbrt", refuse)
    assert f(np.eye(3) + 1)[0, 0] > 1 and entries()[-1].steps is None
    assert [record.getMessage()[:13] for record in caplog.records] == ["f is compiled"] * 2


def test_threads_trace_once() -> None:
    traces = []

    @lazy_jit
    def f(x: Any) -> Any:
        traces.append(1)
        return jax.lax.fori_loop(0, 50, lambda i, c: c + x[i % 3], jnp.zeros(()))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: f(np.full(3, number, np.float32)), range(40)))
    assert found == [50.0 * number for number in range(40)]
    assert len(traces) == 1


def test_errors_of_the_function_are_its_own() -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        f(1.0)
    with pytest.raises(TypeError):
        f("text")


def test_without_jit() -> None:
    @lazy_jit
    def f(x: Any) -> Any:
        return x + 1 if x > 0 else x

    with jax.disable_jit():
        assert f(1.0) == 2
