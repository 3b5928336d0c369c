"""Asks in a terminal: reads single keys, draws the question and the ranking, and records what was pressed."""

import os
import re
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, zip_longest
from types import FrameType
from typing import Any, Literal, get_args

from relpref.ask.items import Item
from relpref.ask.learning import Refiner
from relpref.ask.loop import Loop, Progress
from relpref.ask.store import Question
from relpref.data.arrays import label, width
from relpref.errors import DataError

Action = Literal["left", "right", "tie", "skip", "undo", "why", "ranking", "redraw", "quit"]

_HELP: dict[Action, str] = {
    "left": "← a",
    "right": "→ b",
    "tie": "↓ t equally good",
    "skip": "s skip",
    "undo": "u undo",
    "why": "w why this",
    "ranking": "r ranking",
    "quit": "q quit",
}
_ARROW = "←→↓ "
_WORDS: dict[str, Action] = {text.lstrip(_ARROW)[0]: action for action, text in _HELP.items()}
_WORDS |= {"?": "why"} | {name: name for name in get_args(Action)}
# Arrows come in two forms, by the mode of the terminal.
_ARROWS: dict[bytes, Action] = {b"D": "left", b"C": "right", b"B": "tie"}
# A whole sequence, of those that terminals send: ESC [ parameters letter, ESC [ [ letter (the console of Linux), ESC O letter, ESC key.
_WHOLE = re.compile(rb"\x1b(\[\[.|\[[0-?]*[ -/]*[@-Z\\-~]|O[0-?]*[@-~]|[^\[O])", re.DOTALL)
_SOON = 0.05  # seconds after the key Esc: what follows later is a key of its own
_LATE = 1.0  # seconds after more than that, which nobody types: the rest is on its way
_OFTEN = 0.2  # seconds between two looks at whether the program was stopped and goes on
_SEQUENCES = {start + end: action for start in (b"\x1b[", b"\x1bO") for end, action in _ARROWS.items()}


def understood(word: str) -> Action | None:
    """What a line or a key means; None if nothing."""
    return _WORDS.get(word.strip().lower())


