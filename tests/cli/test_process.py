"""The program itself: signals, pipes, the cache of compiled code, and equal bytes from different
processes.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import relpref

PROGRAM = [sys.executable, "-m", "relpref"]
FIT = [*PROGRAM, "fit", "--folder", "tables", "--out"]


def environment() -> dict[str, str]:
    source = str(Path(relpref.__file__).parents[1])
    # Whoever runs the tests may keep compiled code for them; here everything is compiled.
    # Output is buffered, as it is for users.
    other = ("JAX_", "PYTHONUNBUFFERED")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(other)}
    return settings | {"PYTHONPATH": source}


def run(*command: str) -> tuple[int, str, str]:
    """Code, output and errors of a program."""
    done = subprocess.run(command, check=False, env=environment(), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_two_processes_give_the_same_bytes(place: Path, snapshot: Any) -> None:
    for out in ("one", "two"):
        assert run(*FIT, out)[::2] == (0, "")
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
    assert (done.returncode, done.stderr) == (
        2,
        "relpref: error: the output: No space left on device\n",
    )


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
    assert run(sys.executable, "-c", script) == (0, "heard\n", "")


# A shell that runs the tests in the background has them ignore interrupts, and so would their
# children.
LISTEN = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
INTERRUPTED = "relpref: interrupted, nothing was written\n"


def interrupted(command: list[str], line: str, wait: float, again: bool) -> tuple[int, str, str]:
    """Interrupt a program some time after a line of its output, once or again and again until it
    has ended; its code, output and errors.
    """
    program = subprocess.Popen(
        [sys.executable, "-c", LISTEN, *command],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline().startswith(line)
        time.sleep(wait)
        program.send_signal(signal.SIGINT)
        while again and program.poll() is None:
            time.sleep(0.01)
            program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    return program.returncode, out, err


@pytest.mark.parametrize("again", [False, True])
def test_interrupted(place: Path, snapshot: Any, again: bool) -> None:
    before = snapshot(place)
    fit = [*FIT, "run", "--force", "--restarts", "100000"]
    assert interrupted(fit, "Read: ", 0.5, again) == (130, "", INTERRUPTED)
    assert snapshot(place) == before


def test_an_interrupt_at_the_end_changes_nothing(place: Path) -> None:
    # All is said in its last line: interrupts come while Python ends.
    code, _, err = interrupted([*PROGRAM, "rank", "run", "-o", "json"], "{", 0.0, True)
    assert (code, err) in ((0, ""), (130, INTERRUPTED))


@pytest.mark.parametrize("error", ["SystemExit", "OSError"])
def test_an_interrupt_while_an_error_is_reported_changes_nothing(place: Path, error: str) -> None:
    script = f"""
import os, signal, sys
from relpref.cli import main, rank

signal.signal(signal.SIGINT, signal.default_int_handler)

class Leaving({error}):
    code = property(lambda self: os.kill(os.getpid(), signal.SIGINT) or 2)
    filename = property(lambda self: os.kill(os.getpid(), signal.SIGINT) or "f")
    strerror = "full"

def opened(*_):
    raise Leaving

rank.opened = opened
sys.exit(main())
"""
    said = "" if error == "SystemExit" else "relpref: error: f: full\n"
    assert run(sys.executable, "-c", script, "rank", "run") == (2, "", said)


def test_an_interrupt_while_the_program_is_imported(place: Path) -> None:
    script = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupts(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "relpref.cli.parser":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
from relpref.cli import main
sys.exit(main())
"""
    assert run(sys.executable, "-c", script, "rank", "run") == (130, "", INTERRUPTED)


@pytest.mark.parametrize("ignored", [False, True], ids=["heard", "ignored"])
def test_an_interrupt_while_text_is_executed(place: Path, ignored: bool) -> None:
    # As imports do for dataclasses. Python then takes it for unhandled when a module has ended.
    # In the background of a script, the signal is ignored.
    (place / "program.py").write_text(
        "import signal, sys\n"
        f"signal.signal(signal.SIGINT, signal.{'SIG_IGN' if ignored else 'default_int_handler'})\n"
        "from relpref.cli import main, rank\n"
        "rank.opened = lambda *_: exec('raise KeyboardInterrupt')\n"
        "sys.exit(main())\n",
        encoding="utf-8",
    )
    assert run(sys.executable, "-m", "program", "rank", "run") == (130, "", INTERRUPTED)


def test_it_is_said_whether_an_interrupt_came_before_or_after_files_were_replaced(
    place: Path, held: str
) -> None:
    script = """
import os, signal, sys
from relpref import files
from relpref.cli import fit, main

signal.signal(signal.SIGINT, signal.default_int_handler)
fit.say = lambda text: os.kill(os.getpid(), signal.SIGINT) if text.startswith("The run") else None
in_place = files._put_in_place
files._put_in_place = lambda *_: os.kill(os.getpid(), signal.SIGINT)
print(main(), [name for name in os.listdir() if name[0] == "." or name == "new"])
files._put_in_place = in_place
print(main(), [name for name in os.listdir() if name[0] == "." or name == "new"])
"""
    said = run(sys.executable, "-c", script, *FIT[3:], "new", *held.split())
    after = f"relpref: interrupted; {place / 'new'} is written\n"
    assert said[1:] == ("130 []\n130 ['new']\n", INTERRUPTED + after)
