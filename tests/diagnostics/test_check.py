"""Posteriors against NUTS: one small problem in earnest; what is made of its draws, by draws from
elsewhere. Seeds are fixed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from relpref.data import PreferenceData
from relpref.diagnostics import check
from relpref.diagnostics.nuts import Chains, well_answered
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Laplace, RelationPosterior, UtilityPosterior, from_samples
from relpref.models import xpgp
from relpref.posterior.gaussian import DrawsBelief, GaussianBelief


@pytest.mark.slow
def test_nuts_finds_what_quadrature_finds(posterior: UtilityPosterior, gap: Any) -> None:
    found = check(posterior, draws=1200, chains=2, warmup=200)
    assert (found.verdict, found.ok) == ("agrees", True)
    assert found.sentence.startswith("EP agrees with NUTS")
    mean, variance, _ = gap
    error = 5 / np.sqrt(found.ess)  # five standard errors
    assert found.ess > 200
    assert_allclose(
        found.table["exact_mean"], [mean / 2, -mean / 2], atol=error * np.sqrt(variance) / 2
    )
    assert_allclose(found.table["exact_sd"], np.sqrt(variance) / 2, rtol=error)
    assert np.max(np.abs(found.table["shift"])) <= error
    assert found.probability_shift <= 0.05


@pytest.fixture
def nuts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let draws from elsewhere take the place of those of NUTS."""

    def instead(belief: GaussianBelief, size: int = 2000, **more: Any) -> None:
        def sample(_: Any, chosen: Any, *__: Any, **___: Any) -> Chains:
            draws = belief.draw(size, np.random.default_rng(0))[:, chosen].reshape(
                4, -1, len(chosen)
            )
            given: dict[str, Any] = {"hyperparameters": {}, "divergences": 0} | more
            return Chains(draws + np.asarray(given.pop("drift", np.zeros((4, 1, 1)))), **given)

        monkeypatch.setattr("relpref.diagnostics.nuts.sample", sample)

    return instead


def test_what_differs_is_said(
    posterior: UtilityPosterior, wrong: Any, nuts: Callable[..., None]
) -> None:
    nuts(posterior.belief)
    assert check(posterior).ok
    found = check(wrong(0.8))
    assert found.verdict == "differs"
    assert "2 of 2 means" in found.sentence
    assert np.all(np.sign(found.table["shift"]) == [1, -1])
    narrow = check(wrong(0.0, 0.8))
    assert narrow.verdict == "differs"
    assert "2 of 2 sds" in narrow.sentence
    assert "means" not in narrow.sentence.partition("Off by more")[2]
    assert_allclose(narrow.table["sd_ratio"], 0.8, atol=5 * narrow.table["sd_ratio_error"].max())


def test_chains_that_disagree_accuse_nobody(
    posterior: UtilityPosterior, nuts: Callable[..., None]
) -> None:
    stuck = np.zeros((4, 1, 2))
    stuck[3, 0, 0] = 3.0
    nuts(posterior.belief, drift=stuck)
    found = check(posterior)
    assert found.verdict == "undecided"
    assert "NUTS did not converge" in found.sentence
    nuts(posterior.belief, size=100)
    assert check(posterior).verdict == "undecided"  # too few draws
    nuts(posterior.belief, divergences=3)
    assert "3 divergent steps" in check(posterior).sentence


def test_hyperparameters_are_listed(posterior: Any, nuts: Callable[..., None]) -> None:
    amplitude = np.linspace(0.5, 1.5, 2000)
    nuts(posterior.belief, hyperparameters={"attributes_amplitude": amplitude})
    found = check(posterior, hyperparameters=True)
    assert "over hyperparameters" in found.sentence and found.hyperparameters is not None
    row = found.hyperparameters.loc["attributes_amplitude"]
    assert row["value"] == 1.0 and row["nuts_mean"] == pytest.approx(1.0)
    with pytest.raises(UnsupportedProgramError, match="priors of its own"):
        origin = replace(posterior.origin, complete=False)
        check(replace(posterior, origin=origin), hyperparameters=True)


