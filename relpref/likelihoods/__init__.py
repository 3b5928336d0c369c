"""Observation models: numpyro distributions that also give an engine their tilted moments."""

from relpref.likelihoods.comparison import ProbitComparison
from relpref.likelihoods.tilted import GaussianLikelihood, Likelihood, TiltedMoments, as_likelihood

__all__ = ["GaussianLikelihood", "Likelihood", "ProbitComparison", "TiltedMoments", "as_likelihood"]
