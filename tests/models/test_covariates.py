"""Covariates of the two sides of an answer: home advantage, style."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.diagnostics import calibrate, certify, check, influence, k_fold, leave_one_out
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.kernels import GaussianProcess
from relpref.likelihoods import Logistic, ProbitComparison
from relpref.linalg import Identity
from relpref.models import preference_gp
from relpref.posterior.codec import dump
from relpref.posterior.storage import unpack

ITEMS = [f"i{at}" for at in range(6)]
FIXED = {"individual_amplitude": 1.0, "effect_scale": 0.7}
NAMES = ["home", "length"]


def games(
    number: int, seed: int = 0, items: int = 6, effect: tuple[float, float] = (0.6, 0.02)
) -> pd.DataFrame:
    """Answers in pair form, with a home side or none and the length of both sides."""
    rng = np.random.default_rng(seed)
    names = np.array([f"i{at}" for at in range(items)], dtype=object)
    utility = rng.normal(size=items)
    first = rng.integers(0, items, number)
    second = (first + rng.integers(1, items, number)) % items
    home, length = rng.integers(-1, 2, number), rng.integers(10, 100, (2, number))
    gap = utility[first] - utility[second] + effect[0] * home + effect[1] * (length[0] - length[1])
    won = gap + rng.normal(size=number) > 0
    return pd.DataFrame(
        {
            "first": names[first],
            "second": names[second],
            "winner": names[np.where(won, first, second)],
            "home": np.choose(home + 1, [names[second], None, names[first]]),
            "length_first": length[0],
            "length_second": length[1],
        }
    )


def read(table: pd.DataFrame, covariates: Any = NAMES, **options: Any) -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, table, covariates=covariates, **options)


def fit(data: PreferenceData, engine: Any = EP, **options: Any) -> Any:
    keywords = {"likelihood": options.pop("likelihood")} if "likelihood" in options else {}
    return engine(preference_gp, **{"fixed": FIXED, **options}).run(0, data, **keywords)


@pytest.fixture(scope="module")
def posterior() -> Any:
    return fit(read(games(40)), fixed=None)


def test_agrees_with_draws_from_the_prior() -> None:
    """Means, sds and evidence by the likelihood of half a million draws."""
    data, rng = read(games(14, seed=3)), np.random.default_rng(1)
    answers, found = data.comparisons, fit(read(games(14, seed=3)))
    assert answers.covariates is not None and answers.covariate_scales is not None
    assert not np.any(answers.count > 1)
    draws = rng.normal(size=(500_000, 8)) * [0.7, 0.7, 1, 1, 1, 1, 1, 1]
    gaps = draws[:, :2] @ (answers.covariates / answers.covariate_scales).T
    gaps += draws[:, 2 + answers.winner] - draws[:, 2 + answers.loser]
    from scipy.special import log_ndtr

    log_weight = log_ndtr(gaps).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    mean = weight @ draws / weight.sum()
    sd = np.sqrt(weight @ np.square(draws - mean) / weight.sum())
    assert found.full.mean() == pytest.approx(mean, abs=0.03)
    assert found.full.sd() == pytest.approx(sd, rel=0.03)
    assert found.log_evidence == pytest.approx(np.log(weight.mean()) + log_weight.max(), abs=0.03)
    assert found.effects["mean"].to_numpy() == pytest.approx(
        mean[:2] / answers.covariate_scales, abs=0.03
    )
    assert found.effects["sd"]["length"] == pytest.approx(
        sd[1] / answers.covariate_scales[1], rel=0.03
    )


@pytest.mark.slow
def test_agrees_with_nuts() -> None:
    assert check(fit(read(games(30))), draws=2000, chains=2, warmup=200).ok


def test_sides_may_be_swapped_with_the_result() -> None:
    table = games(30).assign(tie=False)
    table.loc[:3, ["winner", "tie"]] = [None, True]
    ends = {
        "first": "second",
        "second": "first",
        "length_first": "length_second",
        "length_second": "length_first",
    }
    one, other = (read(each).comparisons.columns for each in (table, table.rename(columns=ends)))
    assert one.keys() == other.keys() and "tie" in one
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("engine", [EP, Laplace])
def test_both_spaces_say_the_same(engine: Any) -> None:
    data = read(games(12))
    latent, rows = (fit(data, engine, space=space) for space in ("latent", "observation"))
    assert latent.log_evidence == pytest.approx(rows.log_evidence, abs=1e-7)
    assert latent.full.mean() == pytest.approx(rows.full.mean(), abs=1e-6)
    assert latent.full.covariance() == pytest.approx(rows.full.covariance(), abs=1e-6)


def test_utilities_are_the_marginal_of_the_joint(posterior: Any) -> None:
    whole = posterior.full
    assert posterior.belief.mean() == pytest.approx(whole.mean()[2:], abs=1e-12)
    assert posterior.belief.covariance() == pytest.approx(whole.covariance()[2:, 2:], abs=1e-12)
    assert posterior.mean().shape == (6,) and posterior.mean(site="effect").shape == (2,)
    assert posterior.sample(7).shape == (7, 6)
    assert list(posterior.effects.index) == NAMES
    assert posterior.effects["p_positive"].between(0, 1).all()


def test_predictions_use_effects_and_what_they_share_with_utilities(posterior: Any) -> None:
    pairs = [("i0", "i1")] * 3
    by_home = posterior.prefer(pairs, home=["i0", None, "i1"])
    neutral = posterior.prefer(pairs)
    assert by_home["probability"].is_monotonic_decreasing
    assert by_home["probability"][1] == pytest.approx(neutral["probability"][0], abs=1e-12)
    assert np.array_equal(by_home[["p_better", "gap_mean"]], neutral[["p_better", "gap_mean"]])
    asked = posterior.prefer(
        "i0", "i1", home="i1", covariates={"length_first": 90, "length_second": 20}
    )
    draws = posterior.full.draw(200_000, np.random.default_rng(0))
    scales = posterior.data.comparisons.covariate_scales
    gap = draws[:, 2] - draws[:, 3] + draws[:, :2] @ ([-1.0, 70.0] / scales)
    from scipy.special import ndtr

    assert asked["probability"][0] == pytest.approx(ndtr(gap).mean(), abs=0.003)
    # Swapped pairs have swapped chances.
    other = posterior.prefer(
        "i1", "i0", home="i1", covariates={"length_first": 20, "length_second": 90}
    )
    assert asked["probability"][0] + other["probability"][0] == pytest.approx(1.0, abs=1e-12)


def test_categories_have_an_effect_for_each_level() -> None:
    rng, table = np.random.default_rng(4), games(200)
    kinds = np.array(["long", "plain", "short"], dtype=object)
    one, other = rng.integers(0, 3, (2, 200))
    won = rng.normal(size=200) + 0.8 * ((one == 0) * 1.0 - (other == 0)) > 0
    table = table.assign(
        style_first=kinds[one],
        style_second=kinds[other],
        winner=np.where(won, table["first"], table["second"]),
    )
    found = fit(read(table, ["style"]))
    assert list(found.effects.index) == ["style[long]", "style[plain]", "style[short]"]
    assert found.effects["mean"].sum() == pytest.approx(0.0, abs=1e-12)
    assert found.effects["p_positive"]["style[long]"] > 0.99
    drawn = found.to_datatree(400)["posterior"]["effect"].to_numpy().reshape(-1, 3)
    assert drawn.sum(axis=1) == pytest.approx(np.zeros(400), abs=1e-9)
    assert drawn.mean(axis=0) == pytest.approx(found.effects["mean"].to_numpy(), abs=0.05)
    given = {"style_first": "long", "style_second": "short"}
    assert (
        found.prefer("i0", "i1", covariates=given)["probability"][0]
        > found.prefer("i0", "i1")["probability"][0]
    )
    with pytest.raises(
        DataError, match="'odd' is no known level of 'style'; the levels are 'long'"
    ):
        found.prefer("i0", "i1", covariates={**given, "style_first": "odd"})


def test_updates_are_fits(reloaded: Any) -> None:
    table = games(40)
    table.loc[30:, ["length_first", "length_second"]] *= (
        3  # so that the scale of all answers is another one
    )
    before = fit(read(table[:30]))
    after, quick = (before.update(table[30:], quick=error) for error in (False, 1.0))
    scales, anew = before.data.comparisons.covariate_scales, fit(read(table))
    answers = anew.data.comparisons
    assert np.array_equal(after.data.comparisons.covariates, answers.covariates)
    assert np.array_equal(after.data.comparisons.covariate_scales, answers.covariate_scales)
    assert answers.covariate_scales[1] > 1.5 * scales[1]
    assert after.effects.to_numpy() == pytest.approx(anew.effects.to_numpy(), rel=1e-8, abs=1e-8)
    assert after.full.mean() == pytest.approx(anew.full.mean(), abs=1e-8)
    assert after.log_evidence == pytest.approx(anew.log_evidence, abs=1e-8)
    # A quick update has these scales, too, and the prior of effects that follows from them.
    assert quick.info["quick_answers"] == 10
    assert np.array_equal(quick.data.comparisons.covariate_scales, answers.covariate_scales)
    assert np.all(np.abs(quick.effects["mean"] - anew.effects["mean"]) < 0.3 * anew.effects["sd"])
    assert quick.effects["sd"].to_numpy() == pytest.approx(anew.effects["sd"].to_numpy(), rel=0.2)
    assert quick.update().effects.to_numpy() == pytest.approx(anew.effects.to_numpy(), abs=1e-7)
    again = quick.update(withdraw=table[30:], quick=np.inf)
    near = pytest.approx(before.effects.to_numpy(), rel=0.02, abs=0.02 * before.effects["sd"].min())
    assert again.effects.to_numpy() == near
    back = after.update(withdraw=table[30:])
    assert back.effects.to_numpy() == pytest.approx(before.effects.to_numpy(), abs=1e-6)
    loaded = reloaded(before)
    assert loaded.effects.equals(before.effects)
    assert loaded.update(table[30:]).log_evidence == pytest.approx(after.log_evidence, abs=1e-7)
    arrays, content = before.arrays()
    with pytest.raises(
        StorageError, match="said to have 2 effects of covariates; the file is damaged"
    ):
        name = "data.comparisons/covariates"
        unpack({**arrays, name: arrays[name][:, :1]}, dump(content))
    with pytest.raises(
        DataError, match="no column 'home', and answers so far have the covariates home, length"
    ):
        before.update([("i0", "i1")])


def test_the_evidence_follows_new_scales(posterior: Any) -> None:
    """A quick update has the evidence of a full one, where new answers change the scales."""
    table = games(5, seed=9)
    table[["length_first", "length_second"]] *= 8
    full, quick = (posterior.update(table, quick=error) for error in (False, np.inf))
    scales = [each.data.comparisons.covariate_scales[1] for each in (posterior, quick)]
    assert scales[1] > 1.5 * scales[0]
    assert quick.log_evidence == pytest.approx(full.log_evidence, abs=0.1)


def assert_effects_are_there(table: Any, posterior: Any) -> None:
    assert table.index.tolist() == [*ITEMS, "effect of home", "effect of length"]
    effects = table[["mean", "sd"]].iloc[6:].to_numpy()
    assert effects == pytest.approx(posterior.effects[["mean", "sd"]].to_numpy(), rel=1e-9)
    assert np.all(np.abs(table["shift"]) < 0.3) and table["sd_ratio"].between(0.8, 1.25).all()


@pytest.mark.slow
def test_nuts_knows_effects(posterior: Any) -> None:
    nuts = check(posterior, draws=1000)
    assert_effects_are_there(nuts.table, posterior)


def test_diagnostics_know_effects(posterior: Any) -> None:
    left = leave_one_out(posterior)
    table = posterior.data.comparisons
    # Held against a fit without the answer.
    row = int(np.argmax(np.abs(table.covariates[:, 1])))
    data = posterior.data.select_comparisons(np.arange(posterior.data.num_comparisons) != row)
    rest = fit(data, fixed=FIXED)
    held = leave_one_out(fit(posterior.data))
    ends = [(ITEMS[table.winner[row]], ITEMS[table.loser[row]])]
    home = {1.0: ends[0][0], -1.0: ends[0][1]}.get(table.covariates[row, 0])
    given = {"home": [home], "length_first": table.covariates[row, 1], "length_second": 0.0}
    chance = rest.prefer(ends, covariates=given)["probability"][0]
    assert np.exp(held.table["log_score"][row]) == pytest.approx(chance, abs=0.005)
    assert left.num_answers == k_fold(posterior, folds=3).num_answers == 40
    certificate = certify(posterior, num_samples=400)
    assert certificate.verdict in ("good", "undecided")
    assert_effects_are_there(certificate.table, posterior)
    swayed = influence(posterior)
    assert len(swayed) == posterior.data.num_comparisons
    assert {"effect of home", "effect of length"} & set(swayed["item"]) != set()
    assert posterior.reweighted(200).effects["mean"].to_numpy() == pytest.approx(
        posterior.effects["mean"].to_numpy(), abs=0.1
    )
    tree = posterior.to_datatree(40)
    assert tree["posterior"]["effect"].dims == ("chain", "draw", "covariate")
    assert tree["posterior"]["covariate"].to_numpy().tolist() == NAMES
    # Of one unit of each, as in the table: the sd of lengths is about 30, and that of 40 draws is
    # known within 1.4.
    spread = tree["posterior"]["effect"].std(("chain", "draw")).to_numpy() / posterior.effects["sd"]
    assert np.all((0.7 < spread) & (spread < 1.4))
    assert posterior.subset(ITEMS[:3]).effects.equals(posterior.effects)


def test_lists_have_covariates_of_their_items() -> None:
    rows: list[Any] = [
        *[(0, "i0", 1, 5), (0, "i1", 2, 2), (0, "i2", 3, 9)],
        *[(1, "i3", 1, 1), (1, "i4", 2, 4), (1, "i0", 3, 4)],
        *[(2, "i5", 1, 4), (2, "i0", 2, 1), (2, "i2", 3, 7)],
    ]
    table = pd.DataFrame(rows, columns=["list", "item", "place", "grid"])
    data = read(table, ["grid"])
    assert data.comparisons.num_lists == 3
    latent, seen = (fit(data, space=space) for space in ("latent", "observation"))
    assert latent.log_evidence == pytest.approx(seen.log_evidence, abs=1e-7)
    assert latent.full.mean() == pytest.approx(seen.full.mean(), abs=1e-6)
    rows = [("i0", "i1", 5, 2), ("i1", "i2", 2, 9), ("i3", "i4", 1, 4), ("i4", "i0", 4, 4)]
    rows.append(("i5", "i0", 4, 1))
    pairs = pd.DataFrame(rows, columns=["winner", "loser", "grid_winner", "grid_loser"])
    two = pd.concat(
        pd.DataFrame({"list": pairs.index, "item": pairs[end], "grid": pairs[f"grid_{end}"]})
        for end in ("winner", "loser")
    ).assign(place=[1] * len(pairs) + [2] * len(pairs))
    one, other = (fit(read(each, ["grid"])).log_evidence for each in (two, pairs))
    assert one == pytest.approx(other, abs=1e-10)


def test_other_engines_and_likelihoods() -> None:
    data = read(games(40))
    probit, logistic = fit(data), fit(data, likelihood=Logistic())
    assert logistic.effects["mean"]["home"] > probit.effects["mean"]["home"] > 0
    with pytest.raises(UnsupportedProgramError, match="the answers have covariates"):
        fit(data, structure="sparse")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"home": ["i3"]}, "'i3' is neither of the two that were compared, 'i0' and 'i1'"),
        ({"covariates": {"lenght_first": 3}}, "did you mean 'length_first'"),
        ({"covariates": {"length_first": 3}}, "a column 'length_first' and none 'length_second'"),
        ({"covariates": {"length_first": [1, 2], "length_second": 3}}, "2 values for 1 pairs"),
        (
            {"covariates": {"length_first": np.nan, "length_second": 3}},
            "row 0 .*'length_first'.*nan",
        ),
        ({"covariates": {"length_first": np.inf, "length_second": 3}}, "inf is not finite"),
        ({"covariates": {"length_first": "long", "length_second": 3}}, "'long' is no"),
    ],
)
def test_bad_questions_are_refused(posterior: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        posterior.prefer([("i0", "i1")], **given)


def test_covariates_that_answers_do_not_have() -> None:
    plain = fit(read(games(20), ()), fixed={"individual_amplitude": 1.0})
    with pytest.raises(DataError, match="home is given, but the answers have no covariates"):
        plain.prefer("i0", "i1", home="i0")
    assert plain.effects.empty


def without_effects(data: PreferenceData) -> None:
    utility = numpyro.sample("utility", GaussianProcess(Identity(data.num_items)))
    gap = utility[jnp.asarray(data.winner)] - utility[jnp.asarray(data.loser)]
    numpyro.sample("answer", ProbitComparison(gap), obs=jnp.ones(len(data.winner), int))


def test_programs_of_ones_own_may_leave_covariates_alone() -> None:
    found: Any = EP(without_effects).run(0, read(games(30)))
    assert found.kind == "utilities" and found.effects.empty
    assert found.prefer("i0", "i1")["probability"].between(0, 1).all()
    with pytest.raises(
        DataError, match="the program of the posterior has no effects of covariates"
    ):
        found.prefer("i0", "i1", home="i0")


@pytest.mark.slow
def test_effects_are_calibrated() -> None:
    """Effects, utilities and answers are simulated."""
    for hyperparameters in ("given", "integrate"):
        found = calibrate(
            preference_gp,
            read(games(60)),
            simulations=1000,
            hyperparameters=hyperparameters,
            quantity=at_home,
        )
        assert found.verdict() == "calibrated", found.sentence


def at_home(sites: Any) -> Any:
    return sites["effect"][0]
