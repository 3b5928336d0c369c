"""The next question about several items, "which of these is the best?", by what its answer is expected to tell."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, xlogy

from relpref.data.arrays import shown
from relpref.errors import DataError, UnsupportedProgramError
from relpref.explore.choose import Limits, narrowed, whole_number
from relpref.explore.forecast import Floats
from relpref.infer import UtilityPosterior
from relpref.likelihoods.answers import GROUP_SD
from relpref.likelihoods.chances import NOISE
from relpref.posterior.gaussian import generator

_DRAWS, _MORE_DRAWS = 256, 4000  # to search with, and to score what was found
_STEP = 0.5 * NOISE  # between nodes, at which the trapezoidal rule is exact to 1e-6
_REACH = 5.0  # sds of the noise beyond the utilities
_MOST_ROUNDS = 20


def next_choices(
    posterior: UtilityPosterior,
    size: int = 4,
    k: int = 1,
    *,
    items: Iterable[Any] | None = None,
    rng_key: Any = None,
) -> pd.DataFrame:
    """Sets of items of which the best should be chosen next, the most informative first.

    Parameters
    ----------
    posterior : UtilityPosterior
        Of a likelihood that has lists, `Probit` or `Logistic`.
    size : int
        How many items a set has, 2 or more.
    k : int
        How many sets; no two of them have an item in common.
    items : iterable of labels, optional
        Ask about these only. As many as ``size``: what a choice among just these is expected to
        tell.
    rng_key : JAX key or int, optional
        Of draws of the utilities; the posterior's own by default.

    Returns
    -------
    DataFrame
        ``items``, a tuple of labels in the data's order, and ``score``, the expected information of
        the choice about the utilities, in nats, with an error of about 0.01. Fewer than k rows
        where fewer items are left.

    Raises
    ------
    DataError, UnknownLabelError
        If an argument cannot be used, or a label is no item.
    UnsupportedProgramError
        If the likelihood says nothing of lists, or is logistic and groups share effects.

    Notes
    -----
    The information is H(E p) − E H(p), p the probabilities of the items at utilities drawn from the
    posterior, H the entropy. A set grows item by item, and then each item is exchanged for the best
    one, until none is better: the set is the best within one exchange, not among all sets.
    """
    whole_number("size", size, 2)
    whole_number("k", k, 1)
    if getattr(posterior.likelihood, "lists", None) is None:
        raise UnsupportedProgramError(
            "the custom likelihood is for pairs, not for lists; fit with Probit() or Logistic()"
        )
    rng = posterior._rng(None) if rng_key is None else generator(rng_key)
    posterior, limits, _ = narrowed(posterior, Limits(items), rng)
    likelihood: Any = posterior.likelihood
    data = posterior.data
    open_ = np.arange(data.num_items)
    if limits.items is not None:
        open_ = np.unique(data.index(list(limits.items)))
    if len(open_) < size:
        raise DataError(f"size is {shown(size)}; there are {len(open_)} items to choose among")
    lapse, noise = posterior.hyperparameters.get("lapse", 0.0), likelihood.noise
    # In a group of its own each item has a value besides its utility: to the choice it is more
    # noise.
    total = np.hypot(1.0, float(posterior.hyperparameters.get(GROUP_SD, 0.0)))
    if total > 1 and noise == "logistic":
        raise UnsupportedProgramError(
            "what a choice tells is unknown where groups share effects and noise is logistic; "
            "leave the column 'group' out, or take the "
            "likelihood Probit()"
        )
    found: list[tuple[tuple[Any, ...], float]] = []
    while len(found) < k and len(open_) >= size:
        draws = posterior.belief.subset(open_).draw(_DRAWS, rng) / total
        best = open_[np.sort(_search(Chances(draws, noise, lapse), size))]
        draws = posterior.belief.subset(best).draw(_MORE_DRAWS, rng) / total
        chances = Chances(draws, noise, lapse).with_each(list(range(size - 1)))[-1:]
        found.append((tuple(data.labels[item] for item in best), float(information(chances)[0])))
        open_ = np.setdiff1d(open_, best)
    return pd.DataFrame(found, columns=["items", "score"])


def information(chances: Floats) -> Floats:
    """Of a choice about the utilities, in nats, from its probabilities at s draws of them, shape (n, s, q); shape (n,)."""
    expected = chances.mean(axis=1)
    entropies = -xlogy(chances, chances).sum(axis=2)
    return np.asarray(-xlogy(expected, expected).sum(axis=1) - entropies.mean(axis=1))


class Chances:
    """Probabilities of choices among items whose utilities are drawn, shape (s, n)."""

    def __init__(self, draws: Floats, noise: str, lapse: float = 0.0) -> None:
        self.draws, self.lapse, self.logistic = draws, lapse, noise == "logistic"
        if self.logistic:
            self.weight = np.exp(draws - draws.max()).T
            return
        # Each draw has its own nodes: only differences of utilities matter.
        low, high = draws.min(axis=1), draws.max(axis=1)
        number = int(np.ceil(((high - low).max() / NOISE + 2 * _REACH) * NOISE / _STEP)) + 1
        nodes = (0.5 * (low + high))[:, None] + _STEP * (np.arange(number) - 0.5 * (number - 1))
        z = (nodes - draws.T[:, :, None]) / NOISE
        # Shape (n, s, g) each: P(an item is below the node), and the weight of the node under its
        # density.
        self.below = ndtr(z)
        self.density = np.exp(-0.5 * z**2) * (_STEP / NOISE / np.sqrt(2 * np.pi))

    def with_each(self, members: list[int]) -> Floats:
        """Of a choice among the members and each item; shape (n, s, q + 1), the item being the last."""
        if self.logistic:
            mine = self.weight[members]
            total = mine.sum(axis=0) + self.weight
            shares = [*(each / total for each in mine), self.weight / total]
        else:
            shares = []
            for one in members:
                others = np.prod(self.below[[other for other in members if other != one]], axis=0)
                shares.append(np.einsum("sg,nsg->ns", self.density[one] * others, self.below))
            all_below = np.prod(self.below[members], axis=0)
            shares.append(np.einsum("sg,nsg->ns", all_below, self.density))
        found = np.stack(shares, axis=2)
        return np.asarray((1 - self.lapse) * found + self.lapse / found.shape[2])


def _search(chances: Chances, size: int) -> list[int]:
    """Members of a set that no exchange of one item makes more informative."""
    members = [int(np.argmax(chances.draws.var(axis=0)))]
    score, unchanged = -np.inf, 0
    for _ in range(_MOST_ROUNDS * size):
        removed = members.pop(0) if len(members) == size else None
        scores = information(chances.with_each(members))
        scores[members] = -np.inf
        new = int(np.argmax(scores))
        if removed is not None and scores[new] <= score:
            new = removed
        score = float(scores[new])
        members.append(new)
        unchanged = unchanged + 1 if new == removed else 0
        if unchanged == size:
            break
    return members
