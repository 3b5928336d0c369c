"""``relpref rank``: the entities of a run, best first."""

import argparse
import sys
from collections.abc import Hashable, Mapping
from typing import Any

from relpref.cli.opened import opened
from relpref.cli.output import document_of_rows, label, records, say, table
from relpref.infer.large.belief import ImplicitBelief

_TOP = 20  # of more entities than a matrix has room for, those that are shown where nobody says how many


def run(chosen: argparse.Namespace) -> None:
    """Rank."""
    _, posterior = opened(chosen.run)
    total, top = posterior.data.num_entities, chosen.top
    large = isinstance(posterior.belief, ImplicitBelief)
    if large and top is None and not (chosen.csv or chosen.json):
        top = _TOP
    # Of many entities an interval costs a solution with their graph: none more than are shown.
    ranking = posterior.ranking(chosen.interval, **({"top": top} if large and top else {})).head(top)
    if chosen.csv:
        ranking.to_csv(sys.stdout, lineterminator="\n")
    elif chosen.json:
        rows = (
            {"entity": entity, **row} for entity, row in zip(ranking.index, records(ranking), strict=True)
        )
        content = {
            "command": "rank",
            "run": str(chosen.run),
            "interval": chosen.interval,
            "entities": total,
        }
        document_of_rows(content, "ranking", rows)
    else:
        say(for_people(ranking, chosen.interval, ("entity", "utility")))
        if large and chosen.top is None and total > _TOP:
            say(f"... and {total - _TOP} more: --top K shows more of them, --csv all")


def for_people(ranking: Any, interval: float, names: tuple[str, str]) -> str:
    """A table of what is ranked and of its value, by the names of these two; with ranks where they are known."""
    share = f"{100 * interval:g} %"
    ranked = "expected_rank" in ranking
    header = ("", *names, f"{share} interval", *(("rank", f"{share} interval", "p best") if ranked else ()))
    rows = [
        (
            str(place),
            label(entity),
            f"{row['mean']:.2f}",
            f"{row['lower']:.2f} to {row['upper']:.2f}",
            *(_ranks(row) if ranked else ()),
        )
        for place, (entity, row) in enumerate(
            zip(ranking.index, ranking.to_dict("records"), strict=True), start=1
        )
    ]
    return table(header, rows, left=(1,))


def _ranks(row: Mapping[Hashable, Any]) -> tuple[str, ...]:
    places = f"{row['rank_lower']:.0f} to {row['rank_upper']:.0f}"
    return f"{row['expected_rank']:.1f}", places, f"{row['p_best']:.2f}"
