"""Find hyperparameters: maximize the evidence, EM, or integrate over them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from numpy.typing import NDArray

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.assemble import CHAINS, latent_moments
from relpref.infer.evidence import Evaluation, Evidence, needs_entity_space, tilted, use_gap_space
from relpref.infer.program import Layout, Program, Values
from relpref.infer.result import CODES, InferenceWarning, Progress, Result, code, warn_user
from relpref.infer.sites import Info, Sites

# While the search is under way, sites this near to their fixed point are enough: the evidence is stationary in the sites,
# so its error is of second order in the residual, and the gradient's of first.
SEARCH_TOLERANCE = 1e-4
_UNUSABLE = 1e10  # the objective where EP fails, for the line search to turn back from


class Evaluated(Protocol):
    """What a search needs of an engine's evidence at one value of the hyperparameters."""

    @property
    def log_evidence(self) -> Any: ...

    @property
    def log_prior(self) -> Any: ...

    @property
    def gradient(self) -> Values: ...

    @property
    def sites(self) -> Sites:
        """Where a next evaluation may start."""

    @property
    def info(self) -> Info: ...


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


# EM creeps: each step closes a fixed fraction of what is left. It ends when a step gains less than this in log evidence plus prior.
_GAIN = 1e-5
_NODES = 24  # of the quadrature under each predictor's marginal, for likelihoods with parameters of their own


def expectation_maximisation(
    program: Program,
    evaluate: Callable[[Values, Sites], Evidence],
    with_gradient: Callable[[Values, Sites], Evidence],
    start: Values,
    sites: Sites,
    max_steps: int,
    report: Callable[[int, float], None],
) -> Search:
    """Alternate the engine at fixed hyperparameters (E) with hyperparameters for a fixed posterior (M).

    Parameters
    ----------
    program : Program
    evaluate : callable
        From unconstrained hyperparameters and starting sites to `Evidence`: the E-step.
    with_gradient : callable
        Likewise, with the gradient of the evidence.
    start : dict
        Unconstrained hyperparameters.
    sites : Sites
        Where the engine starts at first.
    max_steps : int
        Pairs of an E-step and an M-step.
    report : callable
        Called with the number of steps and the objective after each.
    """
    evidence = evaluate(start, sites)
    best = Search(start, evidence, 1, np.inf, False)
    while best.evaluations < max_steps and usable(evidence):
        current = _maximise_bound(program, best.unconstrained, evidence)
        before, evidence = best.objective, evaluate(current, evidence.sites)
        best.evaluations += 1
        if not usable(evidence):
            best.failures.append(CODES[int(evidence.info.code)])
            break
        best.unconstrained, best.evidence = current, evidence
        report(best.evaluations, best.objective)
        if abs(best.objective - before) < _GAIN:
            best.converged = True
            break
    best.gradient_norm = gradient_norm(with_gradient(best.unconstrained, best.evidence.sites))
    return best


