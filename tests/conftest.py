import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data files."""
    folder = os.environ.get("RELPREF_DATA")
    if not folder:
        pytest.skip("RELPREF_DATA is not set: there are no real data files to read")
    return Path(folder)


class Cluster:
    """Processes of a cluster, to be killed one by one."""

    def __init__(self, folder: Path, workers: int, stack: ExitStack) -> None:
        self.file = folder / "scheduler.json"
        self.stack = stack
        local = ["--host", "127.0.0.1"]
        self.scheduler = self._start("scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0", *local)
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
def start_cluster(tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    """A Dask scheduler and some workers, as they are started by hand."""
    with ExitStack() as running:
        yield lambda workers: Cluster(tmp_path, workers, running)


@pytest.fixture
def two(start_cluster: Callable[[int], Cluster]) -> Cluster:
    """With two workers."""
    return start_cluster(2)
