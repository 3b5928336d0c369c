"""Refines the posterior in the background while people answer."""

import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Protocol

# While it works, questions come later: it rests longer than it worked, and then until nobody answers.
_SHARE = 4.0  # rest, in lengths of the last refinement
_LEAST, _MOST = 1.0, 60.0  # seconds of rest
_QUIET = 2.0  # seconds without an answer, for which it waits no longer than it has rested
_SOON = 0.5  # seconds that nobody minds to wait at the end


class Unfinished(KeyboardInterrupt):
    """Interrupted while the last refinement was at work; its thread is inside compiled code and ends when that returns."""


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

    def close(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Refine what is left, and end.

        Parameters
        ----------
        waiting : callable
            Called once where that takes longer than a moment.

        Raises
        ------
        Unfinished
            If it is interrupted meanwhile.
        """
        self._ending.set()
        self._wake.set()
        try:
            self._thread.join(_SOON)
            if self._thread.is_alive():
                waiting()
            while self._thread.is_alive():
                self._thread.join(
                    _SOON
                )  # again and again, because not every Python hears an interrupt in there
        except KeyboardInterrupt:
            raise Unfinished from None

    def _work(self) -> None:
        ending, rest = False, 0.0
        while not ending:
            self._wake.wait()
            self._until_quiet(rest)
            self._wake.clear()
            ending = self._ending.is_set()  # before the last refinement, which then knows every answer
            began = monotonic()
            try:
                self._loop.refine()
            except Exception as error:  # noqa: BLE001 - answers are safe without it, and the next ones may mend it
                said = " ".join(str(error).split())
                print(f"relpref: the ranking was not refined: {said}", file=sys.stderr, flush=True)
            rest = min(max(_SHARE * (monotonic() - began), _LEAST), _MOST)
            self._ending.wait(rest)

    def _until_quiet(self, longest: float) -> None:
        """Wait until nobody has answered for a moment, but no longer than that."""
        until = monotonic() + longest
        while (left := until - monotonic()) > 0 and not self._ending.is_set():
            self._wake.clear()
            if self._ending.wait(min(_QUIET, left)) or not self._wake.is_set():
                return
