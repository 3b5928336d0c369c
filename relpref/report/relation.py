"""The page of a relation: facts for the chapters on objects ranked for conditioning nodes, whose sentences are in ``relation.html``."""

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics import leave_one_out
from relpref.errors import RelprefError
from relpref.infer import RelationPosterior
from relpref.posterior.gaussian import Floats
from relpref.report import plots
from relpref.report.blocks import (
    Cell,
    Chapter,
    Contents,
    Grid,
    Names,
    cell,
    clean,
    counted,
    counted_share,
    decimals_for,
    fixed,
    grid,
    listed,
    percent,
    significant,
    whole,
)
from relpref.report.model import hyperparameters, methods

INTERVAL = 0.9
MOST_EDGES = 4000  # without a closed form uncertainty needs a factor of the edges' kernel, O(edges³)
MOST_RANKED = 300  # objects of one ranking: their joint covariance and 4000 draws of it
_MOST_NODES = 200  # of whom all scores are looked at
_MOST_NUMBERS = 10_000_000  # in their table of scores


class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : RelationPosterior
    """

    def __init__(self, posterior: RelationPosterior) -> None:
        self.posterior, self.problem = posterior, posterior.problem
        self.one_kind = posterior.nodes is posterior.objects  # nodes are ranked for one another
        self.nodes = Names(posterior.nodes.labels)
        self.objects = self.nodes if self.one_kind else Names(posterior.objects.labels)

    @property
    def uncertain(self) -> str:
        """Why there is no uncertainty of scores; empty where there is."""
        if self.problem.closed:
            return ""
        if getattr(self.posterior.solution, "stopped", False):
            return "the iterations ended before the solution, so there are scores without intervals"
        edges = len(self.problem.values.values)
        if edges > MOST_EDGES:
            return f"intervals for a relation with {edges} labels and no closed form take long, so they are left out"
        return ""

    @cached_property
    def looked_at(self) -> NDArray[np.intp]:
        """Positions of the nodes of whom all scores are looked at: all of them, or some evenly spread over the data."""
        p, m = self.problem.values.shape
        number = max(1, min(p, _MOST_NODES, _MOST_NUMBERS // max(m, 1)))
        return np.unique(np.linspace(0, p - 1, number).round().astype(np.intp))

    @cached_property
    def scores(self) -> Floats:
        """Mean scores of all objects for those nodes, shape (k, m); NaN for a node itself."""
        posterior = self.posterior
        left = posterior.nodes.ask([posterior.nodes.labels[row] for row in self.looked_at])
        right = posterior.objects.ask(None)
        scores = posterior.shift + np.asarray(posterior.solution.mean(left, right))
        if self.one_kind:
            scores[np.arange(len(scores)), self.looked_at] = np.nan
        return scores

    def ranking(self, node: int) -> pd.DataFrame:
        """The objects for one of the nodes looked at, best first, by position; without intervals where they take too long."""
        posterior = self.posterior
        scores = self.scores[int(np.flatnonzero(self.looked_at == node)[0])]
        order = np.argsort(-scores, kind="stable")  # NaN last
        order = order[np.isfinite(scores[order])][:MOST_RANKED]
        if not self.uncertain and len(order):
            # By position: a label may be equal to another's text.
            labels = [posterior.objects.labels[position] for position in order]
            table = posterior.ranking(posterior.nodes.labels[node], labels, interval=INTERVAL)
            position = dict(zip(labels, order, strict=True))
            return table.assign(position=[position[label] for label in table.index]).reset_index(drop=True)
        shown = scores[order]
        if posterior.loss == "ranking" and len(shown):
            shown = shown - shown.mean()
        return pd.DataFrame({"mean": shown, "position": order})

    def known(self, node: int) -> dict[int, float]:
        """Average label of every object that is known for a node, by its position."""
        values = self.problem.values
        mine = np.flatnonzero(values.rows == node)
        labels = pd.Series(values.values[mine] + self.posterior.shift).groupby(values.columns[mine]).mean()
        return {int(column): float(label) for column, label in labels.items()}

    def object_cell(self, position: int) -> Cell:
        short, full = self.objects.short[position], self.objects.full[position]
        return Cell(short, full if short != full else None)

    @cached_property
    def labels(self) -> tuple[int, int]:
        """How many labels were given, and how many pairs could have one: under a constraint both directions are one pair."""
        p, m = self.problem.values.shape
        pairs = {"none": p * m, "symmetric": p * (p + 1) // 2, "reciprocal": p * (p - 1) // 2}
        return len(self.problem.values.distinct(self.problem.symmetry)), pairs[self.problem.symmetry]


def contents(posterior: RelationPosterior, wanted: object = None) -> Contents:
    """The page of a relation."""
    subject = Subject(posterior)
    (p, m), (labels, pairs) = subject.problem.values.shape, subject.labels
    facts = {
        "one_kind": subject.one_kind,
        "nodes": p,
        "objects": m,
        "labels": labels,
        "pairs": pairs,
        "complete": subject.problem.values.complete,
        "features": len(posterior.nodes.feature_names or ()),
    }
    chapters = [_known(subject), _rankings(subject), _on_top(subject), _quality(subject)]
    return Contents(
        "Conditional ranking report",
        Chapter("", "relation.html:summary", facts),
        [*chapters, hyperparameters(posterior)],
        methods(posterior, "relation.html:methods", problem=posterior.problem),
    )


_SYMMETRIES = {
    "none": "none: what v says of w tells nothing of what w says of v",
    "symmetric": "symmetric: (v, w) and (w, v) have the same label",
    "reciprocal": "reciprocal: what v gains over w, w loses",
}
_LOSSES = {
    "ranking": "ranking: only the order of the objects for one node counts",
    "regression": "regression: the labels themselves are to be met",
}


def _known(subject: Subject) -> Chapter:
    """What was known of the relation, and what the model is told."""
    posterior, problem, values = subject.posterior, subject.problem, subject.problem.values
    p, m = values.shape
    counts, (given, pairs) = values.row_counts, subject.labels
    labels = values.values + posterior.shift
    share = "of every pair" if values.complete else f"{percent(given / max(pairs, 1))} of all pairs"
    rows = [
        ["Conditioning nodes", whole(p), _names(subject.nodes.short)],
        ["Objects", whole(m), "the same" if subject.one_kind else _names(subject.objects.short)],
        ["Labels", whole(given), share],
        ["Labels of one node", f"{whole(counts.min())} to {whole(counts.max())}", ""],
        ["Nodes without any", whole(int(np.sum(counts == 0))), ""],
        [
            "Values",
            f"{significant(labels.min())} to {significant(labels.max())}",
            f"{whole(len(np.unique(labels)))} different" if len(labels) else "",
        ],
    ]
    if problem.empty_nodes and problem.loss == "ranking":
        note = "they have no order to learn from"
        rows.append(["Nodes with fewer than two", whole(problem.empty_nodes), note])
    kernels = [_kernel_name(domain.kernel) for domain in (posterior.nodes, posterior.objects)]
    told: list[list[str | Cell]] = [
        ["Loss", _LOSSES[problem.loss]],
        ["Symmetry", _SYMMETRIES[problem.symmetry]],
        ["Kernel of pairs", cell(problem.pair_kernel)],
        ["Kernel of nodes", cell(kernels[0])],
        ["Kernel of objects", "the same" if subject.one_kind else cell(kernels[1])],
    ]
    facts = {
        "known": grid("What is known of the relation", ("What", "Number", "Note"), rows, (1,)),
        "told": grid("What the model is told", ("What", "Choice"), told),
        "constrained": problem.symmetry != "none",
    }
    return Chapter("What was known", "relation.html:known", facts)


def _kernel_name(kernel: Any) -> str:
    """A node kernel in words, as far as it says what it is."""
    inner = getattr(kernel, "kernel", None)
    if isinstance(inner, str):
        gamma = getattr(kernel, "gamma", None)
        return f"{inner}, γ = {significant(gamma)}" if inner == "gaussian" and gamma is not None else inner
    if inner is not None:
        return type(inner).__name__
    return "of the program" if hasattr(kernel, "program") else "a function"


def _names(names: list[str]) -> str:
    return listed(names[:4] + [""] * (len(names) - 4), 4) if len(names) > 4 else listed(names)


_NODES, _ROWS, _DRAWN = 4, 10, 20


def _rankings(subject: Subject) -> Chapter:
    shown: list[Grid] = []
    picture = None
    for node, why in _chosen(subject).items():
        table = subject.ranking(node)
        if len(table):
            if not shown and "lower" in table:
                picture = _picture(subject, node, table)
            shown.append(_table(subject, node, why, table))
    facts = {
        "ranking_loss": subject.posterior.loss == "ranking",
        "uncertain": subject.uncertain,
        "objects": len(subject.posterior.objects.labels),
        "most": MOST_RANKED,
        "picture": picture,
        "first": subject.nodes.inline(next(iter(_chosen(subject)))),
        "tables": shown,
    }
    return Chapter("Rankings", "relation.html:rankings", facts)


def _chosen(subject: Subject) -> dict[int, str]:
    """Nodes to show, and why: the best known, the least known, and the first ones."""
    counts = subject.problem.values.row_counts[subject.looked_at]
    found: dict[int, str] = {}
    if counts.max() > counts.min():
        found[int(subject.looked_at[np.argmax(counts)])] = "the most labels"
        found[int(subject.looked_at[np.argmin(counts)])] = "the fewest labels"
    for node in subject.looked_at[:_NODES]:
        if len(found) < _NODES:
            found.setdefault(int(node), "")
    return found


def _picture(subject: Subject, node: int, table: pd.DataFrame) -> Any:
    lines = [
        plots.Line(subject.objects.full[int(row["position"])], place, row["mean"], row["lower"], row["upper"])
        for place, row in enumerate(table.head(_DRAWN).to_dict("records"), start=1)
    ]
    description = (
        f"One row for each of {len(lines)} objects, best first for {subject.nodes.short[node]}: a dot for the score and a line for "
        "its interval."
    )
    # Without the ranking loss a score is in the unit of the labels, and has a level.
    measured = " less the average of those ranked" if subject.posterior.loss == "ranking" else ""
    return plots.both(
        plots.forest, "scores", lines, description=description, quantity="score", measured=measured
    )


def _table(subject: Subject, node: int, why: str, table: pd.DataFrame) -> Grid:
    labels, sure = subject.known(node), "lower" in table
    decimals = decimals_for(table[["lower", "upper"] if sure else ["mean"]].to_numpy().ravel())
    rows = []
    for place, row in enumerate(table.head(_ROWS).to_dict("records"), start=1):
        position = int(row["position"])
        line = [str(place), subject.object_cell(position), fixed(row["mean"], decimals)]
        if sure:
            line += [
                f"{fixed(row['lower'], decimals)} to {fixed(row['upper'], decimals)}",
                f"{row['rank_lower']:.0f}–{row['rank_upper']:.0f}",
                percent(row["p_best"]),
            ]
        rows.append([*line, significant(labels[position]) if position in labels else "–"])
    columns = [
        "Place",
        "Object",
        "Score",
        *(("90% interval", "90% places", "Best") if sure else ()),
        "Known label",
    ]
    caption = f"For {subject.nodes.inline(node)}: {counted(len(labels), 'label')} known"
    caption += f" ({why})" if why else ""
    return grid(caption, columns, rows, numeric=(0, *range(2, len(columns))), heading=1)


def _on_top(subject: Subject) -> Chapter | None:
    """Objects that are on top for many nodes."""
    scores = subject.scores
    k, m = scores.shape
    if k < 2 or m < 3:
        return None
    filled = np.where(np.isfinite(scores), scores, -np.inf)
    first = np.bincount(filled.argmax(axis=1), minlength=m)
    places = np.argsort(np.argsort(-filled, axis=1, kind="stable"), axis=1) + 1.0
    places[~np.isfinite(scores)] = np.nan  # a node is not ranked for itself
    typical = np.nanmedian(places, axis=0)
    rows = [
        [
            subject.object_cell(row),
            percent(first[row] / k) if first[row] else "never",
            fixed(float(typical[row]), 1).removesuffix(".0"),
        ]
        for row in np.lexsort((typical, -first))[:_ROWS]
    ]
    facts = {
        "looked_at": k,
        "nodes": len(subject.posterior.nodes.labels),
        "objects": m,
        "different": int(np.sum(first > 0)),
        "table": grid(
            "Objects that come first most often", ("Object", "Comes first", "Typical place"), rows, (1, 2)
        ),
    }
    return Chapter("Objects on top", "relation.html:on_top", facts)


_FOLDS = 5
_MOST_PAIRS = 1_000_000  # of nodes and objects, whose hold-outs in closed form take seconds
_MOST_LABELS = 2000  # without a closed form: folds are solved for by conjugate gradients
_MOST_SINGLE = 40_000  # pairs of a constrained relation, where leaving one out costs O(nodes²)
_REACH = 1.6449  # of a 90% interval, in standard deviations
_WORST = 5


def _quality(subject: Subject) -> Chapter:
    """How far to trust it: whole nodes, and single labels, left out."""
    problem = subject.problem
    few = (
        np.prod(problem.values.shape) <= _MOST_PAIRS
        if problem.closed
        else len(problem.values.values) <= _MOST_LABELS
    )
    facts: dict[str, Any] = {"few": bool(few), "symmetry": problem.symmetry, "nodes": None, "labels": None}
    for name, compute in (("nodes", _nodes_out), ("labels", _labels_out)) if few else ():
        try:
            facts[name] = compute(subject)
        except RelprefError as error:
            facts[name] = {"why": clean(error)}
    return Chapter("How far to trust it", "relation.html:quality", facts)


def _nodes_out(subject: Subject) -> dict[str, Any]:
    """Setting 2: the concordance of nodes whose labels were all left out."""
    from relpref.rls.hold_out import leave_nodes_out, leave_row_out
    from relpref.rls.splits import concordance, per_node

    problem = subject.problem
    penalty, p = [subject.posterior.solution.regularization], problem.values.shape[0]
    if p < 2:
        return {"single": True, "why": ""}
    folds = 0
    if problem.closed and not subject.one_kind:
        predicted = leave_row_out(problem, penalty)[0]
    else:
        folds = min(_FOLDS, p)
        predicted = leave_nodes_out(problem, penalty, rows=np.arange(p) % folds)[0]
    found = per_node(concordance, problem.values.mean_matrix, np.where(np.isnan(predicted), 0.0, predicted))
    values = found.values
    order = np.argsort(np.where(np.isfinite(values), values, np.inf), kind="stable")[:_WORST]
    rows = [
        [subject.nodes.short[node], counted_share(values[node], 1), str(problem.values.row_counts[node])]
        for node in order
        if np.isfinite(values[node])
    ]
    return {
        "why": "",
        "single": False,
        "folds": folds,
        "one_kind": subject.one_kind,
        "mean": float(found.mean),
        "table": grid(
            "Nodes that were ranked worst when left out",
            ("Node", "Pairs in the right order", "Labels"),
            rows,
            (1, 2),
        ),
    } | average(values[np.isfinite(values)])


def average(values: Floats) -> dict[str, Any]:
    """What the concordances of nodes say: no more than their average is known."""
    number = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(number)) if number > 1 else np.nan
    return {
        "number": number,
        "error": error,
        "guessing": number > 1 and float(np.mean(values)) - 2 * error <= 0.5,
    }


def _labels_out(subject: Subject) -> dict[str, Any]:
    """Setting 1: the errors of labels that were left out one at a time, and whether their intervals were wide enough."""
    problem = subject.problem
    if problem.symmetry != "none" and problem.loss == "ranking":
        return {"why": "", "refused": "loss"}
    if problem.symmetry != "none" and np.prod(problem.values.shape) > _MOST_SINGLE:
        return {"why": "", "refused": "size"}
    table = leave_one_out(subject.posterior).table
    label, mean, sd = (table[name].to_numpy() for name in ("label", "mean", "sd"))
    inside = float(np.mean(np.abs(label - mean) <= _REACH * sd))
    rows = [
        [
            cell(row["node"]),
            cell(row["object"]),
            significant(row["label"]),
            f"{significant(row['mean'])} ± {significant(row['sd'])}",
        ]
        for row in table.sort_values("log_score", kind="stable").head(_WORST).to_dict("records")
    ]
    return {
        "why": "",
        "refused": "",
        "number": len(label),
        "error": float(np.sqrt(np.mean(np.square(label - mean)))),
        "spread": float(np.std(label)),
        "inside": inside,
        "chances_off": (inside - 0.9) / float(np.sqrt(0.9 * 0.1 / len(label))),
        "table": grid(
            "Labels that contradict the rest, most surprising first",
            ("Node", "Object", "Label", "Predicted"),
            rows,
            (2, 3),
        ),
    }
