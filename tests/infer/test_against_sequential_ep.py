from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.data import PreferenceData

ROUND = [(i, (i + 1) % 12) for i in range(12)]
HUB = [(0, i) for i in range(1, 12)] + [(i, 0) for i in range(1, 12)]


def random(make: Callable[..., PreferenceData], hyper: Any) -> Any:
    return make(1), hyper


def hub(make: Callable[..., PreferenceData], hyper: Any) -> Any:
    """One item is in nearly every answer, and wins most of them."""
    others = [(i, i + 1) for i in range(1, 9)]
    count = [3] * 11 + [1] * 19
    return make(2, pairs=HUB + others, count=count), hyper | {"next_amplitude": 3.0}


def repeated(make: Callable[..., PreferenceData], hyper: Any) -> Any:
    return make(3, count=np.random.default_rng(3).integers(1, 51, 30)), hyper


def contradictory(make: Callable[..., PreferenceData], hyper: Any) -> Any:
    """Both answers to every question, most often twenty times."""
    both = [pair for k in range(15) for pair in ((k % 11, 11), (11, k % 11))][:22]
    others = [(i, j) for i, j in ROUND if 11 not in (i, j)][:8]
    return make(4, pairs=both + others, count=[20] * 22 + [1] * 8), hyper


def wide(make: Callable[..., PreferenceData], hyper: Any) -> Any:
    return make(5), hyper | {"attributes_amplitude": 30.0, "next_amplitude": 30.0}


def duplicates(make: Callable[..., PreferenceData], hyper: Any) -> Any:
    """Pairs of items with the same attributes and no relation that tells them apart: a singular
    covariance. Two answers are about such pairs.
    """
    attributes = np.repeat(np.random.default_rng(6).standard_normal((6, 2)), 2, axis=0)
    pairs = [(i, j) for i in range(12) for j in range(12) if i // 2 != j // 2][::4]
    pairs[:2] = (0, 1), (3, 2)
    return make(6, attributes=attributes, pairs=pairs), hyper | {"next_amplitude": 0.0}


@pytest.mark.parametrize("problem", [random, hub, repeated, contradictory, wide, duplicates])
def test_parallel_ep_reaches_the_sequential_fixed_point(
    problem: Callable[..., Any],
    make_data: Callable[..., PreferenceData],
    hyperparameters: dict[str, Any],
    fit: Any,
    parts: Any,
    oracle: Any,
) -> None:
    data, fixed = problem(make_data, hyperparameters)
    truth = oracle(data, sum(parts(data, fixed).values()))
    sd = np.sqrt(np.diag(truth.covariance))
    scale = np.outer(sd, sd)
    # The site of a row of count k is written as k equal ones.
    told = truth.precision > 0
    each = truth.precision / data.count
    for space in ("latent", "observation"):
        found = fit(data, fixed, space=space, tol=1e-10)
        assert_allclose(found.mean() / sd, truth.mean / sd, rtol=0, atol=1e-7)
        assert_allclose(found.covariance() / scale, truth.covariance / scale, rtol=0, atol=1e-7)
        assert abs(found.log_evidence - truth.log_evidence) <= 1e-7
        assert found.info["residual"] <= 1e-10
        assert_allclose(found.sites["precision"][told], each[told], rtol=1e-6, atol=1e-10)


def test_starting_from_the_solution_takes_one_sweep(data: PreferenceData, posterior: Any) -> None:
    from relpref.infer import EP
    from relpref.models import xpgp

    engine = EP(xpgp, fixed=posterior.hyperparameters)
    again = engine.run_from(posterior.sites, 0, data)
    assert posterior.info["space"] == "latent"  # there are more answers than items
    assert again.info["iterations"] <= 2
    assert_allclose(again.mean(), posterior.mean(), rtol=0, atol=1e-7)
