"""What a person waits for: from the start of a process to a ranking, and the first call of
everything.

python -m benchmarks.instant [start twenty warm commands calls estimators memory large answer]
[--largest]
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import log
from pathlib import Path

import pandas as pd

from benchmarks import problems
from benchmarks.instant_cases import CALLS, ESTIMATORS
from benchmarks.measure import SLOW, line, machine, median, note, table
from benchmarks.problems import Problem

TITLE = "Instant: CPU seconds of fresh processes"
NOTES = f"""\
CPU seconds of whole processes, or of steps in them; the system's and those of all threads count.
Processes are fresh, with fixed seeds; contestants take turns; medians of three, or of one where
it takes more than {SLOW:.0f} s. n items, m answers, four attributes. relpref uses a relation,
too, and averages over its hyperparameters, unless a row says otherwise; BoTorch's `PairwiseGP`
maximizes over those of attributes; choix (`ep_pairwise`) and kickscore have neither (a column is
empty where a package is not installed). Threads are as the environment has them. Must: what
relpref is to stay below."""
PEERS = ("BoTorch", "choix", "kickscore")
COLUMNS = ("relpref", *PEERS)
MODULES = {
    "relpref": ("relpref.data", "relpref.infer", "relpref.models"),
    "BoTorch": ("botorch.models.pairwise_gp", "botorch.fit"),
    "choix": ("choix",),
    "kickscore": ("kickscore",),
}
CASES = "benchmarks.instant_cases"
ROOT = Path(__file__).parents[1]
Size = tuple[int, int]
SMALL, MIDDLE, LARGE, LARGER, LARGEST = (
    (50, 200),
    (300, 1000),
    (1000, 3000),
    (2000, 6000),
    (4000, 12_000),
)
TWENTY = tuple((items, 4 * items) for items in range(20, 192, 9))
WARM = 5  # fits after the first
FITS = 200  # in one process, of different sizes


@dataclass
class Cost:
    """CPU seconds of a process, those of its steps by name, and what it printed."""

    whole: float
    steps: dict[str, list[float]]
    printed: str

    def again(self, step: str) -> float:
        """The median of a step without its first time."""
        return median(self.steps[step][1:])


@dataclass
class Row:
    """A line of the table: CPU seconds by contestant."""

    what: str
    seconds: Mapping[str, float]
    must: float | None = None

    def cells(self) -> list[str]:
        measured = [f"{self.seconds[name]:.3g}" if name in self.seconds else "" for name in COLUMNS]
        return [self.what, *measured, "" if self.must is None else f"{self.must:.3g}"]


@dataclass
class Bench:
    """A folder for problems, and who is installed."""

    folder: Path
    repeats: int
    largest: bool = False
    peers: tuple[str, ...] = tuple(name for name in PEERS if importlib.util.find_spec(name.lower()))
    _names: Iterable[int] = field(default_factory=count)

    def fresh(self, name: str) -> Path:
        """A path that does not exist."""
        return self.folder / f"{name}-{next(iter(self._names))}"

    def problem(self, size: Size, *, relation: bool = True, answers: int = 0) -> str:
        """The file of a problem; others about the same items have other ``answers``."""
        path = self.folder / f"{size[0]}-{size[1]}-{relation}-{answers}.npz"
        if not path.exists():
            made = (
                problems.related(*size, held_out=0, seed=0)
                if relation
                else problems.make(*size, seed=0)
            )
            (made.asked_again(answers) if answers else made).save(path)
        return str(path)

    def series(self, size: Size, number: int, *, relation: bool = True) -> list[str]:
        """A problem, and as many that have its shape."""
        return [
            self.problem(size, relation=relation, answers=answers) for answers in range(number + 1)
        ]

    def run(self, *arguments: str, module: str = CASES) -> Cost:
        """Cost of a fresh process."""
        ignored = ("JAX_", "XLA_", "RELPREF_")
        settings = {name: text for name, text in os.environ.items() if not name.startswith(ignored)}
        before = os.times()
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            check=False,
            cwd=self.folder,
            env=settings | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        after = os.times()
        if done.returncode not in (0, 2):  # 2: a command was used wrongly, which is measured, too
            raise RuntimeError(f"{module} {' '.join(arguments)}: {done.stderr[-2000:]}")
        used = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        steps: dict[str, list[float]] = {}
        for printed in done.stdout.splitlines():
            if printed.startswith('{"step"'):
                step = json.loads(printed)
                steps.setdefault(step["step"], []).append(step["cpu"])
        note(f"{used:.2f} s: {' '.join(Path(text).name for text in arguments)}")
        return Cost(used, steps, done.stdout)

    def whole(self, *arguments: str, module: str = CASES) -> float:
        return self.run(*arguments, module=module).whole

    def step(self, name: str, *arguments: str) -> float:
        return self.run(*arguments).steps[name][0]

    def turns(self, contestants: Mapping[str, Callable[[], float]]) -> dict[str, float]:
        """The median of each, in turns; who is slow has only one."""
        costs: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(self.repeats):
            for name, cost in contestants.items():
                if not turn or costs[name][0] < SLOW:
                    costs[name].append(cost())
        return {name: median(values) for name, values in costs.items()}

    def ranked(self, *files: str) -> dict[str, Callable[[], float]]:
        """Every contestant from the start of a process to the rankings that it prints."""
        return {
            name: partial(self.whole, "ranking", name, *files) for name in ("relpref", *self.peers)
        }


def start(bench: Bench) -> Iterable[Row]:
    """From the start of a process to the ranking."""
    imports = {
        name: partial(bench.whole, "imports", *MODULES[name]) for name in ("relpref", *bench.peers)
    }
    yield Row("imports", bench.turns(imports))
    for size, must in ((SMALL, 1.9), (MIDDLE, 2.4)):
        seconds = bench.turns(bench.ranked(bench.problem(size)))
        words = f"process start to printed ranking, {_of(size)}, with a relation"
        yield Row(words, seconds, must)


def twenty(bench: Bench) -> Iterable[Row]:
    """Many sizes in one process."""
    files = [bench.problem(size) for size in TWENTY]
    words = f"{len(TWENTY)} data sets of {TWENTY[0][0]} to {TWENTY[-1][0]} items in one process"
    yield Row(words, bench.turns(bench.ranked(*files)), 5.0)
    fits = {
        name: sum(bench.run("ranking", name, *files).steps["fit"])
        for name in ("relpref", *bench.peers)
    }
    yield Row("their fits alone", fits, 5.0)


def warm(bench: Bench) -> Iterable[Row]:
    """A fit after one of the same shape."""
    for size, must in ((SMALL, 0.02), (MIDDLE, 0.2)):
        files = bench.series(size, WARM)
        contestants = {"relpref": "relpref, maximize", "integrate": "relpref"} | {
            name: name for name in bench.peers
        }
        costs = {
            name: bench.run("warm", contestant, *files) for name, contestant in contestants.items()
        }
        fits = {name: cost.again("fit") for name, cost in costs.items()}
        whole = {name: cost.again("all") for name, cost in costs.items()}
        yield Row(f"warm fit, {_of(size)}, maximizing", fits, must)
        yield Row("the same from tables to a printed ranking", whole)
        yield Row(f"warm fit, {_of(size)}, averaging", {"relpref": fits["integrate"]}, 4 * must)
        yield Row("the same from tables to a printed ranking", {"relpref": whole["integrate"]})


def commands(bench: Bench) -> Iterable[Row]:
    """The command line."""
    tables, made = bench.fresh("tables"), bench.fresh("run")
    _write_tables(Problem.load(Path(bench.problem(SMALL))), tables)
    command = partial(bench.whole, module="relpref")

    def fit() -> float:
        return command("fit", "--folder", str(tables), "--out", str(bench.fresh("run")))

    command("fit", "--folder", str(tables), "--out", str(made))
    others = {
        "relpref rank run": ("rank", str(made)),
        "relpref prefer run 0 1": ("prefer", str(made), "0", "1"),
        "relpref --help": ("--help",),
        "an argument that there is not": ("rank", "--nonsense"),
        "a folder that there is not": ("rank", "missing"),
    }
    cheap = {name: partial(command, *arguments) for name, arguments in others.items()}
    costs = bench.turns({"fit": fit, **cheap})
    yield Row(f"relpref fit, {_of(SMALL)}", {"relpref": costs["fit"]})
    for name in others:
        yield Row(name, {"relpref": costs[name]}, 0.7)
    demo = {"relpref": command("demo", "--out", str(bench.fresh("demo")))}
    yield Row("relpref demo", demo, 8.0)


def calls(bench: Bench) -> Iterable[Row]:
    """The first call of each question to a posterior."""
    problem, posterior = bench.problem(SMALL), str(bench.fresh("posterior.nc"))
    bench.run("save", problem, posterior)
    musts = dict.fromkeys(CALLS, 0.15) | {"report": 3.0, "certificate": 3.0}
    for name, must in musts.items():
        places = {
            "after a fit": partial(bench.step, "call", "fitted", name, problem),
            "read from a file": partial(bench.step, "call", "saved", name, posterior),
        }
        for place, seconds in bench.turns(places).items():
            yield Row(f"first {name}, {place}, {_of(SMALL)}", {"relpref": seconds}, must)


def estimators(bench: Bench) -> Iterable[Row]:
    """Classifiers and conditional rankers."""
    for name, (_, size, other) in ESTIMATORS.items():
        costs = [bench.run("estimator", name) for _ in range(bench.repeats)]
        found = {step: median([cost.steps[step][0] for cost in costs]) for step in costs[0].steps}
        yield Row(f"{name}, {size}: first fit after the import", {"relpref": found["first"]}, 1.5)
        yield Row("the same again", {"relpref": found["again"]})
        yield Row(f"{other}: first fit", {"relpref": found["other"]}, found["other, again"])


def memory(bench: Bench) -> Iterable[Row]:
    """What a process keeps."""
    cost = bench.run("--fits", str(FITS), "--answers", "0", module="benchmarks.memory")
    largest = float(cost.printed.split("largest:")[1].split()[0]) / 1000
    yield Row(f"GB of a process in {FITS} fits of different sizes", {"relpref": largest}, 1.2)
    yield Row("CPU seconds of that process", {"relpref": cost.whole})


def large(bench: Bench) -> Iterable[Row]:
    """Larger fits, warm; what BoTorch takes on attributes alone is beside both of ours."""
    sizes = (LARGE, LARGER, LARGEST) if bench.largest else (LARGE, LARGER)
    found: dict[str, list[float]] = {"attributes": [], "a relation, too": []}
    for size in sizes:
        beside = _beside(bench, "fixed", size, 2)
        for what, seconds in found.items():
            files = bench.series(size, 2, relation=what != "attributes")
            seconds.append(bench.run("warm", "relpref, fixed", *files).again("fit"))
            yield Row(
                f"warm fit, {_of(size)}, hyperparameters given, {what}",
                beside | {"relpref": seconds[-1]},
                _quarter(beside),
            )
    for what, seconds in found.items():
        growth = log(seconds[-1] / seconds[0]) / log(sizes[-1][0] / sizes[0][0])
        yield Row(f"exponent of its growth with n, {what}", {"relpref": growth}, 2.8)
    for size in sizes if bench.largest else (LARGE,):
        beside = _beside(bench, "fitted", size, 1)
        files = bench.series(size, 1, relation=False)
        ours = {"relpref": bench.run("warm", "relpref, fitted", *files).again("fit")}
        yield Row(f"warm fit, {_of(size)}, maximizing, attributes", beside | ours, _quarter(beside))


def _beside(bench: Bench, how: str, size: Size, number: int) -> dict[str, float]:
    if "BoTorch" not in bench.peers:
        return {}
    files = bench.series(size, number, relation=False)
    return {"BoTorch": bench.run("warm", f"BoTorch, {how}", *files).again("fit")}


def _quarter(beside: Mapping[str, float]) -> float | None:
    return beside["BoTorch"] / 4 if beside else None


def answer(bench: Bench) -> Iterable[Row]:
    """One more answer to a large fit."""
    file = bench.problem(LARGE, relation=False)
    beside = (
        {"BoTorch": bench.run("answer", "BoTorch PairwiseGP, conditioned", file, "3")}
        if "BoTorch" in bench.peers
        else {}
    )
    for name, must in (
        ("relpref, quickly", 0.01),
        ("relpref, quickly, with the next question", 0.03),
        ("relpref, refined", 0.6),
    ):
        costs = beside | {"relpref": bench.run("answer", name, file, "5")}
        words = f"one more answer, {_of(LARGE)}: {name.removeprefix('relpref, ')}"
        yield Row(
            f"{words}, first in its process",
            {who: cost.steps["first"][0] for who, cost in costs.items()},
            0.3,
        )
        yield Row(
            f"{words}, then",
            {who: median(cost.steps["again"]) for who, cost in costs.items()},
            must,
        )


SECTIONS: dict[str, Callable[[Bench], Iterable[Row]]] = {
    section.__name__: section
    for section in (start, twenty, warm, commands, calls, estimators, memory, large, answer)
}


HEADER = ("", *COLUMNS, "must")


def run(repeats: int) -> str:
    """Measure everything."""
    return table(HEADER, rows(tuple(SECTIONS), min(repeats, 3)))


def rows(sections: Sequence[str], repeats: int, largest: bool = False) -> Iterator[list[str]]:
    """The cells of each line as soon as they are known."""
    for room in ("relpref", "benchmarks"):
        compileall.compile_dir(ROOT / room, quiet=2)  # as an installation does
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), repeats, largest)
        for section in sections:
            for row in SECTIONS[section](bench):
                yield row.cells()


def _of(size: Size) -> str:
    return f"n = {size[0]}, m = {size[1]}"


def _write_tables(problem: Problem, folder: Path) -> None:
    """As files for the command line."""
    (folder / "relations").mkdir(parents=True)
    attributes = pd.DataFrame(problem.attributes).add_prefix("x")
    attributes.to_csv(folder / "items.csv", index_label="item")
    answers = pd.DataFrame(problem.comparisons, columns=["winner", "loser"])
    answers.to_csv(folder / "answers.csv", index=False)
    links = pd.DataFrame(problem.links, columns=["source", "target"])
    links.to_csv(folder / "relations" / "near.csv", index=False)


def main() -> None:
    """Parse the command line and measure some sections."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instant", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "sections", nargs="*", metavar="section", help=f"{', '.join(SECTIONS)} (default: all)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="processes of each kind (default: 3)"
    )
    parser.add_argument(
        "--largest", action="store_true", help=f"large fits up to n = {LARGEST[0]}, too"
    )
    args = parser.parse_args()
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(
            f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}"
        )
    print(f"# {TITLE}\n\n{machine()}\n\n{NOTES}\n\n{table(HEADER, ())}", flush=True)
    for cells in rows(args.sections or tuple(SECTIONS), args.repeats, args.largest):
        print(line(cells), flush=True)


if __name__ == "__main__":
    main()
