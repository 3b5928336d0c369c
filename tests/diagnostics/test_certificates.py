"""Certificates against quadrature and the gold file; posteriors that are wrong on purpose get worse
ones. Seeds are fixed.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal, norm

import relpref
from relpref.data import PreferenceData
from relpref.diagnostics import Certificate, certify
from relpref.diagnostics.certificate import _of_weights
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Laplace, RelationPosterior, UtilityPosterior
from relpref.infer.reweighting import log_evidences_of, reweighted_moments
from relpref.infer.smoothing import smoothed, threshold
from relpref.kernels import Precomputed
from relpref.models import ranking_classifier, xpgp
from relpref.posterior.gaussian import DrawsBelief, GaussianBelief, MixtureBelief

Make = Callable[..., UtilityPosterior]


def test_reweighted_moments_are_those_of_quadrature(posterior: UtilityPosterior, gap: Any) -> None:
    found: Any = certify(posterior)
    mean, variance, log_evidence = gap
    assert found.verdict == "good" and "certified" in found.sentence
    assert found.efficiency == found.ess / found.num_samples > 0.9
    table = found.table
    assert list(table.index) == ["a", "b"]
    # 5 standard errors: one in a million
    error = 5 * table["shift_error"].iloc[0] * table["exact_sd"].iloc[0]
    assert_allclose(table["exact_mean"], [mean / 2, -mean / 2], rtol=0, atol=error)
    error = 5 * table["sd_ratio_error"].iloc[0]
    assert_allclose(table["exact_sd"], np.sqrt(variance) / 2, rtol=error)
    assert abs(found.log_evidence - log_evidence) <= 5 / np.sqrt(found.ess)


@pytest.mark.parametrize(
    ("shift", "factor", "said"),
    [
        (0.5, 1.0, "in the mean"),
        (0.0, 0.8, "times the exact ones"),
        (0.0, 1.4, "times the exact ones"),
    ],
)
def test_wrong_posteriors_are_not_certified(
    posterior: UtilityPosterior, wrong: Make, gap: Any, shift: float, factor: float, said: str
) -> None:
    mean, variance, _ = gap
    found: Any = certify(wrong(shift, factor))
    assert found.verdict == "doubtful" and said in found.sentence
    assert found.ess / found.num_samples < certify(posterior).efficiency - 0.02
    # In one dimension the weights can still be relied on, and they undo what is wrong.
    first = found.table.iloc[0]
    assert abs(first["exact_mean"] - mean / 2) <= 5 * first["shift_error"] * np.sqrt(variance)
    assert abs(first["sd_ratio"] - factor) <= 5 * first["sd_ratio_error"]


@pytest.mark.parametrize(("shift", "factor"), [(0.2, 1.0), (-0.2, 1.0), (0.0, 0.85), (0.0, 1.2)])
def test_few_draws_do_not_certify_what_is_wrong(wrong: Make, shift: float, factor: float) -> None:
    """Errors of a hundred draws reach back over the tolerance; then more are drawn."""
    for key in range(5):
        few, many = (certify(wrong(shift, factor), size, key).verdict for size in (100, 1000))
        assert few in ("doubtful", "undecided") and many == "doubtful"


def test_a_thousand_draws_certify_what_is_right(posterior: UtilityPosterior) -> None:
    for key in range(5):
        assert certify(posterior, 1000, key).verdict == "good"


def test_a_posterior_at_the_border_is_not_decided(wrong: Make) -> None:
    found = certify(wrong(0.1), num_samples=500)
    assert found.verdict == "undecided"
    assert found.num_samples == 16 * 500
    assert "not decided" in found.sentence
    assert found.table is not None


def test_reweighted_draws_are_the_exact_posterior(wrong: Make, gap: Any) -> None:
    mean, variance, log_evidence = gap
    found: Any = wrong(0.5, 1.4).reweighted()
    sides, error = np.array([[1.0, -1.0]]), 5 * np.sqrt(variance / 1000)
    assert_allclose(found.mean(sides), [mean], rtol=0, atol=error)
    assert_allclose(found.sd(sides) ** 2, [variance], rtol=5 * np.sqrt(2 / 1000))
    preferred = found.prefer([("a", "b")]).loc[0]
    assert_allclose(preferred["gap_mean"], found.mean(sides)[0], rtol=1e-9)
    assert_allclose(found.explain()["attributes"], found.explain()["mean"], atol=1e-9)
    assert found.log_evidence == pytest.approx(log_evidence, abs=0.1)
    assert found.info["k_hat"] < 0.7 and found.info["ess"] > 1000
    assert found.info["engine"] == "EP, reweighted"
    assert_array_equal(found.mean(), wrong(0.5, 1.4).reweighted().mean())
    assert found.reweighted() is found
    with pytest.raises(InferenceError, match="cannot be relied on.*NUTS"):
        wrong(9, 0.2).reweighted()


def test_reweighting_keeps_unanimous_answers() -> None:
    """One answer that was given many times is exact, and its reweighted draws are right."""
    data = PreferenceData.from_tables(
        ["a", "b"], pd.DataFrame({"winner": ["a"], "loser": ["b"], "count": [30]})
    )
    found = EP(xpgp, fixed={"individual_amplitude": 5.0}, check=False).run(0, data)
    grid = np.linspace(-60, 60, 60_001)
    density = norm.pdf(grid, scale=np.sqrt(50)) * ndtr(grid) ** 30
    mean = grid @ density / density.sum()
    sd = np.sqrt((grid - mean) ** 2 @ density / density.sum())
    gap = np.array([[1.0, -1.0]])
    exact = found.reweighted(rng_key=3)
    for posterior, error, ratio in ((found, 1e-4, 1e-4), (exact, 0.1, 0.06)):
        assert_allclose(posterior.mean(gap), [mean], atol=error * sd)
        assert_allclose(posterior.sd(gap), [sd], rtol=ratio)


def test_errors_are_what_keys_differ_by(wrong: Make, gap: Any) -> None:
    """Of 30 keys the root mean square of error over claimed error has sd 0.13: false alarms are one
    in 300.
    """
    found = [certify(wrong(-0.3, 1.3), 1000, key).table for key in range(30)]
    rows = pd.DataFrame([table.iloc[0] for table in found if table is not None])
    assert len(rows) == 30
    shifts = (rows["exact_mean"] - gap[0] / 2) / (rows["shift_error"] * rows["sd"])
    ratios = (rows["sd_ratio"] - 1.3) / rows["sd_ratio_error"]
    for errors in (shifts, ratios):
        assert 0.6 <= np.sqrt(np.mean(errors**2)) <= 1.4


def test_few_components_stand_for_all_of_a_mixture(posterior: UtilityPosterior) -> None:
    """With equal weights the exact mean is the posterior's, not that of the components that were
    looked at.
    """
    rng = np.random.default_rng(0)
    both = MixtureBelief(
        rng.normal(size=(60, 2)), np.stack([0.3 * np.eye(2)] * 60), np.full(60, 1 / 60)
    )
    mixed = replace(
        posterior, belief=both, hyperparameter_draws={"attributes_amplitude": np.ones(60)}
    )
    noise = rng.normal(size=(10, 8, 2))
    some = both.locations[:10, None] + np.concatenate([noise, -noise], axis=1)
    exact, errors = reweighted_moments(
        mixed, some.reshape(160, 2), np.full(160, 1 / 160), np.repeat(np.arange(10), 16)
    )
    assert_allclose(exact["mean"], both.centred().mean(), atol=1e-12)
    assert_allclose(exact["sd"], both.centred().sd())
    gaps = both.locations[:, 0] - both.locations[:, 1]
    assert_allclose(errors["mean"], gaps.std() / 2 / np.sqrt(60))


def test_the_weights_of_a_mixture_hold_its_evidence(posterior: UtilityPosterior) -> None:
    """So that nobody runs the engine again."""
    engine = EP(xpgp, tol=1e-10, check=False)
    fitted: Any = engine.run(0, posterior.data, individual=False)
    origin, draws = fitted.origin, fitted.hyperparameter_draws
    afresh = [
        origin.run(None, 0, fixed={n: v[at] for n, v in draws.items()}).log_evidence
        for at in (0, 1)
    ]
    assert_allclose(log_evidences_of(fitted)[:2], afresh, atol=1e-4)  # points have a tolerance


@pytest.mark.parametrize(
    ("components", "falling", "rounds"), [(1, 1.0, 5), (2, 1.0, 2), (2, 0.71, 5)]
)
def test_draws_that_decide_nothing_are_not_taken(
    posterior: UtilityPosterior,
    monkeypatch: pytest.MonkeyPatch,
    components: int,
    falling: float,
    rounds: int,
) -> None:
    """Errors between the components of a mixture stay as they are, however many draws are taken of
    each.
    """
    rng, reported = np.random.default_rng(0), posterior.reported()

    def draws(*_: Any) -> Any:
        for number in range(5):
            errors = reported.assign(mean=0.3 * falling**number * reported["sd"], sd=0.0)
            found = SimpleNamespace(
                log_weights=rng.normal(size=100 * 2**number),
                values=[{}] * components,
                reliable=True,
                log_evidence=np.nan,
                smoothed=SimpleNamespace(k_hat=0.3, ess=50.0),
            )
            found.moments = lambda _, errors=errors: (reported, errors)
            yield found

    monkeypatch.setattr("relpref.diagnostics.certificate.weighted_draws", draws)
    found = certify(posterior)
    assert found.verdict == "undecided"
    assert found.num_samples == 100 * 2 ** (rounds - 1)


def test_a_hopeless_posterior_fails_with_a_sentence(wrong: Make) -> None:
    found = certify(wrong(9, 0.2))
    assert (found.verdict, found.table, found.mean, found.sd) == ("failed", None, None, None)
    assert "cannot certify" in found.sentence
    assert "relpref check" in found.sentence
    # So far away that all weights but one are zero to 308 digits.
    far = certify(wrong(-1000), num_samples=100)
    assert (far.verdict, far.k_hat) == ("failed", np.inf)
    assert far.ess == pytest.approx(1)


def test_nothing_to_certify(posterior: UtilityPosterior) -> None:
    nothing = replace(posterior, info={"engine": "EP", "result": "nonfinite"})
    assert certify(nothing).verdict == "failed"
    without = replace(posterior, data=posterior.data.select_comparisons(np.zeros(0, dtype=int)))
    found = certify(without)
    assert (found.verdict, np.isnan(found.k_hat)) == ("exact", True)
    with pytest.raises(DataError, match="num_samples is 20"):
        certify(posterior, num_samples=20)
    with pytest.raises(UnsupportedProgramError, match="does not know its program"):
        certify(replace(posterior, origin=None))


def test_a_gaussian_likelihood_is_exact_and_a_narrower_one_is_not() -> None:
    """Three sites in one vector, one of them without a say in the answers."""
    x, y = np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 1.0]]), np.array([0.3, -0.2, 1.0])

    def program(x: Any, y: Any = None) -> None:
        weight = numpyro.sample("weight", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        level = numpyro.sample("level", dist.Normal(1.0, 0.5).expand([1]).to_event(1))
        with numpyro.plate("point", len(x)):
            numpyro.sample("label", dist.Normal(x @ weight + level[0], 0.7), obs=y)

    posterior: Any = EP(program).run(0, jnp.asarray(x), y=jnp.asarray(y))
    found: Any = certify(posterior)
    assert found.verdict == "exact"
    # Of the labels: x·w with variance 4, the level with 1/4, and noise.
    spread = 4.0 * x @ x.T + 0.25 + 0.49 * np.eye(3)
    assert abs(found.log_evidence - multivariate_normal(np.ones(3), spread).logpdf(y)) <= 1e-5
    belief = GaussianBelief(posterior.full.mean(), 0.64 * posterior.full.covariance())
    narrow = certify(replace(posterior, belief=belief))
    assert narrow.verdict in ("doubtful", "failed")
    if narrow.table is not None:
        assert list(narrow.table.index) == [("weight", 0), ("weight", 1), ("level", 0)]


def test_draws_are_asked_whether_chains_agree(posterior: UtilityPosterior) -> None:
    rng = np.random.default_rng(3)
    draws = rng.standard_normal((2000, 2))

    def certified(draws: Any, chains: int) -> Certificate:
        info = {"engine": "samples", "result": "converged", "chains": chains}
        return certify(replace(posterior, belief=DrawsBelief(draws), info=info))

    good = certified(draws, 4)
    assert good.verdict == "good" and "SVI" in good.sentence
    drifting = draws + np.linspace(0, 3, 2000)[:, None]
    stuck = draws + np.repeat([0.0, 0.0, 0.0, 3.0], 500)[:, None]
    for some, chains, verdict in (
        (draws, 1, "doubtful"),
        (drifting, 1, "failed"),
        (draws[:200], 4, "doubtful"),
        (stuck, 4, "failed"),
        (draws[:12], 4, "failed"),  # three to a chain
    ):
        assert certified(some, chains).verdict == verdict
    for never in (np.ones((2000, 2)), np.column_stack([draws[:, 0], np.full(2000, 0.3)])):
        found = certified(never, 4)
        assert found.verdict == "failed" and "never move" in found.sentence


def test_relations_are_exact() -> None:
    fake = object.__new__(RelationPosterior)
    object.__setattr__(fake, "info", {"result": "converged", "solver": "eigen"})
    assert certify(fake).verdict == "exact"
    object.__setattr__(
        fake, "info", {"result": "iterations_not_converged", "solver": "conjugate gradients"}
    )
    assert certify(fake).verdict == "failed"


def test_smoothing_of_weights() -> None:
    rng = np.random.default_rng(0)
    equal = smoothed(np.full((2, 50), 3.0))
    assert_allclose(np.exp(equal.log_weights), 1 / 50)
    assert_allclose(equal.ess, 50)
    assert np.all(equal.k_hat == -np.inf)
    # Weights with a Pareto tail of a known shape: k-hat is near it (sd of it about 0.1 with 190
    # tail draws).
    for shape in (0.3, 1.2):
        log_weights = rng.exponential(size=4000) * shape
        assert abs(float(smoothed(log_weights).k_hat) - shape) <= 0.35
        assert abs(logsumexp(smoothed(log_weights).log_weights)) <= 1e-9
    for hopeless in (
        rng.normal(size=4000) * 1e4,
        np.append(rng.normal(size=100), np.nan),
        rng.normal(size=24),
    ):
        found = smoothed(hopeless)
        assert found.k_hat == np.inf
        assert 1 <= found.ess < 100
        assert abs(logsumexp(found.log_weights)) <= 1e-9
    some = rng.normal(size=100)
    assert smoothed(np.append(some, -np.inf)).k_hat < 1  # a draw of no weight does no harm
    assert smoothed(np.full(100, -np.inf)).k_hat == np.inf
    assert threshold(4000) == 0.7
    assert threshold(100) == 0.5


@pytest.fixture(scope="module")
def gold() -> Any:
    with np.load(Path(__file__).parents[1] / "gold" / "ep_mixed_n100.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def fitted(gold: Any) -> Callable[[Any], Any]:
    """An engine's posterior of the gold problem."""
    labels = [f"e{row}" for row in range(len(gold["K"]))]
    items = pd.DataFrame({"x": np.arange(float(len(labels)))}, index=labels)
    names = np.asarray(labels)[gold["comparisons"]]
    data = PreferenceData.from_tables(items, pd.DataFrame(names, columns=["winner", "loser"]))

    def fit(engine: Any) -> Any:
        kernel = Precomputed(gold["K"])
        options = {"progress_bar": False, "attribute_kernel": kernel, "individual": False}
        return engine(xpgp, fixed={"attributes_amplitude": 1.0}).run(0, data, **options)

    return fit


