"""Questions in a terminal: reads single keys, draws the question and the ranking."""

import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import accumulate, zip_longest
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from relpref.ask.items import Item
from relpref.ask.questions import Question
from relpref.ask.session import Session, not_counted
from relpref.data.arrays import label, width
from relpref.errors import DataError, StorageError

if TYPE_CHECKING:
    from relpref.ask.loop import Progress

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
# Bytes of other keys: the end of the input, Ctrl-D, Ctrl-L, and arrows, which have two forms.
_CODES: dict[bytes, Action] = {b"": "quit", b"\x04": "quit", b"\x0c": "redraw"}
for _start in (b"\x1b[", b"\x1bO"):
    _CODES |= {_start + b"D": "left", _start + b"C": "right", _start + b"B": "tie"}
_RESUME_INTERVAL = 0.2  # seconds between two checks whether a stopped program was continued


def understood(word: str) -> Action | None:
    """Meaning of a line or a key; None if it has none."""
    return _WORDS.get(word.strip().lower())


class Keys:
    """Reader of actions; the terminal hands over single keys while `listening`."""

    def __init__(self) -> None:
        # Without termios, as on Windows, answers are lines.
        self.raw = sys.stdin is not None and sys.stdin.isatty() and find_spec("termios") is not None
        self._continued = False  # after a stop: something else may be on the screen

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the terminal hand over keys as they are pressed, without printing them."""
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

        def continued(*_: object) -> None:
            # A shell has changed the terminal meanwhile. In the background this fails, and the
            # signal comes again.
            with suppress(termios.error):
                tty.setcbreak(descriptor)
                self._continued = True

        def killed(number: int, _: FrameType | None) -> None:
            # Python would leave at once when it is killed or its terminal is closed.
            restore()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        with ExitStack() as stack:

            def handle(number: signal.Signals, handler: Any) -> None:
                if threading.current_thread() is threading.main_thread():  # others may not
                    stack.callback(signal.signal, number, signal.signal(number, handler))

            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    handle(number, killed)
            stack.callback(restore)
            handle(signal.SIGCONT, continued)
            tty.setcbreak(descriptor)  # Ctrl-C still interrupts
            yield

    def forget(self) -> None:
        """Drop keys that were pressed before the question could be read."""
        while self.raw and self._has_input(0) and self._read():
            pass

    def next(self) -> Action | None:
        """Next action; None for input without a meaning. The end of the input means to quit."""
        if not self.raw:
            line = sys.stdin.readline() if sys.stdin is not None else ""
            return understood(line) if line else "quit"
        while not self._has_input(_RESUME_INTERVAL):
            if self._continued:
                self._continued = False
                return "redraw"
        pressed = self._read()  # of pasted text, the first character counts
        code = _CODES.get(pressed[:3]) or _CODES.get(pressed[:1])
        return code or understood(pressed[:1].decode("ascii", "replace"))

    def _has_input(self, timeout: float) -> bool:
        return bool(select.select([sys.stdin.fileno()], [], [], timeout)[0])

    def _read(self) -> bytes:
        return os.read(sys.stdin.fileno(), 1024)


NARROW = 24  # columns that every terminal is taken to have
_SIDE_BY_SIDE = 72
_GAP = 4
_MAX_LINES = 8  # of a text
_MAX_LABEL_LINES = 3
_MAX_FACTS = 12
_MAX_NAME = 28  # columns of a name in the ranking


def headline(rater: str, progress: "Progress") -> str:
    """Name of the rater and the numbers of answers so far."""
    counts = f"{progress.answers} answered"
    if progress.skips:
        counts += f", {progress.skips} skipped"
    if progress.everyone > progress.answers:
        counts += f", {progress.everyone} by all"
    if progress.remaining:
        counts += f", about {progress.remaining} more to the goal"
    number = progress.answers + progress.skips + 1
    return f"Question {number} for {short(rater, _MAX_NAME)}: {counts}"


def two_items(left: Item, right: Item, columns: int) -> list[str]:
    """Lines that show both items, beside each other if the terminal is wide enough."""
    if columns < _SIDE_BY_SIDE:
        return ["a", *_indented(left, columns), "", "b", *_indented(right, columns)]
    half = (columns - _GAP) // 2
    sides = ["a", *_indented(left, half)], ["b", *_indented(right, half)]
    return [
        f"{_padded(first, half + _GAP)}{second}".rstrip()
        for first, second in zip_longest(*sides, fillvalue="")
    ]


def bars(ranking: Any, top: int, columns: int, plain: bool) -> list[str]:
    """The first items of a ranking with means and intervals drawn on one scale.

    ``plain`` draws with ASCII characters only.
    """
    head = ranking.head(top)
    names = [short(item, min(_MAX_NAME, columns // 3)) for item in head.index]
    longest, digits = max(map(width, names)), len(str(len(names)))
    ends = head[["lower", "mean", "upper"]].to_numpy(float)
    low, high = ends.min(), ends.max()
    scale = (max(columns - longest - digits - 12, 2) - 1) / ((high - low) or 1.0)
    line, dot = ("-", "o") if plain else ("─", "●")
    rows = []
    for rank, (name, values) in enumerate(zip(names, ends, strict=True), start=1):
        lower, mean, upper = np.rint((values - low) * scale).astype(int)
        bar = " " * lower + line * (mean - lower) + dot + line * (upper - mean)
        rows.append(f"{rank:>{digits}}  {_padded(name, longest)}  {values[1]:+6.2f}  {bar}")
    return rows


def short(value: Any, columns: int) -> str:
    """Escape a text and shorten it to one line of at most so many columns."""
    text = label(str(value)[: 4 * columns])
    if width(text) <= columns and len(str(value)) <= 4 * columns:
        return text
    return f"{_head(text, columns - 3)}..."


def wrapped(text: str, columns: int, max_lines: int | None = None) -> list[str]:
    """Escape a text and break it into lines; "..." stands for those beyond the maximum."""
    lines: list[str] = []
    # Nobody reads on where the screen ends, so a long text is cut before it is wrapped.
    for paragraph in text[: columns * (max_lines or 100) * 2].splitlines():
        words: list[str] = []
        for word in label(paragraph).split(" "):
            while width(word) > columns:
                words.append(_head(word, columns))
                word = word[len(words[-1]) :]
            words.append(word)
        lines += in_rows(words, columns, " ")
    if max_lines is not None and len(lines) > max_lines:
        lines[max_lines - 1 :] = ["..."]
    return lines


def in_rows(parts: Sequence[str], columns: int, gap: str = "   ") -> list[str]:
    """Join short texts into as few rows as fit."""
    rows = [parts[0]]
    for part in parts[1:]:
        if not rows[-1]:
            rows[-1] = part
        elif width(rows[-1]) + len(gap) + width(part) <= columns:
            rows[-1] += gap + part
        else:
            rows.append(part)
    return rows


def _head(word: str, columns: int) -> str:
    """Longest beginning of a word that fits into the columns, at least one character."""
    fitting = sum(used <= columns for used in accumulate(map(width, word)))
    return word[: max(fitting, 1)]


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def _indented(item: Item, columns: int) -> list[str]:
    """Lines that show an item: label, text, attributes, image and link."""
    inner = max(columns - 2, 8)
    lines = wrapped(str(item.label), inner, _MAX_LABEL_LINES)
    lines += wrapped(item.text, inner, _MAX_LINES)
    facts = list(item.attributes)
    facts += [("image", str(item.image))] if item.image else []
    facts += [("link", item.link)] if item.link else []
    if len(facts) > _MAX_FACTS:
        facts[_MAX_FACTS - 1 :] = [("...", "")]
    names = [short(name, inner // 2) for name, _ in facts]
    longest = max(map(width, names), default=0)
    for name, (_, value) in zip(names, facts, strict=True):
        lines.append(f"{_padded(name, longest)}  {short(value, max(inner - longest - 2, 4))}")
    return [f"  {line}" for line in lines]


_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_KEEP_OPEN = {"why", "ranking", "redraw"}  # actions that leave the question open
_TOP = 20  # items in the ranking on request: beside a question, it may influence the answer


class Terminal:
    """Questions of a session to one rater in the terminal.

    Attributes
    ----------
    answers : int
        Answers given, less those taken back.
    """

    def __init__(self, session: Session, rater: str, keys: Keys) -> None:
        self.answers = 0
        self._notice = ""
        self._session, self._loop = session, session.loop
        self._rater, self._keys = rater, keys
        self._draws = keys.raw and sys.stdout.isatty()
        self._plain = not _can_draw()

    def ask(self, most: int | None = None) -> None:
        """Ask until the person quits or has given so many answers."""
        self._session.start()
        try:
            with self._keys.listening():
                while most is None or self.answers < most:
                    question = next(iter(self._session.questions(self._rater)), None)
                    self._keys.forget()  # they were not meant for this question
                    self._show(question)
                    while (action := self._keys.next()) not in self._offered(question) - _KEEP_OPEN:
                        self._respond(action, question)
                    if action == "quit":
                        return
                    self._record(action, question)
        finally:
            self._session.close(
                lambda: self._say(
                    "Bringing the ranking up to date; Ctrl-C leaves that to the next command."
                )
            )

    def _offered(self, question: Question | None) -> set[Action | None]:
        """Actions that are possible now."""
        if question is None:
            return {"undo", "ranking", "redraw", "quit"}
        return {action for action in get_args(Action) if action != "tie" or self._loop.ties}

    def _record(self, action: Any, question: Question | None) -> None:
        """Record an answer or a skip, or take the last one back."""
        sides = dict(zip(("left", "right"), question.sides if question else (), strict=False))
        before = self._loop.progress(self._rater).answers
        try:
            self._session.record(
                sides.get(action, action), question.id if question else "", self._rater
            )
        except DataError as error:
            self._notice = str(error)
        except StorageError as error:
            if not self._keys.raw or not self._loop.in_place:
                raise
            self._notice = not_counted(error)
        self.answers += self._loop.progress(self._rater).answers - before

    def _show(self, question: Question | None) -> None:
        """Draw the question and what may be pressed."""
        loop, columns = self._loop, self._columns()
        progress = loop.progress(self._rater)
        texts = [self._notice, loop.trouble]
        self._notice = ""
        shown = []
        if question:
            texts += [headline(self._rater, progress), progress.outlook]
            left, right = map(loop.item, question.sides.values())
            shown = [*wrapped(loop.prompt, columns), "", *two_items(left, right, columns), ""]
        else:
            texts.append(f"No new pair is left. {loop.nothing_left(self._rater)}")
        lines = [line for text in texts for line in wrapped(text, columns)]
        _print([*lines, "", *shown, *self._help(question)], _CLEAR * self._draws)

    def _respond(self, action: Action | None, question: Question | None) -> None:
        """Respond to an action that leaves the question open, or to a key without a meaning."""
        if action == "why" and question:
            self._say(self._loop.why(question))
        elif action == "ranking":
            ranking = self._loop.ranking()
            lines = bars(ranking, _TOP, self._columns(), self._plain)
            if len(ranking) > _TOP:
                lines.append(f"... and {len(ranking) - _TOP} more, which relpref rank shows")
            _print(lines)
        elif action == "redraw":
            self._show(question)
        else:
            _print(["That means nothing here.", *self._help(question)])

    def _help(self, question: Question | None) -> list[str]:
        """Rows with the keys that may be pressed."""
        offered, arrows = self._offered(question), self._keys.raw and not self._plain
        texts = [text for action, text in _HELP.items() if action in offered]
        return in_rows([text if arrows else text.lstrip(_ARROW) for text in texts], self._columns())

    def _say(self, text: str) -> None:
        _print(wrapped(text, self._columns()))

    def _columns(self) -> int:
        return max(shutil.get_terminal_size().columns, NARROW)


def _print(lines: Sequence[str], before: str = "") -> None:
    print(before + "\n".join(lines), flush=True)


def _can_draw() -> bool:
    """Whether the encoding of the terminal has the characters of `bars`."""
    try:
        "─●".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
