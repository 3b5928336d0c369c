"""Functions of SciPy as operations of JAX: as steps, compiled, and their derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.lazy_jit import lazy_jit
from relpref.lazy_jit.special import entrywise
from relpref.lazy_jit.steps import translate
from relpref.likelihoods.tilted import log_ndtr, log_ndtr_curvature, mills_ratio

FAR = np.array([-1e150, -1e10, -1e5, -300.0, -31.0, -30.0, -29.9, 9.0, 40.0, 1e5, np.nan])
NEAR = np.linspace(-12, 8, 41)


@pytest.mark.parametrize(
    "function", [log_ndtr, mills_ratio, log_ndtr_curvature], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("z", [FAR, NEAR], ids=["far", "near"])
def test_steps_and_compiled_agree(function: Any, z: Any) -> None:
    with jax.enable_x64(True):
        traced = jax.jit(function).trace(z)
        assert len(traced.jaxpr.eqns) == 1
        found = translate(traced.jaxpr, [z]).run([z], np.inf)[0]
        assert_allclose(found, jax.jit(function)(z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("z", [FAR[:-1], NEAR], ids=["far", "near"])
def test_derivatives(z: Any) -> None:
    """Each is the derivative of the one before; that of the last against differences of more
    digits.
    """
    with jax.enable_x64(True):
        # NumPy and JAX round r(z + r) differently, by up to some z²ε: 1e-12 at −30.
        slope = jax.vmap(jax.grad(log_ndtr))(z)
        assert_allclose(slope, mills_ratio(z), rtol=2e-12)
        bend = jax.vmap(jax.grad(jax.grad(log_ndtr)))(z)
        assert_allclose(bend, -log_ndtr_curvature(z), rtol=2e-12)
        third = jax.jit(jax.vmap(jax.grad(log_ndtr_curvature)))(z)
        step = 1e-3 * np.maximum(1, abs(z))
        ahead, behind = (log_ndtr_curvature(z + side * step) for side in (1, -1))
        assert_allclose(third, (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-6)
        assert np.all(np.isfinite(third))


def test_an_operation_goes_through_all_transformations() -> None:
    @entrywise(np.sin, jnp.cos)
    def unheard_of(x: Any) -> Any:
        return jnp.sin(x)

    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    for found in (unheard_of(x), jax.jit(unheard_of)(x), jax.vmap(unheard_of)(x)):
        assert_allclose(found, np.sin(x), rtol=1e-6)
    assert_allclose(jax.grad(lambda x: unheard_of(x).sum())(x), np.cos(x), rtol=1e-6)
    assert unheard_of(0.5).shape == ()

    @entrywise(lambda x: 7 * x, jnp.cos)
    def sevenfold(x: Any) -> Any:
        return jnp.sin(x)

    assert_array_equal(lazy_jit(sevenfold)(x), 7 * x)
