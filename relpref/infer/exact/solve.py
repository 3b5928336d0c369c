"""Regularised least squares for conditional ranking: closed form where there is one, conjugate gradients elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import cho_factor, solve_triangular

from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import DataError, InferenceError
from relpref.infer.exact.closed import KroneckerFit, KroneckerSystem, Loss
from relpref.infer.exact.domain import Asked, Domain, centred
from relpref.infer.result import InferenceWarning, Result, warn_user
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
from relpref.linalg import Eigen, require_memory
from relpref.linalg.cg import CGResult, Minimise, conjugate_gradient
from relpref.linalg.sharded import ShardedEdges, Shards, Swap

Floats = NDArray[np.float64]

_SWAPS: dict[type, Swap] = {Kronecker: "none", Symmetric: "symmetric", Reciprocal: "reciprocal"}


class EdgeSolution(NamedTuple):
    """Regularised least squares on edges.

    Attributes
    ----------
    dual : array, shape (q,)
        A coefficient for each edge; `EdgeGram.weights` puts them in their places for a kernel's ``scores``.
    result : CGResult
        How it was found; its ``reason`` may be other than "converged".
    """

    dual: Floats
    result: CGResult


def solve_edges(
    gram: EdgeGram,
    labels: ArrayLike,
    regularization: float,
    *,
    groups: ArrayLike | None = None,
    start: Floats | None = None,
    minimise: Minimise = "error",
    tol: float = 1e-8,
    max_iterations: int | None = None,
    callback: Callable[[int, Floats, float], bool | None] | None = None,
    progress: Callable[[int, float], Any] | None = None,
    mesh: Any = None,
) -> EdgeSolution:
    """Minimise ‖y − h‖² + λ‖h‖², or the same with y and h centred within each group of edges.

    Without groups this is regression, (K + λ) a = y. With each edge's conditioning node as its group it is the ranking
    loss of CR10 eq. 12, (C K C + λ) a = C y with a in the range of C, the quasi-diagonal centring of CR10 eq. 11: every
    conditioning node has the same weight, whatever the number of its edges. As Gaussian models: the posterior mean with
    noise variance λ, in the second case with a flat, infinitely wide offset for each group.

    Parameters
    ----------
    gram : EdgeGram
        The kernel matrix K of the q edges.
    labels : array, shape (q,)
    regularization : float
        λ, not negative. With 0 the problem is regularised by stopping early (``max_iterations`` or ``callback``).
    groups : array of int, shape (q,), optional
        Numbers from 0, ``gram.rows`` for conditional ranking. To use each edge of a symmetric or reciprocal relation in
        the rankings of both its ends (CR10, end of section 3), give every edge in both directions.
    start : array, shape (q,), optional
        Coefficients to start from, such as those for another λ.
    minimise, tol, max_iterations, callback
        As for `relpref.linalg.conjugate_gradient`; see `EarlyStopping`. Where stopping early is all the regularisation,
        ``minimise="residual"`` is the better choice by far.
    progress : callable, optional
        ``progress(iteration, residual)`` after each iteration; on a mesh now and then.
    mesh : jax.sharding.Mesh, optional
        Of one axis: the devices that the products are shared out to, see `ShardedEdges`. For the Kronecker, the symmetric and the
        reciprocal kernel, groups that are the conditioning nodes, and iterations to the end.

    Returns
    -------
    EdgeSolution

    Raises
    ------
    DataError
        If labels or groups do not fit the edges or are not finite, if λ or the tolerance is negative, if there are to be no
        iterations, or if the problem is none for a mesh.
    """
    targets = np.asarray(labels, dtype=np.float64)
    if targets.shape != (len(gram),):
        raise DataError(f"labels have shape {targets.shape}; {len(gram)} edges need {(len(gram),)}")
    if not (np.isfinite(regularization) and regularization >= 0.0):
        raise DataError(f"regularization is {regularization}; it must be 0 or a positive number")
    if not tol >= 0.0:
        raise DataError(f"tol is {tol}; it must be 0 or a positive number")
    if max_iterations is not None and max_iterations < 1:
        raise DataError(f"max_iterations (max_iter) is {max_iterations}; at least 1")
    centring = None if groups is None else _Centring.of(groups, len(gram))

    def centred(values: Floats) -> Floats:
        return values if centring is None else centring(values)

    def each(iteration: int, dual: Floats, residual: float) -> bool:
        if progress is not None:
            progress(iteration, residual)
        return callback is not None and bool(callback(iteration, dual, residual))

    def system(dual: Floats) -> Floats:
        # With a in the range of C, C K C a = C K a.
        scores = centred(gram @ dual)
        scores += regularization * dual
        return scores

    rhs, first = centred(targets), None if start is None else centred(start)
    if mesh is None:
        found = conjugate_gradient(
            system,
            rhs,
            start=first,
            minimise=minimise,
            tol=tol,
            max_iterations=max_iterations,
            callback=each,
        )
    else:
        found = _on_devices(gram, groups, mesh, minimise, callback).solve(
            rhs, regularization, start=first, tol=tol, max_iterations=max_iterations, progress=progress
        )
    # Rounding adds up outside the range, and scores of other edges would depend on it.
    dual = centred(found.solution)
    return EdgeSolution(dual, found._replace(solution=dual))


def _on_devices(
    gram: EdgeGram, groups: ArrayLike | None, mesh: Any, minimise: Minimise, callback: Any
) -> ShardedEdges:
    """The edges on a mesh."""
    require_mesh(mesh, gram.shape[0], callback)
    swap = _SWAPS.get(type(gram.kernel))
    if swap is None:
        raise DataError(
            f"mesh: the {type(gram.kernel).__name__} kernel is not for several devices; leave the mesh out, or take the Kronecker kernel"
        )
    if groups is not None and not np.array_equal(np.asarray(groups), gram.rows):
        raise DataError(
            "mesh: edges are dealt out by their conditioning node, and the groups are others; leave the mesh out"
        )
    if minimise != "error":
        raise DataError(
            "mesh: the iterations on several devices do not regularise by ending early; take a positive regularization, or leave the mesh out"
        )
    left = gram.left.kernel
    right = left if gram.right is gram.left else gram.right.kernel
    return ShardedEdges(left, right, gram.rows, gram.columns, mesh, swap=swap, centred=groups is not None)


def require_mesh(mesh: Any, nodes: int, callback: Any) -> None:
    """Refuse devices that cannot iterate, before anything is computed.

    Raises
    ------
    DataError
        If the mesh does not fit so many conditioning nodes, or a callback wants every iteration's coefficients.
    """
    Shards.of(mesh, nodes, "nodes")
    if callback is not None:
        raise DataError(
            "mesh: the iterations on several devices go on to the solution, without a callback or early stopping; leave that or the mesh out"
        )


class _Centring(NamedTuple):
    """C: subtracts from each edge's value the mean of its group."""

    groups: NDArray[np.intp]
    sizes: NDArray[np.intp]
    equal: bool
    """Whether all groups have one size, and the edges come group by group, as in a complete graph."""

    @classmethod
    def of(cls, groups: ArrayLike, count: int) -> "_Centring":
        numbers = np.asarray(groups)
        if numbers.shape != (count,) or numbers.dtype.kind not in "iu" or np.any(numbers < 0):
            raise DataError(
                f"groups are {numbers.dtype} of shape {numbers.shape}; give every one of the {count} edges the number of "
                "its conditioning node, from 0"
            )
        sizes = np.bincount(numbers)
        equal = bool(np.all(sizes == sizes[:1]) and np.all(numbers[1:] >= numbers[:-1]))
        return cls(numbers.astype(np.intp), sizes, equal)

    def __call__(self, values: Floats) -> Floats:
        if self.equal:
            blocks = values.reshape(len(self.sizes), -1)
            return (blocks - blocks.mean(axis=1, keepdims=True)).ravel()
        means = np.bincount(self.groups, values) / np.maximum(self.sizes, 1)
        return values - means[self.groups]


