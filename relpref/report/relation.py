"""Page of conditional ranking: facts for the template ``relation.html``."""

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import Indices
from relpref.diagnostics import leave_one_out
from relpref.errors import RelprefError
from relpref.infer import RelationPosterior
from relpref.posterior.gaussian import Floats
from relpref.posterior.plots import tiers_of
from relpref.report import plots
from relpref.report.blocks import (
    Chapter,
    Contents,
    Facts,
    Names,
    clean,
    decimals_for,
    lead,
    significant,
)

INTERVAL = 0.9
# Without a closed form, uncertainty needs a factor of the edges' kernel, O(edges³).
MOST_EDGES = 4000
MOST_RANKED = 300  # objects of a ranking, with their joint covariance and 4000 draws of it
_MOST_NODES = 200  # nodes whose scores of all objects are computed
_MOST_NUMBERS = 10_000_000  # scores of these nodes


class Subject:
    """Posterior with values that several chapters need."""

    def __init__(self, posterior: RelationPosterior) -> None:
        self.posterior, self.problem = posterior, posterior.problem
        self.values = posterior.problem.values
        self.one_kind = posterior.nodes is posterior.objects  # nodes are ranked for one another
        self.nodes = Names(posterior.nodes.labels)
        self.objects = self.nodes if self.one_kind else Names(posterior.objects.labels)

    @property
    def uncertain(self) -> str:
        """Reason for scores without intervals; empty if there are intervals."""
        if self.problem.closed:
            return ""
        if getattr(self.posterior.solution, "stopped", False):
            return "the iterations ended before the solution, so there are scores without intervals"
        edges = len(self.values.values)
        if edges > MOST_EDGES:
            return (
                f"intervals for a relation with {edges} labels and no closed form take long, so "
                "they are left out"
            )
        return ""

    @cached_property
    def sampled(self) -> Indices:
        """Positions of all nodes, or of many nodes evenly spread over the data."""
        p, m = self.values.shape
        number = max(1, min(p, _MOST_NODES, _MOST_NUMBERS // max(m, 1)))
        return np.unique(np.linspace(0, p - 1, number).round().astype(np.intp))

    @cached_property
    def scores(self) -> Floats:
        """Mean scores of all objects for the sampled nodes, shape (k, m); NaN for a node itself."""
        posterior = self.posterior
        left = posterior.nodes.ask([posterior.nodes.labels[row] for row in self.sampled])
        right = posterior.objects.ask(None)
        scores = posterior.shift + np.asarray(posterior.solution.mean(left, right))
        if self.one_kind:
            scores[np.arange(len(scores)), self.sampled] = np.nan
        return scores

    def ranking(self, node: int) -> pd.DataFrame:
        """Objects for a sampled node, best first, with their positions.

        There are no intervals if they take too long.
        """
        posterior = self.posterior
        scores = self.scores[np.searchsorted(self.sampled, node)]
        order = np.argsort(-scores, kind="stable")  # NaN last
        order = order[np.isfinite(scores[order])][:MOST_RANKED]
        if not self.uncertain and len(order):
            labels = [posterior.objects.labels[position] for position in order]
            table = posterior.ranking(posterior.nodes.labels[node], labels, interval=INTERVAL)
            position = dict(zip(labels, order, strict=True))
            table["position"] = [position[label] for label in table.index]
            return table.reset_index(drop=True)
        mean = scores[order]
        if posterior.loss == "ranking" and len(mean):
            mean = mean - mean.mean()
        return pd.DataFrame({"mean": mean, "position": order})

    def known(self, node: int) -> pd.Series:
        """Average known label of each object for a node, by the position of the object."""
        edges = np.flatnonzero(self.values.rows == node)
        labels = pd.Series(self.values.values[edges] + self.posterior.shift)
        return labels.groupby(self.values.columns[edges]).mean()

    @cached_property
    def labels(self) -> tuple[int, int]:
        """Numbers of labels and of pairs; with a symmetry, both directions are the same pair."""
        p, m = self.values.shape
        pairs = {"none": p * m, "symmetric": p * (p + 1) // 2, "reciprocal": p * (p - 1) // 2}
        return len(self.values.distinct(self.problem.symmetry)), pairs[self.problem.symmetry]


def contents(posterior: RelationPosterior, *_: object) -> Contents:
    """Contents of the page of a relation."""
    subject = Subject(posterior)
    quality = _quality(subject)
    chapters = [
        *_rankings(subject),
        Chapter("Keep in mind", "relation.html:caveats", quality.facts, front=True),
        _on_top(subject),
        _known(subject),
        quality,
    ]
    summary = {"s": subject} | _leaders(subject)
    facts = {"problem": posterior.problem}
    return Contents("Conditional ranking report", summary, chapters, facts)


def _leaders(subject: Subject) -> Facts:
    """Facts about the best objects for the node that is shown first."""
    node = next(iter(_chosen(subject)))
    table = subject.ranking(node)
    if "p_best" not in table:
        return {"lead": ""}
    return {
        "node": subject.nodes.inline(node),
        "lead": lead(table, subject.objects.inline, "objects"),
    }


def _known(subject: Subject) -> Chapter:
    """Chapter on the data and the options of the model."""
    posterior = subject.posterior
    labels = subject.values.values + posterior.shift
    facts = {
        "s": subject,
        "counts": subject.values.row_counts,
        "seen": labels,
        "different": len(np.unique(labels)),
        "kernels": [_kernel_name(domain.kernel) for domain in (posterior.nodes, posterior.objects)],
    }
    return Chapter("The data and the model", "relation.html:known", facts)


def _kernel_name(kernel: Any) -> str:
    """Name of a kernel of nodes."""
    inner = getattr(kernel, "kernel", None)
    if isinstance(inner, str):
        gamma = getattr(kernel, "gamma", None) if inner == "gaussian" else None
        return inner if gamma is None else f"{inner}, γ = {significant(gamma)}"
    if inner is not None:
        return type(inner).__name__
    return "of the program" if hasattr(kernel, "origin") else "a function"


_NODES, _ROWS, _DRAWN = 4, 10, 20


def _rankings(subject: Subject) -> list[Chapter]:
    """Chapters with the picture of a node, and with tables of several nodes."""
    shown: list[tuple[Any, ...]] = []
    picture = None
    for node, why in _chosen(subject).items():
        table = subject.ranking(node)
        if len(table):
            intervals = "lower" in table
            if not shown and intervals:
                picture = _picture(subject, node, table.head(_DRAWN))
            numbers = table[["lower", "upper"] if intervals else ["mean"]]
            decimals = decimals_for(numbers.to_numpy().ravel())
            head, given = table.head(_ROWS), subject.known(node)
            labels = [
                significant(given[item]) if item in given else "–" for item in head["position"]
            ]
            shown.append((subject.nodes.inline(node), why, head, decimals, len(given), labels))
    first = subject.nodes.inline(next(iter(_chosen(subject))))
    facts = {"s": subject, "most": MOST_RANKED, "picture": picture, "first": first, "shown": shown}
    tables = Chapter("Rankings", "relation.html:rankings", facts, front=picture is None)
    if picture is None:
        return [tables]
    return [Chapter("Ranking", "relation.html:picture", facts, front=True), tables]


def _chosen(subject: Subject) -> dict[Any, str]:
    """Nodes to show, with a reason: the most labels, the fewest labels, and the first nodes."""
    counts = subject.values.row_counts[subject.sampled]
    nodes: dict[Any, str] = {}
    if counts.max() > counts.min():
        nodes[subject.sampled[np.argmax(counts)]] = "the most labels"
        nodes[subject.sampled[np.argmin(counts)]] = "the fewest labels"
    for node in subject.sampled[:_NODES]:
        if len(nodes) < _NODES:
            nodes.setdefault(node, "")
    return nodes


def _picture(subject: Subject, node: int, table: pd.DataFrame) -> Any:
    names = [subject.objects.full[position] for position in table["position"]]
    description = (
        f"One row for each of {len(table)} objects, best first for {subject.nodes.short[node]}: a "
        "dot for the score and a line for its interval."
    )
    words = {"title": "Scores", "description": description, "label": "score, with 90% intervals"}
    return plots.forest("scores", table.assign(name=names), tiers_of(table, len(table)), **words)


def _on_top(subject: Subject) -> Chapter | None:
    """Chapter on objects that come first for many nodes."""
    scores = subject.scores
    k, m = scores.shape
    if k < 2 or m < 3:
        return None
    filled = np.where(np.isfinite(scores), scores, -np.inf)
    first = np.bincount(filled.argmax(axis=1), minlength=m)
    places = np.argsort(np.argsort(-filled, axis=1, kind="stable"), axis=1) + 1.0
    places[~np.isfinite(scores)] = np.nan  # a node is not ranked for itself
    typical = np.nanmedian(places, axis=0)
    shown = np.lexsort((typical, -first))[:_ROWS]
    facts = {
        "s": subject,
        "nodes": k,
        "objects": m,
        "different": np.sum(first > 0),
        "shown": shown,
        "first": first[shown],
        "typical": typical[shown],
    }
    return Chapter("Objects on top", "relation.html:on_top", facts)


_FOLDS = 5
_MOST_PAIRS = 1_000_000  # pairs with hold-outs in closed form, which take seconds
_MOST_LABELS = 2000  # labels with hold-outs by conjugate gradients, without a closed form
_MOST_SINGLE = 40_000  # pairs of a constrained relation: a label left out costs O(nodes²)
_REACH = 1.6449  # half the width of a 90% interval, in standard deviations
_WORST = 5  # rows of a table


def _quality(subject: Subject) -> Chapter:
    """Chapter on predictions with nodes and with single labels left out."""
    problem, values = subject.problem, subject.values
    few = len(values.values) <= _MOST_LABELS
    if problem.closed:
        few = bool(np.prod(values.shape) <= _MOST_PAIRS)
    facts: Facts = {"s": subject, "few": few, "nodes": None, "labels": None}
    for name, compute in (("nodes", _nodes_out), ("labels", _labels_out)) if few else ():
        try:
            facts[name] = {"why": ""} | compute(subject)
        except RelprefError as error:
            facts[name] = {"why": clean(error)}
    return Chapter("How far to trust it", "relation.html:quality", facts)


def _nodes_out(subject: Subject) -> Facts:
    """Concordance of nodes whose labels were all left out (setting 2)."""
    from relpref.rls.hold_out import leave_nodes_out, leave_row_out
    from relpref.rls.splits import concordance, per_node

    problem, p = subject.problem, subject.values.shape[0]
    penalty, folds = [subject.posterior.solution.regularization], 0
    if p < 2:
        return {"single": True}
    if problem.closed and not subject.one_kind:
        predicted = leave_row_out(problem, penalty)[0]
    else:
        folds = min(_FOLDS, p)
        predicted = leave_nodes_out(problem, penalty, rows=np.arange(p) % folds)[0]
    scores = per_node(concordance, subject.values.mean_matrix, np.nan_to_num(predicted))
    shares = pd.Series(scores.values).dropna().sort_values(kind="stable")
    worst = shares.head(_WORST)
    facts = {"single": False, "folds": folds, "mean": scores.mean, "worst": worst}
    return facts | {"counts": subject.values.row_counts[worst.index]} | average(shares)


def average(values: Any) -> Facts:
    """Number and standard error of concordances; ``guessing`` if they may be 0.5."""
    shares = pd.Series(values)
    error = shares.sem()  # NaN for a single one
    guessing = shares.mean() - 2 * error <= 0.5
    return {"number": len(shares), "error": error, "guessing": guessing}


def _labels_out(subject: Subject) -> Facts:
    """Errors and coverage of labels that were left out one at a time (setting 1)."""
    if subject.problem.symmetry != "none" and subject.problem.loss == "ranking":
        return {"refused": "loss"}
    if subject.problem.symmetry != "none" and np.prod(subject.values.shape) > _MOST_SINGLE:
        return {"refused": "size"}
    table = leave_one_out(subject.posterior).table
    label, mean, sd = (table[name].to_numpy() for name in ("label", "mean", "sd"))
    inside = np.mean(np.abs(label - mean) <= _REACH * sd)
    return {
        "refused": "",
        "number": len(label),
        "error": np.sqrt(np.mean(np.square(label - mean))),
        "spread": np.std(label),
        "inside": inside,
        "chances_off": (inside - 0.9) / np.sqrt(0.9 * 0.1 / len(label)),
        "table": table.sort_values("log_score", kind="stable").head(_WORST),
    }
