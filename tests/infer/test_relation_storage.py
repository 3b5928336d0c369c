"""Posteriors of relations come back from a file and say the same, also of nodes that were not
there.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy import sparse

from relpref import RelationData
from relpref.errors import StorageError
from relpref.infer import Exact
from relpref.kernels import Matern32
from relpref.models import conditional_ranking
from relpref.rls import ConditionalRanker


def tables() -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(5)
    nodes = pd.DataFrame(
        rng.normal(size=(6, 2)), index=[("n", i) for i in range(6)], columns=["x", "y"]
    )
    nodes.index = pd.Index([("n", i) for i in range(6)], tupleize_cols=False)
    new = pd.DataFrame([[0.1, 0.3]], index=["late"], columns=["x", "y"])
    return nodes, new, rng.normal(size=(6, 6))


def same(first: Any, reloaded: Any, new: Any) -> None:
    second = reloaded(first)
    assert repr(second) == repr(first)
    assert_frame_equal(second.mean(new), first.mean(new))
    assert_frame_equal(second.sd(new, new), first.sd(new, new), atol=1e-12)
    assert_frame_equal(second.ranking(new), first.ranking(new))
    assert second.hyperparameters.keys() == first.hyperparameters.keys()


@pytest.mark.parametrize("kernel", ["gaussian", "linear", Matern32()])
@pytest.mark.parametrize("solver", ["closed", "cg"])
def test_of_the_ranker(reloaded: Any, kernel: Any, solver: str) -> None:
    nodes, new, relation = tables()
    params = None if isinstance(kernel, str) else {"lengthscale": 0.8}
    ranker = ConditionalRanker(
        kernel, kernel_params=params, solver=solver, loss="regression", tol=1e-10
    )
    same(ranker.fit(nodes, relation).posterior_, reloaded, new)


def test_of_sparse_features_and_gaps(reloaded: Any) -> None:
    nodes, new, relation = tables()
    relation[0, 3] = np.nan
    ranker = ConditionalRanker("gaussian", symmetry="none").fit(
        sparse.csr_array(nodes.to_numpy()), relation
    )
    same(ranker.posterior_, reloaded, sparse.csr_array(new.to_numpy()))


@pytest.mark.parametrize("bound", [True, False])
def test_of_the_engine(reloaded: Any, bound: bool) -> None:
    nodes, new, relation = tables()
    data = RelationData.from_tables(nodes, 0.5 * (relation - relation.T), symmetry="reciprocal")
    fixed = {"attributes_amplitude": 1.0, "attributes_lengthscale": 1.0, "noise": 0.5}
    program: Any = partial(conditional_ranking, loss="regression") if bound else conditional_ranking
    kwargs: dict[str, Any] = {} if bound else {"loss": "regression"}
    same(Exact(program, fixed=fixed).run(0, data, **kwargs), reloaded, new)


def test_what_cannot_be_stored(tmp_path: Path) -> None:
    nodes, _, relation = tables()
    ranker = ConditionalRanker(lambda x, y: x @ y.T).fit(nodes, relation)
    with pytest.raises(StorageError, match="kernel='precomputed'"):
        ranker.posterior_.save(tmp_path / "run.nc")
    assert not list(tmp_path.iterdir())


def test_arviz_has_the_labels_of_objects() -> None:
    nodes, new, relation = tables()
    posterior = ConditionalRanker("gaussian", regularization=0.5).fit(nodes, relation).posterior_
    tree = posterior.to_arviz(new, num_samples=4000)
    score = tree["posterior"]["score"]
    assert (
        score.dims == ("chain", "draw", "object")
        and next(iter(score["object"].values)) == "('n', 0)"
    )
    # 4000 draws: five standard errors of a mean and of a standard deviation.
    belief = posterior.belief(new)
    assert np.all(
        np.abs(score.mean(("chain", "draw")) - belief.mean()) < 5 * belief.sd() / np.sqrt(4000)
    )
    spread = tree["posterior_predictive"]["next_label"].std(("chain", "draw"))
    expected = np.sqrt(belief.sd() ** 2 + posterior.noise)
    assert np.all(np.abs(spread / expected - 1) < 5 / np.sqrt(8000))
