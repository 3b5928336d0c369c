"""Choices and orders of several items, against draws and against pairs."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, log_ndtr

from relpref import PreferenceData
from relpref.diagnostics import leave_one_out
from relpref.errors import DataError, UnknownLabelError
from relpref.infer import EP
from relpref.likelihoods import Logistic, Probit, orthants
from relpref.likelihoods.orthants import log_chosen, log_ordered
from relpref.models import preference_gp, xpgp
from relpref.posterior.gaussian import DrawsBelief

PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("d", "a"), ("c", "d"), ("d", "b"), ("a", "b")]


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(list("abcd"), PAIRS)


def test_ordered_far_out() -> None:
    """Of fewer numbers in one than in the other; log P(N(0, 2) > 60) is that of 60/√2."""
    mean, block = (
        np.array([[-30.0, 30.0, 0.0], [-30.0, 30.0, 90.0]]),
        np.array([[0, 1, -1], [0, 1, 2]]),
    )
    found = log_ordered(mean, np.broadcast_to(np.eye(3), (2, 3, 3)), block)
    assert found[0] == pytest.approx(log_ndtr(-60 / np.sqrt(2)), rel=1e-12)
    assert -np.inf < found[1] < found[0]


def correlated(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    return rng.normal(size=size), root @ root.T / size + 0.5 * np.eye(size)


@pytest.mark.parametrize(
    "block",
    [
        [0, 1, 2, 3],
        [5, 0, 3, 1, 4, 2],
        [1, 1, 0, 1],
        [1, 2, 1, 0],
        [0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, -1],
        [0, 1, 1, 1, 2, -1],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 2, 2],
    ],
)
def test_blocks_of_correlated_numbers(block: list[int]) -> None:
    """The order of the first and the last block turned, too; 400,000 draws, a false alarm in 10,000
    for each, and two standard errors.
    """
    mean, covariance = correlated(len(block))
    seen = np.random.default_rng(1).multivariate_normal(mean, covariance, 400_000)
    places = np.array(block)
    for turned in (places, np.where(places < 0, -1, places.max() - places)):
        held = np.ones(len(seen), dtype=bool)
        for upper in range(places.max()):
            held &= seen[:, turned == upper].min(axis=1) > seen[:, turned == upper + 1].max(axis=1)
        chance = np.exp(log_ordered(mean[None], covariance[None], turned)[0])
        slack = 3.9 * np.sqrt(chance * (1 - chance) / len(seen)) + 0.01 * chance
        assert chance == pytest.approx(held.mean(), abs=slack)


@pytest.mark.parametrize("places", [1, 3, 5])
def test_expected_products_of_choices(places: int) -> None:
    """400,000 draws, a false alarm in 10,000 for each, and two standard errors."""
    mean, covariance = correlated(6)
    rng = np.random.default_rng(2)
    for spread in (1.0, 9.0):
        utility = rng.multivariate_normal(mean, spread * covariance, 400_000)
        weight = np.exp(utility)
        left = np.cumsum(weight[:, ::-1], axis=1)[:, ::-1]
        chances = np.prod((weight / left)[:, :places], axis=1)
        expected, error = chances.mean(), chances.std() / np.sqrt(len(chances))
        chance = np.exp(
            log_chosen(mean[None, None], spread * covariance[None, None], [1.0], places)[0]
        )
        assert chance == pytest.approx(expected, abs=3.9 * error + 0.01 * expected)


def test_a_mixture_is_the_weighted_average_of_its_components() -> None:
    """Two lists, in components one of which has most of the probability; two standard errors."""
    mean, covariance = correlated(6)
    means = np.stack([np.stack([mean, mean[::-1]]), np.stack([np.sort(mean)[::-1], 3 * mean])])
    covariances = np.broadcast_to(covariance, (2, 2, 6, 6))
    weights = np.array([0.3, 0.7])
    alone = [np.exp(log_chosen(means[[at]], covariances[[at]], [1.0], 5)) for at in range(2)]
    together = np.exp(log_chosen(means, covariances, weights, 5))
    assert together == pytest.approx(weights @ alone, rel=0.015)


@pytest.mark.parametrize(
    "sizes",
    [
        *((1,) * size for size in (2, 3, 15, 40)),
        *((2, 2), (10, 10), (3, 3, 3, 3), (1, 6, 1), (1, 2, 3, 2, 1)),
    ],
)
def test_orders_and_ties_of_exchangeable_numbers(sizes: tuple[int, ...]) -> None:
    """All orders are equally likely; two standard errors at most, the points are fixed."""
    number = sum(sizes)
    block = np.repeat(np.arange(len(sizes)), sizes)
    expected = gammaln(np.array(sizes) + 1).sum() - gammaln(number + 1)
    covariance = 1.5 * np.eye(number) + 0.7
    log_probability = log_ordered(np.zeros((1, number)), covariance[None], block)
    assert log_probability[0] == pytest.approx(expected, abs=0.01)
    if max(sizes) == 1:
        means, covariances = np.zeros((1, 1, number)), covariance[None, None]
        log_probability = log_chosen(means, covariances, [1.0], number - 1)
        assert log_probability[0] == pytest.approx(expected, abs=0.01)


def test_lists_are_independent_of_those_beside_them() -> None:
    rng = np.random.default_rng(3)
    root, mean = rng.normal(size=(5, 4, 4)), rng.normal(size=(5, 4))
    covariance = root @ root.swapaxes(1, 2) + np.eye(4)
    block = np.array([[0, 1, 2, 3], [0, 1, -1, -1], [0, 0, 1, 1], [1, 0, 2, -1], [0, 1, 1, 2]])
    together = log_ordered(mean, covariance, block)
    alone = [log_ordered(mean[[at]], covariance[[at]], block[[at]])[0] for at in range(5)]
    assert together == pytest.approx(alone, rel=1e-9)


def test_an_error_that_stays_large_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orthants, "_MOST", (512, 512))
    with pytest.warns(
        UserWarning, match=r"of 1 of 1 lists have relative standard errors above 0\.5%, up to \d"
    ):
        log_ordered(np.zeros((1, 10)), np.eye(10)[None], np.array([0, *[1] * 8, 2]))


@pytest.mark.filterwarnings("ignore:.*groups of items are tied together by no comparison")
def test_a_long_order_of_exchangeable_items() -> None:
    """Items without answers, in a mixture over hyperparameters; and a single list that is left out,
    of which the prior is left.
    """
    items = [f"i{number}" for number in range(17)]
    engine: Any = EP(preference_gp, check=False)
    pairs = PreferenceData.from_tables(items, [(items[0], items[1])] * 3)
    posterior = engine.run(0, pairs, likelihood=Logistic())
    assert len(posterior.belief.weights) > 1
    assert np.log(posterior.order(items[2:10])) == pytest.approx(-gammaln(9), abs=0.01)
    rows = pd.DataFrame({"list": 0, "item": items, "place": range(1, len(items) + 1)})
    table = leave_one_out(engine.run(0, PreferenceData.from_tables(items, rows))).table
    assert table["log_score"].tolist() == pytest.approx([-gammaln(18)], abs=0.01)


def test_against_draws(data: PreferenceData) -> None:
    """400,000 draws: false alarms in one of 10,000 for each, beside the errors that are
    promised.
    """
    engine = EP(xpgp, hyperparameters="maximize", check=False)
    posterior: Any = engine.run(0, data, likelihood=Probit(lapse=True))
    rng = np.random.default_rng(1)
    seen = posterior.belief.draw(400_000, rng)
    order = np.argsort(-(seen + rng.normal(0, np.sqrt(0.5), seen.shape)), axis=1)
    lapse = posterior.hyperparameters["lapse"]
    share = (1 - lapse) * np.bincount(order[:, 0], minlength=4) / len(seen) + lapse / 4
    chances = posterior.choose(list("abcd"))
    assert chances["probability"].is_monotonic_decreasing
    assert chances["probability"].sum() == pytest.approx(1, abs=1e-3 * (1 - lapse))
    assert chances["probability"].loc[list("abcd")].to_numpy() == pytest.approx(share, abs=0.003)
    assert chances["p_best"].sum() == pytest.approx(1)
    true = (1 - lapse) * np.mean((order == [3, 0, 2, 1]).all(axis=1)) + lapse / 24
    assert posterior.order(["d", "a", "c", "b"]) == pytest.approx(true, abs=0.003)
    total = sum(posterior.order(order) for order in permutations("abcd"))
    assert total == pytest.approx(1, abs=1e-3 * (1 - lapse))


NAMES = list("abcd")
HELD = {"individual_amplitude": 1.0, "effect_scale": 0.7, "rater_spread": 0.5}


def looks(number: int = 40, seed: int = 0) -> pd.DataFrame:
    """Answers of three raters with a home side, lengths and styles."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, number)
    second = (first + rng.integers(1, 4, number)) % 4
    home, length = rng.integers(-1, 2, number), rng.integers(10, 100, (2, number))
    names, rater = np.array(NAMES, dtype=object), rng.integers(0, 3, number)
    gap = 0.5 * (second - first) + 0.6 * home + 0.02 * (length[0] - length[1])
    won = gap + rng.normal(size=number) * np.array([0.3, 1, 3])[rater] > 0
    style = np.array(["plain", "long"], dtype=object)[rng.integers(0, 2, (2, number))]
    return pd.DataFrame(
        {
            "first": names[first],
            "second": names[second],
            "winner": names[np.where(won, first, second)],
            "rater": np.array(["ann", "bob", "cem"], dtype=object)[rater],
            "home": np.choose(home + 1, [names[second], None, names[first]]),
            "length_first": length[0],
            "length_second": length[1],
            "style_first": style[0],
            "style_second": style[1],
        }
    )


