"""Finds an engine's sites, and the hyperparameters before them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.em import expectation_maximisation
from relpref.infer.evidence import Evaluation, Evidence, needs_entity_space, use_gap_space
from relpref.infer.layout import unconstrained_values
from relpref.infer.maximise import SEARCH_TOLERANCE, Search, maximise
from relpref.infer.prepare import Prepared, prior_draws
from relpref.infer.program import Call, Layout, Values
from relpref.infer.progress import Progress
from relpref.infer.result import CODES, Result
from relpref.infer.sites import Info, Sites
from relpref.infer.warn import InferenceWarning, warn_user

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
    prepared: Prepared,
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
    whole: bool | None = True,
) -> Settled:
    """Find the hyperparameters and, at them, the sites; with the (n, n) arrays of a posterior if ``whole``, without room for them if None."""
    call, arrays, fixed, (layout, medians, entries, _), _ = prepared
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
        static = (call, layout, gap_space, searching)
        return engine.evaluate(*static, arrays, entries, unconstrained, fixed, sites, tolerance, most, whole)

    search: Search | None = None
    unconstrained: Values = {}
    if searching:
        drawn = prior_draws(call, layout, arrays, fixed, key, engine.options["restarts"] - 1)
        context = (call, layout, arrays, fixed)
        if at_first is not None:
            medians = {**medians, **unconstrained_values(call, arrays, at_first, medians)}
        with Progress(f"{engine.name}: maximising the evidence", progress_bar) as progress:
            search = _search(engine, [medians, *drawn], at, first, progress, context)
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
    context: tuple[Call, Layout, tuple[Any, ...], Values],
) -> Search:
    """The best of all starts."""
    most = engine.options["max_evaluations"]
    if engine.options["hyperparameters"] == "em":
        tolerance = max(engine.options["tol"], CLOSE)  # EM needs q itself, not only its evidence
        found = [
            expectation_maximisation(
                context,
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
