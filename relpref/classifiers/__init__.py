"""The two Gaussian process classifiers, and features of rankings, as scikit-learn estimators and transformers."""

from relpref.classifiers.kronecker import KroneckerGPClassifier
from relpref.classifiers.ranking import RankingGPClassifier
from relpref.classifiers.transformers import CutFeatures, KendallFeatures, MallowsFeatures

__all__ = [
    "CutFeatures",
    "KendallFeatures",
    "KroneckerGPClassifier",
    "MallowsFeatures",
    "RankingGPClassifier",
]
