from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from relpref import limits as memory
from relpref.data.graph import Projected, circulation, shared_targets
from relpref.errors import DataError


def dense(edges: Projected, size: int) -> Any:
    matrix = np.zeros((size, size))
    matrix[edges.source, edges.target] = edges.weight
    assert not np.any(np.tril(matrix))
    return matrix + matrix.T


@pytest.mark.parametrize("weigh_hubs", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_shared_targets(seed: int, weigh_hubs: bool) -> None:
    rng = np.random.default_rng(seed)
    links = np.where(rng.random((7, 5)) < 0.4, rng.uniform(0.5, 2.0, (7, 5)), 0.0)
    others = np.maximum((links > 0).sum(axis=0) - 1, 1)
    expected = (links / others if weigh_hubs else links) @ links.T
    np.fill_diagonal(expected, 0)
    found = shared_targets(sp.csr_array(links), weigh_hubs=weigh_hubs)
    np.testing.assert_allclose(dense(found, 7), expected, rtol=1e-14)
    assert (found.weight > 0).all()


@pytest.mark.parametrize("teleport", [0.15, 0.7])
def test_circulation_is_chungs_laplacian(teleport: float) -> None:
    rng = np.random.default_rng(1)
    links = np.where(rng.random((6, 6)) < 0.4, rng.uniform(0.5, 2.0, (6, 6)), 0.0)
    np.fill_diagonal(links, 0)
    links[3] = 0  # a walk that arrives there goes anywhere
    transition = np.array([row / row.sum() if row.sum() else np.full(6, 1 / 6) for row in links])
    transition = (1 - teleport) * transition + teleport / 6
    stationary = np.full(6, 1 / 6)
    for _ in range(500):
        stationary = stationary @ transition
    flow = np.diag(stationary) @ transition
    laplacian = np.diag(stationary) - (flow + flow.T) / 2  # Chung 2005
    weights = dense(circulation(sp.csr_array(links), teleport), 6)
    np.testing.assert_allclose(
        np.diag(weights.sum(axis=1)) - weights, 6 * laplacian, rtol=0, atol=1e-14
    )
    # Every degree counts how often the walk is there and leaves; it is there once per node on
    # average.
    np.testing.assert_allclose(weights.sum() + 6 * np.trace(flow), 6, rtol=1e-12)


def test_pairs_that_would_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1e9)
    # A star of ten thousand: its hub joins each to each.
    star = sp.csr_array(
        (np.ones(10_000), (np.arange(10_000), np.zeros(10_000, dtype=int))), (10_000, 10_000)
    )
    with pytest.raises(DataError, match=r"up to 1e\+08 pairs .*max_degree.* needs 2\.40 GB"):
        shared_targets(star, weigh_hubs=True)
    assert shared_targets(star.T, weigh_hubs=True).weight.size == 0
    with pytest.raises(DataError, match=r"random walk that may go from each of 10000 items"):
        circulation(star, 0.15)
