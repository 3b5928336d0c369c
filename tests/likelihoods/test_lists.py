"""Probabilities of orders, choices and other ordered partitions, against sums, closed forms, draws
and differences.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp

from relpref.likelihoods import (
    ListComparison,
    ListSizes,
    LogisticComparison,
    ProbitComparison,
)
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.orders import GAUSSIAN, GUMBEL, Noise
from relpref.likelihoods.orders import log_probability as in_any_precision

compiled = jax.jit(in_any_precision, static_argnames=("noise", "tied"))
slope_of_sum = jax.jit(
    jax.grad(lambda u, block, noise, tied: in_any_precision(u, block, noise, tied=tied).sum()),
    static_argnums=(2, 3),
)


def is_tied(block: Any) -> bool:
    return any(np.bincount(row[row >= 0])[1:-1].max(initial=0) > 1 for row in block)


def log_probability(utility: Any, block: Any, noise: Noise = GAUSSIAN) -> Any:
    """By NumPy, with Gaussian noise."""
    utility, block = np.asarray(utility, float), np.asarray(block)
    if noise is GUMBEL:
        return by_jax(utility, block, noise)
    return in_any_precision(utility, block, tied=is_tied(block))


def by_jax(utility: Any, block: Any, noise: Noise) -> Any:
    """Of more lists and items, so that few sizes are compiled."""
    tied, number = is_tied(block), len(block)
    room = (0, -number % (16 if tied else 128)), (0, 6 - block.shape[1])
    wide = np.pad(utility, room), np.pad(block, room, constant_values=-1)
    with jax.enable_x64(True):
        return np.asarray(compiled(*map(jnp.asarray, wide), noise=noise, tied=tied))[:number]


def chance(utility: Any, block: Any, noise: Noise = GAUSSIAN) -> Any:
    return np.exp(log_probability(np.atleast_2d(utility), np.atleast_2d(block), noise))


def partitions(blocks: list[int], number: int) -> Iterator[list[int]]:
    """All orders of the items that agree with an ordered partition."""
    for order in permutations(range(number)):
        if all(blocks[one] <= blocks[other] for one, other in pairwise(order)):
            yield list(order)


@pytest.mark.parametrize("noise", [GAUSSIAN, GUMBEL])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_orders_add_up(noise: Noise, size: int) -> None:
    utility = np.random.default_rng(size).normal(0, 1.5, size)
    orders = np.array(list(permutations(range(size))))
    total = chance(utility[orders], np.tile(np.arange(size), (len(orders), 1)), noise).sum()
    assert total == pytest.approx(1, abs=1e-12 if noise is GUMBEL else 1e-5)


@pytest.mark.parametrize("noise", [GAUSSIAN, GUMBEL])
@pytest.mark.parametrize(
    "blocks", [[0, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 2], [0, 0, 1, 1, 1, 2], [0, 1, 2, 2]]
)
def test_a_partition_is_the_sum_of_its_orders(noise: Noise, blocks: list[int]) -> None:
    utility = np.random.default_rng(len(blocks)).normal(0, 1.0, len(blocks))
    orders = np.array(list(partitions(blocks, len(blocks))))
    each = chance(utility[orders], np.tile(np.arange(len(blocks)), (len(orders), 1)), noise)
    error = 1e-11 if noise is GUMBEL else 2e-4
    assert chance(utility, blocks, noise)[0] == pytest.approx(each.sum(), rel=error)


def test_two_items_are_a_comparison() -> None:
    gap = np.array([-60.0, -20.0, -3.0, 0.0, 2.0, 30.0])
    found = log_probability(np.stack([gap, 0 * gap], axis=1), np.tile([0, 1], (6, 1)))
    assert found == pytest.approx(log_ndtr(gap), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("places", [1, 2, 3, 5])
def test_plackett_luce(places: int) -> None:
    """Orders of the first few among 2 to 6 items, far from each other, too."""
    rng = np.random.default_rng(places)
    utility = np.concatenate([rng.normal(0, spread, (20, 6)) for spread in (0.1, 1.0, 5.0, 30.0)])
    items = rng.integers(2, 7, len(utility))
    places_of = np.minimum(places, items - 1)
    position = np.argsort(rng.uniform(size=utility.shape), axis=1)
    block = np.where(position < items[:, None], np.minimum(position, places_of[:, None]), -1)
    expected = [
        sum(row[at == place].item() - logsumexp(row[at >= place]) for place in range(at.max()))
        for row, at in zip(utility, block, strict=True)
    ]
    assert log_probability(utility, block, GUMBEL) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_against_draws() -> None:
    """200,000 draws: false alarms in one of 10,000 for each."""
    rng = np.random.default_rng(3)
    utility = np.array([0.8, 0.2, 0.0, -0.5, -0.4])
    seen = utility + NOISE * rng.standard_normal((200_000, 5))
    for blocks in ([0, 1, 2, 3, 4], [0, 1, 1, 1, 1], [0, 1, 1, 1, 2], [0, 0, 1, 2, 2]):
        held = np.ones(len(seen), dtype=bool)
        for upper in range(max(blocks)):
            above, below = (seen[:, np.array(blocks) == at] for at in (upper, upper + 1))
            held &= above.min(axis=1) > below.max(axis=1)
        true = chance(utility, blocks)[0]
        assert held.mean() == pytest.approx(true, abs=3.9 * np.sqrt(true * (1 - true) / len(seen)))


@pytest.mark.parametrize(
    ("blocks", "noise"),
    [
        ([0, 1, 2, 3], GAUSSIAN),
        ([0, 1, 1, 2], GAUSSIAN),
        ([0, 1, 2, 3], GUMBEL),
        ([0, 0, 1, 2], GUMBEL),
        ([0, 1, 1, 2], GUMBEL),
    ],
)
def test_gradient(blocks: list[int], noise: Noise) -> None:
    """Also of an order that hardly can be: 12 units of noise against each row; differences see
    there that nodes are 0.4 apart.
    """
    step, block = 1e-4, np.array([blocks])
    with jax.enable_x64(True):
        tied = noise is GUMBEL or max(np.bincount(blocks)[1:-1]) > 1
        for spread, error in ((0.5, 1e-4), (12.0, 0.01)):
            utility = spread * np.arange(4.0)[None]
            moved = utility + step * np.stack([np.eye(4), -np.eye(4)])
            ends = by_jax(moved.reshape(8, 4), np.tile(block, (8, 1)), noise).reshape(2, 4)
            found = np.asarray(slope_of_sum(jnp.asarray(utility), block, noise, tied))[0]
            assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=error, abs=error)


@pytest.mark.parametrize("spread", [1.0, 5.0, 15.0])
def test_orders_without_logarithms(spread: float) -> None:
    """NumPy computes them so, and those of very small probability with logarithms."""
    rng = np.random.default_rng(0)
    utility = spread * rng.normal(size=(200, 6))
    block = np.argsort(rng.random((200, 6)), axis=1)
    block[:80] = np.where(block[:80] >= 4, -1, block[:80])
    found, expected = log_probability(utility, block), by_jax(utility, block, GAUSSIAN)
    assert found == pytest.approx(expected, rel=1e-11, abs=1e-11)
    assert spread < 15 or found.min() < np.log(1e-308)


@pytest.mark.parametrize(
    "blocks", [[0, 1, 1, 2], [0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 2], [0, 1, 1, 2, 3, 3]]
)
def test_ties_without_logarithms(blocks: list[int]) -> None:
    """NumPy multiplies products of differences out, where JAX has integrals over the plane."""
    rng = np.random.default_rng(0)
    utility = rng.normal(size=(16, len(blocks)))
    block = np.stack([rng.permutation(blocks) for _ in range(16)])
    found, expected = log_probability(utility, block), by_jax(utility, block, GAUSSIAN)
    assert found == pytest.approx(expected, abs=1e-6)


def test_single_precision() -> None:
    utility = 2.0 * np.arange(6.0)[None]
    block = np.arange(6)[None]
    found = compiled(jnp.asarray(utility, jnp.float32), jnp.asarray(block))
    assert np.asarray(found) == pytest.approx(log_probability(utility, block), rel=1e-3)


# Three lists and two single comparisons, the rows of a list in the order of its blocks.
ROWS = np.array(
    [
        (-1, 0, 1),
        (-1, 3, 2),
        *[(0, 0, 1), (0, 1, 2), (0, 2, 3)],
        *[(1, 2, 0), (1, 2, 1), (1, 0, 3), (1, 1, 3)],
        *[(2, 3, 0), (2, 1, 0)],
    ]
)
ITEMS = [([0, 1, 2, 3], [0, 1, 2, 3]), ([2, 0, 1, 3], [0, 1, 1, 2]), ([1, 3, 0], [0, 0, 1])]
SIZES = ListSizes(4, 5, 6, True)  # all too large


def distribution(utility: Any, kind: Any = ProbitComparison, **options: Any) -> ListComparison:
    number, winner, loser = ROWS.T
    return ListComparison(
        kind(utility[winner] - utility[loser], **options), number, winner, loser, SIZES
    )


UTILITY = np.array([0.4, -0.3, 0.9, -1.0])


@partial(jax.jit, static_argnums=0)
def drawn_rows(kind: Any, scale: Any) -> tuple[Any, Any]:
    """Log probabilities of rows, and draws."""
    rows = distribution(jnp.asarray(UTILITY), kind, scale=scale)
    return rows.log_prob(jnp.ones(len(ROWS), int)), rows.sample(jax.random.key(1), (50_000,))


@pytest.mark.parametrize("kind", [ProbitComparison, LogisticComparison])
def test_log_prob_of_rows(kind: Any) -> None:
    utility, scale = UTILITY, 1.7
    with jax.enable_x64(True):
        found = np.asarray(drawn_rows(kind, scale)[0])
        alone = kind((utility[ROWS[:2, 1]] - utility[ROWS[:2, 2]]), scale=scale).log_prob(1)
    noise = GUMBEL if kind is LogisticComparison else GAUSSIAN
    whole = [np.log(chance(utility[items] / scale, blocks, noise)[0]) for items, blocks in ITEMS]
    expected = np.zeros(len(ROWS))
    expected[:2], expected[[2, 5, 9]] = alone, whole
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", [ProbitComparison, LogisticComparison])
def test_rows_are_drawn_together(kind: Any) -> None:
    """50,000 draws: false alarms in one of 10,000 for each."""
    with jax.enable_x64(True):
        log, drawn = map(np.asarray, drawn_rows(kind, 1.0))
    expected = np.exp(log)
    for first, rows in ((0, [0]), (2, [2, 3, 4]), (5, [5, 6, 7, 8]), (9, [9, 10])):
        share, true = drawn[:, rows].all(axis=1).mean(), expected[first]
        assert share == pytest.approx(true, abs=3.9 * np.sqrt(true * (1 - true) / len(drawn)))


def test_tilted_moments_of_a_row() -> None:
    """Of the sign of the predictor: those of the probit, whose noise is taken out of the cavity."""
    with jax.enable_x64(True):
        mean, variance = np.linspace(-2, 2, len(ROWS)), np.linspace(1.5, 3, len(ROWS))
        without = np.where(ROWS[:, 0] < 0, variance, variance - 1)
        given = np.ones(len(ROWS), int), mean, variance
        found = jax.jit(lambda *given: distribution(jnp.zeros(4)).tilted(*given))(*given)
        plain = jax.jit(lambda value, *given: ProbitComparison(given[0]).tilted(value, *given))
        probit = plain(*given[:2], without)
    for one, other in zip(found, probit, strict=True):
        assert np.asarray(one) == pytest.approx(np.asarray(other), rel=1e-12)
