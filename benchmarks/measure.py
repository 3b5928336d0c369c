"""Honest timing: contestants take turns; the first call apart from the rest; the median and the
range.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

SLOW = 10.0  # seconds; who takes longer gets three rounds only
PACKAGES = ("relpref", "jax", "numpyro", "numpy", "scipy", "botorch", "gpytorch", "torch", "choix")

P = TypeVar("P")
A = TypeVar("A")


@dataclass
class Timing:
    """Seconds of one contestant."""

    cold: float = float("nan")
    warm: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    resized: float = float("nan")

    def row(self) -> list[str]:
        if not self.warm:
            return [f"{self.cold:.3g}", "-", "-", "-"]
        span = f"{min(self.warm):.3g} to {max(self.warm):.3g} ({len(self.warm)})"
        return [
            f"{self.cold:.3g}",
            f"{statistics.median(self.warm):.3g}",
            span,
            f"{median(self.cpu):.3g}",
        ]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def alternate(
    contestants: Mapping[str, Callable[[P], A]],
    problems: Sequence[P],
    resized: P | None,
    repeats: int,
) -> tuple[dict[str, Timing], dict[str, A]]:
    """Time each contestant on the same problems in turn.

    The first problem is the cold call (compilation and caches included, imports not). The others
    have its shape and other numbers, so that nobody can answer from a cache; every contestant gets
    the same ones. The resized problem, where there is one, comes last, and shows who has to prepare
    anew for another shape. Returns the timings, and each contestant's answer to the first problem.
    """
    timings = {name: Timing() for name in contestants}
    answers: dict[str, A] = {}
    for name, run in contestants.items():
        start = time.perf_counter()
        answers[name] = run(problems[0])
        timings[name].cold = time.perf_counter() - start
        note(f"{name}: first call {timings[name].cold:.2f} s")
    for turn in range(repeats):
        order = list(contestants)
        if turn % 2:
            order.reverse()
        for name in order:
            if turn >= 3 and timings[name].warm[-1] > SLOW:
                continue
            wall, cpu = time.perf_counter(), time.process_time()
            contestants[name](problems[1 + turn % (len(problems) - 1)])
            timings[name].warm.append(time.perf_counter() - wall)
            timings[name].cpu.append(time.process_time() - cpu)
        note(f"round {turn + 1} of {repeats}")
    if resized is not None:
        for name, run in contestants.items():
            start = time.perf_counter()
            run(resized)
            timings[name].resized = time.perf_counter() - start
    return timings, answers


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join(map(line, (header, ["---"] * len(header), *rows)))


def line(cells: Sequence[str]) -> str:
    """Write a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def note(text: str) -> None:
    """Say how far it is, to a person only."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def versions(packages: Iterable[str] = PACKAGES) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} absent")
    return ", ".join(found)


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """Describe what the numbers were measured on."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    system = (
        f"{datetime.date.today().isoformat()}, {platform.system()} {platform.machine()}, "
        f"{cpu_model()}"
    )
    return (
        f"* {system}, {usable} cores; load before the run {load}\n"
        f"* Python {platform.python_version()}; {versions()}"
    )
