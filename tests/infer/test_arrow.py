"""Rows that share noise: against the noise as latents, dense algebra, sampling, and what is
compiled against NumPy.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from relpref.infer import EP
from relpref.infer.arrow import Blocks, Kind, middle_of
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ListComparison, ListSizes, ProbitComparison
from relpref.likelihoods.chances import NOISE
from relpref.linalg import Dense

ITEMS = 7


class Rows:
    """Rows of lists, in which 0, 1, ... are the blocks of random items, and single comparisons at
    the end.
    """

    def __init__(self, lists: list[list[int]], single: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        rows = []
        for number, blocks in enumerate(lists):
            items = rng.permutation(ITEMS)[: len(blocks)]
            for one, above in zip(items, blocks, strict=True):
                for other, below in zip(items, blocks, strict=True):
                    if below == above + 1:
                        rows.append((number, one, other))
        rows += [(-1, *rng.permutation(ITEMS)[:2]) for _ in range(single)]
        self.number, self.winner, self.loser = np.array(rows).T
        self.sizes = ListSizes(len(lists), 12, 7, True)
        points = rng.normal(size=(ITEMS, 2))
        self.unit = np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(-1)) + 0.1 * np.eye(
            ITEMS
        )
        self.ones = np.ones(len(rows), int)


MIXED = [[0, 1, 2, 3], [0, 1, 1, 1], [0, 1, 1, 2], [0, 1], [0, 0, 1, 1], [0, 1, 2], [0, 1, 1, 1, 1]]
SEVERAL = Rows(3 * MIXED, 6)
FEW = Rows([[0, 1, 2], [0, 1, 1]], 1, 5)


def prior(unit: Any) -> Any:
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    covariance = Dense(jnp.square(amplitude) * jnp.asarray(unit))
    return scale, numpyro.sample("utility", GaussianProcess(covariance))


def exact(rows: Rows, unit: Any, kind: Any = ProbitComparison) -> None:
    scale, u = prior(unit)
    single = kind(u[rows.winner] - u[rows.loser], scale=scale)
    likelihood = ListComparison(single, rows.number, rows.winner, rows.loser, rows.sizes)
    with numpyro.plate("row", len(rows.ones)):
        numpyro.sample("answer", likelihood, obs=rows.ones)


def with_latent_noise(rows: Rows, unit: Any, width: float = 1e-4) -> None:
    """The noise of each item of each list as one more latent, and rows nearly hard: the sign but
    for ``width``.
    """
    scale, u = prior(unit)
    e = numpyro.sample("noise", dist.Normal(jnp.zeros(rows.sizes.lists * ITEMS), NOISE).to_event(1))
    listed = rows.number >= 0
    at = ITEMS * np.maximum(rows.number, 0)
    shared = jnp.where(listed, e[at + rows.winner] - e[at + rows.loser], 0.0)
    gap = u[rows.winner] - u[rows.loser] + scale * shared
    with numpyro.plate("row", len(rows.ones)):
        numpyro.sample(
            "answer", ProbitComparison(gap, scale=jnp.where(listed, width, scale)), obs=rows.ones
        )


KNOWN = {"amplitude": 1.3, "scale": 0.8}


def fit(program: Any, *args: Any, **options: Any) -> Any:
    options = {"tol": 1e-10, "fixed": KNOWN, **options}
    return EP(program, **options).run(0, *args)


@pytest.mark.parametrize("space", ["latent", "observation"])
@pytest.mark.parametrize("rows", [SEVERAL, FEW])
def test_noise_as_latents(rows: Rows, space: str) -> None:
    """The fixed point is the same; what is left is the width of rows that are not quite hard."""
    posterior = fit(exact, rows, rows.unit, space=space)
    slow = fit(with_latent_noise, rows, rows.unit)
    sd = slow.sd(site="utility")
    assert (
        np.abs(posterior.mean(site="utility") - slow.mean(site="utility")).max() < 1e-6 * sd.max()
    )
    assert posterior.covariance(site="utility") == pytest.approx(
        slow.covariance(site="utility"), abs=1e-6
    )
    assert posterior.log_evidence == pytest.approx(slow.log_evidence, abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e8])
def test_orders_are_chains(scale: float) -> None:
    rng, count, length = np.random.default_rng(0), 40, 9
    # Rows of 40 orders of ten items each, shuffled: neighbors in an order share an item's noise.
    place = rng.permutation(count * length)
    order, above = np.divmod(place, length)
    item = np.argsort(rng.random((count, length + 1)), axis=1)
    blocks = Blocks.of([Kind.of_gaps(order, item[order, above], item[order, above + 1])])
    (group,) = blocks.groups
    assert group.chain
    (factor,) = blocks.factors([np.full(len(place), 1.3)])
    precision = scale * np.exp(rng.standard_normal((count, length)))
    precision[rng.random(precision.shape) < 0.1] = 0.0
    chain: Any = middle_of(precision, factor, True)
    dense: Any = middle_of(precision, factor)
    largest = np.abs(dense.weights).max()
    np.testing.assert_allclose(chain.weights, dense.weights, rtol=0, atol=1e-13 * largest)
    np.testing.assert_allclose(chain.log_determinant, dense.log_determinant, rtol=1e-12)
    # A choice of one item of three shares its noise among all of its rows.
    choice = Kind.of_gaps(np.zeros(3, int), np.zeros(3, int), np.arange(1, 4))
    assert not Blocks.of([choice]).groups[0].chain
