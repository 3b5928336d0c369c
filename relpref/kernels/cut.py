"""The graph cut kernel on rankings (Conserva, Deisenroth & Sesh Kumar 2022, GCK)."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from relpref.data import Rankings
from relpref.data.messages import listed
from relpref.errors import DataError
from relpref.kernels.isotonic import pooled
from relpref.kernels.item_graph import checked_weights, item_graph
from relpref.kernels.placements import mean_over_placements
from relpref.kernels.positions import (
    by_rows,
    exhaustive,
    exhaustive_only,
    in_double,
    position_array,
    traced,
    with_items_of,
)
from relpref.kernels.signs import expected_sign
from relpref.linalg import real, require_memory

Graph = Any  # ArrayLike | sparse matrix | DataFrame | str | None


def cut_features(
    rankings: Any,
    graph: Graph = None,
    *,
    normalize: bool = False,
    placements: Literal["auto", "all", "sample", "raw"] = "auto",
    tolerance: float = 0.05,
    key: Any = 0,
    return_error: bool = False,
) -> Any:
    """Cut features of rankings of any kind: a number for each item, the larger, the more preferred among its neighbours.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked.
    graph : array, sparse matrix or DataFrame, shape (n, n), or str, optional
        Weights between items, symmetric and not negative, of a DataFrame by the items' labels; or the name of a relation of the items.
        By default `item_graph` of the items' standardised attributes. An item without an edge has the feature 0. A graph of several components
        is allowed: the order of items in different components changes no gain; it only says which gains are pooled.
    normalize : bool
        Divide by `cut_scale`, so that kernels of different graphs can be compared.
    placements : "auto", "all", "sample" or "raw"
        How non-exhaustive rankings are treated, whose features are means over all placements of the items that are not ranked
        (GCK eq. 14). "all": enumerate. "sample": sample. "auto": enumerate where there are at most 1024. "raw": the mean of the
        gains before they are made monotone, in closed form; biased, for where it has to be fast.
    tolerance : float
        Sampling goes on until the standard error of a ranking's features, as the root of the summed squares, is at most this share of
        their norm.
    key : int or JAX key
        For the sampling. The same key and ranking give the same features whatever the other rankings are.
    return_error : bool

    Returns
    -------
    features : array, shape (m, n)
        NumPy, float64. Inside a trace a JAX array, which is differentiable with respect to the weights.
    error : array, shape (m, n)
        Only with ``return_error``: standard errors, from sixteen independent rounds of placements or more, widened for being estimated
        from few (deviations in their units have about the variance 1, with the tails of Student's distribution); 0 where nothing was sampled.

    Raises
    ------
    DataError
        If the weights cannot be used; if all placements are wanted and there are too many; if the tolerance is not reached; if
        rankings in a trace are not exhaustive (where their positions are traced, too, their features are NaN).

    Notes
    -----
    With the gain g_i = Σ_j W_ij sgn(position_j − position_i), the sum of the gains in a block is what the block adds to the cut of
    the prefix, and the features are the gains averaged over the pools of a monotone fit along the ranking, O(n²) for each. The
    features of the reversed ranking are the negatives.
    """
    positions = position_array(rankings)
    weights = graph_weights(rankings, graph, positions.shape[1])
    scale = cut_scale(weights) if normalize else 1.0
    values: Any
    if traced(positions, weights):
        if placements == "raw":
            values = jnp.where(
                jnp.all(positions >= 0, axis=1, keepdims=True),
                exhaustive_features(positions, weights),
                mean_gains(positions, weights),
            )
        else:
            values = exhaustive_only(exhaustive_features(positions, weights), positions)
        return (values / scale, jnp.zeros_like(values)) if return_error else values / scale
    if placements == "raw":
        values, error = np.empty(positions.shape), np.zeros(positions.shape)
        known = exhaustive(positions)
        values[known] = by_rows(exhaustive_features, positions[known], weights)
        values[~known] = by_rows(mean_gains, positions[~known], weights)
    else:
        values, error = mean_over_placements(
            positions,
            lambda rows: by_rows(exhaustive_features, rows, weights),
            placements=placements,
            tolerance=tolerance,
            key=key,
        )
    return (values / scale, error / scale) if return_error else values / scale


def cut_kernel(a: Any, b: Any = None, graph: Graph = None, **options: Any) -> Any:
    """Inner products of cut features (GCK eq. 12 and 14), shape (m, m') or (m, m).

    Parameters
    ----------
    a, b : Rankings or array of int, shape (m, n)
        ``b`` is ``a`` by default. Items of `Rankings` are matched by their labels; one that ``b`` lacks is not ranked by ``b``.
    graph, **options
        As for `cut_features`.
    """
    require_memory(
        8.0 * len(position_array(a)) * len(position_array(a if b is None else b)), "the cut kernel"
    )
    left = cut_features(a, graph, **options)
    return left @ (left if b is None else cut_features(with_items_of(a, b), graph, **options)).T


def cut_scale(weights: Any) -> Any:
    """Root of the expected squared norm of the raw gains of a uniformly random full ranking; 1 for a graph without edges.

    E g_i² = ⅔ Σ_j W_ij² + ⅓ (Σ_j W_ij)²: two other items are on the same side of i in two thirds of the rankings. It depends on the
    graph alone, so that new rankings are scaled as old ones.

    Parameters
    ----------
    weights : array, shape (n, n)
        As ``graph`` of `cut_features`.
    """
    return in_double(_scale, checked_weights(weights))


@jax.jit
def _scale(weights: ArrayLike) -> Array:
    matrix = real(weights)
    largest = jax.lax.stop_gradient(jnp.max(matrix, initial=0.0))
    linked = largest > 0
    unit = jnp.where(linked, largest, 1.0)  # the squares of large and small weights alone are no numbers
    matrix = jnp.where(linked, matrix / unit, 1.0)
    squared = jnp.sum(2 * jnp.square(matrix)) / 3 + jnp.sum(jnp.square(jnp.sum(matrix, axis=1))) / 3
    return jnp.where(linked, unit * jnp.sqrt(squared), 1.0)


@jax.jit
def exhaustive_features(positions: Array, weights: Array) -> Array:
    """Cut features of exhaustive rankings, shape (m, n), from positions of any numbering and checked weights."""
    weights = real(weights)

    def add(gains: Array, other: tuple[Array, Array]) -> tuple[Array, None]:
        position, weight = other
        return gains + weight * jnp.sign(position[:, None] - positions), None

    # Item by item: no array is larger than the rankings. What is cheap to compute again is not kept for the gradient.
    nothing = jnp.zeros(positions.shape, weights.dtype)
    gains, _ = jax.lax.scan(jax.checkpoint(add), nothing, (positions.T, weights))
    return pooled(gains, positions)


@jax.jit
def mean_gains(positions: Array, weights: Array) -> Array:
    """Mean raw gains over all placements, shape (m, n): a missing item is as likely in each of the l + 1 slots between l blocks."""
    weights = real(weights)
    blocks = jnp.max(positions, axis=1, keepdims=True) + 1
    ranked = positions >= 0
    # P(below) − P(above) of a missing item, for the block of each item; 0 for missing items, which are alike.
    lead = jnp.where(ranked, (blocks - 1 - 2 * positions).astype(weights.dtype) / (blocks + 1), 0)

    def add(gains: Array, other: tuple[Array, ...]) -> tuple[Array, None]:
        position, ahead, weight = other
        return gains + weight * expected_sign(positions, lead, position[:, None], ahead[:, None]), None

    nothing = jnp.zeros(positions.shape, weights.dtype)
    return jax.lax.scan(jax.checkpoint(add), nothing, (positions.T, lead.T, weights))[0]


def graph_weights(rankings: Any, graph: Graph, num_items: int) -> Any:
    """Weights of the graph that an argument ``graph`` stands for, see `cut_features`."""
    items = getattr(rankings, "items", None)
    if graph is None:
        if items is None or not items.attributes.shape[1]:
            raise DataError(
                "cut kernel: there is no graph of the items, and they have no attributes to make one from; give graph=, "
                "or rankings.with_items(table)"
            )
        require_different_items(rankings)
        return item_graph(items.standardized_attributes())
    if isinstance(graph, str):
        relations = {} if items is None else items.relations
        if graph not in relations:
            raise DataError(
                f"cut kernel: there is no relation {graph!r} of the items; there are: {listed(relations) or 'none'}"
            )
        return relations[graph].weight_matrix
    return checked_weights(graph, num_items, None if items is None else items.entities)


def require_different_items(rankings: Rankings) -> None:
    """Refuse a median distance of 0 as a lengthscale, also where the attributes are traced."""
    if rankings.items_alike:
        raise DataError(
            "cut kernel: most pairs of items have equal attributes, so that the median of their distances is no lengthscale; give one, "
            "Cut(lengthscale=1.0), or a graph, item_graph(rankings.items.standardized_attributes(), lengthscale=1.0)"
        )
