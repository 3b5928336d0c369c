"""The command that times devices, at small size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_contestant_has_a_row() -> None:
    options = "-m benchmarks.devices --devices 2 --scale 0.02 --repeats 1"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *options.split()]
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=240
    ).stdout
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 2 * 1 + 2 * 3 + 3
    assert {row[1] for row in rows} == {"1 cpu", "2 cpu", "NumPy"}
    assert all(float(row[2]) > 0 for row in rows)
