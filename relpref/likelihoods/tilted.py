"""Moments of likelihoods under a one-dimensional Gaussian cavity, which engines need."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erfc, erfcx
from scipy import special

from relpref.errors import UnsupportedProgramError
from relpref.likelihoods.chances import nodes
from relpref.linalg.arrays import Array, namespace
from relpref.pytree import register

Function = Callable[[Any], Any]

# True in a site's ``infer``: its values are independent normals of one sd that engines integrate
# out, and samplers sample.
INTEGRATED = "integrated"


class TiltedMoments(NamedTuple):
    """log Ẑ(m, v) = log ∫ p(y | z) N(z; m, v) dz and its derivatives in the cavity mean m.

    Attributes
    ----------
    log_normalizer : Array
        log Ẑ.
    gradient : Array
        ∂ log Ẑ/∂m; the tilted mean is m + v·gradient.
    curvature : Array
        −∂² log Ẑ/∂m²; the tilted variance is v − v²·curvature.
    """

    log_normalizer: Array
    gradient: Array
    curvature: Array


@runtime_checkable
class Likelihood(Protocol):
    """A numpyro distribution p(y | z) of a scalar predictor z, with tilted moments.

    It may declare ``log_concave``.
    """

    @property
    def predictor(self) -> Array:
        """z, shape (m,), as the program computes it from its latent Gaussians."""

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance), elementwise.

        Value, mean and variance have shape (m,).
        """


def is_log_concave(likelihood: Likelihood) -> bool:
    """Whether a likelihood declares log p(y | z) to be concave in z for every y.

    Then a negative site precision is an error.
    """
    return bool(getattr(likelihood, "log_concave", False))


@runtime_checkable
class GaussianSite(Protocol):
    """A likelihood whose density is Gaussian in the predictor.

    The site is then available in closed form, whatever the cavity.
    """

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """Peak of a value's density in the predictor and precision there, 1/noise², (m,) each."""


def unwrap(distribution: dist.Distribution) -> dist.Distribution:
    """Take a distribution out of what plates, masks and ``to_event`` wrap around it."""
    while isinstance(
        distribution, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
    ):
        distribution = distribution.base_dist
    return distribution


def prior_quantile(distribution: dist.Distribution, probability: Any) -> Any:
    """A quantile of a prior, or one for each entry, shape ``distribution.shape()``.

    It is None where the prior has no quantile function.
    """
    try:
        quantile = unwrap(distribution).icdf(jnp.asarray(probability))
    except (NotImplementedError, ImportError):  # numpyro says it in both ways
        return None
    return jnp.broadcast_to(quantile, distribution.shape())


class TreeDistribution(dist.Distribution):
    """A distribution that is a JAX pytree of its ``leaves``, in the same order in every session.

    JAX builds it again without checks.
    """

    leaves: ClassVar[tuple[str, ...]] = ()
    static: ClassVar[tuple[str, ...]] = ("_batch_shape", "_event_shape")

    def tree_flatten(self) -> tuple[Any, Any]:
        children, kept = (
            [getattr(self, name) for name in names] for names in (self.leaves, self.static)
        )
        return tuple(children), tuple(kept)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "TreeDistribution":
        self = cls.__new__(cls)
        self.__dict__.update(zip((*cls.static, *cls.leaves), (*aux_data, *params), strict=True))
        dist.Distribution.__init__(self, self._batch_shape, self._event_shape, validate_args=False)
        return self


def as_likelihood(distribution: dist.Distribution) -> Likelihood:
    """The likelihood of an observed site, wrapped by plates or not.

    It is one of `relpref.likelihoods` or numpyro's ``Normal``.

    Raises
    ------
    UnsupportedProgramError
        If its tilted moments are not known.
    """
    base = unwrap(distribution)
    if hasattr(type(base), "tilted"):
        return cast(Likelihood, base)
    if isinstance(base, dist.Normal):
        return GaussianLikelihood(base.loc, base.scale)
    raise UnsupportedProgramError(
        f"no tilted moments are known for the likelihood {type(base).__name__}; "
        "use one of relpref.likelihoods or numpyro's Normal, or run the program with numpyro's NUTS"
    )


