"""The options of ``relpref check``."""

from typing import Any

from relpref.cli.values import positive


def add_check_options(check: Any) -> None:
    """How a run is compared with NUTS."""
    check.add_argument(
        "--entities",
        type=positive,
        default=150,
        metavar="N",
        help="of more than N compare N with many answers among themselves (default: 150)",
    )
    check.add_argument(
        "--draws",
        type=positive,
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
