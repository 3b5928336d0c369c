"""NumPy arrays that nobody may write into."""

from typing import Any


def read_only(array: Any) -> Any:
    """Return the array after forbidding writes into it."""
    array.flags.writeable = False
    return array
