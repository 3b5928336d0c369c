"""CPU time and memory of a first fit, for random combinations of answer columns and options.

Twelve answers about four items, each combination in a fresh process without a cache of compiled
code; imports do not count.

python -m benchmarks.combinations [--number 30] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import machine

COLUMNS = ("rater", "tie", "weight", "strength", "group", "shown_first", "covariate", "count")
ROWS = 12
_CHANCE = 0.4  # of each column and option


def drawn(seed: int, number: int) -> list[tuple[str, ...]]:
    """Draw combinations that the package accepts."""
    rng = np.random.default_rng(seed)
    combinations = []
    for _ in range(number):
        words = [name for name in COLUMNS if rng.random() < _CHANCE]
        reported = rng.random() < 0.5 * _CHANCE
        if reported:
            words = [name for name in words if name not in ("tie", "strength")] + ["probability"]
        else:
            words.append(str(rng.choice(["Probit", "Logistic"])))
            words += [name for name in ("lapse", "laplace") if rng.random() < _CHANCE]
        words += ["maximize"] * bool(rng.random() < _CHANCE)
        combinations.append(tuple(words))
    return combinations


def answers(words: Sequence[str]) -> pd.DataFrame:
    """Answers with the columns among the words."""
    rng = np.random.default_rng(0)
    pairs = np.array([rng.choice(list("abcd"), 2, replace=False) for _ in range(ROWS)])
    names = ["first", "second"] if "probability" in words else ["winner", "loser"]
    row = np.arange(ROWS)
    tied = (row % 4 == 0) & ("tie" in words)
    columns: dict[str, Any] = {
        "rater": [f"r{number}" for number in row % 3],
        "tie": tied,
        "weight": np.array([1.0, 0.5, 2.0])[row % 3],
        "strength": np.where(tied, np.nan, 1.0 + row % 3),
        "group": [f"g{number}" for number in row % 4],
        "shown_first": pairs[row, row % 2],
        "count": 1 + row % 3,
        "probability": np.array([0.6, 0.7, 0.8])[row % 3],
    }
    table = pd.DataFrame(pairs, columns=names)
    table = table.assign(**{name: columns[name] for name in words if name in columns})
    if "covariate" in words:
        table = table.assign(**{f"x_{name}": rng.standard_normal(ROWS) for name in names})
    return table


def fit(words: Sequence[str]) -> dict[str, Any]:
    """Fit one combination in this process and measure it."""
    import relpref
    import relpref.infer
    from relpref.likelihoods import Logistic, Probit

    options: dict[str, Any] = {"covariates": ["x"]} if "covariate" in words else {}
    if "probability" not in words:
        model = Logistic if "Logistic" in words else Probit
        options["likelihood"] = model(lapse="lapse" in words)
    if "laplace" in words:
        options["engine"] = "laplace"
    if "maximize" in words:
        options["hyperparameters"] = "maximize"
    table, start = answers(words), time.process_time()
    posterior = relpref.fit(answers=table, progress_bar=False, **options)
    seconds = time.process_time() - start
    return {"seconds": seconds, "megabytes": _megabytes(), "result": posterior.result.name}


def _megabytes() -> float:
    """Most memory that this process has used."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    # `getrusage` counts what the parent had when this process was forked.
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measured(words: Sequence[str]) -> dict[str, Any]:
    """Fit one combination in a fresh process."""
    code = (
        f"import json; from benchmarks.combinations import fit; print(json.dumps(fit({words!r})))"
    )
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Print a table of combinations."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.combinations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--number", type=int, default=30, help="combinations (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    args = parser.parse_args()
    print(machine())
    print("\n| combination | CPU s | MB |\n| --- | --- | --- |")
    for words in drawn(args.seed, args.number):
        result = measured(words)
        print(
            f"| {', '.join(words)} | {result['seconds']:.1f} | {result['megabytes']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
