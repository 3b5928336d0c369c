"""Hyperparameters: the maximum of evidence times prior, by its gradient or by EM."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relpref.data.arrays import Floats
from relpref.errors import DataError
from relpref.infer.call import Values
from relpref.infer.evidence import Evidence, latent_moments, on_host, use_dual_space
from relpref.infer.gradient import Slopes, slopes_of_answers_at, sum_of
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.linalg.arrays import ravel, solve_lower
from relpref.linalg.covariance import joined
from relpref.linalg.factor import cholesky
from relpref.result import Result, progress_line

# While the search is under way, sites this near to their fixed point are enough: the evidence is
# stationary in the sites, so its error is of second order in the residual, and the gradient's of
# first.
SEARCH_TOLERANCE = 1e-4
# If the approximation itself is needed, and not only its evidence, the sites have to converge
# further.
CLOSE = 1e-6
# A search ends when a step gains less than this in log evidence plus prior; EM's close a fixed
# fraction of what is left.
_GAIN = 1e-5
_ARRIVED = 1.0  # what convergence of a search counts in its objective
_UNUSABLE = 1e10  # the objective where EP fails, for the line search to turn back from


@dataclass
class Search:
    """Result of a search for hyperparameters."""

    unconstrained: Values  # best hyperparameters
    # Evidence there, or anything with log_evidence, log_prior, gradient, sites and info.
    evidence: Any
    evaluations: int = 0
    gradient_norm: float = np.inf  # largest absolute entry of the gradient there
    converged: bool = False
    failures: int = 0  # evaluations that failed

    @property
    def objective(self) -> float:
        """Log evidence plus log prior, minus infinity where EP failed."""
        value = float(self.evidence.log_evidence + self.evidence.log_prior)
        return value if np.isfinite(value) else -np.inf

    @property
    def height(self) -> float:
        """The objective, higher by `_ARRIVED` where the search converged.

        Where EP has several fixed points, a search may stop at a single point of a larger evidence.
        """
        return self.objective + _ARRIVED * self.converged


def maximize(
    evaluate: Callable[[Values, Sites], Any],
    start: Values,
    sites: Sites,
    max_evaluations: int,
    report: Callable[[int, float], None],
    answers: float = 0.0,
    root: Floats | None = None,
) -> Search:
    """Climb with L-BFGS from one starting point.

    Each evaluation starts from the best sites so far, or from the given ones.

    ``evaluate`` goes from unconstrained hyperparameters and starting sites to the evidence there;
    ``report`` takes the number of evaluations and the objective after each. The more ``answers``
    there are, the larger is the evidence, and the smaller the part of it that a last step may gain.
    ``root`` is a root of an estimate of the inverse curvature, shape (p, p).
    """
    from scipy.optimize import minimize

    vector, unravel = ravel(start)
    root = np.eye(len(vector)) if root is None else root
    best: Search | None = None
    highest, count, failures = -np.inf, 0, 0

    def objective(x: Floats) -> tuple[float, Floats]:
        nonlocal best, highest, count, failures
        unconstrained = unravel(vector + root @ x)
        evidence = evaluate(unconstrained, sites if best is None else best.evidence.sites)
        if not usable(evidence):
            evidence = evaluate(unconstrained, sites)
        count += 1
        if not usable(evidence):
            failures += 1
            return _UNUSABLE, np.zeros_like(x)
        value = float(evidence.log_evidence + evidence.log_prior)
        gradient = ravel(evidence.gradient)[0]
        if best is None or value > highest:
            highest = value
            best = Search(
                unconstrained, evidence, gradient_norm=float(np.abs(gradient).max(initial=0.0))
            )
        report(count, value)
        return -value, -gradient @ root

    gain = min(1e-8, 10 * _GAIN / max(answers, 1.0))
    options: Any = {"maxfun": max_evaluations, "gtol": 3e-3, "ftol": gain, "maxls": 20}
    outcome = minimize(
        objective, np.zeros_like(vector), jac=True, method="L-BFGS-B", options=options
    )
    if best is None:
        return Search(start, evaluate(start, sites), count, failures=failures)
    best.evaluations, best.failures = count, failures
    # A line search that finds no better point because of noise in the evidence has converged: the
    # curvature grows with the answers, so that a step would gain no more than _GAIN.
    negligible = max(1e-2, np.sqrt(_GAIN * answers))
    best.converged = bool(outcome.success) or best.gradient_norm < negligible
    return best


def usable(evidence: Any) -> bool:
    """Whether EP ended near enough to a fixed point for its evidence and gradient to be used."""
    near = evidence.info.converged or evidence.info.residual < 10 * SEARCH_TOLERANCE
    numbers = (evidence.log_evidence, evidence.log_prior, *evidence.gradient.values())
    return bool(near) and all(bool(np.all(np.isfinite(number))) for number in numbers)


# Nodes of the quadrature under each predictor's marginal, for likelihoods with parameters.
_NODES = 24


def expectation_maximization(
    program: Program,
    evaluate: Callable[..., Evidence],
    start: Values,
    sites: Sites,
    max_steps: int,
    report: Callable[[int, float], None],
) -> Search:
    """Alternate the engine at fixed hyperparameters (E) and their update for its posterior (M).

    A pair of both is one step. Parameters as in `maximize`; ``evaluate`` also takes ``whole``.
    """
    best = Search(start, evaluate(start, sites, whole=True), 1)
    evidence = best.evidence
    while best.evaluations < max_steps and usable(evidence):
        current = _maximize_bound(program, best.unconstrained, evidence)
        before, evidence = best.objective, evaluate(current, evidence.sites, whole=True)
        best.evaluations += 1
        if not usable(evidence):
            best.failures += 1
            break
        best.unconstrained, best.evidence = current, evidence
        report(best.evaluations, best.objective)
        if abs(best.objective - before) < _GAIN:
            best.converged = True
            break
    gradient = evaluate(best.unconstrained, best.evidence.sites, whole=False).gradient
    best.gradient_norm = float(np.abs(ravel(gradient)[0]).max(initial=0.0))
    return best


def _maximize_bound(program: Program, start: Values, evidence: Evidence) -> Values:
    from scipy.optimize import minimize

    mean, covariance = latent_moments(evidence)
    vector, unravel = ravel(start)

    def objective(x: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        at = unravel(x)
        value, slope = _lower_bound(program, at, mean, covariance, evidence.marginals)
        return -float(value), -ravel(slope)[0]

    optimum = minimize(objective, vector, jac=True, method="L-BFGS-B", options={"maxiter": 50})
    return unravel(optimum.x)


def _lower_bound(
    program: Program, unconstrained: Values, mean: Floats, covariance: Floats, marginals: Any
) -> tuple[float, Values]:
    """Lower bound of the log evidence plus log prior, and its gradient; q is held fixed.

    The bound is E_q[log N(u; 0, K)] + E_q[log p(answers | u)] + log prior (XPGP eq. 15-16).

    The paper leaves the second term out, because its likelihood has no parameters; where it has
    some, they move by it.
    """
    here = on_host(program, unconstrained)
    prior = here.prior
    lower, _ = cholesky(prior.covariance.dense())
    inverse = solve_lower(lower, solve_lower(lower, np.eye(len(lower))), transposed=True)
    centered = mean - prior.location
    # E_q[(u − m)(u − m)ᵀ] = S, so that the first term is −½ tr(K⁻¹ S) − ½ log det K.
    second = covariance + np.outer(centered, centered)
    total = -0.5 * np.vdot(inverse, second) - np.sum(np.log(np.diagonal(lower)))
    weights = 0.5 * (inverse @ second @ inverse - inverse)
    slopes = [Slopes(joined(prior.covariance.pull(weights), "covariance"))]
    slopes[0].pulls["location",] = inverse @ centered
    nodes, shares = np.polynomial.hermite_e.hermegauss(_NODES)
    nothing = np.zeros_like(prior.counts)
    for node, share in zip(nodes, shares / shares.sum(), strict=True):
        value, count = marginals.mean + np.sqrt(marginals.variance) * node, share * prior.counts
        answers = here.moments(value, nothing)
        total += np.vdot(count, answers.log_normalizer)
        pulls = here.slopes(value, nothing, count, nothing)
        at_node = value, nothing, nothing, count * answers.gradient, pulls
        slopes.append(slopes_of_answers_at(*at_node))
    return total + prior.log_prior, here.gradient(sum_of(slopes))


class Fitted(NamedTuple):
    """Result of an engine at its best hyperparameters."""

    evidence: Evidence
    result: Result
    info: dict[str, Any]
    dual: bool  # whether it worked in observation space
    unconstrained: Values  # hyperparameters


def fit_hyperparameters(
    engine: Any,
    program: Program,
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
    whole: bool | None = True,
    space: str | None = None,
    root: Floats | None = None,
) -> Fitted:
    """Find the hyperparameters and, at them, the sites.

    Parameters
    ----------
    engine : GaussianEngine
    program : Program
    start : mapping, optional
        Sites to start from, by ``precision`` and ``shift``.
    key : JAX key
        For restarts.
    progress_bar : bool
    at_first : mapping, optional
        Hyperparameters where the first search starts, instead of their priors' medians.
    whole : bool, optional
        Whether the (n, n) arrays of a posterior are needed; None: nor is memory for them.
    space : str, optional
        Space to work in, in place of the engine's.
    root : array, shape (p, p), optional
        Root of the search, see `maximize`.
    """
    layout, tol = program.layout, engine.tol
    dual = use_dual_space(layout, space or engine.space)
    em = engine.hyperparameters == "em"
    if em and not layout.constant_projection:
        raise DataError(
            "hyperparameters is 'em', but hyperparameters change what the answers look at, which "
            "EM holds fixed; "
            "use 'maximize' or 'nuts'"
        )
    cold = first = Sites.none(layout.num_rows)
    if start is not None:
        spare = (0, layout.num_rows - len(start["precision"]))
        first = Sites(*(np.pad(start[name], spare) for name in ("precision", "shift")))
    searching = bool(layout.hyperparameters)

    def at(
        unconstrained: Values,
        sites: Sites,
        tolerance: float = tol,
        whole: bool | None = None if whole is None else False,
    ) -> Evidence:
        limits = (tolerance, engine.max_sweeps, whole)
        evidence: Evidence = engine.evaluate(
            program, dual, searching, unconstrained, sites, *limits
        )
        return evidence

    search: Search | None = None
    unconstrained: Values = {}
    if searching:
        # EM needs the posterior itself, not only its evidence.
        closely = partial(at, tolerance=max(tol, CLOSE if em else SEARCH_TOLERANCE))
        answers = float(np.sum(program.counts))
        climb = (
            partial(expectation_maximization, program, closely)
            if em
            else partial(maximize, closely, answers=answers, root=root)
        )
        places = [program.medians | program.unconstrained(at_first or {})]
        if engine.restarts > 1:
            places += program.prior_draws(key, engine.restarts - 1)
        with progress_line("Fitting the model", progress_bar) as report:
            for place in places:
                other = climb(place, first, engine.max_evaluations, report)
                if search is None or other.height > search.height:
                    search = other
                if len(places) == 1 and not other.converged:
                    places += program.prior_draws(key, 1)
        assert search is not None
        unconstrained, first = search.unconstrained, search.evidence.sites
    final = at(unconstrained, first, whole=whole)
    if not final.info.converged and first is not cold:
        retried = at(unconstrained, cold, whole=whole)
        better = retried.info.converged or not np.isfinite(final.log_evidence)
        final = retried if better else final
    if search is not None and not em:
        final = final._replace(gradient=search.evidence.gradient)
    result = final.info.result
    if result is Result.converged and search is not None and not search.converged:
        result = Result.hyperparameters_not_converged
    info = describe(engine, dual, result, final.info)
    if search is not None:
        info |= {
            "hyperparameters": "em" if em else "maximize",
            "evaluations": search.evaluations,
            "gradient_norm": search.gradient_norm,
            "failed_evaluations": search.failures,
        }
    info["log_prior"] = float(final.log_prior)
    return Fitted(final, result, info, dual, unconstrained)


def describe(engine: Any, dual: bool, result: Result, outcome: Any) -> dict[str, Any]:
    """Entries of a posterior's ``info`` about the run."""
    return {
        "engine": engine.name,
        "result": result.name,
        "iterations": int(outcome.sweeps),
        "residual": float(outcome.residual),
        "damping": float(outcome.damping),
        "space": "observation" if dual else "latent",
        "jitter": float(outcome.jitter),
    }
