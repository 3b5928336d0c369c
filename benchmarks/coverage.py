"""Coverage of intervals when hyperparameters are drawn from their priors: python -m
benchmarks.coverage

Every data set is drawn from its program, fitted, and asked about all pairs of items (about 40
random quantities for classifiers and relations). Standard errors are clustered by data set. Writes
a Markdown table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

LEVELS = (0.5, 0.8, 0.95)
SIZES = {"small": (20, 30), "medium": (60, 150)}
CASES = (
    "xpgp",
    "preference_gp",
    "thurstone",
    "conditional_ranking",
    "ranking_classifier",
    "kronecker_classifier",
)
_PICKS = 40
_DESIGNS = 10  # designs (attributes, links, questions) that the data sets share


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--engines", nargs="+", choices=("EP", "Laplace"), default=["EP"])
    parser.add_argument(
        "--ways", nargs="+", default=["integrate"], help="integrate, maximize, nuts or given"
    )
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, mp_context=context) as pool:
        for name in args.cases or CASES:
            sizes = args.sizes if name in CASES[:3] else ["small"]
            for size in sizes:
                for engine in args.engines:
                    for way in args.ways:
                        each = max(1, args.simulations // (_DESIGNS * 4))
                        blocks = [
                            (design, start, each)
                            for design in range(_DESIGNS)
                            for start in range(0, args.simulations // _DESIGNS, each)
                        ]
                        found = list(pool.map(partial(simulated, name, size, engine, way), blocks))
                        rows.append(
                            _row(name, size, engine, way, [one for block in found for one in block])
                        )
                        print(_markdown(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
                        if args.out:
                            args.out.write_text(_markdown(rows), encoding="utf-8")
    print(_markdown(rows))


def simulated(
    name: str, size: str, engine: str, way: str, block: tuple[int, int, int]
) -> list[dict[str, float]]:
    """Some data sets of one design: for each the share of intervals that hold the truth, by
    level.
    """
    import jax

    from relpref import infer
    from relpref.diagnostics.sbc import fitted
    from relpref.diagnostics.simulation import Asked, Questions, usual

    warnings.simplefilter("ignore")
    design, start, number = block
    program, arguments, keywords = case(name, *SIZES[size], design)
    chosen: Any = getattr(infer, engine)
    with jax.enable_x64(True):
        questions = Questions.of(program, arguments, keywords)
    quantity = usual(questions)
    results = []
    for row in range(start, start + number):
        key = jax.random.fold_in(jax.random.key(design), row)
        with jax.enable_x64(True):
            truth = questions.draw(key[None]).at(0)
        options = {"draws": 100, "warmup": 100} if way == "nuts" else {}
        posterior, result = fitted(chosen, way, options, questions, truth, key)  # type: ignore[arg-type]
        if posterior is None:
            results.append({"failed": 1.0})
            continue
        rng = np.random.default_rng((design, row))
        if hasattr(posterior, "prefer") and quantity.name == "gap":
            below = _below_all(posterior, truth.latents["utility"])
        else:
            picks = [quantity.pick(rng) for _ in range(_PICKS)]
            with jax.enable_x64(True):
                below = np.array(
                    [
                        Asked(questions, quantity, truth, pick, rng).below(posterior)
                        for pick in picks
                    ]
                )
        share = {f"{level}": float(np.mean(np.abs(below - 0.5) < level / 2)) for level in LEVELS}
        share["converged"] = float(result == "converged")
        share["effective"] = float(posterior.info.get("effective_points", np.nan))
        results.append(share)
    return results


def _below_all(posterior: Any, truth: Any) -> np.ndarray[Any, Any]:
    from scipy.special import ndtr

    first, second = np.triu_indices(len(truth), 1)
    margins = posterior.belief.differences(first, second)
    gap = truth[first] - truth[second]
    return np.asarray(margins.weights @ ndtr((gap - margins.means) / np.sqrt(margins.variances)))


def case(
    name: str, items: int, answers: int, design: int
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A program, its arguments and its keywords."""
    import relpref
    from benchmarks import calibration_cases
    from relpref import models

    if name not in CASES[:3]:
        return calibration_cases.case(
            "conditional_ranking, some noise" if name == "conditional_ranking" else name
        )
    rng = np.random.default_rng(design)
    labels = [f"e{row}" for row in range(items)]
    first = rng.integers(0, items, answers)
    second = (first + rng.integers(1, items, answers)) % items
    names = np.array(labels)
    table = pd.DataFrame({"winner": names[first], "loser": names[second]})
    attributes = pd.DataFrame(rng.standard_normal((items, 2)), columns=["x", "y"], index=labels)
    if name == "thurstone":
        return models.xpgp, (relpref.PreferenceData.from_tables(attributes[[]], table),), {}
    links = rng.integers(0, items, (2, 2 * items))
    links = links[:, links[0] != links[1]]
    edges = pd.DataFrame({"source": names[links[0]], "target": names[links[1]]})
    data = relpref.PreferenceData.from_tables(attributes, table, {"links": edges.drop_duplicates()})
    return (models.xpgp if name == "xpgp" else models.preference_gp), (data,), {}


def _row(
    name: str, size: str, engine: str, way: str, found: list[dict[str, float]]
) -> dict[str, Any]:
    kept = [one for one in found if "failed" not in one]
    row: dict[str, Any] = {"program": name}
    items, answers = SIZES[size]
    row["size"] = f"{items} items, {answers} answers" if name in CASES[:3] else "small"
    row |= {"engine": engine, "hyperparameters": way, "data sets": len(found)}
    row["not converged"] = len(found) - int(sum(one["converged"] for one in kept))
    for level in LEVELS:
        share = np.array([one[f"{level}"] for one in kept])
        row[f"{100 * level:g} %"] = (
            f"{100 * share.mean():.1f} ± {100 * share.std() / np.sqrt(len(share)):.1f}"
        )
    row["median effective points"] = f"{np.median([one['effective'] for one in kept]):.0f}"
    return row


def _markdown(rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
