"""Cache on disk of what JAX compiles for the package.

The folder is ``relpref`` in the user's folder of caches: ``$XDG_CACHE_HOME`` or ``~/.cache``,
``~/Library/Caches`` on macOS, ``%LOCALAPPDATA%`` on Windows. ``RELPREF_CACHE=off`` switches it off,
``RELPREF_CACHE=/some/folder`` puts it elsewhere, and it can be deleted at any time. If the user has
configured JAX's own cache, that is used instead.

Entries are code that runs: the folder must belong to the user and be closed to others, or it is not
used. JAX's configuration stays as it is. JAX has no public way to cache only some compilations, so
`kept` accesses its private state, and nothing else does; if that state has changed, or the folder
cannot be used, everything is compiled without a cache.
"""

import hashlib
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from relpref.devices import host

Function = Callable[..., Any]
SETTING = "RELPREF_CACHE"
_DIGEST_BYTES = 16
_PREFIX = "jax-"  # of names of folders
_lock = threading.Lock()
_thread = threading.local()  # ``inside``: whether this thread is in `kept`
_threads = 0  # number of threads in `kept`
_entries: "Entries | None" = None  # shared by these threads


def compiled(function: Function | None = None, **options: Any) -> Function:
    """Compile a function as `jax.jit` does; arrays of its result are NumPy's.

    ``options`` are those of `jax.jit`. Inside of a function that JAX traces, and for random keys,
    the result is JAX's.
    """
    if function is None:
        return partial(compiled, **options)
    import jax

    jitted = jax.jit(function, **options)

    def plain(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer) or not hasattr(leaf, "dtype"):
            return leaf
        is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key else np.asarray(leaf)

    @wraps(function)
    def call(*args: Any) -> Any:
        return jax.tree.map(plain, jitted(*args))

    return call


@contextmanager
def float64() -> Iterator[None]:
    """Compute in float64, with the cache, where `relpref.devices` says."""
    import jax  # here, because modules that import this one may not need JAX

    with kept(), jax.enable_x64(True), host():
        yield


@contextmanager
def kept() -> Iterator[None]:
    """Use the cache for everything that this thread compiles."""
    global _threads
    private = None if _inside() else _private()
    if private is None or not _install(private):
        yield
        return
    _thread.inside = True
    try:
        # A fit compiles twenty small functions.
        with private.config.persistent_cache_min_compile_time_secs(0.0):
            yield
    finally:
        _thread.inside = False
        with _lock:
            _threads -= 1
            if not _threads and private.compilation_cache._cache is _entries:
                # JAX makes the next one from the user's configuration.
                private.compilation_cache._cache = None


@lru_cache(maxsize=1)
def _private() -> Any:
    """JAX's package of modules with private state; None if what is used no longer exists."""
    try:
        from jax._src import compilation_cache, config

        _ = compilation_cache._cache, config.persistent_cache_min_compile_time_secs
    except (AttributeError, ImportError):
        return None
    import jax

    return jax._src


def _inside() -> bool:
    return getattr(_thread, "inside", False)


def _install(private: Any) -> bool:
    """Install the cache in JAX, unless the user has one; return whether it is installed."""
    global _threads, _entries
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return False
    if (folder := _usable(cache_folder())) is None:
        return False
    jaxs = private.compilation_cache
    with _lock:
        if jaxs._cache is None:
            jaxs._cache = _entries = Entries(folder)
        elif jaxs._cache is not _entries:
            return False
        _threads += 1
    return True


class Entries:
    """Cache of JAX as files in a folder; nothing is deleted, and failures are no errors."""

    def __init__(self, folder: Path) -> None:
        self._path = folder  # the name that JAX uses

    def get(self, key: str) -> bytes | None:
        """Read an entry; None if it is missing or damaged."""
        if not _inside():
            return None  # another thread is compiling
        with suppress(OSError):
            content = (self._path / key).read_bytes()
            value = content[_DIGEST_BYTES:]
            if _digest(value) == content[:_DIGEST_BYTES]:
                return value
        return None

    def put(self, key: str, value: bytes) -> None:
        """Write an entry, or rewrite an unusable one."""
        if not _inside():
            return
        with suppress(OSError):
            handle, part = tempfile.mkstemp(prefix=".", dir=self._path)
            try:
                with open(handle, "wb") as file:
                    file.write(_digest(value) + value)
                os.replace(part, self._path / key)
            except OSError:
                os.unlink(part)


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()


def cache_folder() -> Path | None:
    """Folder of the cache; None if it is switched off or the user has no home."""
    setting = os.environ.get(SETTING, "").strip()
    if setting.lower() in ("off", "0", "no", "false"):
        return None
    try:
        base = Path(setting).absolute() if setting else user_cache_path("relpref", appauthor=False)
    except RuntimeError:  # there is no home
        return None
    return base / _name() if base.is_absolute() else None


@lru_cache(maxsize=1)
def _name() -> str:
    """Name for the versions and the processor: a home may be shared by different machines."""
    import jax
    from jaxlib.version import __version__ as jaxlib_version

    features = ""
    # Only Linux has this file.
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    kind = f"{jaxlib_version} {platform.machine()} {platform.processor()} {features}"
    return f"{_PREFIX}{jax.__version__}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"


def _usable(folder: Path | None) -> Path | None:
    """The folder, created if missing; None if others can write into it, or the user cannot."""
    if folder is None:
        return None
    try:
        # The option `parents` of `mkdir` would leave parents open to others.
        for part in (*reversed(folder.parents), folder):
            part.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
        return None
    return folder if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else None
