"""``relpref report``: a page about a run."""

import argparse
from pathlib import Path

from relpref.cli.opened import brought_up_to_date
from relpref.cli.output import document, say
from relpref.infer import UtilityPosterior
from relpref.report import write
from relpref.runs import REPORT, load_run


def run(chosen: argparse.Namespace) -> None:
    """Write the page."""
    found = load_run(chosen.run)
    posterior = found.posterior
    if isinstance(posterior, UtilityPosterior):
        posterior = brought_up_to_date(found, chosen.run)
    path = Path(chosen.out) if chosen.out else found.folder / REPORT
    write(posterior, path, title=chosen.title, relations_evidence=True if chosen.evidence else None)
    if chosen.json:
        document({"command": "report", "run": str(chosen.run), "report": str(path)})
    else:
        say(f"The report is in {path}")
