"""Regularized least squares for conditional ranking: closed form where there is one, conjugate gradients elsewhere."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, solve_triangular

from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import DataError
from relpref.infer.exact.closed import KroneckerFit, KroneckerSystem, Loss
from relpref.infer.exact.domain import Asked, Domain, centred
from relpref.infer.exact.edges import solve_edges
from relpref.infer.result import InferenceWarning, Progress, warn_user
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

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Solver = Literal["auto", "closed", "cg"]

SOLVERS = ("auto", "closed", "cg")
# The kernel of edges by its name and the constraint on the relation; MLPK is symmetric and Preference reciprocal by itself.
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


@dataclass(frozen=True, eq=False)
class RelationProblem:
    """What is to be solved, for any regularization.

    Parameters
    ----------
    nodes, objects : Domain
        The same object where the nodes are ranked for one another.
    values : RelationValues
        Under a constraint: in both directions and shifted, see `RelationValues.constrained`.
    loss : {"ranking", "regression"}
    symmetry : {"none", "symmetric", "reciprocal"}
    pair_kernel : {"kronecker", "cartesian", "mlpk", "preference"}
    solver : {"auto", "closed", "cg"}
    shift : float
        What was subtracted from the labels.
    mesh : jax.sharding.Mesh, optional
        Devices to iterate on; then there is no closed form.

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

    def __post_init__(self) -> None:
        if self.loss not in ("ranking", "regression"):
            raise DataError(f"loss is {self.loss!r}; it is 'ranking' or 'regression'")
        if self.solver not in SOLVERS:
            raise DataError(f"solver is {self.solver!r}; it is 'auto', 'closed' or 'cg'")
        kernel = PAIR_KERNELS.get((self.pair_kernel, self.symmetry))
        if kernel is None:
            possible = ", ".join(f"{name!r} with symmetry={sym!r}" for name, sym in PAIR_KERNELS)
            raise DataError(
                f"pair_kernel is {self.pair_kernel!r} with symmetry={self.symmetry!r}; there are {possible}"
            )
        object.__setattr__(self, "kernel", kernel)
        if kernel.one_domain and self.nodes is not self.objects:
            raise DataError(
                f"the {type(kernel).__name__} kernel is between edges of one set of nodes, and objects were given besides; "
                "use pair_kernel='kronecker' or 'cartesian' with symmetry='none'"
            )
        self._check_labels()
        if self.solver == "closed" and not self.closed:
            raise DataError(f"solver='closed': {self._why_not_closed()}; use 'auto' or 'cg'")

    @property
    def closed(self) -> bool:
        """Whether there is a closed form, and it was not declined."""
        return self.solver != "cg" and not self._why_not_closed()

    @property
    def empty_nodes(self) -> int:
        """Conditioning nodes without two edges: the ranking loss has nothing to learn from them."""
        return 0 if self.values.complete else int(np.sum(self.values.row_counts < 2))

    @property
    def num_labels(self) -> int:
        """Independent label values: contrasts within nodes with the ranking loss, distinct pairs under a constraint."""
        q = len(self.values.values)
        if self.symmetry != "none":
            loops = int(np.sum(self.values.rows == self.values.columns))
            q = (q - loops) // 2 + (loops if self.symmetry == "symmetric" else 0)
        elif self.loss == "ranking":
            q -= int(np.sum(self.values.row_counts > 0))
        return max(q, 1)

    def system(self, *, full: bool = False) -> KroneckerSystem:
        """For the closed form; serves every regularization, and is made once.

        Parameters
        ----------
        full : bool
            With all eigenvalues, which hold-outs need; scores do not need those that are 0.

        Raises
        ------
        DataError
            If a kernel matrix is none, or memory would not suffice.
        """
        return self._full_system if full or not (self.nodes.thin or self.objects.thin) else self._thin_system

    @cached_property
    def _full_system(self) -> KroneckerSystem:
        p, m = self.values.shape
        require_memory(8.0 * (4 * p * p + 4 * m * m + 6 * p * m), f"the closed form for {p} x {m} pairs")
        return KroneckerSystem(
            self.nodes.eigen, self.objects.eigen, self.values.matrix, self.loss, self.symmetry
        )

    @cached_property
    def _thin_system(self) -> KroneckerSystem:
        p, m = self.values.shape
        require_memory(8.0 * 4 * p * m, f"the closed form for {p} x {m} pairs")
        return KroneckerSystem(
            self.nodes.thin_eigen, self.objects.thin_eigen, self.values.matrix, self.loss, self.symmetry
        )

    def closed_scores(self, regularization: float, scale: float | None = None) -> "ClosedScores":
        """The closed form at one λ; ``scale`` None: estimated from the labels."""
        system = self.system()
        rounding = np.finfo(np.float64).eps * system.left.values[-1:] * system.right.values[-1:]
        if np.any(regularization < rounding):
            warn_user(
                f"the regularization {regularization:g} is below the rounding of the kernel of pairs, {rounding[0]:.1e}, so that scores "
                "and their uncertainty may be wrong; center or standardize the features, or raise it",
                InferenceWarning,
            )
        return ClosedScores(self, regularization, scale)

    def iterate(
        self, regularization: float, *, scale: float | None = None, **options: Any
    ) -> tuple["EdgeScores", CGResult]:
        """By conjugate gradients; the λ of several solutions may be followed by warm starts. Options as for `solve_edges`.

        Raises
        ------
        DataError
            If an option does not fit, memory would not suffice, or the iterations broke down on a matrix that is no kernel.
        """
        self._require_memory()
        left, right = self.sides
        if self._product and self.loss == "ranking":
            # Offsets take up what G adds to all objects or to all labels of an object: the same solution, without cancellation.
            right = Side.training(centred(centred(right.kernel).T))
        values = self.values
        gram = EdgeGram(self.kernel, left, right, values.rows, values.columns)
        groups = values.rows if self.loss == "ranking" else None
        found = solve_edges(gram, values.values, regularization, groups=groups, mesh=self.mesh, **options)
        if found.result.reason == "breakdown":
            self.nodes.require_semidefinite()
            self.objects.require_semidefinite()
        # Without the solution there is no estimate of the scale. Where it is known, variances do not depend on the iterations.
        stopped = scale is None and found.result.reason != "converged"
        if scale is None:  # (yᵀ P y is the labels' part of the evidence)
            scale = np.nan if stopped else float(values.values @ found.dual) / self.num_labels
        return EdgeScores(self, regularization, scale, found.dual, stopped), found.result

    def solve(
        self, regularization: float, *, scale: float | None = None, progress_bar: bool = False, **options: Any
    ) -> tuple["Scores", CGResult | None, dict[str, Any]]:
        """By the closed form where there is one, else by `iterate`.

        Returns
        -------
        Scores
        CGResult or None
            How conjugate gradients ended.
        dict
            What is worth reporting.
        """
        if self.closed:
            return self.closed_scores(regularization, scale), None, {"solver": "closed form", "iterations": 0}
        with Progress("conjugate gradients", progress_bar, "iterations", "residual {:.1e}") as progress:
            scores, found = self.iterate(regularization, scale=scale, progress=progress.step, **options)
        info = {"iterations": found.iterations, "residual": found.residual}
        return scores, found, {"solver": "conjugate gradients", **info}

    @property
    def sides(self) -> tuple[Side, Side]:
        """The training nodes and objects as the kernel of pairs takes them."""
        left = Side.training(self.nodes.gram)
        return left, left if self.nodes is self.objects else Side.training(self.objects.gram)

    @property
    def _product(self) -> bool:
        """Whether the kernel of pairs is K⊗G itself."""
        return self.pair_kernel == "kronecker" and self.symmetry == "none"

    def _require_memory(self) -> None:
        """Of the iterations: vectors over edges, products of pairs, and G once more where it is centered; measured."""
        (p, m), q = self.values.shape, len(self.values.values)
        vectors, again = (10, m * m) if self.loss == "ranking" else (8, 0)
        require_memory(
            8.0 * (vectors * q + 4 * p * m + again),
            f"conjugate gradients of {q} edges between {p} x {m} nodes",
        )

    def require_variation(self) -> None:
        """Refuse kernels by which no object can be ranked above another.

        Raises
        ------
        DataError
            If the kernel of pairs is 0, or the same for all of them.
        """
        nodes, objects = self.nodes, self.objects
        kernel = f"the {self.pair_kernel if self.symmetry == 'none' else self.symmetry} kernel of pairs"
        remedy = f"give {objects.name}s features that differ, or another kernel"
        for side in (nodes, objects):
            if not side.own.max(initial=0.0) > 0 and self.pair_kernel != "cartesian":
                raise DataError(
                    f"{kernel} is 0 for every pair: so is the kernel of the {side.name}s; {remedy}"
                )
        if self.symmetry == "reciprocal" and self.pair_kernel == "kronecker" and nodes.is_one_direction:
            raise DataError(
                f"{kernel} is 0 for every pair: to the kernel of the {nodes.name}s they are multiples of one another, as to a linear "
                "kernel of one feature; use kernel='gaussian', or give more features"
            )
        same = objects.is_constant and (self.loss == "ranking" or nodes.is_constant)
        if self.pair_kernel != "cartesian" and same and len(objects.labels) > 1:
            raise DataError(
                f"{kernel} has no variance: to the kernel of the {objects.name}s they are all the same, so none can be ranked above "
                f"another; {remedy}"
            )

    def require_no_leak(self) -> None:
        """Refuse what has no closed form of hold-outs, and a relation whose labels say everything twice if nobody told.

        Raises
        ------
        DataError
        """
        if not self.closed:
            raise DataError(
                "hold-outs in closed form need a completely observed relation, the Kronecker kernel, and for the ranking loss "
                "symmetry='none'; use leave_nodes_out or cross-validation with relpref.rls.EdgeKFold"
            )
        if self.symmetry != "none" or self.nodes is not self.objects or len(self.nodes.gram) < 3:
            return
        labels = self.values.matrix
        scale = 1e-9 * np.abs(labels).max()
        off = ~np.eye(len(labels), dtype=bool)
        for kind, sums in (("symmetric", labels - labels.T), ("reciprocal", labels + labels.T)):
            if np.ptp(sums[off]) <= scale:
                raise DataError(
                    f"the labels are {kind}, but symmetry is 'none': (w, v) would tell what is left out at (v, w); use "
                    f"symmetry={kind!r} with loss='regression', or leave_nodes_out"
                )

    def dual_matrix(self, dual: Floats) -> Weights:
        """Coefficients of the edges by node and object, shape (p, m); edges that occur several times add up."""
        if self.values.complete:
            return dual.reshape(self.values.shape)
        return sparse.coo_array(
            (dual, (self.values.rows, self.values.columns)), shape=self.values.shape
        ).tocsr()

    def describe(self) -> dict[str, Any]:
        """What is worth reporting before anything is computed."""
        info: dict[str, Any] = {"edges": len(self.values.values), "complete": self.values.complete}
        if self.loss == "ranking" and self.empty_nodes:
            info["skipped_nodes"] = self.empty_nodes
        return info

    def _check_labels(self) -> None:
        values = self.values.values
        if self.loss == "ranking":
            if not self.values.varies:
                single = self.values.row_counts.max() == 1
                why = "has a single edge" if single else "gives all its objects the same label"
                raise DataError(
                    f"relation: every conditioning node {why}, so there is nothing to rank by; use loss='regression', "
                    "or condition on the other argument"
                )
        elif self.symmetry == "reciprocal" and not values.any():
            raise DataError("relation: all labels say that there is no preference; there is nothing to learn")

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


