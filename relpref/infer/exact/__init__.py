"""Exact inference for relations: the Gaussian model that regularised least squares is."""

from relpref.infer.exact.engine import Exact
from relpref.infer.exact.solve import EarlyStopping, EdgeSolution, solve_edges

__all__ = ["EarlyStopping", "EdgeSolution", "Exact", "solve_edges"]
