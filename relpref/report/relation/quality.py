"""The chapter on how well what is left out is predicted."""

import numpy as np

from relpref.errors import RelprefError
from relpref.infer.belief import Floats
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.grid import grid
from relpref.report.relation.subject import MOST_EDGES, Subject
from relpref.report.text import clean, counted, fixed, percent, significant

_TITLE = "How far to trust it"
_FOLDS = 5
_MOST_PAIRS = 2_000_000  # of nodes and objects, whose hold-outs in closed form take seconds
_MOST_SINGLE = 2000  # labels left out one at a time where each costs O(nodes²)
_WORST = 5


def quality(subject: Subject) -> Chapter:
    """The chapter."""
    problem = subject.posterior.problem
    if not (
        np.prod(problem.values.shape) <= _MOST_PAIRS
        if problem.closed
        else len(problem.values.values) <= MOST_EDGES
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
        f"guessing gets 50%. {_verdict(found.mean)}"
    )
    return [Text(text), _worst(subject, found.values)]


def _verdict(concordance: float) -> str:
    if concordance < 0.55:
        return "That is hardly better than guessing: do not rank new nodes by this model."
    return (
        "New nodes can be ranked about that well." if concordance < 0.9 else "New nodes can be ranked well."
    )


def _worst(subject: Subject, values: Floats) -> Block:
    order = np.argsort(np.where(np.isfinite(values), values, np.inf), kind="stable")[:_WORST]
    counts = subject.posterior.problem.values.row_counts
    rows: list[list[Cell | str]] = [
        [subject.nodes.short[node], percent(values[node]), str(counts[node])]
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
    """Setting 1: the error of labels that were left out one at a time."""
    from relpref.rls.edge_out import leave_edge_out

    posterior, problem = subject.posterior, subject.posterior.problem
    if not problem.closed:
        return []
    p, m = problem.values.shape
    pairs = None
    if problem.symmetry != "none" and p * m > _MOST_SINGLE:
        chosen = np.linspace(0, p * m - 1, _MOST_SINGLE).astype(int)
        pairs = np.stack([chosen // m, chosen % m], axis=1)
    predicted = leave_edge_out(problem, [posterior.solution.regularization], pairs)[0]
    labels = problem.values.matrix
    rows = np.repeat(np.arange(p), m).reshape(p, m)
    if pairs is not None:
        labels, rows = labels[pairs[:, 0], pairs[:, 1]], pairs[:, 0]
    if m < 2:
        return []
    # The plain guess: the average of the node's other labels.
    totals = problem.values.matrix.sum(axis=1)
    plain = (totals[rows] - labels) / (m - 1)
    error, guess = (float(np.sqrt(np.mean(np.square(labels - by)))) for by in (predicted, plain))
    text = (
        f"Single labels that were left out and predicted from all others, those of the same node included: the typical error is "
        f"{significant(error)}; that of the average of the node's other labels is {significant(guess)}"
    )
    gain = 1 - (error / guess) ** 2 if guess > 0 else 0.0
    text += (
        f", so the model explains {fixed(100 * gain, 0)}% of what that leaves open."
        if gain > 0
        else ", so the model adds nothing to it."
    )
    if pairs is not None:
        text += f" ({counted(len(pairs), 'label')}, evenly spread over the relation.)"
    return [Text(text)]
