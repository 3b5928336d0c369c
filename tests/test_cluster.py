"""A Dask cluster as it is started by hand: a scheduler and two workers, each a process of its own, and what becomes of it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.diagnostics import calibrate, k_fold
from relpref.errors import ClusterError, DataError
from relpref.explore import Truth, simulate
from relpref.infer import EP, UtilityPosterior, fit_many
from relpref.models import xpgp
from relpref.parallel import cluster, run_all

ROOT = Path(__file__).parents[1]

pytest.importorskip("distributed")


class Cluster:
    """Processes of a cluster, to be killed one by one."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.file = folder / "scheduler.json"
        self.stack = ExitStack()
        local = ["--host", "127.0.0.1"]
        self.scheduler = self._start("scheduler", "--port", "0", "--no-dashboard", *local)
        self.workers = [
            self._start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", *local)
            for _ in range(workers)
        ]
        while not self.file.exists() or not self.file.read_text().endswith("}"):
            assert self.scheduler.poll() is None
            time.sleep(0.02)
        self.address: str = json.loads(self.file.read_text())["address"]

    def _start(self, what: str, *options: str) -> "subprocess.Popen[bytes]":
        script = f"import signal, sys; from distributed.cli.dask_{what} import main; sys.exit(main())"
        command = [sys.executable, "-c", script, "--scheduler-file", str(self.file), *options]
        paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path, workers=2)
    with running.stack:
        yield running


def square(marks: Path, number: int) -> tuple[int, int]:
    """Its square, and the process that found it; a mark for each beginning."""
    (marks / f"{number} {os.getpid()} {time.monotonic_ns()}").touch()
    time.sleep(0.1)
    return number**2, os.getpid()


def test_a_cluster_loses_a_worker_and_then_its_scheduler(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_a_cluster_without_workers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 0.2)
    monkeypatch.setattr(cluster, "_LOOK", 0.1)
    running = Cluster(tmp_path, workers=0)
    with running.stack, pytest.raises(ClusterError, match="has no workers.* after 0 of 2 items"):
        list(run_all(abs, [1, 2], running.address))


NAMES = [f"e{row}" for row in range(8)]
FIXED = {"attributes_amplitude": 1.5, "attributes_lengthscale": 0.8}


def some_answers(seed: int) -> PreferenceData:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": np.linspace(-1, 1, 8)}, index=NAMES)
    pairs = [rng.choice(NAMES, 2, replace=False) for _ in range(15)]
    return PreferenceData.from_tables(table, pd.DataFrame(pairs, columns=["winner", "loser"]))


def fit(data: PreferenceData) -> UtilityPosterior:
    posterior = EP(xpgp, fixed=FIXED).run(0, data, progress_bar=False)
    assert isinstance(posterior, UtilityPosterior)
    return posterior


def truth(seed: int) -> Truth:
    table = pd.DataFrame({"x": np.linspace(-1, 1, 8)}, index=NAMES)
    return Truth(PreferenceData.from_tables(table, None), np.random.default_rng(seed).normal(size=8))


def folds(scheduler: str | None, file: Path) -> bytes:
    held_out = k_fold(fit(some_answers(0)), 4, by="answer", scheduler=scheduler, progress_bar=False)
    return held_out.table.to_csv().encode()


def runs(scheduler: str | None, file: Path) -> bytes:
    shared: dict[str, Any] = {"answers": 3, "fit": fit, "progress_bar": False}
    return (
        simulate(truth, ["random", "ratio"], range(12), scheduler=scheduler, resume=file, **shared)
        .to_csv()
        .encode()
    )


def calibration(scheduler: str | None, file: Path) -> bytes:
    shared: dict[str, Any] = {"hyperparameters": "maximise", "simulations": 30, "progress_bar": False}
    return calibrate(xpgp, some_answers(0), scheduler=scheduler, file=file, **shared).pit.tobytes()


def queries(scheduler: str | None, file: Path) -> bytes:
    asked = {seed: some_answers(seed) for seed in range(6)}
    found = dict(fit_many(EP(xpgp, throw=False), asked, scheduler=scheduler, folder=file))
    return b"".join(found[seed].belief.covariance().tobytes() for seed in asked)


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [folds, runs, calibration, queries])
def test_what_repeats_finds_the_same_on_a_cluster_that_loses_a_worker(
    repeated: Callable[[str | None, Path], bytes], two: Cluster, tmp_path: Path
) -> None:
    """The worker is killed at some moment; where it comes too late, nothing is lost but the test's point."""
    dies = threading.Timer(6.0, two.workers[0].kill)
    dies.start()
    try:
        elsewhere = repeated(two.address, tmp_path / "cluster")
    finally:
        dies.cancel()
    assert elsewhere == repeated("threads:2", tmp_path / "threads") == repeated(None, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [runs, calibration, queries])
def test_what_was_finished_when_the_scheduler_went_is_not_done_again(
    repeated: Callable[[str | None, Path], bytes], two: Cluster, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"

    def finished() -> int:
        if kept.is_dir():
            return len([file for file in kept.iterdir() if file.suffix == ".nc"])
        return kept.read_bytes().count(b"\n") - 1 if kept.exists() else 0

    def kill_soon() -> None:
        while finished() < 1 and two.scheduler.poll() is None:
            time.sleep(0.01)
        two.scheduler.kill()

    killer = threading.Thread(target=kill_soon)
    killer.start()
    with pytest.raises(ClusterError, match=f"{two.address}: the cluster went away.*is in {kept}"):
        repeated(two.address, kept)
    killer.join()
    before = finished()
    assert before >= 1
    assert repeated(None, kept) == repeated(None, tmp_path / "whole")
    assert finished() > before
