"""Likelihoods that are not log-concave: negative site precisions are kept while the posterior is
proper.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import special

import relpref
from relpref import PreferenceData
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.kernels import GaussianProcess, Precomputed
from relpref.likelihoods import Probit, ProbitComparison, TiltedMoments
from relpref.linalg import Dense
from relpref.models import preference_gp, xpgp

LABELS = ["a", "b", "c"]
COVARIANCE = np.array([[2.0, 0.3, -0.2], [0.3, 1.5, 0.4], [-0.2, 0.4, 2.0]])
LAPSE = 0.1
# Nine of ten say a > b > c; the one that says c > a contradicts them all.
TABLE = pd.DataFrame({"winner": list("abac"), "loser": list("bcca"), "count": [3, 3, 3, 1]})
DATA = PreferenceData.from_tables(pd.DataFrame({"height": [0.0, 1.0, 3.0]}, index=LABELS), TABLE)
OPTIONS: dict[str, Any] = {"attribute_kernel": Precomputed(COVARIANCE), "individual": False}
FIXED = {"attributes_amplitude": 1.0, "lapse": LAPSE}


def fit(engine: Any = EP, **options: Any) -> Any:
    given = {"fixed": FIXED, "hyperparameters": "maximize", **options}
    return engine(preference_gp, **given).run(0, DATA, likelihood=Probit(lapse=True), **OPTIONS)


@pytest.fixture(scope="module")
def fitted() -> Any:
    return fit()


def test_a_contradicting_answer_has_a_negative_precision(fitted: Any, on_a_grid: Any) -> None:
    """Mean, sd and log evidence are those on a grid."""
    first, second = (np.array([LABELS.index(x) for x in TABLE[end]]) for end in ("winner", "loser"))

    def log_likelihood(utility: Any) -> Any:
        chance = LAPSE / 2 + (1 - LAPSE) * special.ndtr(utility[:, first] - utility[:, second])
        return np.log(chance) @ TABLE["count"].to_numpy()

    exact = on_a_grid(COVARIANCE, log_likelihood, np.linspace(-6, 6, 61))
    assert fitted.info["result"] == "converged"
    assert fitted.info["space"] == "latent"
    assert fitted.sites["precision"].min() < -0.01
    assert_allclose(fitted.mean(), exact.mean, rtol=0, atol=0.035 * exact.sd.max())
    assert_allclose(fitted.sd(), exact.sd, rtol=0.03)
    assert abs(fitted.log_evidence - exact.log_evidence) <= 0.05


def test_laplace_climbs_where_the_curvature_is_negative() -> None:
    found = fit(Laplace)
    assert found.info["result"] == "converged"
    assert found.sites["precision"].min() < 0
    # At a mode: the gradient of log likelihood plus log prior is 0.
    with jax.enable_x64(True):

        def height(utility: Any) -> Any:
            program = handlers.substitute(preference_gp, data={**FIXED, "utility": utility})
            return log_density(program, (DATA,), {"likelihood": Probit(lapse=True), **OPTIONS}, {})[
                0
            ]

        slope = jax.jit(jax.grad(height))(found.mean())
    assert_allclose(slope, 0, atol=1e-6)


def test_the_lapse_rate_is_learned() -> None:
    found = fit(fixed={"attributes_amplitude": 1.0})
    assert 0 < found.hyperparameters["lapse"] < 0.5


def test_space_gap_is_refused(fitted: Any) -> None:
    with pytest.raises(UnsupportedProgramError, match="space='auto'"):
        fit(space="observation")


def test_the_report_says_that_some_answers_are_random(fitted: Any, tmp_path: Any) -> None:
    # Far apart, the answer is a lapse or not.
    far = fit(fixed={"attributes_amplitude": 50.0, "lapse": LAPSE}, throw=False)
    assert far.prefer([("a", "c")])["probability"][0] < 1 - LAPSE / 2 + 1e-9
    relpref.report.write(fitted, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Some answers are given at random" in text and "10% of the answers" in text
    assert "84%" not in text  # what a gap of 1 means without lapses
    updated, again = (fitted.update(TABLE.head(1), quick=quick) for quick in (True, False))
    assert_allclose(updated.mean(), again.mean(), atol=0.1)


def test_reported_probabilities_know_no_lapses() -> None:
    table = pd.DataFrame({"first": ["a"], "second": ["b"], "probability": [0.8]})
    data = PreferenceData.from_tables(
        pd.DataFrame({"height": [0.0, 1.0, 3.0]}, index=LABELS), table
    )
    with pytest.raises(DataError, match=r"Probit\(lapse=True\).*'probability'.*Probit\(\)"):
        Probit(lapse=True).parameters(data.comparisons)


class Repelling(ProbitComparison):
    """Its probability grows like exp(z²/2): two answers alike outgrow a prior of variance 0.6."""

    log_concave = False

    def standard(self, value: Any, mean: Any, variance: Any) -> TiltedMoments:
        left = jnp.where(variance < 1, 1 - variance, jnp.nan)
        return TiltedMoments(0.5 * (mean**2 / left - jnp.log(left)), mean / left, -1 / left)


def repelling() -> None:
    f = numpyro.sample("f", GaussianProcess(Dense(0.6 * jnp.eye(3))))
    with numpyro.plate("row", 9):
        numpyro.sample("answer", Repelling(f[np.arange(9) % 3]), obs=np.ones(9, int))


def test_an_improper_posterior_ends_with_a_code() -> None:
    with pytest.raises(InferenceError, match="^diverged"):
        EP(repelling, hyperparameters="maximize").run(0)


def test_a_failed_search_names_what_failed_first() -> None:
    """Sites that diverged are no start: from them a last run would say "nonfinite"."""
    table = pd.DataFrame({"winner": list("bcabba"), "loser": list("cacccc")})
    table["weight"] = [2, 1, 4, 3, 4, 1]
    given: Any = {"fixed": {"individual_amplitude": 4.0}, "hyperparameters": "maximize"}
    with pytest.raises(InferenceError, match="^diverged"):
        relpref.fit(answers=table, likelihood=Probit(lapse=True), **given)


@pytest.mark.parametrize(
    ("wins", "bound"),
    [
        # Sds were up to 15 % too small, as little of the lattice was at wide posteriors.
        (["0201000", "2001010", "2002000", "0200011", "1121011", "3110202", "2100310"], 0.08),
        # They were half as large again as the exact ones, which a check did not put right. Rare
        # draws decide here: the exact sds of 1,000,000 draws differ by up to 8 %.
        (["0122300", "0001020", "0100010", "0310104", "0210001", "0012000", "1110110"], 0.2),
        # EP diverged at points of large amplitude, which were left out: sds were .86 of the exact.
        (["011100", "000010", "020302", "010000", "110002", "000210"], 0.06),
    ],
)
def test_learned_lapses_beside_answers_that_contradict_each_other(
    wins: list[str], bound: float
) -> None:
    """Compare with weighted draws of the prior."""
    counts = np.array([[int(number) for number in row] for row in wins])
    first, second = np.nonzero(counts)
    table = pd.DataFrame({"winner": first, "loser": second, "count": counts[first, second]})
    posterior = relpref.fit(answers=table, likelihood=Probit(lapse=True))
    rng = np.random.default_rng(0)
    amplitude, lapse = 2 * np.abs(rng.standard_normal(1_000_000)), rng.beta(1, 19, 1_000_000)
    utility = amplitude[:, None] * rng.standard_normal((len(amplitude), len(wins)))
    chance = special.ndtr(utility[:, first] - utility[:, second])
    log_likelihood = np.log(chance + lapse[:, None] * (0.5 - chance)) @ table["count"].to_numpy()
    weights = special.softmax(log_likelihood)
    assert 1 / np.sum(weights**2) > 2000
    pairs = np.triu_indices(len(wins), 1)
    gaps, covariance = utility[:, pairs[0]] - utility[:, pairs[1]], posterior.covariance()
    mean = weights @ gaps
    sd = np.sqrt(weights @ np.square(gaps - mean))
    place = [posterior.data.labels.index(row) for row in range(len(wins))]
    moments = np.asarray(posterior.mean())[place], np.asarray(covariance)[np.ix_(place, place)]
    assert_allclose(moments[0][pairs[0]] - moments[0][pairs[1]], mean, atol=0.05 * sd.max())
    both = np.diag(moments[1])
    variance = both[pairs[0]] + both[pairs[1]] - 2 * moments[1][pairs]
    assert_allclose(np.sqrt(variance) / sd, 1, atol=bound)


def test_a_search_that_stops_has_another_start() -> None:
    """One evaluation finds another fixed point of EP with a larger evidence, where it stopped."""
    table = pd.DataFrame(
        [("i0", "i1", 1), ("i0", "i2", 8), ("i1", "i0", 10)]
        + [("i1", "i2", 5), ("i2", "i0", 2), ("i2", "i1", 1)],
        columns=["winner", "loser", "count"],
    )
    posterior = relpref.fit(answers=table, likelihood=Probit(lapse=True))
    assert posterior.info["result"] == "converged"
    assert posterior.info["gradient_norm"] < 0.01


def test_three_hyperparameters_of_few_answers_are_averaged_on_a_lattice() -> None:
    """Against weighted draws of the prior: by a rule of few points an sd was .79 of the exact one."""
    rows = "122122122011022022021012021"
    cells = np.array(list(rows)).reshape(-1, 3)
    table = pd.DataFrame(cells, columns=["winner", "loser", "strength"])
    table["strength"] = table["strength"].astype(int)
    likelihood = Probit(lapse=True)
    posterior: Any = relpref.fit(answers=table, likelihood=likelihood)
    assert posterior.info["directions"] == 3

    def drawn(key: Any) -> Any:
        program = handlers.seed(xpgp, key)
        sites = handlers.trace(program).get_trace(posterior.data, likelihood=likelihood)
        answers = sites["answer"]
        each = answers["scale"] * answers["fn"].log_prob(answers["value"])
        return sites["utility"]["value"], jnp.sum(each)

    with jax.enable_x64(True):
        utility, log_likelihood = map(
            np.asarray, jax.jit(jax.vmap(drawn))(jax.random.split(jax.random.key(0), 200_000))
        )
    weights = special.softmax(log_likelihood)
    assert 1 / np.sum(weights**2) > 8000  # sds within .02
    first, second = np.triu_indices(posterior.data.num_items, 1)
    gaps = utility[:, first] - utility[:, second]
    sd = np.sqrt(weights @ np.square(gaps - weights @ gaps))
    covariance = np.asarray(posterior.covariance())
    variance = np.diag(covariance)[first] + np.diag(covariance)[second]
    assert_allclose(np.sqrt(variance - 2 * covariance[first, second]), sd, rtol=0.1)
