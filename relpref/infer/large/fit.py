"""EP and Laplace for more entities than a matrix has room for.

First the hyperparameters, on some of the answers (`relpref.infer.large.fit`). Then, at these, one of two ways: answers about some
thousands of entities are those of a small problem, exactly (`relpref.infer.large.fit`); answers about more give a posterior whose
precision is sparse (`relpref.infer.large.fit`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relpref.errors import UnsupportedProgramError
from relpref.infer.assemble import choose, plain, prior_notes
from relpref.infer.evidence import sites_of, tilted
from relpref.infer.large.covariance import (
    Conditioned,
    ImplicitBelief,
    PosteriorCovariance,
    Unknown,
    dual_weights,
    means_by_part,
)
from relpref.infer.large.problem import (
    NODES,
    Known,
    LargeProblem,
    LargeReading,
    Positions,
    touched,
)
from relpref.infer.large.sparse_ep import SparseFit
from relpref.infer.large.sparse_ep import fit as fit_sparse
from relpref.infer.program import Program, preference_data
from relpref.infer.result import Progress, Result, warn_user
from relpref.infer.search import fit_hyperparameters
from relpref.infer.sites import Sites
from relpref.likelihoods import is_log_concave
from relpref.limits import MAX_DENSE_ENTITIES, MAX_FACTORISED, MAX_NOTED_ENTITIES, MAX_REDUCED_ENTITIES
from relpref.linalg import Covariance
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.gaussian import Floats, generator, key_words

GaussianEngine = Any  # of `relpref.infer.engine`, which builds on this module


class Fitted(NamedTuple):
    """A fit at known hyperparameters.

    Attributes
    ----------
    means : dict from part to array, shape (n,)
        They add up to the posterior mean.
    covariance : PosteriorCovariance or None
        None where no sweep gave one.
    log_evidence : float
    sites : dict
        ``precision`` and ``shift``, shape (m,).
    result : Result
    info : dict
    """

    means: dict[str, Floats]
    covariance: PosteriorCovariance | None
    log_evidence: float
    sites: dict[str, Floats]
    result: Result
    info: dict[str, Any]


_ROUND = 256  # a few touched entities more are not to compile everything anew


def fit_reduced(
    engine: GaussianEngine,
    problem: LargeProblem,
    reading: LargeReading,
    positions: Positions,
    values: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
) -> Fitted:
    data = problem.data
    blocks = {name: part.block(positions, positions) for name, part in reading.prior.parts.items()}
    concave = all(is_log_concave(one.likelihood) for one in reading.observations)
    gap_space = concave and _in_gap_space(engine, data.num_comparisons, len(positions))
    # In gap space nobody minds how many entities there are, so their number may be a round one.
    spare = -len(positions) % _ROUND if gap_space else 0
    tables = {name: Known(0.5 * (block + block.T)).padded(spare) for name, block in blocks.items()}
    model, args, kwargs = problem.reduced(positions, tables, spare)
    prepared = Program.of(model, args, kwargs, values, padding=gap_space)
    space = "gap" if gap_space else "entity"
    evidence, result, info, *_ = fit_hyperparameters(
        engine, prepared, start, key, progress_bar, None, None, space
    )
    alpha = np.asarray(evidence.alpha)[: len(positions)]
    sites = sites_of(evidence, data.num_comparisons)
    log_evidence = float(evidence.log_evidence)
    if result.empty:
        nothing = dict.fromkeys(reading.prior.parts, np.full(data.num_entities, np.nan))
        return Fitted(nothing, None, log_evidence, sites, result, info)
    means = means_by_part(reading.prior.parts, positions, alpha)
    covariance = sum(blocks.values())
    precision = reading.counts * sites["precision"]
    dual = dual_weights(covariance, reading.projection(positions), precision, gap_space)
    return Fitted(means, Conditioned(reading.prior, positions, *dual), log_evidence, sites, result, info)


def _in_gap_space(engine: GaussianEngine, answers: int, entities: int) -> bool:
    """By the numbers without anything that fills them up."""
    space = engine.options["space"]
    return bool(answers <= entities if space == "auto" else space == "gap")


# A search looks at no more answers and entities than these, and at fewer where solves take long: the number of stored links times
# entities times nodes stays below the last.
_MOST_ANSWERS, _MOST_SEARCHED, _LEAST_SEARCHED, _WORK = 1500, 1500, 100, 2e10


class Found(NamedTuple):
    """Hyperparameters, and how they were found.

    Attributes
    ----------
    values : dict from site to array
    info : dict
    result : Result or None
        None where there was nothing to be found.
    """

    values: dict[str, Any]
    info: dict[str, Any]
    result: Result | None


def search(
    engine: GaussianEngine,
    problem: LargeProblem,
    fixed: Mapping[str, Any],
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
) -> Found:
    """Climb the evidence of some of the answers."""
    links = sum(2 * graph.num_edges + graph.num_nodes for graph in problem.data.relations.values())
    most = int(np.clip(_WORK / (NODES * max(links, 1)), _LEAST_SEARCHED, _MOST_SEARCHED))
    some = problem.subset(most, _MOST_ANSWERS, generator(key))
    positions = touched(some)
    part = LargeProblem(problem.program, *problem.called_with(some), some, problem.scale_error)
    if not problem.free(fixed):
        return Found({}, {}, None)
    learnable = part.learnable(fixed)
    tables = {name: one.table(positions, fixed, progress_bar) for name, one in learnable.items()}
    prepared = Program.of(*part.reduced(positions, tables), fixed)
    # In gap space an interpolated covariance need not be positive definite.
    whole = False if engine.options["hyperparameters"] == "em" else None  # EM looks at them
    settled = fit_hyperparameters(engine, prepared, None, key, progress_bar, at_first, whole, "gap")
    values = {name: np.asarray(value) for name, value in settled.evidence.hyperparameters.items()}
    info: dict[str, Any] = {
        name: settled.info[name]
        for name in ("hyperparameters", "evaluations", "gradient_norm", "failed_evaluations", "log_prior")
        if name in settled.info
    }
    info["searched_answers"] = some.num_answers
    edges = [
        site
        for name, one in learnable.items()
        for site in one.sites.values()
        if site in values and tables[name].ends_at(float(values[site]))
    ]
    if edges:
        info["at_boundary"] = ", ".join(edges)
    return Found(values, info, settled.result)


_TOLERANCE = 1e-6  # of the sites; solves are a hundred times as accurate
# Inducing entities that stand for the attributes of all, and the share of the prior variance that they may leave out.
INDUCING, LEFT_OUT = 300, 1e-3
_MUCH = 0.05  # a share that is worth a warning


def fit_many(
    engine: GaussianEngine,
    reading: LargeReading,
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
) -> Fitted:
    """EP at known hyperparameters.

    Raises
    ------
    UnsupportedProgramError
        If the engine is another one.
    """
    if engine.name != "EP":
        raise UnsupportedProgramError(
            f"{engine.name} has no way through so many answers about so many entities; take EP, or fewer answers"
        )
    if not all(is_log_concave(one.likelihood) for one in reading.observations):
        raise UnsupportedProgramError(
            "so many answers about so many entities can be fitted with log-concave likelihoods only, and the program's is not (a lapse "
            "rate makes it so); leave the lapse rate out, or take fewer answers"
        )
    parts, left_out = low_rank_parts(reading, key)
    with Progress(f"{engine.name}: many answers", progress_bar, "sweeps", "residual {:.1e}") as progress:
        found = fit_sparse(
            parts,
            reading.ends.T,
            reading.entries.T,
            reading.counts,
            jax.jit(partial(tilted, reading.observations, jnp.asarray(reading.offset))),
            start=None if start is None else Sites(start["precision"], start["shift"]),
            tol=max(engine.options["tol"], _TOLERANCE),
            max_sweeps=engine.options["max_sweeps"],
            key=key,
            progress=progress.step,
        )
    info = {
        "engine": engine.name,
        "iterations": found.info.sweeps,
        "residual": found.info.residual,
        "damping": found.info.damping,
        "space": "sparse entity",
        "jitter": 0.0,
        "log_prior": 0.0,
        "variances": found.info.method,
        "gap_sd_error": _worst(found),
        "mean_error": float(np.max(found.mean_error, initial=0.0)),
        "log_evidence_error": found.log_evidence_error,
    }
    if left_out is not None:
        info["attributes_left_out"] = left_out
        if left_out > _MUCH:
            warn_user(
                f"{INDUCING} inducing entities leave out {left_out:.0%} of the attributes' prior variance: intervals come out that much too "
                "narrow; fewer attributes, longer lengthscales, or fewer answers at a time keep more"
            )
    if found.info.detail:
        info["detail"] = found.info.detail
    sites = {name: np.asarray(value) for name, value in found.sites._asdict().items()}
    return Fitted(found.parts, found.covariance, found.log_evidence, sites, found.info.result, info)


def low_rank_parts(reading: LargeReading, key: Any) -> tuple[dict[str, Covariance], float | None]:
    """The parts of the prior, those of attributes by inducing entities; and the share of their variance that these leave out."""
    found: dict[str, Covariance] = {}
    left_out: float | None = None
    for name, part in reading.prior.parts.items():
        few = part.low_rank(INDUCING, LEFT_OUT, generator(key))
        found[name] = few or part
        left_out = few.left_out if few else left_out
    return found, left_out


def _worst(found: SparseFit) -> float:
    """Largest relative standard error of a gap's sd."""
    variance: Floats = np.where(found.gap_variance > 0, found.gap_variance, np.inf)
    return float(np.max(found.gap_variance_error / (2 * variance), initial=0.0))


