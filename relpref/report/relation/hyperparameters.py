"""The chapter on hyperparameters of a relation."""

import numpy as np

from relpref.infer import RelationPosterior
from relpref.report.blocks import Block, Cell, Chapter, Text
from relpref.report.grid import cell, grid
from relpref.report.text import significant

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
    searched = "evaluations" in posterior.info
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
