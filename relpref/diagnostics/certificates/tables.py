"""Means and standard deviations of a belief, with the labels of a posterior."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.infer.belief import Belief
from relpref.infer.class_posterior import ClassPosterior
from relpref.infer.posterior import Posterior
from relpref.infer.ranks import objects
from relpref.infer.utility_posterior import UtilityPosterior


def moments(posterior: Posterior, belief: Belief, entities: NDArray[np.intp] | None = None) -> pd.DataFrame:
    """``mean`` and ``sd`` of what people look at, if a belief took the place of the posterior's own.

    Of utilities less their average, by entity; of a classifier's latent functions, by example (and by class, where there are more than
    two); of another program's Gaussian sites, by site and position. A belief about utilities may be one about some entities only.
    """
    if isinstance(posterior, UtilityPosterior):
        labels = objects(posterior.data.entities)
        index = pd.Index(labels if entities is None else labels[entities], name="entity", tupleize_cols=False)
        centred = belief.centred()
        return pd.DataFrame({"mean": centred.mean(), "sd": centred.sd()}, index=index)
    if isinstance(posterior, ClassPosterior):
        table = replace(posterior, belief=belief).latent()
        return table if table.columns.nlevels == 1 else table.stack(level=1, future_stack=True)
    places = [(site, row) for site, rows in posterior.slices.items() for row in range(rows.stop - rows.start)]
    order = np.concatenate([np.arange(rows.start, rows.stop) for rows in posterior.slices.values()])
    index = pd.MultiIndex.from_tuples(places, names=["site", "position"])
    return pd.DataFrame({"mean": belief.mean()[order], "sd": belief.sd()[order]}, index=index)
