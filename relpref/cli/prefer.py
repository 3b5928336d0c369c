"""``relpref prefer``: how likely one of two entities is preferred."""

import argparse

from relpref.cli.opened import labels, opened
from relpref.cli.output import document, label, say, table
from relpref.errors import DataError


def run(chosen: argparse.Namespace) -> None:
    """Answer."""
    if len(chosen.labels) % 2:
        raise DataError(
            f"the label {chosen.labels[-1]!r} has no other to be compared with; "
            "give two for each question, such as relpref prefer run/ a b c d"
        )
    _, posterior = opened(chosen.run)
    found = labels(posterior, chosen.labels)
    answers = posterior.prefer(zip(found[::2], found[1::2], strict=True)).to_dict("records")
    if chosen.json:
        document({"command": "prefer", "run": str(chosen.run), "pairs": answers})
        return
    rows = [
        (
            label(row["first"]),
            label(row["second"]),
            f"{row['probability']:.3f}",
            f"{row['p_better']:.3f}",
            f"{row['gap_mean']:.2f} ± {row['gap_sd']:.2f}",
        )
        for row in answers
    ]
    say(table(("first", "second", "p preferred", "p better", "gap of utilities"), rows, left=(0, 1)))
