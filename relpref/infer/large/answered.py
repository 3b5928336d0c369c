"""The posterior of the entities that answers are about: whatever is asked about the answers can be asked of it."""

from dataclasses import replace
from typing import Any, TypeVar

import jax

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.large.problem import Known, LargeProblem, touched
from relpref.infer.program import preference_data
from relpref.limits import MAX_ENTITIES_OF_ANSWERS
from relpref.posterior.base import Posterior
from relpref.posterior.utility import UtilityPosterior

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
    if not posterior.large or not isinstance(posterior, UtilityPosterior):
        return posterior
    origin = posterior.origin
    if posterior.quick_answers:
        raise DataError("the posterior has answers that came by quick updates; call update() first")
    if origin is None or not origin.engine:
        raise UnsupportedProgramError(
            "the posterior does not know its program, which says what an answer's probability is; fit in this session, or with a "
            "program of relpref.models before saving"
        )
    positions = touched(posterior.data)
    if len(positions) > MAX_ENTITIES_OF_ANSWERS:
        raise DataError(
            f"answers are about {len(positions)} entities, and what is said of answers needs a matrix of these, which may be {MAX_ENTITIES_OF_ANSWERS}; fit the "
            "answers about fewer (data.select_comparisons), or look at beliefs alone, without answers: posterior.about(labels)"
        )
    problem = LargeProblem.of(origin.program, origin.args, origin.kwargs)
    with jax.enable_x64(True):
        reading = problem.read(problem.known(posterior.hyperparameters))
        blocks = {name: part.block(positions, positions) for name, part in reading.prior.parts.items()}
    tables = {name: Known(0.5 * (block + block.T)) for name, block in blocks.items()}
    program, args, kwargs = problem.reduced(positions, tables)
    data = preference_data(args, kwargs)
    assert data is not None  # as it was among those of the whole program
    engine = origin.engine.changed(program, structure="dense", fixed=dict(posterior.hyperparameters))
    some = posterior.subset(positions)
    # Nothing is searched for any more.
    info = {name: value for name, value in some.info.items() if name != "evaluations"}
    found: Any = replace(
        some,
        data=data,
        origin=replace(origin, program=program, args=args, kwargs=kwargs, engine=engine),
        info=info,
    )
    return found


def approximations(posterior: Posterior) -> list[str]:
    """What was done without a matrix of all entities, and what of it is only near; nothing where there was such a matrix."""
    info = posterior.info
    if info.get("structure") != "sparse":
        return []
    number, touched = info["entities"], info["touched"]
    many = info.get("space") == "sparse entity"
    how = (
        "by the sparse precision of their posterior"
        if many
        else f"only one of the {touched} that answers are about, from which the others follow exactly"
    )
    said = [f"The structure is sparse: there is no matrix of all {number} entities, {how}."]
    if many:
        said.append(
            f"Of the uncertainty about what answers compare the largest relative error is {info['gap_sd_error']:.2g}; it moves mean utilities by up to "
            f"{info['mean_error']:.2g}, where the noise of an answer is 1; the standard error of the log evidence is {info['log_evidence_error']:.2g}."
        )
    if info.get("attributes_left_out"):
        said.append(
            f"The attributes' covariance is one of low rank; it leaves out {info['attributes_left_out']:.2g} of the variance."
        )
    if info.get("scale_error"):
        said.append(
            f"The scale of a relation was estimated from random vectors, with a relative standard error of {info['scale_error']:.2g}: by "
            "so much its amplitude may differ from that of a smaller fit."
        )
    searched, answers = info.get("searched_answers"), getattr(posterior, "data", None)
    if searched is not None and answers is not None and searched < answers.num_answers:
        said.append(
            f"Hyperparameters were searched for by {searched} of the {answers.num_answers} answers, drawn at random; the posterior itself "
            "knows all of them."
        )
    if info.get("at_boundary"):
        said.append(
            f"The search ended where its range ends, at {info['at_boundary']}: the answers ask for a value beyond what the prior takes to be "
            "plausible."
        )
    return said
