import os
import threading
import time
from pathlib import Path

import pytest

from relpref.errors import DataError
from relpref.parallel import run_all


def square(number: int) -> int:
    return number**2


def die_once(mark: Path) -> int:
    """End the process the first time, answer the second."""
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return os.getpid()


def test_serial() -> None:
    assert list(run_all(square, [3, 1, 2])) == [(0, 9), (1, 1), (2, 4)]
    assert list(run_all(square, [])) == []


def test_threads() -> None:
    assert sorted(run_all(square, [3, 1, 2], "threads")) == [(0, 9), (1, 1), (2, 4)]
    meeting = threading.Barrier(3, timeout=20)
    assert sorted(number for _, number in run_all(lambda _: meeting.wait(), range(3), "threads:3")) == [
        0,
        1,
        2,
    ]


def test_an_error_in_a_thread_gives_the_rest_up() -> None:
    begun = []

    def fail(number: int) -> None:
        begun.append(number)
        time.sleep(0.05)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run_all(fail, range(100), "threads:2"))
    assert len(begun) < 100


def test_a_worker_that_dies_costs_a_retry(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    first, second = tmp_path / "first", tmp_path / "second"
    second.touch()
    found = list(run_all(die_once, [first, second], "processes:2"))
    assert sorted(position for position, _ in found) == [0, 1]
    assert os.getpid() not in [process for _, process in found]


def test_a_cluster_that_runs_already() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        assert sorted(run_all(square, [1, 2, 3], cluster.scheduler_address)) == [(0, 1), (1, 4), (2, 9)]


@pytest.mark.parametrize("scheduler", ["threads:0", "processes:0", "processes:many", ""])
def test_other_schedulers_are_refused(scheduler: str) -> None:
    with pytest.raises(DataError, match="it is None, .threads."):
        list(run_all(square, [1], scheduler))


def test_errors_of_the_function_come_through() -> None:
    with pytest.raises(ZeroDivisionError):
        list(run_all(lambda number: 1 // number, [0]))
