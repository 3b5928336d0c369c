"""Functions of one array, entry by entry, that SciPy has and JAX computes in many operations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from relpref.lazy_jit.functions import NAMES
from relpref.lazy_jit.primitives import RULES, elementwise

Function = Callable[[Any], Any]


def entrywise(
    in_numpy: Function, derivative: Function, weight: float = 15.0
) -> Callable[[Function], Function]:
    """Make a function of JAX one operation, which steps compute by the same function of NumPy's arrays.

    Arrays of NumPy do not reach JAX. ``derivative`` goes from an argument to the derivative there,
    by JAX; ``weight`` is the time in nanoseconds that an entry takes more than by XLA.
    """

    def decorated(function: Function) -> Function:
        name = function.__name__
        operation = Primitive(name)
        operation.def_impl(jax.jit(function))
        operation.def_abstract_eval(lambda x: jax.core.ShapedArray(x.shape, x.dtype))
        mlir.register_lowering(operation, mlir.lower_fun(function, multiple_results=False))
        ad.defjvp(operation, lambda tangent, x: tangent * derivative(x))
        batching.defvectorized(operation)
        NAMES[name], RULES[name] = in_numpy, elementwise(f"{name}({{}})", weight)

        def call(x: Any) -> Any:
            if isinstance(x, np.ndarray | np.generic):
                return in_numpy(x)
            return operation.bind(jnp.asarray(x))

        call.__doc__, call.__name__, call.__module__ = function.__doc__, name, function.__module__
        return call

    return decorated
