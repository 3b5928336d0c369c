"""Decisions about further questions: when to stop, their expected gain, and their reason."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import owens_t

from relpref.data.arrays import counted, shown
from relpref.errors import DataError
from relpref.explore.choose import Limits, plan, score_of, whole_number
from relpref.explore.forecast import Belief, Floats, Pool
from relpref.explore.scores import DEFAULT, Score
from relpref.infer import UtilityPosterior
from relpref.limits import MAX_FORECAST_ANSWERS, MAX_ITEMS_OF_GAIN
from relpref.posterior.summary import percent

GOAL = 0.1  # of the pairs in the wrong order
# Share of the errors: where the next n/2 answers gain less, further ones will not reach the goal.
_MIN_GAIN = 0.05


@dataclass(frozen=True)
class ExpectedGain:
    """Errors of the order now, and expected errors after further answers.

    Attributes
    ----------
    answers : int
        Number of further answers; fewer than asked for where fewer questions are left.
    wrong_now, wrong_after : float
        Expected share of the pairs whose order, by the posterior means, is wrong, now and after
        these answers; between 0 and 1/2. With ``top`` the expected share of the leading items that
        do not belong there, between 0 and 1.
    all_items : bool
        Whether the pairs are those of all items; with too many items for a matrix, they are those
        of the candidates, see `next_pairs`.
    goal : float
        Share at which enough is known.
    missing : int or None
        Approximate number of further answers that reach the goal; 0 if it is reached, None if the
        number is unknown or they will not reach it.
    stalled : bool
        Whether further answers will not reach the goal: the next n/2 for n items are expected to
        gain less than 5 % of ``wrong_now`` (ties, for example, are never decided), or too few
        questions are left.
    top : int, optional
        Number of best items to be known, instead of the order of all.
    few : bool
        Whether too few questions are left, although each is expected to gain something.
    """

    answers: int
    wrong_now: float
    wrong_after: float
    all_items: bool = True
    goal: float = GOAL
    missing: int | None = None
    stalled: bool = False
    top: int | None = None
    few: bool = False

    @property
    def gain(self) -> float:
        return self.wrong_now - self.wrong_after

    def enough(self) -> bool:
        """Whether the goal is reached."""
        return self.wrong_now <= self.goal

    @property
    def finding(self) -> str:
        """Errors of the order now, in words without a full stop."""
        now = _share(self.wrong_now).capitalize()
        if self.top is not None:
            among = "" if self.all_items else " of the candidates"
            lead = "the one that leads" if self.top == 1 else f"the {self.top} that lead"
            best = "the best" if self.top == 1 else f"the best {self.top}"
            return f"{now} of {lead} are expected not to be among {best}{among}"
        pairs = "all pairs" if self.all_items else "the candidates' pairs"
        return f"{now} of {pairs} are expected to be in the wrong order"

    @property
    def sentence(self) -> str:
        """Errors of the order now and after more answers, and the missing answers, in words."""
        goal = f"the goal of {100 * self.goal:g}%"
        now = f"{self.finding}, which reaches {goal}" if self.enough() else self.finding
        if not self.answers:
            return f"{now}; no new pair is left."
        after = _share(self.wrong_after)
        same = after == _share(self.wrong_now)
        change = "change that little" if same else f"bring that to {after}"
        after = f"{counted(self.answers, 'more answer')} would {change}."
        if self.enough():
            return f"{now}: you can stop here. {after}"
        if self.few:
            return f"{now}; {after} The new pairs are too few to reach {goal}."
        if self.stalled:
            return f"{now}; {after} That is too slow to say when {goal} is reached."
        if self.missing is None:
            return f"{now}; {after}"
        return f"{now}; {after} About {rounded(self.missing):,} more would reach {goal}."


def _share(value: float) -> str:
    return "less than 0.1%" if value < 0.0005 else f"about {value:.1%}"


def expected_gain(
    posterior: UtilityPosterior,
    answers: int = 10,
    *,
    goal: float = GOAL,
    top: int | None = None,
    score: str | Score = DEFAULT,
    rater: Any = None,
    rng_key: Any = None,
    **limits: Any,
) -> ExpectedGain:
    """Estimate the errors of the order, and what further answers are expected to gain.

    Parameters
    ----------
    posterior : UtilityPosterior
    answers : int
        Number of further answers.
    goal : float
        Largest expected share of pairs in the wrong order at which enough is known; above 0 and
        below 1/2.
    top : int, optional
        Ask for the best K instead: the goal is for the expected share of the K leading items that
        are not among the best K.
    score, rater, rng_key, **limits
        How questions are chosen, as in `next_pairs`; of more than 1000 items ``rng_key`` also draws
        those whose pairs stand for all.

    Notes
    -----
    With gap mean m and variance v now and v' after the answers, the mean then is N(m, v − v'), seen
    from now. The probability that it then is on the wrong side of 0 is
    ``2 T(|m|/√v, √(v'/(v − v')))``, T Owen's function; before any answer it is ``Φ(−|m|/√v)``. The
    answers are those of a batch: questions that are chosen answer by answer may do better.

    With ``top`` the gaps are those between each item and the average utility of two items: the last
    among the best and the next, by their means now.

    ``missing`` is read off the curve w/(1 + a/b)², w being the share now, through the share after a
    batch of n/2 answers (4 at least, 50 at most; of more than 1000 items after ``answers``).

    Raises
    ------
    DataError, UnknownLabelError
        If an argument cannot be used, see `next_pairs`; if the goal is no share, or there are not
        more than ``top`` items.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> gain = relpref.explore.expected_gain(posterior, answers=2)
    >>> gain.enough()
    False
    """
    whole_number("answers", answers, 1)
    check_goal(goal)
    soon = max(posterior.data.num_items // 2, 4)
    few = posterior.data.num_items <= MAX_ITEMS_OF_GAIN  # of more, each question takes long
    ahead = max(answers, min(soon, MAX_FORECAST_ANSWERS)) if few else answers
    chosen = plan(posterior, ahead, score, Limits(**limits), rater, rng_key)
    n = len(chosen.before.mean)
    check_top(top, n)
    everyone = np.arange(n)
    if n > MAX_ITEMS_OF_GAIN:
        rng = posterior._rng(rng_key)
        everyone = np.sort(rng.choice(n, MAX_ITEMS_OF_GAIN, replace=False))
    pool = Pool(everyone, np.zeros((2, 0), dtype=np.int64))
    asked = len(chosen.questions)
    answers = min(answers, asked)
    shares = {
        number: _wrong_pairs(chosen.before, after, pool)
        if top is None
        else _wrong_members(chosen.before, after, top)
        for number, after in enumerate(chosen.beliefs())
        if number in (0, answers, asked)
    }
    now, left = shares[0] or 1.0, chosen.left
    missing, slow = _outlook(shares[asked] / now, asked, goal / now, min(soon, left))
    few = missing is not None and missing > left
    return ExpectedGain(
        answers,
        shares[0],
        shares[answers],
        all_items=chosen.posterior.data.num_items == posterior.data.num_items,
        goal=goal,
        missing=None if few else missing,
        stalled=slow or few,
        top=top,
        few=few,
    )


def _outlook(end: float, asked: int, goal: float, soon: int) -> tuple[int | None, bool]:
    """Estimate the number of missing answers, and whether more gain too little.

    The shares are relative to now: ``end`` after ``asked`` answers, and ``goal``. The next ``soon``
    answers must gain something.
    """
    if goal >= 1:
        return 0, False
    if not asked or end >= 1:
        return None, True
    # w/(1 + a/b)²: b by the share after the answers that were looked at.
    b = asked / (max(end, 1e-12) ** -0.5 - 1)
    missing = b * (goal**-0.5 - 1)
    if 1 - (1 + soon / b) ** -2 < _MIN_GAIN:
        return None, True
    return int(np.ceil(missing)), False


def rounded(number: int) -> int:
    """Round to about one and a half digits."""
    step = next(
        size
        for most, size in ((10, 1), (50, 5), (200, 10), (1000, 50), (np.inf, 100))
        if number < most
    )
    return max(step * round(number / step), 1)


def check_goal(goal: float) -> float:
    """Refuse a goal that is no share."""
    if not 0 < goal < 0.5:
        raise DataError(
            f"goal is {goal!r}; it is a share of all pairs, above 0 and below 0.5, such as 0.1"
        )
    return goal


def check_top(top: int | None, number: int) -> None:
    """Refuse a number of best items that is not below the number of all."""
    if top is not None:
        whole_number("top", top, 1)
        if top >= number:
            raise DataError(f"top is {top}; among {number} items it must be below {number}")


def _wrong_members(before: Belief, after: Belief, top: int) -> float:
    """Expected share of the ``top`` leading items that do not belong there, seen from before."""
    _, _, mean, variance = before.boundary(top)
    rest = after.boundary(top)[3]
    # Each item that is wrongly in displaces one that is wrongly out.
    return float(_wrong(mean, np.maximum(variance, 0.0), np.maximum(rest, 0.0)).sum() / (2 * top))


def _wrong_pairs(before: Belief, after: Belief, pool: Pool) -> float:
    """Expected share of the pool's pairs that are in the wrong order after, seen from before."""
    total, number = 0.0, 0
    for (gaps, closed), (left, _) in zip(pool.blocks(before), pool.blocks(after), strict=True):
        mean, variance, rest = (
            np.delete(x.ravel(), closed) for x in (gaps.mean, gaps.variance, left.variance)
        )
        total += float(_wrong(mean, variance, rest).sum())
        number += len(mean)
    return total / number if number else 0.0


