"""Rankings on their way into compiled functions: checked positions, float64, a few rows at a time."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.data import Rankings
from relpref.data.arrays import shown
from relpref.data.ranking_tables import generator
from relpref.errors import DataError

_CELLS_AT_ONCE = 2**14


def position_array(rankings: Any) -> Any:
    """Positions of rankings or of an array of positions; those that are not traced are checked.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked.

    Raises
    ------
    DataError
        If it is no matrix of whole numbers from −1 on, or a ranking ranks nothing.
    """
    positions = getattr(rankings, "positions", rankings)
    if traced(positions):
        return positions
    array = np.asarray(positions)
    if positions is not rankings:  # rankings have checked them
        return array
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"positions: shape {array.shape} and type {array.dtype}; give Rankings, or whole numbers, a row for each ranking "
            "and a column for each item: 0 for the most preferred block, -1 for an item that is not ranked"
        )
    ordered = np.sort(array, axis=1)
    steps = np.diff(np.maximum(ordered, -1), axis=1, prepend=-1)
    bad = (
        (ordered[:, :1] < -1).any(axis=1)
        | (ordered[:, -1:].max(axis=1, initial=-1) < 0)
        | (steps > 1).any(axis=1)
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"positions of ranking {row} are {shown(array[row].tolist())}; blocks are numbered 0, 1, ... without gaps, "
            "-1 is an item that is not ranked, and a ranking has at least one item"
        )
    return array.astype(np.int32, copy=False)


def position_pair(a: Any, b: Any = None) -> tuple[Any, Any]:
    """Positions of two sets of rankings, the items of both in the order of the first; of the first twice, if it is alone."""
    left = position_array(a)
    return left, left if b is None else position_array(with_items_of(a, b))


def with_items_of(first: Any, rankings: Any) -> Any:
    """The rankings with the items of the first ones, in their order, where both know their items.

    Raises
    ------
    UnknownLabelError
        If they have an item that the first ones do not have.
    DataError
        If one of them is traced, and the items are not the same in the same order: labels cannot be asked there.
    """
    if not isinstance(first, Rankings) or not isinstance(rankings, Rankings):
        return rankings
    if not traced(first, rankings):
        return replace(rankings, features=None, residual=None).aligned(first.items)
    if first.items_code != rankings.items_code:
        raise DataError(
            "kernel on rankings: the two sets of rankings have different items, or the same items in another order, and inside a program "
            "they cannot be matched; match them before: rankings.aligned(others.items), also for the rankings of Landmarks"
        )
    return rankings


def traced(*values: Any) -> bool:
    """Whether any leaf belongs to a computation that JAX traces."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def exhaustive(positions: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each ranking has all items in some block, shape (m,)."""
    return np.asarray((positions >= 0).all(axis=1))


def exhaustive_only(values: Any, positions: Any, *more: Any) -> Any:
    """Features or kernel values, the first axis that of ``positions``, where all rankings have all items in some block.

    Others are refused, and become NaN where their positions are traced: never a plausible number.

    Raises
    ------
    DataError
        If the positions are known and not exhaustive.
    """
    for axis, part in enumerate((positions, *more)):
        if traced(part):
            shape = [1] * values.ndim
            shape[axis] = -1
            values = jnp.where(jnp.all(part >= 0, axis=1).reshape(shape), values, jnp.nan)
        elif not exhaustive(part).all():
            raise partial_in_a_program()
    return values


def partial_in_a_program() -> DataError:
    """The error of a kernel that cannot be evaluated there."""
    return DataError(
        "inside a program, features of non-exhaustive rankings cannot be enumerated or sampled: compute them before, "
        "rankings.with_features(cut_features(rankings, graph, normalize=True)), and use the kernel GivenFeatures(); or use "
        "Kendall(), which is exact for all kinds of ranking"
    )


