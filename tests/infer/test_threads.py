"""Engines in threads: programs are traced one at a time, and linear algebra has one thread."""

import threading
import time

import numpyro
import numpyro.distributions as dist

from relpref.blas import one_thread
from relpref.infer.call import Call
from relpref.parallel import run_all


def slow_program(size: int) -> None:
    """So many sites, with time in between for other threads to come in."""
    for number in range(size):
        numpyro.sample(f"{size}_{number}", dist.Normal(0.0, 1.0))
        time.sleep(0.001)


def sites(size: int) -> list[str]:
    call, arrays = Call.split(slow_program, (size,), {})
    return list(call.trace(arrays, {}))


def test_traces_in_threads_do_not_mix() -> None:
    sizes = [3, 4, 5, 6] * 10
    for position, names in run_all(sites, sizes, "threads:4"):
        assert names == [f"{sizes[position]}_{number}" for number in range(sizes[position])]


def test_linear_algebra_has_one_thread_while_anyone_is_inside() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_thread():
            entered.set()
            leave.wait(10)

    with threadpool_limits(2, user_api="blas"):
        with one_thread():
            with one_thread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == {2}
        other = threading.Thread(target=stay)
        with one_thread():
            other.start()
            assert entered.wait(10)
        assert threads() == {1}
        leave.set()
        other.join()