class Keys:
    """Reads actions; the terminal gives single keys while `listening`."""

    def __init__(self) -> None:
        self.raw = sys.stdin is not None and sys.stdin.isatty()
        self._goes_on = False  # after it was stopped: something else may be on the screen

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the terminal hand over keys as they are pressed, and not print them."""
        if not self.raw:
            yield
            return
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)

        def restore() -> None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

        def go_on(*_: object) -> None:
            # A shell has set the terminal for itself. In the background this fails, and the signal comes again.
            with suppress(termios.error):
                tty.setcbreak(descriptor)
                self._goes_on = True

        def killed(number: int, _: FrameType | None) -> None:
            # Python would leave at once when it is killed or its terminal is closed.
            restore()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        earlier: dict[int, Any] = {}
        try:
            if threading.current_thread() is threading.main_thread():  # no other may set handlers
                ends = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
                handlers: dict[int, Any] = {signal.SIGCONT: go_on} | dict.fromkeys(ends, killed)
                for number, handler in handlers.items():
                    earlier[number] = signal.signal(number, handler)
            tty.setcbreak(descriptor)  # Ctrl-C still interrupts
            yield
        finally:
            if signal.SIGCONT in earlier:
                signal.signal(signal.SIGCONT, earlier.pop(signal.SIGCONT))
            restore()
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def forget(self) -> None:
        """Drop keys that were pressed before the question could be read."""
        while self.raw and self._comes(0) and self._pressed():
            pass  # read, not flushed: half a sequence would leave a letter that means something

    def next(self) -> Action | None:
        """The next action; None for what means nothing. The end of the input means to quit."""
        if not self.raw:
            line = sys.stdin.readline() if sys.stdin is not None else ""
            return understood(line) if line else "quit"
        while not self._comes(_OFTEN):
            if self._goes_on:
                self._goes_on = False
                return "redraw"
        pressed = self._pressed()
        if not pressed or pressed.startswith(b"\x04"):
            return "quit"
        if pressed.startswith(b"\x0c"):  # Ctrl-L, as elsewhere
            return "redraw"
        return _SEQUENCES.get(pressed[:3]) or understood(pressed[:1].decode("ascii", "replace"))

    def _comes(self, within: float) -> bool:
        """Whether there is something to read."""
        return bool(select.select([sys.stdin.fileno()], [], [], within)[0])

    def _pressed(self) -> bytes:
        """What is there to read, with the rest of a sequence that is cut; empty at the end of the input."""
        descriptor = sys.stdin.fileno()
        pressed = os.read(descriptor, 1024)
        while (
            pressed.startswith(b"\x1b")
            and not _WHOLE.match(pressed)
            and self._comes(_SOON if len(pressed) == 1 else _LATE)
            and (more := os.read(descriptor, 1024))
        ):
            pressed += more
        return pressed


NARROW = 24  # no terminal is taken to have fewer columns
_SIDE_BY_SIDE = 72
_GAP = 4
_MOST_LINES = 8  # of a text or a name
_MOST_FACTS = 12
_MOST_NAME = 28  # columns of a name in the ranking


def headline(rater: str, progress: Progress) -> str:
    """Who is asked, and how far it has come."""
    counts = f"{progress.answers} answered"
    if progress.skips:
        counts += f", {progress.skips} skipped"
    if progress.everyone > progress.answers:
        counts += f", {progress.everyone} by all"
    if progress.remaining:
        counts += f", about {progress.remaining} more to the goal"
    return f"Question {progress.answers + progress.skips + 1} for {short(rater, _MOST_NAME)}: {counts}"


def two_items(left: Item, right: Item, columns: int) -> list[str]:
    """Both items, beside each other where there is room for that."""
    if columns < _SIDE_BY_SIDE:
        return ["a", *_indented(left, columns), "", "b", *_indented(right, columns)]
    half = (columns - _GAP) // 2
    sides = [[letter, *_indented(item, half)] for letter, item in (("a", left), ("b", right))]
    return [
        f"{one}{' ' * (half - width(one) + _GAP)}{other}".rstrip()
        for one, other in zip_longest(*sides, fillvalue="")
    ]


def bars(ranking: Any, top: int, columns: int, plain: bool) -> list[str]:
    """The first of a ranking with their means and intervals, drawn on one scale; ``plain``: with ASCII only."""
    shown = ranking.head(top)
    low, high = float(shown["lower"].min()), float(shown["upper"].max())
    names = [short(item, min(_MOST_NAME, columns // 3)) for item in shown.index]
    room, places = max(map(width, names)), len(str(len(names)))
    reach = max(columns - room - places - 12, 2)
    line, dot = ("-", "o") if plain else ("─", "●")

    def at(value: float) -> int:
        return round((value - low) / ((high - low) or 1.0) * (reach - 1))

    rows = []
    for place, (name, row) in enumerate(zip(names, shown.to_dict("records"), strict=True), start=1):
        drawn = [" "] * reach
        drawn[at(row["lower"]) : at(row["upper"]) + 1] = line * (at(row["upper"]) - at(row["lower"]) + 1)
        drawn[at(row["mean"])] = dot
        padded = name + " " * (room - width(name))
        rows.append(f"{place:>{places}}  {padded}  {row['mean']:+6.2f}  {''.join(drawn)}".rstrip())
    return rows


def short(value: Any, columns: int) -> str:
    """A text on one line, escaped, that takes no more columns than that."""
    text = label(str(value)[: 4 * columns])
    if width(text) <= columns and len(str(value)) <= 4 * columns:
        return text
    return f"{_head(text, columns - 3)}..."


def wrapped(text: str, columns: int, most: int | None = None) -> list[str]:
    """A text in lines that take no more columns than that, escaped; what is beyond the most lines is left out, and said so."""
    lines: list[str] = []
    # Nobody reads on where the screen ends: the rest need not be looked at.
    for paragraph in text[: columns * (most or 100) * 2].splitlines():
        line = ""
        for word in label(paragraph).split(" "):
            while width(word) > columns:
                head = _head(word, columns)
                lines += [line] * bool(line) + [head]
                line, word = "", word[len(head) :]
            if line and width(line) + 1 + width(word) > columns:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    if most is not None and len(lines) > most:
        lines[most - 1 :] = ["..."]
    return lines


def in_rows(parts: Sequence[str], columns: int) -> list[str]:
    """Short texts in as few rows as there is room for."""
    rows = [parts[0]]
    for part in parts[1:]:
        if width(rows[-1]) + 3 + width(part) <= columns:
            rows[-1] += f"   {part}"
        else:
            rows.append(part)
    return rows


def _head(word: str, columns: int) -> str:
    """The beginning of a word that takes no more columns than that, at least one character."""
    taken = sum(used <= columns for used in accumulate(map(width, word)))
    return word[: max(taken, 1)]


def _indented(item: Item, columns: int) -> list[str]:
    inner = max(columns - 2, 8)
    lines = wrapped(str(item.label), inner, 3) + (wrapped(item.text, inner, _MOST_LINES) if item.text else [])
    facts = list(item.attributes)
    facts += [("image", str(item.image))] if item.image else []
    facts += [("link", item.link)] if item.link else []
    if len(facts) > _MOST_FACTS:
        facts = [*facts[: _MOST_FACTS - 1], ("...", "")]
    names = [short(name, inner // 2) for name, _ in facts]
    room = max(map(width, names), default=0)
    for name, (_, value) in zip(names, facts, strict=True):
        lines.append(f"{name}{' ' * (room - width(name))}  {short(value, max(inner - room - 2, 4))}")
    return [f"  {line}" for line in lines]


_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_TELLS = {"why", "ranking", "redraw"}  # actions that leave the question open
_TOP, _MOST = 5, 20  # items in the ranking beside a question, and in one that was asked for


class Session:
    """Asks one rater; ``answers`` is how many were given, less those that were taken back."""

    def __init__(self, loop: Loop, rater: str, keys: Keys) -> None:
        self.answers = 0
        self._notice = ""
        self._loop, self._rater, self._keys = loop, rater, keys
        self._draws = keys.raw and sys.stdout.isatty()
        self._plain = not _can_draw()

    def ask(self, most: int | None = None) -> None:
        """Ask until the person quits, or there are so many answers."""
        refiner = Refiner(self._loop.refine)
        refiner.start()
        try:
            with self._keys.listening():
                while most is None or self.answers < most:
                    question = self._loop.question(self._rater)
                    self._keys.forget()  # nobody meant this question by them
                    self._show(question)
                    while (action := self._keys.next()) not in self._offered(question) - _TELLS:
                        self._tell(action, question)
                    if action == "quit":
                        return
                    try:
                        self._record(action, question)
                    except DataError as error:  # answered meanwhile at another terminal, for example
                        self._notice = str(error)
                    refiner.wake()
        finally:
            refiner.close(
                lambda: self._say("Bringing the ranking up to date; Ctrl-C leaves that to the next command.")
            )

    def _offered(self, question: Question | None) -> set[Action | None]:
        if question is None:
            return {"undo", "ranking", "redraw", "quit"}
        return set(get_args(Action)) - (set() if self._loop.ties else {"tie"})

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
            lines += [*wrapped(self._loop.prompt, columns), ""]
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
        offered, arrows = self._offered(question), self._keys.raw and not self._plain
        texts = [text for action, text in _HELP.items() if action in offered]
        return in_rows([text if arrows else text.lstrip(_ARROW) for text in texts], self._columns())

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
