"""Answers that count for more or for less."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpyro.infer.util import log_density
from scipy.special import logsumexp, ndtr

import relpref
from relpref import PreferenceData
from relpref.diagnostics import leave_one_out
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP
from relpref.models import xpgp

ITEMS = ["a", "b", "c", "d"]
FIXED = {"individual_amplitude": 1.0}


def answers(seed: int = 0, number: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    two = np.array([rng.choice(len(ITEMS), 2, replace=False) for _ in range(number)])
    names = np.array(ITEMS)
    return pd.DataFrame(
        {
            "winner": names[two[:, 0]],
            "loser": names[two[:, 1]],
            "tie": rng.uniform(size=number) < 0.3,
            "weight": rng.choice([0.2, 0.7, 1.0, 2.5], number),
        }
    )


def fitted(table: pd.DataFrame, **options: Any) -> Any:
    return EP(xpgp, fixed=FIXED | options).run(0, PreferenceData.from_tables(ITEMS, table))


def test_posterior_and_evidence_are_those_of_the_powered_likelihood() -> None:
    table = answers()
    posterior = fitted(table, tie_margin=0.4)
    first, second = (np.array([ITEMS.index(x) for x in table[end]]) for end in ("winner", "loser"))
    draws = np.random.default_rng(1).standard_normal((200_000, len(ITEMS)))
    gap = draws[:, first] - draws[:, second]
    tied = ndtr(0.4 - gap) - ndtr(-0.4 - gap)
    log_p = np.log(np.where(table["tie"], tied, ndtr(gap - 0.4))) @ table["weight"].to_numpy()
    weights = np.exp(log_p - logsumexp(log_p))
    mean = weights @ draws
    sd = np.sqrt(weights @ np.square(draws - mean))
    assert_allclose((posterior.belief.mean() - mean) / sd, 0, atol=0.03)
    assert_allclose(posterior.belief.sd(), sd, rtol=0.03)
    assert abs(posterior.log_evidence - (logsumexp(log_p) - np.log(len(draws)))) < 0.03


def test_weights_of_one_are_no_weights_exactly() -> None:
    table = answers()
    without = fitted(table.drop(columns="weight"))
    ones = fitted(table.assign(weight=1.0))
    assert ones.data.comparisons.weight is None
    assert ones.log_evidence == without.log_evidence
    assert_array_equal(ones.belief.mean(), without.belief.mean())


def test_rows_of_equal_weight_are_merged_and_others_are_not() -> None:
    table = pd.DataFrame({"winner": "a", "loser": "b", "weight": [0.5, 0.5, 0.25]})
    found = PreferenceData.from_tables(ITEMS, table).comparisons
    assert_array_equal(found.count, [1, 2])
    assert_array_equal(found.weight, [0.25, 0.5])


def test_samplers_see_powers_of_the_probabilities() -> None:
    table = answers().query("not tie").drop(columns="tie")
    utility = np.array([0.3, -0.2, 0.8, 0.0])
    values = {"utility": jnp.asarray(utility), "individual_amplitude": 1.0}
    with jax.enable_x64(True):
        heights = [
            jax.jit(lambda values, data=data: log_density(xpgp, (data,), {}, values)[0])(values)
            for each in (table, table.drop(columns="weight"))
            for data in [PreferenceData.from_tables(ITEMS, each)]
        ]
    first, second = (np.array([ITEMS.index(x) for x in table[end]]) for end in ("winner", "loser"))
    gained = (table["weight"].to_numpy() - 1) @ np.log(ndtr(utility[first] - utility[second]))
    assert_allclose(heights[0] - heights[1], gained, rtol=1e-6)


def test_it_is_said_that_there_is_no_sampling_model(tmp_path: Path, reloaded: Any) -> None:
    posterior = relpref.fit(ITEMS, answers(), fixed=FIXED | {"tie_margin": 0.4})
    assert "no model of how people answer" in posterior.info["weights"]
    assert any("no model of how people answer" in note for note in posterior.info["notes"])
    again = reloaded(posterior)
    assert_array_equal(again.data.comparisons.weight, posterior.data.comparisons.weight)
    assert "weighted likelihood" in posterior.report(tmp_path / "report.html").read_text()
    with pytest.raises(UnsupportedProgramError, match="answers with weights are not scored"):
        leave_one_out(posterior)


def test_more_answers_join_those_with_weights() -> None:
    table = answers()
    posterior = fitted(table, tie_margin=0.4)
    more = posterior.update([("a", "b"), ("a", "c")])
    assert more.data.comparisons.weight is not None
    together = fitted(
        pd.concat(
            [table, pd.DataFrame({"winner": "a", "loser": ["b", "c"], "tie": False, "weight": 1.0})]
        ),
        tie_margin=0.4,
    )
    assert_allclose(more.belief.mean(), together.belief.mean(), atol=1e-6)
    quick = posterior.update([("a", "b"), ("a", "c")], quick=True)
    assert_allclose(quick.belief.mean(), together.belief.mean(), atol=0.02)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), "much"])
def test_what_is_no_weight_is_refused_with_its_row(wrong: Any) -> None:
    table = answers().astype({"weight": object})
    table.loc[3, "weight"] = wrong
    with pytest.raises(DataError, match=r"row 3.*'weight'"):
        PreferenceData.from_tables(ITEMS, table)


def test_lists_have_no_weights() -> None:
    table = pd.DataFrame(
        {
            "list": [1, 1, 1, 2, 2],
            "item": list("abccd"),
            "place": [1, 2, 3, 1, 2],
            "weight": [1, 1, 1, 0.5, 0.5],
        }
    )
    data = PreferenceData.from_tables(ITEMS, table)
    with pytest.raises(DataError, match="leave the column 'weight' out"):
        EP(xpgp).run(0, data)
