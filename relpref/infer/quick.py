"""A few answers more or less by rank-one changes of a Gaussian belief: O(n²) each, and nothing is factorised.

An answer's site is set to match the moments of its tilted distribution, once, with the posterior before it as its cavity (assumed
density filtering); the other sites stay as they are. Expectation propagation then starts from there. `error` says how far it would go.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from scipy.linalg.blas import dger

from relpref.data import Comparisons
from relpref.infer.belief import Floats, GaussianBelief
from relpref.infer.padding import padded_answers
from relpref.infer.prediction import of_one_rater
from relpref.infer.sites import Cavity, Sites, matched
from relpref.likelihoods import AnswerModel, GaussianSite
from relpref.linalg import real

_ROWS = 24  # whose change of precision is followed into the variances
_CERTAIN = 1e-12  # of the largest variance: below, a difference is known but for rounding


class Site(NamedTuple):
    """Natural parameters of one answer's site: exp(ν x − ½ τ x²), x the gap less its prior mean, which is 0."""

    precision: float
    shift: float


class RankOne:
    """A Gaussian belief that is changed in place; the one that it starts from stays as it is."""

    def __init__(self, belief: GaussianBelief) -> None:
        self.mean = belief.mean().copy()
        self.covariance = belief.covariance().copy()

    def belief(self) -> GaussianBelief:
        """What is believed now."""
        return GaussianBelief(self.mean, self.covariance)

    def gap(self, first: int, second: int) -> tuple[float, float]:
        """Mean and variance of u[first] − u[second]."""
        covariance = self.covariance
        variance = covariance[first, first] + covariance[second, second] - 2 * covariance[first, second]
        return float(self.mean[first] - self.mean[second]), max(float(variance), 0.0)

    def add(self, first: int, second: int, site: Site) -> None:
        """Multiply by a site: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa, a the difference of the two."""
        mean, variance = self.gap(first, second)
        left = 1 + site.precision * variance
        self._move(first, second, (site.shift - site.precision * mean) / left, -site.precision / left)

    def remove(self, first: int, second: int, site: Site) -> None:
        """Divide by a site that is in it."""
        self.add(first, second, Site(-site.precision, -site.shift))

    def _move(self, first: int, second: int, step: float, weight: float) -> None:
        change = self.covariance[first] - self.covariance[second]
        self.mean += step * change
        # A symmetric matrix in C order is one in Fortran's order: BLAS changes it where it lies.
        dger(weight, change, change, a=self.covariance.T, overwrite_a=True)


def match(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    row: int,
    gap: tuple[float, float],
) -> Site:
    """The site of an answer whose cavity is the gap's N(mean, variance) (XPGP section 4.1)."""
    columns: dict[str, Any] = {name: column[row : row + 1] for name, column in answers.columns.items()}
    one, known = of_one_rater(
        Comparisons(**columns, raters=answers.raters, strengths=answers.strengths), parameters
    )
    with jax.enable_x64(True):
        precision, shift = _matched(model, one, known, *(np.full(1, value) for value in gap))
        return Site(float(precision[0]), float(shift[0]))


def error(
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
        found = _matched(model, with_room, dict(parameters), *(np.pad(each, spare) for each in cavity))
        stiffer = count * (np.asarray(found.precision)[: len(mean)] - precision)
        pull = count * (np.asarray(found.shift)[: len(mean)] - shift) - stiffer * mean
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
) -> Sites:
    given = {name: real(value) for name, value in parameters.items()}
    likelihood = model(real(mean), one, **given)
    if isinstance(likelihood, GaussianSite):
        peak, precision = likelihood.gaussian_site(model.value(one))
        return Sites(precision, precision * peak)
    moments = likelihood.tilted(model.value(one), real(mean), real(variance))
    return matched(Cavity(real(mean), real(variance)), moments)


def stacked(sites: Mapping[str, Floats], before: Any) -> tuple[Floats, Floats]:
    """Precision and shift of each row after a change, 0 for a new one; ``before`` as in `relpref.data.answer_changes.Change`."""
    known = before >= 0
    precision, shift = np.zeros(len(before)), np.zeros(len(before))
    precision[known], shift[known] = sites["precision"][before[known]], sites["shift"][before[known]]
    return precision, shift
