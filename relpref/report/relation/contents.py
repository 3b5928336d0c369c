"""The chapters of the page, in their order."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics import leave_one_out
from relpref.errors import RelprefError
from relpref.infer import RelationPosterior
from relpref.kernels import SquaredExponential
from relpref.posterior.gaussian import Floats
from relpref.report.blocks import (
    Block,
    Cell,
    Chapter,
    Contents,
    Names,
    Picture,
    Text,
    clean,
    counted,
    counted_share,
    decimals_for,
    fixed,
    listed,
    percent,
    significant,
    whole,
)
from relpref.report.plots import NARROW, WIDE, Line, cell, forest, grid

_MOST = 40
_READINGS = {
    "regularization": "λ: how much labels are distrusted; larger means smoother scores",
    "scale": "common factor of prior and noise, estimated from the labels",
}
# A program has the standard deviation of the labels' noise for a hyperparameter; beside λ it is the variance that λ stands for.
_NOISE = {False: "standard deviation of the error of one label", True: "variance of the error of one label"}


def hyperparameters(posterior: RelationPosterior) -> Chapter | None:
    """The chapter; None where there are none."""
    rows: list[list[Cell | str]] = []
    readings = _READINGS | {"noise": _NOISE["regularization" in posterior.hyperparameters]}
    for name, value in posterior.hyperparameters.items():
        entries = np.atleast_1d(np.asarray(value, dtype=np.float64)).ravel()
        for entry, number in enumerate(entries):
            of = name if entries.size == 1 else f"{name} {entry + 1}"
            rows.append([cell(of), significant(number), readings.get(name, "")])
    if not rows:
        return None
    searched = posterior.searched
    blocks: list[Block] = [
        Text(
            "Found by maximising the log evidence plus the log prior."
            if searched
            else "As they were given, or follow from it."
        ),
        grid("Values of the hyperparameters", ("Name", "Value", "Reading"), rows[:_MOST], (1,)),
    ]
    if len(rows) > _MOST:
        blocks.append(Text(f"The first {_MOST} of {len(rows)} values are shown.", small=True))
    return Chapter("Hyperparameters", blocks)


_KERNELS = {
    "kronecker": "the product of a kernel of the conditioning nodes and one of the objects",
    "cartesian": "the sum of a kernel of the nodes where the objects are the same and one of the objects where the nodes are",
    "mlpk": "the metric learning pairwise kernel, which compares differences of nodes",
    "preference": "the transitive preference kernel, which gives every object one score for all",
}


def methods(posterior: RelationPosterior) -> list[str]:
    problem = posterior.problem
    text = (
        "Every pair of a conditioning node and an object has a score, and labels are scores seen with Gaussian noise (Pahikkala et al. 2010). "
        f"A priori, scores are a Gaussian process whose covariance is {_KERNELS[problem.pair_kernel]} (Pahikkala et al. 2013)."
    )
    if problem.symmetry != "none":
        text += f" It obeys that the relation is {problem.symmetry}."
    if problem.loss == "ranking":
        text += (
            " The loss is the ranking loss: every conditioning node has an offset of which nothing is known, so that only the order of "
            "its objects is learned."
        )
    solved = (
        "in closed form, by the eigenvectors of the two kernels"
        if problem.closed
        else "by conjugate gradients"
    )
    exact = (
        f"The posterior is exact, given hyperparameters and noise; it was found {solved}. Whatever was fitted beforehand, such as "
        "the regularisation, is taken as certain, so intervals are somewhat too narrow on small data."
    )
    return [text, exact]


INTERVAL = 0.9
MOST_EDGES = 4000  # without a closed form uncertainty needs a factor of the edges' kernel, O(edges³)
MOST_RANKED = 300  # objects of one ranking: their joint covariance and 4000 draws of it
_MOST_NODES = 200  # of whom all scores are looked at
_MOST_NUMBERS = 10_000_000  # in their table of scores


@dataclass(frozen=True)
class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : RelationPosterior
    """

    posterior: RelationPosterior

    @cached_property
    def nodes(self) -> Names:
        return Names(self.posterior.nodes.labels)

    @cached_property
    def objects(self) -> Names:
        return self.nodes if self.one_kind else Names(self.posterior.objects.labels)

    @property
    def one_kind(self) -> bool:
        """Whether nodes are ranked for one another."""
        return self.posterior.nodes is self.posterior.objects

    @property
    def uncertain(self) -> str:
        """Why there is no uncertainty of scores; empty where there is."""
        problem, solution = self.posterior.problem, self.posterior.solution
        if problem.closed:
            return ""
        if getattr(solution, "stopped", False):
            return "the iterations ended before the solution, so there are scores without intervals"
        edges = len(problem.values.values)
        if edges > MOST_EDGES:
            return f"intervals for a relation with {edges} labels and no closed form take long, so they are left out"
        return ""

    @cached_property
    def looked_at(self) -> NDArray[np.intp]:
        """Positions of the nodes of whom all scores are looked at: all of them, or some evenly spread over the data."""
        p, m = len(self.posterior.nodes.labels), len(self.posterior.objects.labels)
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
        row = int(np.flatnonzero(self.looked_at == node)[0])
        scores = self.scores[row]
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
        values = self.posterior.problem.values
        mine = np.flatnonzero(values.rows == node)
        columns, labels = values.columns[mine], values.values[mine] + self.posterior.shift
        sums, counts = (np.bincount(columns, weights) for weights in (labels, None))
        return {int(c): float(sums[c] / counts[c]) for c in np.unique(columns)}


