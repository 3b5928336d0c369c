"""Hyperparameters by maximising the EP evidence plus their log prior."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from relpref.infer.program import Values
from relpref.infer.result import CODES, Result
from relpref.infer.sites import Info, Sites

# While the search is under way, sites this near to their fixed point are enough: the evidence is stationary in the sites,
# so its error is of second order in the residual, and the gradient's of first.
SEARCH_TOLERANCE = 1e-4
_UNUSABLE = 1e10  # the objective where EP fails, for the line search to turn back from


class Evaluated(Protocol):
    """What a search needs of an engine's evidence at one value of the hyperparameters."""

    @property
    def log_evidence(self) -> Any:
        """Without the hyperparameters' prior."""

    @property
    def log_prior(self) -> Any:
        """In the unconstrained space."""

    @property
    def gradient(self) -> Values:
        """Of their sum."""

    @property
    def sites(self) -> Sites:
        """Where a next evaluation may start."""

    @property
    def info(self) -> Info:
        """How the engine ended."""


@dataclass
class Search:
    """What a search found.

    Attributes
    ----------
    unconstrained : dict
        Best hyperparameters.
    evidence : Evaluated
        There.
    evaluations : int
    gradient_norm : float
        Largest absolute entry of the gradient there.
    converged : bool
    """

    unconstrained: Values
    evidence: Evaluated
    evaluations: int
    gradient_norm: float
    converged: bool
    failures: list[Result] = field(default_factory=list)

    @property
    def objective(self) -> float:
        """Log evidence plus log prior, minus infinity where EP failed."""
        value = float(self.evidence.log_evidence + self.evidence.log_prior)
        return value if np.isfinite(value) else -np.inf


def maximise(
    evaluate: Callable[[Values, Sites], Evaluated],
    start: Values,
    sites: Sites,
    max_evaluations: int,
    report: Callable[[int, float], None],
) -> Search:
    """Climb with L-BFGS from one starting point, each evaluation warm-started from the best sites so far.

    Parameters
    ----------
    evaluate : callable
        From unconstrained hyperparameters and starting sites to `Evaluated`.
    start : dict
        Unconstrained hyperparameters.
    sites : Sites
        Where EP starts at first, and again where a warm start fails.
    max_evaluations : int
    report : callable
        Called with the number of evaluations and the objective after each.
    """
    from scipy.optimize import minimize

    vector, unravel = ravel_pytree(start)
    cold = sites
    best: Search | None = None
    failures: list[Result] = []
    count = 0

    def objective(x: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        nonlocal best, sites, count
        unconstrained = unravel(jax.numpy.asarray(x))
        evidence = evaluate(unconstrained, sites)
        if not usable(evidence):
            evidence = evaluate(unconstrained, cold)
        count += 1
        if not usable(evidence):
            failures.append(CODES[int(evidence.info.code)])
            return _UNUSABLE, np.zeros_like(x)
        value = float(evidence.log_evidence + evidence.log_prior)
        gradient = np.asarray(ravel_pytree(evidence.gradient)[0])
        if best is None or value > best.objective:
            best = Search(unconstrained, evidence, count, gradient_norm(evidence), False)
            sites = evidence.sites
        report(count, value)
        return -value, -gradient

    options: Any = {"maxfun": max_evaluations, "gtol": 3e-3, "ftol": 1e-8, "maxls": 20}
    outcome = minimize(objective, np.asarray(vector), jac=True, method="L-BFGS-B", options=options)
    if best is None:
        return Search(start, evaluate(start, cold), count, np.inf, False, failures)
    best.evaluations = count
    # A line search that finds no better point at the noise level of the evidence has arrived, too.
    best.converged = bool(outcome.success) or best.gradient_norm < 1e-2
    best.failures = failures
    return best


def gradient_norm(evidence: Evaluated) -> float:
    """Largest absolute entry of the gradient."""
    return float(np.abs(np.asarray(ravel_pytree(evidence.gradient)[0])).max(initial=0.0))


def usable(evidence: Evaluated) -> bool:
    """Whether EP ended near enough to a fixed point for its evidence and gradient to mean something."""
    ended = CODES[int(evidence.info.code)]
    near = ended.ok or float(evidence.info.residual) < 10 * SEARCH_TOLERANCE
    gradients = all(bool(np.all(np.isfinite(leaf))) for leaf in jax.tree.leaves(evidence.gradient))
    return (
        near
        and gradients
        and bool(np.isfinite(evidence.log_evidence))
        and bool(np.isfinite(evidence.log_prior))
    )
