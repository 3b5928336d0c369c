"""The chapters of the page, in their order."""

from collections.abc import Iterator

import pandas as pd

from relpref.infer import UtilityPosterior
from relpref.report.blocks import Chapter, Contents
from relpref.report.hyperparameters import hyperparameters
from relpref.report.utilities.contributions import contributions
from relpref.report.utilities.evidence import asked, evidence, questions, surprises
from relpref.report.utilities.methods import methods
from relpref.report.utilities.subject import Subject, ranking
from relpref.report.utilities.summary import summary, trust


def contents(posterior: UtilityPosterior, relations_evidence: bool | pd.DataFrame | None) -> Contents:
    """The page of a ranking; ``relations_evidence`` as in `relpref.report.write`."""
    subject = Subject(posterior)
    chapters = [chapter for chapter in _chapters(subject, relations_evidence) if chapter is not None]
    return Contents("Ranking report", summary(subject), chapters, methods(posterior))


def _chapters(subject: Subject, wanted: bool | pd.DataFrame | None) -> Iterator[Chapter | None]:
    yield asked(subject)
    yield ranking(subject)
    yield contributions(subject)
    yield evidence(subject.posterior, wanted)
    yield trust(subject)
    yield surprises(subject)
    yield questions(subject)
    yield hyperparameters(subject.posterior)
