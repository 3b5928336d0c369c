"""One large problem on eight devices of the host and in two processes: as on one device, to
1e-10.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("on_devices.py")
ROOT = Path(__file__).parents[3]

QUICK = ["laplacian", "reciprocal-ranking-incomplete"]
KINDS = [
    f"{kernel}-{loss}-{edges}"
    for kernel in ("none", "symmetric", "reciprocal")
    for loss in ("ranking", "regression")
    for edges in ("complete", "incomplete")
]


def start(cases: list[str], devices: int, *options: str) -> "subprocess.Popen[str]":
    """Devices of the host are a setting that JAX reads when it starts: so, not in our own
    process.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", str(PROGRAM), *cases, *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


def outcome(process: "subprocess.Popen[str]", timeout: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=timeout)
    finally:
        process.kill()


def differences(process: "subprocess.Popen[str]", timeout: float = 300.0) -> dict[str, float]:
    out, error = outcome(process, timeout)
    assert process.returncode == 0, error
    found: dict[str, float] = json.loads(out.splitlines()[-1])  # the collectives talk, too
    return found


def pair(cases: list[str], devices: int) -> list["subprocess.Popen[str]"]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--processes", "2", "--port", str(port), "--process"]
    return [start(cases, devices, *options, str(number)) for number in range(2)]


EVERY = [*KINDS, "covariance", "exact", "other_device"]


@pytest.mark.parametrize("cases", [QUICK, pytest.param(EVERY, marks=pytest.mark.slow)])
def test_eight_devices(cases: list[str]) -> None:
    found = differences(start(cases, 8))
    assert found.pop("devices") == 8
    assert set(found) == set(cases)
    assert max(found.values()) < 1e-10


@pytest.mark.slow
def test_two_processes() -> None:
    cases = ["laplacian", "exact", "symmetric-ranking-incomplete"]
    processes = pair(cases, 2)
    for process in processes:
        found = differences(process)
        assert found.pop("devices") == 4
        assert set(found) == set(cases)
        assert max(found.values()) < 1e-10


@pytest.mark.slow
def test_a_process_that_ends_is_named() -> None:
    first, second = pair(["deserted"], 1)
    _, error = outcome(first, 120.0)
    outcome(second, 120.0)
    assert (first.returncode, second.returncode) == (1, 3)
    assert "the 2 processes lost one another" in error
    assert "start them all again" in error
