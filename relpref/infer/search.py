"""Find hyperparameters: maximize the evidence by its gradient or by EM, or sample them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.evidence import Evidence, latent_moments, needs_latent_space, tilted, use_dual_space
from relpref.infer.importance import inverse_root
from relpref.infer.program import Layout, Program, Values
from relpref.infer.result import CODES, InferenceWarning, Progress, Result, code, warn_user
from relpref.infer.sites import Info, Sites

CHAINS = 2  # of draws of the hyperparameters

# While the search is under way, sites this near to their fixed point are enough: the evidence is stationary in the sites,
# so its error is of second order in the residual, and the gradient's of first.
SEARCH_TOLERANCE = 1e-4
# Where the approximation itself is wanted, and not only its evidence, the sites have to settle further.
CLOSE = 1e-6
_UNUSABLE = 1e10  # the objective where EP fails, for the line search to turn back from
_CONVERGED = code(Result.converged)


class Engine(Protocol):
    """What a search needs of an engine.

    Attributes
    ----------
    name : str
    options : mapping
        The keywords that it was made with.
    evaluate : callable
        From a program, whether to work in observation space, whether a gradient is wanted, unconstrained hyperparameters, sites to start
        from, tolerance, number of sweeps, and ``whole`` to `Evidence`, see `relpref.infer.evidence.evaluate`.
    """

    @property
    def options(self) -> dict[str, Any]: ...

    @property
    def name(self) -> str: ...

    @property
    def evaluate(self) -> Callable[..., Evidence]: ...


@dataclass
class Search:
    """What a search found.

    Attributes
    ----------
    unconstrained : dict
        Best hyperparameters.
    evidence : Evidence
        There; of another engine anything with its log_evidence, log_prior, gradient, sites and info.
    evaluations : int
    gradient_norm : float
        Largest absolute entry of the gradient there.
    converged : bool
    """

    unconstrained: Values
    evidence: Any
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
    evaluate: Callable[[Values, Sites], Any],
    start: Values,
    sites: Sites,
    max_evaluations: int,
    report: Callable[[int, float], None],
) -> Search:
    """Climb with L-BFGS from one starting point, each evaluation warm-started from the best sites so far.

    Parameters
    ----------
    evaluate : callable
        From unconstrained hyperparameters and starting sites to the evidence there.
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
        unconstrained = unravel(jnp.asarray(x))
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


def gradient_norm(evidence: Any) -> float:
    """Largest absolute entry of the gradient."""
    return float(np.abs(np.asarray(ravel_pytree(evidence.gradient)[0])).max(initial=0.0))


def usable(evidence: Any) -> bool:
    """Whether EP ended near enough to a fixed point for its evidence and gradient to mean something."""
    near = int(evidence.info.code) == _CONVERGED or float(evidence.info.residual) < 10 * SEARCH_TOLERANCE
    numbers = (evidence.log_evidence, evidence.log_prior, *evidence.gradient.values())
    return near and all(bool(np.all(np.isfinite(number))) for number in numbers)


# EM creeps: each step closes a fixed fraction of what is left. It ends when a step gains less than this in log evidence plus prior.
_GAIN = 1e-5
_NODES = 24  # of the quadrature under each predictor's marginal, for likelihoods with parameters of their own


