"""How good forecasts of categories were: by proper scores, by order, and by their reliability.

The categories of a comparison are the first, neither, and the second. What is named first is an accident of the table, so every
measure is the same with the two exchanged: where a measure is of one event, each answer counts for the first and for the second.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.infer.belief import Floats

FIRST, NEITHER, SECOND = 0, 1, 2
_ROUNDING = 1e-9  # in probabilities, which are equal within it


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Probabilities of c categories for m answers, and what was answered.

    Attributes
    ----------
    chances : array, shape (m, c)
    outcome : array of int, shape (m,)
        The category that it was.
    weight : array, shape (m,)
        How many answers each stands for.
    paired : bool
        Whether the categories are `FIRST`, `NEITHER` and `SECOND`.
    single : array of bool, shape (m,)
        Answers that are yes or no, where to exchange those two is no accident; all of them unless ``paired``.
    """

    chances: Floats
    outcome: NDArray[np.intp]
    weight: Floats
    paired: bool
    single: NDArray[np.bool_]

    def brier(self) -> Floats:
        """Half the squared distance of probabilities and outcome, of each answer: (1 − p)² where there are two categories."""
        return np.asarray(0.5 * np.square(self.chances - self._hits).sum(axis=1))

    def correct(self) -> Floats:
        """1 where the most probable category was answered, a share of it among equals; NaN for an answer for neither of two."""
        chances = self.chances[:, [FIRST, SECOND]] if self.paired else self.chances
        hits = self._hits[:, [FIRST, SECOND]] if self.paired else self._hits
        best = chances >= chances.max(axis=1, keepdims=True, initial=0.0) - _ROUNDING
        found = (best & hits).sum(axis=1) / np.maximum(best.sum(axis=1), 1)
        return np.where(hits.any(axis=1), found, np.nan)

    def auc(self) -> float:
        """Probability that of two answers, one in a category and one not, the first was given the higher probability of it.

        Of comparisons with a winner, seen from both sides, by how much more probable the one is than the other. Of several classes
        the average over the classes.
        """
        from sklearn.metrics import roc_auc_score

        scores, hits, weight = self.chances, self._hits, self.weight
        if self.paired:
            won = self.outcome != NEITHER
            both = won & ~self.single
            lead = scores[:, FIRST] - scores[:, SECOND]
            lead = np.where(np.abs(lead) < _ROUNDING, 0.0, lead)
            scores, weight = np.append(lead[won], -lead[both])[:, None], np.append(weight[won], weight[both])
            hits = np.append(hits[won, FIRST], hits[both, SECOND])[:, None]
        elif scores.shape[1] == 2:
            scores, hits = scores[:, 1:], hits[:, 1:]
        found = [
            roc_auc_score(hit, score, sample_weight=weight)
            for hit, score in zip(hits.T, scores.T, strict=True)
            if hit.any() and not hit.all()
        ]
        return float(np.mean(found)) if found else float("nan")

    def reliability(self, bins: int) -> pd.DataFrame:
        """See `relpref.diagnostics.HeldOut.reliability`."""
        events = [FIRST, SECOND] if self.paired else list(range(self.chances.shape[1]))
        chances, hits = self.chances[:, events], self._hits[:, events]
        place = np.minimum((chances * bins + _ROUNDING).astype(int), bins - 1)
        rows = []
        for number in range(bins):
            inside = place == number
            count = float(self.weight @ inside.sum(axis=1))
            predicted = (inside * chances).sum(axis=1)
            # An answer with both of its events in one bin is less uncertain there: at most one of them happens.
            variance = self.weight @ np.maximum(predicted - np.square(predicted), 0.0)
            with np.errstate(invalid="ignore"):
                rows.append(
                    {
                        "lower": number / bins,
                        "upper": (number + 1) / bins,
                        "predicted": self.weight @ predicted / np.float64(count),
                        "observed": self.weight @ (inside & hits).sum(axis=1) / np.float64(count),
                        "count": count,
                        "se": np.sqrt(variance) / np.float64(count),
                    }
                )
        return pd.DataFrame(rows)

    def baseline(self) -> "Forecasts":
        """What who knows only how often each category is answered would have said, the two of a pair being alike."""
        chances = np.empty_like(self.chances)
        pairs = ~self.single
        for rows in (pairs, self.single):
            rates = self.weight[rows] @ self._hits[rows] / max(self.weight[rows].sum(), 1.0)
            if self.paired and rows is pairs:
                rates[[FIRST, SECOND]] = rates[[FIRST, SECOND]].mean()
            chances[rows] = rates
        return replace(self, chances=chances)

    def log_scores(self) -> Floats:
        """Log probability of each category that was answered."""
        return np.asarray(np.log(self.chances[np.arange(len(self.outcome)), self.outcome]))

    @property
    def _hits(self) -> NDArray[np.bool_]:
        return self.outcome[:, None] == np.arange(self.chances.shape[1])
