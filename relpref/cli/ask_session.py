"""Questions and answers on a terminal, or line by line where there is none."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from relpref.cli.ask_keys import Action, Keys
from relpref.cli.ask_screen import NARROW, bars, headline, in_rows, two_items, wrapped
from relpref.errors import DataError
from relpref.explore import Loop, Question
from relpref.explore.refiner import Refiner

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_TELLS = {"why", "ranking", "redraw"}  # actions that leave the question open
_TOP, _MOST = 5, 20  # entities in the ranking beside a question, and in one that was asked for


class Session:
    """Asks one rater.

    Parameters
    ----------
    loop : Loop
    rater : str
    keys : Keys

    Attributes
    ----------
    answers : int
        How many were given, less those that were taken back.
    """

    def __init__(self, loop: Loop, rater: str, keys: Keys) -> None:
        self.answers = 0
        self._notice = ""
        self._loop, self._rater, self._keys = loop, rater, keys
        self._draws = keys.raw and sys.stdout.isatty()
        self._plain = not _can_draw()

    def ask(self, most: int | None = None) -> None:
        """Ask until the person quits, or there are so many answers."""
        with self._refining() as refiner, self._keys.listening():
            while most is None or self.answers < most:
                question = self._loop.question(self._rater)
                self._keys.forget()  # nobody meant this question by them
                self._show(question)
                while (action := self._keys.next()) not in self._offered(question) - _TELLS:
                    self._tell(action, question)
                if action == "quit":
                    return
                self._do(action, question)
                refiner.wake()

    @contextmanager
    def _refining(self) -> Iterator[Refiner]:
        refiner = Refiner(self._loop)
        refiner.start()
        try:
            yield refiner
        finally:
            refiner.close(
                lambda: self._say("Bringing the ranking up to date; Ctrl-C leaves that to the next command.")
            )

    def _offered(self, question: Question | None) -> set[Action | None]:
        """What may be pressed."""
        if question is None:
            return {"undo", "ranking", "redraw", "quit"}
        return set(get_args(Action)) - (set() if self._loop.ties else {"tie"})

    def _do(self, action: Action | None, question: Question | None) -> None:
        try:
            self._record(action, question)
        except DataError as error:  # answered meanwhile at another terminal, for example
            self._notice = str(error)

    def _record(self, action: Action | None, question: Question | None) -> None:
        if action == "undo" or question is None:
            before = self._loop.progress(self._rater).answers
            if self._loop.undo(self._rater) is None:
                self._notice = "There is nothing to take back."
            self.answers += self._loop.progress(self._rater).answers - before
        elif action == "skip":
            self._loop.skip(question.id, self._rater)
        else:
            outcome = "tie"
            if action in ("left", "right"):
                outcome = "first" if (action == "left") == (question.left == question.first) else "second"
            self._loop.answer(question.id, outcome, self._rater)
            self.answers += 1

    def _show(self, question: Question | None) -> None:
        columns = self._columns()
        progress = self._loop.progress(self._rater)
        lines = wrapped(self._notice, columns) + wrapped(self._loop.trouble, columns)
        self._notice = ""
        if question:
            lines += wrapped(headline(self._rater, progress), columns) + wrapped(progress.outlook, columns)
        else:
            lines += wrapped(f"Nothing is left to ask. {self._loop.nothing_left(self._rater)}", columns)
        lines.append("")
        if question:
            right = question.second if question.left == question.first else question.first
            lines += [*two_items(self._loop.item(question.left), self._loop.item(right), columns), ""]
        lines += self._help(question)
        if self._draws:
            lines += ["", *bars(self._loop.ranking(), _TOP, columns, self._plain)]
        print(_CLEAR * self._draws + "\n".join(lines), flush=True)

    def _tell(self, action: Action | None, question: Question | None) -> None:
        if action == "why" and question:
            self._say(self._loop.why(question))
        elif action == "ranking":
            ranking = self._loop.ranking()
            lines = bars(ranking, _MOST, self._columns(), self._plain)
            if len(ranking) > _MOST:
                lines.append(f"... and {len(ranking) - _MOST} more, which relpref rank shows")
            print("\n".join(lines), flush=True)
        elif action == "redraw":
            self._show(question)
        else:
            print("\n".join(["That means nothing here.", *self._help(question)]), flush=True)

    def _help(self, question: Question | None) -> list[str]:
        """What may be pressed, in rows."""
        arrows = ("←", "→", "↓") if self._keys.raw and not self._plain else ("", "", "")
        left, right, tie = (f"{arrow} {key}".strip() for arrow, key in zip(arrows, "abt", strict=True))
        keys: dict[Action | None, str] = {
            "left": left,
            "right": right,
            "tie": f"{tie} equally good",
            "skip": "s skip",
            "undo": "u undo",
            "why": "w why this",
            "ranking": "r ranking",
            "quit": "q quit",
        }
        offered = self._offered(question)
        return in_rows([words for action, words in keys.items() if action in offered], self._columns())

    def _say(self, text: str) -> None:
        print("\n".join(wrapped(text, self._columns())), flush=True)

    def _columns(self) -> int:
        return max(shutil.get_terminal_size().columns, NARROW)


def _can_draw() -> bool:
    try:
        "─●".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
