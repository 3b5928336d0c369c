"""The exceptions of the package: one root, one class per kind of trouble."""

from typing import Any


class RelprefError(Exception):
    """Root of every error that the package raises on purpose."""


class DataError(RelprefError, ValueError):
    """The tables, files or labels given cannot be used; the message says where, what and what to do."""


class UnknownLabelError(DataError, KeyError):
    """A label was used that belongs to no known entity."""

    def __str__(self) -> str:
        """Return the plain message (a KeyError would show its repr)."""
        return str(self.args[0]) if self.args else ""


class UnsupportedProgramError(RelprefError, TypeError):
    """An engine met a program that it cannot treat; the message says which engine can."""


class InferenceError(RelprefError, RuntimeError):
    """A computation ended without a usable answer.

    Parameters
    ----------
    message : str
        What went wrong and what to change.
    result : object
        The result code of the computation, kept as the attribute ``result``.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type["InferenceError"], tuple[str, Any]]:
        """Pickle both arguments, so that the error survives the way back from a worker process."""
        return type(self), (str(self.args[0]), self.result)


class StorageError(RelprefError, OSError):
    """A saved run cannot be written or read."""


class ClusterError(RelprefError, RuntimeError):
    """Other processes that computed went away or cannot be used, or this one cannot compute; the message says how to go on."""
