"""What is known of a posterior's model, and what its parts say of themselves."""

from functools import partial
from inspect import Parameter, signature
from typing import Any

from relpref.description import Description, describe
from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL, parts_of
from relpref.infer import Posterior, UtilityPosterior
from relpref.kernels import RegularizedLaplacian, SquaredExponential
from relpref.models import preference_gp, xpgp
from relpref.models.xpgp import kernels_by_part
from relpref.registry import find


def program_of(posterior: Posterior) -> Any:
    """The program, without the keywords that are bound to it; None where it is not known."""
    program = None if posterior.origin is None else posterior.origin.program
    while isinstance(program, partial):
        program = program.func
    return program


def options_of(posterior: Posterior) -> dict[str, Any]:
    """Keywords of the program, as far as they are known."""
    return {} if posterior.origin is None else posterior.origin.keywords


def kernels_of(posterior: UtilityPosterior) -> dict[str, Description]:
    """What the kernel of each part says of itself; none where the program is not one whose kernels are known."""
    if program_of(posterior) not in (xpgp, preference_gp):
        return {}
    options = options_of(posterior)
    used: dict[str, Any] = kernels_by_part(posterior.data, options.get("relation_kernels"))
    used[ATTRIBUTES] = options.get("attribute_kernel") or SquaredExponential()
    parts = [part for part in parts_of(posterior) if part != INDIVIDUAL]
    return {part: describe(used.get(part, RegularizedLaplacian())) for part in parts}


def likelihood_of(posterior: UtilityPosterior) -> Description:
    """What the likelihood says of itself and of the columns of answers; that of a program that takes none is not known."""
    program = program_of(posterior)
    if program is not None:
        taken = signature(program).parameters
        if "likelihood" in taken or any(one.kind is Parameter.VAR_KEYWORD for one in taken.values()):
            return describe(posterior.likelihood, posterior.data.comparisons)
    name = getattr(program, "__name__", "that is not known")
    return Description(f"How an answer follows from utilities is up to the program {name}.")


def engine_of(posterior: Posterior) -> Description | None:
    """What the engine says of itself; None where the posterior is made of draws."""
    if posterior.sampled:
        return None
    engine = find("engine", posterior.engine)
    return (
        Description(f"The posterior was computed by {posterior.engine}.")
        if engine is None
        else describe(engine)
    )


def citations(posterior: Any) -> set[str]:
    """Sources in full that engine, likelihood and kernels name."""
    described = [engine_of(posterior)]
    if isinstance(posterior, UtilityPosterior):
        described += [likelihood_of(posterior), *kernels_of(posterior).values()]
    return {one.citation for one in described if one is not None and one.citation}
