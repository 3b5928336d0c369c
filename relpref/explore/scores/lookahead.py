"""Two questions ahead."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relpref.explore.scores.gap_scores import MANY, Scorer, State
from relpref.explore.scores.gaps import Gaps
from relpref.infer.belief import Floats


@dataclass(frozen=True)
class LookAhead:
    """Information of an answer and, on average over its outcomes, of the best question after it, in nats.

    By the chain rule that is what the two answers tell together. Both questions are sought among those whose own information is the
    largest.
    """

    name: ClassVar[str] = "look_ahead"
    reason: ClassVar[str] = "its answer and the question after it are expected to tell most together"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY
    few: ClassVar[int] = 384

    def scorer(self, state: State) -> Scorer:
        """Quickly by the information of one answer."""

        def value(gaps: Gaps) -> Floats:
            first = state.answers.forecast(gaps.mean, gaps.variance)
            response = state.belief.responses(gaps)
            joint = response[:, gaps.first] - response[:, gaps.second]  # covariance of the gaps
            expected = np.zeros(len(gaps.mean))
            for probability, gradient, curvature in zip(
                first.probability, first.gradient, first.curvature, strict=True
            ):
                mean = gaps.mean + gradient[:, None] * joint
                variance = np.maximum(gaps.variance - curvature[:, None] * np.square(joint), 0.0)
                second = np.array(state.answers.information(Gaps(gaps.first, gaps.second, mean, variance)))
                np.fill_diagonal(second, 0.0)  # not the same question again
                expected += probability * second.max(axis=1)
            return np.asarray(first.information + expected)

        return Scorer(state.answers.information, value, self.few)
