"""What a person presses: single keys on a terminal, lines everywhere else."""

import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, get_args

Action = Literal["left", "right", "tie", "skip", "undo", "why", "ranking", "redraw", "quit"]

_WORDS: dict[str, Action] = {
    "a": "left",
    "b": "right",
    "t": "tie",
    "s": "skip",
    "u": "undo",
    "w": "why",
    "?": "why",
    "r": "ranking",
    "q": "quit",
}
_WORDS |= {name: name for name in get_args(Action)}
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

        with _at_the_end(restore):
            tty.setcbreak(descriptor)  # Ctrl-C still interrupts
            with _when_it_goes_on(go_on):
                yield

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


@contextmanager
def _when_it_goes_on(act: Callable[..., None]) -> Iterator[None]:
    """Act whenever the program was stopped (Ctrl-Z) and goes on."""
    if threading.current_thread() is not threading.main_thread():  # no other may set handlers
        yield
        return
    before = signal.signal(signal.SIGCONT, act)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


@contextmanager
def _at_the_end(restore: Callable[[], None]) -> Iterator[None]:
    """Restore however it ends, also when it is killed or its terminal is closed, where Python would leave at once."""

    def killed(number: int, _: FrameType | None) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    here = threading.current_thread() is threading.main_thread()  # no other may set handlers
    ends = [s for s in (signal.SIGTERM, signal.SIGHUP) if here and signal.getsignal(s) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, killed)
    try:
        yield
    finally:
        restore()
        for number in ends:
            signal.signal(number, signal.SIG_DFL)
