"""Kernels of nodes: by name, as a matrix, a function or a kernel of the package."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import pairwise_kernels

from relpref.data import Graph
from relpref.data.arrays import Floats, Indices
from relpref.data.labels import LabelIndex, read_labels
from relpref.errors import DataError
from relpref.infer.exact.domain import Domain, numeric
from relpref.limits import MAX_FACTOR_ENTRY
from relpref.linalg import checked_symmetric, require_memory
from relpref.skeleton import evaluated

Kernel = str | Callable[..., Any]


# Names that scikit-learn gives to kernels.
_METRICS = {"linear": "linear", "polynomial": "poly", "gaussian": "rbf"}
KERNELS = (*_METRICS, "precomputed")


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
        Attributes; for ``"precomputed"`` the kernel itself, shape (n, k); for a kernel on a graph
        the numbers of the nodes, shape (n,).
    right : array or sparse matrix, shape (k, d), optional
        The nodes of the training; by default the same as ``left``.
    kernel : str or callable
        ``"linear"`` x·y, ``"polynomial"`` (γ x·y + coef0)^degree, ``"gaussian"`` exp(−γ ‖x − y‖²),
        ``"precomputed"``; a function of two arrays that returns the (n, k) matrix; or a kernel of
        `relpref.kernels`, whose hyperparameters are given in ``kernel_params``, and for a kernel on
        a graph also the `relpref.data.Graph` as ``graph``.
    gamma : float, optional
        γ; by default 1/d.
    degree, coef0 : float
        Parameters of the polynomial kernel.
    kernel_params : dict, optional
        Keywords for a function or a kernel of the package.

    Returns
    -------
    array of float64, shape (n, k)

    Raises
    ------
    DataError
        If there is no such kernel, the result has another shape, is not finite or not symmetric
        without ``right``, or a node is not in the graph.
    """
    return NodeKernel(kernel, gamma, degree, coef0, kernel_params)(left, right)


@dataclass(frozen=True)
class NodeKernel:
    """`gram` with its options, in the form that `relpref.infer.exact.domain.Domain` takes."""

    kernel: Kernel
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1.0
    kernel_params: Mapping[str, Any] | None = None

    def __call__(self, left: Any, right: Any = None) -> Floats:
        kernel, params = self.kernel, dict(self.kernel_params or {})
        if isinstance(kernel, str):
            self.require_no_keywords("kernel_params")
            matrix = self._named(left, right)
        elif not callable(kernel):
            raise DataError(
                f"kernel is {kernel!r}; give a name ({', '.join(KERNELS)}), a function or a kernel "
                "object"
            )
        elif not hasattr(kernel, "parameters"):
            matrix = kernel(left, left if right is None else right, **params)
        elif "graph" in signature(kernel).parameters:
            matrix = _of_graph(left, right, kernel, **params)
        else:
            matrix = _of_attributes(left, right, kernel, params)
        name = f"{kernel} kernel" if isinstance(kernel, str) else "kernel"
        return _checked(matrix, left, right, name)

    def require_no_keywords(self, option: str) -> None:
        """Refuse keywords for a kernel by name; ``option`` names them in the message."""
        if isinstance(self.kernel, str) and self.kernel_params:
            raise DataError(
                f"{option} are for functions and kernels of relpref.kernels, not for "
                f"kernel={self.kernel!r}; it has gamma, degree and coef0"
            )

    def _named(self, left: Any, right: Any) -> Any:
        if self.gamma is not None and not self.gamma > 0:
            raise DataError(f"gamma is {self.gamma}; it must be positive")
        if self.kernel == "precomputed":
            return left
        if self.kernel not in _METRICS:
            raise DataError(
                f"there is no kernel {self.kernel!r}; there are {', '.join(KERNELS)}, or give a "
                "function"
            )
        options = {"degree": self.degree, "gamma": self.gamma, "coef0": self.coef0}
        return pairwise_kernels(left, right, _METRICS[self.kernel], filter_params=True, **options)

    def factor(self, nodes: Any) -> Floats | None:
        """Factor F (n, d) of the kernel F Fᵀ of some nodes, where it has at most half the size."""
        if self.kernel != "linear" or nodes.ndim != 2:
            return None
        n, d = nodes.shape
        if not 0 < 2 * d <= n:
            return None
        require_memory(8.0 * n * d, f"features of {n} nodes")
        factor = dense(nodes)
        largest = float(np.abs(factor).max(initial=0.0))
        if not largest < MAX_FACTOR_ENTRY:
            raise DataError(
                f"features reach {largest:g}; they must be finite and below {MAX_FACTOR_ENTRY:g}: "
                "rescale them"
            )
        return factor


