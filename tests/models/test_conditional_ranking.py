"""The program of conditional ranking under numpyro's own tools, and its likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer import Predictive

from relpref import RelationData
from relpref.errors import DataError
from relpref.likelihoods import CentredNormal
from relpref.models import conditional_ranking


def relation(symmetry: str = "none") -> RelationData:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(rng.normal(size=(4, 2)), columns=["x", "y"])
    labels = rng.normal(size=(4, 4))
    if symmetry == "reciprocal":
        labels = 0.5 * (labels - labels.T)
    return RelationData.from_tables(nodes, labels, symmetry=symmetry)  # type: ignore[arg-type]


# A value for each latent site, so that none is drawn.
VALUES = {
    "attributes_amplitude": 1.0,
    "attributes_lengthscale": np.ones(2),
    "noise": 0.5,
    "score": np.zeros(16),
}


def test_its_sites() -> None:
    seeded = handlers.trace(handlers.seed(handlers.substitute(conditional_ranking, VALUES), 0))
    sites = seeded.get_trace(relation())
    assert list(sites) == [*VALUES, "label"]
    assert sites["score"]["fn"].shape() == (16,)
    sites = seeded.get_trace(relation("reciprocal"), loss="regression")
    assert sites["label"]["value"].shape == (6,)  # each pair once


@pytest.mark.parametrize("loss", ["ranking", "regression"])
def test_predictive_draws_labels(loss: str) -> None:
    draws = Predictive(conditional_ranking, num_samples=3)(
        jax.random.key(0), relation().without_labels(), loss=loss
    )
    assert draws["label"].shape == (3, 16) and bool(jnp.isfinite(draws["label"]).all())


def test_priors_and_options_are_checked() -> None:
    with pytest.raises(DataError, match="'noises'"):
        handlers.seed(conditional_ranking, 0)(relation(), priors={"noises": dist.HalfNormal(1.0)})
    with pytest.raises(DataError, match="loss is 'rank'"):
        handlers.seed(conditional_ranking, 0)(relation(), loss="rank")
    with pytest.raises(DataError, match="object_kernel"):
        from relpref.kernels import Linear

        handlers.seed(conditional_ranking, 0)(relation(), object_kernel=Linear())


def test_the_density_of_contrasts() -> None:
    """The density of any orthonormal basis of contrasts within groups; a group of one has none."""
    rng = np.random.default_rng(1)
    groups = np.array([0, 0, 0, 2, 2, 3])
    value, loc = rng.normal(size=(2, 6))
    with jax.enable_x64(True):
        density = float(
            CentredNormal(jnp.asarray(loc), 0.7, groups, 5).log_prob(jnp.asarray(value))
        )
    expected = 0.0
    for group in (0, 2):
        error = (value - loc)[groups == group]
        basis = np.linalg.qr(np.column_stack([np.ones(len(error)), np.eye(len(error))[:, 1:]]))[0][
            :, 1:
        ]
        contrasts = basis.T @ error
        expected += float(
            np.sum(-0.5 * np.square(contrasts / 0.7) - np.log(0.7) - 0.5 * np.log(2 * np.pi))
        )
    assert density == pytest.approx(expected, abs=1e-12)
