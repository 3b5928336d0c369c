"""EP and Laplace for more entities than a matrix has room for.

First the hyperparameters, on some of the answers (`relpref.infer.large.search`). Then, at these, one of two ways: answers about some
thousands of entities are those of a small problem, exactly (`relpref.infer.large.reduced`); answers about more give a posterior whose
precision is sparse (`relpref.infer.large.many`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relpref.errors import UnsupportedProgramError
from relpref.infer.belief import key_words
from relpref.infer.faces import choose, plain, prior_notes
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.covariance import Unknown
from relpref.infer.large.many import fit_many
from relpref.infer.large.problem import UTILITY, LargeProblem, touched
from relpref.infer.large.reduced import fit_reduced
from relpref.infer.large.search import search
from relpref.infer.padding import preference_data
from relpref.infer.posterior import Parts, Posterior

if TYPE_CHECKING:
    from relpref.infer.engine import GaussianEngine

DENSE = 4000  # entities up to which a covariance matrix of all is the simpler and the faster way
_NOT_INTEGRATED = (
    "hyperparameters are at their maximum: without a matrix of all entities the covariance of each of many points would be a search of "
    "its own; structure='dense' averages over them where memory allows it"
)
# Touched entities up to which these have a matrix (0.5 GB), and answers or entities, the fewer of them, that EP factorises.
_MOST_TOUCHED, _MOST_FACTORISED = 8000, 5000
_MOST_NOTED = 2000  # of which the prior is looked at once more, for what answers cannot tell apart


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
    searched = search(engine, problem, fixed, key, progress_bar, at_first)
    values = {**fixed, **searched.values}
    reading = problem.read(values, progress_bar)
    number, positions = problem.data.num_entities, touched(problem.data)
    rows = reading.ends.shape[1]
    if len(positions) <= _MOST_TOUCHED and min(rows, len(positions)) <= _MOST_FACTORISED:
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
    if len(positions) <= _MOST_NOTED and not result.empty:
        blocks = {name: part.block(positions, positions) for name, part in reading.prior.parts.items()}
        info |= prior_notes(problem.data, {UTILITY: blocks}, positions)
    if engine.options["hyperparameters"] == "integrate" and searched.values:
        info["integration"] = _NOT_INTEGRATED
    if problem.scale_error:
        info["scale_error"] = max(problem.scale_error.values())
    engine.raise_unless_ok(result, info)
    means = dict.fromkeys(fitted.means, np.full(number, np.nan)) if result.empty else fitted.means
    covariance = Unknown(number) if fitted.covariance is None or result.empty else fitted.covariance
    common = {
        "belief": ImplicitBelief(np.asarray(sum(means.values())), covariance),
        "parts": {UTILITY: Parts(means, {})},
        "hyperparameters": {name: plain(value) for name, value in values.items()},
        "log_evidence": np.nan if result.empty else fitted.log_evidence,
        "info": info,
        "sites": fitted.sites,
        "key": key_words(key),
    }
    return choose(engine.origin(problem.args, problem.kwargs), {UTILITY: slice(0, number)}, common)
