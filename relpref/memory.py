"""How much memory there is, how much this process has, and what a computation will take before it starts."""

import ctypes
import os

from relpref.errors import DataError


def require_memory(number_of_bytes: float, purpose: str) -> None:
    """Refuse what would not fit."""
    if not fits(number_of_bytes):
        raise DataError(
            f"{purpose} needs {_gigabytes(number_of_bytes)} of memory and {_gigabytes(available_memory() or 0.0)} are available; "
            "take fewer of them or a machine with more"
        )


def fits(number_of_bytes: float) -> bool:
    """Whether so much memory is available; true where the system does not say."""
    available = available_memory()
    return available is None or number_of_bytes <= available


def available_memory() -> float | None:
    """Bytes that could be had without swapping, as Linux reports them; the physical memory elsewhere, None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * float(os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return None


def resident_memory() -> float | None:
    """Bytes of physical memory that this process has, as Linux reports them; None elsewhere."""
    try:
        with open("/proc/self/statm", encoding="ascii") as line:
            return float(line.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def release_memory() -> None:
    """Give memory that is free but still the process's back to the system, where its C library can (glibc)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        pass


def _gigabytes(number_of_bytes: float) -> str:
    return f"{number_of_bytes / 1e9:.2f} GB"
