"""Held-out lists leave whole."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import relpref
from relpref import PreferenceData
from relpref.data import Rankings, orderings
from relpref.diagnostics import influence, k_fold, leave_one_out
from relpref.errors import UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.likelihoods.orders import log_probability
from relpref.models import preference_gp

ITEMS = list("abcdef")
FIXED = {"individual_amplitude": 1.2}


def orders(number: int, size: int) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    utility = rng.normal(0, 1.2, len(ITEMS))
    rows = []
    for at in range(number):
        chosen = rng.choice(len(ITEMS), size, replace=False)
        noisy = utility[chosen] + np.sqrt(0.5) * rng.normal(size=size)
        ranked = enumerate(chosen[np.argsort(-noisy)], start=1)
        rows += [(at, ITEMS[item], place) for place, item in ranked]
    return pd.DataFrame(rows, columns=["no", "item", "place"])


TABLE = orderings(orders(9, 4), list="no", item="item", position="place")
PAIRS = pd.DataFrame({"winner": list("aab"), "loser": list("bcd")})


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, pd.concat([PAIRS, TABLE], ignore_index=True))


def fit(data: PreferenceData, engine: Any = EP, **options: Any) -> Any:
    return engine(preference_gp, **options).run(0, data, progress_bar=False)


def log_positive(mean: Any, covariance: Any) -> float:
    """Log probability that jointly Gaussian numbers are all positive."""
    found = multivariate_normal(-mean, 0.5 * (covariance + covariance.T), seed=1, maxpts=200_000)
    return float(np.log(found.cdf(np.zeros(len(mean)))))


def rows_of(label: Any, data: PreferenceData) -> Any:
    """The answers of the list with a label, a mask."""
    answers = data.comparisons
    assert answers.list_label is not None
    return answers.list_label == answers.lists.index(label)


def order_of(row: Any, data: PreferenceData) -> list[Any]:
    """The items of the list that a row of the table stands for, best first."""
    answers, here = data.comparisons, rows_of(row["list"], data)
    below = dict(zip(answers.winner[here], answers.loser[here], strict=True))
    order = [next(iter(set(below) - set(below.values())))]
    while order[-1] in below:
        order.append(below[order[-1]])
    return [ITEMS[item] for item in order]


def test_the_other_sites_alone(data: PreferenceData) -> None:
    """By dense algebra with the noise of lists written out."""
    posterior = fit(data, fixed=FIXED)
    found, answers = leave_one_out(posterior).table, data.comparisons
    assert answers.list is not None
    rows = np.arange(len(answers.list))
    signs = np.zeros((len(rows), len(ITEMS)))
    signs[rows, answers.winner], signs[rows, answers.loser] = 1, -1
    together = (answers.list[:, None] == answers.list) & (answers.list >= 0)
    noise = 0.5 * (signs @ signs.T) * together
    prior = FIXED["individual_amplitude"] ** 2 * signs @ signs.T + noise
    for at, row in found.iterrows():
        here = rows_of(row["list"], data) if at >= 3 else rows == at
        precision = np.where(here, 0.0, posterior.sites["precision"])
        shift = np.where(here, 0.0, posterior.sites["shift"])
        inverse = np.linalg.inv(np.eye(len(rows)) + prior * precision)
        mean, covariance = inverse @ prior @ shift, inverse @ prior
        own = covariance[np.ix_(here, here)] + (at < 3) * np.eye(here.sum())
        assert row["log_score"] == pytest.approx(log_positive(mean[here], own), abs=1e-2)


def test_laplace_takes_a_block_of_curvature_out(data: PreferenceData) -> None:
    """By dense algebra with derivatives by differences."""
    posterior = fit(data, Laplace, fixed=FIXED)
    row = leave_one_out(posterior).table.iloc[3]
    order = np.eye(len(ITEMS))[[ITEMS.index(item) for item in order_of(row, data)]]
    mean, precision = posterior.mean(), np.linalg.inv(posterior.covariance())
    here, step = order @ mean, 0.02
    signs = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    moves = step * np.einsum(
        "sa,aijk->sijk",
        signs,
        np.stack(np.meshgrid(*2 * [np.arange(4)], indexing="ij"))[..., None] == np.arange(4),
    )
    points = here + moves.reshape(-1, 4)
    with jax.enable_x64(True):
        found = np.asarray(
            log_probability(points, jnp.tile(jnp.arange(4), (len(points), 1)), tied=False)
        )
    found = found.reshape(4, 4, 4)
    curvature = -np.einsum("s,sij->ij", signs.prod(axis=1), found) / (4 * step**2)
    slope = np.diagonal(found[0] - found[3]) / (4 * step)
    before = precision - order.T @ curvature @ order
    location = np.linalg.solve(before, precision @ mean - order.T @ (slope + curvature @ here))
    gaps = order[:-1] - order[1:]
    spread = gaps @ (np.linalg.inv(before) + 0.5 * np.eye(len(ITEMS))) @ gaps.T
    assert row["log_score"] == pytest.approx(log_positive(gaps @ location, spread), abs=1e-2)


@pytest.mark.parametrize("engine", [EP, Laplace])
def test_against_fits_to_the_others(data: PreferenceData, engine: Any) -> None:
    """The other sites stay as they are, though each list is a ninth of what is known."""
    found = leave_one_out(fit(data, engine, fixed=FIXED)).table
    assert len(found) == 3 + 9
    assert found["list"].isna().tolist() == [True] * 3 + [False] * 9
    for _, row in list(found.iterrows())[3:]:
        others = fit(data.select_answers(~rows_of(row["list"], data)), engine, fixed=FIXED)
        assert row["log_score"] == pytest.approx(
            np.log(others.order(order_of(row, data))), abs=0.25
        )


def test_rows_that_follow_from_others() -> None:
    """Of best and worst of four there are four rows, one of which the others tell; against fits to
    the others.
    """
    table = pd.DataFrame(
        {
            "best": list("abcabc"),
            "worst": list("dfeeda"),
            "items": ["abcd", "bdef", "cdef", "abef", "bcde", "abcf"],
        }
    )
    rows = [
        (number, item, 1 if item == row.best else 3 if item == row.worst else 2)
        for number, row in enumerate(table.itertuples())
        for item in row[3]
    ]
    answers = orderings(
        pd.DataFrame(rows, columns=["no", "item", "place"]),
        list="no",
        item="item",
        position="place",
    )
    data = PreferenceData.from_tables(ITEMS, answers)
    posterior = fit(data, fixed={"individual_amplitude": 0.7})
    found = leave_one_out(posterior).table["log_score"].to_numpy()
    assert len(found) == 6
    keys = data.comparisons
    for number in range(6):
        here = rows_of(number, data)
        others = fit(data.select_answers(~here), fixed={"individual_amplitude": 0.7})
        best = keys.winner[here][~np.isin(keys.winner[here], keys.loser[here])][0]
        worst = keys.loser[here][~np.isin(keys.loser[here], keys.winner[here])][0]
        middle = sorted({*keys.winner[here], *keys.loser[here]} - {best, worst})
        chance = sum(
            others.order([ITEMS[at] for at in (best, *between, worst)])
            for between in (middle, middle[::-1])
        )
        assert found[number] == pytest.approx(np.log(chance), abs=0.25)


RACES = {"Monza": "cab", "Spa": "abcd", "Imola": "dcba", "Zolder": "ab", "Pau": "bacd"}
NAMED = pd.DataFrame(
    [(race, item, place) for race, order in RACES.items() for place, item in enumerate(order, 1)],
    columns=["list", "item", "place"],
)


def test_lists_keep_their_labels_and_their_order() -> None:
    """That of two items is a comparison, and has no label."""
    posterior = fit(PreferenceData.from_tables(list("abcd"), NAMED), fixed=FIXED)
    table = leave_one_out(posterior).table
    assert table["list"].isna().tolist() == [True] + [False] * 4
    assert table["list"].tolist()[1:] == ["Monza", "Spa", "Imola", "Pau"]
    for _, row in table.iloc[1:].iterrows():
        kept = NAMED[NAMED["list"] != row["list"]]
        others = fit(PreferenceData.from_tables(list("abcd"), kept), fixed=FIXED)
        chance = others.order(list(RACES[row["list"]]))
        assert row["log_score"] == pytest.approx(np.log(chance), abs=0.35)
    folds = k_fold(posterior, 2, hyperparameters="keep", progress_bar=False).table
    assert folds["list"].tolist() == table["list"].tolist()


def test_labels_of_lists_follow_every_change(tmp_path: Path) -> None:
    """After updates, withdrawals, selections, repetitions and files; the numbers are those of the
    lists alone.
    """
    races = list(RACES)
    start, later = NAMED[NAMED["list"].isin(races[:3])], NAMED[NAMED["list"].isin(races[3:])]
    data = PreferenceData.from_tables(list("abcd"), start)
    turned = PreferenceData.from_tables(list("abcd"), start.iloc[::-1])
    assert turned.comparisons.list is not None and data.comparisons.list is not None
    assert turned.comparisons.list.tolist() == data.comparisons.list.tolist()
    posterior = fit(data, fixed=FIXED)

    def labels(posterior: Any) -> list[Any]:
        return list(leave_one_out(posterior).table["list"].dropna())

    more = posterior.update(later)
    assert labels(more) == ["Monza", "Spa", "Imola", "Pau"]
    assert labels(more.update(withdraw=start[start["list"] == "Spa"])) == ["Monza", "Imola", "Pau"]
    more.save(tmp_path / "races.nc")
    assert labels(relpref.load(tmp_path / "races.nc")) == labels(more)
    again = start.assign(list=start["list"] + " again")
    both = posterior.update(again)
    assert labels(both) == [*races[:3], *(f"{race} again" for race in races[:3])]
    assert labels(both.update(withdraw=start)) == [f"{race} again" for race in races[:3]]
    kept = data.select_answers(rows_of("Imola", data))
    assert labels(fit(kept, fixed=FIXED)) == ["Imola"]
    twice = PreferenceData.from_tables(list("abcd"), start.assign(count=2))
    assert labels(fit(twice, fixed=FIXED)) == ["Monza", "Monza", "Spa", "Spa", "Imola", "Imola"]


def test_labels_of_rankings_and_rows() -> None:
    rankings = Rankings.from_orders([list("bac"), list("cab")], rankers=["x", "a"])
    assert rankings.rankers == ("x", "a")
    assert PreferenceData.from_rankings(rankings).comparisons.lists == ("x", "a")
    table = {"best": ["c", "a"], "worst": ["a", "b"], "item_1": "a", "item_2": "b", "item_3": "c"}
    answers = pd.DataFrame(table, index=["second", "first"])
    assert PreferenceData.from_tables(list("abc"), answers).comparisons.lists == ("second", "first")


def test_mixtures(data: PreferenceData) -> None:
    whole = leave_one_out(fit(data))
    assert whole.table["log_score"].notna().all()
    assert not whole.composed


def test_folds(data: PreferenceData) -> None:
    posterior = fit(data, fixed=FIXED)
    found = k_fold(posterior, 3, hyperparameters="keep", progress_bar=False).table
    near = leave_one_out(posterior).table
    assert len(found) == len(near)
    assert found["log_score"].to_numpy() == pytest.approx(near["log_score"].to_numpy(), abs=1.5)


def test_influence_is_refused(data: PreferenceData) -> None:
    with pytest.raises(UnsupportedProgramError, match="influence is that of single answers"):
        influence(fit(data, fixed=FIXED))
