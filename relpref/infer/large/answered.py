"""The posterior of the entities that answers are about: whatever is asked about the answers can be asked of it."""

from dataclasses import replace
from typing import Any, TypeVar

import jax

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.about import about
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.problem import LargeProblem, touched
from relpref.infer.large.tables import constant
from relpref.infer.posterior import Posterior
from relpref.infer.utility_posterior import UtilityPosterior

MOST = 2000  # entities that answers are about, of which there is a matrix then

Asked = TypeVar("Asked", bound=Posterior)


def answered(posterior: Asked) -> Asked:
    """A posterior itself where there is a matrix of its covariance; else that of the entities that answers are about.

    That is a posterior of all answers by the same program, with the prior that these entities have among all of them, at the same
    hyperparameters, which are fixed.

    Raises
    ------
    DataError
        If answers are about more than 2000 entities, or came by quick updates.
    UnsupportedProgramError
        If the posterior does not know its program.
    """
    if not isinstance(posterior, UtilityPosterior) or not isinstance(posterior.belief, ImplicitBelief):
        return posterior
    origin = posterior.origin
    if "quick_answers" in posterior.info:
        raise DataError("the posterior has answers that came by quick updates; call update() first")
    if origin is None or not origin.engine:
        raise UnsupportedProgramError(
            "the posterior does not know its program, which says what an answer's probability is; fit in this session, or with a "
            "program of relpref.models before saving"
        )
    positions = touched(posterior.data)
    if len(positions) > MOST:
        raise DataError(
            f"answers are about {len(positions)} entities, and what is said of answers needs a matrix of these, which may be {MOST}; fit the "
            "answers about fewer (data.select_comparisons), or look at beliefs alone, without answers: posterior.about(labels)"
        )
    problem = LargeProblem.of(origin.program, origin.args, origin.kwargs)
    with jax.enable_x64(True):
        values = problem.known(posterior.hyperparameters)
        tables = {
            name: constant(name, problem.data.relations[name], request, positions, values, False)
            for name, request in problem.requests(values).items()
        }
        data = problem.with_tables(positions, tables)
    args, kwargs = problem.called_with(data)
    engine = {**origin.engine, "structure": "dense", "fixed": dict(posterior.hyperparameters)}
    some = about(posterior, positions)
    # Nothing is searched for any more.
    info = {name: value for name, value in some.info.items() if name != "evaluations"}
    found: Any = replace(
        some, data=data, origin=replace(origin, args=args, kwargs=kwargs, engine=engine), info=info
    )
    return found
