"""Regularized least squares for conditional ranking, in closed form or by conjugate gradients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from relpref.data.arrays import Floats, Indices
from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import DataError
from relpref.infer.exact.closed import EvidenceGradient, KroneckerFit, KroneckerSystem, Loss
from relpref.infer.exact.domain import Asked, Domain, centred
from relpref.infer.exact.edges import EdgeFit, SingularError, solve_edges
from relpref.kernels.edge_landmarks import EdgeGram
from relpref.kernels.pairwise import (
    MLPK,
    Cartesian,
    Kronecker,
    PairwiseKernel,
    Preference,
    Reciprocal,
    Side,
    Symmetric,
    Weights,
)
from relpref.linalg import require_memory
from relpref.linalg.cg import CGResult
from relpref.result import InferenceWarning, progress_line, warn_user

Solver = Literal["auto", "closed", "cg"]

SOLVERS = ("auto", "closed", "cg")
# The kernel of edges by its name and the constraint on the relation; MLPK is symmetric and
# Preference reciprocal by itself.
PAIR_KERNELS: dict[tuple[str, str], PairwiseKernel] = {
    ("kronecker", "none"): Kronecker(),
    ("kronecker", "symmetric"): Symmetric(),
    ("kronecker", "reciprocal"): Reciprocal(),
    ("cartesian", "none"): Cartesian(),
    ("mlpk", "none"): MLPK(),
    ("mlpk", "symmetric"): MLPK(),
    ("preference", "none"): Preference(),
    ("preference", "reciprocal"): Preference(),
}


class EdgeLabels(NamedTuple):
    """Labels that count, and their positions; each has noise of variance λ times its ``share``."""

    position: Indices
    rows: Indices
    columns: Indices
    values: Floats
    share: Floats


@dataclass(frozen=True, eq=False)
class RelationProblem:
    """A relation to be solved at any regularization.

    Options are those of `relpref.rls.ConditionalRanker`. ``nodes`` and ``objects`` are one object
    where the nodes are ranked for one another. Under a constraint ``values`` are in both directions
    and less ``shift``, see `RelationValues.constrained`. With a ``mesh`` of devices there is no
    closed form.

    Raises
    ------
    DataError
        If an option does not exist, or the options do not fit together or the relation.
    """

    nodes: Domain
    objects: Domain
    values: RelationValues
    loss: Loss = "ranking"
    symmetry: Symmetry = "none"
    pair_kernel: str = "kronecker"
    solver: Solver = "auto"
    shift: float = 0.0
    mesh: Any = None
    kernel: PairwiseKernel = field(init=False)
    # Of the closed form, by whether eigenvalues that are 0 are left out.
    _systems: dict[bool, KroneckerSystem] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.loss not in ("ranking", "regression"):
            raise DataError(f"loss is {self.loss!r}; it is 'ranking' or 'regression'")
        if self.solver not in SOLVERS:
            raise DataError(f"solver is {self.solver!r}; it is 'auto', 'closed' or 'cg'")
        kernel = PAIR_KERNELS.get((self.pair_kernel, self.symmetry))
        if kernel is None:
            possible = ", ".join(f"{name!r} with symmetry={sym!r}" for name, sym in PAIR_KERNELS)
            raise DataError(
                f"pair_kernel is {self.pair_kernel!r} with symmetry={self.symmetry!r}; there are "
                f"{possible}"
            )
        object.__setattr__(self, "kernel", kernel)
        if kernel.one_domain and self.nodes is not self.objects:
            raise DataError(
                f"the {type(kernel).__name__} kernel is between edges of one set of nodes, and "
                "objects were given besides; "
                "use pair_kernel='kronecker' or 'cartesian' with symmetry='none'"
            )
        if self.loss == "ranking" and not self.values.varies:
            single = self.values.row_counts.max() == 1
            why = "has a single edge" if single else "gives all its objects the same label"
            raise DataError(
                f"relation: every conditioning node {why}, so there is nothing to rank by; use "
                "loss='regression', or condition on the other argument"
            )
        if (
            self.loss == "regression"
            and self.symmetry == "reciprocal"
            and not self.values.values.any()
        ):
            raise DataError(
                "relation: all labels say that there is no preference; there is nothing to learn"
            )
        if self.solver == "closed" and not self.closed:
            raise DataError(f"solver='closed': {self._why_not_closed()}; use 'auto' or 'cg'")

    @property
    def closed(self) -> bool:
        """Whether there is a closed form, and it was not declined."""
        return self.solver != "cg" and not self._why_not_closed()

    def _why_not_closed(self) -> str:
        if self.mesh is not None:
            return "several devices iterate"
        if not self.values.complete:
            return "the relation is incomplete or has repeated edges"
        if self.pair_kernel != "kronecker":
            return f"the {self.pair_kernel} kernel has no closed form"
        if self.symmetry != "none" and self.loss == "ranking":
            return f"the ranking loss of a {self.symmetry} relation has none"
        return ""

    @property
    def empty_nodes(self) -> int:
        """Conditioning nodes without two edges: the ranking loss has nothing to learn from them."""
        return 0 if self.values.complete else int(np.sum(self.values.row_counts < 2))

    @cached_property
    def labels(self) -> EdgeLabels:
        """Labels with their share of the noise variance.

        Each label of a constrained relation comes once, with half the noise; but twice with the
        ranking loss, which uses it at both its ends.
        """
        values, both = self.values, self.symmetry != "none" and self.loss == "regression"
        kept = values.distinct(self.symmetry if both else "none")
        rows, columns = values.rows[kept], values.columns[kept]
        share = np.where(both & (rows != columns), 0.5, 1.0)
        return EdgeLabels(kept, rows, columns, values.values[kept], share)

    def covariance(self, labels: EdgeLabels) -> Floats:
        """Kernel of pairs between the labels, shape (q, q)."""
        return self.kernel.matrix(
            *self.sides, labels.rows, labels.columns, labels.rows, labels.columns
        )

    @property
    def num_labels(self) -> int:
        """Number of independent label values.

        They are contrasts within nodes with the ranking loss, and distinct pairs under a
        constraint.
        """
        q = len(self.values.distinct(self.symmetry))
        if self.symmetry == "none" and self.loss == "ranking":
            q -= int(np.sum(self.values.row_counts > 0))
        return max(q, 1)

    def system(self, *, full: bool = False) -> KroneckerSystem:
        """The system of the closed form, for every λ.

        Hold-outs need it ``full``; scores do not need eigenvalues that are 0.
        """
        thin = not full and (self.nodes.thin or self.objects.thin)
        if thin not in self._systems:
            p, m = self.values.shape
            numbers = 4 * p * m if thin else 4 * p * p + 4 * m * m + 6 * p * m
            require_memory(8.0 * numbers, f"the closed form for {p} x {m} pairs")
            sides = self.nodes, self.objects
            left, right = (side.thin_eigen if thin else side.eigen for side in sides)
            labels = self.values.matrix
            self._systems[thin] = KroneckerSystem(left, right, labels, self.loss, self.symmetry)
        return self._systems[thin]

    def closed_scores(self, regularization: float, scale: float | None = None) -> "ClosedScores":
        """The closed form at one λ; the ``scale`` is estimated from the labels if it is None."""
        system = self.system()
        rounding = np.finfo(np.float64).eps * system.left.values[-1:] * system.right.values[-1:]
        if np.any(regularization < rounding):
            warn_user(
                f"the regularization {regularization:g} is below the rounding of the kernel of "
                f"pairs, {rounding[0]:.1e}, so that scores and their uncertainty may be wrong; "
                "center or standardize the features, or raise it",
                InferenceWarning,
            )
        return ClosedScores(self, regularization, scale)

    def direct(self, regularization: float) -> "Scores":
        """Solve without iterations: in closed form or by a factor of the edges' kernel."""
        if self.closed:
            return ClosedScores(self, regularization, 1.0)
        return EdgeScores.direct(self, regularization, 1.0)

    def iterate(
        self, regularization: float, *, scale: float | None = None, **options: Any
    ) -> tuple["EdgeScores", CGResult]:
        """Solve by conjugate gradients; options are those of `solve_edges`.

        Solutions at several λ may each start from the one before.

        Raises
        ------
        DataError
            If an option does not fit, memory would not suffice, or the iterations broke down on a
            matrix that is no kernel.
        """
        values, ranking = self.values, self.loss == "ranking"
        (p, m), q = values.shape, len(values.values)
        # Vectors over edges, products of pairs, and G once more where it is centered; measured.
        numbers = (10 * q + m * m if ranking else 8 * q) + 4 * p * m
        require_memory(8.0 * numbers, f"conjugate gradients of {q} edges between {p} x {m} nodes")
        left, right = self.sides
        if self.centres:
            right = Side.training(centred(centred(right.kernel).T))
        gram = EdgeGram(self.kernel, left, right, values.rows, values.columns)
        groups = values.rows if ranking else None
        result = solve_edges(
            gram, values.values, regularization, groups=groups, mesh=self.mesh, **options
        )
        if result.reason == "breakdown":
            self.require_semidefinite()
        # Without the solution there is no estimate of the scale. Where it is known, variances do
        # not depend on the iterations.
        stopped = scale is None and result.reason != "converged"
        if scale is None:  # (yᵀ P y is the labels' part of the evidence)
            scale = np.nan if stopped else float(values.values @ result.solution) / self.num_labels
        return EdgeScores(self, regularization, scale, result.solution, stopped), result

    def solve(
        self,
        regularization: float,
        *,
        scale: float | None = None,
        progress_bar: bool = False,
        **options: Any,
    ) -> tuple["Scores", CGResult | None, dict[str, Any]]:
        """Solve in closed form where there is one, else by `iterate`.

        Returns the scores, the result of the iterations (None without any) and entries for
        ``info``.
        """
        if self.closed:
            return (
                self.closed_scores(regularization, scale),
                None,
                {"solver": "closed form", "iterations": 0},
            )
        with progress_line(
            "conjugate gradients", progress_bar, "iterations", "residual {:.1e}"
        ) as report:
            scores, result = self.iterate(regularization, scale=scale, progress=report, **options)
        info = {"iterations": result.iterations, "residual": result.residual}
        return scores, result, {"solver": "conjugate gradients", **info}

    @property
    def sides(self) -> tuple[Side, Side]:
        """The training nodes and objects as the kernel of pairs takes them."""
        left = Side.training(self.nodes.gram)
        return left, left if self.nodes is self.objects else Side.training(self.objects.gram)

    @property
    def centres(self) -> bool:
        """Whether G is centered, which avoids cancellation.

        Scores stay the same, because offsets take up what G adds to all objects.
        """
        return (
            self.loss == "ranking" and self.pair_kernel == "kronecker" and self.symmetry == "none"
        )

    def require_semidefinite(self) -> None:
        """Refuse matrices with negative eigenvalues, which are no kernels."""
        self.nodes.require_semidefinite()
        self.objects.require_semidefinite()

    def require_variation(self) -> None:
        """Refuse kernels of pairs that are 0 or constant: no object could rank above another."""
        nodes, objects = self.nodes, self.objects
        kernel = (
            f"the {self.pair_kernel if self.symmetry == 'none' else self.symmetry} kernel of pairs"
        )
        remedy = f"give {objects.name}s features that differ, or another kernel"
        for side in (nodes, objects):
            if not side.own.max(initial=0.0) > 0 and self.pair_kernel != "cartesian":
                raise DataError(
                    f"{kernel} is 0 for every pair: so is the kernel of the {side.name}s; {remedy}"
                )
        if (
            self.symmetry == "reciprocal"
            and self.pair_kernel == "kronecker"
            and nodes.is_one_direction
        ):
            raise DataError(
                f"{kernel} is 0 for every pair: to the kernel of the {nodes.name}s they are "
                "multiples of one another, as to a linear "
                "kernel of one feature; use kernel='gaussian', or give more features"
            )
        same = objects.is_constant and (self.loss == "ranking" or nodes.is_constant)
        if self.pair_kernel != "cartesian" and same and len(objects.labels) > 1:
            raise DataError(
                f"{kernel} has no variance: to the kernel of the {objects.name}s they are all the "
                f"same, so none can be ranked above another; {remedy}"
            )

    def require_no_leak(self) -> None:
        """Refuse hold-outs without a closed form, and a relation with an undeclared constraint."""
        if not self.closed:
            raise DataError(
                "hold-outs in closed form need a completely observed relation, the Kronecker "
                "kernel, and for the ranking loss symmetry='none'; use leave_nodes_out or "
                "cross-validation with relpref.rls.EdgeKFold"
            )
        if self.symmetry != "none" or self.nodes is not self.objects or len(self.nodes.gram) < 3:
            return
        labels = self.values.matrix
        scale = 1e-9 * np.abs(labels).max()
        off = ~np.eye(len(labels), dtype=bool)
        for kind, sums in (("symmetric", labels - labels.T), ("reciprocal", labels + labels.T)):
            if np.ptp(sums[off]) <= scale:
                raise DataError(
                    f"the labels are {kind}, but symmetry is 'none': (w, v) would tell what is "
                    "left out at (v, w); use "
                    f"symmetry={kind!r} with loss='regression', or leave_nodes_out"
                )

    def dual_matrix(self, dual: Floats) -> Weights:
        """Coefficients by node and object, shape (p, m), with sums over repeated edges."""
        values = self.values
        if values.complete:
            return dual.reshape(values.shape)
        return sparse.coo_array((dual, (values.rows, values.columns)), shape=values.shape).tocsr()

    def describe(self) -> dict[str, Any]:
        """Entries for ``info`` that need no computation."""
        info: dict[str, Any] = {"edges": len(self.values.values), "complete": self.values.complete}
        if self.loss == "ranking" and self.empty_nodes:
            info["skipped_nodes"] = self.empty_nodes
        return info


