from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.data import PreferenceData
from relpref.errors import DataError, UnknownLabelError, UnsupportedProgramError
from relpref.infer import EP, from_samples
from relpref.kernels import Precomputed
from relpref.models import xpgp

# One with attributes alone, one with a link to an old item, two that are linked to each other.
NEWCOMERS = pd.DataFrame(
    {"x": [0.5, -2.0, 1.0], "y": [1.5, 0.0, -3.0]}, index=["alone", "linked", "both"]
)
LINKS = pd.DataFrame({"source": ["linked", "both", "e4"], "target": ["e3", "linked", "both"]})


def arrive(posterior: Any) -> Any:
    return posterior.extend(NEWCOMERS, {"next": LINKS})


@pytest.fixture(scope="module")
def extended(posterior: Any) -> Any:
    return arrive(posterior)


def test_it_is_the_model_fitted_from_the_start(
    extended: Any,
    data: PreferenceData,
    parts: Any,
    oracle: Any,
    hyperparameters: dict[str, Any],
) -> None:
    prior = parts(extended.data, hyperparameters, reference=data)
    assert all(part.shape == (15, 15) for part in prior.values())
    truth = oracle(extended.data, sum(prior.values()))
    assert_allclose(extended.mean(), truth.mean, rtol=0, atol=1e-6)
    assert_allclose(extended.covariance(), truth.covariance, rtol=0, atol=1e-6)
    assert abs(extended.log_evidence - truth.log_evidence) <= 1e-6
    assert extended.info["result"] == "converged"


def test_old_answers_and_hyperparameters_stay(extended: Any, posterior: Any) -> None:
    new = ["alone", "linked", "both"]
    assert extended.data.labels == (*posterior.data.labels, *new)
    assert extended.data.num_answers == posterior.data.num_answers
    for name, value in posterior.hyperparameters.items():
        assert_array_equal(extended.hyperparameters[name], value)
    assert list(extended.ranking().index.sort_values()) == sorted(extended.data.labels)
    assert len(extended.prefer([("alone", "e0"), ("both", "linked")])) == 2
    # Newcomers are less certain than those who were compared.
    sd = extended.utilities()["sd"]
    assert sd["alone"] > sd.drop(new).max()


def test_after_a_round_trip(extended: Any, posterior: Any, reloaded: Any) -> None:
    later = arrive(reloaded(posterior))
    assert_array_equal(later.mean(), extended.mean())
    assert_array_equal(later.covariance(), extended.covariance())
    again = reloaded(later)
    assert_array_equal(again.mean(), extended.mean())
    pd.testing.assert_frame_equal(again.explain(), extended.explain())


@pytest.mark.slow
def test_two_steps_equal_one(extended: Any, posterior: Any) -> None:
    first = posterior.extend(NEWCOMERS.loc[["alone", "linked"]], {"next": LINKS.iloc[:1]})
    second = first.extend(NEWCOMERS.loc[["both"]], {"next": LINKS.iloc[1:]})
    assert_allclose(second.mean(), extended.mean(), rtol=0, atol=1e-6)
    assert_allclose(second.covariance(), extended.covariance(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((), DataError, "newcomers"),
        ((NEWCOMERS.rename(index={"alone": "e3"}),), DataError, "'e3'"),
        (
            (NEWCOMERS.rename(columns={"y": "weight"}),),
            DataError,
            "lack the attribute 'y'",
        ),
        ((NEWCOMERS, {"cites": LINKS}), DataError, "'cites'"),
        ((NEWCOMERS, {"next": LINKS.replace("e3", "nobody")}), UnknownLabelError, "'nobody'"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, error: Any, message: str, posterior: Any) -> None:
    with pytest.raises(error, match=message):
        posterior.extend(*given)


def test_what_knows_no_prior_of_newcomers(data: PreferenceData, samples: dict[str, Any]) -> None:
    draws: Any = from_samples(samples, xpgp, data)
    with pytest.raises(UnsupportedProgramError, match="EP"):
        draws.extend(NEWCOMERS)
    engine = EP(xpgp, fixed={"attributes_amplitude": 1.0}, check=False)
    kernel = Precomputed(np.eye(data.num_items))
    given: Any = engine.run(0, data.without_relation("next"), attribute_kernel=kernel)
    with pytest.raises(UnsupportedProgramError, match="refit with the larger matrix"):
        given.extend(NEWCOMERS)