class Scores(ABC):
    """The solution of a relation: scores of known and new nodes and objects.

    Parameters
    ----------
    problem : RelationProblem
    regularization : float
        λ, in units of the kernel.
    scale : float
        Common factor of prior and noise; variances are multiplied by it.
    """

    stopped = False

    def __init__(self, problem: RelationProblem, regularization: float, scale: float) -> None:
        self.problem, self.regularization, self.scale = problem, regularization, scale

    @property
    @abstractmethod
    def dual_matrix(self) -> Weights:
        """The dual by node and object, shape (p, m)."""

    @abstractmethod
    def mean(self, left: Asked, right: Asked) -> Floats:
        """Posterior means of the scores of b objects for a conditioning nodes, shape (a, b)."""

    @abstractmethod
    def variance(self, left: Asked, right: Asked) -> Floats:
        """Posterior variances, shape (a, b)."""

    @abstractmethod
    def query(self, query: Asked, right: Asked) -> tuple[Floats, Floats]:
        """Mean (b,) and covariance (b, b) over b objects for one conditioning node."""

    @property
    @abstractmethod
    def coefficients(self) -> Floats:
        """The dual: of the edges, shape (q,); of all pairs, shape (p, m), where these are complete."""

    def log_evidence(self) -> float | None:
        """Where it comes with the solution."""
        return None

    @abstractmethod
    def arrays(self) -> dict[str, Floats]:
        """What has to be stored besides the problem, λ and the scale."""

    @abstractmethod
    def left_out(self, kept: Positions) -> tuple[Floats, Floats]:
        """Dual a and precision P of some labels, by position: left out, their residuals are a/P and their variances scale/P.

        Under a constraint a label leaves in both directions: P is then the inverse of twice its variance.
        """

    def at(self, rows: Positions, columns: Positions) -> Floats:
        """Means of selected pairs of training nodes, shape (q,)."""
        return self.problem.kernel.at(*self.problem.sides, self.dual_matrix, rows, columns)

    def by_edges(self) -> "EdgeScores":
        """The same from the edges' own kernel matrix."""
        return EdgeScores(self.problem, self.regularization, self.scale, self.problem.values.values).direct()


