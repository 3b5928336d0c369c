"""Answers in groups, whose items have values of their own there: against these as latents, probit
in closed form, and sampling.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpyro.handlers import infer_config
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from relpref import PreferenceData
from relpref.diagnostics import calibrate, certify, check, k_fold
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.infer.arrow import Blocks, Kind
from relpref.kernels import GaussianProcess
from relpref.likelihoods import Logistic, Probit, ProbitComparison
from relpref.likelihoods.chances import ROUNDING
from relpref.linalg import Dense
from relpref.models import preference_gp

ITEMS = [f"i{at}" for at in range(7)]
KNOWN = {"individual_amplitude": 1.2, "group_sd": 0.9}
explicit = infer_config(preference_gp, config_fn=lambda site: {"integrated": False})


def votes(groups: int, each: int, seed: int, sd: float = 1.0) -> pd.DataFrame:
    """Answers about random pairs of three items of each group, and some without a group."""
    rng = np.random.default_rng(seed)
    rows: list[Any] = []
    utility = rng.normal(size=len(ITEMS))
    for group in range(groups):
        three = rng.choice(len(ITEMS), 3, replace=False)
        seen = utility[three] + sd * np.sqrt(0.5) * rng.normal(size=3)
        for _ in range(each):
            one, other = rng.permutation(3)[:2]
            won = seen[one] - seen[other] + rng.normal() > 0
            ends = three[[one, other] if won else [other, one]]
            rows.append((*(f"i{end}" for end in ends), f"g{group}"))
    rows += [("i0", "i1", None), ("i2", "i1", None)]
    return pd.DataFrame(rows, columns=["winner", "loser", "group"])


def read(table: pd.DataFrame) -> PreferenceData:
    covariates = ["x"] if "x_winner" in table else []
    return PreferenceData.from_tables(ITEMS, table, covariates=covariates)


def fit(data: PreferenceData, program: Any = preference_gp, **options: Any) -> Any:
    keywords = {name: options.pop(name) for name in ("likelihood",) if name in options}
    options = {"fixed": KNOWN, "tol": 1e-10, "check": False, **options}
    return EP(program, **options).run(0, data, **keywords)


def same(one: Any, other: Any, tolerance: float = 1e-7) -> None:
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=tolerance)
    for moments in ("mean", "covariance"):
        found, wanted = (getattr(each, moments)(site="utility") for each in (one, other))
        assert_allclose(found, wanted, atol=tolerance)


TABLE = votes(9, 5, 0)
GRADED = TABLE.assign(
    tie=np.arange(len(TABLE)) % 4 == 0, rater=np.array(["ann", "bo"])[np.arange(len(TABLE)) % 2]
)
REPORTED = TABLE.rename(columns={"winner": "first", "loser": "second"}).assign(
    probability=np.linspace(0.2, 0.9, len(TABLE))
)
LISTS = pd.DataFrame(
    [(1, "i0", 1, "g"), (1, "i1", 2, "g"), (1, "i2", 3, "g"), (3, "i2", 1, "g"), (3, "i3", 2, "g")]
    + [
        *[(2, "i4", 1, "h"), (2, "i3", 2, "h"), (2, "i1", 3, "h")],
        *[(4, "i5", 1, None), (4, "i4", 2, None)],
        *[(5, "i6", 1, None), (5, "i5", 2, None)],
    ],
    columns=["list", "item", "place", "group"],
)
MORE: dict[str, Any] = {"tie_margin": 0.3, "rater_noise": np.array([0.7, 1.4]), "soft_noise": 0.6}
MORE |= {"lapse": 0.15, "effect_scale": 0.7}


@pytest.mark.parametrize("space", ["latent", "observation"])
def test_modes(space: Any) -> None:
    """Laplace's method touches the same mode whether effects are latent or integrated out."""
    data = read(TABLE)
    options: Any = {"fixed": KNOWN, "tol": 1e-10, "check": False}
    grouped = Laplace(preference_gp, space=space, **options).run(0, data)
    same(grouped, Laplace(explicit, **options).run(0, data))


SIDES = np.random.default_rng(0).normal(size=(2, len(TABLE)))


