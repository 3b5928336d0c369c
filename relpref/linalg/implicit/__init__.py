"""Covariances too large to be written down, and the solvers behind them; NumPy and SciPy only, no JAX."""

from relpref.linalg.implicit.block_cg import BlockCG, block_cg
from relpref.linalg.implicit.covariances import (
    Identity,
    ImplicitCovariance,
    ImplicitSum,
    LowRank,
    SparsePrecision,
)
from relpref.linalg.implicit.gaps import GapQuadrature, gap_quadrature
from relpref.linalg.implicit.heat import HeatKernel
from relpref.linalg.implicit.kernel_matrix import KernelMatrix
from relpref.linalg.implicit.lanczos import Quadrature, log_determinant, quadrature
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver, Solution
from relpref.linalg.implicit.low_rank import Woodbury, nystrom
from relpref.linalg.implicit.sparse_matrix import SparseMatrix

__all__ = [
    "BlockCG",
    "GapQuadrature",
    "HeatKernel",
    "Identity",
    "ImplicitCovariance",
    "ImplicitSum",
    "KernelMatrix",
    "LaplacianSolver",
    "LowRank",
    "Quadrature",
    "Solution",
    "SparseMatrix",
    "SparsePrecision",
    "Woodbury",
    "block_cg",
    "gap_quadrature",
    "log_determinant",
    "nystrom",
    "quadrature",
]