class ClosedScores(Scores):
    """Scores of a complete relation; computed when they are first asked for. A scale of None is estimated from the labels."""

    def __init__(self, problem: RelationProblem, regularization: float, scale: float | None = None) -> None:
        super().__init__(problem, regularization, np.nan)
        self.scale = self.fit.scale if scale is None else scale

    @cached_property
    def fit(self) -> KroneckerFit:
        return self.problem.system().solve(self.regularization)

    @property
    def coefficients(self) -> Floats:
        return self.fit.dual

    dual_matrix = coefficients

    def log_evidence(self) -> float:
        return self.fit.log_evidence(self.scale)

    def arrays(self) -> dict[str, Floats]:
        return {}

    def left_out(self, kept: Positions) -> tuple[Floats, Floats]:
        self.problem.require_no_leak()
        fit = self.problem.system(full=True).solve(self.regularization)
        rows, columns = self.problem.values.rows[kept], self.problem.values.columns[kept]
        return fit.dual[rows, columns], fit.label_precision(rows, columns)

    def mean(self, left: Asked, right: Asked) -> Floats:
        """K(left, nodes) A G(objects, right), shape (a, b)."""
        system, cross = self.fit.system, right.side.kernel
        if system.labels is not None:  # few eigenvalues: they say it with less work
            a, b = self._rotated(left, right)
            return self._constrained(a @ self.fit.rotated_dual @ b.T, left, right)
        dual = self.fit.dual
        if system.loss == "ranking":
            # The dual's rows add up to 0, so what is constant in G over training objects adds nothing but rounding.
            cross = centred(cross)
        if len(left.labels) <= len(right.labels):
            scores = (left.side.kernel @ dual) @ cross.T
        else:
            scores = left.side.kernel @ (dual @ cross.T)
        return self._constrained(scores, left, right)

    def _constrained(self, scores: Floats, left: Asked, right: Asked) -> Floats:
        """Scores whose rounding, too, obeys the constraint."""
        symmetry = self.fit.system.symmetry
        if symmetry != "none" and left.side is right.side:
            scores = 0.5 * (scores + SIGN[symmetry] * scores.T)
        return scores

    def variance(self, left: Asked, right: Asked) -> Floats:
        """Posterior variance of every score, shape (a, b); O(p²) for each score of a symmetric or reciprocal relation."""
        system, fit = self.fit.system, self.fit
        a, b = self._rotated(left, right)
        known_a, known_b = (
            np.square(a) * _inverse(system.left.values),
            np.square(b) * _inverse(system.right.values),
        )
        own_a, own_b = self.problem.nodes.diagonal(left), self.problem.objects.diagonal(right)
        told_a, told_b = known_a.sum(axis=1), known_b.sum(axis=1)
        variance = known_a @ (fit.regularization * fit.shrinkage) @ known_b.T
        variance += np.multiply.outer(_untold(own_a, told_a, left), own_b)
        variance += np.multiply.outer(np.minimum(told_a, own_a), _untold(own_b, told_b, right))
        if system.loss == "ranking":
            variance += (np.square(a) / fit.offset_precision) @ np.square(b @ fit.offset_pull.T).T
        if system.symmetry != "none":
            cross = self.problem.nodes.between(left, right)
            between = np.empty_like(variance)
            for row, (mine, to_objects) in enumerate(zip(a, cross, strict=True)):
                both, told = mine * b, b @ (_inverse(system.left.values) * mine)
                between[row] = np.einsum("wi,ij,wj->w", both, self._swapped, both, optimize=True)
                if left.new or right.new:
                    between[row] += np.square(to_objects) - np.square(told)
            variance = 0.5 * (variance + SIGN[system.symmetry] * between)
        return self.scale * np.maximum(variance, 0.0)

    def query(self, query: Asked, right: Asked) -> tuple[Floats, Floats]:
        system, fit = self.fit.system, self.fit
        (a,), b = self._rotated(query, right)
        known = np.square(a) * _inverse(system.left.values)
        own, told = self.problem.nodes.diagonal(query), known.sum(keepdims=True)
        weights = (known @ fit.shrinkage) * fit.regularization * _inverse(system.right.values)
        covariance = (b * weights) @ b.T
        if query.new or right.new:
            prior = self.problem.objects.between(right, right)
            covariance += _untold(own, told, query) * prior
            if right.new:
                covariance += min(told[0], own[0]) * (prior - (b * _inverse(system.right.values)) @ b.T)
        if system.loss == "ranking":
            pull = b @ fit.offset_pull.T
            covariance += (pull * (np.square(a) / fit.offset_precision)) @ pull.T
        if system.symmetry != "none":
            between = b @ (self._swapped * np.multiply.outer(a, a)) @ b.T
            if query.new or right.new:
                cross = self.problem.nodes.between(query, right)[0]
                seen = b @ (_inverse(system.left.values) * a)
                between += np.multiply.outer(cross, cross) - np.multiply.outer(seen, seen)
            covariance = 0.5 * (covariance + SIGN[system.symmetry] * between)
        return self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T)

    def _rotated(self, left: Asked, right: Asked) -> tuple[Floats, Floats]:
        """K(left, nodes) V and G(right, objects) U."""
        system = self.fit.system
        return left.side.kernel @ system.left.vectors, right.side.kernel @ system.right.vectors

    @cached_property
    def _swapped(self) -> Floats:
        """λ D_ij/(κ_i κ_j), shape (r, r): between (v, w) and (w, v) of a constrained relation."""
        inverse = _inverse(self.fit.system.left.values)
        return self.fit.regularization * self.fit.shrinkage * np.multiply.outer(inverse, inverse)


