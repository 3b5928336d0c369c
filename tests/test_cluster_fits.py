"""Folds, calibration and queries on a Dask cluster that loses a worker, or its scheduler."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.diagnostics import calibrate, k_fold
from relpref.errors import ClusterError
from relpref.infer import EP, UtilityPosterior, fit_many
from relpref.models import xpgp

pytest.importorskip("distributed")

NAMES = [f"e{row}" for row in range(8)]
FIXED = {"attributes_amplitude": 1.5, "attributes_lengthscale": 0.8, "attributes_linear_share": 0.5}


def some_answers(seed: int) -> PreferenceData:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": np.linspace(-1, 1, 8)}, index=NAMES)
    pairs = [rng.choice(NAMES, 2, replace=False) for _ in range(15)]
    return PreferenceData.from_tables(table, pd.DataFrame(pairs, columns=["winner", "loser"]))


def fit(data: PreferenceData) -> UtilityPosterior:
    posterior = EP(xpgp, fixed=FIXED).run(0, data)
    assert isinstance(posterior, UtilityPosterior)
    return posterior


def folds(scheduler: str | None, file: Path) -> bytes:
    held_out = k_fold(fit(some_answers(0)), 8, by="answer", scheduler=scheduler, folder=file)
    return held_out.table.to_csv().encode()


def calibration(scheduler: str | None, file: Path) -> bytes:
    shared: dict[str, Any] = {
        "hyperparameters": "maximize",
        "simulations": 30,
        "progress_bar": False,
    }
    return calibrate(xpgp, some_answers(0), scheduler=scheduler, file=file, **shared).pit.tobytes()


def queries(scheduler: str | None, file: Path) -> bytes:
    asked = {seed: some_answers(seed) for seed in range(6)}
    found = dict(fit_many(EP(xpgp, throw=False), asked, scheduler=scheduler, folder=file))
    return b"".join(found[seed].belief.covariance().tobytes() for seed in asked)


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [folds, calibration, queries])
def test_what_repeats_finds_the_same_on_a_cluster_that_loses_a_worker(
    repeated: Callable[[str | None, Path], bytes], two: Any, tmp_path: Path
) -> None:
    """The worker is killed at some moment; where it comes too late, nothing is lost but the test's
    point.
    """
    dies = threading.Timer(6.0, two.workers[0].kill)
    dies.start()
    try:
        elsewhere = repeated(two.address, tmp_path / "cluster")
    finally:
        dies.cancel()
    assert elsewhere == repeated(None, tmp_path / "here")
    assert elsewhere == repeated("threads:2", tmp_path / "threads")
    assert elsewhere == repeated("processes:2", tmp_path / "processes")


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [folds, calibration, queries])
def test_what_was_finished_when_the_scheduler_went_is_not_done_again(
    repeated: Callable[[str | None, Path], bytes], two: Any, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"

    def finished() -> int:
        if kept.is_dir():
            return len([file for file in kept.iterdir() if file.suffix in (".nc", ".npz")])
        return kept.read_bytes().count(b"\n") - 1 if kept.exists() else 0

    def kill_soon() -> None:
        while finished() < 1 and two.scheduler.poll() is None:
            time.sleep(0.01)
        two.scheduler.kill()

    killer = threading.Thread(target=kill_soon)
    killer.start()
    with pytest.raises(ClusterError, match=f"{two.address}: the cluster went away.*are in {kept}"):
        repeated(two.address, kept)
    killer.join()
    before = finished()
    assert before >= 1
    assert repeated(None, kept) == repeated(None, tmp_path / "whole")
    assert finished() > before