def seen_by_raters(model: Any = None, **options: Any) -> Any:
    data = PreferenceData.from_tables(NAMES, looks(), covariates=["home", "length", "style"])
    return EP(xpgp, fixed=HELD, check=False, **options).run(0, data, **model or {})


@pytest.fixture(scope="module")
def looked() -> Any:
    """A mixture over hyperparameters."""
    return seen_by_raters()


GIVEN: Any = {"length": [20, 80, 50, 30], "style": ["long", "plain", "plain", "long"]}
PAIR: Any = {
    "length_first": 20,
    "length_second": 50,
    "style_first": "long",
    "style_second": "plain",
}


@pytest.mark.parametrize("rater", [None, "ann", "cem", ["bob"], [None]])
def test_a_choice_of_two_is_a_preference(looked: Any, rater: Any) -> None:
    assert len(looked.belief.weights) > 1
    two = {name: [values[0], values[2]] for name, values in GIVEN.items()}
    plain = looked.prefer([("a", "c")])["probability"][0]
    for home in (None, "a", "c"):
        given: dict[str, Any] = {"rater": rater, "home": home}
        pair = looked.prefer([("a", "c")], covariates=PAIR, **given)["probability"][0]
        chances = looked.choose(["a", "c"], covariates=two, **given)["probability"]
        assert chances["a"] == pytest.approx(pair, abs=1e-9)
        order = looked.order(["a", "c"], covariates=two, **given)
        assert order == pytest.approx(pair, abs=1e-9)
        assert abs(pair - plain) > 0.005


