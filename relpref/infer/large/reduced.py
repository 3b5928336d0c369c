"""A fit by the touched entities alone: the dense engine on these, with the prior covariance that they have among all."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relpref.infer.faces import sites_of
from relpref.infer.large.covariance import Conditioned, dual_weights, means_by_part
from relpref.infer.large.fitted import Fitted
from relpref.infer.large.problem import LargeProblem, LargeReading, Positions
from relpref.infer.large.tables import constant
from relpref.infer.prepare import prepare
from relpref.infer.settle import settle
from relpref.likelihoods import is_log_concave

if TYPE_CHECKING:
    from relpref.infer.engine import GaussianEngine

_ROUND = 256  # a few touched entities more are not to compile everything anew


def fit_reduced(
    engine: "GaussianEngine",
    problem: LargeProblem,
    reading: LargeReading,
    positions: Positions,
    values: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
) -> Fitted:
    """Fit at known hyperparameters."""
    data = problem.data
    tables = {
        name: constant(name, data.relations[name], request, positions, values, progress_bar)
        for name, request in problem.requests(values).items()
    }
    concave = all(is_log_concave(one.likelihood) for one in reading.observations)
    gap_space = concave and _in_gap_space(engine, data.num_comparisons, len(positions))
    # In gap space nobody minds how many entities there are, so their number may be a round one.
    spare = -len(positions) % _ROUND if gap_space else 0
    args, kwargs = problem.called_with(problem.with_tables(positions, tables, spare))
    prepared = prepare(engine.program, args, kwargs, values, gap_space)
    setting = engine.setting._replace(options={**engine.options, "space": "gap" if gap_space else "entity"})
    evidence, result, info, *_ = settle(setting, prepared, start, key, progress_bar, None, whole=None)
    alpha = np.asarray(evidence.alpha)[: len(positions)]
    sites = sites_of(evidence, data.num_comparisons)
    log_evidence = float(evidence.log_evidence)
    if result.empty:
        nothing = dict.fromkeys(reading.prior.parts, np.full(data.num_entities, np.nan))
        return Fitted(nothing, None, log_evidence, sites, result, info)
    means = means_by_part(reading.prior.parts, positions, alpha)
    covariance = reading.prior.block(positions, positions)
    precision = reading.counts * sites["precision"]
    dual = dual_weights(covariance, reading.projection(positions), precision, gap_space)
    return Fitted(means, Conditioned(reading.prior, positions, *dual), log_evidence, sites, result, info)


def _in_gap_space(engine: "GaussianEngine", answers: int, entities: int) -> bool:
    """By the numbers without anything that fills them up."""
    space = engine.options["space"]
    return bool(answers <= entities if space == "auto" else space == "gap")
