"""Regularized least squares on edges by conjugate gradients, on one machine or several devices."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, solve_triangular

from relpref.data.arrays import Floats
from relpref.errors import DataError, InferenceError
from relpref.kernels.edge_landmarks import EdgeGram
from relpref.linalg.cg import CGResult, Minimise, conjugate_gradient
from relpref.linalg.sharded import ShardedEdges, Swap, row_sharding
from relpref.result import Result

Callback = Callable[[int, Floats, float], bool | None]

_SWAPS: dict[float | None, Swap] = {0.0: "none", 1.0: "symmetric", -1.0: "reciprocal"}


class SingularError(DataError):
    """A covariance that should be positive definite is not, to rounding."""


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
) -> CGResult:
    """Minimise ‖y − h‖² + λ‖h‖², or the same with y and h centered within each group of edges.

    Without groups this is regression, (K + λ) a = y. With each edge's conditioning node as its
    group it is the ranking loss of CR10 eq. 12, (C K C + λ) a = C y with a in the range of the
    centering C: every conditioning node has the same weight. As Gaussian models: the posterior mean
    with noise variance λ, in the second case with a flat offset for each group.

    Options are those of `relpref.linalg.conjugate_gradient`, and the ``reason`` of the result may
    be other than "converged". λ (the ``regularization``) may be 0 where stopping early is all the
    regularization, see `EarlyStopping`; then ``minimise="residual"`` is the better choice by far.
    ``groups`` are numbers from 0, ``gram.rows`` for conditional ranking; ``progress(iteration,
    residual)`` is called after each iteration, on a mesh now and then. The devices of a ``mesh`` of
    one axis share the products, see `ShardedEdges`: for the Kronecker, the symmetric and the
    reciprocal kernel, groups that are the conditioning nodes, and iterations to the end.
    """
    if not (np.isfinite(regularization) and regularization >= 0.0):
        raise DataError(f"regularization is {regularization}; it must be 0 or a positive number")
    if not tol >= 0.0:
        raise DataError(f"tol is {tol}; it must be 0 or a positive number")
    if max_iterations is not None and max_iterations < 1:
        raise DataError(f"max_iterations (max_iter) is {max_iterations}; at least 1")
    centred = _centring(groups)

    def each(iteration: int, dual: Floats, residual: float) -> bool:
        if progress is not None:
            progress(iteration, residual)
        return callback is not None and bool(callback(iteration, dual, residual))

    def system(dual: Floats) -> Floats:
        # With a in the range of C, C K C a = C K a.
        scores = centred(gram @ dual)
        scores += regularization * dual
        return scores

    rhs, first = (
        centred(np.asarray(labels, dtype=np.float64)),
        None if start is None else centred(start),
    )
    options: dict[str, Any] = {"start": first, "tol": tol, "max_iterations": max_iterations}
    if mesh is None:
        result = conjugate_gradient(system, rhs, minimise=minimise, callback=each, **options)
    else:
        edges = _on_devices(gram, groups, mesh, minimise, callback)
        result = edges.solve(rhs, regularization, progress=progress, **options)
    # Rounding adds up outside the range, and scores of other edges would depend on it.
    return result._replace(solution=centred(result.solution))


def _on_devices(
    gram: EdgeGram, groups: ArrayLike | None, mesh: Any, minimise: Minimise, callback: Any
) -> ShardedEdges:
    require_mesh(mesh, gram.shape[0], callback)
    swap, why = _SWAPS.get(gram.kernel.sign), ""
    if swap is None:
        why = (
            f"the {type(gram.kernel).__name__} kernel is not for several devices; leave the mesh "
            "out, or take the Kronecker kernel"
        )
    elif groups is not None and not np.array_equal(np.asarray(groups), gram.rows):
        why = (
            "edges are dealt out by their conditioning node, and the groups are others; leave "
            "the mesh out"
        )
    elif minimise != "error":
        why = (
            "the iterations on several devices do not regularize by ending early; take a positive "
            "regularization, or leave the mesh out"
        )
    if swap is None or why:
        raise DataError(f"mesh: {why}")
    left = gram.left.kernel
    right = left if gram.right is gram.left else gram.right.kernel
    return ShardedEdges(
        left, right, gram.rows, gram.columns, mesh, swap=swap, centered=groups is not None
    )


def require_mesh(mesh: Any, nodes: int, callback: Any) -> None:
    """Refuse a mesh that does not fit the number of conditioning nodes, or has a callback."""
    row_sharding(mesh, nodes)
    if callback is not None:
        raise DataError(
            "mesh: the iterations on several devices go on to the solution, without a callback or "
            "early stopping; leave that or the mesh out"
        )


def require_converged(result: CGResult, regularization: float) -> None:
    """Raise InferenceError if conjugate gradients did not converge."""
    if result.reason != "converged":
        raise InferenceError(
            f"conjugate gradients ended with {result.reason} after {result.iterations} iterations "
            f"at the regularization {regularization:g}, residual {result.residual:.1e}; take a "
            "larger value, more iterations or a wider tolerance",
            Result.iterations_not_converged,
        )


def _centring(groups: ArrayLike | None) -> Callable[[Floats], Floats]:
    """Centering C, which subtracts the mean of each edge's group; the identity without groups."""
    if groups is None:
        return lambda values: values
    numbers = np.asarray(groups, dtype=np.intp)
    sizes = np.bincount(numbers)
    # All groups of one size, and the edges group by group, as in a complete graph.
    equal = bool(np.all(sizes == sizes[:1]) and np.all(numbers[1:] >= numbers[:-1]))

    def centred(values: Floats) -> Floats:
        if equal:
            blocks = values.reshape(len(sizes), -1)
            return (blocks - blocks.mean(axis=1, keepdims=True)).ravel()
        means = np.bincount(numbers, values) / np.maximum(sizes, 1)
        return values - means[numbers]

    return centred


