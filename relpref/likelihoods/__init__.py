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


def __getattr__(name: str) -> Any:
    """The distributions are imported when they are first used: they need JAX, and the models of answers do not."""
    if name not in __all__:
        raise AttributeError(f"module 'relpref.likelihoods' has no attribute {name!r}")
    homes = (
        import_module(f"relpref.likelihoods.{module}")
        for module in ("comparison", "labels", "lists", "tilted")
    )
    return next(getattr(home, name) for home in homes if hasattr(home, name))
