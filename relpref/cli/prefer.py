"""``relpref prefer``: how likely one of two entities is preferred."""

import argparse
from typing import Any

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
    found = labels(posterior.data.entities, chosen.labels)
    asked: dict[str, Any] = {}
    if chosen.rater is not None:
        (asked["rater"],) = labels(posterior.data.comparisons.raters, [chosen.rater])
    if chosen.shown_first is not None:
        asked["shown_first"] = found[0 if chosen.shown_first == "first" else 1 :: 2]
    answers = posterior.prefer(zip(found[::2], found[1::2], strict=True), **asked).to_dict("records")
    if chosen.json:
        document({"command": "prefer", "run": str(chosen.run), "pairs": answers})
        return
    rows = [
        (
            label(row["first"]),
            label(row["second"]),
            f"{row['probability']:.3f}",
            *([f"{row['tie']:.3f}"] if "tie" in row else []),
            f"{row['p_better']:.3f}",
            f"{row['gap_mean']:.2f} ± {row['gap_sd']:.2f}",
        )
        for row in answers
    ]
    ties = ("p tie",) if "tie" in answers[0] else ()
    header = ("first", "second", "p preferred", *ties, "p better", "gap of utilities")
    say(table(header, rows, left=(0, 1)))
