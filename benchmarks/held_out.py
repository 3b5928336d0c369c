"""Every answer predicted without it: from the cavities, beside fits that did not have it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import table
from benchmarks.ours import data_of
from benchmarks.problems import Problem, make

TITLE = "Leave-one-out and influence: 1000 items, 3000 comparisons"
NOTES = """\
At fixed hyperparameters; the fit is not counted. The first call compiles (influence comes second
and finds that done). The last column is the largest difference of a log probability, in nats,
from that of a fit without the answer, over 50 answers drawn at random; and of the largest shift
of a utility, in posterior sd, over the same."""
ITEMS, COMPARISONS, CHECKED = 1000, 3000, 50


def run(repeats: int) -> str:
    """Time, and check against fits."""
    from relpref.diagnostics import influence, leave_one_out

    problem = make(ITEMS, COMPARISONS, 0)
    posterior = _fit(problem)
    rows, found = [], {}
    for act in (leave_one_out, influence):
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            found[act.__name__] = act(posterior)
            seconds.append(time.perf_counter() - start)
        span = f"{min(seconds[1:]):.3g} to {max(seconds[1:]):.3g} ({repeats})"
        rows.append(
            [act.__name__, f"{seconds[0]:.3g}", f"{statistics.median(seconds[1:]):.3g}", span]
        )
    errors, refit = _errors(posterior, found["leave_one_out"].table, found["influence"])
    for row, error in zip(rows, errors, strict=True):
        row.append(f"{error:.1e}")
    rows.append(["one fit without an answer", "-", f"{refit:.3g}", "-", "0"])
    return table(["", "first call, s", "then, median s", "range (calls)", "largest error"], rows)


def _fit(problem: Problem) -> Any:
    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp

    known = {
        "attributes_amplitude": problem.amplitude,
        "attributes_lengthscale": problem.lengthscale,
    }
    kernel = SquaredExponential(shared_lengthscale=True)
    data = data_of(problem.attributes, problem.comparisons)
    return EP(preference_gp, fixed=known).run(
        0, data, attribute_kernel=kernel, standardize=False, individual=False
    )


def _errors(
    posterior: Any, scores: pd.DataFrame, moved: pd.DataFrame
) -> tuple[tuple[float, float], float]:
    """Of the log scores and of the shifts; and the seconds of one fit."""
    chosen = np.random.default_rng(0).choice(len(scores), CHECKED, replace=False)
    belief = posterior.belief.centred()
    log_errors, shift_errors, seconds = [], [], []
    for row in chosen:
        pair = (scores["winner"][row], scores["loser"][row])
        start = time.perf_counter()
        without = posterior.update(withdraw=[pair])
        seconds.append(time.perf_counter() - start)
        truth = np.log(without.prefer([pair])["probability"][0])
        log_errors.append(abs(scores["log_score"][row] - truth))
        change = (without.belief.centred().mean() - belief.mean()) / belief.sd()
        shift_errors.append(
            abs(moved["shift"][row] - change[posterior.data.index([moved["item"][row]])[0]])
        )
    return (max(log_errors), max(shift_errors)), statistics.median(seconds)