def _maximise_bound(program: Program, start: Values, evidence: Evidence) -> Values:
    from scipy.optimize import minimize

    mean, covariance = (jnp.asarray(array) for array in latent_moments(program.layout, evidence))
    vector, unravel = ravel_pytree(start)

    def objective(x: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        at = unravel(jnp.asarray(x))
        value, slope = _lower_bound(program, at, mean, covariance, evidence.marginals)
        return -float(value), -np.asarray(ravel_pytree(slope)[0])

    found = minimize(objective, np.asarray(vector), jac=True, method="L-BFGS-B", options={"maxiter": 50})
    return unravel(jnp.asarray(found.x))


@jax.jit
def _lower_bound(
    program: Program, unconstrained: Values, mean: Array, covariance: Array, marginals: Any
) -> tuple[Array, Values]:
    """E_q[log N(u; 0, K)] + E_q[log p(answers | u)] + log prior and its gradient; q is held fixed (XPGP eq. 15-16).

    The paper leaves the second term out, because its likelihood has no parameters; where it has some, they move by it.
    """

    def bound(unconstrained: Values) -> Array:
        reading = program.read(unconstrained)
        lower = reading.covariance.root().lower
        white_mean = solve_triangular(lower, mean - reading.location, lower=True)
        half = solve_triangular(lower, covariance, lower=True)
        white = jnp.trace(solve_triangular(lower, half.T, lower=True))
        prior = -0.5 * (white_mean @ white_mean + white) - jnp.sum(jnp.log(jnp.diagonal(lower)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)

        def at_node(node: Array) -> Array:
            value = marginals.mean + jnp.sqrt(marginals.variance) * node
            answers = tilted(reading.observations, reading.offset, value, jnp.zeros_like(value))
            counts = jnp.concatenate([observation.counts for observation in reading.observations])
            return jnp.vdot(counts, answers.log_normalizer)

        answers = jax.vmap(at_node)(jnp.asarray(nodes)) @ jnp.asarray(weights / weights.sum())
        return prior + answers + reading.log_prior

    value, slope = jax.value_and_grad(bound)(unconstrained)
    return value, slope


_STEP = 1e-3  # of the differences that give the curvature at the maximum
_FLATTEST = 0.1  # smallest curvature believed in, where priors have about 1
DRAWS_INFO = ("r_hat", "ess", "divergences", "draws", "chains")
UNMIXED = 1.2  # R-hat above which the chains disagree
_ROUND = 25  # steps between two looks at the progress


@dataclass(frozen=True)
class Draws:
    """Unconstrained hyperparameters drawn from evidence times prior.

    Attributes
    ----------
    values : dict from site to array, shape (k, ...)
        Chain after chain.
    info : dict
        By `DRAWS_INFO`: the largest R-hat, the smallest effective sample size, and numbers of draws and chains.
    """

    values: Values
    info: dict[str, Any]


@dataclass(frozen=True)
class Target:
    """The evidence as a function of hyperparameters: what JAX compiles for.

    Attributes
    ----------
    evaluate : callable
        Of an engine.
    gap_space : bool
    """

    evaluate: Evaluation
    gap_space: bool

    def __call__(self, given: "Given", unconstrained: Values) -> Evidence:
        program, sites, tolerance, max_sweeps = given
        return self.evaluate(
            program, self.gap_space, True, unconstrained, sites, tolerance, max_sweeps, False
        )


class Given(NamedTuple):
    """What else the evidence depends on, as `Evaluation` takes it; problems of equal shapes share one compilation."""

    program: Program
    sites: Sites
    tolerance: float
    max_sweeps: int


def integrate(
    target: Target,
    given: Given,
    maximum: Values,
    key: Any,
    draws: int,
    warmup: int,
    progress_bar: bool,
) -> Draws:
    """Sample the hyperparameters.

    Parameters
    ----------
    target : Target
    given : Given
    maximum : dict
        Unconstrained hyperparameters where the chains start, spread by the curvature there.
    key : JAX key
    draws, warmup : int
        Of all chains together, and of each.
    progress_bar : bool

    Returns
    -------
    Draws
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    start, unravel = ravel_pytree(maximum)
    root = _inverse_root(target, given, start, unravel)
    # Chains move in z, hyperparameters are start + root z.
    place = (given, maximum, jnp.asarray(root))
    length = -(-draws // CHAINS)
    moved, diverging = [], []
    with Progress("sampling the hyperparameters", progress_bar, "steps", "step size {:.2g}") as progress:
        for chain in range(CHAINS):
            first, second = jax.random.split(jax.random.fold_in(key, chain))
            state = _begin(target, warmup, place, jax.random.normal(first, start.shape, start.dtype), second)
            for wanted, kept in ((warmup, False), (length, True)):
                for done in range(0, wanted, _ROUND):
                    number = min(_ROUND, wanted - done)
                    state, z, diverged = _advance(target, warmup, place, state, number)
                    for _ in range(number):
                        progress.step(0, float(state.adapt_state.step_size))
                    if kept:
                        moved.append(np.asarray(z)[:number])
                        diverging.append(np.asarray(diverged)[:number])
    values = np.asarray(start) + np.concatenate(moved) @ root.T
    by_chain = values.reshape(CHAINS, length, -1)
    info = {
        "r_hat": float(np.max(split_gelman_rubin(by_chain))),
        "ess": float(np.min(effective_sample_size(by_chain))),
        "divergences": int(np.sum(np.concatenate(diverging))),
        "draws": len(values),
        "chains": CHAINS,
    }
    return Draws(jax.vmap(unravel)(jnp.asarray(values)), info)


Place = tuple[Given, Values, Array]


@partial(jax.jit, static_argnums=(0, 1))
def _begin(target: Target, warmup: int, place: Place, z: Array, key: Any) -> Any:
    """A chain before its first step."""
    return _kernel(target, warmup, place, z, key)[0]


@partial(jax.jit, static_argnums=(0, 1))
def _advance(target: Target, warmup: int, place: Place, state: Any, number: int) -> tuple[Any, Array, Array]:
    """Up to `_ROUND` steps of a chain: its state, and where each of them led, whether it diverged."""
    _, step = _kernel(target, warmup, place, state.z, state.rng_key)

    def one(row: Any, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, z, diverging = carried
        state = step(state)
        return state, z.at[row].set(state.z), diverging.at[row].set(state.diverging)

    room = (jnp.zeros((_ROUND, len(state.z)), state.z.dtype), jnp.zeros(_ROUND, bool))
    return jax.lax.fori_loop(0, number, one, (state, *room))


def _kernel(
    target: Target, warmup: int, place: Place, z: Array, key: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """NUTS: the state at z, and a step."""
    from numpyro.infer.hmc import hmc

    begin, step = hmc(potential_fn=_potential(target, place), algo="NUTS")
    return begin(z, warmup, step_size=0.5, dense_mass=True, rng_key=key), step


def _potential(target: Target, place: Place) -> Callable[[Array], Array]:
    """Minus log evidence minus log prior, with the engine's exact gradient; infinite where the engine fails."""
    given, maximum, root = place
    start, unravel = ravel_pytree(maximum)

    def potential(z: Array) -> Array:
        here = jax.lax.stop_gradient(z)
        evidence = target(given, unravel(start + root @ here))
        height = evidence.log_evidence + evidence.log_prior
        gradient = root.T @ ravel_pytree(evidence.gradient)[0]
        fine = (evidence.info.code == code(Result.converged)) & jnp.all(jnp.isfinite(gradient))
        # The engine's gradient in place of one through its iterations.
        slope = jax.lax.stop_gradient(jnp.where(fine, -gradient, 0.0))
        return jax.lax.stop_gradient(jnp.where(fine, -height, jnp.inf)) + slope @ (z - here)

    return potential


def _inverse_root(
    target: Target, given: Given, start: Array, unravel: Callable[[Array], Values]
) -> NDArray[np.float64]:
    """A root of the inverse of minus the Hessian, which is found by central differences of the gradient.

    By eigenvectors: where noise of almost nothing fits best, curvatures differ by more than a Cholesky factor bears.
    """

    def gradient(vector: Array) -> NDArray[np.float64]:
        return np.asarray(ravel_pytree(target(given, unravel(vector)).gradient)[0])

    steps = _STEP * np.eye(start.size)
    rows = [(gradient(start - step) - gradient(start + step)) / (2 * _STEP) for step in steps]
    hessian = np.stack(rows)
    if not np.all(np.isfinite(hessian)):
        return np.eye(start.size)
    curvatures, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return np.asarray(axes / np.sqrt(np.maximum(curvatures, _FLATTEST)))


# Where the approximation itself is wanted, and not only its evidence, the sites have to settle further than for a search.
CLOSE = 1e-6
# By how many posterior sds a mean, and by which factor an sd, may be off before it is said.
_SHIFT, _RATIO = 0.1, 1.25


class Setting(NamedTuple):
    """What of an engine matters here.

    Attributes
    ----------
    name : str
    evaluate : Evaluation
    options : dict
    """

    name: str
    evaluate: Evaluation
    options: Mapping[str, Any]


class Settled(NamedTuple):
    """What an engine found at the hyperparameters that it found.

    Attributes
    ----------
    evidence : Evidence
    result : Result
    info : dict
    gap_space : bool
    unconstrained : dict
        Hyperparameters.
    """

    evidence: Evidence
    result: Result
    info: dict[str, Any]
    gap_space: bool
    unconstrained: Values


def settle(
    engine: Setting,
    program: Program,
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
    whole: bool | None = True,
) -> Settled:
    """Find the hyperparameters and, at them, the sites; with the (n, n) arrays of a posterior if ``whole``, without room for them if None."""
    layout, medians = program.layout, program.medians
    gap_space = in_gap_space(engine.options, layout)
    if engine.options["hyperparameters"] == "em" and not layout.constant_projection:
        raise DataError(
            "hyperparameters is 'em', but hyperparameters change what the answers look at, which EM holds fixed; "
            "use 'maximise' or 'nuts'"
        )
    cold = Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))
    first = cold
    if start is not None:
        spare = (0, layout.num_rows - len(start["precision"]))
        first = Sites(*(jnp.asarray(np.pad(start[name], spare)) for name in ("precision", "shift")))
    searching = bool(layout.hyperparameters)
    most = engine.options["max_sweeps"]

    unfilled = None if whole is None else False

    def at(unconstrained: Values, sites: Sites, tolerance: float, whole: bool | None = unfilled) -> Evidence:
        return engine.evaluate(program, gap_space, searching, unconstrained, sites, tolerance, most, whole)

    search: Search | None = None
    unconstrained: Values = {}
    if searching:
        drawn = program.prior_draws(key, engine.options["restarts"] - 1)
        if at_first is not None:
            medians = {**medians, **program.unconstrained(at_first)}
        with Progress(f"{engine.name}: maximising the evidence", progress_bar) as progress:
            search = _search(engine, [medians, *drawn], at, first, progress, program)
        unconstrained, first = search.unconstrained, search.evidence.sites
    final = at(unconstrained, first, engine.options["tol"], whole=whole)
    result = CODES[int(final.info.code)]
    if not result.ok and first is not cold:
        retried = at(unconstrained, cold, engine.options["tol"], whole=whole)
        if CODES[int(retried.info.code)].ok:
            final, result = retried, Result.converged
    if result.ok and search is not None and not search.converged:
        result = Result.hyperparameters_not_converged
    info = describe(engine, gap_space, result, final.info, search)
    info["log_prior"] = float(final.log_prior)
    if final.repeated is not None:
        info |= _told_of_copies(final.repeated, result)
    return Settled(final, result, info, gap_space, unconstrained)