@pytest.mark.parametrize(
    ("table", "likelihood", "sites"),
    [
        (TABLE, Probit(), ()),
        (GRADED, Probit(), ("tie_margin", "rater_noise")),
        (TABLE, Logistic(), ()),
        (TABLE.assign(count=np.arange(len(TABLE)) % 3 + 1), Probit(), ()),
        # Some sites have a negative precision.
        (votes(25, 4, 0), Probit(lapse=True), ("lapse",)),
        # Every answer looks at effects of covariates, at two utilities, at two values of its group.
        (TABLE.assign(x_winner=SIDES[0], x_loser=SIDES[1]), Probit(), ("effect_scale",)),
        # Rows of one list in a group share the noise of the list and the effects of the group.
        (LISTS, Probit(), ()),
    ],
)
def test_effects_as_latents(table: Any, likelihood: Any, sites: Any) -> None:
    """Integrated out or not, the fixed point of EP is the same."""
    options = {"fixed": KNOWN | {site: MORE[site] for site in sites}, "likelihood": likelihood}
    data = read(table)
    expected = fit(data, explicit, space="latent", **options)
    for space in ("latent",) if "lapse" in sites else ("latent", "observation"):
        grouped = fit(data, space=space, **options)
        assert (grouped.sites["precision"].min() < 0) == ("lapse" in sites)
        same(grouped, expected, 1e-6)


@pytest.mark.parametrize("likelihood", [Probit(), Logistic()])
def test_predictions_are_of_a_new_group(likelihood: Any) -> None:
    data = read(TABLE)
    posterior = fit(data, likelihood=likelihood)
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(posterior.mean(), posterior.covariance(), size=200_000)
    gap = draws[:, 0] - draws[:, 3] + KNOWN["group_sd"] * rng.normal(size=len(draws))
    noise = rng.normal(size=len(gap)) if likelihood == Probit() else rng.logistic(size=len(gap))
    found = posterior.prefer("i0", "i3")["probability"][0]
    assert found == pytest.approx(np.mean(gap + noise > 0), abs=4e-3)
    if likelihood == Probit():
        assert posterior.choose(["i0", "i3"])["probability"]["i0"] == pytest.approx(found, abs=1e-3)
        assert posterior.order(["i0", "i3"]) == pytest.approx(found, abs=2e-3)


def test_answers_in_different_groups_stay_apart() -> None:
    table = pd.DataFrame({"winner": list("aaaa"), "loser": list("bbbb"), "group": [2, 1, 2, None]})
    data = PreferenceData.from_tables(["a", "b"], table)
    answers: Any = data.comparisons
    assert (list(answers.count), list(answers.group), answers.groups) == (
        [1, 1, 2],
        [-1, 0, 1],
        (1.0, 2.0),
    )
    assert answers.num_effects == 4
    again = PreferenceData.from_tables(["a", "b"], answers.table(["a", "b"]))
    assert {name: list(column) for name, column in again.comparisons.columns.items()} == {
        name: list(column) for name, column in answers.columns.items()
    }
    blank = PreferenceData.from_tables(["a", "b"], table.assign(group=None))
    assert blank.comparisons.group is None


def test_a_list_is_in_one_group() -> None:
    with pytest.raises(DataError, match="'h' is not the group of the first row of its list"):
        read(LISTS.assign(group=[*"gghgghhh", *[None] * 4]))


def test_updates_and_files(reloaded: Any) -> None:
    table = votes(8, 4, 5)
    first, second = table.iloc[:-9], table.iloc[-9:]  # a group is in both
    whole, before = fit(read(table)), fit(read(first))
    same(before.update(second), whole)
    same(before.update(second, quick=True), whole)
    same(whole.update(withdraw=second), before)
    with pytest.raises(DataError, match="group"):
        whole.update(withdraw=table.iloc[:1].assign(group="g7"))
    again = reloaded(whole)
    assert again.data.comparisons.groups == whole.data.comparisons.groups
    same(again.update(), whole)
    assert_array_equal(again.data.comparisons.group, whole.data.comparisons.group)


def crossed(data: PreferenceData, person: Any, integrated: tuple[bool, bool]) -> None:
    """Answers to questions by persons, to both of whom items have values of their own."""
    answers = data.comparisons
    gap: Any = numpyro.sample("utility", GaussianProcess(Dense(jnp.eye(len(ITEMS)))))
    gap = gap[answers.winner] - gap[answers.loser]
    for name, group, inside in zip(
        ("question", "person"), (answers.group, person), integrated, strict=True
    ):
        values = dist.Normal(0.0, 0.8).expand([70]).to_event(1)
        effect = numpyro.sample(name, values, infer={"integrated": inside})
        at = 7 * jnp.maximum(jnp.asarray(group), 0)
        gap = gap + jnp.where(
            jnp.asarray(group) >= 0, effect[at + answers.winner] - effect[at + answers.loser], 0.0
        )
    with numpyro.plate("row", len(answers.winner)):
        numpyro.sample("answer", ProbitComparison(gap), obs=jnp.ones(len(answers.winner), int))


