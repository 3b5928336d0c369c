"""The command line: ``relpref COMMAND``; `relpref.cli.commands` has the list.

Exit codes: 0; 1 if the inference failed; 2 for input or storage that cannot be used; 130 if interrupted. Errors are one line on
stderr. What a command found out goes to stdout, with ``-o json`` as exactly one JSON document. Nothing is written when a
command fails.

OpenBLAS is held to one thread; ``OPENBLAS_NUM_THREADS`` says otherwise. Importing relpref does nothing of the kind.
"""

from relpref.cli.entry import main

__all__ = ["main"]
