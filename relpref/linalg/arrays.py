"""Control flow and factorizations for arrays of NumPy and of JAX.

On JAX's arrays, traced or not, everything is a JAX operation; on NumPy's nothing is traced or
compiled.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

Array: TypeAlias = Any  # of NumPy or of JAX
Carry = TypeVar("Carry")
_HOST = (np.ndarray, np.generic, float, int)


def on_host(*trees: Any) -> bool:
    """Whether none of the leaves is an array of JAX."""
    return not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(trees))


def traced(*trees: Any) -> bool:
    """Whether JAX traces any of the leaves."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def namespace(*arrays: Any) -> Any:
    """``numpy``, or ``jax.numpy`` where one of the arrays is JAX's or `is_affine`."""
    for array in arrays:
        # The second question alone would take most of a step on small arrays.
        if not isinstance(array, _HOST) and (isinstance(array, jax.Array) or is_affine(array)):
            return jnp
    return np


def is_affine(value: Any) -> bool:
    """Whether a value stands for an array in a run without values, see `relpref.infer.latents`."""
    return hasattr(value, "stands_for_array")


def as_array(xp: Any, value: Any, dtype: Any = None) -> Any:
    """``xp.asarray``; what `is_affine` stays what it is."""
    return value if is_affine(value) else xp.asarray(value, dtype)


def while_loop(more: Callable[[Carry], Any], step: Callable[[Carry], Carry], start: Carry) -> Carry:
    """``jax.lax.while_loop``, or the same loop in Python for arrays of NumPy."""
    if not on_host(start):
        return jax.lax.while_loop(more, step, start)
    state = start
    with np.errstate(all="ignore"):  # as in JAX, callers check for numbers that are not finite
        while more(state):
            state = step(state)
    return state


def fori_loop(number: int, step: Callable[[Any, Carry], Carry], start: Carry) -> Carry:
    """``jax.lax.fori_loop`` from 0, or the same loop in Python for arrays of NumPy."""
    if not on_host(start):
        return jax.lax.fori_loop(0, number, step, start)
    state = start
    for at in range(number):
        state = step(at, state)
    return state


def scan(
    step: Callable[[Carry, tuple[Any, ...]], tuple[Carry, Any]],
    start: Carry,
    items: tuple[Any, ...],
) -> tuple[Carry, Any]:
    """``jax.lax.scan`` along the first axes of arrays, or the same loop in Python for NumPy's."""
    if not on_host(start):
        return jax.lax.scan(step, start, items)
    state, outputs = start, []
    for item in zip(*items, strict=True):
        state, output = step(state, item)
        outputs.append(output)
    return state, jax.tree.map(lambda *parts: np.stack(parts), *outputs)


def stop_gradient(array: Any) -> Any:
    """``jax.lax.stop_gradient``; arrays of NumPy stay what they are."""
    return array if on_host(array) else jax.lax.stop_gradient(array)


def cond(predicate: Any, yes: Callable[..., Any], no: Callable[..., Any], *operands: Any) -> Any:
    """``jax.lax.cond``, or a call of one of the functions if the predicate is not JAX's."""
    if namespace(predicate) is jnp:
        return jax.lax.cond(predicate, yes, no, *operands)
    return yes(*operands) if predicate else no(*operands)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """``where`` on all leaves of two trees of arrays.

    A condition of NumPy that is a single number returns one of the trees itself.
    """
    if np.ndim(condition) == 0 and namespace(condition) is np:
        return yes if condition else no
    return jax.tree.map(
        lambda one, other: namespace(condition, one, other).where(condition, one, other), yes, no
    )


def factorize(matrix: Any) -> Any:
    """Lower triangular L with L Lᵀ = matrix, shape (n, n); not finite if the matrix has none.

    Only the lower triangle of the matrix is read.
    """
    if isinstance(matrix, jax.Array):
        return jnp.linalg.cholesky(matrix, symmetrize_input=False)
    if not len(matrix):
        return np.zeros_like(matrix)
    # LAPACK reads columns first: the transpose of what lies in memory.
    upper, failed = lapack.dpotrf(matrix.T, lower=False, clean=True)
    return np.full_like(matrix, np.nan) if failed else upper.T


def solve_lower(lower: Any, right: Any, *, transposed: bool = False) -> Any:
    """L⁻¹ or, ``transposed``, L⁻ᵀ times ``right``, shape (n,) or (n, k); L is lower triangular."""
    if isinstance(lower, jax.Array) or isinstance(right, jax.Array):
        return jax.scipy.linalg.solve_triangular(lower, right, lower=True, trans=int(transposed))
    if not right.size:
        return np.array(right)
    if right.ndim == 1:
        return blas.dtrsv(lower.T, right, lower=False, trans=not transposed)
    # Rows of ``right`` are columns of LAPACK's: X Lᵀ = R for L Xᵀ = Rᵀ.
    return blas.dtrsm(1.0, lower.T, right.T, side=1, lower=False, trans_a=transposed).T


def ravel(values: Mapping[str, Any]) -> tuple[NDArray[np.float64], Callable[[Any], dict[str, Any]]]:
    """Arrays as one vector of NumPy, in the order of their names, and the inverse function."""
    shapes = {name: np.shape(values[name]) for name in sorted(values)}
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])

    def back(vector: Any) -> dict[str, Any]:
        pieces = zip(shapes.items(), [0, *ends], ends, strict=False)
        return {
            name: np.reshape(vector[start:stop], shape) for (name, shape), start, stop in pieces
        }

    flat = [np.ravel(np.asarray(values[name], np.float64)) for name in shapes]
    return np.concatenate([np.empty(0), *flat]), back


def summed_to(array: Any, shape: tuple[int, ...]) -> Any:
    """The sum of an array over the axes along which one of this shape was broadcast to it."""
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    axes = tuple(at for at, size in enumerate(shape) if size == 1 < array.shape[at])
    return array.sum(axis=axes, keepdims=True) if axes else array


def block_diagonal(blocks: Any) -> Any:
    """The matrix with these blocks, one after the other."""
    blocks = list(blocks)
    if len(blocks) == 1:
        return blocks[0]
    return (jax.scipy.linalg if namespace(*blocks) is jnp else scipy.linalg).block_diag(*blocks)
