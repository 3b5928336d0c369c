"""Run the experiments of Pahikkala et al. 2010 on conditional ranking.

Every finished piece is written at once; the same command goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.reproduce import page
from benchmarks.reproduce.command import carry_out, common
from benchmarks.reproduce.conditional.experiment import Experiment, Part
from benchmarks.reproduce.conditional.experiments import EXPERIMENTS
from benchmarks.reproduce.rows import Row, Rows
from relpref.files import replaced
from relpref.parallel import run_all

FORMATS = ("svg", "png")


@dataclass(frozen=True)
class Item:
    """A piece of an experiment, as it is handed to another process."""

    experiment: str
    part: Part
    quick: bool


def main() -> int:
    """Parse the command line, run, and write the tables and figures."""
    args = parse()
    return carry_out(lambda: run_all_of(args), args.out)


def run_all_of(args: argparse.Namespace) -> None:
    """The experiments that were asked for."""
    for name in args.experiments or EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        stem = args.out / f"{name}{'-quick' if args.quick else ''}"
        kept = Rows(stem.with_suffix(".csv"), experiment.key)
        left = [Item(name, part, args.quick) for part in experiment.left(kept.rows, args.quick)]
        for _, rows in run_all(compute, left, args.scheduler, label=name):
            kept.add(rows)
        show(experiment, kept, stem, args.docs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.conditional", description=__doc__)
    parser.add_argument(
        "experiments", nargs="*", metavar="experiment", help=f"{', '.join(EXPERIMENTS)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="small versions of them: a minute or two")
    common(parser, "docs/conditional_reproduction.md")
    args = parser.parse_args()
    if unknown := set(args.experiments) - set(EXPERIMENTS):
        parser.error(f"unknown experiment {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}")
    return args


def compute(item: Item) -> list[Row]:
    """The rows of a piece, with the columns that name it."""
    experiment = EXPERIMENTS[item.experiment]
    named = dict(zip(experiment.part, item.part, strict=True))
    return [named | row for row in experiment.compute(item.part, item.quick)]


def show(experiment: Experiment, kept: Rows, stem: Path, docs: Path | None) -> None:
    """Print the table; write the figure and, if asked to, the page."""
    text = experiment.markdown(kept.rows)
    figure = draw(experiment, kept, stem)
    print(f"\n## {experiment.title}\n\n{text}\n\n{machine()}\n\nWritten to {stem.parent}", flush=True)
    if docs:
        page.fill(docs, experiment.name, experiment.title, text, figure)


def draw(experiment: Experiment, kept: Rows, stem: Path) -> Path | None:
    """Write the figure in every format; return the first."""
    if experiment.draw is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": experiment.name, "font.size": 9}):
        figure = pyplot.figure(figsize=(8, 3.4), layout="constrained")
        experiment.draw(kept.rows, figure)
        paths = [stem.with_suffix(f".{ending}") for ending in FORMATS]
        for path in paths:
            with replaced(path) as part:
                # Without a date, so that equal rows give equal files.
                metadata = {"Date": None} if path.suffix == ".svg" else None
                figure.savefig(part, format=path.suffix[1:], dpi=150, metadata=metadata)
        pyplot.close(figure)
    return paths[0]


if __name__ == "__main__":
    sys.exit(main())
