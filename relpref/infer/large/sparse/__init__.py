"""Expectation propagation where the posterior precision is sparse: many answers about many entities.

A graph prior is a sparse precision Q, and answers add the Laplacian of the graph of comparisons, AᵀTA: nothing but solves with
sparse positive definite matrices is needed, and the variances of the gaps that were compared.
"""

from relpref.infer.large.sparse.fit import SparseFit, SparseInfo, fit
from relpref.infer.large.sparse.posterior import SparsePosterior

__all__ = ["SparseFit", "SparseInfo", "SparsePosterior", "fit"]
