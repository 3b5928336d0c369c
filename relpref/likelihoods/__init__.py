"""Observation models: numpyro distributions that also give an engine their tilted moments."""

from relpref.likelihoods.comparison import Comparison, ProbitComparison
from relpref.likelihoods.graded import GradedComparison
from relpref.likelihoods.logistic import LogisticComparison
from relpref.likelihoods.soft import SoftComparison
from relpref.likelihoods.tilted import GaussianLikelihood, Likelihood, TiltedMoments, as_likelihood

__all__ = [
    "Comparison",
    "GaussianLikelihood",
    "GradedComparison",
    "Likelihood",
    "LogisticComparison",
    "ProbitComparison",
    "SoftComparison",
    "TiltedMoments",
    "as_likelihood",
]
