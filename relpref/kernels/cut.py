"""The graph cut kernel on rankings (Conserva, Deisenroth & Sesh Kumar 2022, GCK)."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import listed
from relpref.data.labels import LabelIndex
from relpref.errors import DataError
from relpref.kernels.attribute import squared_distances
from relpref.kernels.positions import (
    by_rows,
    exhaustive,
    exhaustive_only,
    expected_sign,
    in_double,
    mean_over_completions,
    over_items,
    padded,
    position_array,
    with_items_of,
)
from relpref.linalg import checked_symmetric, require_memory
from relpref.linalg.arrays import namespace, scan, stop_gradient, traced


class SubmodularFunction(Protocol):
    """A submodular function F of sets of items, with F(∅) = 0.

    F(A) + F(B) ≥ F(A ∪ B) + F(A ∩ B) for all sets A and B (GCK eq. 2).
    """

    def __call__(self, members: Array) -> Array:
        """F(A) of many sets, shape (...), from indicators (1 = in A), shape (..., n).

        JAX can trace it.
        """


def submodular_features(
    rankings: Any,
    function: SubmodularFunction,
    *,
    placements: Literal["auto", "all", "sample"] = "auto",
    tol: float = 0.05,
    rng_key: Any = 0,
    return_error: bool = False,
) -> Any:
    """Features of rankings by any submodular function F.

    A ranking's features are the point s of least norm with s(B) ≥ F(B) for all prefixes B of the
    ranking.

    Parameters
    ----------
    function : SubmodularFunction
        Hashable, as functions are; one that stays the same object is compiled once.
    rankings, placements, tol, rng_key, return_error
        See `cut_features`, also for the returned features and errors.

    Notes
    -----
    For a prefix B of the most preferred items Σ_{i in B} s_i ≥ F(B), with equality for all items.
    GCK eq. 7 has "≤", for prefixes of the least preferred; as printed, its solution for a cut would
    be s = 0.
    """
    values, error = _of_any_kind(
        partial(_by_function, function),
        position_array(rankings),
        placements=placements,
        tol=tol,
        rng_key=rng_key,
    )
    return (values, error) if return_error else values


def _of_any_kind(
    function: Callable[..., Array], positions: Any, *arguments: Any, **options: Any
) -> Any:
    """Features and their standard errors, by a compiled function for exhaustive rankings."""
    if traced(positions, *arguments):
        values = exhaustive_only(function(positions, *arguments), positions)
        return values, jnp.zeros_like(values)
    return mean_over_completions(
        positions, lambda rows: by_rows(function, rows, *arguments), **options
    )


def _by_function(function: SubmodularFunction, positions: Any) -> Any:
    """Features of exhaustive rankings; items share evenly what their block adds (GCK eq. 11)."""
    item, other = positions[:, :, None], positions[:, None, :]
    through, before = (other <= item).astype(float), (other < item).astype(float)

    def value(members: Any) -> Any:
        if not traced(members):
            members = padded(members)
        return in_double(jax.jit(function), members)[: len(positions)]

    return pooled((value(through) - value(before)) / (through - before).sum(axis=-1), positions)


def pooled(gains: Any, positions: Any) -> Any:
    """Average gains over the pools of a monotone fit along each ranking, shape (m, n).

    The fit is the best one that does not rise from a more to a less preferred block. With F(B) the
    sum of the gains of the items in B, the averages are the slopes of the least concave majorant of
    the points (|B_k|, F(B_k)) over the prefixes B_k of a ranking, the result of the
    pool-adjacent-violators algorithm (GCK algorithm 1; Best & Chakravarti 1990). A prefix is a
    vertex of the majorant if every chord that ends there is steeper than every chord that starts
    there. All chords of a ranking are compared, O(n²), without branches or a stack, so that all
    rankings are computed at once. The result is linear in the gains as long as the pools stay the
    same, and is differentiated as such.
    Positions are any numbers that order the blocks, the smallest first.
    """
    xp = namespace(gains, positions)
    number = positions.shape[1]
    order, size = xp.argsort(positions, axis=1), np.arange(number + 1)
    sums = xp.cumsum(xp.take_along_axis(gains, order, axis=1), axis=1)
    sums, blocks = xp.pad(sums, ((0, 0), (1, 0))), xp.take_along_axis(positions, order, axis=1)
    inside = xp.pad(blocks[:, 1:] == blocks[:, :-1], ((0, 0), (1, 1)))  # the prefix cuts a block
    fixed = stop_gradient(sums)

    def chords(ending: Any, prefix: tuple[Any, ...]) -> tuple[Any, Any]:
        """Compare the chords from a prefix to all larger ones."""
        of_prefix, cuts, here = prefix
        later = size > here
        chord = (fixed - of_prefix) / xp.maximum(size - here, 1)
        ending = xp.where(later & ~cuts, xp.minimum(ending, chord), ending)
        return ending, xp.max(chord, axis=1, where=later & ~inside, initial=-np.inf)

    prefixes = fixed.T[:, :, None], inside.T[:, :, None], size
    ending, starting = scan(chords, xp.full_like(fixed, np.inf), prefixes)
    vertex = (ending > starting.T) & ~inside
    start = xp.maximum.accumulate(xp.where(vertex, size, 0), axis=1)[:, :-1]
    backwards = xp.where(vertex, size, number)[:, ::-1]
    end = xp.minimum.accumulate(backwards, axis=1)[:, -2::-1]
    first, last = (xp.take_along_axis(sums, each, axis=1) for each in (start, end))
    average = (last - first) / (end - start)
    return xp.take_along_axis(average, xp.argsort(order, axis=1), axis=1)


def item_graph(
    attributes: ArrayLike,
    *,
    lengthscale: Literal["median"] | ArrayLike = "median",
    keep: float | None = None,
) -> Any:
    """Squared-exponential similarity of the items' attributes, without loops.

    exp(−‖v − v'‖²/(2ℓ²)) (GCK eq. 15).

    Parameters
    ----------
    attributes : array, shape (n, d)
        They are not standardized.
    lengthscale : "median" or array, shape () or (d,)
        ℓ. "median": the median of the Euclidean distances of the n(n − 1)/2 pairs of items.
    keep : float, optional
        Only this share of the pairs, the heaviest, keep their weights, 0 < keep ≤ 1; equal weights
        stay or go together.

    Returns
    -------
    array, shape (n, n)
        NumPy, float64; inside a trace a JAX array, differentiable with respect to attributes and ℓ.
    """
    check_keep(keep)
    if isinstance(lengthscale, str) and lengthscale != "median":
        raise DataError(
            f"item graph: the lengthscale is {lengthscale!r}; give a number or 'median'"
        )
    scale = None if isinstance(lengthscale, str) else lengthscale
    if not traced(attributes, scale):
        attributes = np.asarray(attributes, dtype=np.float64)
        if attributes.ndim != 2 or not attributes.shape[1] or not np.isfinite(attributes).all():
            raise DataError(
                f"item graph: attributes of shape {attributes.shape}; give a row of finite numbers "
                "for each item"
            )
        if scale is None:
            scale = median_distance(attributes)
        scale = np.asarray(scale, dtype=np.float64)
        if scale.shape not in ((), attributes.shape[1:]) or not np.all(
            np.isfinite(scale) & (scale > 0)
        ):
            raise DataError(
                f"item graph: the lengthscale is {scale}; give a positive number, or one for each "
                f"of {attributes.shape[1]} attributes"
                + ("; most pairs have equal attributes" if not np.any(scale) else "")
            )
    points: Any = attributes
    points = points / (median_distance(points) if scale is None else scale)
    xp = namespace(points)
    weights = xp.exp(-0.5 * squared_distances(points)) * (1 - xp.eye(len(points)))
    return weights if keep is None else heaviest(weights, keep)


def median_distance(points: Any) -> Any:
    xp = namespace(points)
    rows, columns = np.triu_indices(len(points), 1)
    distances = xp.sqrt(xp.sum(xp.square(points[rows] - points[columns]), axis=1))
    return xp.median(stop_gradient(distances)) if len(rows) else np.nan


def heaviest(weights: Any, keep: float) -> Any:
    """Set all but the heaviest share of the pairs to zero."""
    rows, columns = np.triu_indices(weights.shape[0], 1)
    number = min(max(round(keep * rows.size), 1), rows.size)
    xp = namespace(weights)
    fixed = stop_gradient(weights)
    lightest = xp.sort(fixed[rows, columns])[rows.size - number]
    return xp.where(fixed >= lightest, weights, 0)


def checked_weights(
    weights: Any, num_items: int | None = None, labels: Sequence[Hashable] | None = None
) -> Any:
    """Checked weights of a graph of items, symmetric and without loops.

    The diagonal is ignored: an item cannot be cut from itself. A DataFrame is read by the
    ``labels`` of the items. Traced weights are only checked for their shape.
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
            f"item graph: the weight of items {row} and {column} is {matrix[row, column]}; give "
            "finite weights, not negative"
        )
    matrix = checked_symmetric(matrix, "item graph")
    return 0.5 * (matrix + matrix.T)


