"""Folds of answers."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.messages import counted
from relpref.errors import DataError


def fold_of(groups: NDArray[Any], folds: int, rng: np.random.Generator, name: str) -> NDArray[np.intp]:
    """A fold for each of some things, those of one group together."""
    numbers = pd.factorize(groups)[0]
    count = int(numbers.max(initial=-1)) + 1
    if count < folds:
        raise DataError(f"{counted(count, name)} cannot make {folds} folds; give fewer")
    return np.asarray(rng.permutation(count) * folds // count)[numbers]
