"""What was done, in words: the model of answers and utilities, and how places come about."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL, parts_of
from relpref.errors import RelprefError
from relpref.infer import UtilityPosterior
from relpref.infer.large.answered import answered, approximations
from relpref.infer.large.covariance import ImplicitBelief
from relpref.infer.large.problem import touched
from relpref.posterior.gaussian import generator
from relpref.report.blocks import Chapter, Contents, Text, clean, counted, listed, whole
from relpref.report.hyperparameters import hyperparameters
from relpref.report.methods import approximation
from relpref.report.model import kernels_of, likelihood_of, options_of
from relpref.report.utilities.contributions import contributions
from relpref.report.utilities.evidence import asked, evidence, questions, surprises
from relpref.report.utilities.subject import Subject, ranking
from relpref.report.utilities.summary import fitted, summary, trust, warnings

_MOST = 6


def kernels(posterior: UtilityPosterior) -> str:
    """The paragraph; empty where the program is not one whose kernels are known."""
    parts, used, options = parts_of(posterior), kernels_of(posterior), options_of(posterior)
    if not parts or any(part not in used for part in parts if part != INDIVIDUAL):
        return ""
    by_kernel: dict[str, list[str]] = {}
    for part, kernel in used.items():
        name = "the attributes" if part == ATTRIBUTES else f"“{clean(part)}”"
        by_kernel.setdefault(kernel.sentence, []).append(name)
    sentences = [f"For {listed(whose, most=_MOST)}: {text}" for text, whose in by_kernel.items()]
    if INDIVIDUAL in parts:
        sentences.append("Every entity has a part of its own, which is independent of all others.")
    switched_on = options.get("standardize", True) and options.get("normalize", True)
    if len(parts) > 1 and switched_on and all(kernel.unit for kernel in used.values()):
        sentences.append(
            "They are scaled so that, at an amplitude of 1, two entities typically differ by 1.4: two that are far apart in their "
            "attributes, or two in the same connected part of a relation (in different parts, where a kernel takes those of one part "
            "for the same). That is why the amplitudes of different parts "
            "can be compared."
        )
    elif len(parts) > 1:
        sentences.append("They were not all scaled, so amplitudes of different parts cannot be compared.")
    return " ".join([*sentences, *_relations(posterior)])


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


_COVERAGE = (
    "In a simulation with 20 entities and 30 answers, intervals of 50, 80 and 95% from expectation propagation at maximized "
    "hyperparameters held the truth in 44, 72 and 90% of the cases, and averaged over hyperparameters in 49, 79 and 95%."
)


def methods(posterior: UtilityPosterior) -> list[str]:
    paragraphs = [f"{_answers(posterior)} {_utilities(posterior)}", kernels(posterior)]
    paragraphs.append(approximation(posterior))
    searched = posterior.searched
    if posterior.engine == "EP" and searched:
        paragraphs[-1] += f" {_COVERAGE}"
    which = "the utilities shown, all" if posterior.large else "all utilities"
    paragraphs.append(
        f"Places, their intervals and the probabilities of being the best come from draws of {which} at once, so they "
        f"respect that entities move together. They carry a simulation error of up to {_simulation_error(posterior)}."
    )
    return paragraphs


def _simulation_error(posterior: UtilityPosterior) -> str:
    """Of a probability near one half, from 4000 draws, or from as many as there are."""
    weights = posterior.belief.weights
    if len(weights) == 1 or np.ptp(weights):
        return "one percentage point"
    kept = len(weights)
    effective = kept if posterior.effective_draws is None else min(posterior.effective_draws, kept)
    more = "" if posterior.effective_draws is not None else ", more where draws resemble each other"
    return f"{50 / np.sqrt(max(effective, 1.0)):.0f} percentage points{more}"


def _answers(posterior: UtilityPosterior) -> str:
    """How answers come about."""
    text = f"Every entity has a hidden utility. {likelihood_of(posterior).sentence}"
    return f"{text} The answers are {posterior.lists.split(': ')[-1]}." if posterior.lists else text


def _utilities(posterior: UtilityPosterior) -> str:
    parts = parts_of(posterior)
    smooth = ATTRIBUTES in parts if parts else bool(posterior.data.attribute_names)
    text = "The utilities are a Gaussian process a priori"
    related = any(part not in (ATTRIBUTES, INDIVIDUAL) for part in parts)
    own = "one part for each entity itself, which is independent of all others"
    if related:
        summands = [
            *(["one part that varies smoothly with the attributes"] if smooth else []),
            "one part for each relation, which varies smoothly along its links, as if entities that are linked had a common cause (Kersting and Xu 2009)",
            *([own] if INDIVIDUAL in parts else []),
        ]
        return f"{text}: a sum of {listed(summands)}."
    if smooth:
        more = f", and have {own}" if INDIVIDUAL in parts else ""
        return f"{text}: they vary smoothly with the attributes (Chu and Ghahramani 2005){more}."
    if INDIVIDUAL in parts:
        return f"{text}: those of different entities are independent (Thurstone 1927)."
    return f"{text}."


_BEST, _UNCERTAIN = 150, 50
_CANDIDATES = 500  # entities with answers, among which the least known are looked for: each may cost a solution with the graph


def contents(posterior: UtilityPosterior, relations_evidence: bool | pd.DataFrame | None) -> Contents:
    """The page; ``relations_evidence`` as in `relpref.report.write`."""
    best, uncertain, looked_at = _chosen(posterior)
    data = posterior.data
    some = posterior.about(data.entities[at] for at in np.union1d(best, uncertain))
    subject = Subject(some, within=posterior)
    chapters = [chapter for chapter in _chapters(posterior, subject, relations_evidence) if chapter]
    number = whole(data.num_entities)
    lead = (
        f"Shown are {whole(some.data.num_entities)} of {number} entities: the {whole(len(best))} with the highest utilities, and, of "
        f"{looked_at}, the {whole(len(uncertain))} whose utilities are least certain. Utilities are less the average of all {number}; "
        "places, and the probabilities of being the best, are among those shown."
    )
    first, *others = summary(subject)
    return Contents("Ranking report", [first, lead, *others, *_near(posterior)], chapters, methods(posterior))


def _chosen(posterior: UtilityPosterior) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Positions of the best, of the least certain of those that answers are about, and the words for these."""
    belief = posterior.belief
    assert isinstance(belief, ImplicitBelief)
    best = np.argsort(-belief.mean(), kind="stable")[:_BEST]
    known = touched(posterior.data)
    words = f"the {whole(len(known))} that answers are about"
    if len(known) > _CANDIDATES:
        known = np.sort(generator(posterior.key).choice(known, _CANDIDATES, replace=False))
        words = f"{whole(_CANDIDATES)} that were drawn from those that answers are about"
    _, sd = belief.relative(known)
    return best, known[np.argsort(-sd, kind="stable")[:_UNCERTAIN]], words


def _near(posterior: UtilityPosterior) -> list[str]:
    said = approximations(posterior)
    return [" ".join(clean(sentence, 1000) for sentence in said)] if said else []


def _chapters(
    posterior: UtilityPosterior, subject: Subject, wanted: bool | pd.DataFrame | None
) -> Iterator[Chapter | None]:
    yield asked(Subject(posterior))
    yield ranking(subject)
    yield contributions(subject)
    yield evidence(posterior, wanted)
    data = posterior.data
    never = data.num_entities - len(touched(data))
    found = [f"{counted(never, 'entity was', 'entities were')} never compared."] if never else []
    try:
        known = Subject(answered(posterior))
    except RelprefError as error:
        text = f"Answers were not left out and predicted, nor searched for surprises: {clean(error, 1000)}."
        yield Chapter("How far to trust it", [Text(" ".join([*found, *fitted(Subject(posterior)), text]))])
    else:
        yield trust(known, [*found, *warnings(known), *fitted(Subject(posterior))])
        yield surprises(known)
    yield questions(subject)
    yield hyperparameters(posterior)
