"""Many independent computations: one by one, in threads, in processes or on a Dask cluster."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from relpref._version import versions
from relpref.blas import one_thread
from relpref.errors import ClusterError, DataError
from relpref.files import FilePath
from relpref.result import terminal_bar

FORMS = (
    "'threads', 'processes', a number of either such as 'processes:4', or the address of a Dask "
    "scheduler such as 'tcp://host:8786'"
)
_BACKENDS = {"threads": "threading", "processes": "loky"}  # names of joblib
_MAX_DEATHS = 4  # processes that may die before an error; Dask has the same number
_CONNECT_TIMEOUT = 10.0  # seconds for a scheduler to answer
_CHECK_INTERVAL = 2.0  # seconds without a result after which a cluster is checked
_WORKER_TIMEOUT = 60.0  # seconds that a cluster may be without workers

Item = TypeVar("Item")
Result = TypeVar("Result")


def read_scheduler(scheduler: str | None) -> tuple[str, int]:
    """Return joblib's name of the backend and the number of workers; all cores are -1."""
    kind, colon, number = ("threads:1" if scheduler is None else scheduler).partition(":")
    if number.startswith("//"):
        return "dask", -1
    if kind not in _BACKENDS or (colon and not (number.isdecimal() and int(number) > 0)):
        raise DataError(f"scheduler is {scheduler!r}; it is None, {FORMS}")
    return _BACKENDS[kind], int(number or -1)


def run_all(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    scheduler: str | None = None,
    *,
    label: str = "items",
    kept: FilePath | None = None,
    progress_bar: bool = True,
) -> Iterator[tuple[int, Result]]:
    """Call a function with each item and yield the results in the order in which they are finished.

    Linear algebra has one thread within an item, so equal versions, processors and numbers of cores
    give equal bytes with each scheduler.

    Parameters
    ----------
    function : callable
        Takes one item. Processes and clusters need function, items and results that can be pickled.
        What is large and the same for all items belongs to the function (``functools.partial``): a
        cluster is sent it once.
    items : sequence
        Computing one should take seconds, because sending it takes milliseconds.
    scheduler : str, optional
        ``None`` computes one item after the other. ``"threads"`` and ``"processes"`` use all cores,
        ``"threads:4"`` and ``"processes:4"`` four. An address (``"tcp://host:8786"``) uses a Dask
        cluster that is running.
    label : str
        Name of the items in the progress bar and in errors.
    kept : path, optional
        Where the caller keeps each result before it asks for the next; errors say so.
    progress_bar : bool
        Show progress if stderr is a terminal.

    Yields
    ------
    position : int
        The position of the item.
    result
        What the function returned.

    Raises
    ------
    DataError
        If the scheduler has another form or does not answer, or Dask is needed and not installed.
    ClusterError
        If the cluster goes away, has no workers for a minute, or has a worker with other versions;
        if four processes died. A process that dies before is replaced.
    Exception
        If the function raises it; the remaining items are canceled.
    """
    backend, workers = read_scheduler(scheduler)
    again = "run the same call again"
    if kept is not None:
        again += f", which does only the rest: finished {label} are in {os.fspath(kept)}"
    if backend == "dask":
        results = _on_cluster(function, items, str(scheduler), label, again)
    else:
        results = _on_this_machine(function, items, backend, workers, label, again)
    with terminal_bar(label, progress_bar, total=len(items)) as bar:
        for finished in results:
            bar.update()
            yield finished


def _compute(
    function: Callable[[Any], Any], position: int, item: Any, expected: dict[str, str]
) -> tuple[int, Any]:
    for package, version in versions().items():
        if version != expected[package]:
            raise ClusterError(
                f"the worker on {platform.node()} has {package} {version}, and the caller has "
                f"{expected[package]}; install the same versions on both"
            )
    with one_thread():
        return position, function(item)


def _on_this_machine(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    backend: str,
    workers: int,
    label: str,
    again: str,
) -> Iterator[tuple[int, Any]]:
    from joblib import Parallel, delayed

    left = dict(enumerate(items))
    for deaths in range(1, _MAX_DEATHS + 1):
        calls = [delayed(_compute)(function, *each, versions()) for each in left.items()]
        parallel = Parallel(workers, backend, return_as="generator_unordered", batch_size=1)
        try:
            for position, result in parallel(calls):
                del left[position]
                yield position, result
            return
        except BrokenProcessPool as error:
            if deaths == _MAX_DEATHS:
                raise ClusterError(
                    f"{deaths} processes died, and {len(left)} of {len(items)} {label} are left; "
                    f"they may need more memory than there is; {again}"
                ) from error


def _on_cluster(
    function: Callable[[Any], Any], items: Sequence[Any], address: str, label: str, again: str
) -> Iterator[tuple[int, Any]]:
    # joblib's Dask backend waits forever if an item kills its workers, a worker cannot import the
    # function, or no worker is left, so this uses Dask itself.
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        message = f"scheduler {address!r} needs Dask; run pip install 'relpref[dask]'"
        raise DataError(message) from None
    try:
        client = Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DataError(
            f"scheduler {address!r} does not answer ({error}); start it first: dask scheduler"
        ) from error
    with client:
        # Dask takes pure calls with equal items for one call.
        executor = client.get_executor(pure=False)
        shared = client.submit(partial, function, pure=False)  # the cluster is sent it once
        futures = {
            executor.submit(_compute, shared, position, item, versions()): position
            for position, item in enumerate(items)
        }

        def lost(problem: str) -> ClusterError:
            done = len(items) - len(futures)
            return ClusterError(
                f"{address}: the cluster {problem} after {done} of {len(items)} {label}; {again}"
            )

        last_seen = time.monotonic()
        while futures:
            finished, _ = wait(futures, _CHECK_INTERVAL, FIRST_COMPLETED)
            if not finished:
                if client.status != "running":
                    raise lost("went away")
                with suppress(OSError):  # the connection breaks
                    last_seen = time.monotonic() if client.nthreads() else last_seen
                if time.monotonic() - last_seen > _WORKER_TIMEOUT:
                    raise lost("has no workers left")
            while finished:
                future = finished.pop()
                try:
                    result = future.result()
                except CancelledError as error:
                    if shared.status == "error":
                        raise ClusterError(
                            f"{address}: a worker or the scheduler cannot load the function "
                            f"({shared.exception().__cause__}); install relpref and your own "
                            "modules there"
                        ) from error
                    raise lost("went away") from error
                except KilledWorker as error:
                    item = futures[future]
                    problem = f"lost several workers at item {item}, which may need more memory,"
                    raise lost(problem) from error
                # Dask keeps a result while there is a future, and computes it again if its worker
                # dies.
                del futures[future], future
                last_seen = time.monotonic()
                yield result
