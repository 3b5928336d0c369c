"""Rank-one changes of a posterior by single answers, and how far they are from what the engine would find."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike
from scipy.linalg.blas import dger
from scipy.special import logsumexp

from relpref.data import Comparisons
from relpref.errors import StorageError
from relpref.infer.large.covariance import ImplicitBelief, PosteriorCovariance
from relpref.infer.program import padded_answers
from relpref.infer.sites import Cavity, Sites, matched
from relpref.likelihoods import AnswerModel, GaussianSite
from relpref.linalg import real
from relpref.posterior.gaussian import Floats, GaussianBelief, MixtureBelief
from relpref.posterior.tables import of_one_rater

_ROWS = 24  # whose change of precision is followed into the variances
_CERTAIN = 1e-12  # of the largest variance: below, a difference is known but for rounding


class Site(NamedTuple):
    """Natural parameters of one answer's site in each component: exp(ν x − ½ τ x²), x the gap less its prior mean, which is 0.

    Attributes
    ----------
    precision, shift : array, shape (K,)
    """

    precision: Floats
    shift: Floats


class RankOne:
    """A Gaussian belief, or a mixture of K of them, that is changed in place; the one that it starts from stays as it is."""

    def __init__(self, belief: GaussianBelief | MixtureBelief) -> None:
        locations, scales = belief.as_mixture()
        self._mean, self._covariance = locations.copy(), scales.copy()
        self._log_weights = np.log(belief.weights)

    def belief(self) -> GaussianBelief | MixtureBelief:
        if len(self._mean) == 1:
            return GaussianBelief(self._mean[0], self._covariance[0])
        weights = np.exp(self._log_weights - logsumexp(self._log_weights))
        return MixtureBelief(self._mean, self._covariance, weights)

    def gap(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Mean and variance of u[first] − u[second], shape (K,)."""
        covariance = self._covariance
        variance = (
            covariance[:, first, first] + covariance[:, second, second] - 2 * covariance[:, first, second]
        )
        return self._mean[:, first] - self._mean[:, second], np.maximum(variance, 0.0)

    def weigh(self, log_probability: Floats) -> float:
        """Multiply the weights by the probability of an answer in each component; the log of its average."""
        before = float(logsumexp(self._log_weights))
        self._log_weights = self._log_weights + log_probability
        return float(logsumexp(self._log_weights)) - before

    def add(self, first: int, second: int, site: Site) -> None:
        """Multiply by a site: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa, a the difference of the two."""
        mean, variance = self.gap(first, second)
        left = 1 + site.precision * variance
        change = self._covariance[:, first] - self._covariance[:, second]
        self._mean += ((site.shift - site.precision * mean) / left)[:, None] * change
        weights = -site.precision / left
        for covariance, weight, column in zip(self._covariance, weights, change, strict=True):
            # A symmetric matrix in C order is one in Fortran's order: BLAS changes it where it lies.
            dger(weight, column, column, a=covariance.T, overwrite_a=True)

    def remove(self, first: int, second: int, site: Site) -> None:
        """Divide by a site that is in it."""
        self.add(first, second, Site(-site.precision, -site.shift))


def match(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    row: int,
    gap: tuple[Floats, Floats],
) -> tuple[Site, Floats]:
    """The site of an answer whose cavity is the gap's N(mean, variance) (XPGP section 4.1), and its log probability, shape (K,).

    Parameters
    ----------
    model : AnswerModel
    parameters : mapping from site to array, shape (K, ...)
    answers : Comparisons
    row : int
        Of the answer.
    gap : pair of arrays, shape (K,)
    """
    columns: dict[str, Any] = {name: column[row : row + 1] for name, column in answers.columns.items()}
    one, known = of_one_rater(
        Comparisons(**columns, raters=answers.raters, strengths=answers.strengths), parameters
    )
    with jax.enable_x64(True):
        sites, log_probability = _matched(model, one, known, *(value[:, None] for value in gap))
        return Site(*(np.asarray(value)[:, 0] for value in sites)), np.asarray(log_probability)[:, 0]


def quick_error(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Mapping[str, Floats],
    belief: GaussianBelief,
    at_mode: bool = False,
) -> float:
    """How far a Gaussian is from what its engine would find: the move of one sweep over all answers, to first order in the sites.

    Parameters
    ----------
    model, parameters, answers, sites
        Of the belief: every answer's likelihood, and the ``precision`` and ``shift`` of its site, row by row.
    belief : GaussianBelief
    at_mode : bool
        Whether sites touch the likelihood at the mean (Laplace) instead of matching moments of their cavities.

    Returns
    -------
    float
        The largest move of a utility relative to the average, or of a compared pair's gap, in sds, or relative change of such an sd.
        Infinite where a cavity is improper. O(n²).
    """
    if not len(answers.winner):
        return 0.0
    first, second, count = answers.winner, answers.loser, answers.count
    gaps = belief.differences(first, second)
    mean, variance = gaps.mean, np.square(gaps.sd)
    precision, shift = sites["precision"], sites["shift"]
    left = np.ones_like(mean) if at_mode else 1 - variance * precision
    if not np.all(left > 0):
        return np.inf
    cavity = (mean, 0 * mean) if at_mode else ((mean - variance * shift) / left, variance / left)
    with_room = padded_answers(answers)
    spare = (0, len(with_room.winner) - len(mean))
    with jax.enable_x64(True):
        given = {name: np.asarray(value)[None] for name, value in parameters.items()}
        found, _ = _matched(model, with_room, given, *(np.pad(each, spare)[None] for each in cavity))
        stiffer = count * (np.asarray(found.precision)[0, : len(mean)] - precision)
        pull = count * (np.asarray(found.shift)[0, : len(mean)] - shift) - stiffer * mean
    ends = np.zeros(belief.size)
    np.add.at(ends, first, pull)
    np.subtract.at(ends, second, pull)
    scale = belief.scale
    move = scale @ ends
    # What changes variances: few rows, of which one answer more is known than their sites take into account.
    rows = np.argsort(np.abs(stiffer * variance))[-_ROWS:]
    changes = scale[first[rows]] - scale[second[rows]]  # rows of a symmetric matrix lie together
    averages = scale.mean(axis=1)
    own = np.maximum(np.diagonal(scale) - 2 * averages + averages.mean(), 0.0)
    centred = changes - changes.mean(axis=1, keepdims=True)
    spread = (
        0.5 * stiffer[rows] @ np.square(centred),
        0.5 * stiffer[rows] @ np.square(changes[:, first] - changes[:, second]),
    )
    moves = move - move.mean(), move[first] - move[second]
    worst = 0.0
    for moved, narrower, before in zip(moves, spread, (own, variance), strict=True):
        known = before > _CERTAIN * own.max(initial=0.0)
        worst = max(worst, np.max(np.abs(moved[known]) / np.sqrt(before[known]), initial=0.0))
        worst = max(worst, np.max(np.abs(narrower[known]) / before[known], initial=0.0))
    return float(worst) if np.isfinite(worst) else np.inf


