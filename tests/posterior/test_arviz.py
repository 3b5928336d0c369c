from collections.abc import Callable
from typing import Any

import arviz
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.data import PreferenceData
from relpref.infer import from_samples
from relpref.models import xpgp

NATIVE_IS_A_TREE = int(arviz.__version__.split(".")[0]) >= 1
GROUPS = {
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "observed_data",
    "constant_data",
    "sample_stats",
}


@pytest.fixture(scope="module")
def native(posterior: Any) -> Any:
    return posterior.to_arviz()


@pytest.fixture(scope="module")
def tree(posterior: Any) -> Any:
    """The DataTree, whichever ArviZ is installed."""
    return posterior.to_datatree()


def test_the_type_is_the_installed_arviz(native: Any) -> None:
    assert type(native).__name__ == ("DataTree" if NATIVE_IS_A_TREE else "InferenceData")
    names = set(native.children) if NATIVE_IS_A_TREE else set(native.groups())
    assert names == GROUPS


def test_groups_and_dimensions(tree: Any, data: PreferenceData) -> None:
    drawn = tree["posterior"]
    assert dict(drawn.sizes) == {"chain": 4, "draw": 250, "item": 12, "attribute": 2}
    assert drawn["utility"].dims == ("chain", "draw", "item")
    assert drawn["attributes_lengthscale"].dims == ("chain", "draw", "attribute")
    assert drawn["next_range"].dims == ("chain", "draw")
    assert drawn["item"].values.tolist() == list(data.labels)
    assert drawn["attribute"].values.tolist() == ["x", "y"]
    for group in ("posterior_predictive", "log_likelihood"):
        assert tree[group]["answer"].dims == ("chain", "draw", "comparison")
    assert tree["observed_data"]["answer"].dims == ("comparison",)
    assert tree["constant_data"]["attributes"].dims == ("item", "attribute")
    assert bool(np.all(tree["sample_stats"]["converged"]))


def test_counts_are_laid_out_as_single_answers(tree: Any, data: PreferenceData) -> None:
    assert data.num_answers > data.num_comparisons
    assert tree["observed_data"].sizes["comparison"] == data.num_answers
    assert_array_equal(tree["observed_data"]["answer"], np.ones(data.num_answers))
    rows = np.repeat(np.arange(data.num_comparisons), data.count)
    labels = np.array(data.labels)
    assert_array_equal(tree["constant_data"]["winner"], labels[data.winner[rows]])
    assert_array_equal(tree["constant_data"]["loser"], labels[data.loser[rows]])


def test_log_likelihood_is_that_of_the_draws(tree: Any, data: PreferenceData) -> None:
    from scipy.special import log_ndtr

    utility = tree["posterior"]["utility"].values
    rows = np.repeat(np.arange(data.num_comparisons), data.count)
    gap = utility[..., data.winner[rows]] - utility[..., data.loser[rows]]
    assert_allclose(tree["log_likelihood"]["answer"], log_ndtr(gap), rtol=1e-10, atol=1e-12)
    # Replicated answers favour the winner as often as the model says; 4.5 standard errors.
    replicated = tree["posterior_predictive"]["answer"].values
    assert set(np.unique(replicated)) <= {0, 1}
    first = np.flatnonzero(np.repeat(data.count, data.count) > 1)[0]
    assert np.any(replicated[..., first] != replicated[..., first + 1])  # each has its own
    expected = np.exp(log_ndtr(gap)).mean(axis=(0, 1))
    assert_allclose(replicated.mean(axis=(0, 1)), expected, rtol=0, atol=4.5 * 0.5 / np.sqrt(1000))


def test_no_time_stamp_and_the_seed(tree: Any, native: Any, posterior: Any) -> None:
    groups = [*tree.subtree]
    if not NATIVE_IS_A_TREE:
        groups += [native, *(native[name] for name in native.groups())]
    assert all("created_at" not in group.attrs for group in groups)
    assert tree.attrs["random_key"] == "[0, 0]"
    assert {"inference_library", "inference_library_version", "jax_version", "engine"} <= set(
        tree.attrs
    )
    assert tree.identical(posterior.to_datatree())
    assert not tree.identical(posterior.to_datatree(rng_key=3))


def test_draws_of_a_sampler_are_handed_over(
    data: PreferenceData, samples: dict[str, Any], reloaded: Any
) -> None:
    told = {"diverging": np.arange(8) == 5, "num_steps": np.arange(8)}
    posterior = from_samples(samples, xpgp, data, num_chains=2, extra_fields=told)
    tree = posterior.to_datatree()
    assert tree.identical(reloaded(posterior).to_datatree())
    assert tree["sample_stats"]["diverging"].values.tolist() == [
        [False] * 4,
        [False, True, False, False],
    ]
    assert tree["sample_stats"]["n_steps"].values.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    drawn = tree["posterior"]
    assert (drawn.sizes["chain"], drawn.sizes["draw"]) == (2, 4)
    for name, value in samples.items():
        assert_array_equal(drawn[name].values.reshape(value.shape), value)


def test_labels_that_are_not_text(make_data: Callable[..., PreferenceData], fit: Any) -> None:
    names = [("a", k) for k in range(11)] + ["b"]
    for labels, expected in ((range(10, 22), range(10, 22)), (names, map(str, names))):
        tree, known = fit(make_data(names=labels)).to_datatree(), list(expected)
        assert tree["posterior"]["item"].values.tolist() == known
        assert set(tree["constant_data"]["winner"].values.tolist()) <= set(known)
