"""How likely choices and orders of several items are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.errors import DataError, UnsupportedProgramError
from relpref.likelihoods.answers import GROUP_SD
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.orthants import log_chosen, log_ordered, log_stages
from relpref.posterior.gaussian import Floats, mixture

_DRAWS = 4000


def list_chances(posterior: Any, items: NDArray[Any], orders: Any, places: int) -> Floats:
    """Probabilities that the first ``places`` of each order of some items come first and in it, shape (lists,).

    ``orders`` are positions among the items, shape (lists, k).
    """
    kinds = getattr(posterior.likelihood, "lists", None)
    if kinds is None:
        raise UnsupportedProgramError(
            "the custom likelihood is for pairs, not for lists; fit with Probit() or Logistic()"
        )
    size = len(items)
    if size < 2 or len(np.unique(items)) < size:
        raise DataError(f"a list has two items or more, each of them once; got {size}")
    belief = posterior.belief.subset(items)
    if GROUP_SD in posterior.hyperparameters:
        # A list is in a group of its own, where each item has a value besides its utility.
        sd = posterior.hyperparameter_draws.get(GROUP_SD, posterior.hyperparameters[GROUP_SD])
        own = np.eye(size) * np.square(NOISE * np.asarray(sd))[..., None, None]
        scales = own if belief.scales is None else belief.scales + own
        shape = (len(belief.weights), size, size)
        belief = mixture(belief.locations, np.broadcast_to(scales, shape), belief.weights)
    orders = np.asarray(orders)
    locations, scales, weights = belief.locations, belief.scales, belief.weights
    if posterior.likelihood.noise != "logistic":
        covariances = np.eye(size) * NOISE**2 + (0.0 if scales is None else scales)
        covariances = np.broadcast_to(covariances, (len(weights), size, size))
        # Those after these places are one block.
        blocks = np.minimum(np.argsort(orders, axis=1), places)
        chances = np.exp([log_ordered(locations, covariances, block) for block in blocks]) @ weights
    elif scales is None:
        chances = weights @ np.exp(log_stages(locations[:, orders], places))
    else:
        covariances = scales[:, orders[:, :, None], orders[:, None, :]]
        chances = np.exp(log_chosen(locations[:, orders], covariances, weights, places))
    lapse = posterior.hyperparameters.get("lapse", 0.0)
    outcomes = float(np.prod(np.arange(size, size - places, -1.0)))
    return np.asarray((1 - lapse) * chances + lapse / outcomes)


def shares_of_the_best(belief: Any, rng: np.random.Generator) -> Floats:
    """Probability that each of k numbers is the largest, from draws, shape (k,)."""
    best = np.argmax(belief.draw(_DRAWS, rng), axis=1)
    return np.bincount(best, minlength=belief.size) / _DRAWS