def test_nothing_to_compare(posterior: UtilityPosterior) -> None:
    without = replace(posterior, data=posterior.data.select_comparisons(np.zeros(0, dtype=int)))
    assert check(without).ok
    assert "no answers" in check(without).sentence
    relation = object.__new__(RelationPosterior)
    object.__setattr__(relation, "info", {"result": "converged", "solver": "eigen"})
    assert "linear equations" in check(relation).sentence
    with pytest.raises(InferenceError, match="no posterior to check"):
        check(replace(posterior, info={"engine": "EP", "result": "nonfinite"}))
    with pytest.raises(UnsupportedProgramError, match="does not know its program"):
        check(replace(posterior, origin=None))
    wrong: list[dict[str, Any]] = [{"max_items": 1}, {"draws": 5}, {"chains": 0}, {"warmup": 1}]
    for options in wrong:
        with pytest.raises(DataError, match=next(iter(options))):
            check(posterior, **options)


@pytest.fixture(scope="module")
def chain() -> PreferenceData:
    """Sixty items in a row; the first twenty were asked about most."""
    rng = np.random.default_rng(2)
    labels = [f"e{row}" for row in range(60)]
    first = np.concatenate([rng.integers(0, 20, 150), rng.integers(20, 59, 30)])
    second = np.where(first < 20, (first + rng.integers(1, 20, 180)) % 20, first + 1)
    answers = pd.DataFrame(
        {"winner": np.asarray(labels)[first], "loser": np.asarray(labels)[second]}
    )
    items = pd.DataFrame({"x": rng.standard_normal(60)}, index=labels)
    return PreferenceData.from_tables(items, answers)


def test_well_answered_items_are_asked_about_together(chain: PreferenceData) -> None:
    chosen = well_answered(chain, 20)
    assert set(chosen) == set(range(20))
    assert len(well_answered(chain, 100)) == 60
    # The graph of their answers is connected as long as there is one.
    groups = {int(at) for at in chosen}
    reached, edges = (
        {int(chosen[0])},
        list(zip(chain.winner.tolist(), chain.loser.tolist(), strict=True)),
    )
    for _ in range(20):
        reached |= {j for i, j in edges if i in reached} | {i for i, j in edges if j in reached}
    assert groups <= reached


@pytest.mark.slow
def test_a_part_of_the_items_under_the_whole_prior(chain: PreferenceData) -> None:
    posterior = EP(xpgp, hyperparameters="maximize").run(0, chain)
    found = check(posterior, max_items=20)
    assert found.ok
    assert len(found.table) == 20
    assert "20 of 60 items" in found.sentence
    draws = replace(posterior, belief=DrawsBelief(posterior.sample(500)))
    with pytest.raises(DataError, match="max_items=60"):
        check(draws, max_items=20)


@pytest.mark.slow
def test_engines_in_earnest(chain: PreferenceData) -> None:
    """EP agrees at its hyperparameters, Laplace does not."""
    few = chain.select_comparisons(np.arange(6))
    fixed = {"attributes_amplitude": 2.0, "attributes_lengthscale": 0.5}
    fixed["attributes_linear_share"] = 0.5
    for engine, verdict in ((EP, "agrees"), (Laplace, "differs")):
        posterior = engine(xpgp, fixed=fixed, check=False).run(0, few, individual=False)
        assert check(posterior).verdict == verdict


@pytest.mark.slow
def test_draws_are_compared_too(posterior: UtilityPosterior) -> None:
    rng = np.random.default_rng(0)
    draws = posterior.belief.draw(4000, rng)
    origin = posterior.origin
    assert origin is not None
    samples = {"utility": draws, "attributes_amplitude": np.ones(4000)}
    sampled = from_samples(samples, xpgp, *origin.args, num_chains=4, **origin.kwargs)
    # The amplitude, which these draws hold at 1, is sampled by NUTS: the draws are too narrow.
    found = check(sampled)
    assert found.hyperparameters is not None
    assert found.verdict in ("differs", "undecided")
