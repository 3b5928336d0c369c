"""Hands items to a function, wherever it runs, and the results over as they come."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from relpref.parallel.one_thread import one_thread
from relpref.parallel.scheduler import Scheduler

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_all(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    scheduler: str | None = None,
    *,
    label: str = "items",
    kept: str | os.PathLike[str] | None = None,
    progress_bar: bool = True,
) -> Iterator[tuple[int, Result]]:
    """Call a function with each item and hand the results over as they come.

    The results are the same bytes wherever they are computed, if versions, kind of processor and number of cores are the same: linear
    algebra uses a single thread within an item. Processors are kept busy by several items at a time.

    Parameters
    ----------
    function : callable
        Of one item. For other processes function, items and results must be picklable; the function is sent to each of them once, the
        items one by one: what is large and common to all items belongs to the function (``functools.partial``).
    items : sequence
        A computation should take seconds: handing an item over costs milliseconds. Fits of equal shapes share what JAX compiles
        within a process.
    scheduler : str, optional
        None computes here, one item after the other. ``"threads"`` starts a thread for each core, ``"threads:4"`` four of them: they
        share what JAX compiles, and trace programs one at a time. ``"processes"`` starts one Dask worker of a single thread for each
        core, ``"processes:4"`` four of them. An address (``"tcp://host:8786"``) uses a Dask cluster that runs already.
    label : str
        What the items are, for the progress line and for errors.
    kept : path, optional
        Where the caller keeps each result before it asks for the next, and looks for them when it is called again; errors say so.
    progress_bar : bool
        Show how many are done, where a person watches (stderr is a terminal).

    Yields
    ------
    position : int
        Of the item.
    result
        What the function returned.

    Raises
    ------
    DataError
        If the scheduler has another form or does not answer, or Dask is needed and not installed.
    ClusterError
        If the cluster goes away, has no workers for a minute, has workers with other versions, or an item killed its worker again and
        again. A worker that dies otherwise costs a retry.
    Exception
        Whatever the function raises; the remaining items are given up then.
    """
    from tqdm import tqdm

    where = Scheduler.read(scheduler)
    if where.kind == "here":
        found = _here(function, items)
    elif where.kind == "threads":
        found = _in_threads(function, items, where.number)
    else:
        from relpref.parallel.cluster import on_dask

        found = on_dask(function, items, where, label, kept)
    hidden = not (progress_bar and sys.stderr.isatty())
    with tqdm(total=len(items), desc=label, file=sys.stderr, leave=False, disable=hidden) as bar:
        for position, result in found:
            bar.update()
            yield position, result


def _here(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
    for position, item in enumerate(items):
        with one_thread():
            result = function(item)
        yield position, result


def _in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], number: int
) -> Iterator[tuple[int, Result]]:
    with one_thread(), ThreadPoolExecutor(number) as pool:
        positions = {pool.submit(function, item): position for position, item in enumerate(items)}
        try:
            for done in as_completed(positions):
                yield positions.pop(done), done.result()  # popped, or all results would stay in memory
        finally:
            pool.shutdown(cancel_futures=True)
