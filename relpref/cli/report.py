"""``relpref report``: a page about a run."""

import argparse
from pathlib import Path

from relpref.cli.opened import opened
from relpref.cli.output import document, say
from relpref.report import write
from relpref.runs import REPORT


def run(chosen: argparse.Namespace) -> None:
    """Write the page."""
    found, posterior = opened(chosen.run)
    path = write(posterior, Path(chosen.out) if chosen.out else found.folder / REPORT)
    if chosen.json:
        document({"command": "report", "run": str(chosen.run), "report": str(path)})
    else:
        say(f"The report is in {path}")
