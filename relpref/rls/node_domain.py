"""Nodes as they are given to an estimator, checked: a domain with labels, features and a kernel."""

from typing import Any

import pandas as pd

from relpref.data.labels import LabelIndex, plain_labels
from relpref.errors import DataError
from relpref.infer.exact.domain import Domain, numeric
from relpref.rls.node_kernels import NodeKernel


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
