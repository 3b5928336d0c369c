"""Observation models: numpyro distributions that also give an engine their tilted moments."""

from relpref.likelihoods.bernoulli import Link, LogitBernoulli, ProbitBernoulli, bernoulli
from relpref.likelihoods.comparison import (
    Comparison,
    GradedComparison,
    LogisticComparison,
    ProbitComparison,
    SoftComparison,
)
from relpref.likelihoods.models import AnswerModel, Logistic, Probit, answer_model
from relpref.likelihoods.normal import CentredNormal
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
    "Logistic",
    "LogisticComparison",
    "LogitBernoulli",
    "Probit",
    "ProbitBernoulli",
    "ProbitComparison",
    "SoftComparison",
    "TiltedMoments",
    "answer_model",
    "as_likelihood",
    "bernoulli",
    "is_log_concave",
]
