"""Two types of eaters rank eight dishes: the synthetic rankings of Conserva, Deisenroth & Kumar (2022)."""

import numpy as np
import pandas as pd

from relpref.data.rankings import Rankings
from relpref.errors import DataError

# Table 3 of the paper.
DISHES = pd.DataFrame(
    {
        "sweet": [0.9, 0.7, 1.0, 0.0, 0.2, 0.1, 0.4, 0.4],
        "savoury": [0.0, 0.1, 0.0, 0.8, 0.8, 1.0, 0.7, 0.9],
        "juicy": [0.3, 0.0, 0.7, 0.8, 0.9, 1.0, 0.7, 0.6],
    },
    index=pd.Index(
        ["cake", "biscuit", "gelato", "steak", "burger", "sausage", "pasta", "pizza"], name="dish"
    ),
)
_IMPORTANCE = {"sweet": (1, 0.17, 0.09), "juicy": (0.09, 0.17, 1)}


def rank_dishes(number: int, noise: float, seed: int | tuple[int, ...] = 0) -> Rankings:
    """Draw full rankings of eight dishes (section 4.1 of the paper); `Rankings` censors them to the other kinds.

    Parameters
    ----------
    number : int
        How many; half of them by eaters who like it sweet, half by those who like it juicy. At least 2.
    noise : float
        Standard deviation of the Gaussian noise that each eater adds to the score of each dish; 0 or more.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Returns
    -------
    Rankings
        Labelled ``"sweet"`` or ``"juicy"`` (the paper's types one and two), with the attributes of the dishes.

    Raises
    ------
    DataError
        If a number is out of its range.

    Notes
    -----
    A score weights the attribute that the eater likes best by 1, the next by 0.17, the last by 0.09. The scores are those of the
    paper's Table 4, where type two gives gelato 0.79 and pizza 0.79: unrounded, gelato is the better by 0.001, while the paper's
    Table 5 has pizza before gelato.
    """
    if number < 2:
        raise DataError(f"number is {number}; both types need at least one eater, so at least 2")
    if not (np.isfinite(noise) and noise >= 0):
        raise DataError(f"noise is {noise}; it must be a finite number, 0 or more")
    rng = np.random.default_rng(seed)
    types = np.resize(list(_IMPORTANCE), number)
    scores = np.array([DISHES.to_numpy() @ _IMPORTANCE[one] for one in types])
    scores += noise * rng.standard_normal(scores.shape)
    return Rankings.from_scores(scores, items=DISHES).with_labels(types)
