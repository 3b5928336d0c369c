"""Keeps what JAX compiled from one start of the program to the next."""

import hashlib
import os
import platform
import warnings
from pathlib import Path

SETTING = "RELPREF_CACHE"
_JAX_SETTING = "JAX_COMPILATION_CACHE_DIR"
_MOST_BYTES = 500_000_000


def keep_compiled_code() -> None:
    """Switch JAX's persistent compilation cache on, unless the user said ``RELPREF_CACHE=off``.

    A folder that cannot be made or written is no reason to say anything: the code is compiled again then. The same holds for an
    entry that another process is just writing.
    """
    folder = cache_folder()
    if folder is None or _JAX_SETTING in os.environ or not _usable(folder):
        return
    _shrink(folder)
    # Settings by environment variables: JAX reads them when it is imported, which a command may not need.
    os.environ[_JAX_SETTING] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")


def cache_folder() -> Path | None:
    """The folder of the cache; None where it is switched off or the user has no home."""
    setting = os.environ.get(SETTING, "").strip()
    if setting.lower() in ("off", "0", "no", "false"):
        return None
    if setting:
        return Path(setting).absolute() / _processor()
    # A relative XDG_CACHE_HOME is to be ignored (XDG base directory specification).
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "relpref" / "jax" / _processor()


def _processor() -> str:
    """A name for this kind of processor: a home may be shared by machines that cannot run each other's code."""
    features = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:  # not Linux
        pass
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:12]


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK | os.R_OK)


def _shrink(folder: Path) -> None:
    """Delete the oldest entries of a cache that has grown too large."""
    try:
        entries = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder)]
        size = sum(entry[1] for entry in entries)
        for _, own, path in sorted(entries):
            if size <= _MOST_BYTES:
                return
            os.unlink(path)
            size -= own
    except OSError:  # another process was faster
        return