class GaussianLikelihood:
    """numpyro's ``Normal(z, scale)``, whose moments are exact: EP on it is exact regression."""

    log_concave = True

    def __init__(self, predictor: Array, scale: Array) -> None:
        self.predictor = predictor
        self.scale = scale

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """The label itself, and 1/scale²."""
        shape = jnp.shape(self.predictor)
        return jnp.broadcast_to(value, shape), jnp.broadcast_to(1 / jnp.square(self.scale), shape)

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of the product of two Gaussians."""
        total = variance + jnp.square(self.scale)
        error = value - mean
        log_normalizer = -0.5 * (jnp.square(error) / total + jnp.log(2 * jnp.pi * total))
        return TiltedMoments(log_normalizer, error / total, 1 / total)

    def log_density_at(self, node: Array, mean: Array, variance: Array) -> Array:
        """Log density of the value that lies ``node`` sds above its expectation.

        The predictor is N(mean, variance).
        """
        total = jnp.broadcast_to(variance + jnp.square(self.scale), jnp.shape(mean))
        return -0.5 * (jnp.square(node) + jnp.log(2 * jnp.pi * total))


register(GaussianLikelihood, leaves=("predictor", "scale"))


# Asymptotic series in 1/z² for z → −∞ (Abramowitz & Stegun 26.2.12): −z Φ(z)/φ(z), and its
# consequence for r(z)(r(z) + z), the derivative of r = φ/Φ with the sign turned.
_TAIL_SERIES = (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)
_CURVATURE_SERIES = (1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0)


def _by_series(
    coefficients: Sequence[float], z: Array, far: Callable[[Array, Array], Array], near: Function
) -> Array:
    """Value by ``far``, of a series in 1/z² and z, where z is very negative, or by ``near``.

    Both sides agree at the switch to the dtype's precision.
    """
    xp, switch = namespace(z), -30.0 if z.dtype == np.float64 else -10.0
    low = xp.minimum(z, switch)
    series = xp.polyval(xp.asarray(coefficients[::-1], z.dtype), 1 / xp.square(low))
    return xp.where(z < switch, far(series, low), near(xp.maximum(z, switch)))


def _curvature_slope(z: Array) -> Array:
    """Derivative of `log_ndtr_curvature`, k' = r(1 − k) − k(z + r)."""

    def near(z: Array) -> Array:
        ratio, curvature = mills_ratio(z), log_ndtr_curvature(z)
        return ratio * (1 - curvature) - curvature * (z + ratio)

    slopes = [-2 * power * value for power, value in enumerate(_CURVATURE_SERIES)][1:]
    return _by_series(slopes, z, lambda series, z: series / z**3, near)


def entrywise(derivative: Function) -> Callable[[Function], Function]:
    """Give a function of one array a derivative, where the array is JAX's."""

    def decorated(function: Function) -> Function:
        by_jax = jax.custom_jvp(function)
        by_jax.defjvps(lambda tangent, _, z: tangent * derivative(z))

        @wraps(function)
        def call(z: Any) -> Any:
            return function(z) if isinstance(z, np.ndarray | np.generic) else by_jax(jnp.asarray(z))

        return call

    return decorated


@entrywise(lambda z: mills_ratio(z))
def log_ndtr(z: Array) -> Array:
    """Log Φ(z), with relative accuracy for every finite z."""
    if namespace(z) is np:
        return special.log_ndtr(z)
    left, right = jnp.minimum(z, -1.0), jnp.maximum(z, -1.0)
    tail = -0.5 * (left * left + float(np.log(2 * np.pi))) - jnp.log(mills_ratio(left))
    return jnp.where(z < -1.0, tail, jnp.log1p(-0.5 * erfc(float(np.sqrt(0.5)) * right)))