class EarlyStopping:
    """A callback that ends the iterations when a score no longer improves, and keeps the best solution.

    Parameters
    ----------
    score : callable
        From the coefficients so far, shape (q,), to a number, larger is better: say, the concordance of the rankings of
        conditioning nodes that were held out.
    patience : int
        After so many iterations without a better score the iterations stop. At least 1.

    Attributes
    ----------
    solution : array or None
        The coefficients with the best score.
    iteration : int
        After how many iterations they came.
    scores : list of float
        The score after each iteration.
    """

    def __init__(self, score: Callable[[Floats], float], patience: int) -> None:
        if patience < 1:
            raise DataError(f"patience is {patience}; at least 1 iteration")
        self.score = score
        self.patience = patience
        self.solution: Floats | None = None
        self.iteration = 0
        self.scores: list[float] = []

    def __call__(self, iteration: int, solution: Floats, residual: float) -> bool:
        score = self.score(solution)
        if not np.isfinite(score):
            raise DataError(
                f"the score of iteration {iteration} is {score}; early stopping needs a finite one"
            )
        if not self.scores or score > max(self.scores):
            self.solution, self.iteration = solution.copy(), iteration
        self.scores.append(score)
        return iteration - self.iteration >= self.patience


class QueryMoments(NamedTuple):
    """The belief about the scores of b objects for one conditioning node.

    Attributes
    ----------
    mean : array, shape (b,)
    covariance : array, shape (b, b)
    """

    mean: Floats
    covariance: Floats


