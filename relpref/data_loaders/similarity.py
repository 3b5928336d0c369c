"""A graph for documents that come without one: nearest neighbours among their attributes."""

import numpy as np
import pandas as pd

from relpref.data.arrays import counted
from relpref.errors import DataError

# The name says it wherever the relation is named: in hyperparameters, shares and reports.
DERIVED = "similarity_derived"
NOTE = (
    f"relation {DERIVED!r}: derived from the attributes (nearest neighbours by cosine), not observed; "
    "it tells the model nothing that the attributes do not hold"
)


def nearest_neighbours(attributes: pd.DataFrame, neighbours: int = 10) -> pd.DataFrame:
    """Join every entity to those whose attributes point the same way.

    Parameters
    ----------
    attributes : DataFrame, shape (n, d)
        By entity.
    neighbours : int
        Of each entity; an edge is there if either end has the other among its nearest.

    Returns
    -------
    DataFrame
        ``source``, ``target`` and ``weight``: the cosine of the standardised attributes, in (0, 1]. Pairs whose cosine is not
        positive are not joined. Equal cosines are told apart by the order of the entities.

    Raises
    ------
    DataError
        If ``neighbours`` is not positive, or no two entities are alike at all.
    """
    if neighbours < 1:
        raise DataError(f"neighbours is {neighbours}; it must be at least 1")
    values = attributes.to_numpy(np.float64)
    scale = values.std(axis=0)
    unit = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1)
    # Without the centring every document of a query would resemble every other: the features are positive.
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
            f"attributes: no two of {counted(len(values), 'entity', 'entities')} are alike, so there is no graph to derive"
        )
    labels = attributes.index.to_numpy()
    return pd.DataFrame(
        {
            "source": labels[source],
            "target": labels[target],
            "weight": np.minimum(cosine[source, target], 1.0),
        }
    )
