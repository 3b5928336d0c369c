"""Classifying edges of a relation by a Gaussian process, as a scikit-learn estimator."""

from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from relpref.blas import threads_for
from relpref.classifiers.base import WARN_VARIANCE_SHARE, GPClassifier
from relpref.data import PreferenceData, RelationData
from relpref.data.items import ItemTable
from relpref.data.preference import assembled
from relpref.data.relation_data import read_relation
from relpref.errors import DataError
from relpref.infer.exact.domain import Asked, Domain
from relpref.infer.relation_posterior import labelled_frame
from relpref.kernels import AttributeKernel, Precomputed
from relpref.models import edge_landmarks, kronecker_classifier
from relpref.models.relation import landmark_error
from relpref.result import warn_user
from relpref.rls.node_kernels import RelationEstimator, dense

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

_SLACK = 1e-6  # rounding of a given matrix, relative to the kernel of a new node with itself


@dataclass(frozen=True, eq=False)
class EdgeSide:
    """Nodes of one kind, and the training nodes in the form of the program.

    A kernel without hyperparameters to learn is `Precomputed`, with the matrix as attributes of the
    data.
    """

    domain: Domain
    kernel: AttributeKernel
    data: PreferenceData

    @classmethod
    def of(cls, domain: Domain) -> "EdgeSide":
        """Make a side of nodes.

        The program learns the hyperparameters of a kernel of the package without ``kernel_params``.
        """
        kernel: Any = domain.kernel
        function = kernel.kernel
        if isinstance(function, Precomputed):
            raise DataError(
                f"the kernel of {domain.name}s is Precomputed; give kernel='precomputed' and the "
                f"matrix as {domain.name}s"
            )
        on_attributes = (
            hasattr(function, "parameters") and "graph" not in signature(function).parameters
        )
        if on_attributes and not kernel.kernel_params:
            features = dense(domain.features).reshape(len(domain.labels), -1)
            names = domain.feature_names or tuple(
                f"feature {column}" for column in range(features.shape[1])
            )
            data = _as_data(domain.labels, features, names)
            return cls(replace(domain, kernel=_unknown), function, data)
        domain.require_semidefinite()
        return cls(domain, Precomputed(), _as_given(domain.labels, domain.gram))

    def positions(self, asked: Asked, start: int = 0) -> Positions:
        """Positions among the nodes of `extended`; ``start`` new nodes come before."""
        if not asked.new:
            return asked.side.index
        return len(self.domain.labels) + start + np.arange(len(asked.labels))

    def extended(self, *asked: Asked) -> PreferenceData:
        """Data of the training nodes, followed by the new nodes among the asked ones."""
        new = [nodes for nodes in asked if nodes.new]
        if not new:
            return self.data
        parts = [nodes.features for nodes in new]
        stacked = sparse.issparse(parts[0])
        features = sparse.vstack(parts, "csr") if stacked else np.concatenate(parts)
        # The labels that new nodes were given may be those of some training nodes.
        labels = [("new", row) for row in range(features.shape[0])]
        if self.domain.kernel is _unknown:
            index = pd.Index(labels, tupleize_cols=False)
            columns = list(self.data.attribute_names)
            return self.data.extend(pd.DataFrame(dense(features), index=index, columns=columns))
        cross = np.concatenate([nodes.side.kernel for nodes in new])
        matrix = np.block([[self.domain.gram, cross.T], [cross, self._among(features, cross)]])
        return _as_given((*self.domain.labels, *labels), matrix)

    def _among(self, features: Any, cross: Floats) -> Floats:
        """Kernel of new nodes with each other.

        For a precomputed kernel NaN, except on the diagonal, if that of the training is constant.
        """
        kernel = self.domain.kernel
        if getattr(kernel, "kernel", None) != "precomputed":
            return kernel(features, features)
        variances = self.domain.own
        largest = variances.max()
        if np.ptp(variances) > _SLACK * largest:
            raise DataError(
                f"a precomputed kernel does not say how much a new {self.domain.name} varies, and "
                f"those of the training differ ({variances.min():.6g} to {largest:.6g}); include "
                f"new {self.domain.name}s in the matrix with labels unknown"
            )
        eigen = self.domain.eigen
        kept = eigen.values > _SLACK * eigen.values.max()
        explained = np.sum((cross @ eigen.vectors[:, kept]) ** 2 / eigen.values[kept], axis=1)
        if np.any(wrong := explained > largest * (1 + _SLACK)):
            row = int(np.argmax(wrong))
            raise DataError(
                f"new {self.domain.name} {row}: the known ones explain {explained[row]:.6g} of its "
                f"variance, which is {largest:.6g}: its row and the training's matrix are not of "
                "one kernel; correct them together, see relpref.linalg.nearest_semidefinite"
            )
        return np.where(np.eye(len(cross), dtype=bool), variances.mean(), np.nan)


