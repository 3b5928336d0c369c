"""Fits that check themselves, against integrals over gaps."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, ndtr

import relpref
from relpref.diagnostics import certify, leave_one_out

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
ITEM_SD = np.sqrt(0.5)
ITEMS = ["a", "b", "c"]


def choices(number: int) -> pd.DataFrame:
    """Choices of a among all three items."""
    rows = [(at, item, item == "a") for at in range(number) for item in ITEMS]
    return pd.DataFrame(rows, columns=["choice", "item", "chosen"])


def exact(number: int, amplitude: float, sd: float = 0.0) -> tuple[float, float, float]:
    """Mean and sd of the gap of a and b, and the log evidence, on a grid.

    With an ``sd`` the answers are in two groups whose effects on the gap of two items have it.
    """
    # The moments of groups are right to six digits with fewer points, which are many products.
    line = np.linspace(-5 * amplitude, 9 * amplitude, 61 if sd else 101)
    first, second = np.meshgrid(line, line, indexing="ij")  # the gaps of a to b and c
    quadratic = (first**2 - first * second + second**2) / 1.5
    log_prior = -0.5 * quadratic / amplitude**2 - np.log(2 * np.pi * amplitude**2 * np.sqrt(3))

    def all_chosen(first: Any, second: Any, times: int) -> Any:
        z = ITEM_SD * NODES
        seen = [ndtr((gap[..., None] + z) / ITEM_SD) for gap in (first, second)]
        chance = (seen[0] * seen[1]) @ WEIGHTS / WEIGHTS.sum()
        return np.log(np.maximum(chance, 1e-300)) * times

    if sd:
        grid = np.polynomial.hermite_e.hermegauss(5)
        effects = np.array(np.meshgrid(*[grid[0]] * 3)).reshape(3, -1)
        weight = np.log(np.prod(np.meshgrid(*[grid[1] / grid[1].sum()] * 3), axis=0).ravel())
        each = [
            all_chosen(first + sd * ITEM_SD * (a - b), second + sd * ITEM_SD * (a - c), number // 2)
            for a, b, c in effects.T
        ]
        log_likelihood = 2 * logsumexp(np.stack(each) + weight[:, None, None], axis=0)
    else:
        log_likelihood = all_chosen(first, second, number)
    log_density = log_prior + log_likelihood
    log_evidence = logsumexp(log_density) + 2 * np.log(line[1] - line[0])
    weight = np.exp(log_density - logsumexp(log_density))
    mean = np.sum(weight * first)
    return float(mean), float(np.sqrt(np.sum(weight * (first - mean) ** 2))), float(log_evidence)


def gap(posterior: Any, first: str = "a", second: str = "b") -> tuple[float, float]:
    """Mean and sd of a gap."""
    places = [np.array([posterior.data.labels.index(label)]) for label in (first, second)]
    margins = posterior.belief.differences(*places)
    return float(margins.mean[0]), float(margins.sd[0])


def fit(answers: Any, items: Any = ITEMS, **options: Any) -> Any:
    return relpref.fit(items, answers, progress_bar=False, **options)


@pytest.mark.parametrize(("number", "amplitude"), [(8, 2.0), (16, 4.0)])
def test_choices_that_agree_are_put_right(number: int, amplitude: float) -> None:
    known = {"individual_amplitude": amplitude}
    mean, sd, log_evidence = exact(number, amplitude)
    plain = fit(choices(number), fixed=known, check=False)
    assert gap(plain)[1] < 0.88 * sd
    assert "check" not in plain.info
    posterior = fit(choices(number), fixed=known)
    assert posterior.info["check"].startswith("off, means by up to")
    assert gap(posterior)[0] == pytest.approx(mean, abs=0.05 * sd)
    assert gap(posterior)[1] == pytest.approx(sd, rel=0.03)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=0.05)
    assert "put right by importance weights" in posterior.summary()
    # The exact probability is 1 to three digits.
    places = [np.array([posterior.data.labels.index(label)]) for label in "ab"]
    off = 1 - posterior.belief.differences(*places).positive[0]
    said = posterior.info["check"].rpartition("off by up to ")[2]
    assert off < 0.02 or float(said[:4]) == pytest.approx(off, abs=0.01)


def test_a_corrected_posterior_everywhere(tmp_path: Any) -> None:
    known = {"individual_amplitude": 2.0}
    posterior = fit(choices(8), fixed=known)
    assert certify(posterior).verdict == "good"
    assert gap(fit(choices(8), fixed=known)) == gap(posterior)  # the same draws
    posterior.save(tmp_path / "posterior.nc")
    loaded = relpref.load(tmp_path / "posterior.nc")
    assert gap(loaded) == gap(posterior)
    assert loaded.info["check"] == posterior.info["check"]
    ranking = posterior.ranking()
    assert sorted(ranking["sd"]) == pytest.approx(sorted(posterior.belief.centred().sd()))
    parts = posterior.parts["utility"]
    assert sum(parts.means.values()) == pytest.approx(posterior.belief.mean())
    assert sum(parts.covariances.values()) == pytest.approx(posterior.belief.sd() ** 2)
    assert leave_one_out(posterior).log_loss > 0
    updated = posterior.update(pd.DataFrame({"winner": ["b"], "loser": ["c"]}))
    another = pd.DataFrame({"choice": 8, "item": ["b", "c"], "chosen": [True, False]})
    again = fit(pd.concat([choices(8), another]), fixed=known)
    assert gap(updated) == pytest.approx(gap(again), rel=1e-6)
    assert posterior.corrected and loaded.corrected and not fit([("a", "b")], list("ab")).corrected
    quick = posterior.update([("a", "c")], quick=True)
    full = posterior.update([("a", "c")])
    assert gap(quick)[0] == pytest.approx(gap(full)[0], abs=0.15 * gap(full)[1])
    assert gap(quick)[1] == pytest.approx(gap(full)[1], rel=0.1)


def test_averaged_hyperparameters() -> None:
    """Mixtures are moved as a whole; the exact value is an average over the amplitude."""
    posterior, plain = fit(choices(8)), fit(choices(8), check=False)
    amplitudes = np.linspace(0.1, 8, 30)
    each = [exact(8, amplitude) for amplitude in amplitudes]
    prior = -(amplitudes**2) / 8  # half-normal of scale 2
    weight = np.exp(prior + [log_evidence for *_, log_evidence in each])
    weight /= weight.sum()
    means, sds = (np.array([row[at] for row in each]) for at in (0, 1))
    mean = weight @ means
    sd = np.sqrt(weight @ (sds**2 + (means - mean) ** 2))
    assert gap(posterior)[1] == pytest.approx(sd, rel=0.06)
    assert gap(posterior)[0] == pytest.approx(mean, abs=0.06 * sd)
    assert abs(np.log(gap(plain)[1] / sd)) > 2 * abs(np.log(gap(posterior)[1] / sd))
    assert len(posterior.belief.weights) == len(plain.belief.weights)


def test_lists_in_groups() -> None:
    answers = choices(8).assign(group=lambda table: np.where(table["choice"] < 4, "x", "y"))
    known = {"individual_amplitude": 2.0, "group_sd": 0.8}
    mean, sd, log_evidence = exact(8, 2.0, 0.8)
    posterior = fit(answers, fixed=known)
    assert gap(posterior)[1] == pytest.approx(sd, rel=0.04)
    assert gap(posterior)[0] == pytest.approx(mean, abs=0.05 * sd)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=0.1)


@pytest.mark.parametrize("size", [5, 40])
def test_nothing_is_changed_where_nothing_is_wrong(size: int) -> None:
    rng = np.random.default_rng(0)
    labels = [f"i{k}" for k in range(size)]
    pairs = rng.integers(size, size=(6 * size, 2))
    answers = [(labels[a], labels[b]) for a, b in pairs if a < b or (rng.random() < 0.4 and a > b)]
    posterior, plain = (fit(answers, labels, check=check) for check in ("auto", False))
    assert posterior.info["check"].startswith("no mean is seen to be off")
    assert np.array_equal(posterior.belief.covariance(), plain.belief.covariance())
    assert posterior.log_evidence == plain.log_evidence


def test_check_is_refused_or_left_out() -> None:
    with pytest.raises(relpref.errors.DataError, match="check is 'yes'"):
        fit(choices(2), check="yes")
    labels = [f"i{k}" for k in range(151)]
    rows, known = list(pairwise(labels)), {"individual_amplitude": 1.0}
    assert "check" not in fit(rows, labels, fixed=known).info
    answers = [("a", "b"), ("b", "c")]
    assert "check" not in fit(answers, engine="Laplace").info
    assert "check" in fit(answers, engine="Laplace", check=True).info


def test_weights_that_cannot_be_relied_on_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from relpref.infer import self_check

    monkeypatch.setattr(self_check, "MIN_EFFECTIVE", 10**6)
    with pytest.warns(UserWarning, match="cannot be relied on"):
        posterior = fit([("a", "b"), ("b", "c")])
    assert posterior.info["check"].startswith("not checked, because")


def test_ties_among_lists_are_put_right() -> None:
    """Means are .3 sds off before, by importance sampling that is not the package's."""
    rng = np.random.default_rng(0)
    lists, utility = [], 1.5 * rng.normal(size=8)
    for row in range(200):
        items = rng.choice(8, 6, replace=False)
        noisy = utility[items] + np.sqrt(0.5) * rng.normal(size=6)
        lists += [(row, f"i{item}", 1 + k // 2) for k, item in enumerate(items[np.argsort(-noisy)])]
    answers = pd.DataFrame(lists, columns=["event", "item", "place"])
    known = {"individual_amplitude": 1.5}
    labels = [f"i{item}" for item in range(8)]
    posterior = fit(answers, labels, fixed=known)
    assert posterior.info["corrected"]
    assert "of 1024" in posterior.info["check"]


def test_long_lists_have_fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    from relpref.infer import self_check

    rng = np.random.default_rng(0)
    orders = pd.DataFrame([rng.permutation(list("abcd")) for _ in range(6)])
    orders.columns = ["rank1", "rank2", "rank3", "rank4"]
    known = {"individual_amplitude": 1.0}
    for most, words in ((1e8, "of 1024)"), (1.5e6, "of 512)"), (1e5, "takes too long")):
        monkeypatch.setattr(self_check, "MAX_CHECKED_NUMBERS", most)
        assert words in fit(orders, list("abcd"), fixed=known).info["check"]


@pytest.mark.parametrize("lengthscale", [0.2, 0.5, 0.55, 0.56, 3.0])
def test_a_prior_that_varies_in_few_directions(lengthscale: float) -> None:
    """The draws keep the posterior's shape where a Cholesky factor of the prior barely exists."""
    labels = [f"i{k:02}" for k in range(24)]
    items = pd.DataFrame({"x": np.linspace(0, 1, 24)}, index=labels)
    known = {
        "attributes_lengthscale": lengthscale,
        "attributes_amplitude": 1.0,
        "attributes_linear_share": 1e-6,
    }
    posterior = fit(list(pairwise(labels))[::2], items, individual=False, fixed=known)
    effective, number = map(
        int, re.findall(r"(\d+) effective draws of (\d+)", posterior.info["check"])[0]
    )
    assert effective > 0.4 * number


def test_both_answers_to_a_pair_may_be_lapses() -> None:
    """Then the tail of the gap is as wide as the prior, with a small probability."""
    rows = [("d", "b", 1), ("d", "b", 2), ("a", "b", 3)]
    answers = pd.DataFrame(rows, columns=["winner", "loser", "strength"])
    known = {"individual_amplitude": 3.5, "lapse": 0.1, "strength_steps": np.array([0.7, 0.45])}
    options = {"likelihood": relpref.likelihoods.Probit(lapse=True), "fixed": known}
    posterior = fit(answers, ["a", "b", "d"], **options)
    ends = [0.0, 0.7, 1.15, np.inf]
    line = np.linspace(-25, 25, 501)
    asked, other = np.meshgrid(line, line, indexing="ij")  # the gaps of d and a to b
    weight = np.exp(-(asked**2 - asked * other + other**2) / 3 / 3.5**2)
    for gaps, strength in ((asked, 1), (asked, 2), (other, 3)):
        chance = ndtr(ends[strength] - gaps) - ndtr(ends[strength - 1] - gaps)
        weight *= 0.1 / 6 + 0.9 * chance
    weight /= weight.sum()
    mean = np.sum(weight * asked)
    sd = np.sqrt(np.sum(weight * (asked - mean) ** 2))
    assert gap(posterior, "d", "b")[1] == pytest.approx(sd, rel=0.1)
    assert gap(posterior, "d", "b")[0] == pytest.approx(mean, abs=0.1 * sd)


def test_notes_say_what_is_not_compared() -> None:
    answers = pd.DataFrame({"first": list("abca"), "second": list("bcab"), "rater": list("xyxy")})
    reported = answers.assign(probability=[0.7, 0.8, 0.6, 0.9])
    assert fit(reported).info["check"].endswith(", given rater_noise at the maximum")
    quick = fit([("a", "b"), ("b", "c")]).update([("a", "c")], quick=True)
    again = quick.update([("a", "b")], quick=True)
    assert again.info["check"].endswith("), before answers were added quickly")
    assert again.info["check"].count("quickly") == 1


def test_raters_are_averaged_over_where_answers_are_left_out() -> None:
    answers = pd.DataFrame({"winner": list("abca"), "loser": list("bcab"), "rater": list("xyxy")})
    known = {"individual_amplitude": 1.0, "rater_spread": 0.5}
    assert leave_one_out(fit(answers, fixed=known)).table["log_score"].between(-3, 0).all()
