"""Refines the posterior in the background while people answer."""

import sys
import threading
from typing import Protocol

_REST = 1.0  # seconds between two refinements: where many answer fast, their next questions come first


class Refines(Protocol):
    """What is refined."""

    def refine(self) -> bool:
        """Bring the posterior to that of a full fit, and publish it."""
        ...


class Refiner:
    """One thread that refines at the start, after answers (once for all that came meanwhile), and at the end.

    Parameters
    ----------
    loop : Loop
    """

    def __init__(self, loop: Refines) -> None:
        self._loop = loop
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relpref-refine")

    def start(self) -> None:
        """Begin."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something new."""
        self._wake.set()

    def close(self) -> None:
        """Refine what is left, and end."""
        self._ending.set()
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        ending = False
        while not ending:
            self._wake.wait()
            self._wake.clear()
            ending = self._ending.is_set()  # before the last refinement, which then knows every answer
            try:
                self._loop.refine()
            except Exception as error:  # noqa: BLE001 - answers are safe without it, and the next ones may mend it
                said = " ".join(str(error).split())
                print(f"relpref: the ranking was not refined: {said}", file=sys.stderr, flush=True)
            self._ending.wait(_REST)