def test_groups_that_cross() -> None:
    """One of two kinds can be integrated out, and the other is one more latent site; both are
    refused.
    """
    data = read(TABLE)
    person = np.random.default_rng(0).integers(4, size=data.num_comparisons)

    def found(*integrated: bool) -> Any:
        return EP(crossed, tol=1e-10, check=False).run(0, data, person, integrated)

    neither = found(False, False)
    same(found(True, False), neither)
    same(found(False, True), neither)
    with pytest.raises(UnsupportedProgramError, match="cross.*one more latent site"):
        found(True, True)


def test_groups_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 1e5)
    with pytest.raises(DataError, match="noise that up to 150 answers share needs 0.00 GB"):
        Blocks.of([Kind.of_gaps(np.zeros(150, int), np.arange(150), np.ones(150, int))])


def test_many_reports_of_a_group() -> None:
    """Two groups of 4,000 reports on five items cost what their items cost. The posterior is that
    of linear regression; as many reports have no group.
    """
    rng, size, number, noise = np.random.default_rng(0), 5, 12_000, 0.6
    first, group = rng.integers(size, size=number), np.arange(number) % 3
    second = (first + rng.integers(1, size, size=number)) % size
    # The utilities, and the values of either group.
    at, seen = np.arange(number), np.zeros((number, 4 * size))
    for start, scale in ((0, 1.2), (size * (1 + group), KNOWN["group_sd"] / np.sqrt(2))):
        seen[at, start + first], seen[at, start + second] = scale, -scale
    seen = seen[:, : 3 * size]
    report = seen @ rng.normal(size=3 * size) + noise * rng.normal(size=number)
    table = pd.DataFrame({"first": first, "second": second, "probability": ndtr(report)})
    table["group"] = np.where(group < 2, group, np.nan)
    data = PreferenceData.from_tables(range(size), table)
    posterior = fit(data, fixed=KNOWN | {"soft_noise": noise})
    variance = noise**2 + ROUNDING**2
    covariance = np.linalg.inv(np.eye(3 * size) + seen.T @ seen / variance)
    mean = 1.2 * (covariance @ seen.T @ report)[:size] / variance
    assert_allclose(posterior.mean(), mean, atol=1e-8)
    assert_allclose(posterior.covariance(), 1.44 * covariance[:size, :size], atol=1e-8)


def test_refusals() -> None:
    with pytest.raises(UnsupportedProgramError, match="the answers have groups"):
        EP(preference_gp, structure="sparse").run(0, read(TABLE))


def test_folds_are_groups() -> None:
    data = read(votes(12, 3, 3))
    folds = k_fold(fit(data), 3, hyperparameters="keep")
    assert folds.method.startswith("3 folds by group")
    groups, name = data.answer_groups("group")
    assert name == "group" and len(np.unique(groups)) == 12 + np.sum(groups >= 12)
    with pytest.raises(DataError, match="no column 'group'"):
        read(TABLE.drop(columns="group")).answer_groups("group")


def test_the_first_group_brings_a_hyperparameter() -> None:
    before = fit(read(TABLE.drop(columns="group")), fixed={"individual_amplitude": 1.2})
    after = before.update(votes(3, 3, 9))
    assert after.hyperparameters["group_sd"] == pytest.approx(norm.ppf(0.75)) and after.info[
        "guessed"
    ] == ["group_sd"]


def test_importance_weights_of_reports_are_equal() -> None:
    posterior = fit(read(REPORTED), fixed=KNOWN | {"soft_noise": 0.6})
    found = certify(posterior)
    assert found.verdict == "exact" and found.log_evidence == pytest.approx(
        posterior.log_evidence, abs=1e-7
    )


def test_reweighted_draws_of_groups() -> None:
    """Hyperparameters are weighted, too; some precisions of sites are negative."""
    data = read(votes(25, 4, 0))
    posterior = EP(preference_gp, fixed={"lapse": 0.15}).run(0, data, likelihood=Probit(lapse=True))
    assert posterior.sites["precision"].min() < 0
    exact = posterior.reweighted(4000)
    assert_allclose(exact.mean(), posterior.mean(), atol=0.15)
    assert exact.hyperparameter_draws["group_sd"].shape == (4000,)


