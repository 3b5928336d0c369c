"""Where computations are done, as a user writes it."""

import os
from dataclasses import dataclass
from typing import Literal

from relpref.errors import DataError

FORMS = "'threads', 'processes', a number of either such as 'processes:4', or the address of a Dask scheduler such as 'tcp://host:8786'"


@dataclass(frozen=True)
class Scheduler:
    """Where computations are done.

    Attributes
    ----------
    kind : {"here", "threads", "processes", "address"}
    number : int
        Of threads or processes; 0 for the other kinds.
    address : str
        Of a Dask scheduler; empty for the other kinds.
    """

    kind: Literal["here", "threads", "processes", "address"]
    number: int = 0
    address: str = ""

    @classmethod
    def read(cls, text: "str | None") -> "Scheduler":
        """From ``None``, which is here, one after the other, or one of `FORMS`.

        Raises
        ------
        DataError
            If the text has another form.
        """
        if text is None:
            return cls("here")
        kind, colon, number = text.partition(":")
        if kind in ("threads", "processes") and not colon:
            return cls(kind, _cores())  # type: ignore[arg-type]
        if kind in ("threads", "processes") and number.isdecimal() and int(number) > 0:
            return cls(kind, int(number))  # type: ignore[arg-type]
        if "://" in text:
            return cls("address", address=text)
        raise DataError(f"scheduler is {text!r}; it is None, {FORMS}")


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1
