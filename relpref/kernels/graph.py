"""Kernels on relation graphs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from relpref.data import Graph
from relpref.linalg import CovarianceOperator, Dense, real


class GraphKernel(Protocol):
    """A covariance function of a graph's nodes."""

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """Its hyperparameters and their default priors; the site's name is ``<relation>_<name>``."""

    def __call__(self, *args: Any, **parameters: Any) -> CovarianceOperator:
        """Covariance of the n nodes, from the graph, ``normalize`` and the hyperparameters by name."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RegularizedLaplacian:
    """[Δ + I/ι²]⁻¹ with the combinatorial Laplacian Δ = D − W and the range ι (XPGP eq. 2 with β = 1).

    β would be redundant with the relation's amplitude, so it is left out. One eigendecomposition of Δ, made once by the
    data, serves every ι.

    Notes
    -----
    With ``normalize`` the kernel is divided by its mean gap variance over two: then two entities of one component differ, on
    average, as much as two far apart under a unit-amplitude attribute kernel, and amplitudes can be compared. (Unit diagonals
    would not do that: as ι grows, the entries of a component approach a constant and only the gaps count.)

    Prior of ι: log-normal with log-sd 1 and median √(10/mean degree). A node hands its utility to its
    neighbours in proportion to degree·ι² against 1, so the median makes a typical node lean on its neighbours for ten
    elevenths and on itself for the rest, and two log-sds reach from nearly independent nodes to nearly constant components.
    """

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """``range``, a scalar."""
        return {"range": dist.LogNormal(0.5 * jnp.log(10.0 / real(graph.reference.mean_degree)), 1.0)}

    def __call__(self, graph: Graph, *, normalize: bool = True, range: Array) -> Dense:
        """Covariance matrix of the nodes."""
        eigenvalues, vectors, _ = (real(array) for array in graph.spectrum)
        precision = 1 / jnp.square(range)
        values = 1 / (eigenvalues + precision)
        if normalize:
            reference, gap_weights, _ = (real(array) for array in graph.reference)
            gap_variance = jnp.sum(gap_weights / (reference + precision))
            # A graph without edges has no gap within a component, and nothing to scale by.
            values = values * jnp.where(gap_variance > 0, 2 / jnp.where(gap_variance > 0, gap_variance, 1), 1)
        return Dense((vectors * values) @ vectors.T)
