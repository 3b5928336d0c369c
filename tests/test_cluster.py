"""A Dask cluster and its failures. Workers import this module, so it imports little."""

import importlib
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relpref import parallel
from relpref._version import versions
from relpref.errors import ClusterError, DataError
from relpref.parallel import run_all

distributed = pytest.importorskip("distributed")


def square(marks: Path, number: int) -> tuple[int, int]:
    """Return the square and the process, and leave a file for each call."""
    (marks / f"{number} {os.getpid()} {time.monotonic_ns()}").touch()
    time.sleep(0.1)
    return number**2, os.getpid()


def die(number: int) -> int:
    if number == 1:
        os._exit(1)
    return number


def test_a_cluster_loses_a_worker_and_then_its_scheduler(
    two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (marks := tmp_path / "marks").mkdir()
    task = partial(square, marks)
    with (
        monkeypatch.context() as other,
        pytest.raises(ClusterError, match="has jax .*, and the caller has 0.1"),
    ):
        other.setattr(parallel, "versions", lambda: versions() | {"jax": "0.1"})
        list(run_all(task, [1], two.address))

    (tmp_path / "only_here.py").write_text("def cube(number): return number**3")
    monkeypatch.syspath_prepend(tmp_path)
    cube = importlib.import_module("only_here").cube
    with pytest.raises(
        ClusterError, match="cannot load the function .*No module named 'only_here'"
    ):
        list(run_all(cube, [1, 2], two.address))

    results = {}
    for position, result in run_all(task, range(20), two.address):
        results[position] = result
        if len(results) == 3:
            time.sleep(0.2)  # until the cluster has forgotten these results
            killed, survivor = sorted(two.workers, key=lambda worker: worker.pid != result[1])
            killed.kill()
    assert {number: square for number, (square, _) in results.items()} == {
        n: n**2 for n in range(20)
    }
    assert {process for _, process in results.values()} == {killed.pid, survivor.pid}
    calls = [int(mark.name.split()[0]) for mark in marks.iterdir()]
    assert [calls.count(position) for position in list(results)[:3]] == [1, 1, 1]

    positions = []
    gone = f"{two.address}: the cluster went away after 2 of 9 squares.*the rest.*in squares.csv"
    with pytest.raises(ClusterError, match=gone):
        kept: dict[str, Any] = {"label": "squares", "kept": "squares.csv"}
        for position, _ in run_all(task, range(9), two.address, **kept):
            positions.append(position)
            if len(positions) == 2:
                two.scheduler.kill()
    assert len(positions) == 2
    monkeypatch.setattr(parallel, "_CONNECT_TIMEOUT", 0.5)
    with pytest.raises(DataError, match="does not answer"):
        list(run_all(task, [1], two.address))


def test_a_cluster_without_workers_is_named(
    start_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_WORKER_TIMEOUT", 0.2)
    monkeypatch.setattr(parallel, "_CHECK_INTERVAL", 0.1)
    cluster = start_cluster(0)
    with pytest.raises(ClusterError, match="has no workers.* after 0 of 2 items"):
        list(run_all(abs, [1, 2], cluster.address))


@pytest.mark.slow
def test_an_item_that_kills_its_workers_is_named() -> None:
    with (
        distributed.LocalCluster(
            1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        pytest.raises(ClusterError, match="lost several workers at item 1, .* of 3 fits"),
    ):
        list(run_all(die, range(3), cluster.scheduler_address, label="fits"))
