"""Covariances too large to be written down, and the solvers behind them; NumPy and SciPy only, no JAX."""

from relpref.linalg.implicit.block_cg import BlockCG, block_cg
from relpref.linalg.implicit.covariances import ImplicitCovariance, ImplicitSum, LowRank, SparsePrecision
from relpref.linalg.implicit.kernel_matrix import KernelMatrix
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver, Solution

__all__ = [
    "BlockCG",
    "ImplicitCovariance",
    "ImplicitSum",
    "KernelMatrix",
    "LaplacianSolver",
    "LowRank",
    "Solution",
    "SparsePrecision",
    "block_cg",
]
