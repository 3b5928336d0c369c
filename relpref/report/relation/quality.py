"""The chapter on how well what is left out is predicted."""

import numpy as np

from relpref.diagnostics import leave_one_out
from relpref.errors import RelprefError
from relpref.infer.belief import Floats
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.grid import cell, grid
from relpref.report.relation.subject import Subject
from relpref.report.text import clean, counted, counted_share, percent, significant

_TITLE = "How far to trust it"
_FOLDS = 5
_MOST_PAIRS = 1_000_000  # of nodes and objects, whose hold-outs in closed form take seconds
_MOST_LABELS = 2000  # without a closed form: folds are solved for by conjugate gradients
_MOST_SINGLE = 40_000  # pairs of a constrained relation, where leaving one out costs O(nodes²)
_REACH = 1.6449  # of a 90% interval, in standard deviations
_WORST = 5
_FEWEST_NODES = 5  # whose average concordance has an error that can be estimated


def quality(subject: Subject) -> Chapter:
    """The chapter."""
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
    from relpref.rls.edge_out import leave_row_out
    from relpref.rls.measures import concordance, per_node
    from relpref.rls.nodes_out import leave_nodes_out

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
