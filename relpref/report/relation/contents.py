"""The chapters of the page, in their order."""

from relpref.infer import RelationPosterior
from relpref.report.blocks import Contents
from relpref.report.relation.hyperparameters import hyperparameters
from relpref.report.relation.known import known, summary
from relpref.report.relation.methods import methods
from relpref.report.relation.quality import quality
from relpref.report.relation.rankings import on_top, rankings
from relpref.report.relation.subject import Subject


def contents(posterior: RelationPosterior) -> Contents:
    """The page of a relation."""
    subject = Subject(posterior)
    chapters = [
        known(subject),
        rankings(subject),
        on_top(subject),
        quality(subject),
        hyperparameters(posterior),
    ]
    kept = [chapter for chapter in chapters if chapter is not None]
    return Contents("Conditional ranking report", summary(subject), kept, methods(posterior))
