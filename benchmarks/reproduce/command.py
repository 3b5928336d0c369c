"""What the commands of the experiments share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from relpref.errors import RelprefError
from relpref.parallel import FORMS


def carry_out(work: Callable[[], None], out: Path) -> int:
    """Run, and turn an error or an interruption into words and an exit code."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        work()
    except RelprefError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"interrupted; what was finished is in {out}, and the same command goes on",
            file=sys.stderr,
        )
        return 130
    return 0


def common(parser: argparse.ArgumentParser) -> None:
    """Add where to compute and where the results go."""
    parser.add_argument("--scheduler", help=f"{FORMS} (default: one by one)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduction"),
        help="rows, tables, figures (default: reproduction)",
    )
