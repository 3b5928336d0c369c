"""``relpref report``: a page about a run."""

import argparse
from pathlib import Path
from shlex import quote

from relpref.cli.output import document, say
from relpref.errors import DataError
from relpref.infer import RelationPosterior
from relpref.report import write
from relpref.runs import REPORT, load_run


def run(chosen: argparse.Namespace) -> None:
    """Write the page."""
    found = load_run(chosen.run)
    if isinstance(found.posterior, RelationPosterior):
        raise DataError(
            f"{chosen.run}: a report is about a ranking of entities, and this run ranks objects for a given node; use relpref "
            f"conditional rank {quote(chosen.run)} NODE"
        )
    path = write(found.posterior, Path(chosen.out) if chosen.out else found.folder / REPORT)
    if chosen.json:
        document({"command": "report", "run": str(chosen.run), "report": str(path)})
    else:
        say(f"The report is in {path}")
