"""Questions while people answer them: the session that the terminal and the pages drive."""

import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from relpref.ask.store import Question
from relpref.errors import DataError

if TYPE_CHECKING:
    from relpref.ask.loop import Loop

# Questions come later during a refinement: the session rests longer than it refined, and then until
# nobody answers.
_SHARE = 4.0  # rest, in lengths of the last refinement
_LEAST, _MOST = 1.0, 60.0  # seconds of rest
_QUIET = 2.0  # seconds without an answer, waited for no longer than the rest
_SOON = 0.5  # seconds of waiting at the end that need no message


class Unfinished(KeyboardInterrupt):
    """Interrupt during the last refinement; its thread ends when the compiled code returns."""


def not_counted(error: Exception) -> str:
    """Sentence for the rater whose answer could not be written."""
    return f"{error}. This was not counted; everything before it is safe. Try it again."


class Session:
    """Actions of raters on the questions of a loop, which is refined in the background.

    A thread refines at the start, after answers, and at the end. Answers that come during a
    refinement are refined together.

    Parameters
    ----------
    loop : Loop
        Open; its owner closes it.
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
        """Questions that a rater is shown now; none if nothing is left to ask."""
        return self.loop.questions(rater, self._number)

    def record(self, action: str, question: str, rater: str) -> None:
        """Record an answer or a skip, or take the last one back.

        Parameters
        ----------
        action : {"first", "second", "tie", "skip", "undo"}
        question : str
            Id of the question that is answered or skipped; to undo, of one that is shown, or ""
            if none is.
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
        """Start to refine in the background."""
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """Announce new answers."""
        self._wake.set()

    def close(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Refine what is left, and end; ``waiting`` is called if that takes more than a moment.

        Raises `Unfinished` at an interrupt.
        """
        self._ending.set()
        self.wake()
        try:
            self._thread.join(_SOON)
            if self._thread.is_alive():
                waiting()
            while self._thread.is_alive():
                self._thread.join(_SOON)  # repeatedly: an interrupt may not end the call
        except KeyboardInterrupt:
            raise Unfinished from None

    def _work(self) -> None:
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
        """Wait until nobody has answered for a moment, but at most so many seconds."""
        until = monotonic() + longest
        while (left := until - monotonic()) > 0 and not self._ending.is_set():
            self._wake.clear()
            if self._ending.wait(min(_QUIET, left)) or not self._wake.is_set():
                return
