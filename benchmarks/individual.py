"""What the items' own parts cost where there is no such effect, and bring where there is: python -m
benchmarks.individual

Utilities of 30 items with two attributes, drawn with their hyperparameters from the default priors;
60 answers to different pairs. The log loss is that of further answers about all pairs, exactly: the
expectation under the true probabilities. It is compared with that of the same program with
individual=False, on the same problems; a standard error is that of the mean over problems.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, xlogy
from scipy.stats import halfnorm, lognorm

ITEMS, ANSWERS, ATTRIBUTES = 30, 60, 2
EFFECTS = {"of the attributes alone": (1, 0), "of both": (1, 1), "of the items alone": (0, 1)}


class Drawn(NamedTuple):
    """A problem: its data, and the true probability that the first of a pair is preferred, for all
    pairs.
    """

    data: Any
    probability: np.ndarray


def draw(effect: tuple[int, int], seed: int) -> Drawn:
    """Utilities from the prior, which has the part of the attributes, that of the items, or
    both.
    """
    from relpref.data import PreferenceData

    rng = np.random.default_rng(seed)
    points = rng.standard_normal((ITEMS, ATTRIBUTES))
    utility = np.zeros(ITEMS)
    if effect[0]:
        scale = lognorm(1.0, scale=np.sqrt(ATTRIBUTES)).rvs(ATTRIBUTES, random_state=rng)
        standard = (points - points.mean(axis=0)) / points.std(axis=0) / scale
        covariance = np.exp(-0.5 * np.sum((standard[:, None] - standard) ** 2, axis=2))
        part = rng.multivariate_normal(np.zeros(ITEMS), covariance, method="eigh")
        utility += halfnorm(scale=2.0).rvs(random_state=rng) * part
    if effect[1]:
        amplitude = halfnorm(scale=1.0 if effect[0] else 2.0).rvs(random_state=rng)
        utility += amplitude * rng.standard_normal(ITEMS)
    first, second = np.triu_indices(ITEMS, 1)
    asked = rng.choice(len(first), ANSWERS, replace=False)
    probability = ndtr(utility[first] - utility[second])
    wins = rng.random(ANSWERS) < probability[asked]
    ends = np.where(wins, [first[asked], second[asked]], [second[asked], first[asked]])
    answers = pd.DataFrame({"winner": ends[0], "loser": ends[1]})
    return Drawn(
        PreferenceData.from_tables(pd.DataFrame(points, columns=["x", "y"]), answers), probability
    )


def log_loss(problem: Drawn, individual: bool, hyperparameters: Any) -> float:
    """Of further answers about all pairs, in nats."""
    from relpref.infer import EP
    from relpref.models import preference_gp

    engine = EP(preference_gp, hyperparameters=hyperparameters, throw=False)
    posterior: Any = engine.run(0, problem.data, progress_bar=False, individual=individual)
    pairs = list(zip(*np.triu_indices(ITEMS, 1), strict=True))
    told = posterior.prefer([(int(i), int(j)) for i, j in pairs])["probability"].to_numpy()
    true = problem.probability
    return float(-np.mean(xlogy(true, told) + xlogy(1 - true, 1 - told)))


def costs(effect: tuple[int, int], problems: int, hyperparameters: Any) -> np.ndarray:
    """Log loss without the items' own parts and with them, shape (problems, 2)."""
    drawn = [draw(effect, seed) for seed in range(problems)]
    losses = [[log_loss(one, own, hyperparameters) for own in (False, True)] for one in drawn]
    return np.array(losses).reshape(problems, 2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.individual", description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument(
        "--hyperparameters", default="maximize", choices=("maximize", "integrate", "em", "nuts")
    )
    parser.add_argument("--effects", nargs="+", choices=EFFECTS, default=list(EFFECTS))
    args = parser.parse_args()
    print(f"{args.problems} problems, hyperparameters: {args.hyperparameters}\n")
    print("| effects | individual=False | individual=True | change ± se | s |")
    print("|---|---|---|---|---|")
    for name in args.effects:
        start = time.perf_counter()
        found = costs(EFFECTS[name], args.problems, args.hyperparameters)
        change = found[:, 1] - found[:, 0]
        error = change.std(ddof=1) / np.sqrt(len(change))
        means = " | ".join(f"{loss:.4f}" for loss in found.mean(axis=0))
        seconds = time.perf_counter() - start
        print(
            f"| {name} | {means} | {change.mean():+.4f} ± {error:.4f} | {seconds:.0f} |", flush=True
        )


if __name__ == "__main__":
    main()
