"""A relation on a mesh of devices: as without one, and what it refuses. More devices than one:
tests/linalg/sharded.
"""

from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
from jax.sharding import Mesh
from numpy.testing import assert_allclose

from relpref import RelationData
from relpref.errors import DataError
from relpref.infer import Exact
from relpref.infer.exact import solve_edges
from relpref.kernels import EdgeGram, Kronecker, Side
from relpref.models import conditional_ranking
from relpref.rls import ConditionalRanker


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:1]), ("device",))


def test_the_estimator_finds_the_same(mesh: Mesh) -> None:
    rng = np.random.default_rng(0)
    nodes, relation = rng.standard_normal((7, 2)), rng.standard_normal((7, 7))
    ranker = partial(ConditionalRanker, kernel="gaussian", regularization=0.3, tol=1e-13)
    found, expected = ranker(mesh=mesh).fit(nodes, relation), ranker().fit(nodes, relation)
    assert found.posterior_.info["solver"] == "conjugate gradients"
    assert_allclose(found.predict(), expected.predict(), rtol=0, atol=1e-10)
    deviation = found.predict(return_std=True)[1]
    assert_allclose(deviation, expected.predict(return_std=True)[1], atol=1e-7)


def test_what_several_devices_are_not_for(mesh: Mesh) -> None:
    nodes, relation = np.eye(4), np.arange(16.0).reshape(4, 4) % 5
    for option, message in (
        ({"pair_kernel": "cartesian"}, "the Cartesian kernel is not for several devices"),
        ({"regularization": 0.0}, "take a positive regularization"),
        ({"early_stopping": True}, "without a callback or early stopping"),
        ({"solver": "closed"}, "solver='closed': several devices iterate"),
    ):
        with pytest.raises(DataError, match=message):
            ConditionalRanker(mesh=mesh, **option).fit(nodes, relation)
    side = Side.training(np.eye(4))
    rows, columns = np.divmod(np.arange(16), 4)
    gram = EdgeGram(Kronecker(), side, side, rows, columns)
    with pytest.raises(DataError, match="dealt out by their conditioning node"):
        solve_edges(gram, relation.ravel(), 1.0, groups=columns, mesh=mesh)
    with pytest.raises(DataError, match="without a callback"):
        solve_edges(gram, relation.ravel(), 1.0, callback=lambda *_: True, mesh=mesh)
    with pytest.raises(DataError, match="mesh is 'all'"):
        solve_edges(gram, relation.ravel(), 1.0, mesh="all")


@pytest.mark.slow
def test_the_engine_refuses_before_it_searches(mesh: Mesh) -> None:
    table = pd.DataFrame({"x": [0.0, 0.4, 1.0, 1.7]})
    data = RelationData.from_tables(table, np.arange(16.0).reshape(4, 4) % 5)
    engine = Exact(conditional_ranking, mesh=mesh, callback=lambda *_: None)
    with pytest.raises(DataError, match="without a callback"):
        engine.run(0, data)
