"""The chapter on what was known of the relation, and the first paragraphs."""

import numpy as np

from relpref.diagnostics.predictive.relation_out import distinct
from relpref.kernels import SquaredExponential
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.grid import cell, grid
from relpref.report.relation.subject import Subject
from relpref.report.text import counted, listed, percent, significant, whole

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
    """Paragraphs in plain words."""
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
    """The chapter."""
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
    return len(distinct(problem.values, problem.symmetry)), pairs[problem.symmetry]


def _names(names: list[str]) -> str:
    return listed(names[:4] + [""] * (len(names) - 4), 4) if len(names) > 4 else listed(names)
