"""How well answers were predicted by a fit that did not have them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.messages import counted
from relpref.diagnostics.predictive.scores import Forecasts
from relpref.errors import DataError
from relpref.infer.belief import Floats


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut:
    """Every answer as predicted by a fit without it.

    Attributes
    ----------
    table : DataFrame
        One row for each row of the data's answers, in its order: the answer as it was given (a probability that was reported is in
        ``reported``), ``probability`` (held out; the density, where answers are numbers) and its logarithm ``log_score``. Comparisons: ``p_first``, ``p_second`` and, where there are some,
        ``p_tie``; the first is who stands in the table's first column. Classes: ``p_<class>``. Scores of a relation: ``mean`` and
        ``sd`` of the label. ``k_hat`` where draws were reweighted: above `relpref.diagnostics.psis.threshold`, at most 0.7, the row is not to be relied on.
    method : str
        How the answers were held out.
    notes : tuple of str
        What is to be known of that.
    chances : array, shape (m, c)
        Of the categories: the first, neither, the second; or the classes. NaN where answers are numbers.
    outcome : array of int, shape (m,)
        The category that was answered; −1 where answers are numbers.
    paired : bool
        Whether the categories are those of comparisons; of a yes or no among them yes is the first, and no the second.
    composed : bool
        Whether answers are pairs of choices or orderings of which other pairs stayed. Those all but tell who won, so that no score is
        a measure of how well new answers are predicted.
    single : array of bool, shape (m,), or of no size where all are alike
        Answers that compare nothing, so that to exchange the first and the second would change what they say.
    """

    table: pd.DataFrame
    method: str
    notes: tuple[str, ...] = ()
    chances: Floats = field(default_factory=lambda: np.empty((0, 0)))
    outcome: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    paired: bool = False
    composed: bool = False
    single: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))

    @property
    def weight(self) -> Floats:
        """How many answers each row stands for, shape (m,)."""
        if "count" in self.table:
            return self.table["count"].to_numpy(dtype=np.float64)
        return np.ones(len(self.table))

    @property
    def num_answers(self) -> int:
        """How many answers there are, repeated ones included."""
        return round(float(self.weight.sum()))

    @property
    def elpd(self) -> float:
        """Sum of the log scores over all answers: the expected log predictive density of as many new ones."""
        return float(self.weight @ self._log_scores)

    @property
    def elpd_se(self) -> float:
        """Standard error of `elpd` over answers like these; NaN for one answer."""
        return self.num_answers * _mean(self._log_scores, self.weight)[1]

    @property
    def log_loss(self) -> float:
        """Average of −log probability; ln 2 = 0.693 is what tossing a coin gets. May be negative for numbers."""
        return _mean(-self._log_scores, self.weight)[0]

    @property
    def brier(self) -> float:
        """Average of half the squared distance between probabilities and what happened: (1 − p)² without ties."""
        return _average(self.forecasts, Forecasts.brier)[0]

    @property
    def accuracy(self) -> float:
        """Share of the answers whose more probable category was given; equals count one half, ties are left out."""
        return _average(self.forecasts, Forecasts.correct)[0]

    @property
    def auc(self) -> float:
        """Area under the receiver operating characteristic; of comparisons with each answer seen from both sides."""
        forecasts = self.forecasts
        return float("nan") if forecasts is None else forecasts.auc()

    def reliability(self, bins: int = 10) -> pd.DataFrame:
        """Whether what was predicted with probability p happened in a share p of the cases.

        Parameters
        ----------
        bins : int
            Of equal width.

        Returns
        -------
        DataFrame
            One row for each bin: ``lower``, ``upper``; ``predicted``, the average probability; ``observed``, how often it happened;
            ``count`` of forecasts in the bin (each answer gives two, that the first and that the second is preferred; or one for each
            class); ``se``, the standard deviation that ``observed`` would have if all forecasts were right. NaN in an empty bin.

        Raises
        ------
        DataError
            If answers are numbers, or ``bins`` is below 1.
        """
        if bins < 1:
            raise DataError(f"bins is {bins}; give at least 1")
        forecasts = self.forecasts
        if forecasts is None:
            raise DataError(
                "the answers are numbers, and nothing was predicted with a probability; look at log_score"
            )
        return forecasts.reliability(bins)

    def summary(self) -> pd.DataFrame:
        """The measures, one row each.

        Returns
        -------
        DataFrame
            By measure: ``value``, its standard error ``se`` over answers like these, and ``baseline``: what a forecast gets that knows
            only how often there is a tie, or each class; NaN where some answers are numbers.
        """
        forecasts, number = self.forecasts, max(self.num_answers, 1)
        base = None if forecasts is None else forecasts.baseline()
        rate = float("nan")
        if forecasts is not None and base is not None and self._scored_by(forecasts):
            rate = float(base.weight @ base.log_scores())
        rows = {
            "elpd": (self.elpd, self.elpd_se, rate),
            "log_loss": (*_mean(-self._log_scores, self.weight), -rate / number),
        }
        if forecasts is not None and base is not None:
            for name, of in (("brier", Forecasts.brier), ("accuracy", Forecasts.correct)):
                rows[name] = (*_average(forecasts, of), _average(base, of)[0])
            rows["auc"] = (forecasts.auc(), float("nan"), 0.5)
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "se", "baseline"]).rename_axis(
            "measure"
        )

    @property
    def forecasts(self) -> Forecasts | None:
        """The rows that are answered by categories; None if there are none."""
        known = self.outcome >= 0
        if not known.any():
            return None
        single = self.single[known] if self.single.size else np.full(known.sum(), not self.paired)
        return Forecasts(self.chances[known], self.outcome[known], self.weight[known], self.paired, single)

    def _scored_by(self, forecasts: Forecasts) -> bool:
        """Whether the categories are all that was scored; not so with strengths of preference, or numbers among the answers."""
        return bool(np.all(self.outcome >= 0)) and np.allclose(forecasts.log_scores(), self._log_scores)

    @property
    def _log_scores(self) -> Floats:
        return self.table["log_score"].to_numpy(dtype=np.float64)

    def __repr__(self) -> str:
        """One line."""
        number = counted(self.num_answers, "answer")
        but = ", no measure of prediction: see notes" if self.composed else ""
        return f"HeldOut({self.method}, {number}: log loss {self.log_loss:.3f}, elpd {self.elpd:.1f} ± {self.elpd_se:.1f}{but})"


def _average(forecasts: Forecasts | None, of: Callable[[Forecasts], Floats]) -> tuple[float, float]:
    if forecasts is None:
        return float("nan"), float("nan")
    values = of(forecasts)
    known = ~np.isnan(values)
    return _mean(values[known], forecasts.weight[known])


def _mean(values: Floats, weight: Floats) -> tuple[float, float]:
    """Average of values that occur so often, and its standard error."""
    number = weight.sum()
    if not number:
        return float("nan"), float("nan")
    mean = weight @ values / number
    if number <= 1:
        return float(mean), float("nan")
    return float(mean), float(np.sqrt(weight @ np.square(values - mean) / (number - 1) / number))
