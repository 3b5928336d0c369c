"""Labels up to an offset for each group: the density of one label given the others of its group."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from relpref.likelihoods import CentredNormal

GROUPS = np.array([0, 2, 0, 2, 2, 1, 0, 2])  # label 5 is alone in its group
SCALE = 0.7


def test_a_label_given_the_others_is_a_ratio_of_densities() -> None:
    rng = np.random.default_rng(0)
    location, value = rng.normal(size=(2, len(GROUPS)))

    compiled = jax.jit(
        lambda at, groups, label: CentredNormal(at, SCALE, groups, 3).log_prob(label)
    )

    def log_prob(rows: Any) -> float:
        with jax.enable_x64(True):
            return float(compiled(location[rows], GROUPS[rows], value[rows]))

    everything = np.arange(len(GROUPS))
    expected = []
    for row in everything:
        size = np.sum(GROUPS == GROUPS[row])
        # A label of k is √(k/(k − 1)) times as long as its contrast with the average of the others.
        stretch = 0.5 * np.log((size - 1) / size) if size > 1 else 0.0
        expected.append(log_prob(everything) - log_prob(np.delete(everything, row)) + stretch)
    with jax.enable_x64(True):
        given = CentredNormal(jnp.asarray(location), SCALE, GROUPS, 3)
        found = np.asarray(jax.jit(given.conditional_log_prob)(value))
    assert_allclose(found, expected, atol=1e-12)
    assert found[5] == 0 and np.all(np.delete(found, 5) != 0)
