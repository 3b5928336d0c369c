"""Covariances of data that is too large for matrices: looked up for a few nodes, or evaluated where they are wanted."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.data import Graph, ScaleReference
from relpref.data.marginal import ImplicitGraph, MarginalGraph
from relpref.errors import DataError
from relpref.linalg import (
    CovarianceOperator,
    Dense,
    HeatKernel,
    Identity,
    ImplicitCovariance,
    KernelMatrix,
    LaplacianSolver,
    gap_quadrature,
    real,
)

Floats = NDArray[np.float64]

EXACT = 1000  # nodes up to which a spectrum costs less than its estimate
_SOLVERS: WeakKeyDictionary[Graph, LaplacianSolver] = WeakKeyDictionary()
_HEATS: WeakKeyDictionary[Graph, HeatKernel] = WeakKeyDictionary()


def graph_covariance(kernel: Any, graph: Any, *, normalize: bool, **values: Array) -> CovarianceOperator:
    """The covariance that a kernel gives the nodes of a graph, in the form that the graph asks for.

    Parameters
    ----------
    kernel : GraphKernel
    graph : Graph, MarginalGraph or ImplicitGraph
    normalize : bool
        See `RegularizedLaplacian`.
    **values
        Hyperparameters of the kernel by name.

    Raises
    ------
    DataError
        If there are too many nodes for a matrix and the kernel has no other form.
    """
    if isinstance(graph, MarginalGraph):
        return _looked_up(kernel, graph, normalize, values)
    if isinstance(graph, ImplicitGraph):
        known = {name: float(value) for name, value in values.items()}
        lazy: Any = graph_implicit(kernel, graph.graph, normalize, known)
        return lazy  # programs only hand it on
    found = kernel(graph, normalize=normalize, **values)
    return found


def graph_implicit(
    kernel: Any, graph: Graph, normalize: bool, values: Mapping[str, float]
) -> ImplicitCovariance:
    """The covariance of all nodes at known hyperparameters, to be evaluated where it is wanted.

    Raises
    ------
    DataError
        If the kernel has no such form.
    """
    form = getattr(kernel, "implicit", None)
    if form is None:
        raise DataError(
            f"{type(kernel).__name__} has no form for so many entities; RegularizedLaplacian, Diffusion and HiddenCommonCause have, or fit with "
            "structure='dense'"
        )
    found: ImplicitCovariance = form(graph, normalize=normalize, **values)
    return found


def attribute_covariance(kernel: Any, attributes: Any, implicit: bool, **values: Array) -> CovarianceOperator:
    """The covariance that a kernel gives attribute vectors, shape (n, d); evaluated where it is wanted if ``implicit``."""
    if not implicit:
        found = kernel(attributes, **values)
        return found
    cross = getattr(kernel, "cross", None)
    if cross is None:
        raise DataError(
            f"{type(kernel).__name__} has no method cross(rows, columns, **hyperparameters) for the covariances of some entities with "
            "others, which so many entities need; write it, or fit with structure='dense'"
        )

    compiled = jax.jit(cross)

    def some(rows: Floats, columns: Floats) -> Floats:
        shape = len(rows), len(columns)
        with jax.enable_x64(True):
            return np.asarray(compiled(_filled(rows), _filled(columns), **values))[: shape[0], : shape[1]]

    lazy: Any = KernelMatrix(some, np.asarray(attributes))
    return lazy


def individual_covariance(size: int, implicit: bool) -> CovarianceOperator:
    """The identity on n entities; no matrix if ``implicit``."""
    if not implicit:
        return Dense(jnp.eye(size))
    lazy: Any = Identity(size)
    return lazy


def _filled(points: Floats) -> Floats:
    """Points, the last of them repeated up to a round number, so that few shapes are compiled for."""
    step = max(64, 1 << max(0, len(points).bit_length() - 3))
    return np.pad(points, ((0, -len(points) % step), (0, 0)), mode="edge") if len(points) else points


def _looked_up(
    kernel: Any, graph: MarginalGraph, normalize: bool, values: dict[str, Array]
) -> CovarianceOperator:
    table = graph.table
    if table is None:
        graph.requests.append((kernel, normalize, tuple(values)))
        return Dense(jnp.eye(graph.num_nodes))
    coefficients = real(table.coefficients)
    if len(coefficients) == 1:
        return Dense(coefficients[0])
    (value,) = values.values()
    place = jnp.clip((jnp.log(value) - table.centre) / table.reach, -1.0, 1.0)
    # T_k(y) by its recurrence: arccos has no slope at the ends.
    terms = [jnp.ones(()), place]
    while len(terms) < len(coefficients):
        terms.append(2 * place * terms[-1] - terms[-2])
    return Dense(jnp.tensordot(jnp.stack(terms), coefficients, 1))


def solver_of(graph: Graph) -> LaplacianSolver:
    """The solver of a graph's Laplacian, made once."""
    if graph not in _SOLVERS:
        _SOLVERS[graph] = LaplacianSolver(graph.adjacency())
    return _SOLVERS[graph]


def share_solver(known: Graph, graph: Graph) -> None:
    """Let a graph with the links of a known one have its solver, and what that has seen."""
    if known in _SOLVERS:
        _SOLVERS[graph] = _SOLVERS[known]


def heat_of(graph: Graph, time: float) -> HeatKernel:
    """The heat kernel of a graph, with what is known of it at the last time."""
    known = _HEATS.get(graph)
    if known is None or known.time != time:
        known = _HEATS[graph] = HeatKernel(solver_of(graph), time)
    return known


def scale_reference(graph: Graph) -> tuple[ScaleReference, float]:
    """What kernels on a graph are scaled by, and the largest relative standard error of that scale; without the spectrum of a large one."""
    if graph.num_nodes <= EXACT:
        return graph.reference, 0.0
    eigenvalues, gap_weights, error = gap_quadrature(solver_of(graph))
    return ScaleReference(eigenvalues, gap_weights, graph.mean_degree, graph.component), error


def gap_scale(reference: ScaleReference, function: Any) -> float:
    """What brings the mean gap variance of a function of the Laplacian to 2; 1 where there is no gap in a component."""
    variance = float(np.sum(np.asarray(reference.gap_weights) * function(np.asarray(reference.eigenvalues))))
    return 2 / variance if variance > 0 else 1.0


def as_implicit(covariance: Any) -> ImplicitCovariance:
    """What a program that ran on implicit data made, as what it is."""
    if not isinstance(covariance, ImplicitCovariance):
        raise DataError(
            f"a part of the prior is a {type(covariance).__name__}, a matrix of all entities; make the parts of a program for so many as those "
            "of relpref.models do, or fit with structure='dense'"
        )
    return covariance
