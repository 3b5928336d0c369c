"""Linear algebra in a single thread: sums are then taken in the same order whatever runs beside."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_inside = 0  # how many are within the block, in any thread: the setting belongs to the process
_limits: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS to one thread while anyone is within such a block.

    It is as before when the last has left; where this is not the thread that came first, BLAS may stay with one.
    """
    global _inside, _limits

    import scipy.linalg  # noqa: F401  # with NumPy's its BLAS, which JAX uses, too: only what is loaded is held
    from threadpoolctl import threadpool_limits

    with _lock:
        if not _inside:
            _limits = threadpool_limits(1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limits.restore_original_limits()