def _told_of_copies(found: Any, result: Result) -> dict[str, float]:
    """What ``info`` says of answers that were given many times; a warning where EP is off by them."""
    shift, ratio = (float(value) for value in found)
    if result.ok and (shift > _SHIFT or not 1 / _RATIO < ratio < _RATIO):
        warn_user(
            f"answers that were given many times, and never the other way round, are beyond a Gaussian: by them a mean is about {shift:.2f} "
            f"posterior sds off and an sd {ratio:.2f} times the right one; posterior.reweighted() or NUTS on the same program does better",
            InferenceWarning,
        )
    return {"repeated_shift": shift, "repeated_sd_ratio": ratio}


def in_gap_space(options: Mapping[str, Any], layout: Layout) -> bool:
    """Whether the algebra happens in the space of projections; never where sites may be so precise that it would cancel there."""
    if options["space"] == "auto":
        return use_gap_space(layout)
    if options["space"] == "gap" and not layout.log_concave:
        raise UnsupportedProgramError(
            "space is 'gap', which takes log-concave likelihoods only, and one of the program's is not; leave space='auto'"
        )
    return bool(options["space"] == "gap") and not needs_entity_space(layout)


def _search(
    engine: Setting,
    starts: list[Values],
    at: Callable[..., Evidence],
    sites: Sites,
    progress: Progress,
    program: Program,
) -> Search:
    """The best of all starts."""
    most = engine.options["max_evaluations"]
    if engine.options["hyperparameters"] == "em":
        tolerance = max(engine.options["tol"], CLOSE)  # EM needs q itself, not only its evidence
        found = [
            expectation_maximisation(
                program,
                lambda u, s: at(u, s, tolerance, True),
                lambda u, s: at(u, s, tolerance, False),
                start,
                sites,
                most,
                progress.step,
            )
            for start in starts
        ]
    else:
        tolerance = max(engine.options["tol"], SEARCH_TOLERANCE)
        found = [
            maximise(lambda u, s: at(u, s, tolerance), start, sites, most, progress.step) for start in starts
        ]
    return max(found, key=lambda one: one.objective)


def describe(
    engine: Setting, gap_space: bool, result: Result, found: Info, search: Search | None
) -> dict[str, Any]:
    """What a posterior's ``info`` says of the run."""
    info: dict[str, Any] = {
        "engine": engine.name,
        "result": result.name,
        "iterations": int(found.sweeps),
        "residual": float(found.residual),
        "damping": float(found.damping),
        "space": "gap" if gap_space else "entity",
        "jitter": float(found.jitter),
    }
    if search is not None:
        info |= {
            "hyperparameters": "em" if engine.options["hyperparameters"] == "em" else "maximise",
            "evaluations": search.evaluations,
            "gradient_norm": search.gradient_norm,
            "failed_evaluations": len(search.failures),
        }
    return info
