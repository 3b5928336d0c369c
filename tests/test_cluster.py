"""A Dask cluster as it is started by hand, and what becomes of it. Workers import this module: it wants little."""

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relpref import parallel as cluster
from relpref.errors import ClusterError, DataError
from relpref.parallel import run_all

pytest.importorskip("distributed")


def square(marks: Path, number: int) -> tuple[int, int]:
    """Its square, and the process that found it; a mark for each beginning."""
    (marks / f"{number} {os.getpid()} {time.monotonic_ns()}").touch()
    time.sleep(0.1)
    return number**2, os.getpid()


def test_a_cluster_loses_a_worker_and_then_its_scheduler(
    two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (marks := tmp_path / "marks").mkdir()
    task = partial(square, marks)
    with monkeypatch.context() as other, pytest.raises(ClusterError, match="has jax .*, and 0.1 asks"):
        other.setattr(cluster, "versions", lambda: (("jax", "0.1"),))
        list(run_all(task, [1], two.address))

    found = {}
    for position, result in run_all(task, range(12), two.address):
        found[position] = result
        if len(found) == 3:
            two.workers[0].kill()
    assert {position: result for position, (result, _) in found.items()} == {n: n**2 for n in range(12)}
    assert [process for _, process in found.values()].count(two.workers[1].pid) >= 8
    # Not the finished ones: what the dead worker was at, and what it had found and not handed over yet.
    assert 12 <= len(list(marks.iterdir())) <= 14

    handed = []
    gone = f"{two.address}: the cluster went away after 2 of 9 squares.*only the rest.*in squares.csv"
    with pytest.raises(ClusterError, match=gone):
        for position, _ in run_all(task, range(9), two.address, label="squares", kept="squares.csv"):
            handed.append(position)
            if len(handed) == 2:
                two.scheduler.kill()
    assert len(handed) == 2
    monkeypatch.setattr(cluster, "_ANSWER", 0.5)
    with pytest.raises(DataError, match="does not answer"):
        list(run_all(task, [1], two.address))


def test_a_cluster_without_workers_is_named(start_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 0.2)
    monkeypatch.setattr(cluster, "_LOOK", 0.1)
    running = start_cluster(0)
    with pytest.raises(ClusterError, match="has no workers.* after 0 of 2 items"):
        list(run_all(abs, [1, 2], running.address))
