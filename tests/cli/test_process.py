"""The program itself: signals, pipes, the cache of compiled code, and equal bytes from different processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import relpref

PROGRAM = [sys.executable, "-m", "relpref.cli"]
FIT = [*PROGRAM, "fit", "--folder", "tables", "--out"]


def environment(**more: str) -> dict[str, str]:
    source = str(Path(relpref.__file__).parents[1])
    # Whoever runs the tests may keep compiled code for them; here it is the program's own cache that is looked at.
    settings = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return settings | {"PYTHONPATH": source, "RELPREF_CACHE": "off"} | more


@pytest.mark.slow
def test_two_processes_give_the_same_bytes(place: Path, snapshot: Any) -> None:
    for out in ("one", "two"):
        done = subprocess.run([*FIT, out], check=False, env=environment(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert snapshot(place / "one") == snapshot(place / "two")


def test_a_reader_that_leaves_is_no_error(place: Path) -> None:
    program = subprocess.Popen(
        [*PROGRAM, "rank", "run"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None and program.stderr is not None
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait() == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_said_once(place: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "rank", "run"],
            check=False,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (2, "relpref: error: the output: No space left on device\n")


def test_an_interrupt_that_python_ignores_is_heard() -> None:
    script = """
import signal, time
from relpref.cli.entry import hear_interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a shell ignore interrupts

class Busy:
    def __del__(self):
        raise KeyboardInterrupt

hear_interrupts()
try:
    Busy()
    time.sleep(60)
    print("slept")
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


def test_interrupted(place: Path, snapshot: Any) -> None:
    before = snapshot(place)
    # A shell that runs the tests in the background has them ignore interrupts, and so would their children.
    listen = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    program = subprocess.Popen(
        [sys.executable, "-c", listen, *FIT, "run", "--force", "--restarts", "100000"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline().startswith("Read: ")
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    try:
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    assert (program.returncode, out, err) == (130, "", "relpref: interrupted, nothing was written\n")
    assert snapshot(place) == before
