"""Two Gaussian process classifiers and features of rankings, for scikit-learn."""

from relpref.classifiers.kronecker import KroneckerGPClassifier
from relpref.classifiers.preference import PreferenceRanker
from relpref.classifiers.ranking import CutFeatures, RankingGPClassifier
from relpref.classifiers.ranking import KendallFeatures as KendallFeatures
from relpref.classifiers.ranking import MallowsFeatures as MallowsFeatures

__all__ = ["CutFeatures", "KroneckerGPClassifier", "PreferenceRanker", "RankingGPClassifier"]
