"""Change one sign, factor or index at a time, and check that the default tests of its room fail.

    python tools/mutate.py                 all mutants, two at a time
    python tools/mutate.py kernels rls     those of two rooms
    python tools/mutate.py --list          what would be changed

A mutant is a text that occurs once in its room, and what takes its place. It is caught when a
default test in ``tests/<room>`` fails. A mutant that survives wants a test in that room; a text
that is no longer there wants another mutant.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_LIMIT_S = 900


class Mutant(NamedTuple):
    """A text in a room of the package, what takes its place, and the tests of the room."""

    room: str
    old: str
    new: str
    tests: str = ""


MUTANTS = (
    Mutant("likelihoods", "bend * scale**2)", "bend * scale)"),
    Mutant(
        "likelihoods",
        "lower = xp.where(grade == 0, -end, start) - sign * z",
        "lower = xp.where(grade == 0, -end, start) + sign * z",
    ),
    Mutant(
        "likelihoods",
        "meant * curvature - meant * (1 - meant) * gradient**2",
        "meant * curvature + meant * (1 - meant) * gradient**2",
    ),
    Mutant(
        "likelihoods",
        "return ndtr(mean / (scale * scale + variance) ** 0.5)",
        "return ndtr(mean / (scale * scale) ** 0.5)",
    ),
    Mutant("kernels", "sums / (below + 1)", "sums / (below + 2)"),
    Mutant("kernels", "(blocks - 1 - 2 * positions)", "(blocks - 2 * positions)"),
    Mutant("kernels", "xp.sum(2 * xp.square(matrix)) / 3", "xp.sum(xp.square(matrix)) / 3"),
    Mutant(
        "kernels",
        "(left.kernel @ flow, -(right.kernel @ flow))",
        "(left.kernel @ flow, right.kernel @ flow)",
    ),
    Mutant("kernels", "slots - 1 - drawn", "slots - drawn - 2"),
    Mutant("kernels", "/ (rounds[:, None] - 3))", "/ (rounds[:, None] + 3))"),
    Mutant(
        "kernels",
        "0.5 * (straight + sign * left[rows, columns] * right[columns, rows])",
        "0.5 * (straight - sign * left[rows, columns] * right[columns, rows])",
    ),
    Mutant(
        "infer",
        "+ 0.5 * xp.vdot(counts * fit.sites.shift, fit.marginals.mean)",
        "- 0.5 * xp.vdot(counts * fit.sites.shift, fit.marginals.mean)",
    ),
    Mutant(
        "infer",
        "variance = before - xp.sum(xp.square(factor.white), axis=0)",
        "variance = before + xp.sum(xp.square(factor.white), axis=0)",
    ),
    Mutant(
        "infer",
        "weights = -self.pulled(factor, pulled.T)",
        "weights = self.pulled(factor, pulled.T)",
    ),
    Mutant(
        "infer",
        "correction = 0.5 * (xp.log1p(tau * variance) + quadratic)",
        "correction = 0.5 * (xp.log1p(tau * variance) - quadratic)",
    ),
    Mutant(
        "infer",
        "weights = xp.outer(alpha, alpha) - space.weights",
        "weights = xp.outer(alpha, alpha) + space.weights",
    ),
    Mutant("kernels", "slope = -2 * spread / lengthscale", "slope = 2 * spread / lengthscale"),
    Mutant(
        "likelihoods",
        "(random - 1) / (1 - self.lapse)",
        "(random + 1) / (1 - self.lapse)",
    ),
    Mutant(
        "infer",
        "total = highest + 0.5 * rest.shape[1] * np.log(2 * np.pi)",
        "total = highest - 0.5 * rest.shape[1] * np.log(2 * np.pi)",
    ),
    Mutant("infer", "np.sqrt(2 * _CORNERS / (_CORNERS - 1))", "np.sqrt(2 * _CORNERS / _CORNERS)"),
    Mutant(
        "infer",
        "diagonals - np.square(self._offset_rows)",
        "diagonals + np.square(self._offset_rows)",
    ),
    Mutant("infer", "np.square(b @ fit.offset_pull.T).T", "np.abs(b @ fit.offset_pull.T).T"),
    Mutant(
        "posterior",
        "between = self.weights @ np.square(self.locations - self.mean())",
        "between = 0.5 * self.weights @ np.square(self.locations - self.mean())",
    ),
    Mutant(
        "posterior",
        "left = 1 - variance * precision",
        "left = 1 + variance * precision",
    ),
    Mutant(
        "rls",
        "variance[first] * variance[second] - between**2",
        "variance[first] * variance[second] + between**2",
    ),
    Mutant(
        "rls",
        "determinant = left * right - np.square(products)",
        "determinant = left * right + np.square(products)",
    ),
    Mutant(
        "rls",
        "concordance = 0.5 + 0.5 * score / different",
        "concordance = 0.5 + score / different",
    ),
    Mutant("rls", "surplus = round(tau", "surplus = -round(tau"),
    Mutant(
        "explore",
        "np.diagonal(self.covariance) - 2 * edge + edge[ends].mean()",
        "np.diagonal(self.covariance) - edge + edge[ends].mean()",
    ),
    Mutant(
        "explore",
        "np.log1p(precision * gaps.variance) + np.log1p(-share)",
        "np.log1p(precision * gaps.variance) - np.log1p(-share)",
    ),
    Mutant(
        "diagnostics",
        "np.eye(tau.shape[1]) - weights @ gram",
        "np.eye(tau.shape[1]) + weights @ gram",
    ),
    Mutant(
        "diagnostics",
        "sites.precision * cavity.mean - sites.shift",
        "sites.precision * cavity.mean + sites.shift",
    ),
    Mutant(
        "diagnostics",
        "level.max(axis=1, keepdims=True) - level",
        "level - level.min(axis=1, keepdims=True)",
    ),
    Mutant(
        "diagnostics",
        "0.5 * np.square(self.chances - self._hits)",
        "np.square(self.chances - self._hits)",
    ),
    Mutant(
        "linalg",
        "jittered(matrix, tried), steps[tried] * unit)",
        "jittered(matrix, tried), steps[tried])",
    ),
    Mutant("linalg", "fresh -= done[:, pivot] @ done", "fresh += done[:, pivot] @ done"),
    Mutant(
        "models",
        "scores = 0.5 * (scores + sign * field[columns * m + rows])",
        "scores = 0.5 * (scores - sign * field[columns * m + rows])",
        "tests/models tests/infer",
    ),
    Mutant(
        "data",
        "(positions < last[:, None]).sum(axis=1) == last",
        "(positions < last[:, None]).sum(axis=1) >= last",
    ),
    Mutant("data", "<= last, blocks - 1, rng_key)", "<= last, blocks, rng_key)"),
    Mutant(
        "data",
        "np.where(self.positions < 0, last + 1, self.positions)",
        "np.where(self.positions < 0, last, self.positions)",
    ),
    Mutant(
        "data",
        'gap >= 0 if symmetry == "symmetric" else gap > 0',
        'gap > 0 if symmetry == "symmetric" else gap >= 0',
    ),
    Mutant("data", "abs(middle - 1) < abs(middle)", "abs(middle - 1) > abs(middle)"),
    Mutant("data", "kept = (rows >= 0) & (columns >= 0)", "kept = (rows >= 0) | (columns >= 0)"),
    Mutant("data", "flat = rows * shape[1] + columns", "flat = rows * shape[0] + columns"),
    Mutant("data", "size * 0.5 * (flow + flow.T)", "size * (flow + flow.T)"),
    Mutant("data", "np.maximum(degree - 1, 1)", "np.maximum(degree, 1)"),
    Mutant("posterior", "- 2 * scales[:, first, second]", "- scales[:, first, second]"),
    Mutant("posterior", "(centred.T * self.weights) @ centred", "centred.T @ centred"),
    Mutant("posterior", "scales += averages.mean(axis=1)", "scales -= averages.mean(axis=1)"),
    Mutant("posterior", "size / (size - 1)", "(size - 1) / size"),
    Mutant("posterior", "site / (1 + noise * site[0])", "site / (1 - noise * site[0])"),
    Mutant("posterior", "1 + above.sum(axis=0)", "1 + above.sum(axis=1)"),
    Mutant("posterior", "np.sqrt(1 - _WIDTH**2) * (places - mean) / sd", "(places - mean) / sd"),
    Mutant(
        "posterior",
        "0.5 * (np.log(left) + precision",
        "0.5 * (np.log(left) - precision",
        "tests/posterior tests/models",
    ),
    Mutant(
        "posterior",
        "scales / np.square(noise)[..., None]",
        "scales / noise[..., None]",
    ),
    Mutant(
        "posterior",
        "squares = variances + np.square",
        "squares = variances - np.square",
    ),
    Mutant(
        "diagnostics",
        '(reported["mean"] - exact["mean"]) / scale',
        '(exact["mean"] - reported["mean"]) / scale',
    ),
    Mutant("diagnostics", "(sizes + errors <= TOLERANCE)", "(sizes - errors <= TOLERANCE)"),
    Mutant("diagnostics", "<= probability / 2", "<= probability"),
    Mutant("diagnostics", "binom.sf(numbers - 1, size, GRID)", "binom.sf(numbers, size, GRID)"),
    Mutant("diagnostics", "0.25 if single else 0.5", "0.5 if single else 0.25"),
    Mutant("diagnostics", "-third / sd**3", "third / sd**3"),
)


def find(mutant: Mutant) -> Path:
    """The file of the room in which the text occurs, once."""
    files = sorted((ROOT / "relpref" / mutant.room).rglob("*.py"))
    where = [
        path for path in files for _ in range(path.read_text(encoding="utf-8").count(mutant.old))
    ]
    if len(where) != 1:
        raise SystemExit(
            f"{mutant.old!r} occurs {len(where)} times in relpref/{mutant.room}, not once"
        )
    return where[0]


def run(mutant: Mutant) -> tuple[bool, float]:
    """Whether a test noticed, and the seconds it took."""
    path = find(mutant)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for entry in ROOT.iterdir():
            if entry.name not in (
                "relpref",
                "models",
                "data_loaders",
            ) and not entry.name.startswith(".git"):
                (copy / entry.name).symlink_to(entry)
        shutil.copytree(
            ROOT / "relpref", copy / "relpref", ignore=shutil.ignore_patterns("__pycache__")
        )
        for link in ("models", "data_loaders"):
            (copy / link).symlink_to(copy / "relpref" / link)
        text = path.read_text(encoding="utf-8").replace(mutant.old, mutant.new)
        (copy / path.relative_to(ROOT)).write_text(text, encoding="utf-8")
        tests = mutant.tests or f"tests/{mutant.room}"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *tests.split(),
        ]
        environment = os.environ | {
            "PYTHONPATH": folder,
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        }
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=_LIMIT_S, check=False
        )
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{mutant}: pytest ended with {done.returncode}\n{done.stdout.decode()[-2000:]}"
        )
    return done.returncode == 1, time.monotonic() - started


def main() -> int:
    """Run the mutants and print what became of them; 1 where one survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", help="rooms of the package (default: all)")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--workers", type=int, default=2, help="tests at a time (default: 2)")
    chosen = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if not chosen.rooms or mutant.room in chosen.rooms]
    for mutant in mutants:
        path = find(mutant).relative_to(ROOT)
        if chosen.list:
            print(f"{path}: {mutant.old}  ->  {mutant.new}")
    if chosen.list:
        return 0
    survived = 0
    with ThreadPoolExecutor(chosen.workers) as pool:
        for mutant, (caught, seconds) in zip(mutants, pool.map(run, mutants), strict=True):
            survived += not caught
            word = "caught  " if caught else "SURVIVED"
            print(
                f"{word} {seconds:5.0f} s  {mutant.room}: {mutant.old}  ->  {mutant.new}",
                flush=True,
            )
    print(f"{len(mutants) - survived} of {len(mutants)} mutants were caught")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())