@pytest.mark.slow
def test_the_gold_problem(gold: Any, fitted: Callable[[Any], Any]) -> None:
    found = certify(fitted(EP))
    assert found.verdict == "good"
    assert 0.2 <= found.efficiency <= 0.7
    assert found.table is not None
    exact = gold["mean"] - gold["mean"].mean()
    # Five standard errors, of a hundred means at once.
    assert (
        np.max(np.abs(found.table["exact_mean"] - exact) / found.table["exact_sd"])
        <= 5 * found.table["shift_error"].max()
    )
    assert abs(found.log_evidence - gold["log_evidence"]) <= 0.1
    poor = certify(fitted(Laplace))
    assert poor.verdict in ("doubtful", "failed")
    assert poor.efficiency < found.efficiency / 4


@pytest.mark.slow
@pytest.mark.parametrize("space", ["latent", "observation"])
def test_a_smooth_kernel_whose_covariance_is_nearly_singular(space: Any) -> None:
    """The prior of a long lengthscale has directions without variance; the EP of it is certified
    all the same.
    """
    rng = np.random.default_rng(1)
    items = pd.DataFrame({"x": np.linspace(0, 1, 60)}, index=range(60))
    ends = rng.permuted(np.tile(np.arange(60), (80, 1)), axis=1)[:, :2]
    answers = pd.DataFrame({"winner": ends.max(axis=1), "loser": ends.min(axis=1)})
    fixed = {"attributes_amplitude": 1.0, "attributes_lengthscale": 2.0}
    engine = EP(xpgp, fixed=fixed | {"attributes_linear_share": 0.5}, space=space, check=False)
    posterior = engine.run(0, PreferenceData.from_tables(items, answers), individual=False)
    found = certify(posterior)
    assert found.verdict == "good" and found.efficiency > 0.5
    assert posterior.log_evidence is not None
    assert abs(found.log_evidence - posterior.log_evidence) <= 0.1