def _of_attributes(
    left: Any, right: Any, kernel: Callable[..., Any], params: Mapping[str, Any]
) -> Floats:
    """Evaluate a kernel of the package on attributes.

    It takes one set of items, so each block holds items of both sides.
    """

    def covariance(attributes: Floats) -> Floats:
        values = _hyperparameters(kernel, attributes.shape[1], params)
        return np.asarray(evaluated(_covariance, kernel, attributes, {}, values))

    new = dense(left)
    if right is None:
        return covariance(new)
    old = dense(right)
    parts = [new[start : start + len(old)] for start in range(0, len(new), len(old))]
    blocks = [covariance(np.concatenate([part, old]))[: len(part), len(part) :] for part in parts]
    return np.concatenate(blocks)


def _of_graph(
    left: Any,
    right: Any,
    kernel: Callable[..., Any],
    *,
    graph: Any = None,
    normalize: bool = True,
    **params: Any,
) -> Floats:
    """Evaluate a kernel of the package on a graph, for nodes of the graph by number."""
    if not isinstance(graph, Graph):
        raise DataError(
            f"{kernel} is a kernel on a graph; give the relpref.data.Graph as "
            "kernel_params={'graph': ...}"
        )
    rows = _node_numbers(left, graph)
    columns = rows if right is None else _node_numbers(right, graph)
    values = _hyperparameters(kernel, graph, params)
    options = {"normalize": normalize}
    covariance = np.asarray(evaluated(_covariance, kernel, graph, options, values))
    return covariance[np.ix_(rows, columns)]


def _covariance(
    kernel: Any, domain: Any, options: Mapping[str, Any], values: Mapping[str, Any]
) -> Any:
    return kernel(domain, **options, **values).dense()


def _hyperparameters(kernel: Any, domain: Any, params: Mapping[str, Any]) -> dict[str, Floats]:
    """Check that a kernel of the package gets all its hyperparameters and no others."""
    names = sorted(kernel.parameters(domain))
    if sorted(params) != names:
        raise DataError(
            f"{kernel} has the hyperparameters {', '.join(names) or '(none)'}; "
            f"kernel_params has {', '.join(sorted(params)) or 'none'}"
        )
    return {name: np.asarray(params[name], dtype=np.float64) for name in names}


def _node_numbers(nodes: Any, graph: Graph) -> Indices:
    """Check numbers of nodes: a kernel on a graph is defined for the nodes of the graph only."""
    given = dense(nodes).ravel()
    numbers = given.astype(np.intp)
    if np.any(wrong := (numbers != given) | (numbers < 0) | (numbers >= graph.num_nodes)):
        raise DataError(
            f"node {given[wrong][0]:g} is not one of the graph's, which are numbered 0 to "
            f"{graph.num_nodes - 1}; a kernel on a graph knows its own nodes only: include new "
            "nodes in the graph and leave their labels unknown"
        )
    return numbers


def dense(nodes: Any) -> Floats:
    """Array of float64 of an array or a sparse matrix."""
    return np.asarray(nodes.toarray() if hasattr(nodes, "toarray") else nodes, dtype=np.float64)


