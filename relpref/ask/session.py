"""Session of raters who answer questions, in the terminal or on the pages of a browser."""

import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from relpref.ask.questions import Question
from relpref.errors import DataError

if TYPE_CHECKING:
    from relpref.ask.loop import Loop

# A refinement delays the next questions. So the session rests after each, and then waits for a
# pause in the answers, again no longer than the rest.
_SHARE = 4.0  # rest, as a multiple of the time that the last refinement took
_LEAST, _MOST = 1.0, 60.0  # seconds of rest
_QUIET = 2.0  # seconds without an answer that make a pause
_SOON = 0.5  # seconds that the last refinement may take without a message


class Unfinished(KeyboardInterrupt):
    """Interrupt while the last refinement runs; its thread ends when the compiled code returns."""


def not_counted(error: Exception) -> str:
    """Sentence for the rater whose answer could not be written."""
    return f"{error}. This was not counted; everything before it is safe. Try it again."


class Session:
    """Show a loop's questions to raters, record their answers, and refine in the background.

    A thread calls `Loop.refine` at the start, after answers, and at the end. Answers that come
    during a refinement wait for the next, which includes them all.

    Parameters
    ----------
    loop : Loop
        An open loop, which the caller closes after the session.
    number : int
        Number of questions that a rater is shown at once.
    """

    def __init__(self, loop: "Loop", number: int = 1) -> None:
        self.loop, self._number = loop, number
        # A rater acts on what was shown: nothing may change between check and action.
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relpref-refine")

    def questions(self, rater: str) -> list[Question]:
        """Questions that a rater is shown now; an empty list if nothing is left to ask."""
        return self.loop.questions(rater, self._number)

    def record(self, action: str, question: str, rater: str) -> None:
        """Record an answer or a skip, or take the last one back.

        Parameters
        ----------
        action : {"first", "second", "tie", "skip", "undo"}
        question : str
            Id of the question to be answered or skipped. For "undo", the id of any question that
            the rater is shown now, or "" if none is shown.
        rater : str

        Raises
        ------
        DataError
            If nothing was recorded, with a sentence for the rater.
        StorageError
            If it cannot be written.
        """
        with self._turn:
            shown = [each.id for each in self.questions(rater)] or [""]
            if question not in shown:
                raise DataError(
                    "That question was answered already, or taken back, perhaps in another window. "
                    "Nothing was counted twice; this is the question that is open now."
                )
            if action == "skip":
                self.loop.skip(question, rater)
            elif action != "undo":
                self.loop.answer(question, action, rater)
            elif self.loop.undo(rater) is None:
                raise DataError("There is nothing to take back.")
        self.wake()

    def start(self) -> None:
        """Start the thread that refines in the background; it refines once at the start."""
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """Tell the background thread that there are new answers."""
        self._wake.set()

    def close(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Refine a last time and wait for it; call ``waiting`` if it takes over half a second.

        Raises `Unfinished` at an interrupt.
        """
        self._ending.set()
        self.wake()
        try:
            self._thread.join(_SOON)
            if self._thread.is_alive():
                waiting()
            while self._thread.is_alive():
                self._thread.join(_SOON)  # in steps: an interrupt may not end a long join
        except KeyboardInterrupt:
            raise Unfinished from None

    def _work(self) -> None:
        # The background thread: wait for answers, refine, rest, until the session is closed.
        ending, rest = False, 0.0
        while not ending:
            self._wake.wait()
            self._wait_for_quiet(rest)
            self._wake.clear()
            ending = self._ending.is_set()  # checked first: the last refinement has every answer
            start = monotonic()
            try:
                self.loop.refine()
            except Exception as error:  # noqa: BLE001 - the answers are safe, the next may mend it
                words = " ".join(str(error).split())
                print(f"relpref: the ranking was not refined: {words}", file=sys.stderr, flush=True)
            rest = min(max(_SHARE * (monotonic() - start), _LEAST), _MOST)
            self._ending.wait(rest)

    def _wait_for_quiet(self, longest: float) -> None:
        """Wait for a pause in the answers, at most ``longest`` seconds, and not after `close`."""
        until = monotonic() + longest
        while (left := until - monotonic()) > 0 and not self._ending.is_set():
            self._wake.clear()
            if self._ending.wait(min(_QUIET, left)) or not self._wake.is_set():
                return
