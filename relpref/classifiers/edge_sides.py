"""The nodes of one side of a relation as data for a program, with new nodes among them where a question has some."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from relpref.data import PreferenceData
from relpref.data.answers import Comparisons
from relpref.data.arrays import read_only
from relpref.data.entities import standardization
from relpref.errors import DataError
from relpref.infer.exact.domain import Asked, Domain
from relpref.kernels import AttributeKernel, Precomputed
from relpref.rls.node_domain import read_nodes
from relpref.rls.node_kernels import NodeKernel, dense

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

_SLACK = 1e-6  # of a new node's kernel with itself: what rounding of a given matrix may leave


@dataclass(frozen=True, eq=False)
class EdgeSide:
    """Nodes of one kind.

    Attributes
    ----------
    domain : Domain
        Labels and features; answers what is asked about.
    kernel : AttributeKernel
        For the program: `Precomputed`, where the kernel is known beforehand and the data carry it as attributes.
    data : PreferenceData
        The training nodes.
    """

    domain: Domain
    kernel: AttributeKernel
    data: PreferenceData

    @classmethod
    def read(cls, nodes: Any, kernel: NodeKernel, name: str) -> "EdgeSide":
        """Read nodes; a kernel of the package without ``kernel_params`` is left to the program, which learns its hyperparameters.

        Parameters
        ----------
        nodes : DataFrame, array or sparse matrix
            Features, or the kernel matrix for ``"precomputed"``.
        kernel : NodeKernel
        name : {"node", "object"}
            What errors call one of them.

        Raises
        ------
        DataError
            If features do not fit, or a kernel matrix is none.
        """
        if isinstance(kernel.kernel, Precomputed):
            raise DataError(
                f"the kernel of {name}s is Precomputed; give kernel='precomputed' and the matrix as {name}s"
            )
        domain = read_nodes(nodes, kernel, name)
        if _is_learned(kernel):
            features = dense(domain.features).reshape(len(domain.labels), -1)
            names = domain.feature_names or tuple(f"feature {column}" for column in range(features.shape[1]))
            learned: Any = kernel.kernel
            return cls(replace(domain, kernel=_unknown), learned, _as_data(domain.labels, features, names))
        domain.require_semidefinite()
        return cls(domain, Precomputed(), _as_given(domain.labels, domain.gram))

    def positions(self, asked: Asked, start: int = 0) -> Positions:
        """Where they are among the nodes of `extended`; ``start`` counts new nodes that come before them."""
        if not asked.new:
            return asked.side.index
        return len(self.domain.labels) + start + np.arange(len(asked.labels))

    def extended(self, *asked: Asked) -> PreferenceData:
        """The training nodes, and those that are new among the asked ones after them."""
        new = [one for one in asked if one.new]
        if not new:
            return self.data
        features = new[0].features if len(new) == 1 else _stacked([one.features for one in new])
        if not isinstance(self.kernel, Precomputed):
            # Labels of their own; those that they were given may be some of the known nodes'.
            labels = pd.Index([("new", row) for row in range(features.shape[0])], tupleize_cols=False)
            return self.data.extend(
                pd.DataFrame(dense(features), index=labels, columns=list(self.data.attribute_names))
            )
        cross = np.concatenate([one.side.kernel for one in new])
        matrix = np.block([[self.domain.gram, cross.T], [cross, self._among(features, cross)]])
        return _as_given((*self.domain.labels, *(("new", row) for row in range(len(cross)))), matrix)

    def _among(self, features: Any, cross: Floats) -> Floats:
        """Kernel of new nodes with each other; of a precomputed kernel NaN, but for the diagonal where the known nodes have one value."""
        kernel = self.domain.kernel
        if getattr(kernel, "kernel", None) != "precomputed":
            return kernel(features, features)
        own = np.diagonal(self.domain.gram)
        if np.ptp(own) > _SLACK * own.max():
            raise DataError(
                f"a precomputed kernel does not say how much a new {self.domain.name} varies, and those of the training differ "
                f"({own.min():.6g} to {own.max():.6g}); include new {self.domain.name}s in the matrix with labels unknown"
            )
        eigen = self.domain.eigen
        kept = eigen.values > _SLACK * eigen.values.max()
        explained = np.sum((cross @ eigen.vectors[:, kept]) ** 2 / eigen.values[kept], axis=1)
        if np.any(wrong := explained > own.max() * (1 + _SLACK)):
            row = int(np.argmax(wrong))
            raise DataError(
                f"new {self.domain.name} {row}: the known ones explain {explained[row]:.6g} of its variance, which is {own.max():.6g}: "
                "its row and the training's matrix are not of one kernel; correct them together, see relpref.linalg.nearest_semidefinite"
            )
        return np.where(np.eye(len(cross), dtype=bool), own.mean(), np.nan)


def _is_learned(kernel: NodeKernel) -> bool:
    """Whether a kernel is one of the package on attributes, whose hyperparameters nobody has given."""
    function = kernel.kernel
    on_attributes = hasattr(function, "parameters") and "graph" not in signature(function).parameters  # type: ignore[arg-type]
    return on_attributes and not kernel.kernel_params


def _unknown(left: Any, right: Any = None) -> Floats:
    """In place of a kernel whose hyperparameters are not known: what is asked about is known by its features alone."""
    return np.zeros((left.shape[0], (left if right is None else right).shape[0]))


def _stacked(features: Sequence[Any]) -> Any:
    return sparse.vstack(features, "csr") if sparse.issparse(features[0]) else np.concatenate(features)


def _as_given(labels: tuple[Any, ...], matrix: Floats) -> PreferenceData:
    """A kernel matrix as attributes, which nothing standardises."""
    data = _as_data(labels, matrix, tuple(map(str, range(len(labels)))))
    return replace(data, attribute_center=np.zeros(len(labels)), attribute_scale=np.ones(len(labels)))


def _as_data(labels: tuple[Any, ...], attributes: Floats, names: tuple[str, ...]) -> PreferenceData:
    nothing = np.zeros(0, dtype=np.int32)
    center, scale = standardization(attributes)
    return PreferenceData(
        entities=labels,
        attributes=read_only(np.array(attributes)),
        attribute_names=names,
        attribute_center=center,
        attribute_scale=scale,
        comparisons=Comparisons(nothing, nothing, nothing),
        _graphs={},
    )