def in_double(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of arrays: inside a trace as it is, otherwise in float64 and with NumPy arrays out."""
    if traced(*arguments):
        return function(*arguments)
    with _now():
        return jax.tree.map(np.asarray, function(*arguments))


def padded(positions: NDArray[Any]) -> NDArray[Any]:
    """Rankings and copies of the last one, up to a number that many sets of rankings share: few shapes, few compilations."""
    m = len(positions)
    step = max(16, 1 << max(m.bit_length() - 3, 0))
    return np.concatenate([positions, np.repeat(positions[-1:], -m % step, axis=0)])


def by_rows(
    function: Callable[..., Any], positions: NDArray[np.int32], *arguments: Any
) -> NDArray[np.float64]:
    """Call a compiled function on a few rows of positions after the other, in float64.

    Every call has the same shape, whatever the number of rankings, so that there is one compilation for each number of items;
    and what a call needs stays in the cache.

    Parameters
    ----------
    function : callable
        From positions, shape (rows, n), and the arguments to an array of shape (rows, r).
    positions : array, shape (m, n)
    *arguments
        Handed through.
    """
    m, n = positions.shape
    rows = max(1, min(512, _CELLS_AT_ONCE // max(n, 1)))
    parts = []
    with _now():
        for first in range(0, max(m, 1), rows):
            part = positions[first : first + rows]
            padded = np.concatenate([part, np.zeros((rows - len(part), n), dtype=positions.dtype)])
            parts.append(function(jnp.asarray(padded), *arguments)[: len(part)])
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])


@contextmanager
def _now() -> Iterator[None]:
    """Compute in float64, and at once, also where what is known stands beside what is traced."""
    # Only there, because at compile time JAX computes every constant of a function by itself.
    beside = jax.ensure_compile_time_eval() if traced(jnp.zeros(())) else nullcontext()
    with beside, jax.enable_x64(True):
        yield


FEW = 1024  # placements that "auto" enumerates
MOST = 10**8  # placements of all rankings that are enumerated at all
FIRST_ROUNDS = 16
MOST_STRATA = 16
MOST_DRAWS = 2**18  # of one ranking
_PLACEMENTS_CELLS_AT_ONCE = 2**21

FeatureMap = Callable[[NDArray[np.int32]], NDArray[np.float64]]


def mean_over_placements(
    positions: NDArray[np.int32], features: FeatureMap, *, placements: str, tolerance: float, key: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features of rankings of any kind, and their standard errors (GCK section 3.2).

    Parameters
    ----------
    positions : array of int32, shape (m, n)
        Blocks numbered from 0 without gaps; −1 = not ranked.
    features : callable
        From the positions of exhaustive rankings, numbered in any way, to their features, a row for each.
    placements : "auto", "all" or "sample"
    tolerance : float
        Of the standard error, relative to the norm of a ranking's features.
    key : int or JAX key

    Returns
    -------
    values, error : array, shape (m, r)

    Notes
    -----
    Each item that is not ranked goes into one of the l + 1 slots before, between and after the l blocks, independently, and is tied
    with others in its slot: (l + 1)^(n − l) placements for a ranking without ties.
    """
    if placements not in ("auto", "all", "sample"):
        raise DataError(
            f"placements is {placements!r}; choose 'auto', 'all' or 'sample' (or 'raw' for cut features)"
        )
    if not tolerance > 0:
        raise DataError(f"tolerance is {tolerance}; it is a relative standard error, larger than 0")
    known = exhaustive(positions)
    complete = features(positions[known])
    values = np.zeros((len(positions), complete.shape[1]))
    error = np.zeros_like(values)
    values[known] = complete
    # In logarithms: the number itself may have a hundred digits.
    bases = positions.max(axis=1, initial=-1) + 2
    logarithm = (positions < 0).sum(axis=1) * np.log10(bases)
    few = ~known & (np.ones_like(known) if placements == "all" else logarithm <= np.log10(FEW) + 1e-9)
    if placements == "sample":
        few &= False
    if few.any():
        values[few] = _enumerated(positions[few], features, logarithm[few])
    rest = np.flatnonzero(~known & ~few)
    if rest.size:
        values[rest], error[rest] = _sampled(positions[rest], features, tolerance, key)
    return values, error


def _enumerated(
    positions: NDArray[np.int32], features: FeatureMap, logarithm: NDArray[np.float64]
) -> NDArray[np.float64]:
    if np.log10(np.sum(10.0 ** np.minimum(logarithm, 300.0))) > np.log10(MOST):
        raise DataError(
            f"placements='all': there are 10^{logarithm.max():.0f} placements of one ranking, and at most {MOST:.0e} are enumerated in all; "
            "use placements='sample', which reports its standard error"
        )
    bases = positions.max(axis=1).astype(np.int64) + 2
    missing = positions < 0
    digit = np.where(missing, np.cumsum(missing, axis=1) - 1, 0)
    ends = np.cumsum(bases ** missing.sum(axis=1))
    counts = np.diff(ends, prepend=0)
    total: Any = 0.0
    step = max(1, _PLACEMENTS_CELLS_AT_ONCE // positions.shape[1])
    for first in range(0, int(ends[-1]), step):
        number = np.arange(first, min(first + step, int(ends[-1])))
        row = np.searchsorted(ends, number, side="right")
        number -= (ends - counts)[row]
        base = bases[row, None]
        slots = number[:, None] // base ** digit[row] % base
        found = features(_placed(positions[row], slots))
        sums = np.zeros((len(positions), found.shape[1]))
        np.add.at(sums, row, found)
        total = total + sums
    return np.asarray(total / counts[:, None])


def _placed(positions: NDArray[np.int32], slots: NDArray[np.int64]) -> NDArray[np.int32]:
    """Positions with every missing item in its slot, blocks at odd numbers and slots at even ones."""
    return np.where(positions >= 0, 2 * positions + 1, 2 * slots).astype(np.int32)


def _sampled(
    positions: NDArray[np.int32], features: FeatureMap, tolerance: float, key: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    seed = int(generator(key).integers(2**63))
    # A stream of its own for each ranking: its features do not depend on the company it is in.
    streams = [np.random.default_rng([seed, zlib.crc32(row.tobytes())]) for row in positions]
    sums: Any = None
    rounds = np.zeros(len(positions), dtype=np.int64)
    active = np.arange(len(positions))
    more = FIRST_ROUNDS
    while active.size:
        for group in _groups(positions, active, more):
            rows = [_round_of_placements(positions[row], streams[row], more) for row in group]
            found = features(np.concatenate(rows))
            if sums is None:
                sums = np.zeros(
                    (3, len(positions), found.shape[1])
                )  # of means, their squares, squared features
            first = 0
            for row, drawn in zip(group, rows, strict=True):
                draws = found[first : first + len(drawn)]
                means = draws.reshape(more, -1, draws.shape[1]).mean(axis=1)
                sums[0, row] += means.sum(axis=0)
                sums[1, row] += np.square(means).sum(axis=0)
                sums[2, row] += np.square(draws).mean(axis=0) * more
                first += len(drawn)
        rounds[active] += more
        r = rounds[:, None]
        mean = sums[0] / r
        error = np.sqrt(np.maximum(sums[1] / r - np.square(mean), 0.0) / (r - 3))
        # (r − 3, not r − 1: in units of it deviations have Student's distribution scaled to variance 1.)
        # A mean of zero by symmetry has no relative error: what is 1e-9 of the features themselves is rounding.
        rounding = 1e-9 * np.sqrt((sums[2] / r).sum(axis=1))
        spread = np.linalg.norm(error, axis=1)
        wanted = tolerance * np.linalg.norm(mean, axis=1) + rounding
        active = active[spread[active] > wanted[active]]
        more = int(rounds.max())
        draws = 2 * _strata(positions[active].max(axis=1, initial=-1) + 2) * (rounds[active] + more)
        if active.size and draws.max() > MOST_DRAWS:
            worst = active[np.argmax(spread[active] / wanted[active])]
            reached = spread[worst] / np.linalg.norm(mean[worst])
            raise DataError(
                f"tolerance={tolerance}: after {rounds[worst]} rounds of placements the relative standard error of a ranking's features is "
                f"{reached:.2g}; ask for a tolerance of at least {1.2 * reached:.2g}"
            )
    return mean, error


def _groups(positions: NDArray[np.int32], active: NDArray[np.intp], more: int) -> Iterator[NDArray[np.intp]]:
    """Rankings whose placements fit into memory together."""
    cells = np.cumsum(2 * _strata(positions[active].max(axis=1) + 2) * more * positions.shape[1])
    yield from np.split(active, np.flatnonzero(np.diff(cells // _PLACEMENTS_CELLS_AT_ONCE)) + 1)


def _strata(slots: Any) -> Any:
    """Pairs of placements in a round: one for each slot, but so few that there are rounds enough to tell the error."""
    return np.minimum(slots, MOST_STRATA)


def _round_of_placements(
    ranking: NDArray[np.int32], stream: np.random.Generator, rounds: int
) -> NDArray[np.int32]:
    """Placements, stratified: in a round every missing item is in each slot twice, once in a placement and once in its mirror image.

    (Of many slots it is in each stretch of neighboring ones twice.) In each placement by itself the items are independent and
    uniform, so that means are unbiased. Rounds are independent, so that their spread gives the standard error.
    """
    missing = np.flatnonzero(ranking < 0)
    slots = int(ranking.max()) + 2
    strata = int(_strata(slots))
    drawn = np.broadcast_to(np.arange(strata)[:, None], (rounds, strata, missing.size))
    drawn = stream.permuted(drawn, axis=1)
    if strata < slots:
        drawn = np.floor((drawn + stream.random(drawn.shape)) * (slots / strata)).astype(np.int64)
    both = np.stack([drawn, slots - 1 - drawn], axis=1).reshape(-1, missing.size)
    placed = np.broadcast_to(2 * ranking + 1, (len(both), ranking.size)).copy()
    placed[:, missing] = 2 * both
    return placed


def pooled(gains: Array, positions: Array) -> Array:
    """Average gains over the pools of the best fit that does not rise from a more to a less preferred block.

    With F(B) the sum of the gains of the items in B, these are the slopes of the least concave majorant of the points
    (|B_k|, F(B_k)) over the prefixes B_k of a ranking, what the pool-adjacent-violators algorithm finds
    (GCK algorithm 1; Best & Chakravarti 1990).

    Parameters
    ----------
    gains : Array, shape (m, n)
        Only the sum over each block matters.
    positions : Array, shape (m, n)
        Any numbers that order the blocks, the smallest first; equal ones are a block.

    Returns
    -------
    Array, shape (m, n)
        The same for all items of a block.

    Notes
    -----
    A prefix is a vertex of the majorant if every chord that ends there is steeper than every chord that starts there. All
    chords of a ranking are looked at, O(n²), which has no branches and needs neither a sort nor a stack, so that it runs
    along all rankings at once. The result is linear in the gains as long as the pools stay the same, and is so
    differentiated: exact wherever a gradient exists.
    """
    fixed = jax.lax.stop_gradient(gains)
    (before, through), (fewer, size) = _prefix_sums(positions, fixed, jnp.ones_like(fixed))

    def chords(steepest: tuple[Array, Array], other: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        ending, starting = steepest
        position, sum_before, sum_through, size_before, size_through = (part[:, None] for part in other)
        earlier = position <= positions
        chord = (through - sum_before) / jnp.where(earlier, size - size_before, 1)
        ending = jnp.where(earlier, jnp.minimum(ending, chord), ending)
        chord = (sum_through - through) / jnp.where(earlier, 1, size_through - size)
        return (ending, jnp.where(earlier, starting, jnp.maximum(starting, chord))), None

    extremes = (jnp.full_like(fixed, jnp.inf), jnp.full_like(fixed, -jnp.inf))
    ends = (positions.T, before.T, through.T, fewer.T, size.T)
    (ending, starting), _ = jax.lax.scan(chords, extremes, ends)
    vertex = jnp.where(ending > starting, size, 0)

    def latest(start: Array, other: tuple[Array, Array]) -> tuple[Array, None]:
        position, size_through = (part[:, None] for part in other)
        return jnp.where(position < positions, jnp.maximum(start, size_through), start), None

    # A pool is known by the size of the vertex before it.
    start, _ = jax.lax.scan(latest, jnp.zeros_like(fixed), (positions.T, vertex.T))

    def average(sums: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        same = other[0][:, None] == start
        gain = jnp.where(same, other[1][:, None], 0)
        return (sums[0] + gain, sums[1] + same), None

    nothing = (jnp.zeros_like(gains), jnp.zeros_like(fixed))
    (total, members), _ = jax.lax.scan(jax.checkpoint(average), nothing, (start.T, gains.T))
    return total / members


def _prefix_sums(positions: Array, *values: Array) -> list[tuple[Array, Array]]:
    """Sums over the blocks before that of each item, and over these and its own, of each array of values."""

    def add(
        sums: list[tuple[Array, Array]], other: tuple[Array, ...]
    ) -> tuple[list[tuple[Array, Array]], None]:
        position = other[0][:, None]
        before, through = position < positions, position <= positions
        parts = zip(sums, (value[:, None] for value in other[1:]), strict=True)
        return [
            (low + jnp.where(before, value, 0), up + jnp.where(through, value, 0))
            for (low, up), value in parts
        ], None

    nothing = [(jnp.zeros_like(value), jnp.zeros_like(value)) for value in values]
    return jax.lax.scan(add, nothing, (positions.T, *(value.T for value in values)))[0]
