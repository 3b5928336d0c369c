"""What can be said of a report on the command line."""

import argparse


def report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``relpref report``."""
    parser.add_argument("--out", metavar="FILE", help="where the page goes (default: report.html in the run)")
    parser.add_argument("--title", metavar="TEXT", help="what stands at the top of the page")
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="fit again without each part of the model, to say what it is worth; takes from seconds to minutes",
    )
