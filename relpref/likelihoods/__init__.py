"""Observation models: numpyro distributions that also give an engine their tilted moments."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relpref.likelihoods.answers import AnswerModel as AnswerModel
from relpref.likelihoods.answers import Logistic, Probit
from relpref.likelihoods.answers import answer_model as answer_model

if TYPE_CHECKING:
    from relpref.likelihoods.comparison import Comparison, LogisticComparison, ProbitComparison
    from relpref.likelihoods.comparison import DavidsonComparison as DavidsonComparison
    from relpref.likelihoods.comparison import GradedComparison as GradedComparison
    from relpref.likelihoods.comparison import LogisticGradedComparison as LogisticGradedComparison
    from relpref.likelihoods.comparison import SoftComparison as SoftComparison
    from relpref.likelihoods.labels import CentredNormal as CentredNormal
    from relpref.likelihoods.labels import Link as Link
    from relpref.likelihoods.labels import LogitBernoulli as LogitBernoulli
    from relpref.likelihoods.labels import ProbitBernoulli as ProbitBernoulli
    from relpref.likelihoods.labels import bernoulli as bernoulli
    from relpref.likelihoods.lists import ListComparison as ListComparison
    from relpref.likelihoods.lists import ListSizes as ListSizes
    from relpref.likelihoods.lists import SharedNoise as SharedNoise
    from relpref.likelihoods.tilted import GaussianLikelihood as GaussianLikelihood
    from relpref.likelihoods.tilted import GaussianSite as GaussianSite
    from relpref.likelihoods.tilted import Likelihood as Likelihood
    from relpref.likelihoods.tilted import TiltedMoments
    from relpref.likelihoods.tilted import as_likelihood as as_likelihood
    from relpref.likelihoods.tilted import is_log_concave as is_log_concave

__all__ = [
    "Comparison",
    "Logistic",
    "LogisticComparison",
    "Probit",
    "ProbitComparison",
    "TiltedMoments",
]

_HOMES = {
    "comparison": (
        "Comparison",
        "DavidsonComparison",
        "GradedComparison",
        "LogisticComparison",
        "LogisticGradedComparison",
        "ProbitComparison",
        "SoftComparison",
    ),
    "labels": (
        "CentredNormal",
        "Link",
        "LogitBernoulli",
        "ProbitBernoulli",
        "bernoulli",
    ),
    "lists": (
        "ListComparison",
        "ListSizes",
        "SharedNoise",
    ),
    "tilted": (
        "GaussianLikelihood",
        "GaussianSite",
        "Likelihood",
        "TiltedMoments",
        "as_likelihood",
        "is_log_concave",
    ),
}


def __getattr__(name: str) -> Any:
    """Import distributions when they are first used: they need JAX, models of answers do not."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"relpref.likelihoods.{module}"), name)
    raise AttributeError(f"module 'relpref.likelihoods' has no attribute {name!r}")
