"""Many independent computations: one after the other, in local processes, or on a Dask cluster."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from relpref.errors import DataError, RelprefError

Item = TypeVar("Item")
Result = TypeVar("Result")

# A terminal interrupts the workers, too; they are ended by the process that started them.
_IGNORE_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
_FORMS = "None, 'processes', 'processes:4' or the address of a Dask scheduler such as 'tcp://host:8786'"


def run_all(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    scheduler: str | None = None,
    *,
    label: str = "items",
    progress_bar: bool = True,
) -> Iterator[tuple[int, Result]]:
    """Call a function with each item and hand the results over as they come.

    Parameters
    ----------
    function : callable
        Of one item. For other processes it must be importable there, and items and results must be picklable.
    items : sequence
        A computation should take seconds: handing an item over costs milliseconds. Fits of equal shapes share what JAX compiles
        within a process only, so put them into one item.
    scheduler : str, optional
        None computes here, one item after the other. ``"processes"`` starts one Dask worker of a single thread for each core,
        ``"processes:4"`` four of them. An address (``"tcp://host:8786"``) uses a Dask cluster that runs already.
    label : str
        What the items are, for the progress line.
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
        If the scheduler has another form, or Dask is needed and not installed.
    RelprefError
        If an item killed its worker again and again. A worker that dies otherwise costs a retry.
    Exception
        Whatever the function raises; the remaining items are given up then.
    """
    from tqdm import tqdm

    found = _here(function, items) if scheduler is None else _on_dask(function, items, scheduler)
    hidden = not (progress_bar and sys.stderr.isatty())
    with tqdm(total=len(items), desc=label, file=sys.stderr, leave=False, disable=hidden) as bar:
        for position, result in found:
            bar.update()
            yield position, result


def _here(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
    for position, item in enumerate(items):
        yield position, function(item)


def _on_dask(
    function: Callable[[Item], Result], items: Sequence[Item], scheduler: str
) -> Iterator[tuple[int, Result]]:
    kind, _, number = scheduler.partition(":")
    local = kind == "processes" and (not number or (number.isdigit() and int(number) > 0))
    if not local and "://" not in scheduler:
        raise DataError(f"scheduler is {scheduler!r}; it is {_FORMS}")
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError:
        raise DataError(
            f"scheduler {scheduler!r} needs Dask; install it with pip install 'relpref[dask]', or leave the scheduler out"
        ) from None
    with ExitStack() as stack:
        address = stack.enter_context(_cluster(int(number or _cores()))) if local else scheduler
        try:
            client = stack.enter_context(Client(address, set_as_default=False))
        except OSError as error:
            raise DataError(f"scheduler {scheduler!r} does not answer ({error}); start it first") from error
        # Impure: what is called may draw random numbers from its item's seed, and must not be looked up by its arguments.
        futures = {client.submit(function, item, pure=False): at for at, item in enumerate(items)}
        for future in as_completed(futures, loop=client.loop):
            try:
                yield futures[future], future.result()
            except KilledWorker as error:
                raise RelprefError(
                    f"item {futures[future]} ended its worker process several times; it may need more memory than there is"
                ) from error


def _cluster(workers: int) -> Any:
    """Worker processes of one thread each; a new one takes the place of one that dies."""
    import dask
    from distributed import LocalCluster

    settings = dict(dask.config.get("distributed.nanny.pre-spawn-environ"))
    # Dask holds BLAS and OpenMP to one thread; XLA has its own pool.
    settings["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    # Dask lets freed memory go back to the system at once. Matrices of some megabytes, freed and wanted again at every step, would
    # be paged in anew each time: that took more than half of the time of fits of a thousand entities.
    # Tasks run beside the main thread, where only a single arena can grow large enough.
    settings |= {
        "MALLOC_TRIM_THRESHOLD_": 2**30,
        "MALLOC_MMAP_THRESHOLD_": 2**30,
        "MALLOC_ARENA_MAX": 1,
    }
    settings["DASK_LOGGING__DISTRIBUTED"] = "error"  # an interrupted worker has a lot to say otherwise
    with dask.config.set({"distributed.nanny.pre-spawn-environ": settings}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,
            dashboard_address=None,
            silence_logs=logging.ERROR,
            preload=[_IGNORE_INTERRUPTS],
        )


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1