@dataclass(frozen=True, eq=False)
class ClosedScores:
    """Scores of a complete relation; computed when they are first asked for.

    Parameters
    ----------
    problem : RelationProblem
        With a closed form.
    regularization : float
        λ > 0.
    scale : float
        Common factor of prior and noise; variances are multiplied by it.
    solved : KroneckerFit, optional
        Where the solution is known already.
    """

    problem: "RelationProblem"
    regularization: float
    scale: float
    solved: KroneckerFit | None = None

    @cached_property
    def fit(self) -> KroneckerFit:
        return self.solved or self.problem.system().solve(self.regularization)

    @property
    def dual_matrix(self) -> Floats:
        """The dual by node and object, shape (p, m)."""
        return self.fit.dual

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
            variance += (np.square(a) / fit.offset_precision) @ np.square(b @ self._offset_pull.T).T
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

    def query(self, query: Asked, right: Asked) -> QueryMoments:
        """Mean and covariance over the objects for one conditioning node.

        Parameters
        ----------
        query : Asked
            One node.
        right : Asked
            b objects.
        """
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
            pull = b @ self._offset_pull.T
            covariance += (pull * (np.square(a) / fit.offset_precision)) @ pull.T
        if system.symmetry != "none":
            between = b @ (self._swapped * np.multiply.outer(a, a)) @ b.T
            if query.new or right.new:
                cross = self.problem.nodes.between(query, right)[0]
                seen = b @ (_inverse(system.left.values) * a)
                between += np.multiply.outer(cross, cross) - np.multiply.outer(seen, seen)
            covariance = 0.5 * (covariance + SIGN[system.symmetry] * between)
        return QueryMoments(self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T))

    def _rotated(self, left: Asked, right: Asked) -> tuple[Floats, Floats]:
        """K(left, nodes) V and G(right, objects) U."""
        system = self.fit.system
        return left.side.kernel @ system.left.vectors, right.side.kernel @ system.right.vectors

    @cached_property
    def _offset_pull(self) -> Floats:
        """D_ij (Uᵀ1)_j, shape (r, s): what an offset along eigenvector i does to the dual."""
        return self.fit.shrinkage * self.fit.system.ones

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


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """Scores from q observed edges. Means need the dual alone; variances a q x q factor, made when first asked for.

    Parameters
    ----------
    kernel : PairwiseKernel
    nodes, objects : Domain
    values : RelationValues
    dual : array, shape (q,)
    loss : {"ranking", "regression"}
    regularization : float
        λ; variances need it positive.
    scale : float
        Common factor of prior and noise; variances are multiplied by it. NaN where the iterations ended before the solution.
    stopped : bool
        Whether the iterations ended before the solution and the scale was to be estimated from it: there are no variances then. (Where
        stopping early regularises there is no Gaussian model that they could come from.)
    """

    kernel: PairwiseKernel
    nodes: Domain
    objects: Domain
    values: RelationValues
    dual: Floats
    loss: Loss
    regularization: float
    scale: float
    stopped: bool = False

    @cached_property
    def dual_matrix(self) -> Weights:
        """The dual by node and object, shape (p, m)."""
        return weights_of(self.values, self.dual)

    def mean(self, left: Asked, right: Asked) -> Floats:
        """Σ_e a_e k((v, w), e), shape (a, b)."""
        side = right.side
        if self.loss == "ranking" and isinstance(self.kernel, Kronecker):
            side = Side(centred(side.kernel), side.index)  # as in the closed form
        return self.kernel.scores(left.side, side, self.dual_matrix)

    def variance(self, left: Asked, right: Asked) -> Floats:
        """Posterior variance of every score, shape (a, b)."""
        rows = [np.diagonal(self.query(left.row(row), right).covariance) for row in range(len(left.labels))]
        return np.stack(rows)

    def query(self, query: Asked, right: Asked) -> QueryMoments:
        """Mean and covariance over the objects for one conditioning node: prior − k P kᵀ, P as in `KroneckerFit`."""
        b = len(right.labels)
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        cross = self.kernel.matrix(
            query.side, right.side, first, second, self.values.rows, self.values.columns
        )
        prior = self._prior(query, right)
        pulled = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        reduction = pulled.T @ pulled
        if self.loss == "ranking":
            offsets = self._offset_basis.T @ pulled
            reduction -= offsets.T @ offsets
        covariance = prior - reduction
        return QueryMoments(self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T))

    def _prior(self, query: Asked, right: Asked) -> Floats:
        """Prior covariance of the scores asked for: the asked nodes take the training nodes' place."""
        b = len(right.labels)
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        if not self.kernel.one_domain:
            left = Side(self.nodes.between(query, query), np.zeros(1, dtype=np.intp))
            side = Side(self.objects.between(right, right), second)
            return self.kernel.matrix(left, side, first, second, first, second)
        to_query, to_objects = self.nodes.between(query, query), self.nodes.between(query, right)
        left = Side(np.hstack([to_query, to_objects]), np.zeros(1, dtype=np.intp))
        side = Side(np.hstack([to_objects.T, self.nodes.between(right, right)]), second + 1)
        return self.kernel.matrix(left, side, first, second, first, second + 1)

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
        q = len(self.values.values)
        require_memory(24.0 * q * q, f"the uncertainty of a relation with {q} edges that has no closed form")
        self.nodes.require_semidefinite()
        self.objects.require_semidefinite()
        rows, columns = self.values.rows, self.values.columns
        left, right = Side.training(self.nodes.gram), Side.training(self.objects.gram)
        matrix = self.kernel.matrix(left, right, rows, columns, rows, columns)
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
        blocks, which = np.unique(self.values.rows, return_inverse=True)
        indicator = np.zeros((len(which), len(blocks)))
        indicator[np.arange(len(which)), which] = 1.0
        seen = solve_triangular(self._factor, indicator, lower=True, check_finite=False)
        return np.linalg.qr(seen)[0]

    def direct(self) -> "EdgeScores":
        """The same with the dual P y from the factor, where conjugate gradients would take too long."""
        white = solve_triangular(self._factor, self.values.values, lower=True, check_finite=False)
        if self.loss == "ranking":
            white -= self._offset_basis @ (self._offset_basis.T @ white)
        dual = solve_triangular(self._factor, white, lower=True, trans="T", check_finite=False)
        return replace(self, dual=dual, stopped=False)

    def precision_matrix(self) -> Floats:
        """P as in `KroneckerFit`, so that P y is the dual; shape (q, q), O(q³)."""
        q = len(self.values.values)
        require_memory(24.0 * q * q, f"hold-outs of a relation with {q} edges that has no closed form")
        white = solve_triangular(self._factor, np.eye(q), lower=True, overwrite_b=True, check_finite=False)
        if self.loss == "ranking":
            white -= self._offset_basis @ (self._offset_basis.T @ white)
        return np.asarray(white.T @ white)

    @cached_property
    def quadratic(self) -> float:
        """yᵀ P y: the labels' part of the evidence."""
        return float(self.values.values @ self.dual)


def weights_of(values: RelationValues, dual: Floats) -> Weights:
    """Coefficients of edges by node and object, shape (p, m); edges that occur several times add up."""
    if values.complete:
        return dual.reshape(values.shape)
    return sparse.coo_array((dual, (values.rows, values.columns)), shape=values.shape).tocsr()


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
