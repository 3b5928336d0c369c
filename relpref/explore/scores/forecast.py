"""What the next answer can be and what it would tell: expectations over the likelihood's own outcomes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr
from numpy.typing import NDArray

from relpref.data import Comparisons
from relpref.infer.belief import Floats
from relpref.likelihoods import AnswerModel, Comparison, GradedComparison, SoftComparison
from relpref.linalg import real

_BLOCK = 128  # pairs of one call of the compiled function: its shapes never change
# Trapezoidal rule: in steps of so many sds of the gap, or of so many noise scales where the gap is wide, on either side. The integrand
# is analytic in a strip of about two noise scales, so the error falls like exp(−2π·2/step).
_NODES, _STEP, _NOISE_STEP = 40, 0.16, 0.5
_REACH = _NODES * _NOISE_STEP  # noise scales beyond which an answer is certain, logistic noise included
_FAR = 1e6  # noise scales
_REPORTS, _REPORT_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_REPORT_WEIGHTS = _REPORT_WEIGHTS / _REPORT_WEIGHTS.sum()


class Forecast(NamedTuple):
    """Of the next answer about each of k pairs, whose gaps are Gaussian.

    Attributes
    ----------
    information : array, shape (k,)
        Mutual information of answer and gap, in nats.
    shrinkage : array, shape (k,)
        κ: the gap's variance v is expected to become v − κ v².
    favoured : array, shape (k,)
        Probability that the answer favours the first, a tie counting one half.
    probability, gradient, curvature : array, shape (o, k)
        Of each possible outcome: its probability, and the derivatives of log Ẑ (see `TiltedMoments`) by which it moves the belief.
    """

    information: Any
    shrinkage: Any
    favoured: Any
    probability: Any
    gradient: Any
    curvature: Any


def forecast(
    model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Any], mean: Floats, variance: Floats
) -> Forecast:
    """Forecast the answers to pairs.

    Parameters
    ----------
    model : AnswerModel
    asked : Comparisons
        One row that says who is asked and how, see `relpref.infer.prediction.questions`.
    parameters : mapping from site to value
        Of the model.
    mean, variance : array, shape (k,)
        Of the gaps, first less second.
    """
    parts = []
    with jax.enable_x64(True):
        for start in range(0, len(mean), _BLOCK):
            size = min(_BLOCK, len(mean) - start)
            block = np.zeros((2, _BLOCK))
            block[:, :size] = mean[start : start + size], variance[start : start + size]
            found = _forecast(model, asked, dict(parameters), block[0], block[1])
            parts.append(Forecast(*(np.asarray(value)[..., :size] for value in found)))
    return Forecast(*(np.concatenate(values, axis=-1) for values in zip(*parts, strict=True)))


@partial(jax.jit, static_argnums=0)
def _forecast(
    model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Array], mean: Array, variance: Array
) -> Forecast:
    mean, variance = real(mean), real(variance)
    distribution = model(mean, asked, **parameters)
    if isinstance(distribution, SoftComparison):
        return _of_report(distribution, mean, variance)
    return _of_grade(distribution, lambda gap: model(gap, asked, **parameters), mean, variance)


class Noise(NamedTuple):
    """How an answer sees a gap.

    Attributes
    ----------
    scale : float
        Of the noise.
    outermost : float
        The outermost threshold between grades; 0 without grades.
    is_report : bool
        Whether the answer is the gap itself with Gaussian noise, so that what it tells has a closed form.
    """

    scale: float
    outermost: float
    is_report: bool


def noise_of(model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Any]) -> Noise:
    """The noise of answers; arguments as in `forecast`."""
    with jax.enable_x64(True):
        distribution = model(jnp.zeros(1), asked, **{name: real(value) for name, value in parameters.items()})
        outermost = float(_outermost(distribution))
        return Noise(float(jnp.max(distribution.scale)), outermost, isinstance(distribution, SoftComparison))


def _of_grade(
    distribution: Comparison, at: Callable[[Array], Comparison], mean: Array, variance: Array
) -> Forecast:
    """With H(answer) − E[H(answer | gap)] for the information (Houlsby et al. 2011)."""
    values, favours = (jnp.asarray(x) for x in _outcomes(distribution))
    wide = jnp.broadcast_to(values[:, None], (len(values), *mean.shape))
    moments = distribution.tilted(wide, *(jnp.broadcast_to(x, wide.shape) for x in (mean, variance)))
    probability = jnp.exp(moments.log_normalizer)
    possible = probability > 0  # of a tie where there are none, log Ẑ is −∞ and its derivatives mean nothing
    gradient, curvature = (jnp.where(possible, x, 0.0) for x in (moments.gradient, moments.curvature))

    nodes, weights = _quadrature(distribution, mean, variance)
    # Beyond the nodes only lapses leave an answer open; by how much is known.
    open_still = _entropy(at(jnp.full((1, 1), _FAR) * jnp.max(distribution.scale)), values)
    expected = open_still[..., 0] + jnp.sum(weights * (_entropy(at(nodes), values) - open_still), axis=-1)
    information = jnp.sum(jax.scipy.special.entr(probability), axis=0) - expected
    favoured = jnp.sum(probability * favours[:, None], axis=0)
    shrinkage = jnp.sum(probability * curvature, axis=0)
    return Forecast(jnp.maximum(information, 0.0), shrinkage, favoured, probability, gradient, curvature)


def _entropy(known: Comparison, values: Array) -> Array:
    """Of an answer where the gap is known."""
    shape = known.batch_shape
    given = jnp.exp(jax.vmap(lambda value: known.log_prob(jnp.full(shape, value)))(values))
    return jnp.sum(jax.scipy.special.entr(given), axis=0)


def _of_report(distribution: SoftComparison, mean: Array, variance: Array) -> Forecast:
    # On the probit scale a report is Gaussian: everything has a closed form but the average over reports.
    total = variance + jnp.square(distribution.scale)
    reports, weights = (jnp.asarray(x)[:, None] for x in (_REPORTS, _REPORT_WEIGHTS))
    curvature = 1 / total
    return Forecast(
        0.5 * jnp.log1p(variance / jnp.square(distribution.scale)),
        curvature,
        ndtr((mean + distribution.shift) / jnp.sqrt(1 + total)),
        jnp.broadcast_to(weights, (len(_REPORTS), *mean.shape)),
        reports * jnp.sqrt(curvature),
        jnp.broadcast_to(curvature, (len(_REPORTS), *mean.shape)),
    )


def _outcomes(distribution: Comparison) -> tuple[NDArray[np.int32], Floats]:
    """The values that an answer can have, and how much each is one for the first."""
    if isinstance(distribution, GradedComparison):
        grades = np.arange(-distribution.strengths, distribution.strengths + 1, dtype=np.int32)
        return grades, 0.5 + 0.5 * np.sign(grades)
    return np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0])


def _outermost(distribution: Comparison) -> Array:
    return jnp.max(getattr(distribution, "thresholds", jnp.zeros(1)))


def _quadrature(distribution: Comparison, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Nodes and weights, shape (k, nodes), for the entropy of an answer under N(mean, variance).

    Around the mean where the Gaussian is the narrower factor of the integrand; where the entropy is, around no gap.
    """
    steps = jnp.arange(-_NODES, _NODES + 1, dtype=mean.dtype)
    sd = jnp.sqrt(variance)[:, None]
    reach = _REACH * jnp.max(distribution.scale) + _outermost(distribution)
    widest = reach / _NODES
    narrow = _STEP * sd <= widest
    z = jnp.where(narrow, _STEP * steps, (widest * steps - mean[:, None]) / jnp.where(narrow, 1.0, sd))
    step = jnp.where(narrow, _STEP, widest / jnp.where(narrow, 1.0, sd))
    weights = step * jnp.exp(-0.5 * jnp.square(z)) / jnp.sqrt(2 * jnp.pi)
    # A little of the tails is cut off: without it the weights of the narrow rule add up to 1, and I → 0 with v.
    weights = jnp.where(narrow, weights / jnp.sum(weights, axis=-1, keepdims=True), weights)
    return mean[:, None] + sd * z, weights