def expectation_maximization(
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
    evaluate, with_gradient : callable
        From unconstrained hyperparameters and starting sites to `Evidence`: the E-step, and the same with the gradient of the evidence.
    start, sites
        As of `maximise`.
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Density:
    """Evidence times prior as a density of z, where the unconstrained hyperparameters are ``center`` + ``root`` z.

    Attributes
    ----------
    evaluate : callable
        Of an engine.
    dual : bool
        Whether it works in observation space.
    warmup : int
        Steps by which NUTS is tuned.
    program : Program
    center : dict
    root : Array
    sites, tolerance, max_sweeps
        What the engine starts from, and how far it goes.
    """

    evaluate: Callable[..., Evidence] = field(metadata={"static": True})
    dual: bool = field(metadata={"static": True})
    warmup: int = field(metadata={"static": True})
    program: Program
    center: Values
    root: Any
    sites: Sites
    tolerance: float
    max_sweeps: int

    def at(self, z: Array) -> tuple[Evidence, Array]:
        """The evidence, and the gradient of its logarithm plus that of the prior."""
        center, unravel = ravel_pytree(self.center)
        evidence = self.evaluate(
            self.program,
            self.dual,
            True,
            unravel(center + self.root @ z),
            self.sites,
            self.tolerance,
            self.max_sweeps,
            False,
        )
        return evidence, self.root.T @ ravel_pytree(evidence.gradient)[0]

    def potential(self, z: Array) -> Array:
        """Minus the log density, with the engine's exact gradient; infinite where the engine fails."""
        here = jax.lax.stop_gradient(z)
        evidence, gradient = self.at(here)
        height = evidence.log_evidence + evidence.log_prior
        fine = (evidence.info.code == _CONVERGED) & jnp.all(jnp.isfinite(gradient))
        # The engine's gradient in place of one through its iterations.
        slope = jax.lax.stop_gradient(jnp.where(fine, -gradient, 0.0))
        return jax.lax.stop_gradient(jnp.where(fine, -height, jnp.inf)) + slope @ (z - here)

    def kernel(self, z: Array, key: Any) -> tuple[Any, Callable[[Any], Any]]:
        """NUTS: the state at z, and a step."""
        from numpyro.infer.hmc import hmc

        begin, step = hmc(potential_fn=self.potential, algo="NUTS")
        return begin(z, self.warmup, step_size=0.5, dense_mass=True, rng_key=key), step

    def spread(self) -> "Density":
        """With a root of the inverse curvature at the center, which is found by central differences of the gradient."""
        steps = _STEP * np.eye(self.root.shape[0])
        gradients = [[np.asarray(self.at(sign * step)[1]) for sign in (-1, 1)] for step in steps]
        hessian = np.stack([(before - after) / (2 * _STEP) for before, after in gradients])
        return replace(self, root=jnp.asarray(inverse_root(hessian, _FLATTEST)))


def sample(density: Density, key: Any, draws: int, progress_bar: bool) -> tuple[Values, dict[str, Any]]:
    """Unconstrained hyperparameters from evidence times prior, by NUTS, chain after chain; and `DRAWS_INFO` of them."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    center, unravel = ravel_pytree(density.center)
    length = -(-draws // CHAINS)
    moved, diverging = [], []
    with Progress("sampling the hyperparameters", progress_bar, "steps", "step size {:.2g}") as progress:
        for chain in range(CHAINS):
            first, second = jax.random.split(jax.random.fold_in(key, chain))
            state = _begin(density, jax.random.normal(first, center.shape, center.dtype), second)
            for wanted, kept in ((density.warmup, False), (length, True)):
                for done in range(0, wanted, _ROUND):
                    number = min(_ROUND, wanted - done)
                    state, z, diverged = _advance(density, state, number)
                    for _ in range(number):
                        progress.step(0, float(state.adapt_state.step_size))
                    if kept:
                        moved.append(np.asarray(z)[:number])
                        diverging.append(np.asarray(diverged)[:number])
    values = np.asarray(center) + np.concatenate(moved) @ np.asarray(density.root).T
    by_chain = values.reshape(CHAINS, length, -1)
    info = {
        "r_hat": float(np.max(split_gelman_rubin(by_chain))),
        "ess": float(np.min(effective_sample_size(by_chain))),
        "divergences": int(np.sum(np.concatenate(diverging))),
        "draws": len(values),
        "chains": CHAINS,
    }
    return jax.vmap(unravel)(jnp.asarray(values)), info


@jax.jit
def _begin(density: Density, z: Array, key: Any) -> Any:
    """A chain before its first step."""
    return density.kernel(z, key)[0]


@jax.jit
def _advance(density: Density, state: Any, number: int) -> tuple[Any, Array, Array]:
    """Up to `_ROUND` steps of a chain: its state, and where each of them led, whether it diverged."""
    _, step = density.kernel(state.z, state.rng_key)

    def one(row: Any, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, z, diverging = carried
        state = step(state)
        return state, z.at[row].set(state.z), diverging.at[row].set(state.diverging)

    room = (jnp.zeros((_ROUND, len(state.z)), state.z.dtype), jnp.zeros(_ROUND, bool))
    return jax.lax.fori_loop(0, number, one, (state, *room))


# By how many posterior sds a mean, and by which factor an sd, may be off before it is said.
_SHIFT, _RATIO = 0.1, 1.25


class Fitted(NamedTuple):
    """What an engine found at the hyperparameters that it found.

    Attributes
    ----------
    evidence : Evidence
    result : Result
    info : dict
    dual : bool
        Whether it worked in observation space.
    unconstrained : dict
        Hyperparameters.
    """

    evidence: Evidence
    result: Result
    info: dict[str, Any]
    dual: bool
    unconstrained: Values


def cold_start(layout: Layout) -> Sites:
    """Sites that say nothing."""
    return Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))


def fit_hyperparameters(
    engine: Engine,
    program: Program,
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
    whole: bool | None = True,
    space: str | None = None,
) -> Fitted:
    """Find the hyperparameters and, at them, the sites.

    Parameters
    ----------
    engine : Engine
    program : Program
    start : mapping, optional
        Sites to start from, by ``precision`` and ``shift``.
    key : JAX key
        For restarts.
    progress_bar : bool
    at_first : mapping, optional
        Hyperparameters where the first search starts, instead of their priors' medians.
    whole : bool, optional
        Whether the (n, n) arrays of a posterior are wanted; None: not even room for them.
    space : str, optional
        As of the engine's options, which it takes the place of.
    """
    layout, options = program.layout, engine.options
    dual = in_dual_space(options["space"] if space is None else space, layout)
    em = options["hyperparameters"] == "em"
    if em and not layout.constant_projection:
        raise DataError(
            "hyperparameters is 'em', but hyperparameters change what the answers look at, which EM holds fixed; "
            "use 'maximise' or 'nuts'"
        )
    cold = first = cold_start(layout)
    if start is not None:
        spare = (0, layout.num_rows - len(start["precision"]))
        first = Sites(*(jnp.asarray(np.pad(start[name], spare)) for name in ("precision", "shift")))
    searching = bool(layout.hyperparameters)
    tol, most = options["tol"], options["max_evaluations"]
    unfilled = None if whole is None else False

    def at(unconstrained: Values, sites: Sites, tolerance: float, whole: bool | None = unfilled) -> Evidence:
        sweeps = options["max_sweeps"]
        return engine.evaluate(program, dual, searching, unconstrained, sites, tolerance, sweeps, whole)

    def climb(place: Values, report: Callable[[int, float], None]) -> Search:
        if not em:
            tolerance = max(tol, SEARCH_TOLERANCE)
            return maximise(lambda u, s: at(u, s, tolerance), place, first, most, report)
        tolerance = max(tol, CLOSE)  # EM needs q itself, not only its evidence
        return expectation_maximization(
            program,
            lambda u, s: at(u, s, tolerance, True),
            lambda u, s: at(u, s, tolerance, False),
            place,
            first,
            most,
            report,
        )

    search: Search | None = None
    unconstrained: Values = {}
    if searching:
        places = [program.medians | program.unconstrained(at_first or {})]
        places += program.prior_draws(key, options["restarts"] - 1)
        with Progress(f"{engine.name}: maximising the evidence", progress_bar) as progress:
            searches = [climb(place, progress.step) for place in places]
        search = max(searches, key=lambda one: one.objective)
        unconstrained, first = search.unconstrained, search.evidence.sites
    final = at(unconstrained, first, tol, whole=whole)
    if int(final.info.code) != _CONVERGED and first is not cold:
        retried = at(unconstrained, cold, tol, whole=whole)
        if int(retried.info.code) == _CONVERGED:
            final = retried
    result = CODES[int(final.info.code)]
    if result is Result.converged and search is not None and not search.converged:
        result = Result.hyperparameters_not_converged
    info = describe(engine, dual, result, final.info)
    if search is not None:
        info |= {
            "hyperparameters": "em" if em else "maximise",
            "evaluations": search.evaluations,
            "gradient_norm": search.gradient_norm,
            "failed_evaluations": len(search.failures),
        }
    info["log_prior"] = float(final.log_prior)
    if final.repeated is not None:
        info |= _told_of_copies(final.repeated, result)
    return Fitted(final, result, info, dual, unconstrained)


def _told_of_copies(found: Any, result: Result) -> dict[str, float]:
    """What ``info`` says of answers that were given many times; a warning where EP is off by them."""
    shift, ratio = (float(value) for value in found)
    if result is Result.converged and (shift > _SHIFT or not 1 / _RATIO < ratio < _RATIO):
        warn_user(
            f"answers that were given many times, and never the other way round, are beyond a Gaussian: by them a mean is about {shift:.2f} "
            f"posterior sds off and an sd {ratio:.2f} times the right one; posterior.reweighted() or NUTS on the same program does better",
            InferenceWarning,
        )
    return {"repeated_shift": shift, "repeated_sd_ratio": ratio}


def in_dual_space(space: str, layout: Layout) -> bool:
    """Whether to work in observation space; never where sites may be so precise that it would cancel there."""
    if space == "auto":
        return use_dual_space(layout)
    if space == "gap" and not layout.log_concave:
        raise UnsupportedProgramError(
            "space is 'gap', which takes log-concave likelihoods only, and one of the program's is not; leave space='auto'"
        )
    return space == "gap" and not needs_latent_space(layout)


def describe(engine: Engine, dual: bool, result: Result, found: Info) -> dict[str, Any]:
    """What a posterior's ``info`` says of the run."""
    return {
        "engine": engine.name,
        "result": result.name,
        "iterations": int(found.sweeps),
        "residual": float(found.residual),
        "damping": float(found.damping),
        "space": "gap" if dual else "entity",
        "jitter": float(found.jitter),
    }
