"""Predictions of answers by fits without them, and measures of their quality."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted
from relpref.errors import DataError
from relpref.posterior.gaussian import Floats

FIRST, NEITHER, SECOND = 0, 1, 2
_ROUNDING = 1e-9  # largest difference of probabilities that count as equal


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut:
    """Predictions of every answer by a fit without it.

    Attributes
    ----------
    table : DataFrame
        One row for each distinct answer: the answer (a reported probability is in ``reported``; a
        list is shown by its first pair and its label in ``list``, a tuple if equal lists had
        several), its held-out ``probability`` (the density for numbers) and the logarithm
        ``log_score``. Comparisons have ``p_first``, ``p_second`` and, if there are
        ties, ``p_tie``; the first is the item in the first column. Classes have ``p_<class>``, and
        scores of a relation ``mean`` and ``sd`` of the label. Reweighted draws have ``k_hat``: a
        row above `relpref.infer.smoothing.threshold`, at most 0.7, is unreliable.
    method : str
        Name of the way in which the answers were held out.
    notes : tuple of str
    chances : array, shape (m, c)
        Probabilities of the categories: the first, neither, the second; or the classes. NaN for
        numbers.
    outcome : array of int, shape (m,)
        Category of the answer; −1 for numbers.
    paired : bool
        Whether the categories are those of comparisons; yes and no count as the first and the
        second.
    single : array of bool, shape (m,) or (0,)
        Answers that compare nothing, so that the two categories cannot be exchanged. If it is empty
        all rows are as ``paired`` says.
    moments : array, shape (3, m) or (3, 0)
        Mean, variance and third central moment of the log score of a random answer, if the
        predictions are right; NaN if the other possible answers are unknown. Empty after k-fold.
    """

    table: pd.DataFrame
    method: str
    notes: tuple[str, ...] = ()
    chances: Floats = field(default_factory=lambda: np.empty((0, 0)))
    outcome: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    paired: bool = False
    single: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))
    moments: Floats = field(default_factory=lambda: np.empty((3, 0)))

    @property
    def weight(self) -> Floats:
        """Number of answers in each row, shape (m,)."""
        if "count" in self.table:
            return self.table["count"].to_numpy(dtype=np.float64)
        return np.ones(len(self.table))

    @property
    def num_answers(self) -> int:
        """Number of answers, repeated ones included."""
        return round(float(self.weight.sum()))

    @property
    def elpd(self) -> float:
        """Sum of the log scores: the expected log predictive density of as many new answers."""
        return float(self.weight @ self.log_scores)

    @property
    def elpd_se(self) -> float:
        """Standard error of `elpd` over answers like these; NaN for one answer."""
        return self.num_answers * average(self.log_scores, self.weight)[1]

    @property
    def log_loss(self) -> float:
        """Average of −log probability; 0.693 for a coin, and possibly negative for numbers."""
        return -average(self.log_scores, self.weight)[0]

    @property
    def brier(self) -> float:
        """Average of half the squared distance from the outcome: (1 − p)² without ties."""
        return self._measured(HeldOut._squared)[0]

    @property
    def accuracy(self) -> float:
        """Share of answers in the more probable category; equals count ½, ties are left out."""
        return self._measured(HeldOut._correct)[0]

    @property
    def auc(self) -> float:
        """Area under the receiver operating characteristic.

        Probability that of two answers, one in a category and one not, the first had the higher
        predicted probability of the category. Comparisons with a winner are ranked by the
        difference of the two probabilities, from both sides. With several classes the average over
        the classes.
        """
        from sklearn.metrics import roc_auc_score

        forecasts = self.forecasts
        if forecasts is None:
            return float("nan")
        scores, hits, weight = forecasts.chances, forecasts._hits, forecasts.weight
        if self.paired:
            won = forecasts.outcome != NEITHER
            both = won & ~forecasts.single
            lead = scores[:, FIRST] - scores[:, SECOND]
            lead = np.where(np.abs(lead) < _ROUNDING, 0.0, lead)
            scores = np.append(lead[won], -lead[both])[:, None]
            weight = np.append(weight[won], weight[both])
            hits = np.append(hits[won, FIRST], hits[both, SECOND])[:, None]
        elif scores.shape[1] == 2:
            scores, hits = scores[:, 1:], hits[:, 1:]
        areas = [
            roc_auc_score(hit, score, sample_weight=weight)
            for hit, score in zip(hits.T, scores.T, strict=True)
            if hit.any() and not hit.all()
        ]
        return float(np.mean(areas)) if areas else float("nan")

    def reliability(self, bins: int = 10) -> pd.DataFrame:
        """Compare predicted probabilities with the shares of cases in which the event happened.

        Parameters
        ----------
        bins : int
            Number of bins of equal width.

        Returns
        -------
        DataFrame
            One row for each bin: ``lower``, ``upper``; ``predicted``, the average probability;
            ``observed``, the share of cases in which the event happened; ``count`` of forecasts in
            the bin (two for each comparison, that the first and that the second is preferred, or
            one for each class); ``se``, the standard deviation of ``observed`` if all forecasts
            were right. NaN in an empty bin.

        Raises
        ------
        DataError
            If answers are numbers, or ``bins`` is below 1.
        """
        if bins < 1:
            raise DataError(f"bins is {bins}; give at least 1")
        forecasts = self.forecasts
        if forecasts is None:
            raise DataError("the answers are numbers without probabilities; look at log_score")
        events, weight = forecasts._events, forecasts.weight
        chances, hits = forecasts.chances[:, events], forecasts._hits[:, events]
        bin_of = np.minimum((chances * bins + _ROUNDING).astype(int), bins - 1)
        inside = bin_of == np.arange(bins)[:, None, None]
        count = inside.sum(axis=2) @ weight
        predicted = (inside * chances).sum(axis=2)
        # An answer with both events in one bin adds less variance there: at most one happens.
        variance = np.maximum(predicted - np.square(predicted), 0.0) @ weight
        lower = np.arange(bins)
        with np.errstate(invalid="ignore"):
            columns = {
                "lower": lower / bins,
                "upper": (lower + 1) / bins,
                "predicted": predicted @ weight / count,
                "observed": (inside & hits).sum(axis=2) @ weight / count,
                "count": count,
                "se": np.sqrt(variance) / count,
            }
        return pd.DataFrame(columns)

    def summary(self) -> pd.DataFrame:
        """Table of the measures.

        Returns
        -------
        DataFrame
            By measure: ``value``, its standard error ``se`` over answers like these, and
            ``baseline``, the value of a forecast by the overall shares of ties or classes; NaN if
            some answers are numbers.
        """
        forecasts, nothing = self.forecasts, float("nan")
        loss, error = average(-self.log_scores, self.weight)
        rows = {"elpd": (self.elpd, self.elpd_se, nothing), "log_loss": (loss, error, nothing)}
        if forecasts is not None:
            base, complete = forecasts._baseline(), len(forecasts.outcome) == len(self.outcome)
            # Strengths of preference and numbers are scored by more than the categories.
            if complete and np.allclose(forecasts._chosen(), self.log_scores):
                rate = float(base.weight @ base._chosen())
                rows["elpd"] = (*rows["elpd"][:2], rate)
                rows["log_loss"] = (loss, error, -rate / max(self.num_answers, 1))
            for name, measure in (("brier", HeldOut._squared), ("accuracy", HeldOut._correct)):
                rows[name] = (*forecasts._measured(measure), base._measured(measure)[0])
            rows["auc"] = (self.auc, nothing, 0.5)
        columns = ["value", "se", "baseline"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("measure")

    @property
    def forecasts(self) -> "HeldOut | None":
        """Rows whose answers are categories; None if there are none."""
        rows = self.outcome >= 0
        if not rows.any():
            return None
        single = self.single if self.single.size else np.full(len(rows), not self.paired)
        return replace(
            self,
            table=self.table[rows],
            chances=self.chances[rows],
            outcome=self.outcome[rows],
            single=single[rows],
        )

    def _measured(self, measure: Callable[["HeldOut"], Floats]) -> tuple[float, float]:
        """Average of a measure over rows with categories, and its standard error; NaN without."""
        forecasts = self.forecasts
        if forecasts is None:
            return float("nan"), float("nan")
        values = measure(forecasts)
        defined = ~np.isnan(values)
        return average(values[defined], forecasts.weight[defined])

    @property
    def _events(self) -> list[int]:
        """Categories with forecasts of their own: all but ties."""
        return [FIRST, SECOND] if self.paired else list(range(self.chances.shape[1]))

    def _squared(self) -> Floats:
        """Half the squared distance of probabilities and outcome for each row."""
        return np.asarray(0.5 * np.square(self.chances - self._hits).sum(axis=1))

    def _correct(self) -> Floats:
        """1 if the most probable category was right, 1/k if k are equal, else 0; NaN for ties."""
        chances, hits = self.chances[:, self._events], self._hits[:, self._events]
        best = chances >= chances.max(axis=1, keepdims=True, initial=0.0) - _ROUNDING
        correct = (best & hits).sum(axis=1) / np.maximum(best.sum(axis=1), 1)
        return np.where(hits.any(axis=1), correct, np.nan)

    def _chosen(self) -> Floats:
        """Log probability of the answer's category for each row."""
        return np.asarray(np.log(self.chances[np.arange(len(self.outcome)), self.outcome]))

    def _baseline(self) -> "HeldOut":
        """Forecasts by the overall shares of the categories, which are equal for two of a pair."""
        chances = np.empty_like(self.chances)
        for rows, equal in ((~self.single, self.paired), (self.single, False)):
            rates = self.weight[rows] @ self._hits[rows] / max(self.weight[rows].sum(), 1.0)
            if equal:
                rates[[FIRST, SECOND]] = rates[[FIRST, SECOND]].mean()
            chances[rows] = rates
        return replace(self, chances=chances)

    @property
    def _hits(self) -> NDArray[np.bool_]:
        return self.outcome[:, None] == np.arange(self.chances.shape[1])

    @property
    def log_scores(self) -> Floats:
        """Column ``log_score``."""
        return self.table["log_score"].to_numpy(dtype=np.float64)

    def __repr__(self) -> str:
        number = counted(self.num_answers, "answer")
        return (
            f"HeldOut({self.method}, {number}: log loss {self.log_loss:.3f}, elpd "
            f"{self.elpd:.1f} ± {self.elpd_se:.1f})"
        )


def average(values: Floats, weight: Floats) -> tuple[float, float]:
    """Weighted average of values, and its standard error; weights are numbers of repeats."""
    number = weight.sum()
    mean = float(weight @ values / number) if number else float("nan")
    if not number > 1:
        return mean, float("nan")
    return mean, float(np.sqrt(weight @ np.square(values - mean) / (number - 1) / number))
