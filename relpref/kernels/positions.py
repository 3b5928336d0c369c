"""Positions of items in rankings: checks, calls for many rankings, and completions."""

import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.compiled import float64
from relpref.data import Rankings
from relpref.data.arrays import shown
from relpref.data.ranking_tables import generator
from relpref.errors import DataError
from relpref.linalg.arrays import namespace, on_host, scan, traced

_CELLS_AT_ONCE = 2**14
_AUTO_COMPLETIONS = 1024  # of one ranking, which "auto" enumerates
_MAX_COMPLETIONS = 10**8  # of all rankings, which are enumerated at all
_FIRST_ROUNDS = 16
MAX_STRATA = 16
_MAX_DRAWS = 2**18  # of one ranking
_COMPLETION_CELLS_AT_ONCE = 2**21

FeatureMap = Callable[[NDArray[np.int32]], NDArray[np.float64]]


def position_array(rankings: Any) -> Any:
    """Positions of rankings, or an array of positions, shape (m, n), checked unless traced."""
    positions = getattr(rankings, "positions", rankings)
    if traced(positions):
        return positions
    array = np.asarray(positions)
    if positions is not rankings:  # rankings have checked them
        return array
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"positions: shape {array.shape} and type {array.dtype}; give Rankings, or whole "
            "numbers, a row for each ranking and a column for each item: 0 for the most preferred "
            "block, -1 for an item that is not ranked"
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
            f"positions of ranking {row} are {shown(array[row].tolist())}; blocks are numbered 0, "
            "1, ... without gaps, -1 is an item that is not ranked, and a ranking has at least one "
            "item"
        )
    return array.astype(np.int32, copy=False)


def position_pair(a: Any, b: Any = None) -> tuple[Any, Any]:
    """Positions of two sets of rankings, the items of both in the order of the first.

    Without a second set, the first one is returned twice.
    """
    left = position_array(a)
    right = left if b is None else position_array(with_items_of(a, b))
    if left.shape[1] != right.shape[1]:
        raise DataError(
            f"kernel on rankings of {left.shape[1]} and {right.shape[1]} items; give the same items"
        )
    return left, right


def with_items_of(first: Any, rankings: Any) -> Any:
    """The rankings with the items of ``first`` in their order, if both are `Rankings`.

    Traced rankings must have these items already.
    """
    if not isinstance(first, Rankings) or not isinstance(rankings, Rankings):
        return rankings
    if first.items is rankings.items:
        return rankings
    if not traced(first, rankings):
        return replace(rankings, features=None, residual=None).aligned(first.items)
    if first.items_code != rankings.items_code:
        raise DataError(
            "kernel on rankings: the two sets of rankings have different items, or the same items "
            "in another order, and inside a program they cannot be matched; match them before: "
            "rankings.aligned(others.items), also for the rankings of Landmarks"
        )
    return rankings


