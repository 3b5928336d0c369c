"""EP and Laplace for more entities than a matrix has room for.

The engine itself runs on the touched entities, with the prior covariance that they have among all (exact: sites see nothing else); see
`relpref.infer.large.covariance` for how the others follow. Hyperparameters are found before, on as many of the answers as time allows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpref.errors import UnsupportedProgramError
from relpref.infer.belief import generator, key_words
from relpref.infer.faces import choose, plain, sites_of
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.covariance import Conditioned, dual_weights, means_by_part
from relpref.infer.large.problem import UTILITY, LargeProblem, touched
from relpref.infer.large.tables import NODES, at_boundary, constant, interpolated
from relpref.infer.padding import preference_data
from relpref.infer.posterior import Parts, Posterior
from relpref.infer.prepare import prepare
from relpref.infer.progress import Progress
from relpref.infer.result import Result
from relpref.infer.settle import settle

if TYPE_CHECKING:
    from relpref.infer.engine import GaussianEngine

DENSE = 4000  # entities up to which a covariance matrix of all is the simpler and the faster way
# A search for hyperparameters looks at no more answers and entities than these, and at fewer where solves take long: the number of
# stored links times entities times nodes stays below the last.
_ROUND = 256  # a few touched entities more are not to compile everything anew
_MOST_ANSWERS, _MOST_SEARCHED, _LEAST_SEARCHED, _WORK = 1500, 1500, 100, 2e10


def is_large(structure: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a program is to be fitted without matrices of all entities."""
    data = preference_data(args, kwargs)
    if structure == "sparse" and data is None:
        raise UnsupportedProgramError(
            "structure='sparse' is for programs on PreferenceData, and there is none among the arguments; leave it out"
        )
    return data is not None and (
        structure == "sparse"
        or (structure == "auto" and data.num_entities > DENSE and bool(len(data.winner)))
    )


def fit(
    engine: "GaussianEngine",
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
    found = _hyperparameters(engine, problem, fixed, key, progress_bar, at_first)
    values = {**fixed, **found.values}
    reading = problem.read(values)
    data, positions = problem.data, touched(problem.data)

    requests = problem.requests(values)
    with _progress(engine, progress_bar) as progress:
        tables = {}
        for name, request in requests.items():
            tables[name] = constant(data.relations[name], request, positions, values)
            progress.step(1, 0.0)
    # In gap space nobody minds how many entities there are, so their number may be a round one.
    gap_space = _in_gap_space(engine, data.num_comparisons, len(positions))
    spare = -len(positions) % _ROUND if gap_space else 0
    small = problem.with_tables(positions, tables, spare)
    small_args, small_kwargs = problem.called_with(small)
    prepared = prepare(engine.program, small_args, small_kwargs, values, gap_space)
    setting = engine.setting._replace(options={**engine.options, "space": "gap" if gap_space else "entity"})
    settled = settle(setting, prepared, start, key, progress_bar, None, whole=False)
    evidence, result = settled.evidence, settled.result
    if result.ok and found.result is not None and not found.result.ok:
        result = found.result
    info = (
        settled.info
        | found.info
        | {
            "result": result.name,
            "structure": "sparse",
            "entities": data.num_entities,
            "touched": len(positions),
        }
    )
    if problem.scale_error:
        info["scale_error"] = max(problem.scale_error.values())
    engine.raise_unless_ok(result, info)

    alpha = np.asarray(evidence.alpha)[: len(positions)]
    means = means_by_part(reading.prior.parts, positions, alpha)
    location = np.sum(list(means.values()), axis=0)
    if result.empty:
        location = np.full(len(location), np.nan)
        means = dict.fromkeys(means, location)
    precision = reading.counts * np.asarray(evidence.sites.precision)[: data.num_comparisons]
    dual = dual_weights(
        reading.prior.block(positions, positions), reading.projection(positions), precision, gap_space
    )
    covariance = Conditioned(reading.prior, positions, *dual)
    common = {
        "belief": ImplicitBelief(location, covariance),
        "parts": {UTILITY: Parts(means, {})},
        "hyperparameters": {name: plain(value) for name, value in prepared.fixed.items()},
        "log_evidence": np.nan if result.empty else float(evidence.log_evidence),
        "info": info,
        "sites": sites_of(evidence, data.num_comparisons),
        "key": key_words(key),
    }
    origin = engine.origin(problem.args, problem.kwargs)
    return choose(origin, {UTILITY: slice(0, data.num_entities)}, common)


class _Found(NamedTuple):
    """Hyperparameters, and how they were found."""

    values: dict[str, Any]
    info: dict[str, Any]
    result: Result | None


def _hyperparameters(
    engine: "GaussianEngine",
    problem: LargeProblem,
    fixed: Mapping[str, Any],
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
) -> _Found:
    """By the evidence of some of the answers."""
    links = sum(2 * graph.num_edges + graph.num_nodes for graph in problem.data.relations.values())
    most = int(np.clip(_WORK / (NODES * max(links, 1)), _LEAST_SEARCHED, _MOST_SEARCHED))
    some = problem.subset(most, _MOST_ANSWERS, generator(key))
    positions = touched(some)
    part = LargeProblem(problem.program, *problem.called_with(some), some, problem.scale_error)
    requests = part.requests(fixed)
    sites = part.sites(part.sample, fixed)
    free = [
        name
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"] and name != UTILITY and name not in fixed
    ]
    if not free:
        return _Found({}, {}, None)
    with _progress(engine, progress_bar) as progress:
        tables = {
            name: interpolated(
                name, some.relations[name], request, positions, fixed, sites, lambda *_: progress.step(1, 0.0)
            )
            for name, request in requests.items()
        }
    small = part.with_tables(positions, tables)
    args, kwargs = part.called_with(small)
    prepared = prepare(engine.program, args, kwargs, fixed, False)
    # In gap space an interpolated covariance need not be positive definite.
    inner = engine.setting._replace(options={**engine.options, "space": "gap"})
    settled = settle(inner, prepared, None, key, progress_bar, at_first, whole=False)
    values = {name: np.asarray(value) for name, value in settled.evidence.hyperparameters.items()}
    info: dict[str, Any] = {
        name: settled.info[name]
        for name in ("hyperparameters", "evaluations", "gradient_norm", "failed_evaluations", "log_prior")
        if name in settled.info
    }
    info["searched_answers"] = some.num_answers
    edges = [
        site
        for name, request in requests.items()
        for site in request.sites.values()
        if site in values and at_boundary(tables[name], float(values[site]))
    ]
    if edges:
        info["at_boundary"] = ", ".join(edges)
    return _Found(values, info, settled.result)


def _in_gap_space(engine: "GaussianEngine", answers: int, entities: int) -> bool:
    """By the numbers without anything that fills them up."""
    space = engine.options["space"]
    return bool(answers <= entities if space == "auto" else space == "gap")


def _progress(engine: "GaussianEngine", wanted: bool) -> Progress:
    return Progress(f"{engine.name}: covariances of the touched entities", wanted, "steps", "")