def test_a_choice_of_two_is_a_preference_under_each_lapse(data: PreferenceData) -> None:
    posterior: Any = EP(xpgp, check=False).run(0, data, likelihood=Probit(lapse=True))
    assert np.ptp(posterior.hyperparameter_draws["lapse"]) > 0.01
    chances = posterior.choose(["b", "d"])["probability"]
    pair = posterior.prefer([("b", "d")])["probability"][0]
    assert chances.to_dict() == pytest.approx({"b": pair, "d": 1 - pair}, abs=1e-9)
    assert posterior.order(["b", "d"]) == pytest.approx(pair, abs=1e-9)


@pytest.mark.parametrize(
    ("likelihood", "rater"), [(Probit(), None), (Probit(), "cem"), (Logistic(), "cem")]
)
def test_covariates_and_raters_against_draws(likelihood: Any, rater: Any) -> None:
    """400,000 draws of effects, utilities and noise: false alarms in one of 10,000 for each."""
    posterior = seen_by_raters({"likelihood": likelihood}, hyperparameters="maximize")
    drawn, rng = posterior.full.draw(400_000, np.random.default_rng(3)), np.random.default_rng(4)
    effects, utility = drawn[:, :4], drawn[:, 4:]
    values = np.zeros((4, 4))  # home, length, style[long], style[plain]
    values[1, 0] = 1
    values[:, 1] = np.array(GIVEN["length"]) / posterior.data.comparisons.covariate_scales[1]
    values[[0, 3], 2] = values[[1, 2], 3] = 1
    scale = 1.0
    if rater is not None:
        scale = posterior.hyperparameters["rater_noise"][2]
        assert scale > 1.5
    draw = rng.gumbel if isinstance(likelihood, Logistic) else rng.normal
    noise = draw(size=utility.shape) * (1 if isinstance(likelihood, Logistic) else np.sqrt(0.5))
    order = np.argsort(-(utility + effects @ values.T + scale * noise), axis=1)
    given = {"rater": rater, "home": "b", "covariates": GIVEN}
    chances = posterior.choose(NAMES, **given)["probability"].loc[NAMES].to_numpy()
    slack = 0.02 if isinstance(likelihood, Logistic) else 0.004
    assert chances == pytest.approx(np.bincount(order[:, 0], minlength=4) / len(order), abs=slack)
    likely = order[0]
    share = np.mean((order == likely).all(axis=1))
    # The same list in another order of its items.
    again = {name: [values[at] for at in likely] for name, values in GIVEN.items()}
    found = posterior.order([NAMES[at] for at in likely], **{**given, "covariates": again})
    assert found == pytest.approx(share, abs=slack)


