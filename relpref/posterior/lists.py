"""How likely choices and orders of several items are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.errors import DataError, UnsupportedProgramError
from relpref.likelihoods.answers import GROUP_SD
from relpref.likelihoods.orders import GUMBEL, NOISE, log_probability
from relpref.likelihoods.orthants import log_orthant
from relpref.posterior.gaussian import Floats, mixture

_DRAWS = 4000


def list_chances(posterior: Any, items: NDArray[Any], rows: list[list[tuple[int, int]]], rng: Any) -> Floats:
    """Probabilities of lists of some items, each given by its rows: which place is above which; shape (lists,)."""
    kinds = getattr(posterior.likelihood, "lists", None)
    if kinds is None:
        raise UnsupportedProgramError(
            "the custom likelihood is for pairs, not for lists; fit with Probit() or Logistic()"
        )
    if len(items) < 2 or len(np.unique(items)) < len(items):
        raise DataError(f"a list has two items or more, each of them once; got {len(items)}")
    belief = posterior.belief.subset(items)
    if (
        GROUP_SD in posterior.hyperparameters
    ):  # a list is in a group of its own, where each item has a value besides its utility
        sd = posterior.hyperparameter_draws.get(GROUP_SD, posterior.hyperparameters[GROUP_SD])
        own = np.eye(len(items)) * np.square(NOISE * np.asarray(sd))[..., None, None]
        scales = own if belief.scales is None else belief.scales + own
        shape = (len(belief.weights), len(items), len(items))
        belief = mixture(belief.locations, np.broadcast_to(scales, shape), belief.weights)
    if posterior.likelihood.noise == "logistic":
        draws = belief.draw(_DRAWS, rng)
        found = np.array(
            [np.exp(log_probability(draws, _blocks(each, draws.shape), GUMBEL)).mean() for each in rows]
        )
    else:
        covariances = np.eye(len(items)) * NOISE**2
        if belief.scales is not None:
            covariances = covariances + belief.scales
        covariances = np.broadcast_to(covariances, (len(belief.weights), len(items), len(items)))
        chances = []
        for each in rows:
            signs = np.zeros((len(each), len(items)))
            above, below = np.array(each).T
            signs[np.arange(len(each)), above], signs[np.arange(len(each)), below] = 1, -1
            log_chance = log_orthant(belief.locations @ signs.T, signs @ covariances @ signs.T)
            chances.append(belief.weights @ np.exp(log_chance))
        found = np.array(chances)
    lapse = posterior.hyperparameters.get("lapse", 0.0)
    outcomes = len(rows) if len(rows) > 1 else float(np.prod(np.arange(1.0, len(items) + 1)))
    return np.asarray((1 - lapse) * found + lapse / outcomes)


def _blocks(rows: list[tuple[int, int]], shape: tuple[int, ...]) -> NDArray[np.int64]:
    block = np.zeros(shape[1], dtype=np.int64)
    for above, below in rows:  # sorted from the best on
        block[below] = block[above] + 1
    return np.broadcast_to(block, shape)


def shares_of_the_best(belief: Any, rng: np.random.Generator) -> Floats:
    """Probability that each of k numbers is the largest, from draws, shape (k,)."""
    best = np.argmax(belief.draw(_DRAWS, rng), axis=1)
    return np.bincount(best, minlength=belief.size) / _DRAWS
