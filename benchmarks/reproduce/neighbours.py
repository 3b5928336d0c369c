"""A relation for items that come without one: nearest neighbors among their attributes.

It tells a model nothing that the attributes do not hold.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from relpref.data.arrays import counted
from relpref.errors import DataError

DERIVED = "similarity_derived"


def nearest_neighbours(attributes: pd.DataFrame, neighbours: int = 10) -> pd.DataFrame:
    """Join every item to its nearest neighbors by the cosine of their standardized attributes.

    Parameters
    ----------
    attributes : DataFrame, shape (n, d)
        One row for each item.
    neighbours : int
        Number for each item; two items are joined if either is among the nearest of the other.

    Returns
    -------
    DataFrame
        ``source``, ``target`` and ``weight``, the cosine, in (0, 1]. Pairs whose cosine is not
        positive are not joined. Of equal cosines, that of the earlier item counts as the larger.

    Raises
    ------
    DataError
        If ``neighbours`` is not positive, or no two items have a positive cosine.
    """
    if neighbours < 1:
        raise DataError(f"neighbours is {neighbours}; it must be at least 1")
    values = attributes.to_numpy(np.float64)
    scale = values.std(axis=0)
    unit = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1)
    # Without the centering every document of a query would resemble every other: the features are
    # positive.
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    unit = unit / np.where(norms > 0, norms, 1)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    nearest = np.argsort(-cosine, axis=1, kind="stable")[:, : min(neighbours, len(values) - 1)]
    joined = np.zeros(cosine.shape, dtype=bool)
    np.put_along_axis(joined, nearest, True, axis=1)
    source, target = np.nonzero(np.triu((joined | joined.T) & (cosine > 0), 1))
    if not source.size:
        raise DataError(
            f"attributes: no two of {counted(len(values), 'item')} are alike: no graph to derive"
        )
    labels = attributes.index.to_numpy()
    ends = {"source": labels[source], "target": labels[target]}
    return pd.DataFrame({**ends, "weight": np.minimum(cosine[source, target], 1.0)})