def _inverse(eigenvalues: Floats) -> Floats:
    """1/κ_i, 0 where κ_i is."""
    return np.divide(1.0, eigenvalues, out=np.zeros_like(eigenvalues), where=eigenvalues > 0)


def _untold(own: Floats, told: Floats, asked: Asked) -> Floats:
    """Prior variance of nodes that the training nodes do not tell of: 0 for those themselves."""
    return np.maximum(own - told, 0.0) if asked.new else np.zeros_like(own)


class EdgeScores(Scores):
    """Scores from q observed edges. Means need the dual alone; variances a q x q factor, made when first asked for.

    Parameters
    ----------
    problem, regularization, scale
        As of `Scores`; variances need λ positive. The scale is NaN where the iterations ended before the solution.
    dual : array, shape (q,)
    stopped : bool
        Whether the iterations ended before the solution and the scale was to be estimated from it: there are no variances then. (Where
        stopping early regularizes there is no Gaussian model that they could come from.)
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

    @property
    def coefficients(self) -> Floats:
        values = self.problem.values
        return self.dual.reshape(values.shape if values.complete else (-1,))

    @cached_property
    def dual_matrix(self) -> Weights:
        return self.problem.dual_matrix(self.dual)

    def arrays(self) -> dict[str, Floats]:
        return {"dual": self.dual}

    def left_out(self, kept: Positions) -> tuple[Floats, Floats]:
        """O(q³) for q edges."""
        precision, sign = self.precision_matrix(), SIGN[self.problem.symmetry]
        own = np.diagonal(precision)[kept]
        if sign:
            other = opposites(self.problem.values, sign)[kept]
            own = own + np.where(other == kept, 0.0, sign * precision[kept, other])
        return self.dual[kept], own

    def mean(self, left: Asked, right: Asked) -> Floats:
        """Σ_e a_e k((v, w), e), shape (a, b)."""
        side = right.side
        if self.problem.loss == "ranking" and self.problem._product:
            side = Side(centred(side.kernel), side.index)  # as in the closed form
        return self.problem.kernel.scores(left.side, side, self.dual_matrix)

    def variance(self, left: Asked, right: Asked) -> Floats:
        return np.stack([np.diagonal(self.query(left.row(row), right)[1]) for row in range(len(left.labels))])

    def query(self, query: Asked, right: Asked) -> tuple[Floats, Floats]:
        """Mean and covariance over the objects for one conditioning node: prior − k P kᵀ, P as in `KroneckerFit`."""
        b = len(right.labels)
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        cross = self.problem.kernel.matrix(
            query.side, right.side, first, second, self.problem.values.rows, self.problem.values.columns
        )
        prior = self._prior(query, right)
        pulled = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        reduction = pulled.T @ pulled
        if self.problem.loss == "ranking":
            offsets = self._offset_basis.T @ pulled
            reduction -= offsets.T @ offsets
        covariance = prior - reduction
        return self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T)

    def _prior(self, query: Asked, right: Asked) -> Floats:
        """Prior covariance of the scores asked for: the asked nodes take the training nodes' place."""
        b = len(right.labels)
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        if not self.problem.kernel.one_domain:
            left = Side(self.problem.nodes.between(query, query), np.zeros(1, dtype=np.intp))
            side = Side(self.problem.objects.between(right, right), second)
            return self.problem.kernel.matrix(left, side, first, second, first, second)
        to_query, to_objects = (
            self.problem.nodes.between(query, query),
            self.problem.nodes.between(query, right),
        )
        left = Side(np.hstack([to_query, to_objects]), np.zeros(1, dtype=np.intp))
        side = Side(np.hstack([to_objects.T, self.problem.nodes.between(right, right)]), second + 1)
        return self.problem.kernel.matrix(left, side, first, second, first, second + 1)

    @cached_property
    def _factor(self) -> Floats:
        """Lower Cholesky factor of the edges' kernel plus λ, shape (q, q)."""
        if self.stopped:
            raise DataError(
                "the iterations ended before the solution, so there is no uncertainty of the scores, only their mean; fit without "
                "early stopping, callback or max_iter, at a regularization chosen by ConditionalRankerCV"
            )
        if not self.regularization > 0:
            raise DataError(
                f"regularization is {self.regularization}; uncertainty needs a positive value, the variance of the noise"
            )
        q = len(self.problem.values.values)
        require_memory(24.0 * q * q, f"the uncertainty of a relation with {q} edges that has no closed form")
        self.problem.nodes.require_semidefinite()
        self.problem.objects.require_semidefinite()
        rows, columns = self.problem.values.rows, self.problem.values.columns
        matrix = self.problem.kernel.matrix(*self.problem.sides, rows, columns, rows, columns)
        matrix[np.diag_indices(q)] += self.regularization
        try:
            return np.tril(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)[0])
        except np.linalg.LinAlgError:
            raise DataError(
                f"regularization is {self.regularization}, which is lost in the rounding of the kernel of the edges; uncertainty needs "
                "a larger one"
            ) from None

    @cached_property
    def _offset_basis(self) -> Floats:
        """Orthonormal basis of the flat offsets as the factor sees them, shape (q, conditioning nodes)."""
        blocks, which = np.unique(self.problem.values.rows, return_inverse=True)
        indicator = np.zeros((len(which), len(blocks)))
        indicator[np.arange(len(which)), which] = 1.0
        seen = solve_triangular(self._factor, indicator, lower=True, check_finite=False)
        return np.linalg.qr(seen)[0]

    def direct(self) -> "EdgeScores":
        """The same with the dual P y from the factor, where conjugate gradients would take too long."""
        white = self._white(self.problem.values.values)
        dual = solve_triangular(self._factor, white, lower=True, trans="T", check_finite=False)
        return EdgeScores(self.problem, self.regularization, self.scale, dual)

    def precision_matrix(self) -> Floats:
        """P as in `KroneckerFit`, so that P y is the dual; shape (q, q), O(q³)."""
        q = len(self.problem.values.values)
        require_memory(24.0 * q * q, f"hold-outs of a relation with {q} edges that has no closed form")
        white = self._white(np.eye(q))
        return np.asarray(white.T @ white)

    def _white(self, values: Floats) -> Floats:
        """H with Hᵀ H = P, times values."""
        white = solve_triangular(self._factor, values, lower=True, check_finite=False)
        if self.problem.loss == "ranking":
            white -= self._offset_basis @ (self._offset_basis.T @ white)
        return np.asarray(white)


def opposites(values: RelationValues, sign: float) -> Positions:
    """For each label of a constrained relation the one that says the same in the other direction; a node's with itself is its own.

    Where a pair was measured often, its labels are taken in the order of their values.
    """
    rows, columns = values.rows, values.columns
    forward, backward = np.flatnonzero(columns >= rows), np.flatnonzero(columns <= rows)
    forward = forward[np.lexsort((values.values[forward], columns[forward], rows[forward]))]
    backward = backward[np.lexsort((sign * values.values[backward], rows[backward], columns[backward]))]
    found = np.empty(len(rows), dtype=np.intp)
    found[backward], found[forward] = forward, backward
    return found