def _wrong(mean: Floats, variance: Floats, rest: Floats) -> Floats:
    """Probability of the wrong sign after answers, averaged over them; 0 for v = 0.

    ``rest`` is the variance v' after these answers.
    """
    sd = np.sqrt(variance)
    learned = np.maximum(variance - rest, 0.0)
    z = np.divide(np.abs(mean), sd, out=np.full(sd.shape, np.inf), where=sd > 0)
    slope = np.divide(rest, learned, out=np.full(sd.shape, np.inf), where=learned > 0)
    finite = np.isfinite(z)
    # Sheppard's formula is the case m = 0.
    return np.where(finite, 2 * owens_t(np.where(finite, z, 0.0), np.sqrt(slope)), 0.0)


def why(posterior: UtilityPosterior, first: Any, second: Any, score: str | Score = DEFAULT) -> str:
    """Explain in two sentences, to the rater, why a question about two labels is asked.

    Raises
    ------
    UnknownLabelError
        If a label is no item.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> sentence = relpref.explore.why(posterior, "tea", "coffee")
    """
    reason = score_of(score).reason
    better = float(posterior.prefer([(first, second)])["p_better"].iloc[0])
    if abs(better - 0.5) < 0.05:
        belief = "So far nothing tells which of the two is the better"
    else:
        label = first if better > 0.5 else second
        belief = (
            f"So far {shown(label)} is thought to be the better with a probability of "
            f"{percent(max(better, 1 - better))}"
        )
    certain = ""
    if abs(better - 0.5) > 0.45:
        certain = (
            " Little can be learned from so likely an answer, but no other pair scored higher."
        )
    return f"{belief}. This pair was chosen because {reason}.{certain}"
