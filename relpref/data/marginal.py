"""Some entities of a data set that is too large for matrices: what an engine looks at, and what is worked out for the others.

An engine sees utilities at the entities that were answered about only. So a large problem is the dense one of these, with the prior
covariance that they have among all: the `MarginalGraph` of a relation brings it. For the other entities covariances are evaluated
where they are wanted: an `ImplicitGraph` says so to whoever makes a covariance from it.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.graph import Graph, ScaleReference
from relpref.errors import UnsupportedProgramError
from relpref.pytree import Untraced

if TYPE_CHECKING:
    from relpref.data.preference import PreferenceData


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Table:
    """A covariance of t nodes as a function of its kernel's one hyperparameter v, Σ_k T_k(y) C_k with Chebyshev's polynomials T_k.

    Attributes
    ----------
    centre, reach : float
        y = (log v − centre)/reach, which is held within −1 and 1.
    coefficients : array, shape (k, t, t)
        C; a single one where there is nothing to be learned.
    """

    centre: Any
    reach: Any
    coefficients: Any


@dataclass(frozen=True, eq=False)
class MarginalGraph:
    """Some nodes of a graph, with the covariance that a kernel gives them in the whole of it; a pytree.

    Parameters
    ----------
    num_nodes : int
        Number of these nodes, t.
    reference : ScaleReference
        Of the whole graph.
    table : Table or None
        None while it is only asked which kernel a program takes, see ``requests``.
    requests : list
        What programs asked of the graph: the kernel, whether to normalise, and the names of its hyperparameters.
    """

    num_nodes: int
    reference: ScaleReference
    table: Table | None = None
    requests: list[Any] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a program may want of a graph is not there."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedProgramError(
            f"the program asks a relation for its {name}, which there is not for so many entities; make its parts as the programs of "
            "relpref.models do (relpref.kernels.graph_covariance), or fit with structure='dense'"
        )


def _flatten(graph: MarginalGraph) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (graph.reference, graph.table), (graph.num_nodes, Untraced(graph.requests))


def _unflatten(static: tuple[Any, ...], children: Any) -> MarginalGraph:
    graph = object.__new__(MarginalGraph)
    graph.__dict__.update(
        num_nodes=static[0], reference=children[0], table=children[1], requests=static[1].content
    )
    return graph


jax.tree_util.register_pytree_node(MarginalGraph, _flatten, _unflatten)


@dataclass(frozen=True, eq=False)
class ImplicitGraph:
    """A graph whose covariances are to be evaluated where they are wanted, never as a matrix.

    Parameters
    ----------
    graph : Graph
        With a reference that is given, so that nobody needs its spectrum.
    """

    graph: Graph

    @property
    def reference(self) -> ScaleReference:
        """What kernels are scaled by."""
        return self.graph.reference


def marginal(data: "PreferenceData", positions: NDArray[Any], spare: int = 0) -> "PreferenceData":
    """The data of the entities at some ascending positions, among which all answers must be.

    Its relations are `MarginalGraph` without tables. The first entity's labels and attributes fill ``spare`` places at the end.
    """
    graphs: dict[str, Any] = {
        name: MarginalGraph(len(positions) + spare, graph.reference) for name, graph in data.relations.items()
    }
    found = _at(data, positions)
    if spare:
        rows = np.concatenate([np.arange(len(positions)), np.zeros(spare, dtype=int)])
        found = replace(
            found,
            entities=tuple(found.entities[row] for row in rows),
            attributes=read_only(found.attributes[rows]),
        )
    return replace(found, _graphs=graphs, _links={})


def induced(data: "PreferenceData", positions: NDArray[Any]) -> tuple["PreferenceData", NDArray[np.int64]]:
    """The data of some entities for whoever wants to look at them: answers and links among them; and the rows of these answers."""
    here = np.zeros(data.num_entities, dtype=bool)
    here[positions] = True
    rows = np.flatnonzero(here[data.winner] & here[data.loser])
    place = np.cumsum(here) - 1
    graphs = {}
    for name, graph in data.relations.items():
        kept = here[graph.source] & here[graph.target]
        ends = place[graph.source[kept]], place[graph.target[kept]]
        graphs[name] = Graph(len(positions), *ends, graph.weight[kept])
    kept_answers = data.select_comparisons(rows)
    return replace(_at(kept_answers, positions), _graphs=graphs, _links={}), rows


def _at(data: "PreferenceData", positions: NDArray[Any]) -> "PreferenceData":
    answers = data.comparisons
    # Positions ascend, so answers stay in their order.
    ends = {
        name: read_only(np.searchsorted(positions, getattr(answers, name)).astype(np.int32))
        for name in ("winner", "loser")
    }
    return replace(
        data,
        entities=tuple(data.entities[at] for at in positions),
        attributes=read_only(np.asarray(data.attributes)[positions]),
        comparisons=replace(answers, **ends),
    )


def implicit(data: "PreferenceData") -> "PreferenceData":
    """The data with `ImplicitGraph` as its relations; no pytree, for programs that run outside compiled functions."""
    graphs: Any = {name: ImplicitGraph(graph) for name, graph in data.relations.items()}
    return replace(data, _graphs=graphs, implicit=True)


def with_references(data: "PreferenceData", references: dict[str, ScaleReference]) -> "PreferenceData":
    """The data with given scales in place of those that the spectra of its graphs would give."""
    graphs = dict(data.relations)
    for name, reference in references.items():
        graph = object.__new__(Graph)
        graph.__dict__.update({**graphs[name].__dict__, "frozen_reference": reference})
        graph.__dict__.pop("reference", None)
        graphs[name] = graph
    return replace(data, _graphs=graphs)
