"""What a relation that says nothing costs, and what one that matters gains: python -m
benchmarks.useless_relation

Utilities follow two attributes, or a relation, and a part of each item's own. Each problem is
fitted with the relation and without it; the table has the difference of the held-out log loss in
nats, where a positive one is a cost of the relation. The reference averages over draws from the
priors, weighted by the evidence.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

_TESTS = 400  # answers that are predicted


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.useless_relation", description=__doc__
    )
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--answers", type=int, nargs="+", default=[10, 20])
    parser.add_argument(
        "--draws", type=int, default=300, help="from the prior, for the reference; 0: leave it out"
    )
    parser.add_argument(
        "--useful", action="store_true", help="utilities follow the relation, not the attributes"
    )
    args = parser.parse_args()
    print("| answers | way | cost of the relation, nats | log loss without it |\n|---|---|---|---|")
    for answers in args.answers:
        losses: dict[str, list[tuple[float, float]]] = {}
        for problem in range(args.problems):
            for way, pair in one(problem, args.items, answers, args.draws, args.useful).items():
                losses.setdefault(way, []).append(pair)
            if problem % 20 == 19:
                print(f"{problem + 1} problems", file=sys.stderr, flush=True)
        for way, pairs in losses.items():
            with_it, without = np.array(pairs).T
            cost = with_it - without
            error = cost.std() / np.sqrt(len(cost))
            print(
                f"| {answers} | {way} | {cost.mean():.4f} ± {error:.4f} | {without.mean():.4f} |",
                flush=True,
            )


def one(
    problem: int, items: int, answers: int, draws: int, useful: bool
) -> dict[str, tuple[float, float]]:
    """Held-out log loss with the relation and without it, by each way to treat hyperparameters."""
    from relpref.infer import EP
    from relpref.models import xpgp

    warnings.simplefilter("ignore")
    data, tests = problem_of(problem, items, answers, useful)
    result = {}
    for way in ("integrate", "maximize"):
        fits = [
            EP(xpgp, hyperparameters=way, throw=False).run(problem, each, progress_bar=False)  # type: ignore[arg-type]
            for each in (data, data.without_relation("links"))
        ]
        result[way] = (_loss(fits[0], tests), _loss(fits[1], tests))
    if draws:
        fits = [
            _over_prior(each, problem, draws) for each in (data, data.without_relation("links"))
        ]
        result["prior draws, weighted"] = (_loss(fits[0], tests), _loss(fits[1], tests))
    return result


def problem_of(
    problem: int, items: int, answers: int, useful: bool
) -> tuple[Any, list[tuple[str, str]]]:
    """Data with a random graph, and answers to predict, winner first."""
    import networkx as nx

    import relpref

    rng = np.random.default_rng(problem)
    labels = np.array([f"e{row}" for row in range(items)])
    attributes = rng.standard_normal((items, 2))
    graph = nx.barabasi_albert_graph(items, 2, seed=problem)
    edges = pd.DataFrame(
        [(labels[a], labels[b]) for a, b in graph.edges], columns=["source", "target"]
    )
    if useful:
        laplacian = nx.laplacian_matrix(graph).toarray()
        covariance = np.linalg.inv(laplacian + 0.2 * np.eye(items))
        covariance /= np.mean(np.diagonal(covariance) - covariance.mean())
    else:
        squares = np.sum(np.square(attributes[:, None] - attributes), axis=-1)
        covariance = np.exp(-0.5 * squares / 2.0)
    covariance = 1.5**2 * covariance + 0.3**2 * np.eye(items)
    utility = np.linalg.cholesky(covariance) @ rng.standard_normal(items)

    def answered(number: int) -> list[tuple[str, str]]:
        first = rng.integers(0, items, number)
        second = (first + rng.integers(1, items, number)) % items
        wins = utility[first] - utility[second] + rng.standard_normal(number) > 0
        return list(
            zip(
                labels[np.where(wins, first, second)],
                labels[np.where(wins, second, first)],
                strict=True,
            )
        )

    table = pd.DataFrame(answered(answers), columns=["winner", "loser"])
    items = pd.DataFrame(attributes, columns=["x", "y"], index=labels)
    return relpref.PreferenceData.from_tables(items, table, {"links": edges}), answered(_TESTS)


def _over_prior(data: Any, key: int, draws: int) -> Any:
    """The mixture over draws of all hyperparameters from their priors, weighted by the evidence."""
    import jax
    import jax.numpy as jnp

    from relpref.infer import EP
    from relpref.infer.program import Program
    from relpref.models import xpgp

    with jax.enable_x64(True):
        program = Program.of(xpgp, (data,))
        drawn = program.prior_draws(jax.random.key(key), draws)
        together = {name: jnp.stack([one[name] for one in drawn]) for name in drawn[0]}
        values = jax.tree.map(np.asarray, program.constrained(together))
    return EP(xpgp, throw=False).run_at_draws(values, key, data, prior_log_weights=np.zeros(draws))


def _loss(posterior: Any, tests: list[tuple[str, str]]) -> float:
    return float(-np.log(posterior.prefer(tests)["probability"]).mean())


if __name__ == "__main__":
    main()
