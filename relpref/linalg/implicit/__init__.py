"""Covariances too large to be written down, and the solvers behind them; NumPy and SciPy only, no JAX."""

from relpref.linalg.implicit.block_cg import BlockCG, block_cg
from relpref.linalg.implicit.covariances import (
    HeatKernel,
    Identity,
    ImplicitCovariance,
    ImplicitSum,
    KernelMatrix,
    LowRank,
    SparsePrecision,
    Woodbury,
    nystrom,
)
from relpref.linalg.implicit.lanczos import (
    GapQuadrature,
    Quadrature,
    gap_quadrature,
    log_determinant,
    quadrature,
)
from relpref.linalg.implicit.laplacian import SparseMatrix
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver, Solution

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
