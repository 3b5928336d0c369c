"""Several regularisations: trainings from the largest down, each from the solution of the one before; and which is the most likely."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from relpref.errors import InferenceError
from relpref.infer.exact.closed_scores import ClosedScores
from relpref.infer.exact.edge_scores import EdgeScores
from relpref.infer.exact.solve import RelationProblem, require_converged
from relpref.infer.result import Result
from relpref.infer.warn import InferenceWarning, warn_user
from relpref.kernels.pairwise import Side

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
