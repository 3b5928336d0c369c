"""The chapters of the page, in their order."""

from relpref.data import RelationData
from relpref.infer import ClassPosterior
from relpref.report.blocks import Contents
from relpref.report.classes.learned import learned, summary
from relpref.report.classes.quality import quality, surprises, uncertain
from relpref.report.classes.subject import Subject
from relpref.report.hyperparameters import hyperparameters
from relpref.report.methods import approximation


def contents(posterior: ClassPosterior) -> Contents:
    """The page of a classifier."""
    subject = Subject(posterior)
    chapters = [
        learned(subject),
        uncertain(subject),
        quality(subject),
        surprises(subject),
        hyperparameters(posterior),
    ]
    kept = [chapter for chapter in chapters if chapter is not None]
    return Contents(
        "Classification report", summary(subject), kept, [_model(subject), approximation(posterior)]
    )


def _model(subject: Subject) -> str:
    """The program in words."""
    link = "the logistic function" if subject.options.get("link") == "logit" else "Φ"
    if isinstance(subject.posterior.data, RelationData):
        return (
            f"Whether a relation holds between two nodes has the probability {link} of a latent Gaussian process over edges, whose covariance is "
            "the product of a kernel of the first nodes and one of the second (Pahikkala et al. 2010)."
        )
    text = f"The class of who gave a ranking has the probability {link} of a latent Gaussian process over rankings."
    if len(subject.classes) > 2:
        text += (
            " Several classes are decisions in sequence: stop at the first class or go on, and so on (Agresti 2013). The order of the "
            "classes is part of the model."
        )
    return text
