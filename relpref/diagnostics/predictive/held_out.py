"""How well answers were predicted by a fit that did not have them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import NDArray

from relpref.data.arrays import counted
from relpref.errors import DataError
from relpref.likelihoods import (
    Comparison,
    GaussianLikelihood,
    GradedComparison,
    Likelihood,
    ProbitBernoulli,
    SoftComparison,
)
from relpref.posterior.gaussian import Floats

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


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut:
    """Every answer as predicted by a fit without it.

    Attributes
    ----------
    table : DataFrame
        One row for each row of the data's answers, in its order: the answer as it was given (a probability that was reported is in
        ``reported``), ``probability`` (held out; the density, where answers are numbers) and its logarithm ``log_score``. Comparisons: ``p_first``, ``p_second`` and, where there are some,
        ``p_tie``; the first is who stands in the table's first column. Classes: ``p_<class>``. Scores of a relation: ``mean`` and
        ``sd`` of the label. ``k_hat`` where draws were reweighted: above `relpref.infer.psis.threshold`, at most 0.7, the row is not to be relied on.
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


# Of the predictive distribution of a number, whose log density is quadratic here: mean and variance of the score are exact with these.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Outcomes(NamedTuple):
    """The possible answers to m questions.

    Attributes
    ----------
    log_probability : Array, shape (q, m)
        Of each, under N(mean, variance) of the predictor; of numbers the log density at q nodes.
    weight : Array, shape (q, m)
        They add up to 1: the probabilities, or the weights of the nodes.
    side : Array, shape (q, m)
        See `favours`.
    """

    log_probability: Array
    weight: Array
    side: Array


def favours(likelihood: Likelihood, value: Array) -> Array:
    """Whom answers favour: 1 the first (or yes), −1 the second (or no), 0 neither; NaN for numbers."""
    if isinstance(likelihood, GradedComparison):
        return jnp.sign(jnp.asarray(value, float))
    if isinstance(likelihood, SoftComparison) or not isinstance(likelihood, Comparison | ProbitBernoulli):
        return jnp.full(jnp.shape(value), jnp.nan)
    return jnp.where(jnp.asarray(value, bool), 1.0, -1.0)


@singledispatch
def outcomes(likelihood: Likelihood, mean: Array, variance: Array) -> Outcomes:
    """Enumerate what a likelihood could have answered; of one that is not known here there are none.

    Parameters
    ----------
    likelihood : Likelihood
        Of m rows.
    mean, variance : Array, shape (m,)
        Of the predictor.
    """
    none = jnp.zeros((0, *jnp.shape(mean)))
    return Outcomes(none, none, none)


@outcomes.register(Comparison)
@outcomes.register(ProbitBernoulli)
def _choices(likelihood: Likelihood, mean: Array, variance: Array) -> Outcomes:
    return _listed(likelihood, (0, 1), mean, variance)


@outcomes.register
def _grades(likelihood: GradedComparison, mean: Array, variance: Array) -> Outcomes:
    strengths = likelihood.strengths
    return _listed(likelihood, tuple(range(-strengths, strengths + 1)), mean, variance)


def _listed(likelihood: Likelihood, values: tuple[int, ...], mean: Array, variance: Array) -> Outcomes:
    def of(value: int) -> Array:
        return likelihood.tilted(jnp.full(jnp.shape(mean), value), mean, variance).log_normalizer

    found = jnp.stack([of(value) for value in values])
    side = jnp.stack([favours(likelihood, jnp.full(jnp.shape(mean), value)) for value in values])
    return Outcomes(found, jnp.exp(found), side)


@outcomes.register
def _numbers(likelihood: GaussianLikelihood, mean: Array, variance: Array) -> Outcomes:
    total = jnp.broadcast_to(variance + jnp.square(likelihood.scale), jnp.shape(mean))
    return _at_nodes(lambda node: -0.5 * (node**2 + jnp.log(2 * jnp.pi * total)))


@outcomes.register
def _reports(likelihood: SoftComparison, mean: Array, variance: Array) -> Outcomes:
    total = variance + jnp.square(likelihood.scale)

    def log_density(node: float) -> Array:  # of Φ(report): the report's own, over φ(report)
        report = mean + likelihood.shift + jnp.sqrt(total) * node
        return -0.5 * (node**2 + jnp.log(total)) + 0.5 * jnp.square(report)

    return _at_nodes(log_density)


def _at_nodes(log_density: Callable[[float], Array]) -> Outcomes:
    found = jnp.stack([log_density(float(node)) for node in _NODES])
    weights = jnp.reshape(jnp.asarray(_WEIGHTS), (-1,) + (1,) * (found.ndim - 1))
    return Outcomes(found, jnp.broadcast_to(weights, found.shape), jnp.full(found.shape, jnp.nan))
