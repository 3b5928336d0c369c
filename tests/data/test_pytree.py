"""Data are pytrees as soon as JAX is there, and do not import it."""

import subprocess
import sys

import jax
import pytest

import relpref.data
from relpref import pytree
from relpref.likelihoods import Logistic, Probit

SCRIPT = """
import sys
import relpref.likelihoods
import pandas
from relpref.data import PreferenceData
data = PreferenceData.from_tables(answers=pandas.DataFrame({"winner": ["a", "b"], "loser": ["b", "c"]}))
assert "jax" not in sys.modules
%s
import jax
leaves, tree = jax.tree.flatten(data)
assert len(leaves) > 4, leaves
assert jax.tree.unflatten(tree, leaves).num_items == 3
assert jax.tree.leaves(relpref.likelihoods.Probit()) == []
assert jax.jit(lambda data: data.comparisons.winner + 1)(data).tolist() == [1, 2]
"""


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import relpref.models",
        "import importlib.util as u; u.find_spec('jax')",
        pytest.param("import jax.numpy", marks=pytest.mark.slow),
        pytest.param("import numpyro", marks=pytest.mark.slow),
    ],
)
def test_classes_are_registered_when_somebody_imports_jax(first: str) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT % first]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_waits() -> None:
    assert not pytree._waiting
    assert not any(isinstance(finder, pytree._AtImportOfJax) for finder in sys.meta_path)
    for kind in (Probit, Logistic):
        assert jax.tree.leaves(kind()) == []
    for name in (
        "Comparisons",
        "Graph",
        "PreferenceData",
        "Rankings",
        "RelationData",
        "RelationValues",
    ):
        assert not jax.tree_util.all_leaves([object.__new__(getattr(relpref.data, name))]), name