def _dense(weights: Any, labels: Sequence[Hashable] | None) -> NDArray[np.float64]:
    if scipy.sparse.issparse(weights):
        require_memory(
            8.0 * weights.shape[0] * weights.shape[-1], "a dense matrix of the items' weights"
        )
        return np.array(weights.toarray(), dtype=np.float64)
    if isinstance(weights, pd.DataFrame):
        names = tuple(weights.index) if labels is None else labels
        if labels is None and names != tuple(weights.columns):
            raise DataError(
                "item graph: index and columns are not the same labels in the same order; give "
                "frame.loc[labels, labels]"
            )
        rows, columns = (
            LabelIndex(tuple(side), lambda row: f"item graph, {row}").locate(
                names, lambda _: "item graph", "give every item a row and a column"
            )
            for side in (weights.index, weights.columns)
        )
        return np.array(weights.to_numpy(dtype=np.float64)[np.ix_(rows, columns)])
    try:
        return np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"item graph: got {type(weights).__name__}; give a matrix of weights, a row and a "
            "column for each item, or a DataFrame labeled with the items, such as "
            "networkx.to_pandas_adjacency(graph)"
        ) from None


def check_keep(keep: float | None) -> None:
    if keep is not None and not 0 < keep <= 1:
        raise DataError(
            f"item graph: keep is {keep}; it is a share of the pairs, above 0 and at most 1"
        )


