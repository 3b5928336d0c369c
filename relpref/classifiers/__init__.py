"""The two Gaussian process classifiers, and features of rankings, as scikit-learn estimators and transformers."""

from relpref.classifiers.kronecker import KroneckerGPClassifier
from relpref.classifiers.ranking import CutFeatures, KendallFeatures, MallowsFeatures, RankingGPClassifier

__all__ = [
    "CutFeatures",
    "KendallFeatures",
    "KroneckerGPClassifier",
    "MallowsFeatures",
    "RankingGPClassifier",
]