class Scores(ABC):
    """The solution of a relation at one λ: scores of known and new nodes and objects.

    ``scale`` is the common factor of prior and noise; variances are multiplied by it.
    """

    stopped = False

    def __init__(self, problem: RelationProblem, regularization: float, scale: float) -> None:
        self.problem, self.regularization, self.scale = problem, regularization, scale

    @property
    @abstractmethod
    def dual_matrix(self) -> Weights:
        """The dual by node and object, shape (p, m)."""

    @property
    def coefficients(self) -> Floats:
        """Dual of all pairs, shape (p, m), if the relation is complete, else of the edges (q,)."""
        return self.dual_matrix

    def at(self, rows: Indices, columns: Indices) -> Floats:
        """Means of selected pairs of training nodes, shape (q,)."""
        return self.problem.kernel.at(*self.problem.sides, self.dual_matrix, rows, columns)

    def mean(self, left: Asked, right: Asked) -> Floats:
        """Posterior mean scores of b objects for a nodes, Σ_e a_e k((v, w), e), shape (a, b)."""
        side = right.side
        if self.problem.centres:
            # The dual's rows add up to 0, so what is constant in G over training objects adds only
            # rounding.
            side = Side(centred(side.kernel), side.index)
        return self._constrained(
            self.problem.kernel.scores(left.side, side, self.dual_matrix), left, right
        )

    def _constrained(self, scores: Floats, left: Asked, right: Asked) -> Floats:
        """Scores that obey the constraint exactly, without rounding errors."""
        sign = SIGN[self.problem.symmetry]
        return 0.5 * (scores + sign * scores.T) if sign and left.side is right.side else scores

    @abstractmethod
    def variance(self, left: Asked, right: Asked) -> Floats:
        """Posterior variances, shape (a, b)."""

    def query(self, query: Asked, right: Asked) -> tuple[Floats, Floats]:
        """Mean (b,) and covariance (b, b) over b objects for one conditioning node."""
        covariance = self._covariance(query, right)
        return self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T)

    @abstractmethod
    def _covariance(self, query: Asked, right: Asked) -> Floats: ...

    @abstractmethod
    def log_evidence(self) -> float: ...

    @abstractmethod
    def evidence_gradient(self) -> EvidenceGradient:
        """Gradient of the log evidence at scale 1."""

    def arrays(self) -> dict[str, Floats]:
        """Arrays to be stored in addition to the problem, λ and the scale."""
        return {}

    @abstractmethod
    def left_out(self) -> tuple[Floats, Floats]:
        """Dual a and precision P of the `EdgeLabels`.

        Labels that are left out have the residuals a/P and the variances scale/P.
        """

    def by_edges(self) -> "EdgeScores":
        """The same from the edges' own kernel matrix."""
        return EdgeScores.direct(self.problem, self.regularization, self.scale)


