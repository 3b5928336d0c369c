"""Sees to it that an interrupt is not lost."""

import signal
import sys
import threading
from typing import Any

_SOON = 0.02  # seconds: long enough for the callback that swallowed the interrupt to have returned


def hear_interrupts() -> None:
    """Send an interrupt again that came where Python ignores exceptions.

    A finaliser or a callback of the garbage collector (JAX has one) cannot raise: an interrupt that comes while it runs is printed
    and forgotten, and the program goes on as if nothing had been pressed.
    """
    forget = sys.unraisablehook

    def remember(ignored: Any) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            forget(ignored)
            return
        # A signal proper: it also ends a wait inside a system call.
        main = threading.main_thread().ident
        assert main is not None  # it runs
        again = threading.Timer(_SOON, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = remember
