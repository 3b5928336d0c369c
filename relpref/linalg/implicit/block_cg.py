"""Preconditioned conjugate gradients for many right-hand sides at once, in single or double precision."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Block = NDArray[Any]  # float32 or float64, shape (n, k)
# Entries that are worked on at a time: they stay in a core's cache from one operation to the next.
CHUNK = 2**17


class BlockCG(NamedTuple):
    """How the iterations ended.

    Attributes
    ----------
    values : array, shape (n, k)
        One solution in each column.
    steps : int
        Products with the matrix.
    residual : array of float64, shape (k,)
        √(rᵀM⁻¹r / bᵀM⁻¹b) of each column, by the recurrence; NaN where the matrix or preconditioner turned out not to be
        positive definite or a number not finite.
    """

    values: Block
    steps: int
    residual: NDArray[np.float64]


def block_cg(
    apply: Callable[[Block, Block], object],
    precondition: Callable[[Block, Block], object],
    rhs: Block,
    *,
    tol: float | NDArray[np.float64],
    max_steps: int,
) -> BlockCG:
    """Solve A X = B for a symmetric positive definite A; every column has step lengths of its own.

    A column that has converged stays as it is, whatever its neighbours need; when half of the columns have, the rest goes
    on without them. The answer for a column does not depend on those beside it.

    Parameters
    ----------
    apply, precondition : callable
        From a block and an array of its shape, into which they write A or M⁻¹ times the block.
    rhs : array, shape (n, k)
        B, of the precision to compute in; overwritten.
    tol : float or array, shape (k,)
        Bound on √(rᵀM⁻¹r / bᵀM⁻¹b), also column by column. This norm weighs an entry by its own scale, so that one bound suits entries with a
        million links and with one.
    max_steps : int

    Returns
    -------
    BlockCG
    """
    residual, values = rhs, np.zeros_like(rhs)
    image = np.empty_like(rhs)
    precondition(residual, image)
    squared = inner(residual, image)
    start, found = squared.copy(), squared.copy()
    enough = np.square(tol) * start
    direction = image.copy()
    live, solution = np.arange(rhs.shape[1]), values
    steps = 0
    while True:
        found[live] = squared
        open_ = squared > enough[live]  # false for NaN, too
        if not open_.any() or steps == max_steps:
            break
        if 2 * np.count_nonzero(open_) <= live.size:
            if solution is not values:
                values[:, live] = solution
            live, squared = live[open_], squared[open_]
            residual, direction, solution = residual[:, open_], direction[:, open_], values[:, live]
            image, open_ = np.empty_like(residual), np.ones(live.size, dtype=bool)
        apply(direction, image)
        curvature = inner(direction, image)
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.where(open_, np.where(curvature > 0, squared / curvature, np.nan), 0.0)
        for rows in chunks(residual):
            solution[rows] += direction[rows] * length.astype(rhs.dtype)
            residual[rows] -= image[rows] * length.astype(rhs.dtype)
        precondition(residual, image)
        previous, squared = squared, np.where(open_, inner(residual, image), squared)
        with np.errstate(divide="ignore", invalid="ignore"):
            turn = np.where(open_, squared / previous, 0.0).astype(rhs.dtype)
        for rows in chunks(residual):
            direction[rows] *= turn
            direction[rows] += image[rows]
        steps += 1
    if solution is not values:
        values[:, live] = solution
    with np.errstate(divide="ignore", invalid="ignore"):
        return BlockCG(values, steps, np.where(start == 0, 0.0, np.sqrt(found / start)))


def inner(left: Block, right: Block) -> NDArray[np.float64]:
    """Inner products of the columns, added up in double precision."""
    total = np.zeros(left.shape[1])
    for rows in chunks(left):
        total += np.einsum("ij,ij->j", left[rows], right[rows])
    return total


def chunks(block: Block) -> Iterator[slice]:
    """Runs of rows that stay in the cache."""
    size, width = block.shape
    step = max(1, CHUNK // max(width, 1))
    for start in range(0, size, step):
        yield slice(start, start + step)


Found = TypeVar("Found")
Progress = Callable[[int, int], object]


def cores() -> int:
    """Number of cores that the process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def in_threads(
    function: Callable[[slice], Found],
    parts: Sequence[slice],
    progress: Progress | None = None,
    workers: int | None = None,
) -> Iterator[tuple[slice, Found]]:
    """Call a function with each part and hand the results over in their order.

    Parameters
    ----------
    function : callable
        Of one part; most of its time is spent in NumPy and SciPy, which other threads do not wait for.
    parts : sequence of slice
        Runs of columns.
    progress : callable, optional
        Told, after each part, how many columns of how many are done.
    workers : int, optional
        How many parts at a time, by default one for each core.

    Yields
    ------
    part : slice
    result
    """
    total, done = sum(part.stop - part.start for part in parts), 0
    with ThreadPoolExecutor(max(min(workers or cores(), len(parts)), 1)) as pool:
        futures = [pool.submit(function, part) for part in parts]
        try:
            # One after the other, whoever is ready first: what is made of the results must not depend on it.
            for part, future in zip(parts, futures, strict=True):
                yield part, future.result()
                done += part.stop - part.start
                if progress is not None:
                    progress(done, total)
        finally:
            for future in futures:
                future.cancel()
