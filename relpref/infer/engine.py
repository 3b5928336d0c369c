"""What the engines that approximate a posterior by a Gaussian share: options, the search for hyperparameters, the result."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.special import logsumexp

from relpref.errors import DataError, InferenceError
from relpref.infer.assemble import (
    assemble,
    assemble_mixture,
    positive_definite,
    prior_notes,
    thinned,
)
from relpref.infer.computing import computing
from relpref.infer.evidence import Component, Evidence
from relpref.infer.importance import (
    MIN_POINTS,
    PARETO_POINTS,
    POINT_TOLERANCE,
    Coordinates,
    Evaluated,
    coordinates,
    effective,
    importance_points,
    most_points,
    pareto_k,
    warn_of_weights,
)
from relpref.infer.large.fit import fit, is_large
from relpref.infer.program import Model, Program, preference_data
from relpref.infer.result import CODES, Progress, Result, code
from relpref.infer.search import (
    CLOSE,
    UNMIXED,
    Density,
    Fitted,
    cold_start,
    describe,
    fit_hyperparameters,
    in_dual_space,
    sample,
)
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Floats, as_key, generator
from relpref.posterior.origin import Origin

Strategy = Literal["integrate", "maximise", "maximize", "em", "nuts"]

_CHOICES = {
    "hyperparameters": ("integrate", "maximise", "em", "nuts"),
    "space": ("auto", "entity", "gap"),
    "structure": ("auto", "dense", "sparse"),
}
_LEAST = {"restarts": 1, "draws": 8, "warmup": 1, "max_sweeps": 1, "max_evaluations": 1}
_CONVERGED = code(Result.converged)
_ALL_HELD = "all hyperparameters are in a plate, such as one for each rater; they are at their maximum"
_TOO_LARGE = "the covariances of all points would take too much memory; hyperparameters are at their maximum"


@dataclass(eq=False, repr=False)
class GaussianEngine:
    """A Gaussian approximation of the posterior of a numpyro program, at hyperparameters it finds or integrates over.

    Parameters
    ----------
    program : callable
        A numpyro program whose latent sites are Gaussian vectors. Each of its observed answers may depend on one affine function of
        them, its predictor; the moments of distributions from `relpref.likelihoods` have closed forms, those of others are
        integrated numerically. Every other latent site is a hyperparameter.
    hyperparameters : {"integrate", "maximize", "em", "nuts"}
        ``"integrate"`` averages over them by 24 to 60 weighted points around the maximum of evidence times prior (see
        `relpref.infer.importance`) and returns a weighted mixture of one posterior for each. At most six directions are varied: the
        scalars first, then entries of vectors such as length scales; ``info["held"]`` names what stays at the maximum, and
        ``info["effective_points"]`` says how even the weights are. Where covariances of all points would take too much memory, above
        about 640 entities, the posterior is that at the maximum, and ``info["integration"]`` says so. ``"maximize"`` (or ``"maximise"``) climbs log evidence
        plus log prior by its exact gradient and takes the maximum for certain: intervals are too narrow where answers are few.
        ``"em"`` reaches the same place by the paper's expectation maximization (XPGP eq. 15-16), more slowly. ``"nuts"`` samples them
        from evidence times prior, starting at the maximum, and returns a mixture of one posterior for each draw: the reference, and
        the remedy where too few points are effective. The prior density at the maximum is always that of the unconstrained values,
        so an amplitude is judged on the log scale and does not collapse to 0.
    fixed : mapping from site to value, optional
        Hyperparameters that are known; scalars are broadcast.
    restarts : int
        Starting points of the search: the prior's median, then draws from it.
    draws, warmup : int
        For ``"nuts"``: hyperparameter draws to keep, and steps to tune the sampler by before.
    tol : float
        When the sites have settled; see the engine.
    max_sweeps : int
        For each run of the engine at one value of the hyperparameters.
    max_evaluations : int
        Of the evidence, for each start.
    space : {"auto", "entity", "gap"}
        Where the algebra happens; "auto" takes the cheaper. With a Gaussian likelihood (labels, reported probabilities), and
        where an answer was given more than 20 times, it is always "entity", which keeps its accuracy where sites are precise.
    structure : {"auto", "dense", "sparse"}
        How covariances of entities are kept: as matrices, or, of preference programs, as sparse graphs and functions of attributes that
        are evaluated where they are wanted, see `relpref.infer.large`; "auto" takes the second above 4000 entities.
    padding : bool
        Let rows that stand for no answer fill the answers up to a round number, so that fits to a growing number of answers share
        what JAX compiles. Of no effect for a program that would make something of such rows.
    throw : bool
        Raise where the result is not ``converged``; otherwise the posterior carries the code and its answers warn.
    """

    name: ClassVar[str]
    at_mode: ClassVar[bool] = False  # sites touch the likelihood at the mean, instead of matching moments
    evaluate: ClassVar[Callable[..., Evidence]]

    program: Model
    _: KW_ONLY
    hyperparameters: Strategy = "integrate"
    fixed: Mapping[str, Any] | None = None
    restarts: int = 1
    draws: int = 200
    warmup: int = 200
    tol: float = 1e-8
    max_sweeps: int = 500
    max_evaluations: int = 200
    space: Literal["auto", "entity", "gap"] = "auto"
    structure: Literal["auto", "dense", "sparse"] = "auto"
    padding: bool = False
    throw: bool = True

    def __post_init__(self) -> None:
        if not callable(self.program):
            raise DataError(
                f"program is {self.program!r}; {self.name} takes a numpyro program, such as relpref.models.xpgp"
            )
        if self.hyperparameters == "maximize":
            self.hyperparameters = "maximise"  # as saved files have it
        for name, known in _CHOICES.items():
            given = getattr(self, name)
            if given not in known:
                hint = "; give known values with fixed=" if name == "hyperparameters" else ""
                raise DataError(
                    f"{name} is {given!r}; it is {', '.join(map(repr, known[:-1]))} or {known[-1]!r}{hint}"
                )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise DataError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not 0 < self.tol < 1:
            raise DataError(f"tol is {self.tol}; it must lie between 0 and 1")
        self.fixed = dict(self.fixed or {})

    @property
    def options(self) -> dict[str, Any]:
        """The keywords that it was made with, but for ``fixed``."""
        names = [field.name for field in fields(self) if field.name not in ("program", "fixed")]
        return {name: getattr(self, name) for name in names}

    def run(self, rng_key: Any, *args: Any, progress_bar: bool = True, **kwargs: Any) -> Posterior:
        """Fit.

        Parameters
        ----------
        rng_key : JAX key or int
            A key of either kind, or a seed; used for restarts, for draws and kept for Monte Carlo answers.
        *args, **kwargs
            Passed to the program.
        progress_bar : bool
            Show the search while it runs, where a person watches (stderr is a terminal).

        Returns
        -------
        Posterior
            A `UtilityPosterior` for preference programs.

        Raises
        ------
        UnsupportedProgramError
            If the engine cannot treat the program; nothing has been computed then.
        InferenceError
            If the engine, the search or the sampler did not converge, and ``throw``.
        DataError
            If ``fixed`` does not fit the program.
        """
        return self.run_from(None, rng_key, *args, progress_bar=progress_bar, **kwargs)

    def run_from(
        self,
        sites: Mapping[str, Any] | None,
        rng_key: Any,
        *args: Any,
        progress_bar: bool = True,
        at: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Posterior:
        """As `run`, starting from the sites of an earlier posterior with the same answers.

        Parameters
        ----------
        sites : mapping or None
            ``posterior.sites``; None starts without.
        rng_key, *args, progress_bar, **kwargs
            As for `run`.
        at : mapping from site to value, optional
            Where the first search for hyperparameters starts, instead of their priors' medians.
        """
        with computing(self.name, rng_key, args, kwargs, self.fixed):
            return self._run(sites, as_key(rng_key), args, kwargs, progress_bar, at)

    @staticmethod
    def reweighted(posterior: Posterior, num_samples: int, key: Any) -> Posterior:
        """See `Posterior.reweighted`."""
        from relpref.infer.reweighting import reweighted

        return reweighted(posterior, num_samples, key)

    def run_at_draws(
        self,
        draws: Mapping[str, Any],
        rng_key: Any,
        *args: Any,
        info: Mapping[str, Any] | None = None,
        prior_log_weights: Any = None,
        **kwargs: Any,
    ) -> Posterior:
        """The mixture of one posterior for each of k draws of all hyperparameters that are not ``fixed``.

        Parameters
        ----------
        draws : mapping from site to array, shape (k, ...)
        rng_key, *args, **kwargs
            As for `run`.
        info : mapping, optional
            What to report of the draws.
        prior_log_weights : array, shape (k,), optional
            Log weights of the draws before the answers, see `Posterior`; by default the draws are of equal weight after them.
        """
        with computing(self.name, rng_key, args, kwargs, self.fixed, draws):
            return self._mixture(draws, as_key(rng_key), args, kwargs, dict(info or {}), prior_log_weights)

    def _run(
        self,
        start: Mapping[str, Any] | None,
        key: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        progress_bar: bool,
        at_first: Mapping[str, Any] | None,
    ) -> Posterior:
        options = self.options
        if is_large(options["structure"], args, kwargs):
            return fit(self, start, key, args, kwargs, progress_bar, at_first)
        program = Program.of(self.program, args, kwargs, self.fixed, padding=options["padding"])
        layout = program.layout
        fitted = fit_hyperparameters(self, program, start, key, progress_bar, at_first)
        final, result, info = fitted.evidence, fitted.result, fitted.info
        if fitted.dual and not positive_definite(final):
            result = Result.prior_not_positive_definite
            info["result"] = result.name
        self.raise_unless_ok(result, info)
        info |= prior_notes(preference_data(args, kwargs), final.blocks)
        origin = self.origin(args, kwargs)
        strategy = options["hyperparameters"] if layout.hyperparameters and not result.empty else None
        if strategy == "nuts":
            root = jnp.eye(ravel_pytree(fitted.unconstrained)[0].size)
            place = (program, fitted.unconstrained, root, final.sites, CLOSE, options["max_sweeps"])
            density = Density(self.evaluate, fitted.dual, options["warmup"], *place).spread()
            draws, more = sample(density, key, options["draws"], progress_bar)
            # Of the search that the sampler started from, what is worth keeping.
            kept = ("evaluations", "failed_evaluations", "equal_priors", "alike_parts")
            more = {name: info[name] for name in kept if name in info} | more
            return self._mixture(program.constrained(draws), key, args, kwargs, more, None)
        if strategy == "integrate":
            coords = coordinates(program, fitted.unconstrained)
            if not coords.number:
                info |= {"integration": _ALL_HELD, "held": coords.held}
            elif most_points(layout.num_latents) < MIN_POINTS:
                info["integration"] = _TOO_LARGE
            else:
                return self._integrated(program, fitted, coords, key, origin, progress_bar)
        return assemble(layout, program.fixed, final, info, key, origin, program.answered)

    def raise_unless_ok(self, result: Result, info: Mapping[str, Any]) -> None:
        """Raise what ``throw`` wants to be raised."""
        if not result.ok and self.options["throw"]:
            state = f"after {info['iterations']} sweeps, residual {info['residual']:.1e}, damping {info['damping']:.2f}"
            raise InferenceError(f"{result.name}: {result.value} ({state})", result)

    def _integrated(
        self,
        program: Program,
        fitted: Fitted,
        coords: Coordinates,
        key: Any,
        origin: Origin,
        progress_bar: bool,
    ) -> Posterior:
        """The weighted mixture over importance points around the maximum."""
        layout, best = program.layout, fitted.evidence
        center, unravel = ravel_pytree(fitted.unconstrained)
        maximum = np.asarray(center)
        # The evidence is stationary in the sites, and what a mean is off by is far below the error of few points.
        limits = (max(self.options["tol"], POINT_TOLERANCE), self.options["max_sweeps"])
        cold = cold_start(layout)
        seen, seen_sites = maximum[None], [best.sites]

        def evaluate(places: Floats, wanted: bool) -> list[Evaluated | None]:
            nonlocal seen
            found: list[Evaluated | None] = []
            for place in places:
                nearest = seen_sites[int(np.argmin(np.square(seen - place).sum(axis=1)))]
                unconstrained = unravel(jnp.asarray(place))
                found.append(None)
                for start in (nearest, cold):
                    evidence = self.evaluate(
                        program, fitted.dual, True, unconstrained, start, *limits, wanted
                    )
                    gradient = np.asarray(ravel_pytree(evidence.gradient)[0])
                    log_evidence, log_prior = float(evidence.log_evidence), float(evidence.log_prior)
                    numbers = (log_evidence, log_prior, *gradient)
                    if int(evidence.info.code) != _CONVERGED or not np.all(np.isfinite(numbers)):
                        continue
                    seen = np.vstack([seen, place])
                    seen_sites.append(evidence.sites)
                    result = None
                    if wanted:
                        values = jax.tree.map(np.asarray, evidence.hyperparameters)
                        result = (Component.of(layout, evidence, program.answered), values)
                    found[-1] = Evaluated(log_evidence, log_prior, gradient, result)
                    break
            return found

        with Progress(
            f"{self.name}: averaging over hyperparameters", progress_bar, "points", "effective points {:.1f}"
        ) as progress:
            points = importance_points(
                evaluate,
                coords,
                maximum,
                Evaluated(float(best.log_evidence), float(best.log_prior), np.zeros(len(maximum)), None),
                generator(key),
                most_points(layout.num_latents),
                progress.step,
            )
        info = fitted.info | {"hyperparameters": "integrate", **points.info}
        if not points.results:
            result = Result.hyperparameters_not_converged
            self.raise_unless_ok(result, info)
            info |= {"result": result.name, "hyperparameters": "maximise"}
            return assemble(layout, program.fixed, best, info, key, origin, program.answered)
        components, values = zip(*points.results, strict=True)
        draws = {name: np.stack([value[name] for value in values]) for name in values[0]}
        weights = (points.prior_log_weights, points.log_evidence)
        warn_of_weights(info)
        return assemble_mixture(layout, program.fixed, components, draws, *weights, info, key, origin)

    def _mixture(
        self,
        draws: Mapping[str, Any],
        key: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        more: dict[str, Any],
        prior_log_weights: Any,
    ) -> Posterior:
        draws = {name: np.asarray(value, np.float64) for name, value in draws.items()}
        rows = [
            {name: value[row] for name, value in draws.items()}
            for row in range(len(next(iter(draws.values()))))
        ]
        known = {**(self.fixed or {}), **rows[0]}
        program = Program.of(self.program, args, kwargs, known, padding=self.options["padding"])
        layout = program.layout
        if layout.hyperparameters:
            raise DataError(f"draws lack the hyperparameter {layout.hyperparameters[0][0]!r}")
        if prior_log_weights is None:
            rows = thinned(rows, layout.num_latents)
        dual = in_dual_space(self.options["space"], layout)
        cold = sites = cold_start(layout)
        limits = (self.options["tol"], self.options["max_sweeps"])
        components: list[Component] = []
        codes: list[Result] = []
        infos = []
        for row in rows:
            here = program.at({name: jnp.asarray(value) for name, value in row.items()})
            for start in (sites, cold):
                evidence = self.evaluate(here, dual, False, {}, start, *limits, True)
                if int(evidence.info.code) == _CONVERGED:
                    sites = evidence.sites
                    break
            codes.append(CODES[int(evidence.info.code)])
            infos.append(evidence.info)
            components.append(Component.of(layout, evidence, program.answered))
        result = max(codes, key=lambda code: (code.empty, not code.ok))
        if result.ok and more.get("r_hat", 1.0) > UNMIXED:
            result = Result.hyperparameters_not_mixed
        worst = max(infos, key=lambda one: float(one.residual))
        info = describe(self, dual, result, worst) | {"hyperparameters": "nuts", **more}
        evidences = np.array([component.log_evidence for component in components])
        log_evidence = None
        if prior_log_weights is None:
            prior_log_weights = -evidences
            info["draws"] = len(rows)
        else:
            log_weights = prior_log_weights + evidences
            log_evidence = float(logsumexp(log_weights))
            info |= {"points": len(rows), "effective_points": effective(log_weights)}
            if len(rows) >= PARETO_POINTS:
                info["pareto_k"] = pareto_k(log_weights)
            warn_of_weights(info)
        self.raise_unless_ok(result, info)
        fixed = {name: value for name, value in program.fixed.items() if name not in draws}
        kept = {name: np.stack([row[name] for row in rows]) for name in draws}
        weights = (prior_log_weights, log_evidence)
        return assemble_mixture(
            layout, fixed, components, kept, *weights, info, key, self.origin(args, kwargs)
        )

    def changed(self, program: Model | None = None, **options: Any) -> "GaussianEngine":
        """The same engine with other options, or for another program."""
        return type(self)(program or self.program, **{**self.options, "fixed": self.fixed, **options})

    def origin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Origin:
        """How a posterior of this engine comes about."""
        return Origin(self.program, args, kwargs, self)
