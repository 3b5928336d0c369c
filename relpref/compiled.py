"""What JAX compiles for the package is kept on disk, so that the next process need not compile it again.

The folder is ``relpref`` in the user's folder of caches: ``$XDG_CACHE_HOME`` or ``~/.cache``, ``~/Library/Caches`` on macOS, ``%LOCALAPPDATA%``
on Windows. ``RELPREF_CACHE=off`` switches it off, ``RELPREF_CACHE=/some/folder`` puts it elsewhere, and it can be deleted at any time.
Where the user has configured JAX's own cache, that one is used and this one is not.

Entries are code that runs: the folder must be the user's and closed to others, or it is not used. JAX's configuration stays as it
is. Nothing public of JAX keeps what some calls compile and nothing else, so `kept` is the one place that looks at its private state; where
that has changed, and if a folder cannot be used, everything is compiled as if there was no cache.
"""

import hashlib
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

SETTING = "RELPREF_CACHE"
_DIGEST_BYTES = 16
_PREFIX = "jax-"  # of names of folders
_lock = threading.Lock()
_thread = threading.local()  # ``inside``: whether this thread is in `kept`
_threads = 0  # that are in `kept`
_entries: "Entries | None" = None  # that they share


@contextmanager
def float64() -> Iterator[None]:
    """Compute in float64, and keep what is compiled."""
    import jax  # not before it is needed: who reads this module may need none of it

    with kept(), jax.enable_x64(True):
        yield


@contextmanager
def kept() -> Iterator[None]:
    """Keep what this thread compiles, and look up what was kept."""
    global _threads
    private = None if _inside() else _private()
    if private is None or not _install(private):
        yield
        return
    _thread.inside = True
    try:
        with private.config.persistent_cache_min_compile_time_secs(0.0):  # a fit has twenty small functions
            yield
    finally:
        _thread.inside = False
        with _lock:
            _threads -= 1
            if not _threads and private.cache._cache is _entries:
                private.cache._cache = None  # JAX makes the next one from the user's configuration


class Private(NamedTuple):
    """JAX's modules."""

    cache: Any
    config: Any


@lru_cache(maxsize=1)
def _private() -> Private | None:
    """None if the wanted entries no longer exist."""
    try:
        from jax._src import compilation_cache, config
    except ImportError:
        return None
    wanted = hasattr(compilation_cache, "_cache"), hasattr(config, "persistent_cache_min_compile_time_secs")
    return Private(compilation_cache, config) if all(wanted) else None


def _inside() -> bool:
    return getattr(_thread, "inside", False)


def _install(private: Private) -> bool:
    """Put our entries where JAX looks for its cache, unless the user has one; whether they are there."""
    global _threads, _entries
    import jax

    folder = None if getattr(jax.config, "jax_compilation_cache_dir", None) else _usable(cache_folder())
    if folder is None:
        return False
    with _lock:
        if private.cache._cache is None:
            private.cache._cache = _entries = Entries(folder)
        elif private.cache._cache is not _entries:
            return False
        _threads += 1
    return True


class Entries:
    """Files of a folder, as what JAX calls a cache; nothing is ever deleted, and nothing that goes wrong with an entry is an error."""

    def __init__(self, folder: Path) -> None:
        self._path = folder  # JAX's name

    def get(self, key: str) -> bytes | None:
        """What was put there, if it is whole."""
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
    """The folder of the cache; None where it is switched off or the user has no home."""
    setting = os.environ.get(SETTING, "").strip()
    if setting.lower() in ("off", "0", "no", "false"):
        return None
    base = Path(setting).absolute() if setting else _user_caches()
    return None if base is None else base / _name()


def _user_caches() -> Path | None:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():  # a relative one is to be ignored (XDG base directory specification)
        try:
            home = Path.home() / (".cache" if sys.platform != "darwin" else "Library/Caches")
        except RuntimeError:
            return None
        if sys.platform == "win32":
            home = Path(os.environ.get("LOCALAPPDATA", home))
    return home / "relpref"


@lru_cache(maxsize=1)
def _name() -> str:
    """A folder for these versions and this kind of processor: a home may be shared by machines that cannot run each other's code."""
    import jax
    from jaxlib.version import __version__ as jaxlib_version

    features = ""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:  # of Linux
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    kind = f"{jaxlib_version} {platform.machine()} {platform.processor()} {features}"
    return f"{_PREFIX}{jax.__version__}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"


def _usable(folder: Path | None) -> Path | None:
    """The folder, made if missing; None if others can write into it, or if it is not writable."""
    if folder is None:
        return None
    try:
        for part in (*reversed(folder.parents), folder):  # `parents=True` would leave parents open to others
            part.mkdir(mode=0o700, exist_ok=True)
        known = folder.stat()
    except OSError:
        return None
    if hasattr(os, "geteuid") and (known.st_uid != os.geteuid() or known.st_mode & 0o077):
        return None
    return folder if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else None
