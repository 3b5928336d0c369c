"""Checks and settings of the process for every fit: precision, forks, and memory of JAX."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pandas as pd

from relpref.compiled import float64
from relpref.data.arrays import shown
from relpref.errors import ClusterError, DataError
from relpref.limits import release_memory, resident_memory
from relpref.pytree import is_graph

# Megabytes by which the process may grow before what JAX compiled is dropped.
VARIABLE, _MEGABYTES = "RELPREF_COMPILED_MEMORY", 640.0
# A few sizes are never dropped; where the system does not say how large the process is, sizes are
# counted.
_FEW, _MANY = 4, 32
_forked = False  # whether this process is a forked child of one that had used JAX


@contextmanager
def computing(engine: str, rng_key: Any, args: tuple[Any, ...], *given: Any) -> Iterator[None]:
    """Compute in float64, after a check that a fit can run here.

    ``args`` are the arguments of the program and ``given`` further inputs of the engine.

    Raises
    ------
    ClusterError
        In a forked child of a process that had used JAX, where any computation would hang.
    DataError
        Inside of ``jax.jit``, ``jax.vmap`` or ``jax.grad``, or where ``rng_key`` is no key or the
        data are a table.
    """
    if not isinstance(rng_key, int | np.integer) and not hasattr(rng_key, "dtype"):
        raise DataError(
            f"{engine}.run takes a seed or a JAX key first and got {shown(rng_key)}; write "
            f"{engine}(program).run(0, data)"
        )
    if any(isinstance(argument, pd.DataFrame) for argument in args):
        raise DataError(
            f"{engine}.run got a DataFrame where a program takes data; write relpref.fit(items, "
            "answers), or "
            f"{engine}(program).run(0, relpref.PreferenceData.from_tables(items, answers))"
        )
    if _forked:
        raise ClusterError(
            f"{engine} cannot run in this process: it was forked from one that had used JAX, whose "
            "threads it lacks, so it would "
            "hang. Start processes with multiprocessing.get_context('spawn') or 'forkserver', or "
            "use relpref.parallel.run_all"
        )
    # Graphs are leaves: flattened they would compute spectra, which take hours where they are
    # large.
    leaves = jax.tree.leaves((rng_key, args, given), is_leaf=is_graph)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (*leaves, jax.device_put(np.zeros(())))):
        raise DataError(
            f"{engine} cannot be traced by JAX: a fit looks at the values of its data. Call it "
            "outside of jax.jit, jax.vmap and "
            "jax.grad; relpref.infer.fit_many fits many data sets"
        )
    _KEPT.note(tuple(leaf.shape for leaf in leaves if hasattr(leaf, "shape")))
    with float64():
        yield


class _Kept:
    """Sizes of data that JAX has compiled for.

    JAX keeps some 10 to 30 MB for each and never drops them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: set[Any] = set()
        self._before: float | None = None

    def note(self, size: Any) -> None:
        """Note a size; drop what JAX keeps if it would grow beyond the limit."""
        with self._lock:
            if size in self._sizes:
                return
            number = len(self._sizes)
            if not number:
                self._before = resident_memory()
            full = number >= _MANY
            if (
                number >= _FEW
                and self._before is not None
                and (now := resident_memory()) is not None
            ):
                full = now - self._before > 1e6 * _limit()
            if full:
                # Private caches of JAX hold most of it; nothing public drops the oldest of them
                # alone.
                jax.clear_caches()
                release_memory()
                self._sizes.clear()
                self._before = resident_memory()
            self._sizes.add(size)


def _limit() -> float:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return _MEGABYTES
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise DataError(f"{VARIABLE} is {text!r}; it is a number of megabytes above 0")
    return value


def _after_fork() -> None:
    global _forked
    bridge = sys.modules.get("jax._src.xla_bridge")
    initialized = getattr(bridge, "backends_are_initialized", None)
    _forked = _forked or (initialized() if initialized is not None else bool(_KEPT._sizes))


_KEPT = _Kept()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_after_fork)
