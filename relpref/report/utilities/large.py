"""The page of more entities than a matrix has room for: about the best of them, and those that are least known."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.errors import RelprefError
from relpref.infer import UtilityPosterior
from relpref.infer.belief import generator
from relpref.infer.large.answered import answered
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.problem import touched
from relpref.infer.large.words import approximations
from relpref.report.blocks import Chapter, Contents, Text
from relpref.report.hyperparameters import hyperparameters
from relpref.report.text import clean, counted, whole
from relpref.report.utilities.asked import asked
from relpref.report.utilities.contributions import contributions
from relpref.report.utilities.evidence import evidence
from relpref.report.utilities.methods import methods
from relpref.report.utilities.questions import questions
from relpref.report.utilities.ranking import ranking
from relpref.report.utilities.subject import Subject
from relpref.report.utilities.summary import summary
from relpref.report.utilities.surprises import surprises
from relpref.report.utilities.trust import trust
from relpref.report.utilities.warnings import fitted, warnings

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
