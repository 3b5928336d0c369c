"""Laplace's approximation of lists of Plackett and Luce: against Newton's steps with the closed
form, differences, and a sampler.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

from relpref.errors import UnsupportedProgramError
from relpref.infer import Laplace
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ListComparison, ListSizes, LogisticComparison
from relpref.linalg import Dense

ITEMS = 5
ORDERS = [[0, 1, 2], [3, 1, 4], [2, 0, 3], [4, 0, 1]]  # the last is a choice of 4
PAIRS = [(0, 3), (2, 4)]
ROWS = np.array(
    [
        *[
            (number, *pair)
            for number, (a, b, c) in enumerate(ORDERS[:3])
            for pair in ((a, b), (b, c))
        ],
        *[(3, 4, 0), (3, 4, 1)],
        *[(-1, *pair) for pair in PAIRS],
    ]
)
UNIT = np.exp(-0.3 * np.abs(np.arange(5)[:, None] - np.arange(5)))


def program(scale: float) -> None:
    u = numpyro.sample("utility", GaussianProcess(Dense(jnp.asarray(UNIT))))
    number, winner, loser = ROWS.T
    single = LogisticComparison(u[winner] - u[loser], scale=scale)
    likelihood = ListComparison(single, number, winner, loser, ListSizes(4, 2, 3, False))
    with numpyro.plate("row", len(ROWS)):
        numpyro.sample("answer", likelihood, obs=np.ones(len(ROWS), int))


def fit(scale: float, **options: Any) -> Any:
    return Laplace(program, **options).run(0, scale)


def plackett_luce(utility: Any) -> tuple[float, Any, Any]:
    """Log probability of the answers, and its first and second derivatives."""
    total, slope, second = 0.0, np.zeros(ITEMS), np.zeros((ITEMS, ITEMS))
    stages = [order[at:] for order in ORDERS[:3] for at in (0, 1)] + [ORDERS[3], *map(list, PAIRS)]
    for left in stages:
        share = np.zeros(ITEMS)
        share[left] = np.exp(utility[left])
        total += utility[left[0]] - np.log(share.sum())
        share /= share.sum()
        slope += np.eye(ITEMS)[left[0]] - share
        second += np.outer(share, share) - np.diag(share)
    return total, slope, second


def test_mode_of_plackett_and_luce() -> None:
    scale, mode = 0.7, np.zeros(ITEMS)
    inverse = np.linalg.inv(UNIT)
    for _ in range(30):
        total, slope, second = plackett_luce(mode / scale)
        mode = mode + np.linalg.solve(inverse - second / scale**2, slope / scale - inverse @ mode)
    total, _, second = plackett_luce(mode / scale)
    covariance = np.linalg.inv(inverse - second / scale**2)
    volume = np.linalg.slogdet(np.eye(ITEMS) - UNIT @ second / scale**2)[1]
    posterior = fit(scale)
    assert posterior.mean(site="utility") == pytest.approx(mode, abs=1e-4)
    assert posterior.covariance(site="utility") == pytest.approx(covariance, abs=1e-4)
    assert posterior.log_evidence == pytest.approx(
        total - 0.5 * mode @ inverse @ mode - 0.5 * volume, abs=2e-4
    )


def test_refused() -> None:
    with pytest.raises(UnsupportedProgramError, match="space='auto'"):
        fit(0.7, space="observation")
