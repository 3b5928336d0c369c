"""``relpref rank``: the entities of a run, best first."""

import argparse
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, cast

from relpref.ask.learning import up_to_date
from relpref.cli.output import document, document_of_rows, records, say, table
from relpref.data.arrays import label
from relpref.errors import DataError
from relpref.infer import RelationPosterior, UtilityPosterior
from relpref.report import write
from relpref.runs import REPORT, Run, load_run


def opened(folder: str) -> tuple[Run, UtilityPosterior]:
    """Read a run and its posterior, with the answers that people gave since it was saved.

    Raises
    ------
    DataError
        If it does not rank entities.
    StorageError
        If it cannot be read.
    """
    run = load_run(folder)
    if run.posterior.kind == "relation":
        raise DataError(
            f"{folder}: this run ranks objects for a given node; use relpref conditional rank {quote(folder)} NODE"
        )
    if run.posterior.kind != "utilities":
        raise DataError(f"{folder}: this run has no utilities of entities, so there is nothing to rank")
    return run, brought_up_to_date(run, folder)


def brought_up_to_date(run: Run, folder: str) -> UtilityPosterior:
    """The posterior of a run that ranks entities, with the answers that people gave since it was saved."""
    posterior, later = up_to_date(run)
    if later:
        print(
            f"relpref: {later} answer{' is' if later == 1 else 's are'} newer than the posterior in {folder}; it was brought up to date for "
            "this command",
            file=sys.stderr,
        )
    return posterior


def opened_relation(folder: str) -> RelationPosterior:
    """Read the posterior of a run of ``relpref conditional fit``.

    Raises
    ------
    DataError
        If it is another kind of run.
    StorageError
        If it cannot be read.
    """
    found: Any = load_run(folder).posterior
    if found.kind != "relation":
        raise DataError(
            f"{folder}: this run has no relation to rank by; relpref rank {quote(folder)} ranks its entities, and relpref "
            "conditional fit makes runs of relations"
        )
    return cast(RelationPosterior, found)


def labels(known: Sequence[Any], texts: Sequence[str]) -> list[Any]:
    """The labels meant by texts: labels that are no text themselves are found by how they are printed."""
    printed: dict[str, Any] = {}
    for entity in known:
        printed.setdefault(str(entity), entity)
    return [text if text in known else printed.get(text, text) for text in texts]


_TOP = 20  # of more entities than a matrix has room for, those that are shown where nobody says how many


def run(chosen: argparse.Namespace) -> None:
    _, posterior = opened(chosen.run)
    total, top = posterior.data.num_entities, chosen.top
    large = posterior.large
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


def prefer_run(chosen: argparse.Namespace) -> None:
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


def report_run(chosen: argparse.Namespace) -> None:
    found = load_run(chosen.run)
    posterior = found.posterior
    if posterior.kind == "utilities":
        posterior = brought_up_to_date(found, chosen.run)
    path = Path(chosen.out) if chosen.out else found.folder / REPORT
    write(posterior, path, title=chosen.title, relations_evidence=True if chosen.evidence else None)
    if chosen.json:
        document({"command": "report", "run": str(chosen.run), "report": str(path)})
    else:
        say(f"The report is in {path}")