@entrywise(lambda z: -log_ndtr_curvature(z))
def mills_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ."""
    unit, root_half = float(np.sqrt(2 / np.pi)), float(np.sqrt(0.5))
    if namespace(z) is np:
        return unit / special.erfcx(-root_half * z)
    # 2Φ(z)exp(z²/2) = erfcx(−z/√2); JAX's loses all digits far out.
    return _by_series(
        _TAIL_SERIES, z, lambda series, z: -z / series, lambda z: unit / erfcx(-root_half * z)
    )


_FAR = -30.0  # below which the series has all digits


@entrywise(_curvature_slope)
def log_ndtr_curvature(z: Array) -> Array:
    """−(log Φ)''(z) = r(z)(z + r(z)) with r = φ/Φ; between 0 and 1.

    The product cancels for very negative z (in float64 it leaves [0, 1] near z = −1e5), so the
    asymptotic series takes over below −30 (−10 in float32).
    """

    def near(z: Array) -> Array:
        ratio = mills_ratio(z)
        return ratio * (z + ratio)

    if namespace(z) is np and not np.any(z < _FAR):
        return near(z)
    return _by_series(_CURVATURE_SERIES, z, lambda series, _: series, near)


def ndtr_moments(z: Array) -> TiltedMoments:
    """Log Φ(z), r(z) = φ(z)/Φ(z) and `log_ndtr_curvature`, from one special function with NumPy.

    Log Φ has an absolute error of rounding, where `log_ndtr` has a relative one.
    """
    ratio = mills_ratio(z)
    if namespace(z) is not np:
        return TiltedMoments(log_ndtr(z), ratio, log_ndtr_curvature(z))
    bend = ratio * (z + ratio)
    if np.any(z < _FAR):
        bend = np.where(z < _FAR, log_ndtr_curvature(z), bend)
    log_density = -0.5 * (np.square(z) + float(np.log(2 * np.pi)))
    with np.errstate(divide="ignore"):  # beyond 38 the ratio is 0
        total = np.minimum(log_density - np.log(ratio), 0.0)
    return TiltedMoments(total, ratio, bend)


def sigmoid(z: Array) -> Array:
    """The logistic function σ."""
    return special.expit(z) if namespace(z) is np else jax.nn.sigmoid(z)


def log_sigmoid(z: Array) -> Array:
    """Log σ(z)."""
    if namespace(z) is np:  # SciPy's log_expit takes four times as long
        return np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z)))
    return jax.nn.log_sigmoid(z)


_NARROW = 1e-2  # width times distance from 0 below which the series in the width is the more exact
_SHORT = 0.03  # width below which a difference of log Φ would lose digits


def _ends(lower: Array, width: Array) -> tuple[Array, Array, Array, Array]:
    """Whether intervals are narrow, whether they are mirrored, and their ends then.

    In the left half Φ keeps its digits, so intervals whose middle is positive are mirrored.
    """
    xp = namespace(lower, width)
    narrow = width * xp.maximum(xp.abs(lower), 1.0) < _NARROW
    upper = lower + xp.where(narrow, 1.0, width)
    mirrored = lower + upper > 0
    return narrow, mirrored, xp.where(mirrored, -upper, lower), xp.where(mirrored, -lower, upper)


def _log_of_narrow(middle: Array, width: Array) -> Array:
    """Log(w φ(c)) + w²(c² − 1)/24 for width w and middle c."""
    xp, square = namespace(middle, width), middle * middle
    log_density = -0.5 * square - 0.5 * float(np.log(2 * np.pi))
    return xp.log(width) + log_density + width * width * (square - 1) / 24


def interval_moments(lower: Array, width: Array) -> TiltedMoments:
    """Moments of an interval: log(Φ(l + w − x) − Φ(l − x)) at x = 0 and its derivatives.

    They are the first derivative in x, and minus the second, which is between 0 and 1. A width may
    be infinite. It is given in the place of an upper end, because far out it would be lost in the
    difference of two ends.
    """
    xp = namespace(lower, width)
    is_open = xp.isposinf(width)
    narrow, mirrored, left, right = _ends(lower, width)
    left = xp.where(is_open, right - 1.0, left)

    # With ρ = Φ(l)/Φ(u), r = φ/Φ and k = r(r + z), terms that cannot cancel: φ(u)/(Φ(u) − Φ(l)) =
    # r_u/(1 − ρ), and minus the second derivative is (k_u − ρ k_l)/(1 − ρ) + ρ (r_l − r_u)²/(1 −
    # ρ)².
    log_right, mills, bent = ndtr_moments(right)
    log_left, mills_left, bent_left = ndtr_moments(left)
    # −log ρ is the integral of r over the interval; of a short one by Euler and Maclaurin's rule,
    # r' being −k.
    short = xp.where(is_open, 1.0, width) < _SHORT
    step = xp.where(short, width, 0.0)
    integral = 0.5 * step * (mills_left + mills) + xp.square(step) * (bent - bent_left) / 12
    log_ratio = xp.where(short, -integral, log_left - log_right)
    log_ratio = xp.where(narrow, -1.0, xp.where(is_open, -xp.inf, log_ratio))
    ratio, rest = xp.exp(log_ratio), -xp.expm1(log_ratio)
    value = log_right + xp.log(rest)
    # (φ(l) − φ(u))/φ(u) = exp((u² − l²)/2) − 1, and the two squares differ by twice the width times
    # the middle.
    exponent = xp.where(
        is_open, -xp.inf, 0.5 * (left + right) * xp.where(is_open | narrow, 1.0, width)
    )
    slope = mills * xp.expm1(exponent) / rest
    bend = (bent - ratio * bent_left) / rest + ratio * xp.square((mills_left - mills) / rest)

    width = xp.where(narrow, width, 1.0)
    middle, square = lower + 0.5 * width, xp.square(width)
    return TiltedMoments(
        xp.where(narrow, _log_of_narrow(middle, width), value),
        xp.where(narrow, middle * (1 - square / 12), xp.where(mirrored, -slope, slope)),
        xp.clip(xp.where(narrow, 1 - square / 12, bend), 0.0, 1.0),
    )


def interval_log(lower: Any, width: Any) -> Any:
    """The logarithm alone of `interval_moments`, in a third of the time; for NumPy."""
    narrow, _, left, right = _ends(lower, width)
    most = special.log_ndtr(right)
    value = most + np.log(-np.expm1(special.log_ndtr(left) - most))
    if not np.any(narrow):
        return value
    width = np.where(narrow, width, 1.0)
    return np.where(narrow, _log_of_narrow(lower + 0.5 * width, width), value)


@jax.custom_jvp
def log_expected_sigmoid(mean: Array, variance: Array) -> Array:
    """L(mean, variance) = log E[σ(z)], z ~ N(mean, variance).

    ∂L/∂v = ½ (g² + L''), the heat equation of E[σ].
    """
    return sigmoid_moments(mean, variance).log_normalizer


@log_expected_sigmoid.defjvp
def _jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    value, gradient, curvature = sigmoid_moments(*primals)
    return value, gradient * tangents[0] + 0.5 * (jnp.square(gradient) - curvature) * tangents[1]


def sigmoid_moments(mean: Array, variance: Array) -> TiltedMoments:
    """L(mean, variance), its derivative in the mean, and minus the second, at least 0.

    Within 1e-9 (relative, where they exceed 1) in float64 up to means of 60 and variances of 1e4.
    The integrand is log-concave, and falls at least like a Gaussian of that variance around its
    mode.
    """
    xp = namespace(mean, variance)
    sd = xp.where(variance > 0, xp.sqrt(xp.where(variance > 0, variance, 1.0)), 0.0)
    # The mode is near 0 clipped to [m, m + v].
    x, spacing = nodes(mean, sd, xp.clip(-mean / xp.maximum(sd, 1e-30), 0.0, sd), xp)
    z = mean[..., None] + sd[..., None] * x
    smaller = xp.exp(-xp.abs(z))
    log_weights = xp.minimum(z, 0.0) - xp.log1p(smaller) - 0.5 * xp.square(x) + xp.log(spacing)
    top = xp.max(log_weights, axis=-1, keepdims=True)
    weights = xp.exp(log_weights - top)
    zeroth = xp.sum(weights, axis=-1)
    weights, total = weights / zeroth[..., None], top[..., 0] + xp.log(zeroth)
    down = xp.where(z > 0, smaller, 1.0) / (1 + smaller)
    gradient = xp.sum(weights * down, axis=-1)
    spread = xp.sum(weights * xp.square(down - gradient[..., None]), axis=-1)
    bend = xp.sum(weights * down * (1 - down), axis=-1)
    value = total - 0.5 * float(np.log(2 * np.pi))
    return TiltedMoments(value, gradient, xp.maximum(bend - spread, 0.0))
