"""Exact inference for relations: the Gaussian model that regularized least squares is."""

from relpref.infer.exact.edges import EarlyStopping, EdgeSolution, solve_edges
from relpref.infer.exact.engine import Exact

__all__ = ["EarlyStopping", "EdgeSolution", "Exact", "solve_edges"]
