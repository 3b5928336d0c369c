"""Gaussian families: the covariance of each, in one table."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import transforms

from relpref.kernels import GaussianProcess
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import Covariance, Dense, Identity, real
from relpref.linalg.arrays import namespace


def _covariance_matrix(normal: Any) -> Any:
    return normal.covariance_matrix


def _inverse(field: dist.CAR) -> Any:
    return dist.MultivariateNormal(precision_matrix=field.precision_matrix).covariance_matrix


def _of_walk(walk: dist.GaussianRandomWalk) -> Any:
    steps = jnp.arange(1, walk.num_steps + 1)
    return jnp.square(walk.scale)[..., None, None] * jnp.minimum(steps[:, None], steps)


def _of_rows_and_columns(normal: dist.MatrixNormal) -> Any:
    roots = normal.scale_tril_row, normal.scale_tril_column
    rows, columns = (root @ jnp.swapaxes(root, -2, -1) for root in roots)
    product = rows[..., :, None, :, None] * columns[..., None, :, None, :]
    size = int(np.prod(normal.event_shape))
    return jnp.reshape(product, (*product.shape[:-4], size, size))


# The covariance of one event's n values: matrices, shape batch_shape + (n, n), or one operator.
_COVARIANCES: dict[type, Callable[[Any], Any]] = {
    GaussianProcess: lambda process: process.covariance,
    dist.Normal: lambda normal: jnp.square(normal.scale)[..., None, None],
    dist.MultivariateNormal: _covariance_matrix,
    dist.LowRankMultivariateNormal: _covariance_matrix,
    dist.CirculantNormal: _covariance_matrix,
    dist.CAR: _inverse,
    dist.GaussianRandomWalk: _of_walk,
    dist.MatrixNormal: _of_rows_and_columns,
}
# Transforms after which a Gaussian vector is still one.
_AFFINE = (
    transforms.AffineTransform,
    transforms.LowerCholeskyAffine,
    transforms.RecursiveLinearTransform,
    transforms.ZeroSumTransform,
)


def is_gaussian(distribution: dist.Distribution) -> bool:
    """Whether `gaussian_parts` knows a distribution."""
    base = unwrap(distribution)
    return isinstance(base, tuple(_COVARIANCES)) or (
        isinstance(base, dist.TransformedDistribution)
        and all(isinstance(transform, _AFFINE) for transform in base.transforms)
        and is_gaussian(base.base_dist)
    )


def mean_of(distribution: dist.Distribution) -> Any:
    """Mean of a Gaussian site's values, in their shape."""
    base = unwrap(distribution)
    # JAX would trace the mean that numpyro computes of a constant location.
    mean = real(base.loc if isinstance(base, dist.Normal) else base.mean)
    return namespace(mean).broadcast_to(mean, distribution.shape())


def gaussian_parts(distribution: dist.Distribution) -> tuple[Array, Covariance]:
    """Mean and covariance operator of a Gaussian site's values, laid out as one vector.

    The entries of a plate, or of a batch, are independent.
    """
    base, shape = unwrap(distribution), distribution.shape()
    batch = shape[: len(shape) - base.event_dim]
    forms = [form for family, form in _COVARIANCES.items() if isinstance(base, family)]
    if not forms:
        before = base.base_dist.expand(batch)

        def transformed(vector: Array) -> Array:
            values = jnp.reshape(vector, before.shape())
            for transform in base.transforms:
                values = transform(values)
            return jnp.ravel(values)

        location, covariance = gaussian_parts(before)
        location, apply = jax.linearize(transformed, location)
        return location, Dense(covariance.congruence(apply))
    location = mean_of(distribution).reshape(-1)
    if isinstance(base, dist.Normal) and not np.ndim(base.scale):
        return location, Identity(location.size, base.scale)
    covariance, number = forms[0](base), int(np.prod(batch))
    if isinstance(covariance, Covariance):
        if number == 1:
            return location, covariance
        covariance = covariance.dense()
    block = covariance.shape[-2:]
    blocks = jnp.broadcast_to(real(covariance), (*batch, *block)).reshape(number, *block)
    same = jnp.eye(number, dtype=bool)[:, None, :, None]
    matrix = jnp.where(same, blocks[:, :, None], 0.0)
    return location, Dense(matrix.reshape(location.size, location.size))
