"""Kernels of nodes: by name, as a matrix, as a function, or as one of the package's kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

from relpref.data import Graph
from relpref.data.labels import LabelIndex, plain_labels
from relpref.errors import DataError
from relpref.infer.exact.domain import Domain, numeric
from relpref.linalg import checked_symmetric, real, require_memory

Floats = NDArray[np.float64]
Kernel = str | Callable[..., Any]

_LARGEST = 1e60  # features whose fourth powers, in products of two kernels, are still numbers

KERNELS = ("linear", "polynomial", "gaussian", "precomputed")


def gram(
    left: Any,
    right: Any = None,
    *,
    kernel: Kernel,
    gamma: float | None = None,
    degree: float = 3,
    coef0: float = 1.0,
    kernel_params: Mapping[str, Any] | None = None,
) -> Floats:
    """Kernel of every node on the left with every node on the right.

    Parameters
    ----------
    left : array or sparse matrix, shape (n, d)
        One row of attributes for each node; for ``"precomputed"`` the kernel itself, shape (n, k); for a kernel on a graph
        the numbers of the nodes, shape (n,) or (n, 1).
    right : array or sparse matrix, shape (k, d), optional
        The nodes of the training; by default the same as ``left``.
    kernel : str or callable
        ``"linear"`` x·y, ``"polynomial"`` (γ x·y + coef0)^degree, ``"gaussian"`` exp(−γ ‖x − y‖²), ``"precomputed"``;
        a function of two arrays that returns the (n, k) matrix; or a kernel of `relpref.kernels`, whose hyperparameters are
        given in ``kernel_params``, and for a kernel on a graph also the `relpref.data.Graph` as ``graph``.
    gamma : float, optional
        γ; by default 1/d.
    degree, coef0 : float
        Of the polynomial kernel.
    kernel_params : dict, optional
        Keywords for a function or a kernel of the package.

    Returns
    -------
    array of float64, shape (n, k)

    Raises
    ------
    DataError
        If there is no such kernel, if the result has another shape or is not finite, if it is not symmetric where
        ``right`` is not given, or if a node is not in the graph.
    """
    params = dict(kernel_params or {})
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise DataError(
                f"there is no kernel {kernel!r}; there are {', '.join(KERNELS)}, or give a function"
            )
        if params:
            raise DataError(
                f"kernel_params are for functions and kernels of relpref.kernels, not for kernel={kernel!r}; "
                "it has gamma, degree and coef0"
            )
        matrix = named(left, right, kernel, gamma, degree, coef0)
    elif not callable(kernel):
        raise DataError(
            f"kernel is {kernel!r}; give a name ({', '.join(KERNELS)}), a function or a kernel object"
        )
    elif not hasattr(kernel, "parameters"):
        matrix = kernel(left, left if right is None else right, **params)
    elif "graph" in signature(kernel).parameters:
        matrix = of_graph(left, right, kernel, **params)
    else:
        matrix = of_attributes(left, right, kernel, **params)
    return checked(matrix, left, right, kernel)


@dataclass(frozen=True)
class NodeKernel:
    """`gram` with its options, as a kernel of a `relpref.infer.exact.domain.Domain`.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        See `gram`.
    """

    kernel: Kernel
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1.0
    kernel_params: Mapping[str, Any] | None = None

    def __call__(self, left: Any, right: Any = None) -> Floats:
        """Kernel of nodes with one another, or with others."""
        return gram(left, right, **{field.name: getattr(self, field.name) for field in fields(self)})

    def factor(self, nodes: Any) -> Floats | None:
        """F with F Fᵀ the kernel of some nodes, shape (n, d), where it says it with half the numbers or less."""
        if self.kernel != "linear" or nodes.ndim != 2 or not 0 < 2 * nodes.shape[1] <= nodes.shape[0]:
            return None
        require_memory(8.0 * nodes.shape[0] * nodes.shape[1], f"features of {nodes.shape[0]} nodes")
        factor = dense(nodes)
        largest = float(np.abs(factor).max(initial=0.0))
        if not largest < _LARGEST:
            raise DataError(
                f"features reach {largest:g}; they must be finite and below {_LARGEST:g}: rescale them"
            )
        return factor


def named(
    left: Any, right: Any, kernel: str, gamma: float | None, degree: float, coef0: float
) -> NDArray[np.floating[Any]]:
    """A kernel by its name."""
    if gamma is not None and not gamma > 0:
        raise DataError(f"gamma is {gamma}; it must be positive")
    match kernel:
        case "linear":
            return linear_kernel(left, right)
        case "polynomial":
            return polynomial_kernel(left, right, degree=degree, gamma=gamma, coef0=coef0)
        case "gaussian":
            return rbf_kernel(left, right, gamma=gamma)
        case _:
            return left


def of_attributes(left: Any, right: Any, kernel: Callable[..., Any], **params: Any) -> Floats:
    """A kernel of the package on attributes; it knows one set of entities, so blocks of both are put together."""

    def covariance(attributes: Floats) -> Floats:
        with jax.enable_x64(True):
            known = hyperparameters(kernel, attributes.shape[1], params)
            return np.asarray(kernel(real(attributes), **known).dense())

    if right is None:
        return covariance(dense(left))
    new, old = dense(left), dense(right)
    rows = [new[start : start + len(old)] for start in range(0, len(new), len(old))]
    return np.concatenate(
        [covariance(np.concatenate([part, old]))[: len(part), len(part) :] for part in rows]
    )


def of_graph(
    left: Any, right: Any, kernel: Callable[..., Any], *, graph: Any = None, **params: Any
) -> Floats:
    """A kernel of the package on a graph; nodes are the graph's own, by number."""
    if not isinstance(graph, Graph):
        raise DataError(
            f"{kernel} is a kernel on a graph; give the relpref.data.Graph as kernel_params={{'graph': ...}}"
        )
    rows = node_numbers(left, graph)
    columns = rows if right is None else node_numbers(right, graph)
    normalize = params.pop("normalize", True)
    with jax.enable_x64(True):
        known = hyperparameters(kernel, graph, params)
        covariance = np.asarray(kernel(graph, normalize=normalize, **known).dense())
    return covariance[np.ix_(rows, columns)]