Graph = Any  # ArrayLike | sparse matrix | DataFrame | str | None
Function = Literal["cut", "concave"]


def cut_features(
    rankings: Any,
    graph: Graph = None,
    *,
    function: Function = "cut",
    normalize: bool = False,
    placements: Literal["auto", "all", "sample", "raw"] = "auto",
    tol: float = 0.05,
    rng_key: Any = 0,
    return_error: bool = False,
) -> Any:
    """Cut features of rankings of any kind, one for each item.

    An item's feature is the larger, the more it is preferred among its neighbors.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked.
    graph : array, sparse matrix or DataFrame, shape (n, n), or str, optional
        Weights between items, symmetric and not negative, of a DataFrame by the items' labels; or
        the name of a relation of the items. By default `item_graph` of the items' standardized
        attributes. An item without an edge has the feature 0. The order of items in different
        components of the graph only determines which gains are pooled.
    function : "cut" or "concave"
        Submodular function of the graph. "concave": a concave function of the weight that each
        item's edges have inside a set, with weight 1 for all pairs of items without attributes.
    normalize : bool
        Divide by `cut_scale`, so that kernels of different graphs can be compared.
    placements : "auto", "all", "sample" or "raw"
        How non-exhaustive rankings are treated, whose features are means over all placements of the
        items that are not ranked (GCK eq. 14). "all": enumerate. "sample": sample. "auto":
        enumerate where there are at most 1024. "raw": the mean of the gains before they are made
        monotone, in closed form; biased, for where it has to be fast.
    tol : float
        Sampling continues until the norm of the standard errors of a ranking's features is at most
        this share of their norm.
    rng_key : int or JAX key
        For the sampling. The same key and ranking give the same features whatever the other
        rankings are.
    return_error : bool

    Returns
    -------
    features : array, shape (m, n)
        NumPy, float64. Inside a trace a JAX array, which is differentiable with respect to the
        weights.
    error : array, shape (m, n)
        Only with ``return_error``: standard errors, from sixteen independent rounds or more,
        widened for being estimated from few (deviations in their units have about the variance 1,
        with the tails of Student's distribution); 0 where nothing was sampled.

    Raises
    ------
    DataError
        If the weights cannot be used; if all placements are requested and there are too many; if
        the tolerance is not reached; if rankings in a trace are not exhaustive (where their
        positions are traced, too, their features are NaN).

    Notes
    -----
    With the gain g_i = Σ_j W_ij sgn(position_j − position_i), the sum of the gains in a block is
    what the block adds to the cut of the prefix, and the features are the gains averaged over the
    pools of a monotone fit along the ranking, O(n²) for each. The features of the reversed ranking
    are the negatives.

    The concave function is F(A) = Σ_j (√w_j(A) + √(w_j(V) − w_j(A)) − √w_j(V)), with V all items
    and w_j(A) = Σ_{i in A} W_ij, where W_jj is the heaviest weight of all. The first and the last
    items of a ranking have larger gains than with the cut.
    """
    positions = position_array(rankings)
    weights = graph_weights(rankings, graph, positions.shape[1], function=function)
    features, _ = submodular(function)
    values: Any
    complete: Any
    if placements != "raw" or function != "cut":
        options: dict[str, Any] = {"placements": placements, "tol": tol, "rng_key": rng_key}
        values, error = _of_any_kind(features, positions, weights, **options)
    elif traced(positions, weights):
        complete = jnp.all(positions >= 0, axis=1, keepdims=True)
        values = jnp.where(
            complete, exhaustive_features(positions, weights), _mean_gains(positions, weights)
        )
        error = jnp.zeros_like(values)
    else:
        complete = exhaustive(positions)
        values, error = np.empty(positions.shape), np.zeros(positions.shape)
        values[complete] = by_rows(exhaustive_features, positions[complete], weights)
        values[~complete] = by_rows(_mean_gains, positions[~complete], weights)
    scale = cut_scale(weights, function) if normalize else 1.0
    return (values / scale, error / scale) if return_error else values / scale


