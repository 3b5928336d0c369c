"""Where an engine may run, and how much of what JAX compiled for earlier runs is kept."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from relpref.errors import ClusterError, DataError
from relpref.memory import release_memory, resident_memory

# Megabytes by which the process may grow before what JAX compiled is dropped.
VARIABLE, _MEGABYTES = "RELPREF_COMPILED_MEMORY", 640.0
# A few sizes are never dropped; where the system does not say how large the process is, sizes are counted.
_FEW, _MANY = 4, 32

_forked = False  # whether this process is a forked child of one that had used JAX


@contextmanager
def computing(engine: str, *given: Any) -> Iterator[None]:
    """Compute in float64, after a check that it can be done here.

    Parameters
    ----------
    engine : str
        For messages.
    *given
        What the engine was given: pytrees.

    Raises
    ------
    ClusterError
        In a forked child of a process that had used JAX, where any computation would wait for ever.
    DataError
        Inside of ``jax.jit``, ``jax.vmap`` or ``jax.grad``.
    """
    if _forked:
        raise ClusterError(
            f"{engine} cannot run in this process: it was forked from one that had used JAX, whose threads it lacks, so it would "
            "wait for ever. Start processes with multiprocessing.get_context('spawn') or 'forkserver', or use relpref.parallel.run_all"
        )
    # Graphs stay whole: asked for their leaves they would compute spectra, which take hours where they are large.
    leaves = jax.tree.leaves(given, is_leaf=lambda node: hasattr(node, "num_nodes"))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or isinstance(
        jnp.add(0, 0), jax.core.Tracer
    ):
        raise DataError(
            f"{engine} cannot be traced by JAX: a fit looks at the values of its data. Call it outside of jax.jit, jax.vmap and "
            "jax.grad; relpref.infer.fit_many fits many data sets"
        )
    _KEPT.note(tuple(leaf.shape for leaf in leaves if hasattr(leaf, "shape")))
    with jax.enable_x64(True):
        yield


class _Kept:
    """What JAX keeps for sizes of data that it has compiled for: some 10 to 30 MB each, which JAX itself never drops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: set[Any] = set()
        self._before: float | None = None

    def note(self, size: Any) -> None:
        """Drop it all where another size would let it grow beyond the limit."""
        with self._lock:
            if size in self._sizes:
                return
            now = resident_memory()
            if self._before is None:
                self._before = now
            if self._is_full(now):
                # Private caches of JAX hold most of it; nothing public drops the oldest of them alone.
                jax.clear_caches()
                release_memory()
                self._sizes.clear()
                self._before = resident_memory()
            self._sizes.add(size)

    def _is_full(self, now: float | None) -> bool:
        if now is None or self._before is None:
            return len(self._sizes) >= _MANY
        return len(self._sizes) >= _FEW and now - self._before > 1e6 * _limit()


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
