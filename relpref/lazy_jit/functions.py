"""Functions that the steps call, by the names in `NAMES`: of NumPy and LAPACK, where one expression would not do."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import special
from scipy.linalg import blas, lapack

from relpref.lazy_jit.writer import Shape


def _spread(array: Any, shape: Shape) -> Any:
    out = np.empty(shape, array.dtype)
    out[...] = array
    return out


def _quotient(one: Any, two: Any) -> Any:
    """Integers divided towards zero."""
    down = one // two
    return down + ((down * two != one) & ((one < 0) != (two < 0))).astype(down.dtype)


def _cumulated(function: Any, array: Any, axis: int, reverse: bool) -> Any:
    if reverse:
        array = np.flip(array, axis)
    found = function.accumulate(array, axis, array.dtype)
    return np.flip(found, axis) if reverse else found


def _padding(array: Any, value: Any, config: Sequence[tuple[int, int, int]], shape: Shape) -> Any:
    out = np.empty(shape, array.dtype)
    out[...] = value
    to, of = [], []
    for (low, _, between), size, whole in zip(config, array.shape, shape, strict=True):
        places = low + np.arange(size) * (between + 1)
        good = np.flatnonzero((places >= 0) & (places < whole))
        if not len(good):
            return out
        of.append(slice(good[0], good[-1] + 1))
        to.append(slice(places[good[0]], places[good[-1]] + 1, between + 1))
    out[tuple(to)] = array[tuple(of)]
    return out


def _scattered(adds: bool, array: Any, where: Any, updates: Any, inside: Any = None) -> Any:
    if inside is not None and not inside.all():
        where, updates = where[inside], updates[inside]
    where, updates = where.ravel(), updates.ravel()
    if adds and array.dtype == np.float64:
        return array + np.bincount(where, updates, array.size).reshape(array.shape)
    flat = array.flatten()
    if adds:
        np.add.at(flat, where, updates)
    else:
        flat[where] = updates
    return flat.reshape(array.shape)


def _between(starts: Sequence[Any], whole: Shape, sizes: Shape) -> tuple[slice, ...]:
    places = (
        min(max(int(start), 0), most - size)
        for start, most, size in zip(starts, whole, sizes, strict=True)
    )
    return tuple(slice(place, place + size) for place, size in zip(places, sizes, strict=True))


def _window(array: Any, sizes: Shape, *starts: Any) -> Any:
    return array[_between(starts, array.shape, sizes)]


def _updated(array: Any, update: Any, *starts: Any) -> Any:
    if not array.shape:
        return update
    out = array.copy()
    out[_between(starts, array.shape, update.shape)] = update
    return out


def _matrices(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of matrices, for stacks of them."""

    def stacked(*arrays: Any, **options: Any) -> Any:
        if not arrays[-1].size:
            return arrays[-1].copy()
        if arrays[0].ndim == 2:
            return function(*arrays, **options)
        out = np.empty_like(arrays[-1], order="C")
        for place in np.ndindex(arrays[-1].shape[:-2]):
            out[place] = function(*(array[place] for array in arrays), **options)
        return out

    return stacked


@_matrices
def _cholesky(array: Any) -> Any:
    """The lower factor; NaN where there is none."""
    potrf = lapack.dpotrf if array.dtype == np.float64 else lapack.spotrf
    # LAPACK stores columns one behind the other: to it a matrix of NumPy is its transpose.
    factor, failed = potrf(array.T, lower=0, clean=1)
    return factor.T if not failed else np.tril(np.full_like(array, np.nan))


@_matrices
def _solved(
    matrix: Any, right: Any, *, left: bool, lower: bool, transposed: bool, unit: bool
) -> Any:
    trsm = blas.dtrsm if matrix.dtype == np.float64 else blas.strsm
    return trsm(
        1.0,
        matrix.T,
        right.T,
        side=int(left),
        lower=int(not lower),
        trans_a=int(transposed),
        diag=int(unit),
    ).T


def extreme(infinite: float, which: str, name: Any) -> Any:
    """The least or the greatest number of a type."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return infinite > 0
    return infinite if dtype.kind == "f" else getattr(np.iinfo(dtype), which)


NAMES: dict[str, Any] = {
    "np": np,
    "special": special,
    "asarray": np.asarray,
    "array": np.array,
    "empty": np.empty,
    "spread": _spread,
    "quotient": _quotient,
    "cumulated": _cumulated,
    "padded": _padding,
    "scattered": _scattered,
    "window": _window,
    "updated": _updated,
    "cholesky": _cholesky,
    "solved": _solved,
    "lowest": partial(extreme, -np.inf, "min"),
    "highest": partial(extreme, np.inf, "max"),
}
