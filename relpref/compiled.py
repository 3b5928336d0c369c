"""Functions that JAX compiles, and its precision."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import numpy as np

from relpref.devices import host

Function = Callable[..., Any]

# Options of `jax.jit` for functions whose results take less time than optimizing them would.
QUICKLY: dict[str, Any] = {"compiler_options": {"xla_backend_optimization_level": 0}}


def compiled(function: Function | None = None, **options: Any) -> Function:
    """Compile a function as `jax.jit` does; arrays of its result are NumPy's.

    ``options`` are those of `jax.jit`. Inside of a function that JAX traces, and for random keys,
    the result is JAX's.
    """
    if function is None:
        return partial(compiled, **options)
    import jax

    jitted = jax.jit(function, **options)

    def plain(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer) or not hasattr(leaf, "dtype"):
            return leaf
        is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key else np.asarray(leaf)

    @wraps(function)
    def call(*args: Any) -> Any:
        return jax.tree.map(plain, jitted(*args))

    return call


@contextmanager
def float64() -> Iterator[None]:
    """Compute in float64 where `relpref.devices` says; JAX's configuration stays as it is."""
    import jax  # here, because modules that import this one may not need JAX

    with jax.enable_x64(True), host():
        yield
