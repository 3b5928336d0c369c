"""Few answers whose removal changes who leads.

The choice is greedy by influence (Broderick, Giordano & Meager 2020, "An automatic finite-sample
robustness metric"), which is computed again as answers are removed, and confirmed by a refit. Sites
of the other answers are kept in the choice: without an answer with the row a and the site (τ, ν),
the posterior precision is Λ − τ a aᵀ and the shift Λm − ν a.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import counted, listed
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.rows import SparseRows
from relpref.posterior.gaussian import Floats
from relpref.posterior.tables import rows_of

_TRIED = 3  # pairs of items, and raters, lists or groups, that are tried
_TIED = 1e-3  # differences that count as ties, in sds: those of an equal fit may be rounding
_REFITS = 5  # while the refit does not confirm the choice
_STEPS = 25  # computations of the influence, about


@dataclass(frozen=True, eq=False, repr=False)
class Robustness:
    """Answers whose removal changes who is among the first.

    Attributes
    ----------
    answers : DataFrame
        The answers to remove, with their number in ``count``.
    number, total : int
        Number of answers to remove, and of all; a list or a group is one, and removed as a whole.
    before, after : tuple of labels
        The first items, best first, with all answers and in the refit without these.
    units : tuple of (str, label)
        ``"rater"``, ``"list"`` or ``"group"`` and its label, whose removal alone changes who is
        among the first in a refit.
    note : str
        What makes the result doubtful, empty if nothing does.
    """

    answers: pd.DataFrame
    number: int
    total: int
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    units: tuple[tuple[str, Any], ...]
    note: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether others are among the first in the refit."""
        return set(self.before) != set(self.after)

    def __repr__(self) -> str:
        before, after = listed(self.before, 3), listed(self.after, 3)
        units = "".join(f"; {kind} {label!r} is enough" for kind, label in self.units)
        note = f"; {self.note}" if self.note else ""
        if not self.confirmed:
            return f"Robustness(no removal of answers changes who is first: {before}{units}{note})"
        answers = counted(self.total, "answer")
        return f"Robustness({self.number:,} of {answers} removed: {after} first{units}{note})"


def robustness(posterior: Any, top: int = 1) -> Robustness:
    """Find few answers whose removal changes who leads, or who is among the first ``top`` items.

    Parameters
    ----------
    posterior : UtilityPosterior
        From EP or Laplace.
    top : int
        Number of first items, below the number of items.

    Returns
    -------
    Robustness
        Its ``number`` is an upper bound: fewer answers may do.

    Raises
    ------
    DataError
        If there are no answers, or no items below the first.
    UnsupportedProgramError
        If there is no covariance matrix or no site for each answer, or the program is unknown.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee")] * 3 + [("coffee", "tea")] * 2
    >>> relpref.diagnostics.robustness(relpref.fit(answers=answers)).number
    2
    """
    size, answers = posterior.data.num_items, counted(posterior.data.num_answers, "answer")
    if not 0 < top < size or not posterior.has_answers:
        raise DataError(
            f"robustness: top is {top}, and there are {counted(size, 'item')} and {answers}; it "
            "takes answers, and a number from 1 that is below that of the items"
        )
    posterior._known_origin("robustness")
    posterior._warn_if_not_converged()
    if posterior.large or not posterior.sites:
        raise UnsupportedProgramError(
            "robustness needs a covariance matrix and sites of the answers; fit fewer items, with "
            "EP or Laplace"
        )
    return _Removal(posterior, top).robustness()