def hyperparameters(kernel: Any, domain: Any, params: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The hyperparameters of a kernel of the package, if they are those that it has."""
    names = sorted(kernel.parameters(domain))
    if sorted(params) != names:
        raise DataError(
            f"{kernel} has the hyperparameters {', '.join(names) or '(none)'}; "
            f"kernel_params has {', '.join(sorted(params)) or 'none'}"
        )
    return {name: real(params[name]) for name in names}


def node_numbers(nodes: Any, graph: Graph) -> NDArray[np.intp]:
    """Checked numbers of nodes; a kernel on a graph is not defined for nodes that it does not have."""
    given = dense(nodes).ravel()
    numbers = given.astype(np.intp)
    if np.any(wrong := (numbers != given) | (numbers < 0) | (numbers >= graph.num_nodes)):
        raise DataError(
            f"node {given[wrong][0]:g} is not one of the graph's, which are numbered 0 to {graph.num_nodes - 1}; "
            "a kernel on a graph knows its own nodes only: include new nodes in the graph and leave their labels unknown"
        )
    return numbers


def dense(nodes: Any) -> Floats:
    return np.asarray(nodes.toarray() if hasattr(nodes, "toarray") else nodes, dtype=np.float64)


def checked(matrix: Any, left: Any, right: Any, kernel: Kernel) -> Floats:
    """The matrix as float64, if it has the right shape, is finite, and symmetric for one set of nodes."""
    name = f"{kernel} kernel" if isinstance(kernel, str) else "kernel"
    if right is None:
        square = checked_symmetric(dense(matrix), name)
        if len(square) != np.shape(left)[0]:
            raise DataError(f"the {name} has {len(square)} rows for {np.shape(left)[0]} nodes")
        return square
    result = dense(matrix)
    expected = (np.shape(left)[0], np.shape(right)[0])
    if result.shape != expected:
        raise DataError(
            f"the {name} has shape {result.shape}, not {expected}: "
            "one row for each node, one column for each node of the training"
        )
    if not np.all(np.isfinite(result)):
        row, column = np.argwhere(~np.isfinite(result))[0]
        raise DataError(f"the {name} holds {result[row, column]} at row {row}, column {column}")
    return result


def read_nodes(nodes: Any, kernel: NodeKernel, name: str, *, standardize: bool = False) -> Domain:
    """Read the nodes of one side of a relation.

    Parameters
    ----------
    nodes : DataFrame, array or sparse matrix, shape (p, d)
        Features, the index of a DataFrame are their labels; the kernel matrix for ``"precomputed"``.
    kernel : NodeKernel
    name : {"node", "object"}
        What errors call one of them.
    standardize : bool
        Whether a kernel by name sees standardised features, see `Domain`; a kernel matrix stays as it is.

    Raises
    ------
    DataError
        If features are no finite numbers, labels or columns occur twice, or the kernel takes no keywords and has some.
    """
    if isinstance(kernel.kernel, str) and kernel.kernel_params:
        option = "kernel_params" if name == "node" else "object_kernel_params"
        raise DataError(
            f"{option} are for functions and kernels of relpref.kernels, not for kernel={kernel.kernel!r}; it has gamma, degree "
            "and coef0"
        )
    columns = None
    if isinstance(nodes, pd.DataFrame):
        labels = tuple(plain_labels(nodes.index, lambda row: f"{name} {row}"))
        LabelIndex(labels, lambda row: f"{name} {row}")  # none twice
        if kernel.kernel == "precomputed":
            nodes = _square(nodes, labels, name)
        columns = tuple(str(column) for column in nodes.columns)
        twice = pd.Index(columns).duplicated()
        if twice.any():
            raise DataError(
                f"the features of the {name}s: column {columns[twice.argmax()]!r} occurs more than once; rename or remove one"
            )
    features = numeric(nodes, f"the {name}s")
    # Kernels on graphs and functions may take nodes that are numbers.
    shapes = (2,) if isinstance(kernel.kernel, str) else (1, 2)
    if features.ndim not in shapes or 0 in features.shape:
        raise DataError(f"{name}s have the shape {features.shape}; give one row of features for each {name}")
    if columns is None:
        labels = tuple(range(features.shape[0]))
    by_name = isinstance(kernel.kernel, str) and kernel.kernel != "precomputed"
    return Domain(labels, features, kernel, name, columns, standardize and by_name)


def _square(kernel: pd.DataFrame, labels: tuple[Any, ...], name: str) -> pd.DataFrame:
    """A kernel matrix with its columns in the order of its rows."""
    columns = list(plain_labels(kernel.columns, lambda column: f"{name} column {column}"))
    if sorted(map(repr, columns)) != sorted(map(repr, labels)):
        raise DataError(
            f"the kernel matrix of the {name}s has {len(labels)} rows and {len(columns)} columns with other labels; "
            "index and columns must hold the same"
        )
    place = {label: position for position, label in enumerate(columns)}
    return kernel.iloc[:, [place[label] for label in labels]]
