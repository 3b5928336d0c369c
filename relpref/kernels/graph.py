"""Kernels on relation graphs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from relpref.data import Graph
from relpref.kernels.implicit import gap_scale, heat_of, solver_of
from relpref.linalg import CovarianceOperator, HeatKernel, SparsePrecision, Spectral, real


class GraphKernel(Protocol):
    """A covariance function of a graph's nodes."""

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """Its hyperparameters and their default priors; the site's name is ``<relation>_<name>``."""

    def __call__(self, *args: Any, **parameters: Any) -> CovarianceOperator:
        """Covariance of the n nodes, from the graph, ``normalize`` and the hyperparameters by name."""


@jax.tree_util.register_static
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

    def __call__(self, graph: Graph, *, normalize: bool = True, range: Array) -> Spectral:
        """Covariance of the nodes."""
        precision = 1 / jnp.square(range)
        return _spectral(graph, lambda eigenvalues: 1 / (eigenvalues + precision), normalize)

    def implicit(self, graph: Graph, *, normalize: bool = True, range: float) -> SparsePrecision:
        """The same for a graph too large for its spectrum: a sparse precision."""
        shift = 1 / range**2
        scale = (
            gap_scale(graph.reference, lambda eigenvalues: 1 / (eigenvalues + shift)) if normalize else 1.0
        )
        return SparsePrecision(solver_of(graph), shift, scale)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Diffusion:
    """exp(−tΔ), the heat that has flowed along the links after the time t (Kondor & Lafferty 2002).

    Notes
    -----
    Smoother than `RegularizedLaplacian`, as the squared exponential is smoother than Matérn kernels. ``normalize`` is as there.
    Prior of t: log-normal with log-sd 1 and median 1/mean degree, the time in which a typical node would give away 63 % of its
    heat if nothing came back; two log-sds reach from 13 % to all but 1/1600 of it.
    """

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """``time``, a scalar."""
        return {"time": dist.LogNormal(-jnp.log(real(graph.reference.mean_degree)), 1.0)}

    def __call__(self, graph: Graph, *, normalize: bool = True, time: Array) -> Spectral:
        """Covariance of the nodes."""
        return _spectral(graph, lambda eigenvalues: jnp.exp(-time * eigenvalues), normalize)

    def implicit(self, graph: Graph, *, normalize: bool = True, time: float) -> HeatKernel:
        """The same for a graph too large for its spectrum: products with the exponential by polynomials."""
        scale = (
            gap_scale(graph.reference, lambda eigenvalues: np.exp(-time * eigenvalues)) if normalize else 1.0
        )
        return heat_of(graph, time).scaled(scale)


def _spectral(graph: Graph, function: Callable[[Array], Array], normalize: bool) -> Spectral:
    """A function of the Laplacian; its mean gap variance needs only the eigenvalues, see `Spectrum`."""
    eigenvalues, vectors, _ = (real(array) for array in graph.spectrum)
    values = function(eigenvalues)
    if normalize:
        reference = graph.reference
        gap_variance = jnp.sum(real(reference.gap_weights) * function(real(reference.eigenvalues)))
        values = values * unit_scale(gap_variance)
    return Spectral(values, vectors)


def unit_scale(gap_variance: Array, negligible: float = 0.0) -> Array:
    """What brings a mean gap variance to 2; 1 where it is negligible, as without a gap in a component, and sets no scale."""
    counts = gap_variance > negligible
    return jnp.where(counts, 2 / jnp.where(counts, gap_variance, 1), 1)


def rescaled(covariance: Array, graph: Graph, *, negligible: float = 0.0) -> Array:
    """Scale a covariance to a mean gap variance of 2 over the pairs within a component.

    Parameters
    ----------
    covariance : Array, shape (n, n)
        Of the graph's nodes.
    graph : Graph
        The pairs are those of its graph of reference: newcomers do not change the scale by their own gaps, but they do where
        their links change the covariance of the others.
    negligible : float
        Up to this mean gap variance the covariance stays as it is.

    Returns
    -------
    Array, shape (n, n)
    """
    component = jnp.asarray(graph.reference.component)
    known = covariance[: component.size, : component.size]
    together = (component[:, None] == component[None, :]).astype(covariance.dtype)
    # Σ K_ii + K_jj − 2 K_ij over the ordered pairs; those with i = j add nothing.
    total = 2 * jnp.sum(jnp.diagonal(known) * jnp.sum(together, axis=1)) - 2 * jnp.sum(together * known)
    pairs = jnp.sum(together) - component.size
    return covariance * unit_scale(total / jnp.where(pairs > 0, pairs, 1), negligible)
