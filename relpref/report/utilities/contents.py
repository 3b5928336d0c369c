"""The chapters of the page, in their order."""

from collections.abc import Iterator

import pandas as pd

from relpref.infer import UtilityPosterior
from relpref.report.blocks import Chapter, Contents
from relpref.report.hyperparameters import hyperparameters
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