class _Removal:
    """Removal of answers from a posterior.

    What is removed together is a unit: a copy of an answer, or a whole list or group. ``unit`` has
    the unit of each row of the answers and ``copies`` how many copies of it leave with the unit,
    shape (m,); ``limit`` is the number of times that each unit can be removed.
    """

    def __init__(self, posterior: Any, top: int) -> None:
        answers = posterior.data.comparisons
        self.posterior, self.top, self.effects = posterior, top, posterior._num_effects
        # Of a mixture the component that is nearest to the mean of all; the refit has them all.
        full = posterior.full
        nearest = int(np.argmin(np.linalg.norm(full.locations - full.mean(), axis=1)))
        self.precision, self.shift = (
            np.atleast_2d(posterior.sites[name])[nearest] for name in ("precision", "shift")
        )
        self.matrix = np.linalg.inv(full.scales[nearest])
        self.pull = self.matrix @ full.locations[nearest]
        self.columns, self.entries = rows_of(answers, self.effects)
        size = np.zeros(len(self.matrix))
        self.rows = SparseRows(self.columns, self.entries, size).matrix
        number = np.arange(len(self.columns))
        for column in (answers.list, answers.group):
            if column is not None:
                number = np.where(column >= 0, number.max() + 1 + column, number)
        self.unit = np.unique(number, return_inverse=True)[1]
        self.shared = number >= len(number)
        self.copies = np.where(self.shared, answers.count, 1)
        self.limit = np.ones(self.unit.max() + 1, dtype=np.int64)
        self.limit[self.unit[~self.shared]] = answers.count[~self.shared]
        self.start = self.rows @ full.locations[nearest]
        self.before = self.first(posterior)

    def robustness(self) -> Robustness:
        posterior, labels = self.posterior, self.posterior.data.labels
        others = np.setdiff1d(np.arange(len(labels)), self.before)
        inside, outside = (each.ravel() for each in np.meshgrid(self.before, others))
        gaps = posterior.belief.differences(inside, outside)
        self.margin = _TIED * float(gaps.sd.max())
        near = np.argsort(gaps.mean / np.maximum(gaps.sd, 1e-12), kind="stable")[:_TRIED]
        pairs = [(inside[at], outside[at], gaps.mean[at] + self.margin) for at in near]
        nothing = np.zeros(len(self.limit), dtype=np.int64)
        choices = [self.choose(*pair, nothing) for pair in pairs]
        best = min(range(len(pairs)), key=lambda at: choices[at].sum() or np.inf)
        (ahead, behind, _), removed, confirmed = pairs[best], choices[best], False
        for _ in range(_REFITS):
            if confirmed or not removed.any():
                break
            refit = self.without(self.answers(removed))
            confirmed = self.differs(refit)
            if not confirmed:
                means = refit.belief.mean()
                gap = means[ahead] - means[behind] + self.margin
                removed = self.choose(ahead, behind, gap, removed)
        note = ""
        if not confirmed:
            note = "a change was expected, but no refit confirmed it" if removed.any() else ""
            removed, refit = nothing, posterior
        elif (groups := len(set(refit.data.groups()))) > len(set(posterior.data.groups())):
            note = f"nothing else connects {groups} groups of items, so this rests on the prior"
        before, after = (tuple(labels[at] for at in self.first(p)) for p in (posterior, refit))
        units = self.units(ahead, behind, nothing)
        total = int(self.limit.sum())
        return Robustness(
            self.answers(removed), int(removed.sum()), total, before, after, units, note
        )

    def without(self, answers: pd.DataFrame) -> Any:
        """Posterior without some answers; its warnings do not concern the caller."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return self.posterior.update(withdraw=answers)

    def first(self, posterior: Any) -> Any:
        """Positions of the first items, best first."""
        return np.argsort(-posterior.belief.mean(), kind="stable")[: self.top]

    def differs(self, posterior: Any) -> bool:
        """Whether another item is among the first, and is not tied with the one it replaces.

        A fit that did not converge says nothing.
        """
        means = posterior.belief.mean()
        others = np.delete(means, self.before)
        further = others.max() - means[self.before].min() > 0.5 * self.margin
        return bool(posterior.converged and further)

    def answers(self, removed: Any) -> pd.DataFrame:
        """Table of the answers of units that are removed so many times, shape (u,)."""
        count = removed[self.unit] * self.copies
        labels = self.posterior.data.labels
        return self.posterior.data.comparisons.with_counts(count, labels).written(labels)

    def influence(self, ahead: int, behind: int, removed: Any) -> tuple[float, Floats]:
        """Gap of two items, and by how much removing each unit once more lowers it, shape (u,)."""
        count = removed[self.unit] * self.copies
        alone = np.where(self.shared, 0.0, self.precision)
        # A list or a group moves the mean by the sites of its rows at the start alone.
        pull = self.shift - np.where(self.shared, self.precision * self.start, 0.0)
        matrix = self.matrix - (self.rows.T * (count * alone)) @ self.rows
        covariance = np.linalg.inv(matrix)
        mean = covariance @ (self.pull - self.rows.T @ (count * pull))
        ahead, behind = ahead + self.effects, behind + self.effects
        spread = covariance[self.columns[:, :, None], self.columns[:, None, :]]
        variance = np.einsum("mij,mi,mj->m", spread, self.entries, self.entries)
        lower = self.rows @ (covariance[ahead] - covariance[behind])
        lower *= (pull - alone * (self.rows @ mean)) / np.maximum(1 - alone * variance, 1e-3)
        units = np.bincount(self.unit, lower * self.copies).astype(np.float64)
        return float(mean[ahead] - mean[behind]), units

    def choose(self, ahead: int, behind: int, gap: float, removed: Any) -> Any:
        """Numbers of removals of each unit that close the gap, ``removed`` among them; (u,).

        They are all 0 if no removal closes it.
        """
        removed, goal, step = removed.copy(), None, 0
        while True:
            now, lower = self.influence(ahead, behind, removed)
            goal = now - gap if goal is None else goal
            if now < goal:
                return removed
            order = np.argsort(-lower, kind="stable")
            times = np.where(lower[order] > 0, self.limit[order] - removed[order], 0)
            closed = np.cumsum(times * lower[order])
            if not times.any():
                return np.zeros_like(removed)
            last = int(np.searchsorted(closed, now - goal, side="right"))
            if last < len(order):
                before = closed[last] - times[last] * lower[order[last]]
                times[last] = min(int((now - goal - before) / lower[order[last]]) + 1, times[last])
                times[last + 1 :] = 0
            step = step or -(-int(times.sum()) // _STEPS)
            removed[order] += np.clip(step - (np.cumsum(times) - times), 0, times)

    def units(self, ahead: int, behind: int, nothing: Any) -> tuple[tuple[str, Any], ...]:
        """Raters, lists and groups that change who is first if they are left out."""
        data, alone = self.posterior.data, list[tuple[str, Any]]()
        answers = data.comparisons
        share = np.where(self.shared, 1, answers.count) / np.bincount(self.unit)[self.unit]
        lower = share * self.influence(ahead, behind, nothing)[1][self.unit]
        for kind in ("rater", "list", "group"):
            column, labels = getattr(answers, kind), getattr(answers, f"{kind}s")
            if column is None or len(labels) < 2:
                continue
            labeled = column >= 0
            sums = np.bincount(column[labeled], lower[labeled], len(labels))
            for at in np.argsort(-sums, kind="stable")[:_TRIED]:
                chosen = answers.with_counts(answers.count * (column == at), data.labels)
                if self.differs(self.without(chosen.written(data.labels))):
                    alone.append((kind, labels[at]))
        return tuple(alone)