class ClosedScores(Scores):
    """Scores of a complete relation, computed at their first use.

    A scale of None is estimated from the labels.
    """

    def __init__(
        self, problem: RelationProblem, regularization: float, scale: float | None = None
    ) -> None:
        super().__init__(problem, regularization, np.nan)
        self.scale = self.fit.scale if scale is None else scale

    @cached_property
    def fit(self) -> KroneckerFit:
        return self.problem.system().solve(self.regularization)

    @property
    def dual_matrix(self) -> Floats:
        return self.fit.dual

    def log_evidence(self) -> float:
        return self.fit.log_evidence(self.scale)

    def evidence_gradient(self) -> EvidenceGradient:
        return self.fit.evidence_gradient()

    def left_out(self) -> tuple[Floats, Floats]:
        self.problem.require_no_leak()
        fit = self.problem.system(full=True).solve(self.regularization)
        _, rows, columns, _, share = self.problem.labels
        return fit.dual[rows, columns] / share, fit.label_precision(rows, columns) / share

    def mean(self, left: Asked, right: Asked) -> Floats:
        if self.fit.system.labels is None:
            return super().mean(left, right)
        a, b = self._rotated(left, right)  # less work with few eigenvalues
        return self._constrained(a @ self.fit.rotated_dual @ b.T, left, right)

    def variance(self, left: Asked, right: Asked) -> Floats:
        """O(p²) for each score of a symmetric or reciprocal relation."""
        system, fit = self.fit.system, self.fit
        a, b = self._rotated(left, right)
        # Prior variances that the training nodes explain, by eigenvector.
        parts_a, parts_b = (
            np.square(rotated) * _inverse(eigen.values)
            for rotated, eigen in ((a, system.left), (b, system.right))
        )
        prior_a, prior_b = self.problem.nodes.diagonal(left), self.problem.objects.diagonal(right)
        explained_a, explained_b = parts_a.sum(axis=1), parts_b.sum(axis=1)
        variance = parts_a @ (fit.regularization * fit.shrinkage) @ parts_b.T
        variance += np.multiply.outer(_unexplained(prior_a, explained_a, left), prior_b)
        variance += np.multiply.outer(
            np.minimum(explained_a, prior_a), _unexplained(prior_b, explained_b, right)
        )
        if system.loss == "ranking":
            variance += (np.square(a) / fit.offset_precision) @ np.square(b @ fit.offset_pull.T).T
        if system.symmetry != "none":
            cross = self.problem.nodes.between(left, right)
            between = np.empty_like(variance)
            for row, (node, to_objects) in enumerate(zip(a, cross, strict=True)):
                both, explained = node * b, b @ (_inverse(system.left.values) * node)
                between[row] = np.einsum("wi,ij,wj->w", both, self._swapped, both, optimize=True)
                if left.new or right.new:
                    between[row] += np.square(to_objects) - np.square(explained)
            variance = 0.5 * (variance + SIGN[system.symmetry] * between)
        return self.scale * np.maximum(variance, 0.0)

    def _covariance(self, query: Asked, right: Asked) -> Floats:
        system, fit = self.fit.system, self.fit
        (a,), b = self._rotated(query, right)
        parts = np.square(a) * _inverse(system.left.values)
        variance, explained = self.problem.nodes.diagonal(query), parts.sum(keepdims=True)
        weights = (parts @ fit.shrinkage) * fit.regularization * _inverse(system.right.values)
        covariance = (b * weights) @ b.T
        if query.new or right.new:
            prior = self.problem.objects.between(right, right)
            covariance += _unexplained(variance, explained, query) * prior
            if right.new:
                covariance += min(explained[0], variance[0]) * (
                    prior - (b * _inverse(system.right.values)) @ b.T
                )
        if system.loss == "ranking":
            pull = b @ fit.offset_pull.T
            covariance += (pull * (np.square(a) / fit.offset_precision)) @ pull.T
        if system.symmetry != "none":
            between = b @ (self._swapped * np.multiply.outer(a, a)) @ b.T
            if query.new or right.new:
                cross = self.problem.nodes.between(query, right)[0]
                explained = b @ (_inverse(system.left.values) * a)
                between += np.multiply.outer(cross, cross) - np.multiply.outer(explained, explained)
            covariance = 0.5 * (covariance + SIGN[system.symmetry] * between)
        return covariance

    def _rotated(self, left: Asked, right: Asked) -> tuple[Floats, Floats]:
        """K(left, nodes) V and G(right, objects) U."""
        system = self.fit.system
        return left.side.kernel @ system.left.vectors, right.side.kernel @ system.right.vectors

    @cached_property
    def _swapped(self) -> Floats:
        """λ D_ij/(κ_i κ_j), shape (r, r), for the covariance of (v, w) and (w, v)."""
        inverse = _inverse(self.fit.system.left.values)
        return self.fit.regularization * self.fit.shrinkage * np.multiply.outer(inverse, inverse)


