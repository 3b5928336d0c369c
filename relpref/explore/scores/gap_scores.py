"""What makes a pair worth asking about: scores of gaps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtr

from relpref.explore.scores.answers import Answers, Singles
from relpref.explore.scores.gaps import Belief, Gaps, Pool
from relpref.infer.belief import Floats

MANY = 5000  # entities: 12.5 million pairs

Values = Callable[[Gaps], Floats | Singles]


@dataclass(frozen=True)
class State:
    """What a score may look at.

    Attributes
    ----------
    belief : Belief
        About the utilities, with what the questions before in a batch are expected to change.
    now : Belief
        Without that.
    answers : Answers
        What an answer tells.
    pool : Pool
        The pairs that may be asked.
    """

    belief: Belief
    now: Belief
    answers: Answers
    pool: Pool


class Scorer(NamedTuple):
    """A score at one state of knowledge; the larger, the better the question.

    Attributes
    ----------
    quick : callable
        Of any number of pairs; it only needs to find the best few.
    exact : callable
        Of those few, shape (k,).
    few : int
        How many those are.
    """

    quick: Values
    exact: Values
    few: int = 128


@runtime_checkable
class Score(Protocol):
    """A score of questions."""

    name: ClassVar[str]
    reason: ClassVar[str]  # why a pair that it chose is asked about, for the one who answers
    about_the_best: ClassVar[
        bool
    ]  # where there are too many entities, those with high utilities matter, not the uncertain ones
    most_entities: ClassVar[int]  # of which all pairs are looked at

    def scorer(self, state: State) -> Scorer:
        """At a state of knowledge."""


@dataclass(frozen=True)
class Random:
    """All pairs are equally good."""

    name: ClassVar[str] = "random"
    reason: ClassVar[str] = "it was drawn at random"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """Ties are broken at random."""

        def nothing(gaps: Gaps) -> Floats:
            return np.zeros(gaps.mean.shape)

        return Scorer(nothing, nothing)


@dataclass(frozen=True)
class Variance:
    """Variance of the gap."""

    name: ClassVar[str] = "variance"
    reason: ClassVar[str] = "the difference between the two is what the model knows least about"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """As it is."""
        return Scorer(_variance, _variance)


@dataclass(frozen=True)
class Ratio:
    """Variance over the square of the mean of the gap (XPGP section 5); infinite where the mean is 0."""

    name: ClassVar[str] = "ratio"
    reason: ClassVar[str] = "for how uncertain the model is, the two are closest to each other"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """As it is."""
        return Scorer(_ratio, _ratio)


@dataclass(frozen=True)
class Bald:
    """Mutual information of answer and gap, in nats (Houlsby et al. 2011, "Bayesian active learning by disagreement")."""

    name: ClassVar[str] = "bald"
    reason: ClassVar[str] = "its answer is expected to tell more about the two than that of any other pair"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """From a table first, then exactly."""
        return Scorer(state.answers.information, lambda gaps: information(state.answers, gaps))


@dataclass(frozen=True)
class Eubo:
    """Expected utility of the better of the two, E max(uᵢ, uⱼ), above the average of all means (Lin et al. 2022)."""

    name: ClassVar[str] = "eubo"
    reason: ClassVar[str] = "the better of the two is expected to be better than that of any other pair"
    about_the_best: ClassVar[bool] = True
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """In closed form: ½(mᵢ + mⱼ) + m(Φ(m/s) − ½) + s φ(m/s), with m and s of the gap (Clark 1961)."""
        mean = state.belief.mean - state.belief.mean.mean()

        def value(gaps: Gaps) -> Floats:
            sd = np.sqrt(gaps.variance)
            z = np.divide(gaps.mean, sd, out=np.full(sd.shape, np.inf), where=sd > 0)
            density = np.exp(-0.5 * np.square(z)) / np.sqrt(2 * np.pi)
            certain = np.abs(gaps.mean) / 2
            better = np.where(sd > 0, gaps.mean * (ndtr(z) - 0.5) + sd * density, certain)
            return 0.5 * (mean[gaps.first] + mean[gaps.second]) + better

        return Scorer(value, value)


def information(answers: Answers, gaps: Gaps) -> Floats:
    """Mutual information of answer and gap, in nats."""
    return np.asarray(answers.forecast(gaps.mean, gaps.variance).information)


def _variance(gaps: Gaps) -> Floats:
    return gaps.variance


def _ratio(gaps: Gaps) -> Floats:
    square = np.square(gaps.mean)
    # A mean that is 0 but for rounding is 0: otherwise the digits that are lost would choose the question.
    square *= square > 1e-20 * gaps.variance
    certain = gaps.variance == 0
    return np.divide(gaps.variance, square, out=np.where(certain, 0.0, np.inf), where=(square > 0) & ~certain)