class EdgeFit:
    """Labels of q edges with their dense covariance, noise included; O(q³).

    The dual of the labels is P y, where P is the inverse of the covariance without the directions
    of the unknown flat offsets of ``groups``. The covariance is overwritten; LinAlgError is raised
    if it is not positive definite.
    """

    def __init__(self, covariance: Floats, labels: Floats, groups: Any = None) -> None:
        lower = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)[0]
        self.lower, self.labels = np.tril(lower), labels
        self._log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(self.lower))))
        self._offsets = np.zeros((len(labels), 0))
        if groups is not None:
            _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
            self._offsets, root = np.linalg.qr(self.white(np.eye(len(counts))[which]))
            # Restricted to contrasts within groups, as in `KroneckerFit.log_evidence`.
            self._log_determinant += 2.0 * float(np.sum(np.log(np.abs(np.diagonal(root)))))
            self._log_determinant -= float(np.sum(np.log(counts)))

    def white(self, values: Floats) -> Floats:
        """Multiply values by H, with Hᵀ H = P."""
        white = solve_triangular(self.lower, values, lower=True, check_finite=False)
        return np.asarray(white - self._offsets @ (self._offsets.T @ white))

    @cached_property
    def dual(self) -> Floats:
        """Dual of the labels, P y, shape (q,)."""
        return np.asarray(
            solve_triangular(
                self.lower, self.white(self.labels), lower=True, trans="T", check_finite=False
            )
        )

    @cached_property
    def precision(self) -> Floats:
        """Precision P, shape (q, q)."""
        white = self.white(np.eye(len(self.labels)))
        return np.asarray(white.T @ white)

    def log_evidence(self, scale: float = 1.0) -> float:
        """Logarithm of p(y), or of its contrasts within groups; see `KroneckerFit.log_evidence`."""
        size = len(self.labels) - self._offsets.shape[1]
        quadratic = float(np.sum(np.square(self.white(self.labels)))) / scale
        return -0.5 * (quadratic + self._log_determinant + size * float(np.log(2 * np.pi * scale)))

    def covariance_gradient(self) -> Floats:
        """Gradient of `log_evidence` at scale 1 by the covariance, ½(a aᵀ − P), shape (q, q)."""
        return 0.5 * (np.multiply.outer(self.dual, self.dual) - self.precision)


class EarlyStopping:
    """A callback that ends the iterations after ``patience`` of them without a better score.

    The ``score`` maps coefficients, shape (q,), to a number; larger is better. ``solution`` and
    ``iteration`` are those of the best score, and ``scores`` has that of each iteration.
    """

    def __init__(self, score: Callable[[Floats], float], patience: int) -> None:
        if patience < 1:
            raise DataError(f"patience is {patience}; at least 1 iteration")
        self.score, self.patience = score, patience
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
