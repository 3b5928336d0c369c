"""Limit the threads of BLAS."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

# With fewer rows the threads wait for each other longer than they work: on two cores, factorizing a
# matrix of 1000 rows takes twice the CPU time with two threads, and a fit twenty times as much
# where the cores are busy.
_MIN_ROWS = 5000
_lock = threading.Lock()
_num_users = 0  # BLAS has one setting for the process, so threads share the count
_limits: Any = None


@cache
def _controller() -> Any:
    # The controller sees only libraries that are loaded. JAX uses those of SciPy.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def threads_for(num_rows: int) -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread if the matrices are small."""
    return one_thread() if num_rows < _MIN_ROWS else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread, until no Python thread is in this context."""
    global _num_users, _limits

    with _lock:
        if not _num_users:
            _limits = _controller().limit(limits=1, user_api="blas")
        _num_users += 1
    try:
        yield
    finally:
        with _lock:
            _num_users -= 1
            if not _num_users:
                _limits.restore_original_limits()
