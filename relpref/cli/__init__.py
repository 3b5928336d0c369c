"""The command line: ``relpref COMMAND``; `relpref.cli.commands` lists the commands.

Exit codes: 0; 1 if the inference failed; 2 for input or storage that cannot be used; 130 if
interrupted. Errors are one line on stderr. Results go to stdout, with ``-o json`` as exactly one
JSON document. Nothing is written when a command fails.

Commands run OpenBLAS in one thread unless ``OPENBLAS_NUM_THREADS`` is set. Importing relpref does
not change it.
"""

import os
import signal
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code, see `relpref.cli.entry.main`."""
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)  # during the imports below
    from relpref.cli.entry import main as run

    return run(arguments)


def _leave(*_: Any) -> None:
    os.write(2, b"relpref: interrupted, nothing was written\n")
    os._exit(130)