def exhaustive(positions: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each ranking has all items in some block, shape (m,)."""
    return np.asarray((positions >= 0).all(axis=1))


def exhaustive_only(values: Any, positions: Any, *more: Any) -> Any:
    """Features or kernel values, if all rankings are exhaustive.

    Axis k of ``values`` is that of the k-th array of positions. Rankings that are not exhaustive
    are refused, and give NaN where their positions are traced, never a plausible number.
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
    """Error for rankings that are not exhaustive inside a program."""
    return DataError(
        "inside a program, features of non-exhaustive rankings cannot be enumerated or sampled: "
        "compute them before, rankings.with_features(cut_features(rankings, graph, "
        "normalize=True)), and use the kernel GivenFeatures(); or use Kendall(), which is exact "
        "for all kinds of ranking"
    )


def in_double(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of JAX; outside of a trace in float64 and at once, returning NumPy arrays."""
    if traced(*arguments):
        return function(*arguments)
    # Eagerly only inside a trace: there JAX would compute every constant of a function by itself.
    beside = jax.ensure_compile_time_eval() if traced(jax.device_put(0.0)) else nullcontext()
    with beside, float64():
        return jax.tree.map(np.asarray, function(*arguments))


def padded(positions: NDArray[Any]) -> NDArray[Any]:
    """Rankings, the last one repeated up to a round number, so that few shapes are compiled."""
    m = len(positions)
    step = max(16, 1 << max(m.bit_length() - 3, 0))
    return np.concatenate([positions, np.repeat(positions[-1:], -m % step, axis=0)])


def by_rows(
    function: Callable[..., Any], positions: NDArray[np.int32], *arguments: Any
) -> NDArray[np.float64]:
    """Call a function of positions and arguments on a few rankings at a time.

    Its arrays stay in the cache.
    """
    rows = max(1, _CELLS_AT_ONCE // max(positions.shape[1], 1))
    return np.concatenate(
        [
            function(positions[first : first + rows], *arguments)
            for first in range(0, max(len(positions), 1), rows)
        ]
    )


def over_items(step: Callable[..., Any], state: Any, *columns: Array) -> Any:
    """Fold over the items: ``step`` takes the state and an item's columns, shape (m, 1).

    No array is larger than the rankings. An item of columns with three axes is a slice.
    """
    if not on_host(state):  # what is cheap to compute again is not kept for the gradient
        step = jax.checkpoint(step)
    items = tuple(part.T[:, :, None] if part.ndim == 2 else part for part in columns)
    return scan(lambda state, item: (step(state, *item), None), state, items)[0]


def expected_sign(position: Array, lead: Array, other_position: Array, other_lead: Array) -> Array:
    """Sign of a pair: 1 if an item is preferred to the other, −1 for the opposite, 0 for ties.

    If one of them is not ranked, the expected sign. Leads are P(preferred) − P(the other is
    preferred) against an item that is not ranked; 0 for one that is not ranked itself.
    """
    xp = namespace(position, other_position)
    both = (position >= 0) & (other_position >= 0)
    return xp.where(both, xp.sign(other_position - position), lead - other_lead)


def mean_over_completions(
    positions: NDArray[np.int32], features: FeatureMap, *, placements: str, tol: float, rng_key: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features of rankings of any kind, and their standard errors, each of shape (m, r).

    Each item that is not ranked goes into one of the l + 1 slots before, between and after the l
    blocks, independently, and is tied with others in its slot: (l + 1)^(n − l) completions of a
    ranking without ties (GCK section 3.2). ``features`` takes positions of exhaustive rankings,
    numbered in any way; the options are as for `relpref.kernels.cut_features`.
    """
    if placements not in ("auto", "all", "sample"):
        raise DataError(
            f"placements is {placements!r}; choose 'auto', 'all', 'sample', or 'raw' of a cut"
        )
    if not tol > 0:
        raise DataError(f"tol is {tol}; it is a relative standard error, larger than 0")
    # In logarithms: the number itself may have a hundred digits.
    bases = positions.max(axis=1, initial=-1) + 2
    logarithm = (positions < 0).sum(axis=1) * np.log10(bases)
    most = {"auto": np.log10(_AUTO_COMPLETIONS) + 1e-9, "all": np.inf, "sample": 0.0}[placements]
    few = logarithm <= most  # of an exhaustive ranking there is one
    of_few = _enumerated(positions[few], features, logarithm[few])
    values = np.zeros((len(positions), of_few.shape[1]))
    error = np.zeros_like(values)
    values[few] = of_few
    rest = np.flatnonzero(~few)
    if rest.size:
        values[rest], error[rest] = _sampled(
            positions[rest], features, values.shape[1], tol, rng_key
        )
    return values, error


def _enumerated(
    positions: NDArray[np.int32], features: FeatureMap, logarithm: NDArray[np.float64]
) -> NDArray[np.float64]:
    if not logarithm.any():
        return features(positions)
    if np.log10(np.sum(10.0 ** np.minimum(logarithm, 300.0))) > np.log10(_MAX_COMPLETIONS):
        raise DataError(
            f"placements='all': there are 10^{logarithm.max():.0f} placements of one ranking, and "
            f"at most {_MAX_COMPLETIONS:.0e} are enumerated in all; use placements='sample', which "
            "reports its standard error"
        )
    bases = positions.max(axis=1).astype(np.int64) + 2
    missing = positions < 0
    digit = np.where(missing, np.cumsum(missing, axis=1) - 1, 0)
    ends = np.cumsum(bases ** missing.sum(axis=1))
    counts = np.diff(ends, prepend=0)
    total: Any = None
    step = max(1, _COMPLETION_CELLS_AT_ONCE // positions.shape[1])
    for first in range(0, int(ends[-1]), step):
        number = np.arange(first, min(first + step, int(ends[-1])))
        row = np.searchsorted(ends, number, side="right")
        number -= (ends - counts)[row]
        slots = number[:, None] // bases[row, None] ** digit[row] % bases[row, None]
        # Blocks at odd numbers, slots at even ones.
        completed = np.where(missing[row], 2 * slots, 2 * positions[row] + 1)
        values = features(completed.astype(np.int32))
        if total is None:
            total = np.zeros((len(positions), values.shape[1]))
        np.add.at(total, row, values)
    return np.asarray(total / counts[:, None])


def _sampled(
    positions: NDArray[np.int32], features: FeatureMap, width: int, tol: float, rng_key: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    seed = int(generator(rng_key).integers(2**63))
    # Each ranking has a separate stream: its features do not depend on the other rankings.
    streams = [np.random.default_rng([seed, zlib.crc32(row.tobytes())]) for row in positions]
    draws_of_round = 2 * np.minimum(positions.max(axis=1) + 2, MAX_STRATA)
    # Sums of means of rounds, of their squares, and of squared features.
    sums = np.zeros((3, len(positions), width))
    rounds = np.zeros(len(positions), dtype=np.int64)
    active, more = np.arange(len(positions)), _FIRST_ROUNDS
    while active.size:
        cells = np.cumsum(draws_of_round[active] * more * positions.shape[1])
        parts = np.flatnonzero(np.diff(cells // _COMPLETION_CELLS_AT_ONCE)) + 1
        for group in np.split(active, parts):
            completed = [draw_completions(positions[row], streams[row], more) for row in group]
            values = features(np.concatenate(completed))
            ends = np.cumsum([len(drawn) for drawn in completed])
            for row, drawn in zip(group, np.split(values, ends[:-1]), strict=True):
                means = drawn.reshape(more, -1, width).mean(axis=1)
                sums[0, row] += means.sum(axis=0)
                sums[1, row] += np.square(means).sum(axis=0)
                sums[2, row] += np.square(drawn).mean(axis=0) * more
        rounds[active] += more
        mean, square, size = sums / rounds[:, None]
        error = np.sqrt(np.maximum(square - np.square(mean), 0.0) / (rounds[:, None] - 3))
        # (r − 3, not r − 1: in units of it deviations have Student's distribution scaled to
        # variance 1.) A mean of zero by symmetry has no relative error: 1e-9 of the features
        # themselves is rounding.
        target = tol * np.linalg.norm(mean, axis=1) + 1e-9 * np.sqrt(size.sum(axis=1))
        spread = np.linalg.norm(error, axis=1)
        active = active[spread[active] > target[active]]
        more = int(rounds.max())
        if active.size and (draws_of_round * (rounds + more))[active].max() > _MAX_DRAWS:
            worst = active[np.argmax(spread[active] / target[active])]
            reached = spread[worst] / np.linalg.norm(mean[worst])
            raise DataError(
                f"tol={tol}: after {rounds[worst]} rounds of placements the relative standard "
                f"error of a ranking's features is {reached:.2g}; ask for a tolerance of at least "
                f"{1.2 * reached:.2g}"
            )
    return mean, error


def draw_completions(
    ranking: NDArray[np.int32], stream: np.random.Generator, rounds: int
) -> NDArray[np.int32]:
    """Draw stratified completions.

    In a round every missing item is in each slot twice, once in a completion and once in its mirror
    image. (If there are many slots, it is twice in each stretch of neighboring ones.) In a single
    completion the items are independent and uniform, so that means are unbiased. Rounds are
    independent, so that their spread gives the standard error.
    """
    missing = np.flatnonzero(ranking < 0)
    slots = int(ranking.max()) + 2
    strata = min(slots, MAX_STRATA)  # few, so that there are enough rounds to estimate the error
    drawn = np.broadcast_to(np.arange(strata)[:, None], (rounds, strata, missing.size))
    drawn = stream.permuted(drawn, axis=1)
    if strata < slots:
        drawn = np.floor((drawn + stream.random(drawn.shape)) * (slots / strata)).astype(np.int64)
    both = np.stack([drawn, slots - 1 - drawn], axis=1).reshape(-1, missing.size)
    completed = np.broadcast_to(2 * ranking + 1, (len(both), ranking.size)).copy()
    completed[:, missing] = 2 * both
    return completed