_SYMMETRIES = {
    "none": "none: what v says of w tells nothing of what w says of v",
    "symmetric": "symmetric: (v, w) and (w, v) have the same label",
    "reciprocal": "reciprocal: what v gains over w, w loses",
}
_LOSSES = {
    "ranking": "ranking: only the order of the objects for one node counts",
    "regression": "regression: the labels themselves are to be met",
}


def summary(subject: Subject) -> list[str]:
    posterior = subject.posterior
    p, m = posterior.problem.values.shape
    what = (
        f"ranks {counted(p, 'node')} for one another"
        if subject.one_kind
        else f"ranks {counted(m, 'object')} for each of {counted(p, 'node')}"
    )
    labels, pairs = _labels(subject)
    text = f"This report {what}. It rests on {counted(labels, 'label')} of {whole(pairs)} pairs"
    share = labels / max(pairs, 1)
    text += ": everything is known." if posterior.problem.values.complete else f" ({percent(share)})."
    features = posterior.nodes.feature_names
    if features:
        text += f" Nodes are compared by {counted(len(features), 'feature')}."
    unseen = (
        "A node or an object that nobody has a label for yet can be ranked as soon as its features are known; its interval "
        "is then as wide as it is unlike what was seen."
    )
    return [text, unseen]


def known(subject: Subject) -> Chapter:
    posterior = subject.posterior
    problem, values = posterior.problem, posterior.problem.values
    p, m = values.shape
    counts = values.row_counts
    given, pairs = _labels(subject)
    labels = values.values + posterior.shift
    rows: list[list[Cell | str]] = [
        ["Conditioning nodes", whole(p), _names(subject.nodes.short)],
        ["Objects", whole(m), "the same" if subject.one_kind else _names(subject.objects.short)],
        [
            "Labels",
            whole(given),
            f"{percent(given / max(pairs, 1))} of all pairs" if not values.complete else "of every pair",
        ],
        ["Labels of one node", f"{whole(counts.min())} to {whole(counts.max())}", ""],
        ["Nodes without any", whole(int(np.sum(counts == 0))), ""],
        [
            "Values",
            f"{significant(labels.min())} to {significant(labels.max())}",
            f"{whole(len(np.unique(labels)))} different" if len(labels) else "",
        ],
    ]
    if problem.empty_nodes and problem.loss == "ranking":
        rows.append(
            ["Nodes with fewer than two", whole(problem.empty_nodes), "they have no order to learn from"]
        )
    facts: list[Block] = [
        grid("What is known of the relation", ("What", "Number", "Note"), rows, (1,)),
        grid(
            "What the model is told",
            ("What", "Choice"),
            [
                [Cell("Loss"), Cell(_LOSSES[problem.loss])],
                [Cell("Symmetry"), Cell(_SYMMETRIES[problem.symmetry])],
                [Cell("Kernel of pairs"), cell(problem.pair_kernel)],
                [Cell("Kernel of nodes"), cell(kernel_name(posterior.nodes.kernel))],
                [
                    Cell("Kernel of objects"),
                    cell("the same" if subject.one_kind else kernel_name(posterior.objects.kernel)),
                ],
            ],
        ),
    ]
    constrained = problem.symmetry != "none"
    if constrained:
        text = "Every label counts for both its nodes, so what is said of single nodes counts it twice."
        facts.append(Text(text, small=True))
    return Chapter("What was known", facts)


