"""The device that computes: the host for most problems, an accelerator for large matrices.

An accelerator compiles each function for seconds, and small matrices gain nothing there. JAX's
configuration outside of these contexts stays as it is, and a device that the user has chosen is
used for everything.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

# At 1500 latent values an NVIDIA H200 compiles for some 20 seconds, and then EP at given
# hyperparameters takes a tenth of the time of one core.
_LEAST = 1500
# Whether `host` has moved the computations of the thread.
_on_host = ContextVar("on_host", default=False)


def default_device() -> Any:
    """Return the device that computes for this thread."""
    import jax

    chosen = _chosen()
    if chosen is None or isinstance(chosen, str):
        return jax.local_devices(backend=chosen)[0]
    return chosen


@contextmanager
def host() -> Iterator[None]:
    """Compute on the host, unless the user has chosen a device or JAX sees none of the host."""
    import jax

    device = None
    if _chosen() is None and jax.default_backend() != "cpu":
        with suppress(RuntimeError):  # JAX_PLATFORMS names the accelerator only
            device = jax.local_devices(backend="cpu")[0]
    with nullcontext() if device is None else _moved(True, device):
        yield


@contextmanager
def accelerated(size: int) -> Iterator[None]:
    """Compute on the device that `host` leaves out, if the latent values are many."""
    with _moved(False, None) if _on_host.get() and size >= _LEAST else nullcontext():
        yield


def _chosen() -> Any:
    """Return the device, or the name of its kind, that this thread has been given."""
    import jax  # here, because modules that import this one may not need JAX

    config: Any = jax.config
    return config.jax_default_device


@contextmanager
def _moved(on_host: bool, device: Any) -> Iterator[None]:
    import jax

    token = _on_host.set(on_host)
    try:
        with jax.default_device(device):
            yield
    finally:
        _on_host.reset(token)
