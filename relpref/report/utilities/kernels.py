"""The paragraph on kernels, what makes amplitudes comparable, and how relations became graphs."""

from functools import partial
from typing import Any

from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL, parts_of
from relpref.infer import UtilityPosterior
from relpref.kernels import (
    Diffusion,
    HiddenCommonCause,
    Linear,
    Matern32,
    Matern52,
    Precomputed,
    RegularizedLaplacian,
    RelationVectors,
    SquaredExponential,
)
from relpref.models import preference_gp, xpgp
from relpref.models.xpgp import kernels_by_part
from relpref.report.text import clean, listed

_MOST = 6
_WORDS: dict[type, str] = {
    SquaredExponential: "the squared-exponential kernel",
    Matern32: "the Matérn 3/2 kernel",
    Matern52: "the Matérn 5/2 kernel",
    Linear: "the linear kernel",
    Precomputed: "a covariance that was given",
    RegularizedLaplacian: "the regularised Laplacian",
    Diffusion: "the diffusion kernel",
}
_SCALED = (*(kind for kind in _WORDS if kind is not Precomputed), HiddenCommonCause, RelationVectors)


def kernels(posterior: UtilityPosterior) -> str:
    """The paragraph; empty where the program is not one whose kernels are known."""
    origin = posterior.origin
    program: Any = None if origin is None else origin.program
    while isinstance(program, partial):
        program = program.func
    if origin is None or program not in (xpgp, preference_gp):
        return ""
    options = origin.keywords
    parts = parts_of(posterior)
    if not parts:
        return ""
    used: dict[str, Any] = kernels_by_part(posterior.data, options.get("relation_kernels"))
    used[ATTRIBUTES] = options.get("attribute_kernel") or SquaredExponential()
    used = {part: used.get(part, RegularizedLaplacian()) for part in parts if part != INDIVIDUAL}
    by_kernel: dict[str, list[str]] = {}
    for part, kernel in used.items():
        name = "the attributes" if part == ATTRIBUTES else f"“{clean(part)}”"
        by_kernel.setdefault(_words(kernel), []).append(name)
    pairs = [f"{words} for {listed(whose, most=_MOST)}" for words, whose in by_kernel.items()]
    said = "kernel is" if len(pairs) == 1 else "kernels are"
    sentences = [f"The {said} {listed(pairs, most=_MOST)}."] if pairs else []
    if INDIVIDUAL in parts:
        sentences.append("Every entity has a part of its own, which is independent of all others.")
    switched_on = options.get("standardize", True) and options.get("normalize", True)
    if len(parts) > 1 and switched_on and all(isinstance(kernel, _SCALED) for kernel in used.values()):
        sentences.append(
            "They are scaled so that, at an amplitude of 1, two entities typically differ by 1.4: two that are far apart in their "
            "attributes, or two in the same connected part of a relation (in different parts, where a kernel takes those of one part "
            "for the same). That is why the amplitudes of different parts "
            "can be compared."
        )
    elif len(parts) > 1:
        sentences.append("They were not all scaled, so amplitudes of different parts cannot be compared.")
    return " ".join([*sentences, *_relations(posterior)])


def _words(kernel: Any) -> str:
    if isinstance(kernel, HiddenCommonCause):
        causes = "links" if kernel.method == "edges" else "cliques"
        return f"the hidden common cause kernel by {causes} (Silva, Chu and Ghahramani 2007)"
    if isinstance(kernel, RelationVectors):
        return f"{_words(kernel.attribute_kernel)} on each entity's links"
    return _WORDS.get(type(kernel), f"the kernel {clean(type(kernel).__name__)}")


def _relations(posterior: UtilityPosterior) -> list[str]:
    """How relations that are not undirected became graphs."""
    used = parts_of(posterior)
    found = []
    for name, links in posterior.data.links.items():
        if not any(part in used for part in posterior.data.parts_of(name)):
            continue
        called = f"The relation “{clean(name)}”"
        if links.relation.form == "random_walk":
            found.append(
                f"{called} is directed: entities are tied by how often a random walk along its links goes from one to the "
                "other (Chung 2005)."
            )
        elif links.relation.kind == "directed":
            found.append(
                f"{called} is directed, so it has two roles: “{clean(name)}_linking” ties those who link to the same entity, "
                f"“{clean(name)}_linked” those to whom the same entity links."
            )
        else:
            found.append(
                f"{called} links entities to something else: those that share such a target are tied."
            )
    return found