def cut_kernel(a: Any, b: Any = None, graph: Graph = None, **options: Any) -> Any:
    """The graph cut kernel of rankings: inner products of cut features, shape (m, m') or (m, m).

    ``a`` and ``b`` are as for `kendall_kernel`, the others as for `cut_features` (GCK eq. 12 and
    14).
    """
    require_memory(
        8.0 * len(position_array(a)) * len(position_array(a if b is None else b)), "the cut kernel"
    )
    left = cut_features(a, graph, **options)
    return left @ (left if b is None else cut_features(with_items_of(a, b), graph, **options)).T


def cut_scale(weights: Any, function: Function = "cut") -> Any:
    """Root mean squared norm of a random full ranking's raw gains; 1 for a graph without edges.

    For the cut E g_i² = ⅔ Σ_j W_ij² + ⅓ (Σ_j W_ij)²: two other items are on the same side of i in
    two thirds of the rankings. For the concave function it is the norm of the features, and the
    mean is over 256 rankings that are always the same. It depends on the graph alone, so that new
    rankings are scaled like old ones. ``weights``, shape (n, n), and ``function`` are as for
    `cut_features`.
    """
    _, scale = submodular(function)
    return scale(checked_weights(weights))


def _scale(weights: Any) -> Any:
    xp = namespace(weights)
    largest = stop_gradient(xp.max(weights, initial=0.0))
    linked = largest > 0
    # Squares of very large or small weights would overflow or vanish.
    unit = xp.where(linked, largest, 1.0)
    matrix = xp.where(linked, weights / unit, 1.0)
    squared = xp.sum(2 * xp.square(matrix)) / 3 + xp.sum(xp.square(xp.sum(matrix, axis=1))) / 3
    return xp.where(linked, unit * xp.sqrt(squared), 1.0)


def exhaustive_features(positions: Any, weights: Any) -> Any:
    """Cut features of exhaustive rankings, shape (m, n), for checked weights and any numbering."""
    xp = namespace(positions, weights)

    def add(gains: Any, position: Any, weight: Any) -> Any:
        return gains + weight * xp.sign(position - positions)

    gains = over_items(add, xp.zeros(positions.shape), positions, weights[:, None])
    return pooled(gains, positions)