def _checked(matrix: Any, left: Any, right: Any, name: str) -> Floats:
    """Check the shape, that all is finite, and that one set of nodes has a symmetric matrix."""
    result = dense(matrix)
    if right is None:
        result = checked_symmetric(result, name)
    expected = np.shape(left)[0], np.shape(left if right is None else right)[0]
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
    """Read the nodes of one side of a relation from features or a kernel matrix.

    ``name`` is "node" or "object". A kernel matrix is not standardized.
    """
    kernel.require_no_keywords("kernel_params" if name == "node" else "object_kernel_params")
    columns = None
    if isinstance(nodes, pd.DataFrame):
        where = f"{name} {{}}".format
        labels = LabelIndex(read_labels(nodes.index, where), where).labels  # none is repeated
        if kernel.kernel == "precomputed":
            nodes = _square(nodes, labels, name)
        columns = tuple(str(column) for column in nodes.columns)
        twice = pd.Index(columns).duplicated()
        if twice.any():
            raise DataError(
                f"the features of the {name}s: column {columns[twice.argmax()]!r} occurs more than "
                "once; rename or remove one"
            )
    features = numeric(nodes, f"the {name}s")
    by_name = isinstance(kernel.kernel, str)
    # Kernels on graphs and functions may take nodes that are numbers.
    if features.ndim not in ((2,) if by_name else (1, 2)) or 0 in features.shape:
        raise DataError(
            f"{name}s have the shape {features.shape}; give one row of features for each {name}"
        )
    if columns is None:
        labels = tuple(range(features.shape[0]))
    scaled = standardize and by_name and kernel.kernel != "precomputed"
    return Domain(labels, features, kernel, name, columns, scaled)


def _square(kernel: pd.DataFrame, labels: tuple[Any, ...], name: str) -> pd.DataFrame:
    """Bring the columns of a kernel matrix into the order of its rows."""
    columns = list(read_labels(kernel.columns, lambda column: f"{name} column {column}"))
    if sorted(map(repr, columns)) != sorted(map(repr, labels)):
        raise DataError(
            f"the kernel matrix of the {name}s has {len(labels)} rows and {len(columns)} columns "
            "with other labels; index and columns must hold the same"
        )
    place = {label: position for position, label in enumerate(columns)}
    return kernel.iloc[:, [place[label] for label in labels]]


@dataclass(eq=False, repr=False)
class KernelEstimator(BaseEstimator):
    """Base of estimators with a kernel of nodes; see `gram` for its options."""

    kernel: Kernel = "linear"
    _: KW_ONLY
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1.0
    kernel_params: Mapping[str, Any] | None = None

    def _node_kernel(self, kernel: Kernel, params: Mapping[str, Any] | None) -> NodeKernel:
        return NodeKernel(kernel, self.gamma, self.degree, self.coef0, params)


@dataclass(eq=False, repr=False, kw_only=True)
class RelationEstimator(KernelEstimator):
    """Base of estimators of a relation between nodes and objects, or among the nodes."""

    object_kernel: Kernel | None = None
    object_kernel_params: Mapping[str, Any] | None = None
    symmetry: str = "none"

    def _domains(
        self, nodes: Any, objects: Any, *, standardize: bool = False
    ) -> tuple[Domain, Domain]:
        """Read both sides of the relation; the same domain where there are no objects."""
        kernel, params = self.object_kernel, self.object_kernel_params
        node_kernel = self._node_kernel(self.kernel, self.kernel_params)
        first = read_nodes(nodes, node_kernel, "node", standardize=standardize)
        if objects is None:
            if kernel is not None or params is not None:
                raise DataError(
                    "object_kernel or object_kernel_params is given, but objects are not; the "
                    "relation is among the nodes, with one kernel"
                )
            return first, first
        if kernel is None:
            kernel, params = self.kernel, self.kernel_params if params is None else params
        object_kernel = self._node_kernel(kernel, params)
        return first, read_nodes(objects, object_kernel, "object", standardize=standardize)
