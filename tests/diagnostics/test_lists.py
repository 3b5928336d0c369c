"""Held-out lists leave whole."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from relpref import PreferenceData
from relpref.data import orderings
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
        seen = utility[chosen] + np.sqrt(0.5) * rng.normal(size=size)
        rows += [(at, ITEMS[item], place) for place, item in enumerate(chosen[np.argsort(-seen)])]
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


def order_of(row: Any, data: PreferenceData) -> list[Any]:
    """The items of the list that a row of the table stands for, best first."""
    answers = data.comparisons
    assert answers.list is not None
    here = answers.list == row["list"]
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
        here = answers.list == row["list"] if at >= 3 else rows == at
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
        found = np.asarray(log_probability(points, jnp.tile(jnp.arange(4), (len(points), 1)), tied=False))
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
    answers = data.comparisons
    assert answers.list is not None
    for _, row in list(found.iterrows())[3:]:
        others = fit(data.select_answers(answers.list != row["list"]), engine, fixed=FIXED)
        assert row["log_score"] == pytest.approx(np.log(others.order(order_of(row, data))), abs=0.25)


def test_rows_that_follow_from_others() -> None:
    """Of best and worst of four there are four rows, one of which the others tell; against fits to the others."""
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
        pd.DataFrame(rows, columns=["no", "item", "place"]), list="no", item="item", position="place"
    )
    data = PreferenceData.from_tables(ITEMS, answers)
    posterior = fit(data, fixed={"individual_amplitude": 0.7})
    found = leave_one_out(posterior).table["log_score"].to_numpy()
    assert len(found) == 6
    keys = data.comparisons
    assert keys.list is not None
    for number in range(6):
        others = fit(data.select_answers(keys.list != number), fixed={"individual_amplitude": 0.7})
        here = keys.list == number
        best = keys.winner[here][~np.isin(keys.winner[here], keys.loser[here])][0]
        worst = keys.loser[here][~np.isin(keys.loser[here], keys.winner[here])][0]
        middle = sorted({*keys.winner[here], *keys.loser[here]} - {best, worst})
        chance = sum(
            others.order([ITEMS[at] for at in (best, *between, worst)]) for between in (middle, middle[::-1])
        )
        assert found[number] == pytest.approx(np.log(chance), abs=0.25)


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
