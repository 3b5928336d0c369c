"""Many independent computations: one after the other, in threads, in local processes, or on a Dask cluster."""

import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, Literal, NamedTuple, TypeVar

from relpref._version import __version__
from relpref.errors import ClusterError, DataError

# Rows of a matrix below which threads of BLAS wait for each other longer than they work: on two cores a factorization of 1000 rows takes
# twice the CPU time with two threads, and a fit twenty times as much where the cores are busy.
_ALONE = 5000
_lock = threading.Lock()
_inside = 0  # how many are within the block, in any thread: the setting belongs to the process
_limits: Any = None


@cache
def _pools() -> Any:
    import scipy.linalg  # noqa: F401  # with NumPy's its BLAS, which JAX uses, too: only what is loaded is held
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def threads_for(size: int) -> AbstractContextManager[None]:
    """A block in which products and factorizations of matrices of this many rows take as many threads as pay off."""
    return one_thread() if size < _ALONE else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS to one thread while anyone is within such a block.

    It is as before when the last has left; where this is not the thread that came first, BLAS may stay with one.
    """
    global _inside, _limits

    with _lock:
        if not _inside:
            _limits = _pools().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limits.restore_original_limits()


FORMS = "'threads', 'processes', a number of either such as 'processes:4', or the address of a Dask scheduler such as 'tcp://host:8786'"


class Scheduler(NamedTuple):
    """Where computations are done: the number of threads or processes, or the address of a Dask scheduler."""

    kind: Literal["here", "threads", "processes", "address"]
    number: int = 0
    address: str = ""

    @classmethod
    def read(cls, text: "str | None") -> "Scheduler":
        """From ``None``, which is here, one after the other, or one of `FORMS`."""
        if text is None:
            return cls("here")
        kind, colon, number = text.partition(":")
        if kind in ("threads", "processes") and (not colon or (number.isdecimal() and int(number) > 0)):
            usable = getattr(os, "sched_getaffinity", None)
            cores = len(usable(0)) if usable else os.cpu_count() or 1
            return cls(kind, int(number) if colon else cores)  # type: ignore[arg-type]
        if "://" in text:
            return cls("address", address=text)
        raise DataError(f"scheduler is {text!r}; it is None, {FORMS}")


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

    The results are the same bytes on each machine, if versions, kind of processor and number of cores are the same: linear
    algebra uses a single thread within an item. Processors are kept busy by several items at a time.

    Parameters
    ----------
    function : callable
        Of one item. For other processes function, items and results must be picklable; the function is sent to each of them once, the
        items one by one: what is large and common to all items belongs to the function (``functools.partial``).
    items : sequence
        Computing one should take seconds: handing it over costs milliseconds.
    scheduler : str, optional
        None computes here, one item after the other. ``"threads"`` starts a thread for each core, ``"threads:4"`` four: they share
        what JAX compiles, and trace programs one at a time. ``"processes"`` starts one Dask worker of a single thread for each core,
        ``"processes:4"`` four. An address (``"tcp://host:8786"``) uses a Dask cluster that runs already.
    label : str
        What the items are, for the progress line and for errors.
    kept : path, optional
        Where the caller keeps each result before it asks for the next, and looks for them when called again; errors say so.
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
    if where.kind in ("here", "threads"):
        results = _here(function, items, where.number)
    else:
        results = _on_dask(function, items, where, label, kept)
    hidden = not (progress_bar and sys.stderr.isatty())
    with tqdm(total=len(items), desc=label, file=sys.stderr, leave=False, disable=hidden) as bar:
        for position, result in results:
            bar.update()
            yield position, result


def _here(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Iterator[tuple[int, Result]]:
    if not threads:
        for position, item in enumerate(items):
            with one_thread():
                result = function(item)
            yield position, result
        return
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        positions = {pool.submit(function, item): position for position, item in enumerate(items)}
        try:
            for done in as_completed(positions):
                yield positions.pop(done), done.result()  # popped, or all results would stay in memory
        finally:
            pool.shutdown(cancel_futures=True)


# A terminal interrupts the workers, too; they are ended by the process that started them.
_IGNORE_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
_ANSWER = 10.0  # seconds for a scheduler to answer
_PATIENCE = 60.0  # seconds that a cluster may be without any worker
_GLANCE, _LOOK = 0.02, 2.0  # seconds between looks for results, and for workers
_DECISIVE = ("jax", "jaxlib", "numpyro", "numpy", "scipy")  # packages that results depend on
_UNREAD = "Error during deserialization"  # how Dask begins to say so

Versions = tuple[tuple[str, str], ...]


def _on_dask(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    where: Scheduler,
    label: str,
    kept: str | os.PathLike[str] | None,
) -> Iterator[tuple[int, Any]]:
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError:
        raise DataError(
            f"scheduler {where.address or where.kind!r} needs Dask; install it with pip install 'relpref[dask]', or use 'threads'"
        ) from None
    start_again = "start it again, and then the same computation"
    if kept is not None:
        start_again += f", which does only the rest: what is finished is in {os.fspath(kept)}"
    with ExitStack() as stack:
        local = where.kind == "processes"
        address = stack.enter_context(_local_cluster(where.number)) if local else where.address
        try:
            client = stack.enter_context(Client(address, timeout=_ANSWER, set_as_default=False))
        except (OSError, ValueError) as error:
            message = f"scheduler {where.address!r} does not answer ({error}); start it first: dask scheduler"
            raise DataError(message) from error
        # The function is a result of its own, which each worker fetches once, and which is made again where its holders die. All items
        # on a worker then share one program, and what JAX compiles for it. Impure: what is called may draw random numbers from its
        # item's seed, and must not be looked up by its arguments.
        shared = client.submit(_same, function, pure=False)
        futures = {
            client.submit(_compute, shared, item, versions(), pure=False): position
            for position, item in enumerate(items)
        }
        finished = as_completed(futures, loop=client.loop)
        name = "the local cluster" if local else where.address
        try:
            for future in _arriving(finished, client):
                try:
                    result = future.result()
                except OSError as error:
                    if future.status == "error":  # the function's own
                        raise
                    raise CancelledError from error  # the connection broke while the result was on its way
                yield futures.pop(future), result  # popped, or all results would stay in the cluster's memory
        except KilledWorker as error:
            message = f"item {futures[future]} of the {label} ended its worker process several times; it may need more memory"
            raise ClusterError(f"{name}: {message} than there is") from error
        except RuntimeError as error:
            cause = error.__cause__
            if not (isinstance(cause, ImportError | AttributeError) and str(error).startswith(_UNREAD)):
                raise
            raise ClusterError(
                f"{name}: what is to be computed cannot be read there ({cause}); scheduler and workers need relpref, and modules "
                "of your own, as they are here"
            ) from error
        except (CancelledError, _NoWorkersError) as error:
            lost = "has no workers left" if isinstance(error, _NoWorkersError) else "went away"
            done = f"{len(items) - len(futures)} of {len(items)} {label}"
            raise ClusterError(f"{name}: the cluster {lost} after {done}; {start_again}") from error


class _NoWorkersError(Exception):
    """A scheduler has been without workers for too long."""


def _arriving(finished: Any, client: Any) -> Iterator[Any]:
    """Futures as they finish; checks regularly whether workers are left, because Dask would wait without a message."""
    looked = seen = time.monotonic()
    while not finished.is_empty():
        yield from finished.next_batch(block=False)
        now = time.monotonic()
        if now - looked > _LOOK:
            looked = now
            with suppress(OSError):  # of a scheduler that went away; the futures say so
                seen = now if client.status != "running" or client.nthreads() else seen
            if now - seen > _PATIENCE:
                raise _NoWorkersError
        time.sleep(_GLANCE)


def _same(function: Any) -> Any:
    return function


def _compute(function: Callable[[Any], Any], item: Any, expected: Versions) -> Any:
    here = dict(versions())
    for package, wanted in expected:
        if here[package] != wanted:
            raise ClusterError(
                f"the worker on {platform.node()} has {package} {here[package]}, and {wanted} asks; install the same versions there"
            )
    with one_thread():
        return function(item)


@lru_cache(maxsize=1)
def versions() -> Versions:
    """Of everything that results depend on."""
    own = (("relpref", __version__), ("python", platform.python_version().rpartition(".")[0]))
    return (*own, *((package, version(package)) for package in _DECISIVE))


def _local_cluster(workers: int) -> Any:
    """Worker processes of one thread each; a new one takes the place of one that dies."""
    import dask
    from distributed import LocalCluster

    # XLA's own threads stay as they are here: what it compiles for fewer of them rounds differently.
    # Dask lets freed memory go back to the system at once. Matrices of some megabytes, freed and wanted again at every step, would
    # be paged in again each time: that took more than half of the time of fits of a thousand items.
    # Tasks run beside the main thread, where only a single arena can grow large enough.
    settings = dask.config.get("distributed.nanny.pre-spawn-environ") | {
        "MALLOC_TRIM_THRESHOLD_": 2**30,
        "MALLOC_MMAP_THRESHOLD_": 2**30,
        "MALLOC_ARENA_MAX": 1,
        "DASK_LOGGING__DISTRIBUTED": "error",  # an interrupted worker has a lot to say otherwise
    }
    with dask.config.set({"distributed.nanny.pre-spawn-environ": settings}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",  # None is the usual port, which another cluster may have
            silence_logs=logging.ERROR,
            preload=[_IGNORE_INTERRUPTS],
        )
