"""The base class of engines that approximate a posterior by a Gaussian, and EP."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from inspect import cleandoc
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from scipy.special import logsumexp, softmax

from relpref.blas import threads_for
from relpref.data.parts import neighborhood
from relpref.description import Description
from relpref.devices import accelerated
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.assemble import Component, assemble, positive_definite, prior_notes, thinned
from relpref.infer.call import Model, Values, each_draw, preference_data, survey
from relpref.infer.computing import computing
from relpref.infer.evidence import Evidence, evaluate, expectation_propagation, use_dual_space
from relpref.infer.importance import (
    FEWEST_POINTS,
    MIN_POINTS,
    POINT_TOLERANCE,
    Coordinates,
    Evaluated,
    Need,
    coordinates,
    drawn_points,
    importance_points,
    judged,
    most_points,
    repeated_point,
)
from relpref.infer.large.fit import fit, fit_many
from relpref.infer.plates import Averaged, Learned, learned, prepare_plates
from relpref.infer.program import Program
from relpref.infer.sampling import UNMIXED, Density, sample
from relpref.infer.search import CLOSE, Fitted, describe, fit_hyperparameters
from relpref.infer.self_check import Mixture, checked
from relpref.infer.sites import Sites
from relpref.limits import MAX_DENSE_ITEMS
from relpref.linalg.arrays import ravel
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Floats, generator, key_words
from relpref.posterior.origin import Origin
from relpref.result import Result, progress_line, warn_user

Strategy = Literal["integrate", "maximize", "em", "nuts"]

_CHOICES = {
    "hyperparameters": ("integrate", "maximize", "em", "nuts"),
    "space": ("auto", "latent", "observation"),
    "structure": ("auto", "dense", "sparse"),
}
_CHECKS = ("auto", True, False)
_LEAST = {"restarts": 1, "draws": 8, "warmup": 1, "max_sweeps": 1, "max_evaluations": 1}
_ALL_HELD = (
    "all hyperparameters are in a plate, such as one for each rater; they are at their maximum"
)
_TOO_LARGE = (
    "the covariances of all points would take too much memory; hyperparameters are at their maximum"
)
# Items from which on a search starts at the optimum of some of them, and their number.
_VERY_MANY, _SOME = 800, 300
_FEWER = "memory has room for the covariances of few points, which are less accurate"


@dataclass(eq=False, repr=False)
class GaussianEngine:
    """A Gaussian approximation of a numpyro program's posterior.

    Hyperparameters are maximized, integrated over or sampled.

    Parameters
    ----------
    program : callable
        A numpyro program whose latent sites are Gaussian vectors. Each of its observed answers may
        depend on one affine function of them, its predictor; the moments of distributions from
        `relpref.likelihoods` have closed forms, those of others are integrated numerically. Every
        other latent site is a hyperparameter.
    hyperparameters : {"integrate", "maximize", "em", "nuts"}
        ``"integrate"`` averages over them by 7 to 100 weighted points around the maximum of
        evidence times prior (see `relpref.infer.importance`) and returns a weighted mixture of one
        posterior for each. It does not use the key. At most ten directions are varied: the scalars
        first, then entries of vectors such as length scales; ``info["held"]`` names what stays at
        the maximum, and ``info["effective_points"]`` says how even the weights are. Above 600 items
        there are at most 16 points. Each keeps a covariance of the items: above 2000 there are
        fewer, 8 of them the least, and above 2828 the posterior is that at the maximum;
        ``info["integration"]`` says so. ``"maximize"`` climbs log evidence plus
        log prior by its exact gradient and ignores the uncertainty around it: intervals are too
        narrow where answers are few. ``"em"`` reaches the same place by the paper's expectation
        maximization (XPGP eq. 15-16), more slowly. ``"nuts"`` samples them from evidence times
        prior, starting at the maximum, and returns a mixture of one posterior for each draw: the
        reference, and the remedy where too few points are effective. The prior density at the
        maximum is always that of the unconstrained values, so an amplitude is judged on the log
        scale and does not collapse to 0.
    fixed : mapping from site to value, optional
        Hyperparameters that are known; scalars are broadcast.
    restarts : int
        Starting points of the search: the prior's median, then draws from it.
    draws, warmup : int
        For ``"nuts"``: hyperparameter draws to keep, and tuning steps.
    tol : float
        Tolerance of convergence; see the engine.
    max_sweeps : int
        Maximum number of sweeps at one value of the hyperparameters.
    max_evaluations : int
        Maximum number of evaluations of the evidence, for each start.
    space : {"auto", "latent", "observation"}
        The space of the linear algebra; "auto" takes the cheaper one. With a Gaussian likelihood
        (labels, reported probabilities), and where an answer was given more than 20 times, it is
        always "latent", which keeps its accuracy where sites are precise.
    structure : {"auto", "dense", "sparse"}
        How covariances of items are kept: as matrices, or, of preference programs, as sparse graphs
        and functions of attributes that are evaluated on request, see `relpref.infer.large`; "auto"
        takes the second above 4000 items.
    check : {"auto", True, False}
        Whether the posterior is compared with the exact one by importance weights of some thousand
        draws, and put right where means are off by more than 0.05 sds or sds by more than 5 %, see
        `relpref.infer.self_check`. ``info["check"]`` says in words what was seen. Means,
        sds and the log evidence become right; the shape of the posterior stays, so probabilities
        may be off by a few hundredths where it is skewed, see `Posterior.reweighted`. "auto" checks
        posteriors from EP of up to 150 latent values, if the answers have distributions of
        `relpref.likelihoods`, the data are arguments of the program, and what the answers look at
        does not depend on hyperparameters.
    throw : bool
        Raise an error unless the result is ``converged``; otherwise the posterior has the code, and
        its methods warn.
    """

    name: ClassVar[str]
    # Whether sites touch the likelihood at the mean, instead of matching moments
    at_mode: ClassVar[bool] = False
    evaluate: ClassVar[Callable[..., Evidence]]
    # Fits very many answers about very many items.
    fit_many: ClassVar[Callable[..., Any] | None] = None

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
    space: Literal["auto", "latent", "observation"] = "auto"
    structure: Literal["auto", "dense", "sparse"] = "auto"
    check: Literal["auto"] | bool = "auto"
    throw: bool = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give engines the documentation of the parameters, unless they have their own."""
        super().__init_subclass__(**keywords)
        if cls.__doc__ and GaussianEngine.__doc__ and "Parameters\n" not in cls.__doc__:
            _, _, parameters = cleandoc(GaussianEngine.__doc__).partition("\n\n")
            cls.__doc__ = f"{cleandoc(cls.__doc__)}\n\n{parameters}"

    def __post_init__(self) -> None:
        if not callable(self.program):
            raise DataError(
                f"program is {self.program!r}; {self.name} takes a numpyro program, such as "
                "relpref.models.xpgp"
            )
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if given not in choices:
                hint = "; give known values with fixed=" if name == "hyperparameters" else ""
                raise DataError(
                    f"{name} is {given!r}; it is {', '.join(map(repr, choices[:-1]))} or "
                    f"{choices[-1]!r}{hint}"
                )
        if self.check not in _CHECKS:
            raise DataError(f"check is {self.check!r}; it is 'auto', True or False")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise DataError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not 0 < self.tol < 1:
            raise DataError(f"tol is {self.tol}; it must lie between 0 and 1")
        self.fixed = dict(self.fixed or {})

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of the engine, except ``fixed``."""
        names = [field.name for field in fields(self) if field.name not in ("program", "fixed")]
        return {name: getattr(self, name) for name in names}

    def run(self, rng_key: Any, *args: Any, progress_bar: bool = True, **kwargs: Any) -> Posterior:
        """Fit the program.

        Parameters
        ----------
        rng_key : JAX key or int
            A key of either kind, or a seed; used for restarts, for draws and kept for Monte Carlo
            answers.
        *args, **kwargs
            Passed to the program.
        progress_bar : bool
            Show the search while it runs, if stderr is a terminal.

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
        """Run from the sites of an earlier posterior with the same answers, see `run`.

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
            key = key_words(rng_key) if isinstance(rng_key, int | np.integer) else rng_key
            origin = Origin(self.program, args, kwargs, self)
            data = preference_data(origin)
            if self.structure == "sparse" and data is None:
                raise UnsupportedProgramError(
                    "structure='sparse' is for programs on PreferenceData, and there is none among "
                    "the arguments; leave it out"
                )
            many = data is not None and data.num_items > MAX_DENSE_ITEMS and len(data.winner)
            if self.structure == "sparse" or (self.structure == "auto" and many):
                return fit(self, sites, key, origin, progress_bar, at)
            # A graph's spectrum may be computed.
            with threads_for(0 if data is None else data.num_items):
                program = self._read(origin, self.fixed)
            latents = program.layout.num_latents
            with threads_for(latents), accelerated(latents):
                return self._fitted(program, sites, key, origin, progress_bar, at)

    def _read(self, origin: Origin, fixed: Mapping[str, Any] | None) -> Program:
        program = Program.of(origin.program, origin.args, origin.kwargs, fixed)
        for site in survey(program.call).values():
            reason = site.without_mode if self.at_mode else site.without_moments
            if reason is not None:
                raise UnsupportedProgramError(
                    f"observed site {site.name!r} ({site.kind}): {reason}"
                )
        if self.at_mode and program.layout.ordered:
            program = program.at_a_point()
        # EM holds the posterior fixed where members would move with it, and averages are not
        # log-concave.
        average = not self.at_mode and self.hyperparameters != "em" and self.space != "observation"
        return prepare_plates(program, average)

    def _fitted(
        self,
        program: Program,
        sites: Mapping[str, Any] | None,
        key: Any,
        origin: Origin,
        progress_bar: bool,
        at: Mapping[str, Any] | None,
    ) -> Posterior:
        at, root = self._start(program, key, origin, at)

        def fit(program: Program, at: Any, *, start: Any = sites, **options: Any) -> Fitted:
            options = {"root": root, **options}
            return fit_hyperparameters(self, program, start, key, progress_bar, at, **options)

        # Rows of lists share noise, so its scale does not belong to single rows.
        if program.scales and self.hyperparameters != "em" and not program.layout.ordered:
            plates = learned(program, fit, at)
            program, fitted = plates.program, plates.fitted
        else:
            plates, fitted = None, fit(program, at)
        layout = program.layout
        final, result, info = fitted.evidence, fitted.result, fitted.info
        if fitted.dual and not positive_definite(final):
            result = Result.prior_not_positive_definite
        self.raise_unless_ok(result, info)
        info |= prior_notes(preference_data(origin), final.blocks)
        unknown = layout.hyperparameters or (
            program.members and self.hyperparameters == "integrate"
        )
        strategy = self.hyperparameters if unknown and not result.empty else None
        averaged = self._averaged(program, fitted.dual)
        if program.members is not None:
            info["averaged"] = list(program.members.names)
        if strategy == "nuts":
            draws, more = sample(self._density(program, fitted), key, self.draws, progress_bar)
            # Entries on the search that the sampler started from.
            kept = ("evaluations", "failed_evaluations", "equal_priors", "alike_parts")
            more = {name: info[name] for name in kept if name in info} | more
            members = {}
            if averaged is not None:
                members = averaged.at_draws(draws, final.sites, generator(key))
            draws = program.constrained(draws) | members
            facts = {"info": more, "r_hat": more["r_hat"]}
            return self.run_at_draws(draws, key, *origin.args, **facts, **origin.kwargs)
        if strategy == "integrate":
            coords = coordinates(program, fitted.unconstrained)
            if not coords.free.size + coords.more.size and program.members is None:
                info |= {"integration": _ALL_HELD, "held": coords.held}
            elif most_points(layout.num_latents) < MIN_POINTS:
                info["integration"] = _TOO_LARGE
            else:
                return self._integrated(program, fitted, coords, plates, key, origin, progress_bar)
        return self._at_maximum(program, fitted._replace(result=result), info, key, origin)

    def _density(self, program: Program, fitted: Fitted) -> Density:
        """Evidence times prior around a maximum."""
        root = np.eye(ravel(fitted.unconstrained)[0].size)
        place = program, fitted.unconstrained, root, fitted.evidence.sites, CLOSE, self.max_sweeps
        return Density(self.evaluate, fitted.dual, self.warmup, *place).spread()

    def _start(
        self, program: Program, key: Any, origin: Origin, at: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, Floats | None]:
        """Hyperparameters where the search starts, and a root of the inverse curvature there.

        Among very many items they are the optimum of some of them, which costs little. A program
        from outside may have other arguments about the items.
        """
        data, layout = preference_data(origin), program.layout
        if data is None or data.num_items < _VERY_MANY or at is not None:
            return at, None
        packaged = getattr(self.program, "__module__", "").startswith("relpref.")
        searches = layout.hyperparameters and not program.scales and self.hyperparameters != "em"
        if not (packaged and searches):
            return at, None
        some = neighborhood(data, _SOME)
        if not len(some.comparisons):
            return at, None
        few = self._read(origin.with_argument(data, some), self.fixed)
        if few.layout.hyperparameters != layout.hyperparameters:
            return at, None
        fitted = fit_hyperparameters(self, few, None, key, False, None, None)
        if not fitted.result.ok:
            return at, None
        return fitted.evidence.hyperparameters, np.asarray(self._density(few, fitted).root)

    @staticmethod
    def reweighted(posterior: Posterior, num_samples: int, rng_key: Any) -> Posterior:
        """See `Posterior.reweighted`."""
        from relpref.infer.reweighting import reweighted

        return reweighted(posterior, num_samples, rng_key)

    def run_at_draws(
        self,
        draws: Mapping[str, Any],
        rng_key: Any,
        *args: Any,
        info: Mapping[str, Any] | None = None,
        prior_log_weights: Any = None,
        r_hat: float | None = None,
        **kwargs: Any,
    ) -> Posterior:
        """The mixture of one posterior for each of k draws of the hyperparameters.

        Parameters
        ----------
        draws : mapping from site to array, shape (k, ...)
            All hyperparameters that are not ``fixed``.
        rng_key, *args, **kwargs
            As for `run`.
        info : mapping, optional
            Entries for ``info`` about the draws.
        prior_log_weights : array, shape (k,), optional
            Log weights of the draws before the answers, see `Posterior`; by default the draws are
            of equal weight after them.
        r_hat : float, optional
            Convergence statistic of the chains that the draws are from.
        """
        with computing(self.name, rng_key, args, kwargs, self.fixed, draws):
            draws = {name: np.asarray(value, np.float64) for name, value in draws.items()}
            rows = each_draw(draws)
            values = {**(self.fixed or {}), **rows[0]}
            origin = Origin(self.program, args, kwargs, self)
            program = self._read(origin, values)
            layout = program.layout
            if layout.hyperparameters:
                raise DataError(f"draws lack the hyperparameter {layout.hyperparameters[0][0]!r}")
            if prior_log_weights is None:
                rows = thinned(rows, layout.num_latents)
            dual = use_dual_space(layout, self.space)
            cold = sites = Sites.none(layout.num_rows)
            components, infos = [], []
            for row in rows:
                here = program.at(row)
                for start in (sites, cold):
                    with threads_for(layout.num_latents), accelerated(layout.num_latents):
                        evidence = self.evaluate(
                            here, dual, False, {}, start, self.tol, self.max_sweeps, True
                        )
                    if evidence.info.converged:
                        sites = evidence.sites
                        break
                infos.append(evidence.info)
                components.append(Component.of(layout, evidence))
            codes = [entry.result for entry in infos]
            result = max(codes, key=lambda code: (code.empty, not code.ok))
            if result.ok and r_hat is not None and r_hat > UNMIXED:
                result = Result.hyperparameters_not_mixed
            worst = max(infos, key=lambda entry: float(entry.residual))
            report = describe(self, dual, result, worst) | {
                "hyperparameters": "nuts",
                **(info or {}),
            }
            evidences = np.array([component.log_evidence for component in components])
            log_evidence = None
            if prior_log_weights is None:
                prior_log_weights = -evidences
                report["draws"] = len(rows)
            else:
                log_weights = prior_log_weights + evidences
                log_evidence = float(logsumexp(log_weights))
                report |= judged(log_weights)
            self.raise_unless_ok(result, report)
            kept = {name: np.stack([row[name] for row in rows]) for name in draws}
            mixture = kept, prior_log_weights, log_evidence
            return self._finished(
                program, components, rows, result, report, rng_key, origin, mixture
            )

    def _at_maximum(
        self, program: Program, fitted: Fitted, info: dict[str, Any], key: Any, origin: Origin
    ) -> Posterior:
        evidence = fitted.evidence
        values = evidence.hyperparameters
        component, before = Component.of(program.layout, evidence), None
        averaged = self._averaged(program, fitted.dual)
        if averaged is not None and not fitted.result.empty:
            before = Mixture([component], [values], np.ones(1))
            members, given_members, _ = averaged.given(fitted.unconstrained, evidence, None)
            # The evidence is that of all that members may be.
            component = Component.of(program.layout, given_members)._replace(
                log_evidence=component.log_evidence
            )
            values = values | members
        parts = [component], [values], fitted.result, info, key, origin
        return self._finished(program, *parts, averaged=before)

    def _finished(
        self,
        program: Program,
        components: list[Component],
        values: list[Values],
        result: Result,
        info: dict[str, Any],
        key: Any,
        origin: Origin,
        mixture: tuple[dict[str, Floats], Floats, float | None] | None = None,
        averaged: Mixture | None = None,
    ) -> Posterior:
        """The posterior of components, after a comparison with the exact one.

        ``values`` are the hyperparameters of each component that the program has not fixed.
        ``mixture`` has these by name, the log weights of the components before the answers, and
        the log evidence, if there may be several components. ``averaged`` has what the components
        were before members were drawn.
        """
        draws, prior, log_evidence = mixture or ({}, None, None)
        checks = self.check
        if checks == "auto":  # other answers would be compiled for it
            layout = program.layout
            plain = layout.portable and not layout.quadrature and layout.constant_projection
            checks = plain and not self.at_mode
        evidences = np.array([component.log_evidence for component in components])
        usable = result.ok and np.all(np.isfinite(evidences)) and components[0].prior is not None
        if checks and usable:
            weights = softmax(evidences + (0 if prior is None else prior))
            outcome = checked(program, Mixture(components, values, weights), averaged)
            if not outcome.reliable:
                warn_user(f"The posterior is {outcome.note}; relpref.diagnostics.check samples it.")
            held = ", ".join(info.get("held", ()))
            note = outcome.note + (f", given {held} at the maximum" if held else "")
            info = info | {"check": note, "corrected": outcome.corrected}
            components = outcome.components
            log_evidence = None if log_evidence is None else log_evidence + outcome.log_evidence
        fixed = {name: value for name, value in program.fixed.items() if name not in draws}
        if mixture is None:
            fixed |= values[0]
        return assemble(
            program.layout, fixed, components, result, info, key, origin, draws, prior, log_evidence
        )

    def _averaged(self, program: Program, dual: bool) -> Averaged | None:
        """The program and its evaluation for drawing members; None where there are none."""
        if program.members is None:
            return None

        def evaluate(program: Program, unconstrained: Values, sites: Sites) -> Evidence:
            limits = (max(self.tol, POINT_TOLERANCE), self.max_sweeps)
            return self.evaluate(program, dual, False, unconstrained, sites, *limits, True)

        return Averaged(program, evaluate)

    def raise_unless_ok(self, result: Result, info: Mapping[str, Any]) -> None:
        """Raise an error if the result is not converged and ``throw`` is set."""
        if not result.ok and self.throw:
            state = (
                f"after {info['iterations']} sweeps, residual {info['residual']:.1e}, damping "
                f"{info['damping']:.2f}"
            )
            raise InferenceError(f"{result.name}: {result.value} ({state})", result)

    def _integrated(
        self,
        program: Program,
        fitted: Fitted,
        coords: Coordinates,
        plates: Learned | None,
        key: Any,
        origin: Origin,
        progress_bar: bool,
    ) -> Posterior:
        """The weighted mixture over importance points around the maximum."""
        layout, best = program.layout, fitted.evidence
        maximum, unravel = ravel(fitted.unconstrained)
        # The evidence is stationary in the sites, and the error of a mean is far below that of few
        # points.
        limits = (max(self.tol, POINT_TOLERANCE), self.max_sweeps)
        cold = Sites.none(layout.num_rows)
        visited, visited_sites = maximum[None], [best.sites]

        def at(places: Floats, need: Need) -> list[Evaluated | None]:
            nonlocal visited
            evaluations: list[Evaluated | None] = []
            for place in places:
                nearest = visited_sites[int(np.argmin(np.square(visited - place).sum(axis=1)))]
                unconstrained = unravel(place)
                evaluations.append(None)
                for start in (nearest, cold):
                    evidence = self.evaluate(
                        program,
                        fitted.dual,
                        need == "gradient",
                        unconstrained,
                        start,
                        *limits,
                        need == "result",
                        start is cold and need != "gradient",
                    )
                    gradient = ravel(evidence.gradient)[0]
                    log_evidence = float(evidence.log_evidence)
                    log_prior = float(evidence.log_prior)
                    numbers = (log_evidence, log_prior, *gradient)
                    if not evidence.info.converged or not np.all(np.isfinite(numbers)):
                        continue
                    visited = np.vstack([visited, place])
                    visited_sites.append(evidence.sites)
                    result = None
                    if need == "result":
                        values = jax.tree.map(np.asarray, evidence.hyperparameters)
                        component = Component.of(layout, evidence)
                        evidence = evidence._replace(
                            drift=None, covariance=None, pulled=None, blocks={}
                        )
                        result = (component, values, evidence)
                    evaluations[-1] = Evaluated(log_evidence, log_prior, gradient, result)
                    break
            return evaluations

        here = Evaluated(
            float(best.log_evidence), float(best.log_prior), ravel(best.gradient)[0], None
        )
        most = most_points(layout.num_latents)
        drawn_number = drawn_points(layout.num_latents, layout.num_rows)
        with progress_line("Averaging over models that fit", progress_bar) as report:
            if len(maximum):
                points = importance_points(program, at, coords, maximum, here, most, report)
            else:
                points = repeated_point((Component.of(layout, best), {}, best), here, drawn_number)
        info = fitted.info | {"hyperparameters": "integrate", **points.info}
        if most < FEWEST_POINTS:
            info["integration"] = _FEWER
        if not points.results:
            result = Result.hyperparameters_not_converged
            self.raise_unless_ok(result, info)
            info["hyperparameters"] = "maximize"
            return self._at_maximum(program, fitted._replace(result=result), info, key, origin)
        averaged = self._averaged(program, fitted.dual)
        # The same answers always have the same posterior, whatever the key.
        rng = np.random.default_rng(0)
        if plates is not None or averaged is not None:
            points = points.split(drawn_number)
        if plates is not None:
            vectors = plates.vectors(points, rng)
            points = points.moved(vectors, at(vectors, "result"))
        drawn = [(component, values) for component, values, _ in points.results]
        before = None
        if averaged is not None:
            if drawn[0][0].prior is not None:  # else they are too large to be checked
                parts, given = map(list, zip(*drawn, strict=True))
                before = Mixture(parts, given, points.weights)
            points, drawn = averaged.at_points(points, unravel, rng)
        components, values = map(list, zip(*drawn, strict=True))
        draws = {name: np.stack([value[name] for value in values]) for name in values[0]}
        mixture = draws, points.prior_log_weights, points.log_evidence
        info |= judged(mixture[1] + [each.log_evidence for each in components], drawn=False)
        del points, drawn  # and with them what `assemble` uses up
        return self._finished(
            program, components, values, fitted.result, info, key, origin, mixture, before
        )

    def changed(self, program: Model | None = None, **options: Any) -> "GaussianEngine":
        """The same engine with other options, or for another program."""
        return type(self)(
            program or self.program, **{**self.options, "fixed": self.fixed, **options}
        )


class EP(GaussianEngine):
    """Expectation propagation on a numpyro program.

    It works on one-dimensional projections (XPGP section 4.1).

    The most accurate of the engines that do not sample: means within a few hundredths of a
    posterior standard deviation, the evidence within a few tenths of a nat. ``tol`` bounds the
    largest mismatch of tilted and posterior moments.

    Labels and reported probabilities with Gaussian noise are solved in closed form: exact up to
    rounding, which stays below 1e-6 posterior sds in means and 1e-4 in sds while noise/√count is at
    least 1e-5 (for utilities of scale 1; the sds' error grows with the square of that scale). More
    precise ones end with the result ``too_precise``.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> from relpref.infer import EP
    >>> from relpref.models import xpgp
    >>> posterior = EP(xpgp, hyperparameters="maximize").run(0, data)
    >>> posterior.info["result"]
    'converged'
    """

    name: ClassVar[str] = "EP"
    evaluate = staticmethod(partial(evaluate, expectation_propagation))
    fit_many = staticmethod(fit_many)

    @classmethod
    def describe(cls) -> Description:
        return Description(
            "The posterior was approximated by expectation propagation (Minka 2001), which "
            "replaces each answer by a Gaussian term that "
            "is fitted to it in the company of all the others.",
            "T. P. Minka (2001). Expectation Propagation for Approximate Bayesian Inference. In: "
            "Proceedings of the 17th Conference on "
            "Uncertainty in Artificial Intelligence (UAI 2001).",
            coverage="In a simulation with 20 items and 30 answers, intervals of 50, 80 and 95% "
            "from expectation propagation at "
            "maximized hyperparameters held the truth in 44, 72 and 90% of the cases, and averaged "
            "over hyperparameters in 49, 79 and "
            "95%.",
        )