def test_hyperparameters_that_were_kept_are_named() -> None:
    table = pd.DataFrame(
        {"shift": 0.02, "shift_error": 0.01, "sd_ratio": 1.0, "sd_ratio_error": 0.01}, index=["a"]
    )
    numbers = {"k_hat": 0.3, "ess": 2000.0, "num_samples": 4000, "table": table}
    mixture: Any = SimpleNamespace(
        engine="EP",
        hyperparameter_draws={"attributes_amplitude": np.ones(2)},
        info={"held": ["attributes_lengthscale"]},
        r_hat=None,
        effective_draws=None,
    )
    found = _of_weights(mixture, table, numbers)
    assert found.verdict == "good"
    assert "hyperparameters other than attributes_lengthscale included, no" in found.sentence


@pytest.mark.slow
def test_a_mixture_is_certified_with_its_hyperparameters() -> None:
    rng = np.random.default_rng(0)
    items = pd.DataFrame({"x": rng.standard_normal(8)}, index=range(8))
    pairs = [rng.choice(8, 2, replace=False) for _ in range(30)]
    data = PreferenceData.from_tables(items, pd.DataFrame(pairs, columns=["winner", "loser"]))
    posterior: Any = EP(xpgp, check=False).run(0, data, individual=False)
    found, belief = certify(posterior), posterior.belief
    assert found.verdict == "good" and found.table is not None
    assert ", hyperparameters included," in found.sentence
    assert_allclose(found.table["mean"], belief.centred().mean())  # all components, not the 25
    narrow = replace(posterior, belief=replace(belief, scales=0.4 * belief.scales))
    assert certify(narrow).verdict in ("doubtful", "failed")


@pytest.mark.slow
def test_classifiers_by_example() -> None:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(list("abcde")).tolist() for _ in range(40)]
    rankings = relpref.Rankings.from_orders(orders)
    labels = [min(order.index("a"), 1) for order in orders]
    engine = EP(ranking_classifier, hyperparameters="maximize", check=False)
    found = certify(engine.run(0, rankings.with_labels(labels)))
    assert found.verdict in ("good", "doubtful")
    assert found.table is not None and len(found.table) == 40
