"""Choice of the next question about several items, "which of these is the best?"."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, xlogy

from relpref.data.arrays import shown
from relpref.errors import DataError, UnsupportedProgramError
from relpref.explore.choose import Asked, Limits, narrowed, whole_number
from relpref.explore.forecast import Floats
from relpref.infer import UtilityPosterior
from relpref.likelihoods.answers import GROUP_SD
from relpref.likelihoods.chances import NOISE
from relpref.posterior.lists import require_lists

_DRAWS, _MORE_DRAWS = 256, 4000  # for the search, and for the score of the result
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
    """Choose sets of items whose best should be asked for next, the most informative set first.

    Parameters
    ----------
    posterior : UtilityPosterior
        Posterior whose likelihood has lists, `Probit` or `Logistic`.
    size : int
        Number of items in a set, 2 or more.
    k : int
        Number of sets; no two of them have an item in common.
    items : iterable of labels, optional
        Ask about these only. If they are as many as ``size``, this set is scored.
    rng_key : JAX key or int, optional
        Key for draws of the utilities; the posterior's own by default.

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
        If the likelihood has no lists, or is logistic and groups share effects.

    Notes
    -----
    The information is H(E p) − E H(p), with p the probabilities of the items at utilities drawn
    from the posterior and H the entropy. A set grows item by item; then each item is exchanged for
    the best one until none is better. The set is the best within one exchange, not among all sets.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> question = relpref.explore.next_choices(posterior, 3)
    """
    whole_number("size", size, 2)
    whole_number("k", k, 1)
    require_lists(posterior)
    rng = posterior._rng(rng_key)
    posterior, limits, _ = narrowed(posterior, Limits(items), rng)
    likelihood: Any = posterior.likelihood
    data = posterior.data
    open_ = Asked(data, limits).pool().members
    if len(open_) < size:
        raise DataError(f"size is {shown(size)}; there are {len(open_)} items to choose among")
    lapse, noise = posterior.hyperparameters.get("lapse", 0.0), likelihood.noise
    # Each item has an effect in the new group besides its utility: more noise of the choice.
    total = np.hypot(1.0, float(posterior.hyperparameters.get(GROUP_SD, 0.0)))
    if total > 1 and noise == "logistic":
        raise UnsupportedProgramError(
            "what a choice tells is unknown where groups share effects and noise is logistic; "
            "leave the column 'group' out, or take the likelihood Probit()"
        )
    sets: list[tuple[tuple[Any, ...], float]] = []
    while len(sets) < k and len(open_) >= size:
        draws = posterior.belief.subset(open_).draw(_DRAWS, rng) / total
        best = open_[np.sort(_search(Chances(draws, noise, lapse), size))]
        draws = posterior.belief.subset(best).draw(_MORE_DRAWS, rng) / total
        chances = Chances(draws, noise, lapse).with_each(list(range(size - 1)))[-1:]
        sets.append((tuple(data.labels[item] for item in best), float(information(chances)[0])))
        open_ = np.setdiff1d(open_, best)
    return pd.DataFrame(sets, columns=["items", "score"])


def information(chances: Floats) -> Floats:
    """Information of n choices about the utilities, in nats, shape (n,).

    ``chances`` are the probabilities of the q items at s draws of the utilities, shape (n, s, q).
    """
    expected = chances.mean(axis=1)
    entropies = -xlogy(chances, chances).sum(axis=2)
    return np.asarray(-xlogy(expected, expected).sum(axis=1) - entropies.mean(axis=1))


class Chances:
    """Probabilities of choices among n items at s draws of their utilities, shape (s, n)."""

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
        """Probabilities in the set of the members and each item, the last; shape (n, s, q + 1)."""
        if self.logistic:
            weights = self.weight[members]
            total = weights.sum(axis=0) + self.weight
            shares = [*(weight / total for weight in weights), self.weight / total]
        else:
            shares = []
            for member in members:
                others = [other for other in members if other != member]
                density = self.density[member] * np.prod(self.below[others], axis=0)
                shares.append(np.einsum("sg,nsg->ns", density, self.below))
            all_below = np.prod(self.below[members], axis=0)
            shares.append(np.einsum("sg,nsg->ns", all_below, self.density))
        chances = np.stack(shares, axis=2)
        return np.asarray((1 - self.lapse) * chances + self.lapse / chances.shape[2])


def _search(chances: Chances, size: int) -> list[int]:
    """Search a set that no exchange of one item makes more informative."""
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