_NOT_INTEGRATED = (
    "hyperparameters are at their maximum: without a matrix of all entities the covariance of each of many points would be a search of "
    "its own; structure='dense' averages over them where memory allows it"
)


def is_large(structure: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a program is to be fitted without matrices of all entities."""
    data = preference_data(args, kwargs)
    if structure == "sparse" and data is None:
        raise UnsupportedProgramError(
            "structure='sparse' is for programs on PreferenceData, and there is none among the arguments; leave it out"
        )
    return data is not None and (
        structure == "sparse"
        or (structure == "auto" and data.num_entities > MAX_DENSE_ENTITIES and bool(len(data.winner)))
    )


def fit(
    engine: GaussianEngine,
    start: Mapping[str, Any] | None,
    key: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
) -> Posterior:
    """See `GaussianEngine.run_from`."""
    if engine.options["hyperparameters"] == "nuts":
        raise UnsupportedProgramError(
            "hyperparameters is 'nuts', which needs a covariance of all entities for each draw, and there are too many of them; "
            "take 'maximise' or 'em', or structure='dense' where memory allows it"
        )
    problem = LargeProblem.of(engine.program, args, kwargs)
    fixed = problem.known(engine.fixed)
    searched = search(engine, problem, fixed, key, progress_bar, at_first)
    values = {**fixed, **searched.values}
    reading = problem.read(values, progress_bar)
    number, positions = problem.data.num_entities, touched(problem.data)
    rows = reading.ends.shape[1]
    if len(positions) <= MAX_REDUCED_ENTITIES and min(rows, len(positions)) <= MAX_FACTORISED:
        fitted = fit_reduced(engine, problem, reading, positions, values, start, key, progress_bar)
    else:
        fitted = fit_many(engine, reading, start, key, progress_bar)
    result = fitted.result
    if result.ok and searched.result is not None:
        result = searched.result
    info = {
        **fitted.info,
        **searched.info,
        "result": result.name,
        "structure": "sparse",
        "entities": number,
        "touched": len(positions),
    }
    if len(positions) <= MAX_NOTED_ENTITIES and not result.empty:
        blocks = {name: part.block(positions, positions) for name, part in reading.prior.parts.items()}
        info |= prior_notes(problem.data, {problem.latent: blocks}, positions)
    if engine.options["hyperparameters"] == "integrate" and searched.values:
        info["integration"] = _NOT_INTEGRATED
    if problem.scale_error:
        info["scale_error"] = max(problem.scale_error.values())
    engine.raise_unless_ok(result, info)
    means = dict.fromkeys(fitted.means, np.full(number, np.nan)) if result.empty else fitted.means
    covariance = Unknown(number) if fitted.covariance is None or result.empty else fitted.covariance
    common = {
        "belief": ImplicitBelief(np.asarray(sum(means.values())), covariance),
        "parts": {problem.latent: Parts(means, {})},
        "hyperparameters": {name: plain(value) for name, value in values.items()},
        "log_evidence": np.nan if result.empty else fitted.log_evidence,
        "info": info,
        "sites": fitted.sites,
        "key": key_words(key),
    }
    return choose(engine.origin(problem.args, problem.kwargs), {problem.latent: slice(0, number)}, common)
