"""The nodes of one side of a relation: their labels, features and kernel."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, diags_array, find, issparse

from relpref.data.arrays import Floats, listed
from relpref.data.attributes import standardization
from relpref.data.labels import LabelIndex, plain_labels
from relpref.errors import DataError
from relpref.kernels.pairwise import Side
from relpref.linalg import Eigen, factor_eigen, require_memory, symmetric_eigen

NodeKernel = Callable[..., Floats]

_ROUNDING = 1e-14  # of the largest variance: what is below it is 0
# New nodes whose kernel among themselves is computed at once, if only its diagonal is needed.
_BLOCK = 64


@dataclass(frozen=True, eq=False)
class Asked:
    """Nodes that a question is about: training nodes, or new ones with features.

    ``side`` has their kernel with the training nodes.
    """

    labels: tuple[Hashable, ...]
    side: Side
    features: Any = None

    @property
    def new(self) -> bool:
        return self.features is not None

    def row(self, row: int) -> "Asked":
        rows = slice(row, row + 1)
        side = Side(self.side.kernel[rows], self.side.index[rows])
        return Asked(self.labels[rows], side, self.features[rows] if self.new else None)


@dataclass(frozen=True, eq=False)
class Domain:
    """Training nodes of one kind, by their labels."""

    labels: tuple[Hashable, ...]
    features: Any  # what the kernel takes; p rows
    # ``kernel(features)`` is the (p, p) matrix, ``kernel(new, features)`` a cross kernel and
    # ``kernel(new, other)`` one between new nodes.
    kernel: NodeKernel
    name: str = "node"  # what errors call one of the nodes: this or "object"
    feature_names: tuple[str, ...] | None = None  # columns that a DataFrame of new nodes must have
    # Whether the kernel sees features with mean 0 and standard deviation 1 over these nodes. Sparse
    # ones are scaled and not centered.
    standardize: bool = False

    def as_given(self, frame: pd.DataFrame) -> Any:
        """An array where the nodes were given without labels."""
        return frame.to_numpy() if self.labels == tuple(range(len(self.labels))) else frame

    @cached_property
    def inputs(self) -> Any:
        """Features as the kernel sees them."""
        return self._standardized(self.features)

    def _standardized(self, features: Any) -> Any:
        if not self.standardize:
            return features
        mean, sd = self._moments
        if issparse(features):
            return csr_array(features @ diags_array(1 / sd))
        return (features - mean) / sd

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        """Means (0 of sparse features) and standard deviations (1 of constant ones), shape (d,)."""
        if not issparse(self.features):
            return standardization(self.features)
        mean, square = (
            np.asarray(x.mean(axis=0)).ravel() for x in (self.features, self.features**2)
        )
        variance = square - mean**2
        return np.zeros_like(mean), np.where(
            variance > _ROUNDING * square, np.sqrt(variance.clip(0)), 1.0
        )

    @cached_property
    def gram(self) -> Floats:
        """K, shape (p, p)."""
        count = len(self.labels)
        numbers = (1 if self.thin else 3) * count**2  # a decomposition needs as much again twice
        require_memory(8.0 * numbers, f"the kernel matrix of {count} {self.name}s")
        return self.kernel(self.inputs)

    @cached_property
    def eigen(self) -> Eigen:
        return symmetric_eigen(self.gram, f"kernel matrix of the {self.name}s")

    @property
    def thin(self) -> bool:
        """Whether K is given by a factor, and so has few eigenvalues that are not 0."""
        return self._factor is not None

    @cached_property
    def _factor(self) -> Floats | None:
        """F, shape (p, d), with K = F Fᵀ."""
        find = getattr(self.kernel, "factor", None)
        return None if find is None else find(self.inputs)

    @cached_property
    def thin_eigen(self) -> Eigen:
        """Eigendecomposition of K; that of its factor, if K has one, leaves out eigenvalues 0."""
        return self.eigen if self._factor is None else factor_eigen(self._factor)

    @property
    def is_constant(self) -> bool:
        """Whether K does not tell any two nodes apart."""
        if self._factor is not None:
            gaps = np.square(self._factor - self._factor.mean(axis=0)).sum(axis=1)
        else:
            rows = self.gram.mean(axis=1)
            gaps = self.own - 2 * rows + rows.mean()
        return bool(gaps.max(initial=0.0) <= _ROUNDING * self.own.max(initial=0.0))

    @property
    def is_one_direction(self) -> bool:
        """Whether K has rank 1 or less, so that its nodes are multiples of one another."""
        first = int(np.argmax(self.own))  # any other would be a multiple of this one
        row = self._factor @ self._factor[first] if self._factor is not None else self.gram[first]
        left = np.abs(self.own * self.own[first] - np.square(row))
        return bool(left.max(initial=0.0) <= _ROUNDING * self.own[first] ** 2)

    @cached_property
    def own(self) -> Floats:
        """The diagonal of K, shape (p,)."""
        if self._factor is not None:
            return np.asarray(np.square(self._factor).sum(axis=1))
        return np.diagonal(self.gram)

    def require_semidefinite(self) -> None:
        """Refuse a matrix with negative eigenvalues, which is no kernel."""
        if not self.thin:  # F Fᵀ has none
            self.eigen  # noqa: B018

    @cached_property
    def _index(self) -> LabelIndex:
        return LabelIndex(self.labels, lambda position: f"{self.name} {position}")

    def ask(self, items: Any = None) -> Asked:
        """Resolve the nodes of a question.

        Parameters
        ----------
        items : None, sequence of labels, DataFrame, array or sparse matrix
            All training nodes; some of them by label (one-dimensional); or new nodes by their
            features (two-dimensional; the index of a DataFrame are their labels; for a precomputed
            kernel the rows hold the kernel with every training node).

        Raises
        ------
        UnknownLabelError
            If a label is not known.
        DataError
            If features do not fit.
        """
        if items is None:
            return Asked(self.labels, Side.training(self.gram))
        if _are_features(items):
            framed = isinstance(items, pd.DataFrame)
            features = self._standardized(self._checked(self._columns(items) if framed else items))
            count = features.shape[0]
            labels = tuple(items.index if framed else range(count))
            return Asked(
                labels, Side(self.kernel(features, self.inputs), np.full(count, -1)), features
            )
        if (
            isinstance(items, str)
            or not hasattr(items, "__len__")
            or getattr(items, "ndim", 1) == 0
        ):
            raise DataError(
                f"{self.name}s: {items!r} is one label; give a list of labels, or features of new "
                f"{self.name}s"
            )

        def where(row: int) -> str:
            return f"{self.name} {row} of those asked for"

        labels = tuple(plain_labels(items, where))
        index = self._index.locate(labels, where, f"give the features of new {self.name}s")
        rows = (
            self.kernel(self.inputs[index], self.inputs)
            if self.thin and len(index)
            else self.gram[index]
        )
        return Asked(labels, Side(rows, index.astype(np.intp)))

    def _checked(self, items: Any) -> Any:
        """New nodes' features, if they are as many as the training nodes'."""
        features = numeric(items, f"new {self.name}s")
        count, given = features.shape
        if not count:
            raise DataError(
                f"there are no new {self.name}s: the features have the shape {features.shape}"
            )
        # Without feature names any number is accepted, and the kernel raises the error.
        expected = len(self.feature_names or ()) or given
        if self.features is not None:
            expected = self.features.shape[1] if self.features.ndim == 2 else 1
        if given != expected:
            words = f"{given} features; the known ones have {expected}"
            if self._precomputed:
                words = (
                    f"{given} kernel values; {expected} are needed, one for each known {self.name}"
                )
            raise DataError(f"new {self.name}s have {words}")
        return features

    def _columns(self, frame: pd.DataFrame) -> pd.DataFrame:
        """New nodes' features in the order of the training nodes'."""
        if self.feature_names is None:
            return frame
        given = [str(column) for column in frame.columns]
        if sorted(given) != sorted(self.feature_names):
            raise DataError(
                f"new {self.name}s have the columns {listed(given)}; the known ones have "
                f"{listed(self.feature_names)}"
            )
        return frame.iloc[:, [given.index(name) for name in self.feature_names]]

    def between(self, first: Asked, second: Asked) -> Floats:
        """Kernel between two groups of asked nodes, shape (a, b)."""
        if not second.new:
            return first.side.kernel[:, second.side.index]
        if not first.new:
            return second.side.kernel[:, first.side.index].T
        self._require_function()
        return self.kernel(first.features, second.features)

    @property
    def _precomputed(self) -> bool:
        """Whether the kernel is a matrix."""
        return bool(getattr(self.kernel, "kernel", None) == "precomputed")

    def _require_function(self) -> None:
        """Refuse questions about new nodes among themselves where there is only a matrix."""
        if self._precomputed:
            raise DataError(
                f"a precomputed kernel says nothing of new {self.name}s among themselves, which "
                "their uncertainty needs; give the "
                "kernel by name or as a function, or include them in the matrix with labels unknown"
            )

    def diagonal(self, asked: Asked) -> Floats:
        """Kernel of every asked node with itself, shape (a,)."""
        if not asked.new:
            return asked.side.kernel[np.arange(len(asked.labels)), asked.side.index]
        self._require_function()
        count = len(asked.labels)
        blocks = [asked.features[start : start + _BLOCK] for start in range(0, count, _BLOCK)]
        return np.concatenate([np.diagonal(self.kernel(block, block)) for block in blocks])


def _are_features(items: Any) -> bool:
    """Whether a question is about new nodes."""
    if issparse(items) or isinstance(items, pd.DataFrame):
        return True
    if isinstance(items, list | tuple) and any(isinstance(item, tuple | str) for item in items):
        return False  # labels, some of which are tuples
    try:
        return np.ndim(items) == 2
    except ValueError:  # rows of different lengths
        return True


def numeric(features: Any, whose: str) -> Any:
    """Finite features in double precision, sparse ones as a CSR array.

    In double precision kernels are symmetric and semidefinite.
    """
    make = csr_array if issparse(features) else np.asarray
    try:
        array: Any = make(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the features of {whose} are not rows of numbers, all of one length ({error}); give "
            "numbers, such as 0 and 1 for categories"
        ) from None
    values = array.data if isinstance(array, csr_array) else array
    if array.ndim in (1, 2) and not np.isfinite(values).all():
        rows, columns, entries = find(array if array.ndim == 2 else array[:, None])
        first = int(np.argmax(~np.isfinite(entries)))
        raise DataError(
            f"the features of {whose} hold {entries[first]} at row {rows[first]}, column "
            f"{columns[first]}; they must be finite"
        )
    return array


def centred(kernel: Floats) -> Floats:
    """Subtract from each row of a kernel its mean over the training nodes."""
    return kernel - kernel.mean(axis=1, keepdims=True)
