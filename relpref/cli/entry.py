"""Runs a command and turns whatever happens into an exit code."""

import atexit
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
        By default those of the program. Only then is the process set up as that of a program:
        OpenBLAS works in one thread, characters that a terminal cannot show are escaped, and
        interrupts are handled as `hear_interrupts` says.
    """
    placed.clear()
    code = _run(arguments)
    if arguments is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))  # everything is written and said
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        try:
            chosen = parse(sys.argv[1:] if arguments is None else arguments)
            chosen.program = arguments is None  # the process is this program's own
            if chosen.program:
                _set_up()
            with _warnings_as_lines(), entry_points_for_unknown_names():
                chosen.command(chosen)
            return 0
        finally:
            if sys.stdout is not None:  # it is None where the shell closed it
                sys.stdout.flush()  # here, where a broken pipe can still be handled
    except SystemExit as leaving:  # --help, --version and wrong usage
        return leaving.code if isinstance(leaving.code, int) else 0
    except BrokenPipeError:
        # The reader has seen enough. The interpreter flushes stdout once more on its way out: into
        # nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as interrupt:  # a command that keeps what it has says so
        done = (
            f"interrupted; {placed[-1]} is written"
            if placed
            else "interrupted, nothing was written"
        )
        return _fail(INTERRUPTED, str(interrupt) or done)
    except (DataError, StorageError) as error:
        return _fail(_INPUT, f"error: {error}")
    except RelprefError as error:
        return _fail(_INFERENCE, f"error: {error}")
    except OSError as error:  # stdout on a full disk, for example
        return _fail(_INPUT, f"error: {error.filename or 'the output'}: {error.strerror or error}")


def _fail(code: int, message: str) -> int:
    print(f"relpref: {' '.join(message.splitlines())}", file=sys.stderr)
    return code


def _set_up() -> None:
    hear_interrupts()
    # OpenBLAS does the Cholesky factors. Its threads wait for each other without sleeping: up to a
    # thousand items two of them are no faster than one on idle processors, and take three times as
    # long where others work, too. JAX keeps its own threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show warnings as one line each, without the place in the code."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"relpref: warning: {' '.join(str(message).splitlines())}", file=sys.stderr)

    shown = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


_SOON = 0.02  # seconds: long enough for the callback that swallowed the interrupt to have returned
# Seconds without an interrupt after which the next one is another; the loop that asks offers a
# second after 0.5.
_AGAIN = 0.4


def hear_interrupts() -> None:
    """Make an interrupt end the program in order.

    Those that follow within a moment are the same one, and do not stop what cleans up. One that
    came in a finalizer or a callback of the garbage collector, which cannot raise (JAX has one), is
    sent again.
    """
    forget, last = sys.unraisablehook, -math.inf

    def interrupt(*_: Any) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > _AGAIN:
            raise KeyboardInterrupt

    def remember(ignored: Any) -> None:
        nonlocal last
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            forget(ignored)
            return
        last = -math.inf
        # A signal proper: it also ends a wait inside a system call.
        main = threading.main_thread().ident
        assert main is not None  # it runs
        again = threading.Timer(_SOON, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = remember
    if (
        signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):  # as of a program in the background of a shell
        signal.signal(signal.SIGINT, interrupt)
        atexit.register(
            signal.signal, signal.SIGINT, signal.SIG_IGN
        )  # Python resets its handlers as it ends
