"""Several regularisations: trainings from the largest down, each from the solution of the one before; and which is the most likely."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize_scalar

from relpref.errors import InferenceError
from relpref.infer.exact.solve import ClosedScores, EdgeScores, RelationProblem, require_converged
from relpref.infer.result import InferenceWarning, Result, warn_user
from relpref.kernels.pairwise import Side
from relpref.linalg import symmetric_eigen

_LEAST, _MOST = (
    1e-4,
    1e4,
)  # λ, in units of the mean prior variance of a pair: noise from 1 % of a score's sd to a hundred times
_STEPS = 17  # of a first look between them: the evidence may have several maxima
_MOST_EDGES = 1500  # of an incomplete relation whose evidence is looked at; its cost grows with their cube


def most_likely(problem: RelationProblem, rng: np.random.Generator) -> float:
    """The λ that maximises the evidence, at the scale that maximises it given λ.

    Parameters
    ----------
    problem : RelationProblem
        With the ranking loss under a constraint, which has no evidence, the regression's is taken: of the same labels.
    rng : numpy Generator
        Draws the conditioning nodes that are looked at where there is no closed form and there are many edges.

    Returns
    -------
    float
        Between 1e-4 and 1e4 times the mean prior variance of a pair.
    """
    if problem.symmetry != "none":
        problem = replace(problem, loss="regression")
    evidence = _closed_evidence(problem) if problem.closed else _edge_evidence(problem, rng)
    unit = float(np.mean(np.diagonal(problem.nodes.gram)) * np.mean(np.diagonal(problem.objects.gram)))
    grid = np.log(unit) + np.linspace(np.log(_LEAST), np.log(_MOST), _STEPS)
    values = [evidence(float(np.exp(at))) for at in grid]
    best = int(np.argmax(values))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, _STEPS - 1)]
    found = minimize_scalar(
        lambda at: -evidence(float(np.exp(at))), bounds=ends, method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x if -found.fun >= values[best] else grid[best]))


def _closed_evidence(problem: RelationProblem) -> Callable[[float], float]:
    system = problem.system()

    def evidence(regularization: float) -> float:
        fit = system.solve(regularization)
        return fit.log_evidence(fit.scale)

    return evidence


def _edge_evidence(problem: RelationProblem, rng: np.random.Generator) -> Callable[[float], float]:
    """Up to a constant, from the eigenvalues of the edges' kernel (of contrasts within nodes with the ranking loss)."""
    rows, columns, labels = problem.values.rows, problem.values.columns, problem.values.values
    share = np.ones(len(rows))
    if problem.symmetry != "none":  # a pair is read in both directions: once, with half the noise
        kept = rows <= columns if problem.symmetry == "symmetric" else rows < columns
        rows, columns, labels = rows[kept], columns[kept], labels[kept]
        share = np.where(rows == columns, 1.0, 0.5)
    place = rng.permutation(problem.values.shape[0])
    chosen = np.argsort(place[rows], kind="stable")[:_MOST_EDGES]
    rows, columns, labels, share = rows[chosen], columns[chosen], labels[chosen], share[chosen]
    left = Side.training(problem.nodes.gram)
    right = left if problem.nodes is problem.objects else Side.training(problem.objects.gram)
    covariance = problem.kernel.matrix(left, right, rows, columns, rows, columns)
    weight = 1 / np.sqrt(share)
    covariance *= np.multiply.outer(weight, weight)
    labels, lost = labels * weight, 0
    if problem.loss == "ranking":
        members = np.equal.outer(np.unique(rows), rows)
        average = members.T @ (members / members.sum(axis=1, keepdims=True))
        centre = np.eye(len(rows)) - average
        covariance, labels, lost = centre @ covariance @ centre, centre @ labels, len(members)
    values, vectors = np.linalg.eigh(covariance)
    squares = np.square(vectors.T @ labels)
    # Offsets take one eigenvalue of 0 each, along which labels are 0.
    values, squares = np.maximum(values[lost:], 0.0), squares[lost:]

    def evidence(regularization: float) -> float:
        total = values + regularization
        quadratic = float(np.sum(squares / total))
        return -0.5 * float(len(total) * np.log(quadratic or np.finfo(float).tiny) + np.sum(np.log(total)))

    return evidence


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Values of λ, and how each is solved for on every part of a relation.

    Parameters
    ----------
    regularizations : sequence of float
        r values of λ.
    tol, max_iterations
        Of the conjugate gradients, where there is no closed form.
    skip : bool
        Whether a λ at which they do not converge is left out from there on; otherwise that is an error.

    Attributes
    ----------
    skipped : set of int
        Places of the values of λ that were left out.
    """

    regularizations: Sequence[float]
    tol: float
    max_iterations: int | None
    skip: bool = False
    skipped: set[int] = field(default_factory=set, init=False)

    def solutions(self, part: RelationProblem) -> Iterator[tuple[int, ClosedScores | EdgeScores]]:
        """Places of the values of λ, and the solution at each, of scale 1.

        Raises
        ------
        InferenceError
            If conjugate gradients do not converge, unless such a λ is to be skipped.
        """
        if part.closed:
            for place, regularization in enumerate(self.regularizations):
                yield place, part.closed_scores(float(regularization), scale=1.0)
            return
        start = None
        # A small λ alone takes many iterations; from the solution of a larger one it takes few.
        for place in np.argsort(self.regularizations, kind="stable")[::-1].tolist():
            if place in self.skipped:
                continue
            regularization = float(self.regularizations[place])
            scores, result = part.iterate(
                regularization, start=start, tol=self.tol, max_iterations=self.max_iterations, scale=1.0
            )
            start = scores.dual
            if self.skip and result.reason != "converged":
                self.skipped.add(place)
                continue
            require_converged(result, regularization)
            yield place, scores

    def settle(self, found: NDArray[np.float64]) -> None:
        """Leave no answers of a λ, shape (r, ...), that was skipped on some part, and say so.

        Raises
        ------
        InferenceError
            If nothing remains.
        """
        if not self.skipped:
            return
        places = sorted(self.skipped)
        values = ", ".join(f"{self.regularizations[place]:.3g}" for place in places)
        remedy = "raise max_iter or tol of the ranker, or take larger regularizations"
        if len(places) == len(self.regularizations):
            raise InferenceError(
                f"conjugate gradients did not converge at any of the regularizations {values}; {remedy}",
                Result.iterations_not_converged,
            )
        found[places] = np.nan
        warn_user(
            f"conjugate gradients did not converge at the regularizations {values}, which have no score; {remedy}",
            InferenceWarning,
        )


Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class RidgeSpectrum:
    """P = W diag(1/(σ_i + μ)) Wᵀ for every μ, and the labels y; the dual solution is P y.

    Regression: W diag(σ) Wᵀ = K, so that P = (K + μI)⁻¹. Ranking: U diag(σ) Uᵀ = CKC and W = CU with the centring C within each
    query, so that P = M − ME(EᵀME)⁻¹EᵀM with M = (K + μI)⁻¹ and the indicators E of the queries, whose offsets are projected
    out. In both, (P_UU)⁻¹ (P y)_U are the labels of a set U minus their predictions, offset included, by a training without U.

    Attributes
    ----------
    values, vectors : array, shape (m,) and (m, m)
        σ and W.
    labels : array, shape (m, d)
        y; centred within each query for ranking.
    queries : array of int, shape (m,)
        Number of each example's query; all 0 where there is one.
    query_means : array, shape (number of queries, m), optional
        Mean row of K W in each query; None for regression, which has no offsets.
    counts_pairs : bool
        Whether the loss counts every pair once: its Laplacian is then l I − 11ᵀ = l C for l examples, and μ = λ/l (LPO eq. 5).
        Otherwise μ = λ.
    """

    values: Floats
    vectors: Floats
    labels: Floats
    queries: Indices
    query_means: Floats | None = None
    counts_pairs: bool = False

    @classmethod
    def regression(cls, kernel: Floats, labels: Floats) -> Self:
        """For the squared loss; ``kernel`` has shape (m, m), ``labels`` (m, d)."""
        return cls(*symmetric_eigen(kernel), labels, np.zeros(len(labels), dtype=np.intp))

    @classmethod
    def ranking(cls, kernel: Floats, labels: Floats, queries: Indices | None = None) -> Self:
        """For the loss of all pairs (LPO eq. 5) or, with queries, of labels centred within each (CR10 eq. 12)."""
        numbers = np.zeros(len(labels), dtype=np.intp) if queries is None else queries
        average = averaging(numbers)

        def centred(matrix: Floats) -> Floats:
            return matrix - (average @ matrix)[numbers]

        inner = centred(centred(kernel).T)
        # Centring removes what the examples have in common but not its rounding, which has the scale of K.
        scale = float(np.linalg.norm(kernel))
        values, vectors = symmetric_eigen(0.5 * (inner + inner.T), "centred kernel matrix", scale=scale)
        vectors = centred(vectors)
        means = (average @ kernel) @ vectors
        return cls(values, vectors, centred(labels), numbers, means, counts_pairs=queries is None)

    def weights(self, regularization: float, left_out: int = 0) -> Floats:
        """1/(σ_i + μ), with the μ of a training without so many examples."""
        kept = len(self.labels) - left_out
        return 1.0 / (self.values + (regularization / kept if self.counts_pairs else regularization))

    @cached_property
    def rotated(self) -> Floats:
        """Wᵀ y, shape (m, d)."""
        return self.vectors.T @ self.labels

    @cached_property
    def sizes(self) -> Indices:
        """Number of examples in each query."""
        return np.bincount(self.queries)

    def dual(self, weights: Floats) -> Floats:
        """P y, shape (m, d)."""
        return self.vectors @ (weights[:, None] * self.rotated)

    def offsets(self, weights: Floats, members: Indices) -> tuple[Indices, Floats, Floats]:
        """J and b: a training without some members has the offsets J r − b, with the residuals r of those that are out, 0 for others.

        It is a training in which they have their own predictions as labels, ỹ = y − r; and its offsets are the means of
        ỹ − K P ỹ within each query, because those of its dual solution P ỹ are 0.

        Returns
        -------
        array of int, shape (u,)
            Row of J and b for each of the u members.
        array, shape (k, u)
            J, one row for each query among the members.
        array, shape (k, d)
            b.
        """
        if self.query_means is None:
            none = np.zeros((1, len(members)))
            return self.queries[members], none, np.zeros((1, self.labels.shape[1]))
        queries, position = np.unique(self.queries[members], return_inverse=True)
        means = self.query_means[queries] * weights
        share = (position == np.arange(len(queries))[:, None]) / self.sizes[queries][:, None]
        return position, means @ self.vectors[members].T - share, means @ self.rotated


def averaging(queries: Indices) -> sparse.csr_array:
    """The matrix that averages the rows of each query, shape (number of queries, m)."""
    sizes = np.bincount(queries)
    places = (queries, np.arange(len(queries)))
    return sparse.csr_array((1.0 / sizes[queries], places), shape=(len(sizes), len(queries)))
