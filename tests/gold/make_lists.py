"""Makes lists.npz: exact posteriors of lists by importance sampling, with the probability of each
list by integrals on a grid.

Of each problem (kind, size, seed) there are 12 items and 15 lists of that many. For each kind and
size the file has, by seed, means and sds of the utilities (``mean``, ``sd``, shape (20, 12)), the
log evidence and the effective number of draws (``log_evidence``, ``ess``, shape (20,)), and the
standard errors of the means, in sds, and of the log evidence (``error``, ``evidence_error``). Run
it to write the file anew: python tests/gold/make_lists.py. It takes ten minutes.
"""

from itertools import permutations
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from relpref.infer import EP
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ListComparison, ListSizes, ProbitComparison
from relpref.linalg import Dense

ITEMS, LISTS, NOISE = 12, 15, np.sqrt(0.5)
KINDS = [
    *(("order", size) for size in range(3, 9)),
    *(("choice", size) for size in range(3, 9)),
    *(("best-worst", size) for size in range(3, 6)),
]
SEEDS = list(range(1, 21))
GRID = np.linspace(-9, 9, 301)
STEP = GRID[1] - GRID[0]
SCRAMBLES, DRAWS, TOGETHER = 4, 2048, 256


def problem(kind: str, size: int, seed: int) -> tuple[Any, Any]:
    """Prior covariance and lists, each from the best to the worst item that is seen."""
    rng = np.random.default_rng([seed, size, len(kind)])
    points = rng.normal(size=(ITEMS, 2))
    prior = 2.0 * np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(-1)) + 0.5 * np.eye(
        ITEMS
    )
    utility = np.linalg.cholesky(prior) @ rng.normal(size=ITEMS)
    lists = []
    for _ in range(LISTS):
        items = rng.choice(ITEMS, size, replace=False)
        lists.append(items[np.argsort(-(utility[items] + NOISE * rng.normal(size=size)))])
    return prior, np.array(lists)


def log_likelihood(kind: str, lists: Any, utility: Any) -> Any:
    """Log probability of all lists, shape (s,), by the trapezoidal rule."""
    z = (GRID - utility.T[:, :, None]) / NOISE
    density, below = np.exp(-0.5 * z**2) / (NOISE * np.sqrt(2 * np.pi)), ndtr(z)
    total = np.zeros(len(utility))
    for items in lists:
        if kind == "choice":
            chance = (density[items[0]] * np.prod(below[items[1:]], axis=0)).sum(1) * STEP
        elif kind == "order":
            chance = order_chance(density, below, items)
        else:  # whatever the order of those between
            between = (list(order) for order in permutations(items[1:-1]))
            chance = sum(
                order_chance(density, below, [items[0], *order, items[-1]]) for order in between
            )
        total += np.log(np.maximum(chance, 1e-300))
    return total


def order_chance(density: Any, below: Any, items: Any) -> Any:
    """∫ over the last item of the probability that the others lie above it in their order."""
    above = 1 - below[items[0]]
    for item in items[1:-1]:
        flow = density[item] * above
        above = STEP * (np.flip(np.cumsum(np.flip(flow, 1), 1), 1) - flow / 2)
    return (density[items[-1]] * above).sum(1) * STEP


def reference(kind: str, size: int, seed: int, mean: Any, covariance: Any) -> dict[str, Any]:
    """Moments by importance sampling around a Gaussian, at first that given, then that of the first
    round; from Sobol's points.
    """
    prior, lists = problem(kind, size, seed)
    inverse, volume = np.linalg.inv(prior), 0.5 * np.linalg.slogdet(prior)[1]

    def weighed(mean: Any, covariance: Any, scramble: int) -> tuple[Any, Any]:
        root = np.linalg.cholesky(1.2 * covariance)
        rng = np.random.default_rng([seed, size, len(kind), scramble])
        normal = ndtri(qmc.Sobol(ITEMS, rng=rng).random(DRAWS))
        utility = mean + normal @ root.T
        log_prior = -0.5 * np.einsum("si,ij,sj->s", utility, inverse, utility) - volume
        log_proposal = -0.5 * (normal**2).sum(1) - np.log(np.diag(root)).sum()
        likelihood = [
            log_likelihood(kind, lists, utility[at : at + TOGETHER])
            for at in range(0, DRAWS, TOGETHER)
        ]
        return utility, np.concatenate(likelihood) + log_prior - log_proposal

    utility, log_weight = weighed(mean, covariance, 0)
    share = np.exp(log_weight - log_weight.max())
    share /= share.sum()
    mean = share @ utility
    covariance = (utility - mean).T @ (share[:, None] * (utility - mean))

    utilities, log_weights = zip(
        *(weighed(mean, covariance, scramble) for scramble in range(1, SCRAMBLES + 1)), strict=True
    )
    top = np.max(log_weights)
    weight = np.exp(np.array(log_weights) - top)
    apart = np.einsum("rs,rsi->ri", weight / weight.sum(axis=1, keepdims=True), np.array(utilities))
    evidence = weight.mean(axis=1)
    utility, weight = np.concatenate(utilities), weight.ravel()
    share = weight / weight.sum()
    found = share @ utility
    sd = np.sqrt(share @ (utility - found) ** 2)
    return {
        "mean": found,
        "sd": sd,
        "log_evidence": top + np.log(weight.mean()),
        "ess": 1 / np.sum(share**2),
        "error": np.sqrt(np.mean(np.var(apart / sd, axis=0, ddof=1)) / SCRAMBLES),
        "evidence_error": evidence.std(ddof=1) / evidence.mean() / np.sqrt(SCRAMBLES),
    }


def fitted(kind: str, size: int, seed: int) -> Any:
    """The engine on these lists: around it draws are proposed, on which the result does not
    depend.
    """
    prior, lists = problem(kind, size, seed)
    number, winner, loser = rows_of(kind, lists).T

    def program() -> None:
        u = numpyro.sample("utility", GaussianProcess(Dense(jnp.asarray(prior))))
        single = ProbitComparison(u[winner] - u[loser])
        sizes = ListSizes(LISTS, len(number), size, True)
        with numpyro.plate("row", len(number)):
            numpyro.sample(
                "answer",
                ListComparison(single, number, winner, loser, sizes),
                obs=np.ones(len(number), int),
            )

    return EP(program).run(0)


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
        found = []
        for seed in SEEDS:
            posterior = fitted(kind, size, seed)
            moments = posterior.mean(site="utility"), posterior.covariance(site="utility")
            found.append(reference(kind, size, seed, *moments))
        arrays |= {
            f"{kind} {size} {name}": np.array([one[name] for one in found], np.float32)
            for name in found[0]
        }
    np.savez_compressed(Path(__file__).with_name("lists.npz"), **arrays)


if __name__ == "__main__":
    main()
