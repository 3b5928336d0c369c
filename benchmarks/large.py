"""More items than a matrix has room for: time and memory against the goals, against the size, and
against matrices.

python -m benchmarks.large million --out results.json
python -m benchmarks.large scaling --out results.json --figure docs/large-scaling.svg

Each case is run in a process of its own, which is stopped where it takes more time or memory than
the limits; what was found until then is shown. ``--out`` keeps what other cases left in the file,
and ``--figure`` draws what the file (or this run) has of `scaling`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.large_cases import CASES, SIZES
from benchmarks.large_figure import draw, exponents
from benchmarks.measure import machine, note, table

# Seconds of some steps together, and gigabytes, that a case is to stay below.
GOALS: dict[str, tuple[tuple[tuple[str, ...], float], ...]] = {
    "million": ((("data", "fit", "intervals"), 600.0), (("next question",), 30.0)),
    "thirty": ((("fit",), 300.0), (("first question",), 2.0), (("next question",), 2.0)),
}
GIGABYTES = {"million": 8.0, "thirty": 6.0, "memory": 4.0}
# Three decades; with matrices as far as they go.
SPARSE = (1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
DENSE = (1000, 2000, 4000, 8000)
SMALL_SPARSE, SMALL_DENSE = (1000, 3162, 10_000), (1000,)
LINKS_EACH, ANSWERS, SMALL_ANSWERS = 11, 300, 40


def main() -> None:
    """Parse the command line, run, and show."""
    args = parse()
    kept = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    if args.cases:
        print(f"# Many items\n\n{machine()}", flush=True)
    for case in args.cases:
        runs: list[dict[str, Any]] = []
        kept[case] = {"machine": machine(), "runs": runs}
        for size in sizes(case, args):
            runs.append(run(case, size, args))
            if args.out:
                args.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"\n## {case}\n\n{show(case, runs)}", flush=True)
    if args.figure:
        draw(kept["scaling"]["runs"], args.figure)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="case", help=f"{', '.join(CASES)}")
    parser.add_argument(
        "--small", action="store_true", help="sizes of seconds, which say only that the cases run"
    )
    parser.add_argument("--out", type=Path, help="a file of JSON for the results")
    parser.add_argument("--figure", type=Path, help="an image file for cost against size")
    parser.add_argument(
        "--most",
        type=int,
        default=max(SPARSE),
        help="items of the largest size of `scaling` (default: all)",
    )
    parser.add_argument(
        "--seconds", type=float, default=1800.0, help="limit of each process (default: 1800)"
    )
    parser.add_argument(
        "--gigabytes", type=float, default=16.0, help="limit of each process (default: 16)"
    )
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if not args.cases and not args.figure:
        parser.error(f"name a case: {', '.join(CASES)}")
    if args.figure and "scaling" not in args.cases and not (args.out and _has_scaling(args.out)):
        parser.error("--figure draws the case scaling: name it, or a file that has it with --out")
    return args


def _has_scaling(path: Path) -> bool:
    return path.exists() and "scaling" in json.loads(path.read_text())


def sizes(case: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """What the case is run at, one process each."""
    if case != "scaling":
        return [dict(SIZES[case][args.small])]
    lines = {
        "sparse": SMALL_SPARSE if args.small else SPARSE,
        "dense": SMALL_DENSE if args.small else DENSE,
    }
    answers = SMALL_ANSWERS if args.small else ANSWERS
    return [
        {"entities": n, "links": LINKS_EACH * n, "answers": answers, "structure": structure}
        for structure, line in lines.items()
        for n in line
        if n <= args.most
    ]


def run(case: str, size: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """One process: its steps, its facts, and what stopped it, if anything did."""
    note(f"{case}: {size}")
    command = [sys.executable, "-m", "benchmarks.large_cases", case, json.dumps(size)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        stopped: list[str] = []
        watch = threading.Thread(
            target=_watch, args=(process, args.seconds, args.gigabytes, stopped), daemon=True
        )
        watch.start()
        assert process.stdout is not None
        try:
            said = [json.loads(line) for line in process.stdout]
            code = process.wait()
        finally:
            process.kill()
        watch.join()
    if code and not stopped:
        stopped.append(f"it ended with code {code}")
    facts: dict[str, Any] = {}
    for line in said:
        facts |= line.get("facts", {})
    return {
        "size": size,
        "steps": [line for line in said if "step" in line],
        "facts": facts,
        "compared": {line["compared"]: line["values"] for line in said if "compared" in line},
        "stopped": "; ".join(stopped),
    }


def _watch(
    process: subprocess.Popen[str], seconds: float, gigabytes: float, stopped: list[str]
) -> None:
    """End a process that takes more than it may."""
    start, status = time.monotonic(), Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        time.sleep(0.2)
        if time.monotonic() - start > seconds:
            stopped.append(f"stopped after {seconds:.0f} s")
        elif _resident(status) > gigabytes * 1e9:
            stopped.append(f"stopped at {gigabytes:g} GB")
        if stopped:
            process.kill()
            return


def _resident(status: Path) -> float:
    """Bytes that a process has now, where the system says so."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return 0.0
    return sum(1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def show(case: str, runs: list[dict[str, Any]]) -> str:
    """Markdown."""
    if case == "scaling":
        return show_scaling(runs)
    (found,) = runs
    parts = [_words(found["size"])]
    parts.append(
        table(
            ["step", "seconds", "CPU seconds", "peak until then, GB"],
            [
                [
                    one["step"],
                    f"{one['seconds']:.1f}",
                    f"{one['cpu']:.1f}",
                    f"{one['peak'] / 1e9:.2f}",
                ]
                for one in found["steps"]
            ],
        )
    )
    if found["stopped"]:
        parts.append(f"Not finished: {found['stopped']}.")
    goals = _goals(case, found)
    if goals:
        parts.append(table(["goal", "below", "measured"], goals))
    for name, values in found["compared"].items():
        rows = [
            [what, value if isinstance(value, str) else f"{value:.2g}"]
            for what, value in values.items()
        ]
        parts.append(table([name, ""], rows))
    if found["facts"]:
        parts.append(_words(found["facts"]))
    return "\n\n".join(parts)


def _words(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def _goals(case: str, found: dict[str, Any]) -> list[list[str]]:
    rows = []
    for wanted, limit in GOALS.get(case, ()):
        steps = [one for one in found["steps"] if one["step"].startswith(wanted)]
        whole = all(any(one["step"].startswith(name) for one in steps) for name in wanted)
        measured = f"{sum(one['seconds'] for one in steps):.1f} s" if whole else "not finished"
        rows.append(
            [
                " + ".join(one["step"] for one in steps) or ", ".join(wanted),
                f"{limit:.0f} s",
                measured,
            ]
        )
    if case in GIGABYTES and found["steps"]:
        peak = max(one["peak"] for one in found["steps"]) / 1e9
        rows.append(["peak", f"{GIGABYTES[case]:.0f} GB", f"{peak:.2f} GB"])
    return rows


def show_scaling(runs: list[dict[str, Any]]) -> str:
    rows = []
    for found in runs:
        size, steps = found["size"], found["steps"]
        row = [f"{size['entities']:,}", size["structure"]]
        if found["stopped"]:
            row += [found["stopped"], "", ""]
        else:
            peak = steps[-1]["peak"]
            beyond = (peak - steps[0]["peak"]) / 1e9
            row += [f"{steps[-1]['seconds']:.2f}", f"{peak / 1e9:.2f}", f"{beyond:.2f}"]
        rows.append(row)
    first_table = table(
        ["entities", "", "fit and ranking, s", "peak, GB", "of it after the imports, GB"], rows
    )
    second_table = table(
        ["exponent of", "", "over all sizes", "over the largest decade"],
        [
            [quantity, structure, f"{whole:.2f}", f"{end:.2f}"]
            for (structure, quantity), (whole, end) in exponents(runs).items()
        ],
    )
    return f"{first_table}\n\n{second_table}"


if __name__ == "__main__":
    main()
