import os
import threading
import time
from pathlib import Path

import pytest

from relpref import parallel
from relpref.errors import ClusterError, DataError
from relpref.parallel import run_all


def square(number: int) -> int:
    return number**2


def die(marks: list[Path]) -> int:
    """End the process, once for each mark that is not there yet."""
    for mark in marks:
        if not mark.exists():
            mark.touch()
            os._exit(1)
    return os.getpid()


def test_one_by_one() -> None:
    assert list(run_all(square, [3, 1, 2])) == [(0, 9), (1, 1), (2, 4)]
    assert list(run_all(square, [])) == []


def test_threads_work_at_the_same_time_and_results_arrive_as_they_finish() -> None:
    meeting, arrived = threading.Barrier(3, timeout=20), threading.Event()

    def compute(number: int) -> int:
        meeting.wait()
        assert number != 0 or arrived.wait(20)
        return number**2

    results = []
    for result in run_all(compute, range(3), "threads:3"):
        results.append(result)
        if len(results) == 2:
            arrived.set()
    assert results[2] == (0, 0)
    assert sorted(results) == [(0, 0), (1, 1), (2, 4)]


def test_an_error_in_a_thread_cancels_the_rest() -> None:
    started = []

    def fail(number: int) -> None:
        started.append(number)
        time.sleep(0.05)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run_all(fail, range(100), "threads:2"))
    assert len(started) < 100


def test_a_process_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = [tmp_path / "first", tmp_path / "second"]
    results = list(run_all(die, [[], marks[:1]], "processes:2"))
    assert sorted(position for position, _ in results) == [0, 1]
    assert os.getpid() not in [process for _, process in results]
    monkeypatch.setattr(parallel, "_MAX_DEATHS", 1)
    message = "1 processes died, and . of 2 fits are left.*does only the rest.*in folder"
    with pytest.raises(ClusterError, match=message):
        list(run_all(die, [[], marks], "processes:2", label="fits", kept="folder"))


@pytest.mark.parametrize("scheduler", ["threads:0", "processes:0", "processes:many", ""])
def test_other_schedulers_are_refused(scheduler: str) -> None:
    with pytest.raises(DataError, match="it is None, .threads."):
        list(run_all(square, [1], scheduler))


def test_errors_of_the_function_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(run_all(lambda number: 1 // number, [0]))
