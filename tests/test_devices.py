"""Where computations run on a machine with an accelerator, which here is a device of the host by
another name.
"""

from typing import Any

import jax
import numpy as np
import pytest

from relpref.compiled import float64
from relpref.devices import accelerated, default_device
from relpref.infer import evidence

HERE = jax.local_devices()[0]


class Accelerator:
    """A device of another kind."""

    platform = "gpu"


@pytest.fixture
def with_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def chosen() -> Any:
    config: Any = jax.config
    return config.jax_default_device


def test_only_large_problems_leave_the_host(with_accelerator: None) -> None:
    assert chosen() is None
    with float64():
        assert chosen() == default_device() == HERE
        with accelerated(1499):
            assert chosen() == HERE
        with accelerated(1500):
            assert chosen() is None
            with float64():  # a part of the host's, such as a spectrum
                assert chosen() == HERE
            assert chosen() is None
        assert chosen() == HERE
    with accelerated(1500):
        assert chosen() is None
    assert chosen() is None


def test_a_choice_of_the_user_holds(with_accelerator: None) -> None:
    for choice in (HERE, "cpu"):
        with jax.default_device(choice), float64(), accelerated(1500):
            assert chosen() == choice
            assert default_device() == HERE


def test_without_a_device_of_the_host(
    with_accelerator: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(backend: Any = None) -> Any:
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", none)
    with float64():
        assert chosen() is None


def test_nothing_changes_without_an_accelerator() -> None:
    with float64(), accelerated(1500):
        assert chosen() is None


@pytest.mark.slow
def test_the_algebra_of_an_accelerator_is_that_of_the_host(
    monkeypatch: pytest.MonkeyPatch, fit: Any, data: Any
) -> None:
    expected = fit(data)
    monkeypatch.setattr(evidence, "default_device", Accelerator)
    found = fit(data)
    np.testing.assert_allclose(found.mean(), expected.mean(), atol=1e-8)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), atol=1e-8)
    assert abs(found.log_evidence - expected.log_evidence) < 1e-8
