"""What a certificate says, in numbers and in a sentence."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

Verdict = Literal["exact", "good", "undecided", "doubtful", "failed"]

# A posterior is called right where every mean is known to be off by at most a tenth of a posterior sd and every sd by at most a tenth:
# with three Monte Carlo errors on either side. It is called wrong where one is off by more, and they do not reach back.
TOLERANCE, ERRORS = 0.1, 3.0


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a posterior is as an approximation of the exact one.

    Attributes
    ----------
    verdict : {"exact", "good", "undecided", "doubtful", "failed"}
        "exact": nothing is approximated. "good": shown to be right, within the tolerance. "undecided": the weights can be relied on, but
        their Monte Carlo errors reach over the tolerance after all draws. "doubtful": the weights can be relied on and show that something is
        off, or they are at the border of what can be relied on. "failed": nothing can be said, or worse, draws disagree; that alone does not show that the
        posterior is wrong, see ``sentence``.
    sentence : str
        In plain words.
    k_hat : float
        Shape of the tail of the importance weights; at most 0.7 is fine. NaN where there are no weights.
    ess : float
        Effective sample size: so many independent draws of the exact posterior say as much as the weighted ones.
    efficiency : float
        ``ess`` over the number of draws.
    num_samples : int
    table : DataFrame or None
        Where the weights can be relied on, see `comparison`; the exact posterior by reweighting. By entity (relative to the average of all), by
        example for classifiers, by site and position otherwise.
    log_evidence : float
        Of the exact model at the posterior's hyperparameters, by reweighting; NaN where there are no weights to rely on, and of a mixture.
    """

    verdict: Verdict
    sentence: str
    k_hat: float = np.nan
    ess: float = np.nan
    num_samples: int = 0
    table: pd.DataFrame | None = field(default=None, repr=False)
    log_evidence: float = np.nan

    @property
    def efficiency(self) -> float:
        """Effective draws for each draw; NaN where there are none."""
        return self.ess / self.num_samples if self.num_samples else np.nan

    @property
    def mean(self) -> pd.Series | None:
        """Reweighted mean, where the weights can be relied on."""
        return None if self.table is None else self.table["exact_mean"]

    @property
    def sd(self) -> pd.Series | None:
        """Reweighted standard deviation, where the weights can be relied on."""
        return None if self.table is None else self.table["exact_sd"]


def comparison(reported: pd.DataFrame, exact: pd.DataFrame, error: pd.DataFrame) -> pd.DataFrame:
    """How far reported means and sds are from exact ones that are known up to Monte Carlo errors.

    Parameters
    ----------
    reported, exact : DataFrame
        ``mean`` and ``sd`` of the same things.
    error : DataFrame
        Of the exact means and sds, ``mean`` and ``sd``.

    Returns
    -------
    DataFrame
        ``mean`` and ``sd`` as reported; ``exact_mean`` and ``exact_sd``; ``shift``, the first mean less the second, in reported sds;
        ``sd_ratio``, the first sd over the second; ``shift_error`` and ``sd_ratio_error``, their Monte Carlo errors.
    """
    scale = reported["sd"].where(reported["sd"] > 0, 1.0)
    ratio = (reported["sd"] / exact["sd"].where(exact["sd"] > 0)).fillna(1.0)  # where nothing is uncertain
    return reported.assign(
        exact_mean=exact["mean"],
        exact_sd=exact["sd"],
        shift=(reported["mean"] - exact["mean"]) / scale,
        shift_error=error["mean"] / scale,
        sd_ratio=ratio,
        sd_ratio_error=ratio * (error["sd"] / exact["sd"].where(exact["sd"] > 0)).fillna(0.0),
    )


def off(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Which means and which sds are off by more than the tolerance, beyond their Monte Carlo errors."""
    means = table["shift"].abs() <= TOLERANCE + ERRORS * table["shift_error"]
    sds = (table["sd_ratio"] - 1).abs() <= TOLERANCE + ERRORS * table["sd_ratio_error"]
    return ~means, ~sds  # what cannot be computed is off


def is_open(table: pd.DataFrame) -> bool:
    """Whether for some mean or sd the Monte Carlo errors reach over the tolerance, and no other is off."""
    means = table["shift"].abs() + ERRORS * table["shift_error"] <= TOLERANCE
    sds = (table["sd_ratio"] - 1).abs() + ERRORS * table["sd_ratio_error"] <= TOLERANCE
    return not (means.all() and sds.all()) and not any(wrong.any() for wrong in off(table))


def called(label: Any) -> str:
    """The label of a row as it is said in a sentence."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)
