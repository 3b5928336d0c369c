"""Blocks of columns on all cores that the process may use."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
