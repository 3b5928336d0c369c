"""Where an engine refuses to run, and how much of what JAX compiled is kept."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.errors import DataError
from relpref.infer import EP, Exact
from relpref.infer import computing as guard
from relpref.limits import resident_memory
from relpref.models import conditional_ranking, xpgp

ROOT = Path(__file__).parents[2]

FORK = """
import os, warnings
from relpref.infer import EP
from relpref.models import xpgp
from relpref.infer.computing import computing

def said():
    try:
        with computing("EP", 0, ()):
            return "computes"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def forked():
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.write(writer, said().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as stream:
        return stream.read()

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("before JAX:", forked())
    with computing("EP", 0, ()):
        pass
    print("after JAX:", forked())
    print("here:", said())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_is_told_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORK)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = dict(line.split(": ", 1) for line in found.stdout.splitlines())
    assert lines["before JAX"] == lines["here"] == "computes", found.stderr
    assert lines["after JAX"].startswith("ClusterError: EP cannot run in this process")
    assert "'spawn'" in lines["after JAX"]


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    items = pd.DataFrame({"x": [0.0, 1.0, 2.0]}, index=list("abc"))
    return PreferenceData.from_tables(items, pd.DataFrame({"winner": ["a"], "loser": ["b"]}))


TRACED: dict[str, Callable[[PreferenceData], Any]] = {
    "the data": lambda data: jax.jit(lambda given: EP(xpgp).run(0, given).mean())(data),
    "nothing": lambda data: jax.jit(lambda: EP(xpgp).run(0, data).mean())(),
    "keys": lambda data: jax.vmap(lambda key: EP(xpgp).run(key, data).mean())(
        jax.random.split(jax.random.key(0), 2)
    ),
    "a gradient": lambda data: jax.grad(
        lambda a: EP(xpgp, fixed={"attribute_amplitude": a}).run(0, data).log_evidence
    )(1.0),
    "the exact engine": lambda data: jax.jit(
        lambda seed: Exact(conditional_ranking).run(seed, data)
    )(0),
}


@pytest.mark.parametrize("case", TRACED)
def test_a_traced_run_is_refused_in_a_sentence(case: str, data: PreferenceData) -> None:
    with pytest.raises(DataError, match=r"cannot be traced by JAX.*outside of jax\.jit.*fit_many"):
        TRACED[case](data)


def test_vmap_over_what_a_run_does_not_see_is_let_through() -> None:
    def inside(_: Any) -> Any:
        with guard.computing("EP", 0, (np.zeros(3),)):
            return jnp.zeros(1)

    assert jax.vmap(inside)(jnp.arange(2)).shape == (2, 1)


class _Process:
    """Memory that grows by 100 MB with each size that JAX compiles for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory: float | None = 300e6
        self.cleared = 0
        monkeypatch.setattr(guard, "resident_memory", lambda: self.memory)
        monkeypatch.setattr(guard, "release_memory", lambda: None)
        monkeypatch.setattr(jax, "clear_caches", self._clear)
        self.kept = guard._Kept()

    def _clear(self) -> None:
        self.cleared += 1
        self.memory = None if self.memory is None else 320e6

    def fit(self, size: int) -> None:
        known = size in self.kept._sizes
        self.kept.note(size)
        if self.memory is not None and not known:
            self.memory += 100e6


def test_what_is_compiled_for_many_sizes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(guard.VARIABLE, raising=False)
    process = _Process(monkeypatch)
    largest = 0.0
    for size in range(100):
        process.fit(size)
        largest = max(largest, process.memory or 0.0)
    assert largest <= 320e6 + 640e6 + 100e6
    assert 10 <= process.cleared <= 16


def test_sizes_that_come_again_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(guard.VARIABLE, raising=False)
    process = _Process(monkeypatch)
    for size in [*range(5)] * 20:
        process.fit(size)
    process.memory = 9e9  # of data that the user read
    for size in [*range(5)] * 20:
        process.fit(size)
    assert process.cleared == 0


def test_the_limit_can_be_set_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(monkeypatch)
    monkeypatch.setenv(guard.VARIABLE, "9000")
    for size in range(80):
        process.fit(size)
    assert process.cleared == 0
    monkeypatch.setenv(guard.VARIABLE, "much")
    with pytest.raises(DataError, match=r"RELPREF_COMPILED_MEMORY is 'much'"):
        process.fit(99)


def test_sizes_are_counted_where_memory_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(monkeypatch)
    process.memory = None
    for size in range(100):
        process.fit(size)
    assert process.cleared == 3


def _largest(*options: str) -> float:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory", *options]
    found = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return float(found.stdout.split("largest: ")[1].split()[0])


@pytest.mark.slow
@pytest.mark.skipif(
    resident_memory() is None, reason="the system does not say how large a process is"
)
def test_many_sizes_and_answers_stay_below_a_gigabyte_and_a_half() -> None:
    assert _largest("--fits", "200", "--answers", "2000") < 1500
