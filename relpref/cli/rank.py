"""Commands that read a run: rank, tiers, prefer, plot and report."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from relpref.ask.learning import up_to_date
from relpref.cli.fit import assigned
from relpref.cli.output import document, say, show_table, tell
from relpref.data.arrays import counted
from relpref.errors import DataError
from relpref.files import replaced
from relpref.posterior.export import ranking_document
from relpref.runs import REPORT, load_run, read_record


def opened(folder: str, *kinds: str) -> Any:
    """Read the posterior of a run, and update it with answers that were stored after the fit.

    A line on stderr says how many these are. Raises DataError if the posterior's kind is not among
    ``kinds``; by default all are accepted.
    """
    run = load_run(folder)
    kind = run.posterior.kind
    if kinds and kind not in kinds:
        reason = "this run has no utilities of items, so there is nothing to rank"
        if kind == "relation":
            reason = (
                "this run ranks objects for a given node; use relpref conditional rank "
                f"{quote(folder)} NODE"
            )
        elif "utilities" not in kinds:
            reason = (
                f"this run has no relation to rank by; relpref rank {quote(folder)} ranks its "
                "items, and relpref conditional fit makes runs of relations"
            )
        raise DataError(f"{folder}: {reason}")
    if kind != "utilities":
        return run.posterior
    posterior, later = up_to_date(run)
    if later:
        print(
            f"relpref: {later} answer{' is' if later == 1 else 's are'} newer than the posterior "
            f"in {folder}; it was brought up to date for this command",
            file=sys.stderr,
        )
    return posterior


def labels(items: Sequence[Any], texts: Sequence[str]) -> list[Any]:
    """Labels of the items that the texts of a command line name; unknown texts stay as they are.

    A label that is no text, such as 3, is named by its printed form.
    """
    printed: dict[str, Any] = {}
    for item in items:
        printed.setdefault(str(item), item)
    return [text if text in items else printed.get(text, text) for text in texts]


_PAIRED = 50  # items whose pairs are in the JSON document
_TOP = 20  # rows shown by default of a run with more items than fit in a matrix


def run(chosen: Namespace) -> None:
    """Rank the items of a run."""
    posterior = opened(chosen.run, "utilities")
    total, top = posterior.data.num_items, chosen.top
    large = posterior.large
    if chosen.json and not large:
        document(chosen, **ranking_document(posterior, chosen.interval, top, _PAIRED))
        return
    if large and top is None and chosen.speaks:
        top = _TOP
    # With very many items, each interval takes the solution of a linear system: compute only those
    # that are shown.
    options = {"top": top} if large and top else {}
    ranking = posterior.ranking(chosen.interval, **options).head(top)
    show(chosen, ranking, "utility", interval=chosen.interval, items=total)
    if large and chosen.top is None and total > _TOP and chosen.speaks:
        say(f"... and {total - _TOP} more: --top K shows more of them, -o csv all")


def show(chosen: Namespace, ranking: Any, value: str, **content: Any) -> None:
    """Print a ranking as the options in ``chosen`` say; ``value`` is the heading of its means.

    ``content`` is added to a JSON document.
    """
    item, table = str(ranking.index.name), ranking.reset_index()
    share = f"{100 * chosen.interval:g}% interval"
    columns = [("", "{place}"), (item, f"{{{item}}}"), (value, "{mean:.2f}")]
    columns.append((share, "{lower:.2f} to {upper:.2f}"))
    if "expected_rank" in ranking:
        columns += [
            ("rank", "{expected_rank:.1f}"),
            (share, "{rank_lower:.0f} to {rank_upper:.0f}"),
            ("p best", "{p_best:.2f}"),
            ("tier", "{tier:.0f}"),
        ]
    if chosen.speaks:
        table.insert(0, "place", range(1, len(table) + 1))
    show_table(chosen, "ranking", table, columns, left=(1,), **content)


def tiers_run(chosen: Namespace) -> None:
    """Print the tiers of a run's items, and what they mean."""
    tiers = opened(chosen.run, "utilities").tiers(chosen.probability)
    columns = [
        ("tier", "{tier}"),
        ("item", "{item}"),
        ("ranks", "{rank_lower_all} to {rank_upper_all}"),
    ]
    table = tiers.head(chosen.top).reset_index()
    show_table(chosen, "tiers", table, columns, left=(1,), probability=chosen.probability)
    if chosen.speaks:
        number = tiers["tier"].max()
        say(
            f"\n{counted(number, 'tier')}: a tier is its best item and all that cannot be told "
            f"apart from it; ranks hold for all items at once, with {100 * chosen.probability:g}% "
            "probability"
        )


def plot_run(chosen: Namespace) -> None:
    """Draw the ranking of a run, and save the picture."""
    posterior, path = opened(chosen.run), Path(chosen.out)
    import matplotlib

    matplotlib.use("agg")
    figure = posterior.plot(chosen.top, interval=chosen.interval).figure
    kinds = figure.canvas.get_supported_filetypes()
    kind = path.suffix.lower().removeprefix(".")
    if kind not in kinds:
        raise DataError(f"--out {path}: a picture ends in .{', .'.join(sorted(kinds))}; rename it")
    with replaced(path) as part:
        figure.savefig(part, format=kind, bbox_inches="tight", dpi=150)
    tell(chosen, f"The picture is in {path}", picture=path)


def prefer_run(chosen: Namespace) -> None:
    """Print preference probabilities of the pairs of labels in ``chosen.labels``."""
    if len(chosen.labels) % 2:
        raise DataError(
            f"the label {chosen.labels[-1]!r} has no other to be compared with; "
            "give two for each question, such as relpref prefer run/ a b c d"
        )
    posterior = opened(chosen.run, "utilities")
    items = labels(posterior.data.labels, chosen.labels)
    sides = {"first": items[::2], "second": items[1::2]}
    question: dict[str, Any] = {}
    if chosen.rater:
        raters = labels(posterior.data.comparisons.raters, chosen.rater)
        question["rater"] = raters[0] if len(raters) == 1 else raters
    for option in ("shown_first", "home"):
        side = getattr(chosen, option)
        if side is None:
            continue
        word = "" if side in posterior.data.labels else side.lower()
        question[option] = sides.get(word) or labels(posterior.data.labels, [side])[0]
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
        question["covariates"] = {
            name: _number(name, text) if name in numbers else text for name, text in given.items()
        }
    table = posterior.prefer(zip(*sides.values(), strict=True), **question)
    columns = [("first", "{first}"), ("second", "{second}"), ("p preferred", "{probability:.3f}")]
    if "tie" in table:
        columns.append(("p tie", "{tie:.3f}"))
    columns += [
        ("p better", "{p_better:.3f}"),
        ("gap of utilities", "{gap_mean:.2f} ± {gap_sd:.2f}"),
    ]
    show_table(chosen, "pairs", table, columns, left=(0, 1))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(
            f"--covariate {name}={text}: the value is not a number; write one"
        ) from None


def report_run(chosen: Namespace) -> None:
    """Write the report of a run as a page, by default into the run's folder."""
    from relpref.report.words import named_words

    posterior = opened(chosen.run)
    path = Path(chosen.out) if chosen.out else Path(chosen.run) / REPORT
    words = named_words(read_record(Path(chosen.run)).get("options", {}), vars(chosen))
    posterior.report(path, title=chosen.title, relations_evidence=chosen.evidence, words=words)
    tell(chosen, f"The report is in {path}", report=path)
