"""What the engines that approximate a posterior by a Gaussian share: options, the search for hyperparameters, the result."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from relpref.errors import DataError, InferenceError
from relpref.infer.belief import as_key
from relpref.infer.em import expectation_maximisation
from relpref.infer.evidence import Evaluation, Evidence, use_gap_space
from relpref.infer.faces import (
    Component,
    assemble,
    assemble_mixture,
    positive_definite,
    thinned,
)
from relpref.infer.integrate import UNMIXED, Given, Target, integrate
from relpref.infer.layout import unconstrained_values
from relpref.infer.maximise import SEARCH_TOLERANCE, Search, maximise
from relpref.infer.posterior import Origin, Posterior
from relpref.infer.prepare import constrained, prepare, prior_draws
from relpref.infer.program import Call, Layout, Program, Values
from relpref.infer.progress import Progress
from relpref.infer.result import CODES, Result
from relpref.infer.sites import Info, Sites

Strategy = Literal["maximise", "em", "nuts"]

_STRATEGIES = ("maximise", "em", "nuts")
# Where the approximation itself is wanted, and not only its evidence, the sites have to settle further than for a search.
_CLOSE = 1e-6


class GaussianEngine:
    """A Gaussian approximation of the posterior of a numpyro program, at hyperparameters it finds or integrates over.

    Parameters
    ----------
    program : callable
        A numpyro program whose latent sites are Gaussian vectors and whose observed sites, from `relpref.likelihoods`, have
        predictors affine in them. Every other latent site is a hyperparameter.
    hyperparameters : {"maximise", "em", "nuts"}
        ``"maximise"`` climbs log evidence plus log prior by its exact gradient. ``"em"`` reaches the same place by the paper's
        expectation maximisation (XPGP eq. 15-16), more slowly. ``"nuts"`` samples them from evidence times prior, starting at the
        maximum, and returns a mixture of one posterior for each draw. The prior density is always that of the unconstrained
        values, so an amplitude is judged on the log scale and does not collapse to 0.
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
        Where the algebra happens; "auto" takes the cheaper.
    padding : bool
        Let rows that stand for no answer fill the answers up to a round number, so that fits to a growing number of answers share
        what JAX compiles. Of no effect for a program that would make something of such rows.
    throw : bool
        Raise where the result is not ``converged``; otherwise the posterior carries the code and its answers warn.
    """

    name: ClassVar[str]
    evaluate: ClassVar[Evaluation]

    def __init__(
        self,
        program: Program,
        *,
        hyperparameters: Strategy = "maximise",
        fixed: Mapping[str, Any] | None = None,
        restarts: int = 1,
        draws: int = 200,
        warmup: int = 200,
        tol: float = 1e-8,
        max_sweeps: int = 500,
        max_evaluations: int = 200,
        space: Literal["auto", "entity", "gap"] = "auto",
        padding: bool = False,
        throw: bool = True,
    ) -> None:
        if not callable(program):
            raise DataError(
                f"program is {program!r}; {self.name} takes a numpyro program, such as relpref.models.xpgp"
            )
        if hyperparameters not in _STRATEGIES:
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; it is 'maximise', 'em' or 'nuts'; "
                "give known values with fixed="
            )
        if space not in ("auto", "entity", "gap"):
            raise DataError(f"space is {space!r}; it is 'auto', 'entity' or 'gap'")
        for name, number, least in (
            ("restarts", restarts, 1),
            ("draws", draws, 8),
            ("warmup", warmup, 1),
            ("max_sweeps", max_sweeps, 1),
            ("max_evaluations", max_evaluations, 1),
        ):
            if number < least:
                raise DataError(f"{name} is {number}; it must be at least {least}")
        if not 0 < tol < 1:
            raise DataError(f"tol is {tol}; it must lie between 0 and 1")
        self.program = program
        self.fixed = dict(fixed or {})
        self.options: dict[str, Any] = {
            "hyperparameters": hyperparameters,
            "restarts": restarts,
            "draws": draws,
            "warmup": warmup,
            "tol": tol,
            "max_sweeps": max_sweeps,
            "max_evaluations": max_evaluations,
            "space": space,
            "padding": padding,
            "throw": throw,
        }

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
        with jax.enable_x64(True):
            return self._run(sites, as_key(rng_key), args, kwargs, progress_bar, at)

    def run_at_draws(
        self,
        draws: Mapping[str, Any],
        rng_key: Any,
        *args: Any,
        info: Mapping[str, Any] | None = None,
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
        """
        with jax.enable_x64(True):
            return self._mixture(draws, as_key(rng_key), args, kwargs, dict(info or {}))

    def _run(
        self,
        start: Mapping[str, Any] | None,
        key: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        progress_bar: bool,
        at_first: Mapping[str, Any] | None,
    ) -> Posterior:
        call, arrays, fixed, (layout, medians, entries, _), answered = prepare(
            self.program, args, kwargs, self.fixed, self.options["padding"]
        )
        gap_space = self._gap_space(layout)
        if self.options["hyperparameters"] == "em" and not layout.constant_projection:
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
        most = self.options["max_sweeps"]

        def at(unconstrained: Values, sites: Sites, tolerance: float, whole: bool = False) -> Evidence:
            static = (call, layout, gap_space, searching)
            return self.evaluate(
                *static, arrays, entries, unconstrained, fixed, sites, tolerance, most, whole
            )

        search: Search | None = None
        unconstrained: Values = {}
        if searching:
            drawn = prior_draws(call, layout, arrays, fixed, key, self.options["restarts"] - 1)
            context = (call, layout, arrays, fixed)
            if at_first is not None:
                medians = {**medians, **unconstrained_values(call, arrays, at_first, medians)}
            with Progress(f"{self.name}: maximising the evidence", progress_bar) as progress:
                search = self._search([medians, *drawn], at, first, progress, context)
            unconstrained, first = search.unconstrained, search.evidence.sites
        final = at(unconstrained, first, self.options["tol"], whole=True)
        result = CODES[int(final.info.code)]
        if not result.ok and first is not cold:
            retried = at(unconstrained, cold, self.options["tol"], whole=True)
            if CODES[int(retried.info.code)].ok:
                final, result = retried, Result.converged
        if result.ok and search is not None and not search.converged:
            result = Result.hyperparameters_not_converged
        if gap_space and not positive_definite(final):
            result = Result.prior_not_positive_definite
        info = self._describe(gap_space, result, final.info, search)
        info["log_prior"] = float(final.log_prior)
        if not result.ok and self.options["throw"]:
            raise InferenceError(f"{result.name}: {result.value} ({_state(info)})", result)
        if self.options["hyperparameters"] == "nuts" and searching and not result.empty:
            draws = integrate(
                Target(self.evaluate, call, layout, gap_space),
                Given(arrays, entries, fixed, final.sites, _CLOSE, most),
                unconstrained,
                key,
                self.options["draws"],
                self.options["warmup"],
                progress_bar,
            )
            values = constrained(call, layout, arrays, fixed, draws.values)
            return self._mixture(values, key, args, kwargs, {**_search_info(info), **draws.info})
        origin = self._origin(args, kwargs)
        return assemble(layout, fixed, final, info, key, origin, answered)

    def _mixture(
        self,
        draws: Mapping[str, Any],
        key: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        more: dict[str, Any],
    ) -> Posterior:
        draws = {name: np.asarray(value, np.float64) for name, value in draws.items()}
        rows = [
            {name: value[row] for name, value in draws.items()}
            for row in range(len(next(iter(draws.values()))))
        ]
        known = {**self.fixed, **rows[0]}
        prepared = prepare(self.program, args, kwargs, known, self.options["padding"])
        call, arrays, given, (layout, _, entries, _), answered = prepared
        if layout.hyperparameters:
            raise DataError(f"draws lack the hyperparameter {layout.hyperparameters[0][0]!r}")
        rows = thinned(rows, layout.num_latents)
        gap_space = self._gap_space(layout)
        cold = sites = Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))
        static = (call, layout, gap_space, False)
        limits = (self.options["tol"], self.options["max_sweeps"])
        components: list[Component] = []
        codes: list[Result] = []
        worst: Info | None = None
        for row in rows:
            values = {**given, **{name: jnp.asarray(value) for name, value in row.items()}}
            for start in (sites, cold):
                evidence = self.evaluate(*static, arrays, entries, {}, values, start, *limits, True)
                if CODES[int(evidence.info.code)].ok:
                    sites = evidence.sites
                    break
            codes.append(CODES[int(evidence.info.code)])
            components.append(Component.of(layout, evidence, answered))
            if worst is None or evidence.info.residual > worst.residual:
                worst = evidence.info
        result = max(codes, key=lambda code: (code.empty, not code.ok))
        if result.ok and more.get("r_hat", 1.0) > UNMIXED:
            result = Result.hyperparameters_not_mixed
        assert worst is not None  # there are draws
        info = self._describe(gap_space, result, worst, None) | {"hyperparameters": "nuts"}
        info |= {**more, "draws": len(rows)}
        if not result.ok and self.options["throw"]:
            raise InferenceError(f"{result.name}: {result.value} ({_state(info)})", result)
        fixed = {name: value for name, value in given.items() if name not in draws}
        kept = {name: np.stack([row[name] for row in rows]) for name in draws}
        return assemble_mixture(layout, fixed, components, kept, info, key, self._origin(args, kwargs))

    def _origin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Origin:
        return Origin(self.program, args, kwargs, {"engine": self.name, **self.options, "fixed": self.fixed})

    def _gap_space(self, layout: Layout) -> bool:
        if self.options["space"] == "auto":
            return use_gap_space(layout)
        return bool(self.options["space"] == "gap")

    def _search(
        self,
        starts: list[Values],
        at: Callable[..., Evidence],
        sites: Sites,
        progress: Progress,
        context: tuple[Call, Layout, tuple[Any, ...], Values],
    ) -> Search:
        """The best of all starts."""
        most = self.options["max_evaluations"]
        if self.options["hyperparameters"] == "em":
            tolerance = max(self.options["tol"], _CLOSE)  # EM needs q itself, not only its evidence
            found = [
                expectation_maximisation(
                    context, lambda u, s: at(u, s, tolerance, True), start, sites, most, progress.step
                )
                for start in starts
            ]
        else:
            tolerance = max(self.options["tol"], SEARCH_TOLERANCE)
            found = [
                maximise(lambda u, s: at(u, s, tolerance), start, sites, most, progress.step)
                for start in starts
            ]
        return max(found, key=lambda one: one.objective)

    def _describe(
        self, gap_space: bool, result: Result, found: Info, search: Search | None
    ) -> dict[str, Any]:
        info: dict[str, Any] = {
            "engine": self.name,
            "result": result.name,
            "iterations": int(found.sweeps),
            "residual": float(found.residual),
            "damping": float(found.damping),
            "space": "gap" if gap_space else "entity",
            "jitter": float(found.jitter),
        }
        if search is not None:
            info |= {
                "hyperparameters": self.options["hyperparameters"],
                "evaluations": search.evaluations,
                "gradient_norm": search.gradient_norm,
                "failed_evaluations": len(search.failures),
            }
        return info


def _state(info: Mapping[str, Any]) -> str:
    return (
        f"after {info['iterations']} sweeps, residual {info['residual']:.1e}, damping {info['damping']:.2f}"
    )


def _search_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Of the search that the sampler started from, what is worth keeping."""
    return {name: info[name] for name in ("evaluations", "failed_evaluations") if name in info}
