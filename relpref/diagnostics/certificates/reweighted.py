"""What weights do to the draws of a posterior, with Monte Carlo errors."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics.certificates.tables import moments
from relpref.infer.belief import Floats, GaussianBelief
from relpref.infer.mixture import MixtureBelief
from relpref.infer.posterior import Posterior


def reweighted(
    posterior: Posterior, draws: Floats, weights: Floats, groups: NDArray[np.intp]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means and sds of the exact posterior, as `moments` has them, and their errors.

    What is known of the posterior without draws is changed by what the weights change in its draws, in which most of the noise of the draws
    cancels: the mean by a difference, the sd by a factor.

    Parameters
    ----------
    posterior : Posterior
    draws : array, shape (s, n)
        Of the posterior.
    weights : array, shape (s,)
        They add up to 1.
    groups : array of int, shape (s,)
        From 0 on. Draws of different groups know nothing of one another. The errors are those of the jackknife that leaves out each group,
        for a product of weight and draw varies more than either does.
    """
    # Weighted draws are at no hyperparameters of their own: a classifier's features are taken at the averages.
    held = replace(posterior, hyperparameter_draws={})
    reported = moments(posterior, posterior.belief)
    equal = np.full(len(draws), 1 / len(draws))
    both = [_Sums(draws, weights), _Sums(draws, equal)]

    def change(left_out: NDArray[np.bool_] | None) -> Floats:
        """Of means, and of the logarithms of sds; shape (2, rows)."""
        after, before = (moments(held, sums.belief(left_out)) for sums in both)
        change_sd = np.log(
            after["sd"].where(after["sd"] > 0, 1.0) / before["sd"].where(before["sd"] > 0, 1.0)
        )
        return np.stack([after["mean"] - before["mean"], change_sd])

    number = int(groups.max()) + 1
    without = np.stack([change(groups == group) for group in range(number)])
    mean, log_sd = change(None)
    mean_error, log_sd_error = np.sqrt((number - 1) * without.var(axis=0))
    mean_error = np.hypot(mean_error, _own_error(posterior, held))
    exact = pd.DataFrame({"mean": reported["mean"] + mean, "sd": reported["sd"] * np.exp(log_sd)})
    return exact, pd.DataFrame({"mean": mean_error, "sd": exact["sd"] * log_sd_error}, index=exact.index)


class _Sums:
    """Weighted draws, from which groups can be left out."""

    def __init__(self, draws: Floats, weights: Floats) -> None:
        self.centre, self.weights = weights @ draws, weights
        self.centred = draws - self.centre
        self.squares = self._squares(slice(None))

    def _squares(self, rows: NDArray[np.bool_] | slice) -> Floats:
        centred = self.centred[rows]
        return np.asarray((self.weights[rows, None] * centred).T @ centred)

    def belief(self, left_out: NDArray[np.bool_] | None) -> GaussianBelief:
        """The moments, of all draws or without some."""
        if left_out is None:
            return GaussianBelief(self.centre, self.squares)
        weights = self.weights[left_out]
        total = 1 - weights.sum()
        shift = -(weights @ self.centred[left_out]) / total
        squares = (self.squares - self._squares(left_out)) / total
        return GaussianBelief(self.centre + shift, squares - np.outer(shift, shift))


def _own_error(posterior: Posterior, held: Posterior) -> Floats | float:
    """Of a mixture whose components are a sample: how well its mean is known.

    Weighted components are the points of an integral, whose weights say themselves whether they can be relied on.
    """
    belief = posterior.belief
    if not isinstance(belief, MixtureBelief) or np.ptp(belief.weights):
        return 0.0
    mean, between = belief.mean(), np.cov(belief.locations, rowvar=False, bias=True)
    spread, nothing = (moments(held, GaussianBelief(mean, scale))["sd"] for scale in (between, 0 * between))
    number = float(posterior.info.get("ess", len(belief.locations)))
    return np.asarray(np.sqrt(np.maximum(spread**2 - nothing**2, 0.0) / number))
