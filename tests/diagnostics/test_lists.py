"""Lists that are left out: against dense algebra, and against fits to the other answers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from relpref import PreferenceData
from relpref.data import Rankings
from relpref.diagnostics import influence, k_fold, leave_one_out, raters
from relpref.diagnostics.cavity import _log_plackett_luce
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.likelihoods import Logistic
from relpref.likelihoods.orthants import _derivatives, log_stages
from relpref.models import preference_gp

ITEMS = list("abcdef")
FIXED = {"individual_amplitude": 1.2}
PLACES = {"order": (1, 2, 3, 4), "best and worst": (1, 2, 2, 3)}


def lists(number: int, places: tuple[int, ...] = PLACES["order"]) -> pd.DataFrame:
    """Lists of four of the items, and three pairs before them."""
    rng = np.random.default_rng(4)
    utility = rng.normal(0, 1.2, len(ITEMS))
    rows: list[Any] = []
    for pair in ("ab", "ac", "bd"):
        rows += [(f"pair {pair}", item, place) for place, item in enumerate(pair, start=1)]
    for at in range(number):
        chosen = rng.choice(len(ITEMS), len(places), replace=False)
        noisy = utility[chosen] + np.sqrt(0.5) * rng.normal(size=len(places))
        ranked = zip(chosen[np.argsort(-noisy)], places, strict=True)
        rows += [(at, ITEMS[item], place) for item, place in ranked]
    return pd.DataFrame(rows, columns=["list", "item", "place"])


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, lists(9))


def fit(data: PreferenceData, engine: Any = EP, likelihood: Any = None, **options: Any) -> Any:
    keywords = {"likelihood": likelihood} if likelihood is not None else {}
    return engine(preference_gp, check=False, **options).run(0, data, **keywords)


def log_positive(mean: Any, covariance: Any) -> float:
    """Log probability that jointly Gaussian numbers are all positive."""
    normal = multivariate_normal(-mean, 0.5 * (covariance + covariance.T), seed=1, maxpts=200_000)
    return float(np.log(normal.cdf(np.zeros(len(mean)))))


def rows_of(label: Any, data: PreferenceData) -> Any:
    """Mask of the rows of the list with a label."""
    answers = data.comparisons
    return answers.list == answers.lists.index(label)


def order_of(row: Any, data: PreferenceData) -> list[Any]:
    """Items of the list that a row of the table stands for, best first."""
    answers, here = data.comparisons, rows_of(row["list"], data)
    below = dict(zip(answers.winner[here], answers.loser[here], strict=True))
    order = [next(iter(set(below) - set(below.values())))]
    while order[-1] in below:
        order.append(below[order[-1]])
    return [ITEMS[item] for item in order]


GROUPS = {"pair ab": "g", 0: "g", 1: "g", 2: "h", 3: "h"}


def grouped_lists(grouped: bool) -> PreferenceData:
    table = lists(9)
    if grouped:
        table["group"] = table["list"].map(GROUPS)
    return PreferenceData.from_tables(ITEMS, table)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_other_sites_alone(grouped: bool) -> None:
    """Scores and shifts by dense algebra with the noise of lists and groups written out."""
    data, fixed = grouped_lists(grouped), FIXED | {"group_sd": 0.7} if grouped else FIXED
    posterior, answers = fit(data, fixed=fixed), data.comparisons
    held_out, moved = leave_one_out(posterior), influence(posterior)
    scores = held_out.table
    assert held_out.outcome.tolist() == [0] * 3 + [-1] * 9  # the pairs have predictions as ever
    np.testing.assert_allclose(scores["p_first"][:3], scores["probability"][:3])
    assert answers.list is not None
    rows = np.arange(len(answers.list))
    signs = np.zeros((len(rows), len(ITEMS)))
    signs[rows, answers.winner], signs[rows, answers.loser] = 1, -1
    together = (answers.list[:, None] == answers.list) & (answers.list >= 0)
    noise, block = 0.5 * (signs @ signs.T) * together, together
    if grouped:
        assert answers.group is not None
        shared = (answers.group[:, None] == answers.group) & (answers.group >= 0)
        noise, block = noise + 0.5 * 0.7**2 * (signs @ signs.T) * shared, shared | together
    across = FIXED["individual_amplitude"] ** 2 * signs.T
    prior = signs @ across + noise
    sites = posterior.sites["precision"], posterior.sites["shift"]

    def latent(precision: Any, shift: Any) -> Any:
        mean = across @ np.linalg.solve(np.eye(len(rows)) + precision[:, None] * prior, shift)
        return mean - mean.mean()

    for at, row in scores.iterrows():
        here = rows_of(row["list"], data) if at >= 3 else rows == at
        left = ~block[here].any(axis=0) & ~here
        precision, shift = (np.where(left, each, 0.0) for each in sites)
        inverse = np.linalg.inv(np.eye(len(rows)) + prior * precision)
        mean, covariance = inverse @ prior @ shift, inverse @ prior
        inside = covariance[np.ix_(here, here)] + (at < 3) * np.eye(here.sum())
        assert row["log_score"] == pytest.approx(log_positive(mean[here], inside), abs=1e-2)
        change = (latent(precision, shift) - latent(*sites)) / posterior.belief.centred().sd()
        assert moved["shift"][at] == pytest.approx(change[np.abs(change).argmax()], abs=1e-6)
        assert moved["item"][at] == ITEMS[np.abs(change).argmax()]


def test_laplace_takes_a_block_of_curvature_out(data: PreferenceData) -> None:
    """By dense algebra with derivatives in closed form, and draws of the cavity."""
    posterior = fit(data, Laplace, Logistic(), fixed=FIXED)
    row = leave_one_out(posterior).table.iloc[3]
    order = np.eye(len(ITEMS))[[ITEMS.index(item) for item in order_of(row, data)]]
    mean, precision = posterior.mean(), np.linalg.inv(posterior.covariance())
    here = order @ mean
    slope, curvature = (each[0] for each in _derivatives(here[None, None], 3))
    before = precision - order.T @ curvature @ order
    location = np.linalg.solve(before, precision @ mean - order.T @ (slope + curvature @ here))
    draws = np.random.default_rng(0).multivariate_normal(
        order @ location, order @ np.linalg.inv(before) @ order.T, 200_000
    )
    # A standard error of the draws is about 0.002.
    log_mean = logsumexp(log_stages(draws, 3)) - np.log(len(draws))
    assert row["log_score"] == pytest.approx(log_mean, abs=1e-2)


def log_chance(posterior: Any, places: dict[Any, int]) -> float:
    """Log probability of a list, the sum over the orders of its middle block of two."""
    first, *middle, last = sorted(places, key=lambda item: places[item])
    orders = [[first, *middle, last]] + [[first, *middle[::-1], last]] * (len(middle) == 2)
    return float(np.log(sum(posterior.order(order) for order in orders)))


def test_against_fits_to_the_others() -> None:
    """Scores and shifts of lists with a best and a worst against fits without each.

    The other sites stay as they are, so both are near each other only.
    """
    table, within = lists(20, PLACES["best and worst"]), 0.2

    def without(rows: Any) -> Any:
        return fit(PreferenceData.from_tables(ITEMS, table.drop(index=rows)), fixed=FIXED)

    posterior = without([])
    scores, moved = leave_one_out(posterior).table, influence(posterior)
    assert scores["list"].isna().tolist() == [True] * 3 + [False] * (len(scores) - 3)
    assert scores["count"].sum() == 23
    belief = posterior.belief.centred()
    for at in (3, 5, 9):
        label = scores["list"][at]  # a tuple of a list that was given twice
        rows = table[table["list"] == (label[0] if isinstance(label, tuple) else label)]
        others = without(rows.index)
        truth = log_chance(others, dict(zip(rows["item"], rows["place"], strict=True)))
        assert scores["log_score"][at] == pytest.approx(truth, abs=within)
        shift = (others.belief.centred().mean() - belief.mean()) / belief.sd()
        assert moved["log_score"][at] == pytest.approx(scores["log_score"][at])
        expected = shift[ITEMS.index(moved["item"][at])]
        assert moved["shift"][at] == pytest.approx(expected, abs=within, rel=0.4)


def test_partitions_with_logistic_noise() -> None:
    """Against 400,000 draws with Gumbel noise, by bounds of five standard errors."""
    rng, size = np.random.default_rng(1), 400_000
    blocks = np.array([[0, 1, 1, 2], [2, 0, 1, 1], [0, 1, 1, -1], [1, 0, 0, 1], [3, 0, 2, 1]])
    mean, root = rng.normal(size=(5, 4)), rng.normal(size=(5, 4, 4))
    scores = _log_plackett_luce(mean, root @ root.swapaxes(1, 2), blocks)
    for at, block in enumerate(blocks):
        noisy = mean[at] + rng.normal(size=(size, 4)) @ root[at].T + rng.gumbel(size=(size, 4))
        pairs = [(i, j) for i, j in np.ndindex(4, 4) if 0 <= block[i] < block[j]]
        share = np.mean(np.all([noisy[:, i] > noisy[:, j] for i, j in pairs], axis=0))
        error = np.sqrt(share * (1 - share) / size) + 0.005 * share
        assert np.exp(scores[at]) == pytest.approx(share, abs=5 * error)
    with pytest.raises(UnsupportedProgramError, match="blocks of 1, 8, 2 items stands for 40320"):
        _log_plackett_luce(np.zeros((1, 11)), np.eye(11)[None], np.array([[0, *[1] * 8, 2, 2]]))


RACES = {"Monza": "cab", "Spa": "abcd", "Imola": "dcba", "Zolder": "ab", "Pau": "bacd"}
NAMED = pd.DataFrame(
    [(race, item, place) for race, order in RACES.items() for place, item in enumerate(order, 1)],
    columns=["list", "item", "place"],
)


def test_labels_of_lists_follow_every_change(reloaded: Any) -> None:
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
    assert labels(more) == ["Monza", "Spa", "Pau", "Imola"]  # that of two items has no label
    folds = k_fold(more, 2, hyperparameters="keep").table
    assert folds["list"].dropna().tolist() == labels(more)
    assert labels(more.update(withdraw=start[start["list"] == "Spa"])) == ["Monza", "Pau", "Imola"]
    assert labels(reloaded(more)) == labels(more)
    again = start.assign(list=start["list"] + " again")
    both = posterior.update(again)
    assert labels(both) == [(race, f"{race} again") for race in races[:3]]
    assert leave_one_out(both).table["count"].tolist() == [2, 2, 2]
    assert labels(both.update(withdraw=start)) == [f"{race} again" for race in races[:3]]
    kept = data.select_answers([labels(posterior).index("Imola")])
    assert labels(fit(kept, fixed=FIXED)) == ["Imola"]
    twice = PreferenceData.from_tables(list("abcd"), start.assign(count=2))
    assert labels(fit(twice, fixed=FIXED)) == ["Monza", "Spa", "Imola"]


def test_labels_of_rankings_and_rows() -> None:
    rankings = Rankings.from_orders([list("bac"), list("cab")], rankers=["x", "a"])
    assert rankings.rankers == ("x", "a")
    assert PreferenceData.from_rankings(rankings).comparisons.lists == ("x", "a")
    table = {"best": ["c", "a"], "worst": ["a", "b"], "item_1": "a", "item_2": "b", "item_3": "c"}
    answers = pd.DataFrame(table, index=["second", "first"])
    assert PreferenceData.from_tables(list("abc"), answers).comparisons.lists == ("first", "second")


@pytest.mark.parametrize(("grouped", "kept"), [(False, "pair"), (True, "group")])
def test_folds(grouped: bool, kept: str) -> None:
    """Lists are kept together, those without a group, too."""
    posterior = fit(grouped_lists(grouped), fixed=FIXED | {"group_sd": 0.7} if grouped else FIXED)
    folds = k_fold(posterior, 3, hyperparameters="keep")
    assert folds.method.startswith(f"3 folds by {kept}")
    near = leave_one_out(posterior).table["log_score"].to_numpy()
    assert folds.log_scores == pytest.approx(near, abs=1.5)


def test_raters_of_lists_are_refused() -> None:
    table = lists(4).assign(rater="x")
    posterior = fit(PreferenceData.from_tables(ITEMS, table), fixed={**FIXED, "rater_noise": [1.0]})
    with pytest.raises(DataError, match="some answers are lists; see k_fold"):
        raters(posterior)
