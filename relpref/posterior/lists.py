"""Probabilities of choices and orders of several items."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.covariates import covariates_of_items
from relpref.errors import DataError, UnsupportedProgramError
from relpref.likelihoods.answers import GROUP_SD
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.orthants import log_chosen, log_ordered, log_stages
from relpref.posterior.gaussian import Belief, Floats
from relpref.posterior.tables import parameter_of, places_of_raters

_DRAWS = 4000


def require_lists(posterior: Any) -> None:
    """Refuse a likelihood that says nothing of lists."""
    if getattr(posterior.likelihood, "lists", None) is None:
        raise UnsupportedProgramError(
            "the custom likelihood is for pairs, not for lists; fit with Probit() or Logistic()"
        )


def list_chances(
    posterior: Any,
    items: NDArray[Any],
    orders: Any,
    places: int,
    rater: Any = None,
    covariates: Mapping[str, Any] | None = None,
) -> Floats:
    """Probabilities of the first ``places`` of each order of some items, shape (lists,).

    ``orders`` are positions among the items, shape (lists, k); ``rater`` and ``covariates`` are as
    in `UtilityPosterior.choose`.
    """
    require_lists(posterior)
    size = len(items)
    if size < 2 or len(np.unique(items)) < size:
        raise DataError(f"a list has two items or more, each of them once; got {size}")
    belief = _with_effects(posterior, items, covariates or {})
    locations, scales, weights = belief.locations, belief.scales, belief.weights
    if GROUP_SD in posterior.hyperparameters:
        # A list is in a group of its own, where each item has a value besides its utility.
        sd = parameter_of(posterior, GROUP_SD)[:, None, None]
        effects = np.broadcast_to(np.eye(size) * np.square(NOISE * sd), (len(weights), size, size))
        scales = effects if scales is None else scales + effects
    noise = _noise_of(posterior, rater)
    locations = locations / noise
    scales = None if scales is None else scales / np.square(noise)[..., None]
    lapse = (
        parameter_of(posterior, "lapse") if "lapse" in posterior.hyperparameters else np.zeros(1)
    )
    orders, weights = np.asarray(orders), weights * (1 - lapse)
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
    outcomes = float(np.prod(np.arange(size, size - places, -1.0)))
    return np.asarray(chances + (1 - weights.sum()) / outcomes)


def _with_effects(posterior: Any, items: NDArray[Any], covariates: Mapping[str, Any]) -> Belief:
    """Utilities of some items, with the effects of their covariates in one list."""
    data, answers = posterior.data, posterior.data.comparisons
    values = covariates_of_items(answers.covariates_are, covariates, data._label_index, items)
    if not values.any():
        return posterior.belief.subset(items)
    effects = posterior.require_effects()
    rows = np.concatenate([np.arange(effects), effects + items])
    weights = np.concatenate([values / answers.covariate_scales, np.eye(len(items))], axis=1)
    return posterior.full.subset(rows).project(weights)


def _noise_of(posterior: Any, rater: Any) -> Floats:
    """Noise of a rater, who sees each item with it, by component: (K, 1), or (1, 1) if equal."""
    if rater is None:
        return np.ones((1, 1))
    answers = posterior.data.comparisons
    place = places_of_raters(answers, rater, 1)[0]
    if answers.probability is not None:
        raise DataError(
            "rater: the answers are reported probabilities, and the noise of a rater is that of "
            "reports, not of choices and orders; leave rater out"
        )
    if place < 0:
        return np.ones((1, 1))
    return parameter_of(posterior, "rater_noise")[:, place, None]


def shares_of_the_best(belief: Any, rng: np.random.Generator) -> Floats:
    """Probability that each of k numbers is the largest, from draws, shape (k,)."""
    best = np.argmax(belief.draw(_DRAWS, rng), axis=1)
    return np.bincount(best, minlength=belief.size) / _DRAWS
