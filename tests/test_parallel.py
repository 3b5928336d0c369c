import os
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


def test_a_worker_that_dies_costs_a_retry_and_nobody_waits_for_it(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    first, second = tmp_path / "first", tmp_path / "second"
    second.touch()
    found = list(run_all(die_once, [first, second], "processes:2"))
    assert [position for position, _ in found] == [1, 0]
    assert os.getpid() not in [process for _, process in found]


def test_a_cluster_that_runs_already() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        assert sorted(run_all(square, [1, 2, 3], cluster.scheduler_address)) == [(0, 1), (1, 4), (2, 9)]


@pytest.mark.parametrize("scheduler", ["threads", "processes:0", "processes:many", ""])
def test_other_schedulers_are_refused(scheduler: str) -> None:
    with pytest.raises(DataError, match="it is None, 'processes'"):
        list(run_all(square, [1], scheduler))


def test_errors_of_the_function_come_through() -> None:
    with pytest.raises(ZeroDivisionError):
        list(run_all(lambda number: 1 // number, [0]))