def kernel_name(kernel: object) -> str:
    """A node kernel in words, as far as it says what it is."""
    name = getattr(kernel, "kernel", None)
    if isinstance(name, str):
        gamma = getattr(kernel, "gamma", None)
        return f"{name}, γ = {significant(gamma)}" if name == "gaussian" and gamma is not None else name
    if name is not None:
        return "squared exponential" if isinstance(name, SquaredExponential) else type(name).__name__
    return "of the program" if type(kernel).__name__ == "ProgramKernel" else "a function"


def _labels(subject: Subject) -> tuple[int, int]:
    """How many labels were given, and how many pairs could have one: under a constraint both directions are one pair."""
    problem = subject.posterior.problem
    p, m = problem.values.shape
    pairs = {"none": p * m, "symmetric": p * (p + 1) // 2, "reciprocal": p * (p - 1) // 2}
    return len(problem.values.distinct(problem.symmetry)), pairs[problem.symmetry]


def _names(names: list[str]) -> str:
    return listed(names[:4] + [""] * (len(names) - 4), 4) if len(names) > 4 else listed(names)


_TITLE = "How far to trust it"
_FOLDS = 5
_MOST_PAIRS = 1_000_000  # of nodes and objects, whose hold-outs in closed form take seconds
_MOST_LABELS = 2000  # without a closed form: folds are solved for by conjugate gradients
_MOST_SINGLE = 40_000  # pairs of a constrained relation, where leaving one out costs O(nodes²)
_REACH = 1.6449  # of a 90% interval, in standard deviations
_WORST = 5
_FEWEST_NODES = 5  # whose average concordance has an error that can be estimated


def quality(subject: Subject) -> Chapter:
    problem = subject.posterior.problem
    if not (
        np.prod(problem.values.shape) <= _MOST_PAIRS
        if problem.closed
        else len(problem.values.values) <= _MOST_LABELS
    ):
        text = "Nothing was left out and predicted, because that takes long for so many labels; relpref.rls.ConditionalRankerCV does it."
        return Chapter(_TITLE, [Text(text)])
    blocks: list[Block] = [
        Text(
            "What a model predicts of labels that it has seen says little. So some are left out, and predicted from all others at the "
            "same hyperparameters."
        )
    ]
    for part in (_nodes_out, _labels_out):
        try:
            blocks += part(subject)
        except RelprefError as error:
            blocks.append(Text(f"{_LEFT_OUT[part.__name__]}: not computed, {clean(error)}.", small=True))
    return Chapter(_TITLE, blocks)


_LEFT_OUT = {"_nodes_out": "Nodes left out", "_labels_out": "Single labels left out"}


def _nodes_out(subject: Subject) -> list[Block]:
    """Setting 2: the concordance of nodes whose labels were all left out."""
    from relpref.rls.hold_out import leave_nodes_out, leave_row_out
    from relpref.rls.splits import concordance, per_node

    posterior, problem = subject.posterior, subject.posterior.problem
    penalty = [posterior.solution.regularization]
    p = problem.values.shape[0]
    if p < 2:
        return [Text("There is one conditioning node, so none can be left out.")]
    if problem.closed and not subject.one_kind:
        predicted, how = leave_row_out(problem, penalty)[0], "one at a time"
    else:
        folds = min(_FOLDS, p)
        predicted = leave_nodes_out(problem, penalty, rows=np.arange(p) % folds)[0]
        how = (
            f"in {counted(folds, 'group')}, each also as objects"
            if subject.one_kind
            else f"in {counted(folds, 'group')}"
        )
    found = per_node(concordance, problem.values.mean_matrix, np.where(np.isnan(predicted), 0.0, predicted))
    values = found.values[np.isfinite(found.values)]
    if not len(values):
        return [Text("No node has two different labels, so there is no order to predict.")]
    text = (
        f"Nodes that were left out with all their labels, {how}, and ranked by their features alone: of the pairs of objects with "
        f"different labels, {percent(found.mean)} come in the right order, on average over {counted(len(values), 'node')}; "
        f"guessing gets 50%. {_verdict(values)}"
    )
    return [Text(text), _worst(subject, found.values)]


def _verdict(values: Floats) -> str:
    """What the concordances of nodes say: no more than their average is known."""
    mean, number = float(np.mean(values)), len(values)
    if number < _FEWEST_NODES:
        return f"Of {counted(number, 'node')} it cannot be told how well new ones are ranked."
    error = float(np.std(values, ddof=1) / np.sqrt(number))
    known = f"The average is known to ± {percent(error)}."
    if mean - 2 * error <= 0.5:
        return f"{known} It cannot be told from guessing: do not rank new nodes by this model."
    return f"{known} New nodes can be ranked about that well."


def _worst(subject: Subject, values: Floats) -> Block:
    order = np.argsort(np.where(np.isfinite(values), values, np.inf), kind="stable")[:_WORST]
    counts = subject.posterior.problem.values.row_counts
    rows: list[list[Cell | str]] = [
        [subject.nodes.short[node], counted_share(values[node], 1), str(counts[node])]
        for node in order
        if np.isfinite(values[node])
    ]
    return grid(
        "Nodes that were ranked worst when left out",
        ("Node", "Pairs in the right order", "Labels"),
        rows,
        (1, 2),
    )


def _labels_out(subject: Subject) -> list[Block]:
    """Setting 1: the errors of labels that were left out one at a time, and whether their intervals were wide enough."""
    posterior, problem = subject.posterior, subject.posterior.problem
    if problem.symmetry != "none" and problem.loss == "ranking":
        text = (
            f"Single labels: not left out, because with the ranking loss of a {problem.symmetry} relation every label is used at both its "
            "ends, so that none has a probability."
        )
        return [Text(text, small=True)]
    if problem.symmetry != "none" and np.prod(problem.values.shape) > _MOST_SINGLE:
        return [
            Text(
                "Single labels: not left out, because that takes long for so large a constrained relation.",
                small=True,
            )
        ]
    held = leave_one_out(posterior)
    label, mean, sd = (held.table[name].to_numpy() for name in ("label", "mean", "sd"))
    error = float(np.sqrt(np.mean(np.square(label - mean))))
    inside = float(np.mean(np.abs(label - mean) <= _REACH * sd))
    chance = float(np.sqrt(0.9 * 0.1 / len(label)))
    verdict = "That fits."
    if inside < 0.9 - 2 * chance:
        verdict = "That is too few: intervals are too narrow."
    elif inside > 0.9 + 2 * chance:
        verdict = "That is more than needed: intervals are wider than they could be."
    text = (
        f"{counted(len(label), 'label')} left out one at a time and predicted from all others, those of the same node included: the typical "
        f"error is {significant(error)}, where labels typically differ from their average by {significant(float(np.std(label)))}. "
        f"{percent(inside)} of the labels lie in their 90% interval. {verdict}"
    )
    blocks: list[Block] = [Text(text)]
    odd = held.table.sort_values("log_score", kind="stable").head(_WORST)
    rows: list[list[Cell | str]] = [
        [
            cell(row["node"]),
            cell(row["object"]),
            significant(row["label"]),
            f"{significant(row['mean'])} ± {significant(row['sd'])}",
        ]
        for row in odd.to_dict("records")
    ]
    blocks.append(
        grid(
            "Labels that contradict the rest, most surprising first",
            ("Node", "Object", "Label", "Predicted"),
            rows,
            (2, 3),
        )
    )
    return blocks


_NODES = 4
_ROWS = 10
_DRAWN = 20


def rankings(subject: Subject) -> Chapter:
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


def contents(posterior: RelationPosterior) -> Contents:
    """The page of a relation."""
    subject = Subject(posterior)
    chapters = [
        known(subject),
        rankings(subject),
        on_top(subject),
        quality(subject),
        hyperparameters(posterior),
    ]
    kept = [chapter for chapter in chapters if chapter is not None]
    return Contents("Conditional ranking report", summary(subject), kept, methods(posterior))
