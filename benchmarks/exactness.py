"""Posteriors of small problems against the exact ones, by importance sampling of its own.

    python -m benchmarks.exactness [--programs 40] [--wide 20] [--draws 18]

Random programs of three to six items: pairs, ties, lapses, raters, groups, choices and orders of
three, at known and at default hyperparameters. "wide" ones have an amplitude of 2 to 4 and answers
that agree. Printed for each: the largest errors of the gaps' means (in exact sds), sds and
probabilities, with and without the check of the fit, and their Monte Carlo errors.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import log_ndtr, logsumexp, ndtr

import relpref

KINDS = ("pairs", "ties", "lapse", "raters", "groups", "choices", "orders")
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
ITEM_SD = np.sqrt(0.5)


class Case(NamedTuple):
    """Random answers of one kind, with the numbers of items, raters and groups in each."""

    kind: str
    table: Any
    answers: list[tuple[Any, ...]]
    items: int
    known: dict[str, Any]
    options: dict[str, Any]


def case(kind: str, seed: int, wide: bool, known: bool) -> Case:
    """A random problem; ``wide`` ones have large amplitudes and answers that agree."""
    rng = np.random.default_rng([seed, KINDS.index(kind), wide])
    items = int(rng.integers(3, 5 if kind == "groups" else 7))
    amplitude = float(rng.uniform(2, 4) if wide else rng.uniform(0.5, 1.2))
    utility = np.sort(amplitude * rng.standard_normal(items))[::-1]
    noise = 0.2 if wide else 1.0
    answers: list[tuple[Any, ...]] = []
    for number in range(int(rng.integers(5, 13))):
        size = 2 if kind not in ("choices", "orders") else 3
        shown = np.sort(rng.choice(items, size, replace=False))
        seen = utility[shown] + noise * ITEM_SD * rng.standard_normal(size)
        order = tuple(int(i) for i in shown[np.argsort(-seen)])
        tie = kind == "ties" and bool(seen[0] - seen[1] < 0.4 and seen[1] - seen[0] < 0.4)
        answers.append((order, tie, number % 3))
    labels = [f"i{k}" for k in range(items)]
    if kind == "choices":
        rows = [
            (number, labels[item], item == order[0])
            for number, (order, _, _) in enumerate(answers)
            for item in order
        ]
        table: Any = pd.DataFrame(rows, columns=["choice", "item", "chosen"])
    elif kind == "orders":
        rows = [
            (number, labels[item], place + 1)
            for number, (order, _, _) in enumerate(answers)
            for place, item in enumerate(order)
        ]
        table = pd.DataFrame(rows, columns=["event", "item", "place"])
    else:
        rows = [(labels[a], labels[b]) for (a, b), _, _ in answers]
        table = pd.DataFrame(rows, columns=["winner", "loser"])
        if kind == "ties":
            table["tie"] = [tie for _, tie, _ in answers]
        if kind in ("raters", "groups"):
            table["rater" if kind == "raters" else "group"] = [f"r{who}" for *_, who in answers]
    values: dict[str, Any] = {"individual_amplitude": amplitude}
    values |= {"ties": {"tie_margin": 0.4}, "lapse": {"lapse": 0.1}}.get(kind, {})
    values |= {"groups": {"group_sd": 0.7}}.get(kind, {})
    values |= {"raters": {"rater_spread": 0.5}}.get(kind, {})  # noise of raters is averaged over
    return Case(kind, table, answers, items, values if known else {}, options_of(kind))


def options_of(kind: str) -> dict[str, Any]:
    """Options of the fit."""
    return {"lapse": {"likelihood": relpref.likelihoods.Probit(lapse=True)}}.get(kind, {})


def exact(
    given: Case, mean: Any, covariance: Any, log2_draws: int
) -> tuple[tuple[Any, Any, Any], Any]:
    """Means, sds and probabilities of gaps, and the error of sds, by draws of a wide Student t."""
    rng, number, n = np.random.default_rng(1), 2**log2_draws, given.items
    scale = np.sqrt(rng.chisquare(5, number) / 5)[:, None]
    root = 1.3 * np.linalg.cholesky(covariance + 1e-9 * np.eye(n))
    t = rng.standard_normal((number, n)) / scale
    utility = mean + t @ root.T
    log_weight = 0.5 * (5 + n) * np.log1p(np.sum(t**2, axis=1) / 5)

    def parameter(name: str, draw: Any) -> Any:
        return np.broadcast_to(given.known[name], number) if name in given.known else draw()

    # The amplitude, half-normal of scale 2, is integrated out of the prior of the utilities.
    amplitudes = np.geomspace(1e-3, 14, 400)
    if "individual_amplitude" in given.known:
        amplitudes = np.array([given.known["individual_amplitude"]])
    squares = np.geomspace(1e-8, 1e5, 4000)
    log_prior = logsumexp(
        (1 - n) * np.log(amplitudes) - amplitudes**2 / 8
        - 0.5 * squares[:, None] / amplitudes**2, axis=1,
    )  # fmt: skip
    length = np.sum(utility**2, axis=1)
    if len(amplitudes) > 1:
        log_weight += np.interp(np.log(length), np.log(squares), log_prior)
    else:
        log_weight -= 0.5 * length / amplitudes[0] ** 2
    noise, margin, lapse = np.ones((number, 3)), np.zeros(number), np.zeros(number)
    effect = np.zeros((number, 3, n))
    if given.kind == "raters":
        spread = parameter("rater_spread", lambda: 0.75 * abs(rng.standard_normal(number)))
        noise = np.exp(spread[:, None] * rng.standard_normal((number, 3)))
    if given.kind == "ties":
        margin = parameter("tie_margin", lambda: abs(rng.standard_normal(number)))
    if given.kind == "lapse":
        lapse = parameter("lapse", lambda: rng.beta(1, 19, number))
    if given.kind == "groups":
        sd = parameter("group_sd", lambda: abs(rng.standard_normal(number)))
        effect = sd[:, None, None] * ITEM_SD * rng.standard_normal((number, 3, n))
    for order, tie, who in given.answers:
        u = utility + effect[:, who]
        gap = (u[:, order[0]] - u[:, order[1]]) / noise[:, who]
        threshold = margin / noise[:, who]
        if len(order) == 3:
            # The chosen item's noise, or that of the one in the middle, is integrated out.
            first, second, third = (u[:, [item]] for item in order)
            if given.kind == "choices":
                z = first + ITEM_SD * NODES
                both = ndtr((z - second) / ITEM_SD) * ndtr((z - third) / ITEM_SD)
            else:
                z = second + ITEM_SD * NODES
                both = ndtr((first - z) / ITEM_SD) * ndtr((z - third) / ITEM_SD)
            log_p = np.log(np.maximum(both @ WEIGHTS, 1e-300))
        elif tie:
            log_p = np.log(np.maximum(ndtr(threshold - gap) - ndtr(-threshold - gap), 1e-300))
        else:
            log_p = log_ndtr(gap - threshold)
        if given.kind == "lapse":
            log_p = np.log(0.5 * lapse + (1 - lapse) * np.exp(log_p))
        log_weight += log_p
    first, second = np.triu_indices(n, 1)
    gaps = utility[:, first] - utility[:, second]
    weight = np.exp(log_weight - log_weight.max())

    def moments(rows: Any) -> Any:
        w = weight[rows] / weight[rows].sum()
        center = w @ gaps[rows]
        return center, np.sqrt(w @ (gaps[rows] - center) ** 2), w @ (gaps[rows] > 0)

    parts = np.stack([moments(slice(at, None, 8))[1] for at in range(8)])
    return moments(slice(None)), np.max(parts.std(axis=0) / np.sqrt(8) / parts.mean(axis=0))


def errors(given: Case, log2_draws: int) -> dict[str, Any]:
    """Errors of fits without and with the check."""
    n = given.items
    first, second = np.triu_indices(n, 1)
    row: dict[str, Any] = {}
    for check in (True, False):
        posterior = relpref.fit(
            [f"i{k}" for k in range(n)], given.table, fixed=given.known, check=check,
            progress_bar=False, **given.options,
        )  # fmt: skip
        place = [posterior.data.labels.index(f"i{k}") for k in range(n)]
        belief = posterior.belief.subset(np.array(place))
        if check:
            truth, error = exact(given, belief.mean(), belief.covariance(), log2_draws)
            row |= {"note": posterior.info.get("check"), "error": error}
        margins = belief.differences(first, second)
        name = "checked" if check else "plain"
        row[f"{name}_mean"] = np.max(abs(margins.mean - truth[0]) / truth[1])
        ratio = margins.sd / truth[1]
        row[f"{name}_sd"] = ratio[np.argmax(abs(np.log(ratio)))]
        row[f"{name}_probability"] = np.max(abs(margins.positive - truth[2]))
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--wide", type=int, default=20)
    parser.add_argument("--draws", type=int, default=18)
    chosen = parser.parse_args()
    rows = []
    for wide, number in ((False, chosen.programs), (True, chosen.wide)):
        for seed in range(number):
            kind, known = KINDS[seed % len(KINDS)], seed // len(KINDS) % 2 == 0
            given = case(kind, seed, wide, known)
            row = {"kind": kind, "wide": wide, "known": known, "items": given.items}
            rows.append(row | errors(given, chosen.draws))
            print(" ".join(
                f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}"
                for name, value in rows[-1].items()
            ), flush=True)  # fmt: skip
    table = pd.DataFrame(rows)
    numbers = [name for name in table if "_" in name]
    print(table.groupby("wide")[numbers].agg(["min", "max"]).T.round(3).to_string())


if __name__ == "__main__":
    main()
