"""Posteriors of small problems against the exact ones, by weighted draws from the prior.

    python -m benchmarks.exactness [--programs 40] [--wide 20] [--draws 22]

Random programs of three to six items: pairs, ties, lapses, raters, groups, choices and orders of
three, at known and at default hyperparameters. "wide" ones have an amplitude of 2 to 4 and answers
that agree. Printed for each: the largest errors of the gaps' means (in exact sds), sds and
probabilities, with and without the check of the fit, and their Monte Carlo errors.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr

import relpref

KINDS = ("pairs", "ties", "lapse", "raters", "groups", "choices", "orders")
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
ITEM_SD = np.sqrt(0.5)
_PARTS = 16  # of the draws, whose differences give the error


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


def exact(given: Case, log2_draws: int) -> tuple[tuple[Any, Any, Any], Any]:
    """Means, sds and probabilities of gaps, and the error of sds, by draws from the prior."""
    rng, n = np.random.default_rng(1), given.items
    first, second = np.triu_indices(n, 1)
    sums = np.zeros((_PARTS, 4, len(first)))
    for part in np.repeat(np.arange(_PARTS), 2 ** (log2_draws - 17)):
        utility, weight = draws(given, rng, 2**17 // _PARTS)
        gaps = utility[:, first] - utility[:, second]
        sums[part] += (
            weight @ np.ones_like(gaps),
            weight @ gaps,
            weight @ gaps**2,
            weight @ (gaps > 0),
        )

    def moments(total: Any) -> Any:
        mean, square, positive = total[1:] / total[0]
        return mean, np.sqrt(square - mean**2), positive

    left = np.stack([moments(sums.sum(axis=0) - part)[1] for part in sums])
    everything = moments(sums.sum(axis=0))
    return everything, np.max(np.sqrt(_PARTS - 1) * left.std(axis=0) / everything[1])


def draws(given: Case, rng: Any, number: int) -> tuple[Any, Any]:
    """Utilities from the prior, shape (number, n), and the probability of all answers."""

    def parameter(name: str, draw: Any) -> Any:
        return np.broadcast_to(given.known[name], number) if name in given.known else draw()

    amplitude = parameter("individual_amplitude", lambda: 2 * abs(rng.standard_normal(number)))
    utility = amplitude[:, None] * rng.standard_normal((number, given.items))
    noise, margin, lapse = np.ones((number, 3)), np.zeros(number), np.zeros(number)
    effect = np.zeros((number, 3, given.items))
    if given.kind == "raters":
        spread = parameter("rater_spread", lambda: 0.75 * abs(rng.standard_normal(number)))
        noise = np.exp(spread[:, None] * rng.standard_normal((number, 3)))
    if given.kind == "ties":
        margin = parameter("tie_margin", lambda: abs(rng.standard_normal(number)))
    if given.kind == "lapse":
        lapse = parameter("lapse", lambda: rng.beta(1, 19, number))
    if given.kind == "groups":
        sd = parameter("group_sd", lambda: abs(rng.standard_normal(number)))
        effect = sd[:, None, None] * ITEM_SD * rng.standard_normal(effect.shape)
    weight = np.ones(number)
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
            chance = both @ WEIGHTS
        elif tie:
            chance = ndtr(threshold - gap) - ndtr(-threshold - gap)
        else:
            chance = ndtr(gap - threshold)
        weight = weight * (0.5 * lapse + (1 - lapse) * chance)
    return utility, weight


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
            truth, error = exact(given, log2_draws)
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
    parser.add_argument("--draws", type=int, default=22)
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
