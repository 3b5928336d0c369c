"""Experiments that are cut into pieces, as a command: what is left is computed, then tables and
figures are written.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.reproduce.command import carry_out, common
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row, Rows
from relpref.files import replaced
from relpref.parallel import run_all

FORMATS = ("svg", "png")


@dataclass(frozen=True)
class Suite:
    """The experiments of a package.

    Attributes
    ----------
    package : str
        Its module ``experiments`` holds them by name, as ``EXPERIMENTS``.
    description : str
        For the help of the command.
    """

    package: str
    description: str | None

    @property
    def experiments(self) -> Mapping[str, Experiment]:
        """By name."""
        found: Mapping[str, Experiment] = import_module(f"{self.package}.experiments").EXPERIMENTS
        return found

    def main(self) -> int:
        """Parse the command line, run, and write the tables and figures."""
        args = self.parse()
        return carry_out(lambda: self.run(args), args.out)

    def parse(self) -> argparse.Namespace:
        names = ", ".join(self.experiments)
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.package}", description=self.description
        )
        parser.add_argument(
            "experiments", nargs="*", metavar="experiment", help=f"{names} (default: all)"
        )
        parser.add_argument(
            "--quick", action="store_true", help="small versions of them: a minute or two"
        )
        common(parser)
        args = parser.parse_args()
        if unknown := set(args.experiments) - set(self.experiments):
            parser.error(f"unknown experiment {', '.join(sorted(unknown))}; there are {names}")
        return args

    def run(self, args: argparse.Namespace) -> None:
        """The experiments that were asked for."""
        for name in args.experiments or self.experiments:
            experiment = self.experiments[name]
            stem = args.out / f"{name}{'-quick' if args.quick else ''}"
            kept = Rows(stem.with_suffix(".csv"), experiment.key)
            left = [
                Item(self, name, part, args.quick)
                for part in experiment.left(kept.rows, args.quick)
            ]
            for _, rows in run_all(compute, left, args.scheduler, label=name):
                kept.add(rows)
            show(experiment, kept, stem)


@dataclass(frozen=True)
class Item:
    """A piece of an experiment, as it is handed to another process: an experiment's functions stay
    where they are.
    """

    suite: Suite
    experiment: str
    part: Part
    quick: bool


def compute(item: Item) -> list[Row]:
    """The rows of a piece, with the columns that name it."""
    experiment = item.suite.experiments[item.experiment]
    named = dict(zip(experiment.part, item.part, strict=True))
    return [named | row for row in experiment.compute(item.part, item.quick)]


def show(experiment: Experiment, kept: Rows, stem: Path) -> None:
    """Print the table and write the figure."""
    text = experiment.markdown(kept.rows)
    draw(experiment, kept, stem)
    print(
        f"\n## {experiment.title}\n\n{text}\n\n{machine()}\n\nWritten to {stem.parent}", flush=True
    )


def draw(experiment: Experiment, kept: Rows, stem: Path) -> Path | None:
    """Write the figure in every format; return the first."""
    if experiment.draw is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Text that is not drawn as paths keeps the files small.
    text = {"svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9}
    with matplotlib.rc_context({"svg.hashsalt": experiment.name, **text}):
        figure = pyplot.figure(figsize=experiment.size, layout="constrained")
        experiment.draw(kept.rows, figure)
        paths = [stem.with_suffix(f".{ending}") for ending in FORMATS]
        for path in paths:
            with replaced(path) as part:
                # Without a date, so that equal rows give equal files.
                metadata = {"Date": None} if path.suffix == ".svg" else None
                figure.savefig(part, format=path.suffix[1:], dpi=150, metadata=metadata)
        pyplot.close(figure)
    return paths[0]