def test_draws_of_nuts_know_covariates_and_raters(looked: Any) -> None:
    draws = looked.full.draw(1000, np.random.default_rng(0))
    weights, noises = looked.belief.weights, looked.hyperparameter_draws["rater_noise"]
    noise = np.tile(weights @ noises, (1000, 1))
    sampled = replace(looked, joint=DrawsBelief(draws), belief=DrawsBelief(draws[:, 4:]))
    sampled = replace(sampled, hyperparameter_draws={"rater_noise": noise})
    given = {"rater": "cem", "home": "b", "covariates": GIVEN}
    one, other = (
        each.choose(NAMES, **given)["probability"].loc[NAMES] for each in (looked, sampled)
    )
    assert one.to_numpy() == pytest.approx(other.to_numpy(), abs=0.03)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"home": "d"},
            "home: 'd' is none of the items of the list, 'a', 'b'; name an item of the list",
        ),
        ({"rater": "dan"}, "'dan' has given no answer"),
        ({"rater": ["ann", "bob"]}, "rater has 2 labels for 1 question"),
        ({"covariates": {"length": [1, 2, 3]}}, "length has 3 values for 2 items"),
        (
            {"covariates": {"length": [1, np.nan]}},
            "row 1 .*column 'length': nan is no value of the covariate",
        ),
        (
            {"covariates": {"length_first": [1, 2]}},
            "'length_first' is no column .*did you mean 'length'",
        ),
        ({"covariates": {"style": ["odd", "long"]}}, "'odd' is no known level of 'style'"),
        ({"home": "a", "covariates": {"home": "b"}}, "home is given twice"),
    ],
)
def test_lists_that_are_refused(looked: Any, given: Any, message: str) -> None:
    for ask in (looked.choose, looked.order):
        with pytest.raises(DataError, match=message):
            ask(["a", "b"], **given)


def test_what_was_not_learned(data: PreferenceData) -> None:
    posterior: Any = EP(xpgp, fixed={"individual_amplitude": 1.0}, check=False).run(0, data)
    with pytest.raises(DataError, match="home is given, but the answers have no covariates"):
        posterior.choose(["a", "b"], home="a")
    with pytest.raises(DataError, match="rater is 'ann', but the answers do not say who gave them"):
        posterior.order(["a", "b"], rater="ann")
    with pytest.raises(DataError, match="a list has two items or more, each of them once; got 1"):
        posterior.choose(["a"])
    with pytest.raises(DataError, match="each of them once; got 3"):
        posterior.order(["a", "b", "a"])
    with pytest.raises(UnknownLabelError):
        posterior.choose(["a", "x"])
    table = pd.DataFrame(PAIRS, columns=["first", "second"]).assign(
        probability=0.7, rater=["ann", "bob", "ann"] + ["bob"] * 4
    )
    fixed = {"individual_amplitude": 1.0, "soft_noise": 1.0, "rater_noise": [1.0, 1.0]}
    soft: Any = EP(xpgp, fixed=fixed, check=False).run(0, PreferenceData.from_tables(NAMES, table))
    assert soft.choose(NAMES)["probability"].sum() == pytest.approx(1, abs=1e-3)
    with pytest.raises(DataError, match="rater: the answers are reported probabilities"):
        soft.choose(NAMES, rater="ann")
