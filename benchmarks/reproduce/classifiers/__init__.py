"""Experiments with the two Gaussian process classifiers: rankings (Conserva et al. 2022), and edges
of a relation.
"""