def _unknown(left: Any, right: Any = None) -> Floats:
    """Zeros in place of a kernel with unknown hyperparameters: only features are needed."""
    return np.zeros((left.shape[0], (left if right is None else right).shape[0]))


def _as_given(labels: tuple[Any, ...], matrix: Floats) -> PreferenceData:
    """Make data with a kernel matrix as attributes that are not standardized."""
    size = len(labels)
    data = _as_data(labels, matrix, tuple(map(str, range(size))))
    return replace(data, attribute_center=np.zeros(size), attribute_scale=np.ones(size))


def _as_data(labels: tuple[Any, ...], attributes: Floats, names: tuple[str, ...]) -> PreferenceData:
    return assembled(ItemTable(list(labels), np.array(attributes), names, str), None)


@dataclass(eq=False, repr=False, kw_only=True)
class KroneckerGPClassifier(RelationEstimator, GPClassifier):
    """Classify the edges of a relation by a Gaussian process, with probabilities.

    The latent function of an edge (v, w) has the covariance a² K(v, v') G(w, w'), or the symmetric
    or reciprocal version of it, and only the observed edges are used; see
    `relpref.models.kronecker_classifier`. The amplitude a and the intercept are learned.

    Parameters
    ----------
    kernel : str, callable or kernel of `relpref.kernels`
        Kernel of nodes, see `relpref.rls.node_kernels.gram`. The hyperparameters of a kernel of the
        package on attributes, such as ``SquaredExponential()``, are learned from the data (with
        attributes standardized), unless ``kernel_params`` gives them.
    object_kernel, gamma, degree, coef0, kernel_params, object_kernel_params, symmetry
        See `relpref.rls.ConditionalRanker`.
    link : {"probit", "logit"}
    landmarks : int or None
        Maximum number of edges that represent all others; time grows with its square. None takes as
        many as an exact result needs.
    engine : {"ep", "laplace"}
    fixed : dict, optional
        Values of hyperparameters that are not learned, such as ``{"amplitude": 2.0}``;
        ``{"intercept": [0.0]}`` leaves out the intercept.
    priors : dict, optional
        Priors of hyperparameters, see `relpref.models.kronecker_classifier`.
    random_state : int
        Seed of the choice of landmarks and of the posterior's draws.

    Attributes
    ----------
    posterior_ : ClassPosterior
        Posterior, with ``predict_proba(data)`` and ``latent(data)`` for other tables of edges.
    data_ : RelationData
    landmarks_ : EdgeLandmarks
        Landmarks; ``landmarks_.error`` is the share of the prior variance that they leave out at
        the hyperparameters at which they were chosen.
    landmark_error_ : float
        The same share at the learned hyperparameters; there is a warning above 0.3.
    classes_ : array, shape (2,)
        The two labels.

    Examples
    --------
    >>> import numpy as np
    >>> from relpref.classifiers import KroneckerGPClassifier
    >>> nodes = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.2]])
    >>> classifier = KroneckerGPClassifier().fit(nodes, np.eye(4))
    >>> classifier.predict_proba().shape
    (4, 4)
    """

    landmarks: int | None = 500

    def fit(
        self, nodes: Any, relation: Any, objects: Any = None, *, progress_bar: bool = False
    ) -> Self:
        """Learn from a known or partly known relation.

        Arguments and errors are those of `relpref.rls.ConditionalRanker.fit`. Labels are 0 and 1
        (or false and true); a reciprocal relation may have −1 and 1.
        """
        fixed = self._checked_fixed()
        if self.landmarks is not None and self.landmarks < 1:
            raise DataError(
                f"landmarks is {self.landmarks}; give 1 or more edges, or None for the exact "
                "process"
            )
        first, second = self._domains(nodes, objects)
        self._nodes = EdgeSide.of(first)
        self._objects = None if second is first else EdgeSide.of(second)
        other = None if self._objects is None else self._objects.data
        values = read_relation(relation, first.labels, None if other is None else second.labels)
        symmetry: Any = self.symmetry
        self.data_ = RelationData.of_values(self._nodes.data, values, other, symmetry=symmetry)
        antisymmetric = self.symmetry == "reciprocal" and not self.data_.shift
        self.classes_ = np.array([-1.0 if antisymmetric else 0.0, 1.0])
        options: dict[str, Any] = {"node_kernel": self._nodes.kernel, "priors": self.priors}
        if self._objects is not None:
            options["object_kernel"] = self._objects.kernel
        held = {name: value for name, value in fixed.items() if name != "intercept"}
        with threads_for(self.landmarks or 0):
            self.landmarks_ = edge_landmarks(
                self.data_, self.landmarks, values=held, seed=self.random_state, **options
            )
        self.posterior_ = self._run(
            kronecker_classifier,
            self.data_,
            fixed,
            progress_bar,
            landmarks=self.landmarks_,
            **options,
        )
        self.landmark_error_ = landmark_error(
            self.data_, self.landmarks_, values=self.posterior_.hyperparameters, **options
        )
        if self.landmark_error_ > WARN_VARIANCE_SHARE:
            warn_user(
                f"{len(self.landmarks_)} landmarks leave out {self.landmark_error_:.0%} of the "
                "known edges' prior variance, which then counts as noise: an edge learns less from "
                "edges like it than it could; give more landmarks, or None for the exact process"
            )
        return self

    def predict_proba(self, nodes: Any = None, objects: Any = None) -> Any:
        """Probability of the higher label for every pair.

        Arguments and shape are those of `relpref.rls.ConditionalRanker.predict`.
        """
        check_is_fitted(self, "posterior_")
        one_kind, others, before = self._objects is None, self._objects or self._nodes, 0
        left = self._nodes.domain.ask(nodes)
        right = left if one_kind and objects is nodes else others.domain.ask(objects)
        if one_kind:
            if self.kernel == "precomputed" and left.new and right.new:
                raise DataError(
                    "a precomputed kernel says nothing of new nodes among themselves, which edges "
                    "between them need; include them in the matrix with labels unknown, or give "
                    "the kernel by name or as a function"
                )
            ends = (left,) if right is left else (left, right)
            data = self.data_.with_nodes(self._nodes.extended(*ends))
            before = len(left.labels) if left.new and right is not left else 0
        else:
            data = self.data_.with_nodes(self._nodes.extended(left), others.extended(right))
        rows, columns = self._nodes.positions(left), others.positions(right, before)
        asked = data.asking(np.repeat(rows, len(columns)), np.tile(columns, len(rows)))
        probability: Floats = self.posterior_.predict_proba(asked).iloc[:, 1].to_numpy()
        table = labelled_frame(probability.reshape(len(rows), len(columns)), left, right)
        return self._nodes.domain.as_given(table)

    def predict(self, nodes: Any = None, objects: Any = None) -> Any:
        """The more probable label of every pair; arguments and shape as for `predict_proba`."""
        probability = self.predict_proba(nodes, objects)
        labels = self.classes_[(np.asarray(probability) > 0.5).astype(int)]
        if isinstance(probability, pd.DataFrame):
            return pd.DataFrame(labels, index=probability.index, columns=probability.columns)
        return labels
