"""How well answers were predicted by a fit that did not have them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted
from relpref.errors import DataError
from relpref.posterior.gaussian import Floats

FIRST, NEITHER, SECOND = 0, 1, 2
_ROUNDING = 1e-9  # in probabilities, which are equal within it


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut:
    """Every answer as predicted by a fit without it.

    Attributes
    ----------
    table : DataFrame
        One row for each row of the data's answers, in its order: the answer as it was given (a
        probability that was reported is in ``reported``), ``probability`` (held out; the density,
        where answers are numbers) and its logarithm ``log_score``. Comparisons: ``p_first``,
        ``p_second`` and, where there are some, ``p_tie``; the first is who stands in the table's
        first column. Classes: ``p_<class>``. Scores of a relation: ``mean`` and ``sd`` of the
        label. ``k_hat`` where draws were reweighted: above `relpref.infer.result.threshold`, at
        most 0.7, the row is not to be relied on.
    method : str
        How the answers were held out.
    notes : tuple of str
    chances : array, shape (m, c)
        Of the categories: the first, neither, the second; or the classes. NaN where answers are
        numbers.
    outcome : array of int, shape (m,)
        The category that was answered; −1 where answers are numbers.
    paired : bool
        Whether the categories are those of comparisons; of a yes or no among them yes is the first,
        and no the second.
    composed : bool
        Whether answers are pairs of choices or orderings of which other pairs stayed: these all but
        tell who won, so no score measures how well new answers are predicted.
    single : array of bool, shape (m,), or of no size where all are alike
        Answers that compare nothing, so that to exchange the first and the second would change what
        they say.
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
        return float(self.weight @ self.log_scores)

    @property
    def elpd_se(self) -> float:
        """Standard error of `elpd` over answers like these; NaN for one answer."""
        return self.num_answers * average(self.log_scores, self.weight)[1]

    @property
    def log_loss(self) -> float:
        """Average of −log probability; ln 2 = 0.693 is what tossing a coin gets. May be negative for numbers."""
        return -average(self.log_scores, self.weight)[0]

    @property
    def brier(self) -> float:
        """Average of half the squared distance between probabilities and what happened: (1 − p)² without ties."""
        return self._measured(HeldOut._squared)[0]

    @property
    def accuracy(self) -> float:
        """Share of the answers whose more probable category was given; equals count one half, ties are left out."""
        return self._measured(HeldOut._correct)[0]

    @property
    def auc(self) -> float:
        """Area under the receiver operating characteristic.

        Probability that of two answers, one in a category and one not, the first was given the
        higher probability of it. Of comparisons with a winner, seen from both sides, by how much
        more probable the one is than the other. Of several classes the average over the classes.
        """
        from sklearn.metrics import roc_auc_score

        known = self.forecasts
        if known is None:
            return float("nan")
        scores, hits, weight = known.chances, known._hits, known.weight
        if self.paired:
            won = known.outcome != NEITHER
            both = won & ~known.single
            lead = scores[:, FIRST] - scores[:, SECOND]
            lead = np.where(np.abs(lead) < _ROUNDING, 0.0, lead)
            scores, weight = (
                np.append(lead[won], -lead[both])[:, None],
                np.append(weight[won], weight[both]),
            )
            hits = np.append(hits[won, FIRST], hits[both, SECOND])[:, None]
        elif scores.shape[1] == 2:
            scores, hits = scores[:, 1:], hits[:, 1:]
        found = [
            roc_auc_score(hit, score, sample_weight=weight)
            for hit, score in zip(hits.T, scores.T, strict=True)
            if hit.any() and not hit.all()
        ]
        return float(np.mean(found)) if found else float("nan")

    def reliability(self, bins: int = 10) -> pd.DataFrame:
        """Whether what was predicted with probability p happened in a share p of the cases.

        Parameters
        ----------
        bins : int
            Of equal width.

        Returns
        -------
        DataFrame
            One row for each bin: ``lower``, ``upper``; ``predicted``, the average probability;
            ``observed``, how often it happened; ``count`` of forecasts in the bin (each answer
            gives two, that the first and that the second is preferred; or one for each class);
            ``se``, the standard deviation that ``observed`` would have if all forecasts were right.
            NaN in an empty bin.

        Raises
        ------
        DataError
            If answers are numbers, or ``bins`` is below 1.
        """
        if bins < 1:
            raise DataError(f"bins is {bins}; give at least 1")
        known = self.forecasts
        if known is None:
            raise DataError(
                "the answers are numbers, and nothing was predicted with a probability; look at "
                "log_score"
            )
        events = [FIRST, SECOND] if known.paired else list(range(known.chances.shape[1]))
        chances, hits, weight = known.chances[:, events], known._hits[:, events], known.weight
        inside = (
            np.minimum((chances * bins + _ROUNDING).astype(int), bins - 1)
            == np.arange(bins)[:, None, None]
        )
        count = inside.sum(axis=2) @ weight
        predicted = (inside * chances).sum(axis=2)
        # An answer with both of its events in one bin is less uncertain there: at most one of them
        # happens.
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
        """The measures, one row each.

        Returns
        -------
        DataFrame
            By measure: ``value``, its standard error ``se`` over answers like these, and
            ``baseline``: what a forecast gets that knows only how often there is a tie, or each
            class; NaN where some answers are numbers.
        """
        known, nothing = self.forecasts, float("nan")
        loss, error = average(-self.log_scores, self.weight)
        rows = {"elpd": (self.elpd, self.elpd_se, nothing), "log_loss": (loss, error, nothing)}
        if known is not None:
            base = known._baseline()
            # Not so with strengths of preference, or numbers among the answers: the categories are
            # not all that was scored.
            if len(known.outcome) == len(self.outcome) and np.allclose(
                known._chosen(), self.log_scores
            ):
                rate = float(base.weight @ base._chosen())
                rows["elpd"] = (*rows["elpd"][:2], rate)
                rows["log_loss"] = (loss, error, -rate / max(self.num_answers, 1))
            for name, of in (("brier", HeldOut._squared), ("accuracy", HeldOut._correct)):
                rows[name] = (*known._measured(of), base._measured(of)[0])
            rows["auc"] = (self.auc, nothing, 0.5)
        columns = ["value", "se", "baseline"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("measure")

    @property
    def forecasts(self) -> "HeldOut | None":
        """The rows that are answered by categories; None if there are none."""
        known = self.outcome >= 0
        if not known.any():
            return None
        single = self.single if self.single.size else np.full(len(known), not self.paired)
        return replace(
            self,
            table=self.table[known],
            chances=self.chances[known],
            outcome=self.outcome[known],
            single=single[known],
        )

    def _measured(self, of: Callable[["HeldOut"], Floats]) -> tuple[float, float]:
        """Average of a measure that rows answered by categories have, and its standard error; NaN if there are none."""
        known = self.forecasts
        values = np.empty(0) if known is None else of(known)
        there = ~np.isnan(values)
        return average(values[there], known.weight[there] if known else values)

    def _squared(self) -> Floats:
        """Half the squared distance of probabilities and outcome, of each answer."""
        return np.asarray(0.5 * np.square(self.chances - self._hits).sum(axis=1))

    def _correct(self) -> Floats:
        """1 where the most probable category was answered, a share of it among equals; NaN for an answer for neither of two."""
        chances = self.chances[:, [FIRST, SECOND]] if self.paired else self.chances
        hits = self._hits[:, [FIRST, SECOND]] if self.paired else self._hits
        best = chances >= chances.max(axis=1, keepdims=True, initial=0.0) - _ROUNDING
        found = (best & hits).sum(axis=1) / np.maximum(best.sum(axis=1), 1)
        return np.where(hits.any(axis=1), found, np.nan)

    def _chosen(self) -> Floats:
        """Log probability of each category that was answered."""
        return np.asarray(np.log(self.chances[np.arange(len(self.outcome)), self.outcome]))

    def _baseline(self) -> "HeldOut":
        """What a forecast says that knows only how often each category is answered, the two of a pair being alike."""
        chances = np.empty_like(self.chances)
        for rows, alike in ((~self.single, self.paired), (self.single, False)):
            rates = self.weight[rows] @ self._hits[rows] / max(self.weight[rows].sum(), 1.0)
            if alike:
                rates[[FIRST, SECOND]] = rates[[FIRST, SECOND]].mean()
            chances[rows] = rates
        return replace(self, chances=chances)

    @property
    def _hits(self) -> NDArray[np.bool_]:
        return self.outcome[:, None] == np.arange(self.chances.shape[1])

    @property
    def log_scores(self) -> Floats:
        """The column ``log_score``."""
        return self.table["log_score"].to_numpy(dtype=np.float64)

    def __repr__(self) -> str:
        number = counted(self.num_answers, "answer")
        but = ", no measure of prediction: see notes" if self.composed else ""
        return (
            f"HeldOut({self.method}, {number}: log loss {self.log_loss:.3f}, elpd "
            f"{self.elpd:.1f} ± {self.elpd_se:.1f}{but})"
        )


def average(values: Floats, weight: Floats) -> tuple[float, float]:
    """Average of values that occur so often, and its standard error."""
    number = weight.sum()
    mean = float(weight @ values / number) if number else float("nan")
    if not number > 1:
        return mean, float("nan")
    return mean, float(np.sqrt(weight @ np.square(values - mean) / (number - 1) / number))
