"""Regularised least squares for conditional ranking: closed form where there is one, conjugate gradients elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relpref.data.relation_values import RelationValues, Symmetry
from relpref.errors import DataError, InferenceError
from relpref.infer.exact.closed import KroneckerSystem, Loss
from relpref.infer.exact.closed_scores import ClosedScores
from relpref.infer.exact.domain import Domain, centred
from relpref.infer.exact.edge_scores import EdgeScores, weights_of
from relpref.infer.exact.iterative import solve_edges
from relpref.infer.result import Result
from relpref.infer.warn import InferenceWarning, warn_user
from relpref.kernels.edge_gram import EdgeGram
from relpref.kernels.pairwise import (
    MLPK,
    Cartesian,
    Kronecker,
    PairwiseKernel,
    Preference,
    Reciprocal,
    Side,
    Symmetric,
)
from relpref.kernels.pairwise_products import Weights
from relpref.linalg import CGResult, Eigen, require_memory
from relpref.linalg.conjugate_gradient import Minimise

Floats = NDArray[np.float64]
Solver = Literal["auto", "closed", "cg"]
Callback = Callable[[int, Floats, float], bool | None]

LOSSES = ("ranking", "regression")
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
    """What is to be solved, for any regularisation.

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
        """Check the options."""
        if self.loss not in LOSSES:
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
        """For the closed form; serves every regularisation, and is made once.

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
        return self._system_of(self.nodes.eigen, self.objects.eigen)

    @cached_property
    def _thin_system(self) -> KroneckerSystem:
        p, m = self.values.shape
        require_memory(8.0 * 4 * p * m, f"the closed form for {p} x {m} pairs")
        left, right = (side.factor_eigen if side.thin else side.eigen for side in (self.nodes, self.objects))
        return self._system_of(left, right)

    def _system_of(self, left: Eigen, right: Eigen) -> KroneckerSystem:
        return KroneckerSystem.of(left, right, self.values.matrix, self.loss, self.symmetry)

    def closed_scores(self, regularization: float, scale: float | None = None) -> ClosedScores:
        """The closed form at one λ; ``scale`` None: estimated from the labels."""
        system = self.system()
        rounding = np.finfo(np.float64).eps * system.left.values[-1:] * system.right.values[-1:]
        if np.any(regularization < rounding):
            warn_user(
                f"the regularization {regularization:g} is below the rounding of the kernel of pairs, {rounding[0]:.1e}, so that scores "
                "and their uncertainty may be wrong; centre or standardise the features, or raise it",
                InferenceWarning,
            )
        if scale is not None:
            return ClosedScores(self, regularization, scale)
        fit = self.system().solve(regularization)
        return ClosedScores(self, regularization, fit.scale, fit)

    def iterate(
        self,
        regularization: float,
        *,
        start: Floats | None = None,
        tol: float = 1e-8,
        max_iterations: int | None = None,
        callback: Callback | None = None,
        progress: Callable[[int, float], Any] | None = None,
        scale: float | None = None,
        minimise: Minimise = "error",
    ) -> tuple[EdgeScores, CGResult]:
        """By conjugate gradients; the λ of several solutions may be followed by warm starts. Options as for `solve_edges`.

        Raises
        ------
        DataError
            If an option does not fit, memory would not suffice, or the iterations broke down on a matrix that is no kernel.
        """
        self._require_memory()
        left = Side.training(self.nodes.gram)
        right = left if self.nodes is self.objects else Side.training(self.objects.gram)
        if self.loss == "ranking" and isinstance(self.kernel, Kronecker):
            # Offsets take up what G adds to all objects or to all labels of an object: the same solution, without cancellation.
            right = Side.training(centred(centred(right.kernel).T))
        values = self.values
        gram = EdgeGram(self.kernel, left, right, values.rows, values.columns)
        found = solve_edges(
            gram,
            values.values,
            regularization,
            groups=values.rows if self.loss == "ranking" else None,
            start=start,
            tol=tol,
            max_iterations=max_iterations,
            callback=callback,
            progress=progress,
            minimise=minimise,
            mesh=self.mesh,
        )
        if found.result.reason == "breakdown":
            self.nodes.require_semidefinite()
            self.objects.require_semidefinite()
        # Without the solution there is no estimate of the scale. Where it is known, variances do not depend on the iterations.
        stopped = scale is None and found.result.reason != "converged"
        parts = (self.kernel, self.nodes, self.objects, values, found.dual, self.loss, regularization)
        scores = EdgeScores(*parts, scale=1.0, stopped=stopped)
        if scale is None:
            scale = np.nan if stopped else scores.quadratic / self.num_labels
        return replace(scores, scale=scale), found.result

    def _require_memory(self) -> None:
        """Of the iterations: vectors over edges, products of pairs, and G once more where it is centred; measured."""
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
            if side.is_zero and self.pair_kernel != "cartesian":
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

    def dual_matrix(self, dual: Floats) -> Weights:
        """Coefficients of the edges by node and object, shape (p, m)."""
        return weights_of(self.values, dual)

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


def require_converged(result: CGResult, regularization: float) -> None:
    """Refuse what conjugate gradients left unfinished.

    Raises
    ------
    InferenceError
    """
    if result.reason != "converged":
        raise InferenceError(
            f"conjugate gradients ended with {result.reason} after {result.iterations} iterations at the regularization "
            f"{regularization:g}, residual {result.residual:.1e}; take a larger value, more iterations or a wider tolerance",
            Result.iterations_not_converged,
        )
