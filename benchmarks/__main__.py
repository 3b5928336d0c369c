"""Run the benchmarks and print Markdown.

The timed cases run in one process for each number of cores, so that thread pools have the right
size from the start; within it the contestants take turns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import machine

LEGEND = """\
* First call: compilation included, imports not. Then: other problems of the same shape,
  contestants in turn. CPU: median CPU seconds of those calls. Other size: once, a problem with
  one comparison more. Correlation: of the posterior mean with the utilities the answers were
  drawn from."""
TIMED = (
    "fixed",
    "fitted",
    "related",
    "one_answer",
    "held_out",
    "exploration",
    "conjugate_gradient",
    "closed_form",
    "pair_out",
    "ranking_kernels",
    "ranking_classifier",
)
ONCE = ("accuracy", "lists", "queries", "report", "instant", "arena")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def main() -> None:
    """Parse the command line and run the cases."""
    args = parse()
    cases = args.cases or [*TIMED, *ONCE]
    if args.cores_of_this_process:
        use_cores(args.cores_of_this_process)
        for case in cases:
            show(case, args, f", {args.cores_of_this_process} core(s)")
        return
    print("# Benchmarks\n")
    print(machine(), flush=True)
    if any(case in TIMED for case in cases):
        print(LEGEND, flush=True)
    timed = [case for case in cases if case in TIMED]
    for cores in args.cores if timed else []:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(cores))
        options = ["--repeats", str(args.repeats), "--cores-of-this-process", str(cores)]
        command = [sys.executable, "-m", "benchmarks", *timed, *options]
        subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)
    for case in cases:
        if case in ONCE:
            show(case, args, "")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="case",
        help=f"{', '.join([*TIMED, *ONCE])} (default: all)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="calls after the first (default: 5)")
    parser.add_argument(
        "--cores", type=int, nargs="+", default=[1, 2], help="numbers of cores (default: 1 2)"
    )
    gold = Path(__file__).parents[1] / "tests" / "gold"
    parser.add_argument(
        "--gold", type=Path, default=gold, help="problems with known answers (default: tests/gold)"
    )
    parser.add_argument("--cores-of-this-process", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.cases) - {*TIMED, *ONCE}:
        parser.error(
            f"unknown case {', '.join(sorted(unknown))}; there are {', '.join([*TIMED, *ONCE])}"
        )
    available = os.cpu_count() or 1
    if args.repeats < 1 or not all(1 <= cores <= available for cores in args.cores):
        parser.error(f"at least one repeat, and from 1 to {available} cores")
    return args


def use_cores(count: int) -> None:
    """Keep this process to some of the cores; thread pools made later have their number."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def show(case: str, args: argparse.Namespace, suffix: str) -> None:
    """Run one case and print its section."""
    module = importlib.import_module(f"benchmarks.{case}")
    result = module.run(args.gold) if case == "accuracy" else module.run(args.repeats)
    print(f"\n## {module.TITLE}{suffix}\n\n{module.NOTES}\n\n{result}", flush=True)


if __name__ == "__main__":
    main()
