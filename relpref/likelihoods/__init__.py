"""Observation models: numpyro distributions that also give an engine their tilted moments."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relpref.likelihoods.answers import AnswerModel, Logistic, Probit, answer_model

if TYPE_CHECKING:
    from relpref.likelihoods.comparison import (
        Comparison,
        GradedComparison,
        LogisticComparison,
        ProbitComparison,
        SoftComparison,
    )
    from relpref.likelihoods.labels import CentredNormal, Link, LogitBernoulli, ProbitBernoulli, bernoulli
    from relpref.likelihoods.lists import ListComparison, ListSizes, SharedNoise
    from relpref.likelihoods.tilted import (
        GaussianLikelihood,
        GaussianSite,
        Likelihood,
        TiltedMoments,
        as_likelihood,
        is_log_concave,
    )

__all__ = [
    "AnswerModel",
    "CentredNormal",
    "Comparison",
    "GaussianLikelihood",
    "GaussianSite",
    "GradedComparison",
    "Likelihood",
    "Link",
    "ListComparison",
    "ListSizes",
    "Logistic",
    "LogisticComparison",
    "LogitBernoulli",
    "Probit",
    "ProbitBernoulli",
    "ProbitComparison",
    "SharedNoise",
    "SoftComparison",
    "TiltedMoments",
    "answer_model",
    "as_likelihood",
    "bernoulli",
    "is_log_concave",
]


_HOMES = {
    "comparison": (
        "Comparison",
        "GradedComparison",
        "LogisticComparison",
        "ProbitComparison",
        "SoftComparison",
    ),
    "labels": ("CentredNormal", "Link", "LogitBernoulli", "ProbitBernoulli", "bernoulli"),
    "lists": ("ListComparison", "ListSizes", "SharedNoise"),
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
    """The distributions are imported when they are first used: they need JAX, and the models of answers do not."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"relpref.likelihoods.{module}"), name)
    raise AttributeError(f"module 'relpref.likelihoods' has no attribute {name!r}")
