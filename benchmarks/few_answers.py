"""Held-out log loss after few answers about items with several attributes: python -m
benchmarks.few_answers

Compares the default kernel of attributes with the squared exponential, the linear kernel and a
ridge logistic regression on the differences of the attributes without an intercept, whose penalty
is chosen by cross-validation within the answers.

``cora``: 400 papers of Cora with ten principal components of their words. A paper of one topic is
preferred to one of another; the topic is another one in each split. Needs ``RELPREF_DATA``.
``linear5``, ``linear10``: 400 items with five or ten attributes, utilities that are linear with
standard deviation 2, probit answers.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

CASES = ("cora", "linear5", "linear10")
ANSWERS = (10, 20, 60)
_ITEMS, _TESTS = 400, 1000
_PENALTIES = np.logspace(-3, 0, 7)  # C of scikit-learn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few_answers", description=__doc__)
    parser.add_argument(
        "cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)} (default: all)"
    )
    parser.add_argument("--splits", type=int, default=20)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| case | answers | model | log loss | less that of the default |\n|---|---|---|---|---|")
    for name in args.cases or CASES:
        rows: list[pd.DataFrame] = []
        for split in range(args.splits):
            rows.append(pd.DataFrame(losses(name, split), index=ANSWERS))
            print(f"{name}: {split + 1} splits", file=sys.stderr, flush=True)
        for answers in ANSWERS:
            table = pd.DataFrame([row.loc[answers] for row in rows])
            for model in table:
                loss, more = table[model], table[model] - table["default"]
                errors = [column.std() / np.sqrt(len(table)) for column in (loss, more)]
                print(
                    f"| {name} | {answers} | {model} | {loss.mean():.3f} ± {errors[0]:.3f} "
                    f"| {more.mean():.3f} ± {errors[1]:.3f} |",
                    flush=True,
                )


def losses(name: str, split: int) -> dict[str, list[float]]:
    """Log loss of the tests by model, after each number of answers."""
    import relpref
    from relpref.kernels import Linear, SquaredExponential

    attributes, pairs = (
        cora(split) if name == "cora" else linear(split, int(name.removeprefix("linear")))
    )
    labels = np.array([f"e{row}" for row in range(len(attributes))])
    items = pd.DataFrame(attributes, index=labels).add_prefix("x")
    named = [(winner, loser) for winner, loser in labels[pairs].tolist()]
    tests, last = named[-_TESTS:], ANSWERS[-1]
    found: dict[str, list[float]] = {}
    models = {"default": None, "squared exponential": SquaredExponential(), "linear": Linear()}
    for number in ANSWERS:
        for model, kernel in models.items():
            fitted = relpref.fit(items, named[:number], attribute_kernel=kernel, progress_bar=False)
            loss = -np.log(fitted.prefer(tests)["probability"]).mean()
            found.setdefault(model, []).append(float(loss))
        scaled = (attributes - attributes.mean(axis=0)) / attributes.std(axis=0)
        differences = scaled[pairs[:, 0]] - scaled[pairs[:, 1]]
        found.setdefault("ridge logistic", []).append(
            ridge(differences[:number], differences[last:])
        )
    return found


def cora(split: int) -> tuple[Any, Any]:
    """Attributes of papers, and pairs of a paper of the topic and one of another."""
    from relpref.data_loaders import planetoid

    network, rng = planetoid.load("cora"), np.random.default_rng(split)
    papers = rng.choice(len(network.classes), _ITEMS, replace=False)
    words = network.words[papers].toarray()
    left, values, _ = np.linalg.svd(words - words.mean(axis=0), full_matrices=False)
    chosen = network.classes[papers] == split % 7
    ends = [rng.choice(np.flatnonzero(kind), ANSWERS[-1] + _TESTS) for kind in (chosen, ~chosen)]
    return left[:, :10] * values[:10], np.stack(ends, axis=1)


def linear(split: int, size: int) -> tuple[Any, Any]:
    """Attributes, and pairs of which the first was preferred."""
    rng = np.random.default_rng(1000 + split)
    attributes, weights = rng.standard_normal((_ITEMS, size)), rng.standard_normal(size)
    utility = attributes @ weights * 2 / np.linalg.norm(weights)
    pairs = rng.integers(0, _ITEMS, (4 * _TESTS, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][: ANSWERS[-1] + _TESTS]
    wins = utility[pairs[:, 0]] - utility[pairs[:, 1]] + rng.standard_normal(len(pairs)) > 0
    return attributes, np.where(wins[:, None], pairs, pairs[:, ::-1])


def ridge(differences: Any, tests: Any) -> float:
    """Log loss of the tests."""
    from sklearn.linear_model import LogisticRegression

    fold = np.arange(len(differences)) % min(10, len(differences))

    def loss(train: Any, test: Any, penalty: float) -> Any:
        both = np.concatenate([train, -train])  # every answer in both directions
        model = LogisticRegression(C=penalty / 2, fit_intercept=False, max_iter=2000)
        model.fit(both, np.repeat([1, 0], len(train)))
        return np.logaddexp(0, -test @ model.coef_[0])

    validated = [
        np.mean(
            [
                loss(differences[fold != k], differences[fold == k], one).mean()
                for k in np.unique(fold)
            ]
        )
        for one in _PENALTIES
    ]
    return float(loss(differences, tests, _PENALTIES[int(np.argmin(validated))]).mean())


if __name__ == "__main__":
    main()
