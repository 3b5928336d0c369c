"""Trainings at several regularisations, from the largest down: each starts from the solution of the one before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relpref.errors import InferenceError
from relpref.infer.exact.closed_scores import ClosedScores
from relpref.infer.exact.edge_scores import EdgeScores
from relpref.infer.exact.solve import RelationProblem, require_converged
from relpref.infer.result import Result
from relpref.infer.warn import InferenceWarning, warn_user


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