@pytest.mark.slow
def test_the_check_samples_effects() -> None:
    posterior = fit(read(votes(12, 4, 6, sd=1.5)), fixed={**KNOWN, "group_sd": 1.5})
    nuts = check(posterior)
    assert nuts.verdict == "agrees", nuts.sentence


def test_replicates_are_of_new_groups() -> None:
    """For ArviZ: answers of new groups, and the likelihood of each answer with its group's effect
    integrated out.
    """
    data = read(votes(12, 4, 6))
    posterior = fit(data, fixed={**KNOWN, "group_sd": 3.0})
    content = posterior.groups(4000, 0)
    gap = content.groups["posterior"]["utility"].reshape(-1, len(ITEMS))
    answers: Any = data.comparisons
    single = np.repeat(np.arange(len(answers.group)), answers.count)
    gap = gap[:, answers.winner[single]] - gap[:, answers.loser[single]]
    sd = np.where(answers.group[single] < 0, 1.0, np.sqrt(10.0))
    likelihood = content.groups["log_likelihood"]["answer"].reshape(gap.shape)
    assert_allclose(likelihood, norm.logcdf(gap / sd), atol=1e-8)
    replicated = content.groups["posterior_predictive"]["answer"].reshape(gap.shape)
    assert_allclose(replicated.mean(axis=0), norm.cdf(gap / sd).mean(axis=0), atol=0.04)
    first, second = np.flatnonzero(answers.group[single] == 0)[:2]
    assert np.corrcoef(replicated[:, first], replicated[:, second])[0, 1] ** 2 > 0.02
    assert set(content.groups["constant_data"]["group"]) == {*answers.groups, ""}


@pytest.mark.parametrize("seed", range(3))
def test_against_importance_sampling(seed: int) -> None:
    """Groups of votes on one pair have one effect each, which is integrated by quadrature for every
    draw.
    """
    rng, items, sd = np.random.default_rng(seed), 5, 1.2
    utility, rows = rng.normal(size=items), []
    for group in range(12):
        one, other = rng.choice(items, 2, replace=False)
        seen = utility[one] - utility[other] + sd * rng.normal()
        rows += [(one, other, group, seen + rng.normal() > 0) for _ in range(4)]
    left, right, groups, won = map(np.array, zip(*rows, strict=True))
    ends = {"winner": np.where(won, left, right), "loser": np.where(won, right, left)}
    data = PreferenceData.from_tables(range(items), pd.DataFrame(ends | {"group": groups}))
    posterior = fit(data, fixed={"individual_amplitude": 1.2, "group_sd": sd})
    mean, covariance = posterior.mean(), posterior.covariance()
    draws = rng.multivariate_normal(mean, 1.3 * covariance, size=10_000)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    log_likelihood, sign = np.zeros(len(draws)), np.where(won, 1.0, -1.0)
    for number in range(12):
        its = np.flatnonzero(groups == number)
        gap = draws[:, left[its[0]]] - draws[:, right[its[0]]]
        each = ndtr(sign[its, None, None] * (gap[:, None] + sd * nodes)).prod(axis=0)
        log_likelihood += np.log(each @ weights / np.sqrt(2 * np.pi))
    exact = certify(posterior)
    prior = multivariate_normal(np.zeros(items), 1.44 * np.eye(items))
    log_weights = log_likelihood + prior.logpdf(draws)
    log_weights -= multivariate_normal(mean, 1.3 * covariance).logpdf(draws)
    share = np.exp(log_weights - log_weights.max())
    assert exact.log_evidence == pytest.approx(log_weights.max() + np.log(share.mean()), abs=0.04)
    assert posterior.log_evidence == pytest.approx(exact.log_evidence, abs=0.03 * 12)
    share /= share.sum()
    centre, sds = share @ draws, np.sqrt(np.diagonal(covariance))
    assert_allclose((mean - centre) / sds, 0.0, atol=0.05)
    assert_allclose(np.sqrt(share @ (draws - centre) ** 2) / sds, 1.0, atol=0.05)


@pytest.mark.slow
def test_calibrated() -> None:
    """Answers of simulated groups, at given hyperparameters."""
    found = calibrate(preference_gp, read(votes(12, 5, 0)), simulations=1000, rng_key=5)
    assert found.p_value() > 1e-3


def test_the_report_says_what_was_found(tmp_path: Any) -> None:
    posterior = fit(read(TABLE), check="auto")
    posterior.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8").replace("<wbr>", "")
    for words in (
        "in 9 groups",
        "group_sd",
        "deviates from that of their utilities",
        "effective draws",
    ):
        assert words in text
