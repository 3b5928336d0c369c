"""Run a command and turn errors and interrupts into exit codes."""

import atexit
import math
import os
import re
import signal
import sys
import threading
import time
import warnings
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from relpref.cli.parser import parse
from relpref.errors import DataError, RelprefError, StorageError
from relpref.files import placed
from relpref.registry import entry_points_for_unknown_names

_INFERENCE, _INPUT, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process. Only then is the process set up as a program: OpenBLAS
        works in one thread, characters that a terminal cannot show are escaped, and interrupts
        are handled by `hear_interrupts`.
    """
    placed.clear()
    code = _run(arguments)
    if arguments is None:
        if code == INTERRUPTED:
            atexit.register(_end, code)
        # Everything is written: an interrupt during the exit of Python changes nothing.
        _handle_interrupts(lambda *_: os._exit(code))
        # Where an interrupt hit a text that was executed, such as that of a dataclass in an import,
        # Python takes it for unhandled until the next text, and would end by the signal.
        exec("")  # noqa: S102
    return code


def _end(code: int) -> None:
    """End at once: threads of compiled code that was interrupted may crash while Python ends."""
    with suppress(OSError):
        print(end="", flush=True)
    os._exit(code)


# Arguments of a call with the options for them, names of arguments alone, and before a colon.
_CALLED = re.compile(
    r"""(?:, )?(?:\w+=(?:\{.*?\}|\[.*?\]|'[^']*')(?:, )?)+ \((--(?:'[^']*'|"[^"]*"|[^()'"])*)\)"""
)
_NAMED = re.compile(
    r"\b(columns|covariates|encoding|sheet)=(?=[\s;,.]|$)|^(columns|covariates)(?=: )"
)


def typed(text: str) -> str:
    """Name the options of the command line in a message, instead of the arguments of a call."""
    return _NAMED.sub(r"--\1\2", _CALLED.sub(r"\1", text))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        try:
            chosen = parse(sys.argv[1:] if arguments is None else arguments)
            chosen.program = arguments is None  # the process is that of the program
            if chosen.program:
                _set_up()
            with _warnings_as_lines(), entry_points_for_unknown_names():
                chosen.command(chosen)
            return 0
        finally:
            if sys.stdout is not None:  # it is None where the shell closed it
                sys.stdout.flush()  # here, where a broken pipe can still be handled
            if arguments is None:
                _handle_interrupts(lambda *_: None)  # the rest takes a moment
    except SystemExit as leaving:  # --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    except BrokenPipeError:  # the reader has closed the pipe
        _discard_output()
        return 0
    except KeyboardInterrupt as interrupt:  # a command that keeps a part of its work says so
        done = f"; {placed[-1]} is written" if placed else ", nothing was written"
        return _fail(INTERRUPTED, str(interrupt) or f"interrupted{done}")
    except (DataError, StorageError) as error:
        return _fail(_INPUT, f"error: {typed(str(error))}")
    except RelprefError as error:
        return _fail(_INFERENCE, f"error: {error}")
    except OSError as error:  # stdout on a full disk, for example
        if error.filename is None:
            _discard_output()
        return _fail(_INPUT, f"error: {error.filename or 'the output'}: {error.strerror or error}")


def _discard_output() -> None:
    """Let Python's last flush of stdout, at exit, go into nothing."""
    with suppress(OSError):  # stdout may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(code: int, message: str) -> int:
    """Print a message as one line on stderr; return the code."""
    print(f"relpref: {' '.join(message.splitlines())}", file=sys.stderr)
    return code


def _set_up() -> None:
    hear_interrupts()
    # OpenBLAS computes the Cholesky factors. Its threads wait for each other without sleeping: up
    # to a thousand items two threads are no faster than one on idle processors, and take three
    # times as long on busy ones. JAX keeps its own threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show each warning as one line, without its place in the code."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"relpref: warning: {' '.join(str(message).splitlines())}", file=sys.stderr)

    before = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


# Seconds until an interrupt that a callback swallowed is sent again: the callback has returned.
_RESEND = 0.02
# Signals within so many seconds are one interrupt; the loop that asks offers a second after 0.5.
_SAME = 0.4


def hear_interrupts() -> None:
    """Make an interrupt end the program in order.

    Signals that follow within a moment are the same interrupt, and do not stop the cleaning up. An
    interrupt in a finalizer or a callback of the garbage collector, which cannot raise (JAX has
    one), is sent again.
    """
    report, last = sys.unraisablehook, -math.inf

    def interrupt(*_: Any) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > _SAME:
            raise KeyboardInterrupt

    def resend(ignored: Any) -> None:
        nonlocal last
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            report(ignored)
            return
        last = -math.inf
        # A real signal, where there are some: it also ends a wait inside a system call.
        send = getattr(signal, "pthread_kill", lambda _, number: interrupt_main(number))
        main = threading.main_thread().ident
        again = threading.Timer(_RESEND, send, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = resend
    if _handle_interrupts(interrupt):
        # Python resets its handlers at exit.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _handle_interrupts(handler: Callable[..., None]) -> bool:
    """Set what interrupts call, unless they are ignored: in the background of a shell, they are."""
    heard = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if heard:
        signal.signal(signal.SIGINT, handler)
    return heard
