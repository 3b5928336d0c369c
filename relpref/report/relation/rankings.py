"""The chapter with rankings for some nodes, and the chapter on objects that are on top for many."""

import numpy as np
import pandas as pd

from relpref.report.arviz_pictures import Line, forest
from relpref.report.blocks import Block, Cell, Chapter, Picture, Text
from relpref.report.grid import grid
from relpref.report.plots import NARROW, WIDE
from relpref.report.relation.subject import INTERVAL, MOST_RANKED, Subject
from relpref.report.text import counted, decimals_for, fixed, percent, significant

_NODES = 4
_ROWS = 10
_DRAWN = 20


def rankings(subject: Subject) -> Chapter:
    """The chapter."""
    posterior = subject.posterior
    m = len(posterior.objects.labels)
    text = "For each of some nodes, the objects with the highest scores."
    if posterior.loss == "ranking":
        text += " Only differences of scores for one node have a meaning, so each is shown less the average of those ranked."
    if subject.uncertain:
        text += f" There are no intervals here: {subject.uncertain}."
    else:
        text += (
            f" The {INTERVAL:.0%} interval holds the true score with that probability, if the model is right."
        )
    blocks: list[Block] = [Text(text)]
    if m > MOST_RANKED:
        size = (
            f"Of {counted(m, 'object')}, the {MOST_RANKED} with the highest scores are ranked for each node."
        )
        blocks.append(Text(size, small=True))
    for number, (node, why) in enumerate(chosen(subject).items()):
        table = subject.ranking(node)
        if not len(table):
            continue
        if number == 0 and "lower" in table:
            blocks.append(_picture(subject, node, table))
        blocks.append(_table(subject, node, why, table))
    return Chapter("Rankings", blocks)


def chosen(subject: Subject) -> dict[int, str]:
    """Nodes to show, and why: the best known, the least known, and the first ones."""
    counts = subject.posterior.problem.values.row_counts[subject.looked_at]
    found: dict[int, str] = {}
    if counts.max() > counts.min():
        found[int(subject.looked_at[np.argmax(counts)])] = "the most labels"
        found[int(subject.looked_at[np.argmin(counts)])] = "the fewest labels"
    for node in subject.looked_at:
        if len(found) >= _NODES:
            break
        found.setdefault(int(node), "")
    return found


def _picture(subject: Subject, node: int, table: pd.DataFrame) -> Block:
    name = subject.nodes.short[node]
    lines = [
        Line(subject.objects.full[int(row["position"])], place, row["mean"], row["lower"], row["upper"])
        for place, row in enumerate(table.head(_DRAWN).to_dict("records"), start=1)
    ]
    description = f"One row for each of {len(lines)} objects, best first for {name}: a dot for the score and a line for its interval."
    # Without the ranking loss a score is in the unit of the labels, and has a level.
    measured = " less the average of those ranked" if subject.posterior.loss == "ranking" else ""
    wide, narrow = (
        forest(
            lines,
            f"scores{shape.width:.0f}",
            description,
            INTERVAL,
            shape,
            quantity="score",
            measured=measured,
        )
        for shape in (WIDE, NARROW)
    )
    return Picture(
        wide,
        f"Scores for {subject.nodes.inline(node)}; the number beside each name is its place.",
        narrow=narrow,
    )


def _table(subject: Subject, node: int, why: str, table: pd.DataFrame) -> Block:
    labels = subject.known(node)
    sure = "lower" in table
    decimals = decimals_for(table[["lower", "upper"] if sure else ["mean"]].to_numpy().ravel())
    rows: list[list[Cell | str]] = []
    for place, row in enumerate(table.head(_ROWS).to_dict("records"), start=1):
        position = int(row["position"])
        short, full = subject.objects.short[position], subject.objects.full[position]
        label = labels.get(position)
        line: list[Cell | str] = [
            str(place),
            Cell(short, full if short != full else None),
            fixed(row["mean"], decimals),
        ]
        if sure:
            line += [
                f"{fixed(row['lower'], decimals)} to {fixed(row['upper'], decimals)}",
                f"{row['rank_lower']:.0f}–{row['rank_upper']:.0f}",
                percent(row["p_best"]),
            ]
        rows.append([*line, "–" if label is None else significant(label)])
    share = f"{INTERVAL:.0%}"
    more = (f"{share} interval", f"{share} places", "Best") if sure else ()
    columns = ("Place", "Object", "Score", *more, "Known label")
    caption = f"For {subject.nodes.inline(node)}: {counted(len(labels), 'label')} known"
    caption += f" ({why})" if why else ""
    return grid(caption, columns, rows, numeric=(0, *range(2, len(columns))), heading=1)


def on_top(subject: Subject) -> Chapter | None:
    """The chapter on objects that are on top for many nodes."""
    scores = subject.scores
    k, m = scores.shape
    if k < 2 or m < 3:
        return None
    filled = np.where(np.isfinite(scores), scores, -np.inf)
    first = np.bincount(filled.argmax(axis=1), minlength=m)
    places = np.argsort(np.argsort(-filled, axis=1, kind="stable"), axis=1) + 1.0
    places[~np.isfinite(scores)] = np.nan  # a node is not ranked for itself
    typical = np.nanmedian(places, axis=0)
    order = np.lexsort((typical, -first))[:_ROWS]
    rows: list[list[Cell | str]] = [
        [
            Cell(
                subject.objects.short[row],
                subject.objects.full[row]
                if subject.objects.short[row] != subject.objects.full[row]
                else None,
            ),
            percent(first[row] / k) if first[row] else "never",
            fixed(float(typical[row]), 1).removesuffix(".0"),
        ]
        for row in order
    ]
    whom = (
        "all nodes" if k == len(subject.posterior.nodes.labels) else f"{k} nodes, evenly spread over the data"
    )
    different = int(np.sum(first > 0))
    text = (
        f"Over {whom}, {counted(different, 'object')} of {counted(m, 'object')} "
        f"{'comes' if different == 1 else 'come'} first for somebody. "
        + (
            "The order hardly depends on the node."
            if different == 1
            else "The larger this number, the more the order depends on the node."
        )
    )
    return Chapter(
        "Objects on top",
        [
            Text(text),
            grid(
                "Objects that come first most often", ("Object", "Comes first", "Typical place"), rows, (1, 2)
            ),
        ],
    )
