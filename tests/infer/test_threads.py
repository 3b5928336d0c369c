"""Engines in threads: programs are traced one at a time, and each fit finds what it finds alone."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.blas import one_thread
from relpref.infer import EP
from relpref.infer.call import Call
from relpref.models import xpgp
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


def problem(size: int) -> PreferenceData:
    rng = np.random.default_rng(size)
    names = [f"e{row}" for row in range(size)]
    table = pd.DataFrame({"x": rng.normal(size=size)}, index=names)
    answers = pd.DataFrame(rng.choice(names, (3 * size, 2)), columns=["winner", "loser"])
    links = pd.DataFrame({"source": names[:-1], "target": names[1:]})
    return PreferenceData.from_tables(table, answers.query("winner != loser"), {"next": links})


def fit(engine: Callable[[], Any], size: int) -> tuple[bytes, Any]:
    found = engine().run(size, problem(size))
    return found.belief.covariance().tobytes(), found.info["residual"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"hyperparameters": "nuts", "draws": 8, "warmup": 8}])
def test_fits_of_many_shapes_in_threads_are_those_of_one_thread(options: dict[str, Any]) -> None:
    """The threads come first: what they do not compile at the same time was compiled before."""
    sizes = list(range(6, 11)) * 3
    task = partial(fit, partial(EP, xpgp, throw=False, **options))
    together = dict(run_all(task, sizes, "threads:4"))
    assert together == dict(run_all(task, sizes))
