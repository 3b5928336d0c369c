"""The options of ``relpref check``."""

import argparse
from collections.abc import Callable
from typing import Any

from relpref.cli.values import positive, whole


def add_check_options(check: Any) -> None:
    """How a run is compared with NUTS."""
    check.add_argument(
        "--entities",
        type=_from(2),
        default=150,
        metavar="N",
        help="of more than N compare N with many answers among themselves (default: 150)",
    )
    check.add_argument(
        "--draws",
        type=_from(100),
        default=2000,
        metavar="N",
        help="of NUTS, all chains together (default: 2000)",
    )
    check.add_argument("--chains", type=positive, default=4, metavar="N", help="of NUTS (default: 4)")
    check.add_argument(
        "--hyperparameters",
        action="store_true",
        help="let NUTS sample the hyperparameters, too, and not hold them at those of the run: what their uncertainty adds",
    )


def _from(least: int) -> Callable[[str], int]:
    """A whole number that is large enough, or nothing is computed."""

    def read(text: str) -> int:
        number = whole(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return read
