"""Kernels on attribute vectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from relpref.description import Description
from relpref.errors import DataError
from relpref.linalg import Covariance, Dense, checked_symmetric, real
from relpref.linalg.arrays import namespace, stop_gradient

Floats = NDArray[np.float64]


class AttributeKernel(Protocol):
    """A covariance function of attributes, unit amplitude."""

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """Default priors of the hyperparameters; their sites are named ``attributes_<name>``."""

    def __call__(self, *args: Any, **parameters: Any) -> Covariance:
        """Covariance of n items, from their (n, d) attributes and the hyperparameters by name."""

    # A kernel may also have ``amplitude_prior``, the default prior of its amplitude;
    # ``describe() -> relpref.description.Description``, which reports and the command line print;
    # ``slopes``, see `Stationary.slopes`, for effects of attributes; and ``pull``, see
    # `SquaredExponential.pull`, with which fits need no derivatives by JAX.


_LENGTHSCALE = (
    "Lengthscale: how far two items can lie apart in an attribute, in standard deviations of it, "
    "and still be alike. Short: the attribute matters. Long, beyond about 10: it hardly does."
)


@dataclass(frozen=True, kw_only=True)
class Stationary(ABC):
    """Base class of functions of the distance r of two items, r² = Σ_d (x_d − x'_d)²/ℓ_d².

    Parameters
    ----------
    shared_lengthscale : bool
        One ℓ for all attributes, as in XPGP; by default each attribute has its own, so that an
        attribute that does not matter can be switched off by a long one.

    Notes
    -----
    Prior of every ℓ: log-normal with median √d and log-sd 1. Two items drawn at random from
    standardized attributes are √(2d) apart, so √d lets utility change over about that distance
    whatever the number of attributes, and two log-sds reach from a seventh of it to seven times it.
    Without the growth with d, the covariance of many attributes would be a diagonal matrix before
    any answer was seen (Hvarfner et al. 2024, arXiv:2402.02229).
    """

    shared_lengthscale: bool = False

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """``lengthscale``, shape (d,) or () when shared."""
        prior = dist.LogNormal(0.5 * np.log(max(num_attributes, 1)), 1.0)
        return {
            "lengthscale": prior
            if self.shared_lengthscale
            else prior.expand([num_attributes]).to_event(1)
        }

    def __call__(self, attributes: Array, *, lengthscale: Array) -> Dense:
        """Covariance matrix; ``lengthscale`` is a scalar or has shape (d,)."""
        return Dense(self.correlation(squared_distances(attributes / lengthscale)))

    def _pull(self, weights: Any, attributes: Any, *, lengthscale: Any) -> dict[str, Any]:
        """Derivatives of Σ_ij W_ij k(x_i, x_j) in the hyperparameters, by name.

        It is the ``pull`` of classes whose `correlation` and `derivatives` take NumPy arrays.

        Parameters
        ----------
        weights : array, shape (n, n)
            W, symmetric.
        attributes : array, shape (n, d)
        lengthscale : array, shape () or (d,)
        """
        xp = namespace(weights, attributes, lengthscale)
        points = (attributes - attributes.mean(axis=0)) / lengthscale
        slopes = weights * self.derivatives(squared_distances(points))[0]
        # Σ_ij S_ij (x_i − x_j)² for each attribute, without a matrix of differences for each.
        rows = xp.sum(slopes, axis=1)[:, None]
        spread = 2 * xp.sum(xp.square(points) * rows - points * (slopes @ points), axis=0)
        slope = -2 * spread / lengthscale
        return {"lengthscale": slope if np.ndim(lengthscale) else xp.sum(slope)}

    def cross(self, rows: Array, columns: Array, *, lengthscale: Array) -> Array:
        """Covariances of some items with others, shape (r, c), from their attributes."""
        return self.correlation(cross_distances(rows / lengthscale, columns / lengthscale))

    def slopes(
        self, points: Floats, weights: Floats, *, lengthscale: Floats
    ) -> tuple[Floats, Floats]:
        """Prior covariances of weighted sums of the slopes Σ_i w_i ∂f/∂x_d(x_i).

        Parameters
        ----------
        points : array, shape (n, d)
        weights : array, shape (d, q, n)
            The weights of q sums for each attribute.
        lengthscale : array, shape () or (d,)

        Returns
        -------
        cross : array, shape (d, q, n)
            Covariances with the values of f at the points.
        within : array, shape (d, q, q)
            Covariances of the sums for one attribute with each other.
        """
        points = points / lengthscale
        first, second = self.derivatives(cdist(points, points, "sqeuclidean"))
        scale = np.broadcast_to(1 / lengthscale, points.shape[1:])[:, None, None]
        along, turned = points.T[:, None], np.swapaxes(weights, 1, 2)
        cross = 2 * scale * ((weights * along) @ first - (weights @ first) * along)
        # Σ_il w_i w_l c''(s_il) (y_i − y_l)², and the same with c'(s_il).
        squares = (weights * np.square(along)) @ second @ turned
        squares = squares + np.swapaxes(squares, 1, 2)
        squares -= 2 * (weights * along) @ second @ np.swapaxes(weights * along, 1, 2)
        return cross, -np.square(scale) * (4 * squares + 2 * weights @ first @ turned)

    @abstractmethod
    def correlation(self, squared: Array) -> Array:
        """The kernel, elementwise, from r²; 1 at 0."""

    def derivatives(self, squared: Any) -> tuple[Any, Any]:
        """First and second derivative of `correlation` in r², elementwise.

        Override it where `correlation` is not smooth in r² at 0; the second may be any number
        there.
        """
        first = jax.grad(lambda value: jnp.sum(self.correlation(value)))
        second = jax.grad(lambda value: jnp.sum(first(value)))
        return np.asarray(first(real(squared))), np.asarray(second(real(squared)))

    def describe(self) -> Description:
        """Description with the sentence ``_SENTENCE`` of the class itself, where it has one."""
        return Description(
            vars(type(self)).get("_SENTENCE")
            or f"The kernel {type(self).__name__} makes items with similar attributes alike.",
            parameters={"lengthscale": _LENGTHSCALE},
            unit="items far apart",
            readings={"lengthscale": self._one_apart},
        )

    def _one_apart(self, lengthscale: float, domain: object) -> str:
        correlation = float(self.correlation(real(lengthscale**-2)))
        return f"correlation {correlation:.2f} one standard deviation apart"


@jax.tree_util.register_static
@dataclass(frozen=True)
class SquaredExponential(Stationary):
    """exp(−r²/2): infinitely smooth (XPGP eq. 1, where ρ = 1/ℓ). See `Stationary` for r and ℓ."""

    _SENTENCE = "The squared-exponential kernel gives a smooth function of the attributes."

    pull = Stationary._pull

    def correlation(self, squared: Any) -> Any:
        return namespace(squared).exp(-0.5 * squared)

    def derivatives(self, squared: Any) -> tuple[Any, Any]:
        value = self.correlation(squared)
        return -0.5 * value, 0.25 * value


@jax.tree_util.register_static
@dataclass(frozen=True)
class Matern32(Stationary):
    """(1 + √3 r) exp(−√3 r): once differentiable. See `Stationary` for r and ℓ.

    Rasmussen & Williams 2006, eq. 4.17.
    """

    _SENTENCE = "The Matérn 3/2 kernel gives a function of the attributes that has one derivative."

    pull = Stationary._pull

    def correlation(self, squared: Any) -> Any:
        scaled = safe_sqrt(3 * squared)
        return (1 + scaled) * namespace(squared).exp(-scaled)

    def derivatives(self, squared: Any) -> tuple[Any, Any]:
        xp, scaled = namespace(squared), safe_sqrt(3 * squared)
        value = xp.exp(-scaled)
        return -1.5 * value, 2.25 * value / xp.where(scaled > 0, scaled, np.inf)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Matern52(Stationary):
    """(1 + √5 r + 5r²/3) exp(−√5 r): twice differentiable. See `Stationary` for r and ℓ.

    Rasmussen & Williams 2006, eq. 4.17.
    """

    _SENTENCE = "The Matérn 5/2 kernel gives a function of the attributes that has two derivatives."

    pull = Stationary._pull

    def correlation(self, squared: Any) -> Any:
        scaled = safe_sqrt(5 * squared)
        return (1 + scaled + scaled**2 / 3) * namespace(squared).exp(-scaled)

    def derivatives(self, squared: Any) -> tuple[Any, Any]:
        scaled = safe_sqrt(5 * squared)
        value = namespace(squared).exp(-scaled)
        return -5 / 6 * (1 + scaled) * value, 25 / 12 * value


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class Linear:
    """Σ_d w_d x_d x'_d with w_d = ℓ_d⁻² / Σ_e ℓ_e⁻²: utility is a weighted sum of the attributes.

    Parameters
    ----------
    shared_lengthscale : bool
        All attributes weigh the same, and there is no hyperparameter but the amplitude.

    Notes
    -----
    The weights add up to 1, so that on standardized attributes the mean gap variance of two items
    is 2, as under the stationary kernels far apart, and amplitudes can be compared. Hence only
    ratios of the ℓ count; their prior is that of the stationary kernels. A constant shift of an
    attribute changes no gap.
    """

    shared_lengthscale: bool = False

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """``lengthscale``, shape (d,); none when shared."""
        return {} if self.shared_lengthscale else SquaredExponential().parameters(num_attributes)

    def __call__(self, attributes: Array, *, lengthscale: Array | float = 1.0) -> Dense:
        """Covariance matrix; ``lengthscale`` is a scalar or has shape (d,)."""
        return Dense(self.cross(attributes, attributes, lengthscale=lengthscale))

    def cross(self, rows: Array, columns: Array, *, lengthscale: Array | float = 1.0) -> Array:
        """Covariances of some items with others, shape (r, c), from their attributes."""
        shares = _shares(lengthscale, rows.shape[1])
        return (rows * shares) @ (columns * shares).T

    def pull(self, weights: Any, attributes: Any, *, lengthscale: Any = 1.0) -> dict[str, Any]:
        """Derivatives of Σ_ij W_ij k(x_i, x_j), see `SquaredExponential.pull`."""
        xp = namespace(weights, attributes, lengthscale)
        share = xp.square(_shares(lengthscale, attributes.shape[1]))  # w
        each = share * xp.sum(attributes * (weights @ attributes), axis=0)
        slope = -2 * (each - share * xp.sum(each)) / lengthscale
        return {"lengthscale": slope if np.ndim(lengthscale) else xp.sum(slope)}

    def slopes(
        self, points: Floats, weights: Floats, *, lengthscale: Any = 1.0
    ) -> tuple[Floats, Floats]:
        """Prior covariances of weighted sums of slopes, see `Stationary.slopes`."""
        shares = np.square(np.asarray(_shares(lengthscale, points.shape[1])))[:, None, None]
        sums = weights.sum(axis=2, keepdims=True)
        return shares * sums * points.T[:, None], shares * sums * np.swapaxes(sums, 1, 2)

    def describe(self) -> Description:
        return Description(
            "The linear kernel gives a weighted sum of the attributes.",
            parameters={
                "lengthscale": "Lengthscale of a linear kernel: only ratios count. An attribute of "
                "half the lengthscale of another weighs four times as much in the variance of a "
                "utility; twice as long all together, nothing changes."
            },
            unit="two items",
        )


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class SquaredExponentialPlusLinear:
    """(1 − w) k_s + w k_l: utility is a smooth function plus a weighted sum of the attributes.

    k_s is `SquaredExponential`, k_l is `Linear`, and both have the same lengthscales.

    Parameters
    ----------
    shared_lengthscale : bool
        One ℓ for all attributes, in both kernels.

    Notes
    -----
    On standardized attributes the mean gap variance of both kernels is about 2, so w is the share
    of the variance that is linear. Its prior is Beta(2, 1): few answers say more about a weighted
    sum of several attributes than about another function.

    Prior of the amplitude: Weibull with scale √8 and shape 2, the root of the sum of the squares of
    two independent half-normal amplitudes with scale 2, which is the prior of a kernel alone. Two
    thirds of the mean variance are linear.
    """

    amplitude_prior: ClassVar[dist.Distribution] = dist.Weibull(8.0**0.5, 2.0)

    shared_lengthscale: bool = False

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """``lengthscale``, as for `SquaredExponential`, and ``linear_share``, w."""
        smooth = SquaredExponential(shared_lengthscale=self.shared_lengthscale).parameters(
            num_attributes
        )
        # Beta(2, 1) by another name, whose density needs no special functions.
        return {**smooth, "linear_share": dist.Kumaraswamy(2.0, 1.0)}

    def __call__(self, attributes: Array, *, lengthscale: Array, linear_share: Array) -> Dense:
        """Covariance matrix; ``lengthscale`` is a scalar or has shape (d,)."""
        return Dense(_mixed(lambda k: k(attributes, lengthscale=lengthscale).dense(), linear_share))

    def pull(
        self, weights: Any, attributes: Any, *, lengthscale: Any, linear_share: Any
    ) -> dict[str, Any]:
        """Derivatives of Σ_ij W_ij k(x_i, x_j), see `SquaredExponential.pull`."""
        given = {"lengthscale": lengthscale}
        slopes = _mixed(lambda k: k.pull(weights, attributes, **given), linear_share)
        smooth, linear = (
            namespace(weights).vdot(weights, kernel(attributes, **given).dense())
            for kernel in (SquaredExponential(), Linear())
        )
        return {**slopes, "linear_share": linear - smooth}

    def cross(self, rows: Array, columns: Array, *, lengthscale: Array, linear_share: Array) -> Any:
        """Covariances of some items with others, shape (r, c), from their attributes."""
        return _mixed(lambda k: k.cross(rows, columns, lengthscale=lengthscale), linear_share)

    def slopes(
        self, points: Floats, weights: Floats, *, lengthscale: Floats, linear_share: float
    ) -> Any:
        """Prior covariances of weighted sums of slopes, see `Stationary.slopes`."""
        return _mixed(lambda k: k.slopes(points, weights, lengthscale=lengthscale), linear_share)

    def describe(self) -> Description:
        smooth = SquaredExponential().describe()
        return Description(
            "The squared-exponential and the linear kernel together give a smooth function of the "
            "attributes plus a weighted sum of them.",
            parameters={
                **smooth.parameters,
                "linear_share": "Linear share: how much of the variance from the attributes is "
                "that of a weighted sum of them; the rest is that of a smooth function.",
            },
            unit=smooth.unit,
            readings={
                **smooth.readings,
                "linear_share": lambda share, _: f"{share:.0%} of the variance is linear",
            },
        )


def _mixed(values: Callable[[Any], Any], linear_share: Any) -> Any:
    """Weighted mean of arrays that the smooth and the linear kernel give, by the linear share."""
    return jax.tree.map(
        lambda smooth, linear: (1 - linear_share) * smooth + linear_share * linear,
        *map(values, (SquaredExponential(), Linear())),
    )


def _shares(lengthscale: Array | float, number: int) -> Array:
    # Relative to the shortest, because ℓ⁻² may overflow; a common factor of the ℓ changes nothing.
    xp = namespace(lengthscale)
    shortest = stop_gradient(xp.min(xp.asarray(lengthscale), initial=np.inf))
    relative = xp.broadcast_to(shortest / lengthscale, (number,))
    return relative / xp.sqrt(xp.sum(xp.square(relative)))


def squared_distances(points: Array) -> Array:
    """Squared Euclidean distances of the rows, shape (n, n), not negative; exactly 0 for i = j."""
    squared = cross_distances(points, points)
    return squared * (1 - np.eye(points.shape[0], dtype=squared.dtype))


def cross_distances(rows: Array, columns: Array) -> Array:
    """Squared Euclidean distance of every row from every column, shape (r, c); never negative."""
    xp = namespace(rows, columns)
    centre = xp.mean(columns, axis=0)  # less cancellation far from the origin
    rows, columns = rows - centre, columns - centre
    norms = xp.sum(xp.square(rows), axis=1)[:, None] + xp.sum(xp.square(columns), axis=1)[None, :]
    return xp.maximum(norms - 2 * rows @ columns.T, 0.0)


def safe_sqrt(squared: Any) -> Any:
    """Square root whose gradient at 0 is 0 instead of infinite.

    The gradient is right for functions that are even in the root.
    """
    xp = namespace(squared)
    if xp is np:
        return np.sqrt(squared)
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Precomputed:
    """A covariance given as a matrix, whatever the attributes or links are.

    Parameters
    ----------
    covariance : array, shape (n, n), optional
        Symmetric positive semidefinite, in the order of the items. By default it is what the data
        have as attributes: in the row of each item its kernel with all of them. Programs do not
        standardize these.

    Raises
    ------
    DataError
        If it is not a square, finite and symmetric matrix.
    """

    unscaled: ClassVar[bool] = True  # takes attributes as they are

    covariance: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Check a concrete matrix (JAX also rebuilds this object around tracers)."""
        if isinstance(self.covariance, np.ndarray | list | tuple):
            matrix = checked_symmetric(self.covariance, "Precomputed covariance")
            object.__setattr__(self, "covariance", matrix)

    def parameters(self, domain: object) -> Mapping[str, dist.Distribution]:
        return {}

    def __call__(self, domain: Any, *, normalize: bool = True) -> Dense:
        """The matrix as it was given, or the attributes; nothing is scaled."""
        if self.covariance is None and domain.shape[0] != domain.shape[1]:
            raise DataError(
                "Precomputed() takes the attributes as the covariance, and their shape is "
                f"{domain.shape}; give the matrix, Precomputed(matrix)"
            )
        return Dense(real(domain if self.covariance is None else self.covariance))

    def describe(self) -> Description:
        return Description("The covariance is the matrix that was given.")
