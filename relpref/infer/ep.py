"""Expectation propagation as an engine: any program with Gaussian latents and one-dimensional likelihoods."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.transforms import biject_to

from relpref.errors import DataError, InferenceError
from relpref.infer.evidence import Evidence, evaluate, use_gap_space
from relpref.infer.faces import assemble, positive_definite
from relpref.infer.layout import broadcast_fixed, discover
from relpref.infer.maximise import SEARCH_TOLERANCE, Search, maximise
from relpref.infer.posterior import Origin, Posterior
from relpref.infer.program import Call, Layout, Program, Values
from relpref.infer.progress import Progress
from relpref.infer.result import CODES, Result
from relpref.infer.sites import Sites


class EP:
    """Expectation propagation on a numpyro program (XPGP section 4.1, on one-dimensional projections).

    Parameters
    ----------
    program : callable
        A numpyro program whose latent sites are Gaussian vectors and whose observed sites, from `relpref.likelihoods`, have
        predictors affine in them. Every other latent site is a hyperparameter.
    hyperparameters : {"maximise"}
        Find them by maximising log evidence plus log prior. The prior density is that of the unconstrained values, so an
        amplitude is judged on the log scale and does not collapse to 0 (XPGP section 4.3; not by EM).
    fixed : mapping from site to value, optional
        Hyperparameters that are known; scalars are broadcast.
    restarts : int
        Starting points of the search: the prior's median, then draws from it.
    tol : float
        Residual at which EP has converged: the largest mismatch of tilted and posterior moments.
    max_sweeps : int
        For each run of EP.
    max_evaluations : int
        Of the evidence, for each start.
    space : {"auto", "entity", "gap"}
        Where the algebra happens; "auto" takes the cheaper.
    throw : bool
        Raise where the result is not ``converged``; otherwise the posterior carries the code and its answers warn.
    """

    def __init__(
        self,
        program: Program,
        *,
        hyperparameters: Literal["maximise"] = "maximise",
        fixed: Mapping[str, Any] | None = None,
        restarts: int = 1,
        tol: float = 1e-8,
        max_sweeps: int = 500,
        max_evaluations: int = 200,
        space: Literal["auto", "entity", "gap"] = "auto",
        throw: bool = True,
    ) -> None:
        if not callable(program):
            raise DataError(
                f"program is {program!r}; EP takes a numpyro program, such as relpref.models.xpgp"
            )
        if hyperparameters != "maximise":
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; this engine knows 'maximise', and fixed= for given values"
            )
        if space not in ("auto", "entity", "gap"):
            raise DataError(f"space is {space!r}; it is 'auto', 'entity' or 'gap'")
        for name, number in {
            "restarts": restarts,
            "max_sweeps": max_sweeps,
            "max_evaluations": max_evaluations,
        }.items():
            if number < 1:
                raise DataError(f"{name} is {number}; it must be at least 1")
        if not 0 < tol < 1:
            raise DataError(f"tol is {tol}; it must lie between 0 and 1")
        self.program = program
        self.fixed = dict(fixed or {})
        self.options: dict[str, Any] = {
            "hyperparameters": hyperparameters,
            "restarts": restarts,
            "tol": tol,
            "max_sweeps": max_sweeps,
            "max_evaluations": max_evaluations,
            "space": space,
            "throw": throw,
        }

    def run(self, rng_key: Any, *args: Any, progress_bar: bool = True, **kwargs: Any) -> Posterior:
        """Fit.

        Parameters
        ----------
        rng_key : JAX key
            Of either kind; used for restarts and kept for Monte Carlo answers.
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
            If EP cannot treat the program; nothing has been computed then.
        InferenceError
            If EP or the search did not converge, and ``throw``.
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
        **kwargs: Any,
    ) -> Posterior:
        """As `run`, starting from the sites of an earlier posterior (``posterior.sites``) with the same answers."""
        with jax.enable_x64(True):
            return self._run(sites, rng_key, args, kwargs, progress_bar)

    def _run(
        self,
        start: Mapping[str, Any] | None,
        key: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        progress_bar: bool,
    ) -> Posterior:
        call, arrays = Call.split(self.program, args, kwargs)
        arrays = tuple(_in_double(array) for array in arrays)
        fixed = broadcast_fixed(call, arrays, self.fixed)
        layout, medians = discover(call, arrays, fixed)
        gap_space = self._gap_space(layout)
        cold = Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))
        first = (
            cold if start is None else Sites(*(jnp.asarray(start[name]) for name in ("precision", "shift")))
        )
        searching = bool(layout.hyperparameters)

        def at(unconstrained: Values, sites: Sites, tolerance: float) -> Evidence:
            most = self.options["max_sweeps"]
            static = (call, layout, gap_space, searching)
            return evaluate(*static, arrays, unconstrained, fixed, sites, tolerance, most)

        search: Search | None = None
        unconstrained: Values = {}
        if searching:
            with Progress("EP", progress_bar) as progress:
                starts = [
                    medians,
                    *_prior_draws(call, layout, arrays, fixed, key, self.options["restarts"] - 1),
                ]
                search = self._search(starts, at, first, progress)
            unconstrained, first = search.unconstrained, search.evidence.sites
        final = at(unconstrained, first, self.options["tol"])
        result = CODES[int(final.info.code)]
        if not result.ok and first is not cold:
            retried = at(unconstrained, cold, self.options["tol"])
            if CODES[int(retried.info.code)].ok:
                final, result = retried, Result.converged
        if result.ok and search is not None and not search.converged:
            result = Result.hyperparameters_not_converged
        if gap_space and not positive_definite(final):
            result = Result.prior_not_positive_definite
        info = self._describe(layout, gap_space, result, final, search)
        if not result.ok and self.options["throw"]:
            raise InferenceError(f"{result.name}: {result.value} ({_state(info)})", result)

        origin = Origin(self.program, args, kwargs, {**self.options, "fixed": self.fixed})
        return assemble(layout, fixed, final, info, key, origin)

    def _gap_space(self, layout: Layout) -> bool:
        if self.options["space"] == "entity" and not layout.constant_projection:
            raise DataError(
                "space is 'entity', but hyperparameters change the projection; use 'auto' or 'gap'"
            )
        if self.options["space"] == "auto":
            return use_gap_space(layout)
        return bool(self.options["space"] == "gap")

    def _search(
        self,
        starts: list[Values],
        at: Callable[[Values, Sites, float], Evidence],
        sites: Sites,
        progress: Progress,
    ) -> Search:
        """The best of all starts."""
        tolerance = max(self.options["tol"], SEARCH_TOLERANCE)
        found = [
            maximise(
                lambda u, s: at(u, s, tolerance), start, sites, self.options["max_evaluations"], progress.step
            )
            for start in starts
        ]
        return max(found, key=lambda one: one.objective)

    def _describe(
        self, layout: Layout, gap_space: bool, result: Result, final: Evidence, search: Search | None
    ) -> dict[str, Any]:
        info: dict[str, Any] = {
            "engine": "EP",
            "result": result.name,
            "iterations": int(final.info.sweeps),
            "residual": float(final.info.residual),
            "damping": float(final.info.damping),
            "space": "gap" if gap_space else "entity",
            "jitter": float(final.info.jitter),
            "log_prior": float(final.log_prior),
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


def _in_double(array: Any) -> Any:
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array


def _prior_draws(
    call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, key: Any, number: int
) -> list[Values]:
    """Draws of the unconstrained hyperparameters from their prior."""
    if not number:
        return []
    draws = _draw(call, layout, arrays, fixed, jax.random.split(key, number))
    return [{name: value[row] for name, value in draws.items()} for row in range(number)]


@partial(jax.jit, static_argnums=(0, 1))
def _draw(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, keys: Array) -> Values:
    def draw(key: Array) -> Values:
        sites = call.trace(arrays, fixed, key)
        names = [name for name, _ in layout.hyperparameters]
        return {name: biject_to(sites[name]["fn"].support).inv(sites[name]["value"]) for name in names}

    return jax.vmap(draw)(keys)
