"""How long a user waits: for the import, and for the demo."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Timing, note, table

TITLE = "Start-up, in fresh processes"
NOTES = "An empty Python is included in each import."
IMPORTS = ("relpref", "numpyro", "choix", "botorch")


def run(repeats: int) -> str:
    commands = {"python, no import": [sys.executable, "-c", "pass"]}
    missing = []
    for package in IMPORTS:
        if importlib.util.find_spec(package):
            commands[f"import {package}"] = [sys.executable, "-c", f"import {package}"]
        else:
            missing.append(f"Skipped: import {package} (not installed).")
    timings = {name: Timing() for name in commands}
    for name, command in commands.items():
        timings[name].cold = _seconds(command)
    for turn in range(repeats):
        for name, command in commands.items():
            timings[name].warm.append(_seconds(command))
        note(f"round {turn + 1} of {repeats}")
    script = shutil.which("relpref", path=str(Path(sys.executable).parent))
    if script is None:
        missing.append("Skipped: relpref demo (the command is not installed).")
    else:
        with tempfile.TemporaryDirectory() as folder:
            command = [script, "demo", "--out", folder]
            timings["relpref demo"] = Timing(_seconds(command), [_seconds(command) for _ in range(2)])
    header = ["", "first, s", "then, median s", "range (calls)"]
    rows = [[name, *timing.row()[:3]] for name, timing in timings.items()]
    return "\n\n".join([table(header, rows), *missing])


def _seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
