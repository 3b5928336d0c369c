"""Exceptions of the package.

Examples
--------
>>> import relpref
>>> try:
...     relpref.fit(answers=[("tea", "tea")])
... except relpref.errors.DataError as error:
...     message = str(error)
"""

import re
from typing import Any

__all__ = [
    "ClusterError",
    "DataError",
    "InferenceError",
    "RelprefError",
    "StorageError",
    "UnknownLabelError",
    "UnsupportedProgramError",
]

_LONGEST_WORD, _LONGEST = 500, 2000  # characters; paths are words


class RelprefError(Exception):
    """Root of all errors that the package raises on purpose.

    The message is shortened, because it may quote a cell of any length.
    """

    def __str__(self) -> str:
        """Return the message, without the middle if it is too long."""
        return _shortened(str(self.args[0])) if self.args else ""


class DataError(RelprefError, ValueError):
    """Tables, files or labels cannot be used; the message says where, why and what to do."""


class UnknownLabelError(DataError, KeyError):
    """A label belongs to no item."""


class UnsupportedProgramError(RelprefError, TypeError):
    """An engine does not support a program; the message says which engine does."""


class InferenceError(RelprefError, RuntimeError):
    """A computation ended without a usable answer.

    Attributes
    ----------
    result : Result
        Code of the reason.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message, result)  # both, so that a worker process can return the error
        self.result = result


class StorageError(RelprefError, OSError):
    """A saved run cannot be written or read."""


class ClusterError(RelprefError, RuntimeError):
    """A worker process failed or cannot be used; the message says how to go on."""


def _shortened(text: str) -> str:
    """Cut long words, then the middle: the beginning says what is wrong, the end what to do."""
    if len(text) > _LONGEST_WORD:
        text = re.sub(
            rf"\S{{{_LONGEST_WORD + 1},}}", lambda word: f"{word[0][:80]}...{word[0][-20:]}", text
        )
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 500]} ... {text[-400:]}"
    return text
