"""Means over what the items that a ranking leaves out might have been: all placements, or a sample with its standard error."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.ranking_blocks import generator
from relpref.errors import DataError
from relpref.kernels.positions import exhaustive

FEW = 1024  # placements that "auto" enumerates
MOST = 10**8  # placements of all rankings that are enumerated at all
FIRST_ROUNDS = 16
MOST_STRATA = 16
MOST_DRAWS = 2**18  # of one ranking
_CELLS_AT_ONCE = 2**21

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
    step = max(1, _CELLS_AT_ONCE // positions.shape[1])
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
    yield from np.split(active, np.flatnonzero(np.diff(cells // _CELLS_AT_ONCE)) + 1)


def _strata(slots: Any) -> Any:
    """Pairs of placements in a round: one for each slot, but so few that there are rounds enough to tell the error."""
    return np.minimum(slots, MOST_STRATA)


def _round_of_placements(
    ranking: NDArray[np.int32], stream: np.random.Generator, rounds: int
) -> NDArray[np.int32]:
    """Placements, stratified: in a round every missing item is in each slot twice, once in a placement and once in its mirror image.

    (Of many slots it is in each stretch of neighbouring ones twice.) In each placement by itself the items are independent and
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