def _inverse(eigenvalues: Floats) -> Floats:
    """Inverses 1/κ_i, and 0 where κ_i is 0."""
    return np.divide(1.0, eigenvalues, out=np.zeros_like(eigenvalues), where=eigenvalues > 0)


def _unexplained(variance: Floats, explained: Floats, asked: Asked) -> Floats:
    """Prior variance that the training nodes do not explain: 0 for these nodes themselves."""
    return np.maximum(variance - explained, 0.0) if asked.new else np.zeros_like(variance)


class EdgeScores(Scores):
    """Scores from the dual of q observed edges.

    All but means need a factor of the edges' kernel, which is computed at its first use. There are
    no variances where iterations ``stopped`` before the solution from which the scale was to be
    estimated; it is NaN then.
    """

    def __init__(
        self,
        problem: RelationProblem,
        regularization: float,
        scale: float,
        dual: Floats,
        stopped: bool = False,
    ) -> None:
        super().__init__(problem, regularization, scale)
        self.dual, self.stopped = dual, stopped

    @classmethod
    def direct(cls, problem: RelationProblem, regularization: float, scale: float) -> "EdgeScores":
        """Solve for the dual P y by the factor, without iterations."""
        scores = cls(problem, regularization, scale, np.zeros(len(problem.values.values)))
        # The kernel covers both directions of a pair, so the dual of one is enough.
        scores.dual[problem.labels.position] = scores.fit.dual
        return scores

    @property
    def coefficients(self) -> Floats:
        return self.dual_matrix if self.problem.values.complete else self.dual

    @cached_property
    def dual_matrix(self) -> Weights:
        return self.problem.dual_matrix(self.dual)

    def arrays(self) -> dict[str, Floats]:
        return {"dual": self.dual}

    @cached_property
    def fit(self) -> EdgeFit:
        """The labels with their covariance written out, noise included; O(q³).

        Raises
        ------
        DataError
            If the iterations were stopped, λ is not positive or lost in rounding, or memory would
            not suffice.
        """
        if self.stopped:
            raise DataError(
                "the iterations ended before the solution, so there is no uncertainty of the "
                "scores, only their mean; fit without early stopping, callback or max_iter, at a "
                "regularization chosen by ConditionalRankerCV"
            )
        if not self.regularization > 0:
            raise DataError(
                f"regularization is {self.regularization}; uncertainty needs a positive value, the "
                "variance of the noise"
            )
        problem, labels = self.problem, self.problem.labels
        q = len(labels.values)
        require_memory(
            24.0 * q * q, f"the uncertainty of a relation with {q} edges that has no closed form"
        )
        matrix = problem.covariance(labels)
        matrix[np.diag_indices(q)] += self.regularization * labels.share
        try:
            return EdgeFit(
                matrix, labels.values, labels.rows if problem.loss == "ranking" else None
            )
        except np.linalg.LinAlgError:
            raise SingularError(
                f"regularization is {self.regularization}, which is lost in the rounding of the "
                "kernel of the edges; uncertainty needs a larger one"
            ) from None

    def log_evidence(self) -> float:
        return self.fit.log_evidence(self.scale)

    def evidence_gradient(self) -> EvidenceGradient:
        """Gradient from the products of the kernels for pairs, and for pairs with one reversed."""
        problem, (_, rows, columns, _, share) = self.problem, self.problem.labels
        require_memory(40.0 * len(rows) ** 2, f"the evidence of a relation with {len(rows)} edges")
        by = self.fit.covariance_gradient()
        left, right = (np.zeros((n, n)) for n in problem.values.shape)
        k, g = problem.nodes.gram, problem.objects.gram
        sign = SIGN[problem.symmetry]
        for factor, others in (
            (0.5 if sign else 1.0, (rows, columns)),
            (0.5 * sign, (columns, rows)),
        ):
            if factor:
                left += factor * _gathered(
                    by * g[np.ix_(columns, others[1])], rows, others[0], len(left)
                )
                right += factor * _gathered(
                    by * k[np.ix_(rows, others[0])], columns, others[1], len(right)
                )
        noise = float(np.diagonal(by) @ share)
        return EvidenceGradient(0.5 * (left + left.T), 0.5 * (right + right.T), noise)

    def left_out(self) -> tuple[Floats, Floats]:
        """Dual and precision as in `Scores.left_out`, O(q³) for q edges."""
        self.problem.require_semidefinite()
        return self.fit.dual, np.diagonal(self.fit.precision)

    def variance(self, left: Asked, right: Asked) -> Floats:
        return np.stack(
            [np.diagonal(self.query(left.row(row), right)[1]) for row in range(len(left.labels))]
        )

    def _covariance(self, query: Asked, right: Asked) -> Floats:
        """Posterior covariance: the prior less k P kᵀ, with P as in `EdgeFit`."""
        problem, labels, b = self.problem, self.problem.labels, len(right.labels)
        fit = self.fit
        problem.require_semidefinite()
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        cross = problem.kernel.matrix(
            query.side, right.side, first, second, labels.rows, labels.columns
        )
        pulled = fit.white(cross.T)
        # For the prior the nodes of the question take the place of the training nodes.
        node = problem.nodes.between(query, query)
        among, start = problem.objects.between(right, right), 0
        if problem.kernel.one_domain:  # the node and the objects after it
            to_objects, start = problem.nodes.between(query, right), 1
            node, among = np.hstack([node, to_objects]), np.hstack([to_objects.T, among])
        left, side = Side(node, first[:1]), Side(among, second + start)
        prior = problem.kernel.matrix(left, side, first, second, first, second + start)
        return prior - pulled.T @ pulled


def _gathered(weights: Floats, rows: Indices, columns: Indices, size: int) -> Floats:
    """Sums of weights over the labels with each pair of nodes, shape (size, size)."""
    places = np.arange(len(rows))
    first, second = (
        sparse.csr_array((np.ones(len(rows)), (ends, places)), shape=(size, len(rows)))
        for ends in (rows, columns)
    )
    return np.asarray((second @ (first @ weights).T).T)
