"""The hidden common cause kernel of linked entities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse
from jax import Array

from relpref.data import Graph
from relpref.errors import DataError
from relpref.kernels.graph import rescaled
from relpref.linalg import Dense, SparseMatrix, real

# 1 % of 2, the gap variance of independent entities: below it, those that are linked count as one.
_NEGLIGIBLE_GAP = 0.02


@jax.tree_util.register_static
@dataclass(frozen=True)
class HiddenCommonCause:
    """Entities are alike if they share hidden causes (Silva, Chu & Ghahramani 2007, sections 3.1 to 3.3; XPGP section 3.1).

    Every group of linked entities has a hidden cause of its own, and an entity is the sum of its causes brought to unit
    variance: with U the number of groups that hold both of two entities, the kernel is U_ij / √(U_ii U_jj).

    Parameters
    ----------
    method : {"edges", "cliques"}
        The groups: the two ends of each link (their method II; a link of weight w counts w times, so that U = D + W), or the
        maximal cliques of the triangulated graph, whatever the weights and the order of the entities (method I; see
        `relpref.data.cliques.maximal_cliques`: a ring whose nodes nothing tells apart is one clique), which the data must have
        counted: ``data.with_cliques("name")``.
    regularization : float
        Added to the diagonal of U, in units of the mean weight of a link (of one clique).

    Raises
    ------
    DataError
        If the method is another one or the regularisation is not positive; when called, if the cliques have not been counted,
        or all entities are linked to each other alike, so that every correlation is the same.

    Notes
    -----
    There is no hyperparameter but the amplitude. Links reach one step (or one clique) far: entities without a common group are
    independent. ``normalize`` is as for `RegularizedLaplacian`, with one exception. Where the entities of a component are all in the
    same groups (brands: a bipartite relation with one target for each entity), the only gaps within components are those of the
    regularisation, and scaling these up to 2 would blow up the gaps between components. So where their mean variance is below
    1 % of that between components, the variances stay 1.
    """

    method: Literal["edges", "cliques"] = "edges"
    regularization: float = 1e-4

    def __post_init__(self) -> None:
        """Check the options."""
        if self.method not in ("edges", "cliques"):
            raise DataError(
                f'HiddenCommonCause: there is no method {self.method!r}; use "edges" or "cliques"'
            )
        if not 0 < self.regularization < float("inf"):
            raise DataError(
                f"HiddenCommonCause: the regularization is {self.regularization}; give a positive number, such as 1e-4"
            )

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """None."""
        return {}

    def __call__(self, graph: Graph, *, normalize: bool = True) -> Dense:
        """Covariance matrix of the nodes."""
        self._check(graph)
        shared = self._edges(graph) if self.method == "edges" else self._cliques(graph)
        scale = jnp.sqrt(jnp.diagonal(shared))
        correlation = shared / (scale[:, None] * scale[None, :])
        return Dense(rescaled(correlation, graph, negligible=_NEGLIGIBLE_GAP) if normalize else correlation)

    def implicit(self, graph: Graph, *, normalize: bool = True) -> SparseMatrix:
        """The same by edges for a graph too large for a matrix: entities that are not linked are independent."""
        if self.method != "edges":
            raise DataError(
                'HiddenCommonCause(method="cliques") has no form for so many entities; take method="edges", or fit with structure=\'dense\''
            )
        self._check(graph)
        weights = graph.adjacency()
        mean = float(graph.weight.mean()) if graph.num_edges else 1.0
        own = graph.degree + self.regularization * mean
        scale = scipy.sparse.diags_array(1 / np.sqrt(own))
        correlation = scipy.sparse.csr_array(
            scale @ weights @ scale + scipy.sparse.eye_array(graph.num_nodes)
        )
        if not normalize:
            return SparseMatrix(correlation)
        # As in `rescaled`: all variances are 1, and covariances that are not 0 belong to links.
        component = np.asarray(graph.reference.component)
        together = float(np.bincount(component)[component].sum())
        known = scipy.sparse.coo_array(correlation[: component.size, : component.size])
        inside = component[known.coords[0]] == component[known.coords[1]]
        pairs = together - component.size
        gap_variance = 2 * (together - float(known.data[inside].sum())) / (pairs or 1.0)
        return SparseMatrix(correlation).scaled(2 / gap_variance if gap_variance > _NEGLIGIBLE_GAP else 1.0)

    def _check(self, graph: Graph) -> None:
        if self.method == "cliques" and graph.cliques is None:
            raise DataError(
                'HiddenCommonCause(method="cliques"): the cliques have not been counted; '
                "call data.with_cliques(name of the relation) and pass what it returns"
            )
        constant = ("constant", "weighted") if self.method == "cliques" else ("constant",)
        if graph.completeness in constant:
            remedy = "keep only the stronger links" if self.method == "cliques" else "give weights"
            raise DataError(
                "HiddenCommonCause: every two entities are linked alike, so all correlations are the same and the relation "
                f"says nothing; {remedy} or link only those above a threshold"
            )

    def _edges(self, graph: Graph) -> Array:
        weights = real(graph.weight_matrix)
        links = jnp.sum(weights > 0)
        mean = jnp.where(links > 0, jnp.sum(weights) / jnp.maximum(links, 1), 1.0)
        return weights + jnp.diag(jnp.sum(weights, axis=1) + self.regularization * mean)

    def _cliques(self, graph: Graph) -> Array:
        counts = real(graph.cliques)  # type: ignore[arg-type]  # checked above
        return counts + self.regularization * jnp.eye(graph.num_nodes)
