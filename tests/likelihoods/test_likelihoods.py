from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_array_equal

from relpref.errors import UnsupportedProgramError
from relpref.likelihoods import (
    GaussianLikelihood,
    Likelihood,
    ProbitComparison,
    as_likelihood,
)


def test_wrong_values_are_refused_where_asked() -> None:
    with pytest.raises(ValueError, match="invalid gap"):
        ProbitComparison(jnp.asarray([jnp.nan]), validate_args=True)


def test_as_likelihood_unwraps_what_plates_wrap() -> None:
    probit = ProbitComparison(jnp.zeros(3))
    assert as_likelihood(probit) is probit
    assert as_likelihood(probit.to_event(1)) is probit
    assert as_likelihood(probit.expand((2, 3))) is probit
    normal = as_likelihood(dist.Normal(jnp.ones(3), 2.0).to_event(1))
    assert isinstance(normal, GaussianLikelihood)
    assert isinstance(normal, Likelihood)
    assert_array_equal(normal.predictor, jnp.ones(3))


@pytest.mark.parametrize(
    "other", [dist.Poisson(1.0), dist.Bernoulli(0.5), dist.StudentT(3.0, 0.0, 1.0)]
)
def test_others_are_refused_by_name(other: Any) -> None:
    with pytest.raises(UnsupportedProgramError, match=f"{type(other).__name__}.*NUTS"):
        as_likelihood(other)
