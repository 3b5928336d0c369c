"""The two Gaussian process classifiers as scikit-learn estimators."""

from relpref.classifiers.kronecker import KroneckerGPClassifier
from relpref.classifiers.ranking import RankingGPClassifier

__all__ = ["KroneckerGPClassifier", "RankingGPClassifier"]
