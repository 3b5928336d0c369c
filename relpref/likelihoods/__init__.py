"""Observation models: numpyro distributions that also give an engine their tilted moments."""

from relpref.likelihoods.comparison import (
    AnswerModel,
    Comparison,
    GradedComparison,
    Logistic,
    LogisticComparison,
    Probit,
    ProbitComparison,
    SoftComparison,
    answer_model,
)
from relpref.likelihoods.labels import CentredNormal, Link, LogitBernoulli, ProbitBernoulli, bernoulli
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
