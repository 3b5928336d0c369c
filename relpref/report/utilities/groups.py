"""Groups of entities between which nothing says how utilities compare."""

import numpy as np
from numpy.typing import NDArray

from relpref.data import PreferenceData
from relpref.report.text import counted, whole


def groups_of(data: PreferenceData) -> NDArray[np.intp] | None:
    """Group of each entity, shape (n,); None where utilities of all can be compared, in one group or by attributes."""
    if data.attribute_names or not data.num_answers:
        return None
    groups = np.asarray(data.groups(), dtype=np.intp)
    return groups if np.any(groups != groups[0]) else None


def apart(groups: NDArray[np.intp]) -> str:
    """The sentence about them."""
    sizes = np.bincount(groups)
    alone = int(np.sum(sizes == 1))
    which = f", {whole(alone)} of them with a single entity" if alone else ""
    return (
        f"The {counted(len(groups), 'entity', 'entities')} fall into {counted(len(sizes), 'group')} that no answer or relation ties together"
        f"{which}. Compare within a group only: between groups, utilities and places rest on nothing but the prior."
    )
