"""``relpref rank``: the entities of a run, best first."""

import argparse
import sys
from typing import Any

from relpref.cli.opened import opened
from relpref.cli.output import document, label, say, table


def run(chosen: argparse.Namespace) -> None:
    """Rank."""
    _, posterior = opened(chosen.run)
    ranking = posterior.ranking(interval=chosen.interval).head(chosen.top)
    if chosen.csv:
        ranking.to_csv(sys.stdout, lineterminator="\n")
    elif chosen.json:
        rows = [
            {"entity": entity, **row}
            for entity, row in zip(ranking.index, ranking.to_dict("records"), strict=True)
        ]
        document(
            {
                "command": "rank",
                "run": str(chosen.run),
                "interval": chosen.interval,
                "entities": posterior.data.num_entities,
                "ranking": rows,
            }
        )
    else:
        say(for_people(ranking, chosen.interval, ("entity", "utility")))


def for_people(ranking: Any, interval: float, names: tuple[str, str]) -> str:
    """A table of what is ranked and of its value, by the names of these two."""
    share = f"{100 * interval:g} %"
    header = ("", *names, f"{share} interval", "rank", f"{share} interval", "p best")
    rows = [
        (
            str(place),
            label(entity),
            f"{row['mean']:.2f}",
            f"{row['lower']:.2f} to {row['upper']:.2f}",
            f"{row['expected_rank']:.1f}",
            f"{row['rank_lower']:.0f} to {row['rank_upper']:.0f}",
            f"{row['p_best']:.2f}",
        )
        for place, (entity, row) in enumerate(
            zip(ranking.index, ranking.to_dict("records"), strict=True), start=1
        )
    ]
    return table(header, rows, left=(1,))
