"""Any attribute kernel on the links of each entity."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from relpref.data import Graph
from relpref.errors import DataError
from relpref.kernels.attribute import AttributeKernel, SquaredExponential
from relpref.kernels.graph import rescaled
from relpref.linalg import Dense, real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelationVectors:
    """An attribute kernel on each entity's row of the matrix of weights: alike is who is linked to the same (XPGP section 3.1).

    Parameters
    ----------
    attribute_kernel : AttributeKernel
        Of one lengthscale for all columns (``shared_lengthscale=True``), because every entity is a column.

    Raises
    ------
    DataError
        When its parameters are asked for, if the kernel has one for each column.

    Notes
    -----
    With ``normalize`` the rows are divided by the root mean square length of those with a link, so that two rows
    without a common link are about √2 apart, which is what the prior of the lengthscale (median 1) expects; and the
    kernel is scaled like `RegularizedLaplacian`. Without it the rows are taken as they stand: give a prior that fits.
    """

    attribute_kernel: AttributeKernel = field(default=SquaredExponential(shared_lengthscale=True))

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """Those of the attribute kernel, as for one attribute."""
        priors = self.attribute_kernel.parameters(1)
        for name, prior in priors.items():
            if prior.shape():
                raise DataError(
                    f"RelationVectors: {self.attribute_kernel} has one {name} for each column, and every entity is a column; "
                    "pass a kernel with shared_lengthscale=True"
                )
        return priors

    def __call__(self, graph: Graph, *, normalize: bool = True, **parameters: Array) -> Dense:
        """Covariance matrix of the nodes."""
        rows = real(graph.weight_matrix)
        if not normalize:
            return Dense(self.attribute_kernel(rows, **parameters).dense())
        known = graph.reference.component.shape[0]
        lengths = jnp.sum(jnp.square(rows[:known, :known]), axis=1)
        mean = jnp.sum(lengths) / jnp.maximum(jnp.sum(lengths > 0), 1)
        covariance = self.attribute_kernel(rows / jnp.sqrt(jnp.where(mean > 0, mean, 1)), **parameters)
        return Dense(rescaled(covariance.dense(), graph))