@partial(jax.jit, static_argnums=0)
def _matched(
    model: AnswerModel, one: Comparisons, parameters: Mapping[str, Array], mean: Array, variance: Array
) -> tuple[Sites, Array]:
    def component(given: Mapping[str, Array], mean: Array, variance: Array) -> tuple[Sites, Array]:
        likelihood = model(mean, one, **given)
        moments = likelihood.tilted(model.value(one), mean, variance)
        if isinstance(likelihood, GaussianSite):
            peak, precision = likelihood.gaussian_site(model.value(one))
            return Sites(precision, precision * peak), moments.log_normalizer
        return matched(Cavity(mean, variance), moments), moments.log_normalizer

    given = {name: real(value) for name, value in parameters.items()}
    return jax.vmap(component)(given, real(mean), real(variance))


def stacked(sites: Mapping[str, Floats], before: Any) -> tuple[Floats, Floats]:
    """Precision and shift of each row after a change along the last axis, 0 for a new one.

    ``before`` is as in `relpref.data.comparisons.Change`.
    """
    known = before >= 0
    precision, shift = np.zeros((2, *sites["precision"].shape[:-1], len(before)))
    precision[..., known] = sites["precision"][..., before[known]]
    shift[..., known] = sites["shift"][..., before[known]]
    return precision, shift


@dataclass(frozen=True, eq=False)
class Changed(PosteriorCovariance):
    """Σ − W diag(c) Wᵀ: a covariance after k changes of rank one.

    Parameters
    ----------
    before : PosteriorCovariance
        Σ, of size n.
    columns : array, shape (n, k)
        W.
    weights : array, shape (k,)
        c; negative for an answer that was taken back.
    """

    before: PosteriorCovariance
    columns: Floats
    weights: Floats

    @property
    def size(self) -> int:
        return self.before.size

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Rows and columns of it, shape (r, c)."""
        left, right = self.columns[np.asarray(rows)], self.columns[np.asarray(columns)]
        return np.asarray(self.before.block(rows, columns) - (left * self.weights) @ right.T)

    def matmul(self, vectors: ArrayLike) -> Floats:
        seen = (self.columns.T @ np.asarray(vectors, dtype=np.float64)).T * self.weights
        return np.asarray(self.before.matmul(vectors) - self.columns @ seen.T)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of some entries with the average of all."""
        return np.asarray(
            self.before.row_means(rows) - self.columns[np.asarray(rows)] @ (self.weights * self._average)
        )

    def average(self) -> float:
        """Variance of the average of all entries."""
        return float(self.before.average() - self.weights @ np.square(self._average))

    def scaled(self, factor: float) -> "Changed":
        """``factor`` times it."""
        scaled: Any = self.before.scaled(factor)
        return Changed(scaled, self.columns, factor * self.weights)

    def arrays(self) -> dict[str, Any]:
        raise StorageError(
            "what quick updates made of the covariance of so many entities is not stored; call update() first"
        )

    @property
    def _average(self) -> Floats:
        return np.asarray(self.columns.mean(axis=0))


class ImplicitRankOne(RankOne):
    """As `RankOne`, of a Gaussian without a matrix: a product with the covariance for each answer."""

    def __init__(self, belief: ImplicitBelief) -> None:
        self._belief, self._log_weights = belief, np.zeros(1)

    def belief(self) -> ImplicitBelief:
        return self._belief

    def gap(self, first: int, second: int) -> tuple[Floats, Floats]:
        margins = self._belief.differences(np.array([first]), np.array([second]))
        return margins.mean, np.square(margins.sd)

    def add(self, first: int, second: int, site: Site) -> None:
        before = self._belief.implicit
        difference = np.zeros(before.size)
        difference[first] += 1.0
        difference[second] -= 1.0
        change = before.matmul(difference)
        mean = float(self._belief.location[first] - self._belief.location[second])
        precision, shift = float(site.precision[0]), float(site.shift[0])
        left = 1 + precision * max(float(change[first] - change[second]), 0.0)
        columns, weights = change[:, None], np.array([precision / left])
        if isinstance(before, Changed):
            columns, weights = np.hstack([before.columns, columns]), np.append(before.weights, weights)
            before = before.before
        self._belief = ImplicitBelief(
            self._belief.location + (shift - precision * mean) / left * change,
            Changed(before, columns, weights),
        )
