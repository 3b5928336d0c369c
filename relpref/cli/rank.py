"""``relpref rank``: the items of a run, best first."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from relpref.ask.learning import up_to_date
from relpref.cli.fit import assigned
from relpref.cli.output import document, document_of_rows, formatted, records, say
from relpref.data.arrays import counted
from relpref.errors import DataError
from relpref.files import replaced
from relpref.runs import REPORT, load_run


def opened(folder: str, *kinds: str) -> Any:
    """The posterior of a run of one of these kinds, by default any, with the answers that people gave since it was saved."""
    run = load_run(folder)
    kind = run.posterior.kind
    if kinds and kind not in kinds:
        words = "this run has no utilities of items, so there is nothing to rank"
        if kind == "relation":
            words = (
                "this run ranks objects for a given node; use relpref conditional rank "
                f"{quote(folder)} NODE"
            )
        elif "utilities" not in kinds:
            words = (
                f"this run has no relation to rank by; relpref rank {quote(folder)} ranks its "
                "items, and relpref conditional fit makes "
                "runs of relations"
            )
        raise DataError(f"{folder}: {words}")
    if kind != "utilities":
        return run.posterior
    posterior, later = up_to_date(run)
    if later:
        print(
            f"relpref: {later} answer{' is' if later == 1 else 's are'} newer than the posterior "
            f"in {folder}; it was brought up to date for "
            "this command",
            file=sys.stderr,
        )
    return posterior


def labels(known: Sequence[Any], texts: Sequence[str]) -> list[Any]:
    """The labels meant by texts: labels that are no text themselves are found by how they are printed."""
    printed: dict[str, Any] = {}
    for item in known:
        printed.setdefault(str(item), item)
    return [text if text in known else printed.get(text, text) for text in texts]


_TOP = (
    20  # of more items than a matrix has room for, those that are shown where nobody says how many
)


def run(chosen: argparse.Namespace) -> None:
    posterior = opened(chosen.run, "utilities")
    total, top = posterior.data.num_items, chosen.top
    large = posterior.large
    if large and top is None and not (chosen.csv or chosen.json):
        top = _TOP
    # Of many items an interval costs a solution with their graph: none more than are shown.
    ranking = posterior.ranking(chosen.interval, **({"top": top} if large and top else {})).head(
        top
    )
    show(chosen, ranking, ("item", "utility"), interval=chosen.interval, items=total)
    if large and chosen.top is None and total > _TOP and not (chosen.csv or chosen.json):
        say(f"... and {total - _TOP} more: --top K shows more of them, -o csv all")


def show(chosen: argparse.Namespace, ranking: Any, names: tuple[str, str], **content: Any) -> None:
    """A ranking in the form that was chosen; ``names`` are those of what is ranked and of its value."""
    rows = (
        {names[0]: one, **row} for one, row in zip(ranking.index, records(ranking), strict=True)
    )
    if chosen.csv:
        ranking.to_csv(sys.stdout, lineterminator="\n")
    elif chosen.json:
        document_of_rows(chosen, "ranking", rows, **content)
    else:
        share = f"{100 * chosen.interval:g}% interval"
        columns = [("", "{place}"), (names[0], f"{{{names[0]}}}"), (names[1], "{mean:.2f}")]
        columns.append((share, "{lower:.2f} to {upper:.2f}"))
        if "expected_rank" in ranking:
            columns += [
                ("rank", "{expected_rank:.1f}"),
                (share, "{rank_lower:.0f} to {rank_upper:.0f}"),
            ]
            columns += [("p best", "{p_best:.2f}"), ("tier", "{tier:.0f}")]
        placed = ({"place": place, **row} for place, row in enumerate(rows, start=1))
        say(formatted(columns, placed, left=(1,)))


def tiers_run(chosen: argparse.Namespace) -> None:
    """Which items are settled above which."""
    table = opened(chosen.run, "utilities").tiers(chosen.probability)
    number = int(table["tier"].max())
    table = table.head(chosen.top)
    rows = [
        {"item": item, **row}
        for item, row in zip(table.index, table.to_dict("records"), strict=True)
    ]
    if chosen.csv:
        table.to_csv(sys.stdout, lineterminator="\n")
    elif chosen.json:
        document_of_rows(chosen, "tiers", rows, probability=chosen.probability)
    else:
        columns = [
            ("tier", "{tier}"),
            ("item", "{item}"),
            ("ranks", "{rank_lower} to {rank_upper}"),
        ]
        say(formatted(columns, rows, left=(1,)))
        settled = "every item of a tier is settled above all below it, and the ranks hold"
        settled = (
            settled
            if number > 1
            else "there is no place where every item above is settled above every item below. The "
            "ranks hold"
        )
        say(
            f"\n{counted(number, 'tier')}: {settled} for all items at once, with "
            f"{100 * chosen.probability:g}% probability"
        )


def plot_run(chosen: argparse.Namespace) -> None:
    """Draw the ranking."""
    posterior, path = opened(chosen.run), Path(chosen.out)
    import matplotlib

    matplotlib.use("agg")
    figure = posterior.plot(chosen.top, interval=chosen.interval).figure
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in kinds:
        raise DataError(f"--out {path}: a picture ends in .{', .'.join(sorted(kinds))}; rename it")
    with replaced(path) as part:
        figure.savefig(
            part, format=path.suffix.lower().removeprefix("."), bbox_inches="tight", dpi=150
        )
    if chosen.json:
        document(chosen, picture=str(path))
    else:
        say(f"The picture is in {path}")


def prefer_run(chosen: argparse.Namespace) -> None:
    if len(chosen.labels) % 2:
        raise DataError(
            f"the label {chosen.labels[-1]!r} has no other to be compared with; "
            "give two for each question, such as relpref prefer run/ a b c d"
        )
    posterior = opened(chosen.run, "utilities")
    found = labels(posterior.data.labels, chosen.labels)
    asked: dict[str, Any] = {}
    if chosen.rater:
        raters = labels(posterior.data.comparisons.raters, chosen.rater)
        asked["rater"] = raters[0] if len(raters) == 1 else raters
    if chosen.shown_first is not None:
        asked["shown_first"] = found[0 if chosen.shown_first == "first" else 1 :: 2]
    if chosen.home is not None:
        asked["home"] = found[0 if chosen.home == "first" else 1 :: 2]
    if chosen.covariate:
        given = assigned(
            "--covariate",
            chosen.covariate,
            "a column and its value, such as --covariate length_first=120",
        )
        numbers = {
            column
            for covariate in posterior.data.comparisons.covariates_are
            if covariate.kind == "number"
            for column in covariate.columns(("first", "second"))
        }
        asked["covariates"] = {
            name: _number(name, text) if name in numbers else text for name, text in given.items()
        }
    answers = posterior.prefer(zip(found[::2], found[1::2], strict=True), **asked).to_dict(
        "records"
    )
    if chosen.json:
        document(chosen, pairs=answers)
        return
    if chosen.csv:
        pd.DataFrame(answers).to_csv(sys.stdout, index=False, lineterminator="\n")
        return
    columns = [
        *(("first", "{first}"), ("second", "{second}"), ("p preferred", "{probability:.3f}")),
        *([("p tie", "{tie:.3f}")] if "tie" in answers[0] else []),
        *(("p better", "{p_better:.3f}"), ("gap of utilities", "{gap_mean:.2f} ± {gap_sd:.2f}")),
    ]
    say(formatted(columns, answers, left=(0, 1)))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(
            f"--covariate {name}={text}: the value is not a number; write one"
        ) from None


def report_run(chosen: argparse.Namespace) -> None:
    posterior = opened(chosen.run)
    path = Path(chosen.out) if chosen.out else Path(chosen.run) / REPORT
    evidence = True if chosen.evidence else None
    posterior.report(path, title=chosen.title, relations_evidence=evidence)
    if chosen.json:
        document(chosen, report=str(path))
    else:
        say(f"The report is in {path}")
