"""The posterior of some of the entities."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.marginal import induced
from relpref.errors import DataError
from relpref.infer.belief import Belief
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.posterior import Parts

if TYPE_CHECKING:
    from relpref.infer.utility_posterior import UtilityPosterior

ABOUT = "about"  # of ``info``


def about(
    posterior: "UtilityPosterior", positions: NDArray[np.int64], *, parts: bool = True
) -> "UtilityPosterior":
    """See `UtilityPosterior.about`; ``positions`` ascend. What utilities are made of costs as much again as their covariance."""
    if len(positions) < 2:
        raise DataError(
            f"about takes two entities or more, not {len(positions)}: only differences mean something"
        )
    data, rows = induced(posterior.data, positions)
    belief = posterior.belief
    some: Belief
    if isinstance(belief, ImplicitBelief):
        some = belief.about(positions)
    else:
        some = belief.project(np.eye(belief.size)[positions])
    made_of = {site: _parts(belief, named, positions) for site, named in posterior.parts.items() if parts}
    info = {
        **posterior.info,
        ABOUT: f"{len(positions)} of {posterior.data.num_entities} entities",
    }
    (site,) = posterior.slices
    return replace(
        posterior,
        belief=some,
        slices={site: slice(0, len(positions))},
        parts=made_of,
        info=info,
        sites={name: np.asarray(value)[..., rows] for name, value in posterior.sites.items()},
        origin=None,
        data=data,
    )


def _parts(belief: Belief, parts: Parts, positions: NDArray[Any]) -> Parts:
    means = {name: mean[positions] for name, mean in parts.means.items()}
    if not isinstance(belief, ImplicitBelief):
        return Parts(means, {name: value[positions] for name, value in parts.covariances.items()})
    return Parts(means, belief.implicit.shares(positions))
