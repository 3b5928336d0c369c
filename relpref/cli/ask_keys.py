"""What a person presses: single keys on a terminal, lines everywhere else."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, get_args

Action = Literal["left", "right", "tie", "skip", "undo", "why", "ranking", "quit"]

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
_SEQUENCES = {start + end: action for start in (b"\x1b[", b"\x1bO") for end, action in _ARROWS.items()}


def understood(word: str) -> Action | None:
    """What a line or a key means; None if nothing."""
    return _WORDS.get(word.strip().lower())


class Keys:
    """Reads actions; the terminal gives single keys while `listening`."""

    def __init__(self) -> None:
        self.raw = sys.stdin is not None and sys.stdin.isatty()

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

        with _at_the_end(restore):
            tty.setcbreak(descriptor)  # Ctrl-C still interrupts
            yield

    def forget(self) -> None:
        """Drop keys that were pressed before the question could be read."""
        if self.raw:
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def next(self) -> Action | None:
        """The next action; None for what means nothing. The end of the input means to quit."""
        if not self.raw:
            line = sys.stdin.readline() if sys.stdin is not None else ""
            return understood(line) if line else "quit"
        pressed = os.read(sys.stdin.fileno(), 32)
        if not pressed or pressed.startswith(b"\x04"):
            return "quit"
        return _SEQUENCES.get(pressed[:3]) or understood(pressed[:1].decode("ascii", "replace"))


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
