"""Says how much memory a computation will take before it starts, where the machine does not have it."""

import os

from relpref.errors import DataError


def require_memory(number_of_bytes: float, purpose: str) -> None:
    """Refuse what would not fit.

    Parameters
    ----------
    number_of_bytes : float
    purpose : str
        For the message: "<purpose> needs ...".

    Raises
    ------
    DataError
        If more than the available memory is needed. Where the system does not say how much there is, nothing is refused.
    """
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


def _gigabytes(number_of_bytes: float) -> str:
    return f"{number_of_bytes / 1e9:.2f} GB"
