"""The two Gaussian process classifiers as scikit-learn estimators."""

from relpref.classifiers.kronecker import KroneckerGPClassifier

__all__ = ["KroneckerGPClassifier"]
