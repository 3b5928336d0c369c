"""Hyperparameters of a large problem, by the evidence of as many of its answers as time allows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpref.infer.belief import generator
from relpref.infer.large.problem import UTILITY, LargeProblem, touched
from relpref.infer.large.tables import NODES, at_boundary, interpolated
from relpref.infer.prepare import prepare
from relpref.infer.result import Result
from relpref.infer.settle import settle

if TYPE_CHECKING:
    from relpref.infer.engine import GaussianEngine

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
    engine: "GaussianEngine",
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
    requests = part.requests(fixed)
    sites = part.sites(part.sample, fixed)
    free = [
        name
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"] and name != UTILITY and name not in fixed
    ]
    if not free:
        return Found({}, {}, None)
    tables = {
        name: interpolated(name, some.relations[name], request, positions, fixed, sites, progress_bar)
        for name, request in requests.items()
    }
    small = part.with_tables(positions, tables)
    args, kwargs = part.called_with(small)
    prepared = prepare(engine.program, args, kwargs, fixed, False)
    # In gap space an interpolated covariance need not be positive definite.
    inner = engine.setting._replace(options={**engine.options, "space": "gap"})
    whole = False if engine.options["hyperparameters"] == "em" else None  # EM looks at them
    settled = settle(inner, prepared, None, key, progress_bar, at_first, whole=whole)
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
    return Found(values, info, settled.result)
