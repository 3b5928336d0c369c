"""Graphs of items: how much two items have to do with each other, as a symmetric matrix of weights."""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.data.labels import LabelIndex, plain_labels
from relpref.errors import DataError
from relpref.kernels.attribute import squared_distances
from relpref.kernels.positions import in_double, traced
from relpref.linalg import real, require_memory


def item_graph(
    attributes: ArrayLike,
    *,
    lengthscale: Literal["median"] | ArrayLike = "median",
    keep: float | None = None,
) -> Any:
    """Squared-exponential similarity of the items' attributes, exp(−‖v − v'‖²/(2ℓ²)) (GCK eq. 15), without loops.

    Parameters
    ----------
    attributes : array, shape (n, d)
        As they are: nothing is standardised.
    lengthscale : "median" or array, shape () or (d,)
        ℓ. "median": the median of the Euclidean distances of the n(n − 1)/2 pairs of items.
    keep : float, optional
        Only this share of the pairs, the heaviest, keep their weights, 0 < keep ≤ 1; equal weights stay or go together.

    Returns
    -------
    array, shape (n, n)
        NumPy, float64; inside a trace a JAX array, differentiable with respect to attributes and ℓ.

    Raises
    ------
    DataError
        If attributes or ℓ cannot be used, or most pairs have equal attributes, so that the median is 0.
    """
    check_keep(keep)
    if isinstance(lengthscale, str) and lengthscale != "median":
        raise DataError(f"item graph: the lengthscale is {lengthscale!r}; give a number or 'median'")
    scale = None if isinstance(lengthscale, str) else lengthscale
    if not traced(attributes, scale):
        attributes = np.asarray(attributes, dtype=np.float64)
        if attributes.ndim != 2 or not attributes.shape[1] or not np.isfinite(attributes).all():
            raise DataError(
                f"item graph: attributes of shape {attributes.shape} with {int((~np.isfinite(attributes)).sum())} numbers that are "
                "not finite; give a row of finite numbers for each item"
            )
        if scale is None:
            scale = in_double(median_distance, attributes)
        scale = np.asarray(scale, dtype=np.float64)
        if scale.shape not in ((), attributes.shape[1:]) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise DataError(
                f"item graph: the lengthscale is {scale}; give a positive number, or one for each of {attributes.shape[1]} "
                "attributes" + ("; most pairs have equal attributes" if not np.any(scale) else "")
            )
    return in_double(partial(similarity, keep=keep), attributes, scale)


@partial(jax.jit, static_argnames="keep")
def similarity(attributes: ArrayLike, lengthscale: ArrayLike | None, keep: float | None = None) -> Array:
    """What `item_graph` computes, of what it has checked; a lengthscale of None is the median."""
    points = real(attributes)
    scale = median_distance(points) if lengthscale is None else real(lengthscale)
    n = points.shape[0]
    weights = jnp.exp(-0.5 * squared_distances(points / scale)) * (1 - jnp.eye(n))
    return weights if keep is None else heaviest(weights, keep)


@jax.jit
def median_distance(attributes: ArrayLike) -> Array:
    """Median of the Euclidean distances of all pairs of items."""
    points = real(attributes)
    rows, columns = np.triu_indices(points.shape[0], 1)
    distances = jnp.sqrt(jnp.sum(jnp.square(points[rows] - points[columns]), axis=1))
    return jnp.median(jax.lax.stop_gradient(distances))


def heaviest(weights: Array, keep: float) -> Array:
    """Set all but the heaviest share of the pairs to zero; which ones they are is not differentiated."""
    rows, columns = np.triu_indices(weights.shape[0], 1)
    number = min(max(round(keep * rows.size), 1), rows.size)
    fixed = jax.lax.stop_gradient(weights)
    lightest = jnp.sort(fixed[rows, columns])[rows.size - number]
    return jnp.where(fixed >= lightest, weights, 0)


def checked_weights(
    weights: Any, num_items: int | None = None, labels: Sequence[Hashable] | None = None
) -> Any:
    """Weights of a graph of items as they are used: symmetric, no loops.

    Parameters
    ----------
    weights : array, sparse matrix or DataFrame, shape (n, n)
        Not negative; 0 = no edge. The diagonal is ignored: an item cannot be cut from itself.
    num_items : int, optional
        What n must be.
    labels : sequence of hashable, length n, optional
        Of the items, by which a DataFrame is read; rows and columns of other items are left out.

    Raises
    ------
    DataError
        If the shape is another, or a weight is negative, not finite or not that of the opposite direction. Traced weights are
        only checked for their shape.
    """
    matrix = weights if traced(weights) else _dense(weights, labels)
    n = matrix.shape[0] if matrix.ndim else 0
    if matrix.shape != (n, n) or (num_items is not None and n != num_items):
        expected = (num_items, num_items) if num_items is not None else "n x n"
        raise DataError(f"item graph: the weights have shape {matrix.shape}; it must be {expected}")
    if traced(matrix):
        return matrix * (1 - jnp.eye(n, dtype=matrix.dtype))
    np.fill_diagonal(matrix, 0.0)
    bad = ~(np.isfinite(matrix) & (matrix >= 0))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"item graph: the weight of items {row} and {column} is {matrix[row, column]}; weights are finite and not negative "
            "(0 = no edge), because a cut with negative weights is not submodular"
        )
    uneven = np.abs(matrix - matrix.T) > 1e-10 * np.abs(matrix).max(initial=0.0)
    if uneven.any():
        row, column = np.argwhere(uneven)[0]
        raise DataError(
            f"item graph: the weight of items {row} and {column} is {matrix[row, column]} in one direction and "
            f"{matrix[column, row]} in the other; give (W + W.T) / 2 if that is what you mean"
        )
    return 0.5 * (matrix + matrix.T)


def _dense(weights: Any, labels: Sequence[Hashable] | None) -> NDArray[np.float64]:
    if scipy.sparse.issparse(weights):
        require_memory(8.0 * weights.shape[0] * weights.shape[-1], "a dense matrix of the items' weights")
        return np.array(weights.toarray(), dtype=np.float64)
    if isinstance(weights, pd.DataFrame):
        sides = [
            LabelIndex(plain_labels(side, lambda row: f"item graph, {row}"), lambda row: f"item graph, {row}")
            for side in (weights.index, weights.columns)
        ]
        known = sides[0].labels if labels is None else labels
        if labels is None and sides[0].labels != sides[1].labels:
            raise DataError(
                "item graph: index and columns of the DataFrame are not the same labels in the same order; give frame.loc[labels, labels]"
            )
        rows, columns = (
            side.locate(known, lambda _: "item graph", "give every item a row and a column") for side in sides
        )
        return np.array(weights.to_numpy(dtype=np.float64)[np.ix_(rows, columns)])
    try:
        return np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"item graph: got {type(weights).__name__}; give a matrix of weights, a row and a column for each item, or a DataFrame "
            "labelled with the items, such as networkx.to_pandas_adjacency(graph)"
        ) from None


def check_keep(keep: float | None) -> None:
    """Refuse what is no share."""
    if keep is not None and not 0 < keep <= 1:
        raise DataError(
            f"item graph: keep is {keep}; it is the share of the pairs that keep their weights, 0 < keep <= 1"
        )