def concave_features(positions: Any, weights: Any) -> Any:
    """Features of exhaustive rankings by the concave function of `cut_features`, shape (m, n)."""
    xp = namespace(positions, weights)
    weights = xp.asarray(weights + xp.max(weights) * xp.eye(len(weights)))

    def roots(order: Any) -> Any:
        """Σ_j √w_j of the first 0, 1, ... n items, shape (n + 1, m)."""

        def add(inside: Any, items: tuple[Any, ...]) -> tuple[Any, Any]:
            inside = inside + weights[items]
            linked = inside > 0  # the root has no derivative at 0
            root = xp.where(linked, xp.sqrt(xp.where(linked, inside, 1)), 0)
            return inside, xp.sum(root, axis=1)

        return xp.pad(scan(add, xp.zeros(positions.shape), (order,))[1], ((1, 0), (0, 0)))

    order = xp.argsort(positions, axis=1).T
    # The weight outside is summed from the other end: a difference would not be exactly 0.
    values = (roots(order) + roots(order[::-1])[::-1]).T
    item, other = positions[:, :, None], positions[:, None, :]
    sizes = xp.sum(other <= item, axis=2), xp.sum(other < item, axis=2)
    through, before = (xp.take_along_axis(values, size, axis=1) for size in sizes)
    return pooled((through - before) / (sizes[0] - sizes[1]), positions)


def _concave_scale(weights: Any) -> Any:
    drawn = np.argsort(np.random.default_rng(0).random((256, len(weights))), axis=1)
    features = concave_features(drawn, weights)
    xp = namespace(features)
    squared = xp.mean(xp.sum(xp.square(features), axis=1))
    return xp.sqrt(xp.where(squared > 0, squared, 1))


def submodular(function: Function) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Features of exhaustive rankings by a submodular function of a graph, and their scale."""
    if function == "cut":
        return exhaustive_features, _scale
    if function == "concave":
        return concave_features, _concave_scale
    raise DataError(f"function is {function!r}; it is 'cut' or 'concave'")


def _mean_gains(positions: Any, weights: Any) -> Any:
    """Mean raw gains over all completions, shape (m, n).

    A missing item is equally likely in each of the l + 1 slots before, between and after l blocks.
    """
    xp = namespace(positions, weights)
    blocks = xp.max(positions, axis=1, keepdims=True) + 1
    # P(below) − P(above) of a missing item, for the block of each item; 0 for missing items, which
    # are alike.
    lead = xp.where(positions >= 0, (blocks - 1 - 2 * positions) / (blocks + 1), 0)

    def add(gains: Any, position: Any, ahead: Any, weight: Any) -> Any:
        return gains + weight * expected_sign(positions, lead, position, ahead)

    return over_items(add, xp.zeros(positions.shape), positions, lead, weights[:, None])


def graph_weights(
    rankings: Any,
    graph: Graph,
    num_items: int,
    lengthscale: Literal["median"] | ArrayLike = "median",
    keep: float | None = None,
    function: Function = "cut",
) -> Any:
    """Weights of the graph that arguments ``graph`` and ``function`` stand for, see `cut_features`.

    ``lengthscale`` and ``keep`` are as for `item_graph`.
    """
    items = getattr(rankings, "items", None)
    plain = items is None or not items.attributes.shape[1]
    if graph is None and plain and function == "concave":
        return 1 - np.eye(num_items)
    if graph is None:
        attributes = require_attributes(items)
        # Also where the attributes are traced.
        if isinstance(lengthscale, str) and rankings.items_alike:
            raise DataError(
                "cut kernel: most pairs of items have equal attributes, so that the median of "
                "their distances is no lengthscale; give one, Cut(lengthscale=1.0), or a graph, "
                "item_graph(rankings.items.standardized_attributes(), lengthscale=1.0)"
            )
        return item_graph(attributes, lengthscale=lengthscale, keep=keep)
    if isinstance(graph, str):
        relations = {} if items is None else items.relations
        if graph not in relations:
            raise DataError(
                f"cut kernel: no relation {graph!r} of the items; there are: {listed(relations)}"
            )
        weights = relations[graph].weight_matrix
    else:
        weights = checked_weights(graph, num_items, None if items is None else items.labels)
    return weights if keep is None else heaviest(weights, keep)


def require_attributes(items: Any) -> Any:
    """Standardized attributes of the items, shape (n, d), at least one of them."""
    if items is None or not items.attributes.shape[1]:
        raise DataError(
            "cut kernel: the items have no attributes; give graph=, or rankings.with_items(table)"
        )
    return items.standardized_attributes()
