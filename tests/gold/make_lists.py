"""Makes lists.npz: exact posteriors of lists by importance sampling, with the probability of each list by integrals on a grid.

Of each problem (kind, size, seed) there are 12 items, 15 lists of that many, and means, sds and the log evidence of the utilities; its
errors are ``error`` (in sds of the means) and ``evidence_error``. Run it to write the file anew: python tests/gold/make_lists.py. It takes ten minutes.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from scipy.special import ndtr

from relpref.infer import EP
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ListComparison, ListSizes, ProbitComparison
from relpref.linalg import Dense

ITEMS, LISTS, NOISE = 12, 15, np.sqrt(0.5)
KINDS = [
    ("order", 3),
    ("order", 4),
    ("order", 8),
    ("choice", 3),
    ("choice", 5),
    ("choice", 8),
    ("best-worst", 3),
    ("best-worst", 5),
]
SEEDS = [1, 2]


def problem(kind: str, size: int, seed: int) -> tuple[Any, Any, np.random.Generator]:
    """Prior covariance and lists, each from the best to the worst item that is seen."""
    rng = np.random.default_rng([seed, size, len(kind)])
    points = rng.normal(size=(ITEMS, 2))
    prior = 2.0 * np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(-1)) + 0.5 * np.eye(ITEMS)
    utility = np.linalg.cholesky(prior) @ rng.normal(size=ITEMS)
    lists = []
    for _ in range(LISTS):
        items = rng.choice(ITEMS, size, replace=False)
        lists.append(items[np.argsort(-(utility[items] + NOISE * rng.normal(size=size)))])
    return prior, np.array(lists), rng


def log_likelihood(kind: str, lists: Any, utility: Any) -> Any:
    """Log probability of all lists, shape (s,), by the trapezoidal rule."""
    total = np.zeros(len(utility))
    grid = np.linspace(-9, 9, 361 if kind != "best-worst" else 121)
    step = grid[1] - grid[0]
    for items in lists:
        z = [(grid - utility[:, [item]]) / NOISE for item in items]
        density = [np.exp(-0.5 * one**2) / (NOISE * np.sqrt(2 * np.pi)) for one in z]
        below = [ndtr(one) for one in z]
        if kind == "order":
            above = 1 - below[0]
            for one in density[1:-1]:
                flow = one * above
                above = np.flip(np.cumsum(np.flip(flow, 1), 1), 1) * step - flow * step / 2
            chance = (density[-1] * above).sum(1) * step
        elif kind == "choice":
            chance = (density[0] * np.prod(below[1:], axis=0)).sum(1) * step
        else:
            chance = np.zeros(len(utility))
            for at in range(
                len(grid)
            ):  # the best at this node, the worst below it, the others between the two
                between = np.prod([one[:, [at]] - one[:, : at + 1] for one in below[1:-1]], axis=0)
                chance += density[0][:, at] * (density[-1][:, : at + 1] * between).sum(1) * step**2
        total += np.log(np.maximum(chance, 1e-300))
    return total


def reference(
    kind: str, size: int, seed: int, mean: Any, covariance: Any, number: int = 4000, rounds: int = 2
) -> dict[str, Any]:
    """Means, sds and log evidence by importance sampling around a Gaussian."""
    prior, lists, rng = problem(kind, size, seed)
    root, inverse = np.linalg.cholesky(1.2 * covariance), np.linalg.inv(prior)
    draws, weights = list[Any](), list[Any]()
    for _ in range(rounds):
        half = rng.normal(size=(number // 2, ITEMS))
        normal = np.concatenate([half, -half])
        utility = mean + normal @ root.T
        log_prior = (
            -0.5 * np.einsum("si,ij,sj->s", utility, inverse, utility) - 0.5 * np.linalg.slogdet(prior)[1]
        )
        log_proposal = -0.5 * (normal**2).sum(1) - np.log(np.diag(root)).sum()
        weights.append(log_likelihood(kind, lists, utility) + log_prior - log_proposal)
        draws.append(utility)
    utility, log_weights = np.concatenate(draws), np.concatenate(weights)
    top = log_weights.max()
    weight = np.exp(log_weights - top)
    log_evidence = top + np.log(weight.mean())
    share = weight / weight.sum()
    size_of_sample = 1 / np.sum(share**2)
    found = share @ utility
    sd = np.sqrt(share @ (utility - found) ** 2)
    return {
        "mean": found,
        "sd": sd,
        "log_evidence": log_evidence,
        "error": 1 / np.sqrt(size_of_sample),
        "evidence_error": weight.std() / weight.mean() / np.sqrt(len(weight)),
    }


def fitted(kind: str, size: int, seed: int) -> Any:
    """The engine on these lists: around it draws are proposed, on which the result does not depend."""
    prior, lists, _ = problem(kind, size, seed)
    number, winner, loser = rows_of(kind, lists).T

    def program() -> None:
        u = numpyro.sample("utility", GaussianProcess(Dense(jnp.asarray(prior))))
        single = ProbitComparison(u[winner] - u[loser])
        sizes = ListSizes(LISTS, len(number), size, True)
        with numpyro.plate("row", len(number)):
            numpyro.sample(
                "answer", ListComparison(single, number, winner, loser, sizes), obs=np.ones(len(number), int)
            )

    return EP(program).run(0, progress_bar=False)


def rows_of(kind: str, lists: Any) -> Any:
    """Number, winner and loser of the rows of lists."""
    rows = []
    for number, items in enumerate(lists):
        last = len(items) - 1
        if kind == "order":
            rows += [(number, items[at], items[at + 1]) for at in range(last)]
        elif kind == "choice" or len(items) < 3:
            rows += [(number, items[0], item) for item in items[1:]]
        else:
            rows += [(number, items[0], item) for item in items[1:-1]] + [
                (number, item, items[-1]) for item in items[1:-1]
            ]
    return np.array(rows)


def main() -> None:
    arrays: dict[str, Any] = {}
    for kind, size in KINDS:
        for seed in SEEDS:
            posterior = fitted(kind, size, seed)
            found = reference(
                kind, size, seed, posterior.mean(site="utility"), posterior.covariance(site="utility")
            )
            arrays |= {f"{kind} {size} {seed} {name}": value for name, value in found.items()}
    np.savez_compressed(Path(__file__).with_name("lists.npz"), **arrays)


if __name__ == "__main__":
    main()
