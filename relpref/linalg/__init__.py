"""Covariance operators and their factorisations; knows nothing of statistics."""

from relpref.linalg.arrays import real
from relpref.linalg.cholesky import Factor, cholesky
from relpref.linalg.conjugate_gradient import CGResult, conjugate_gradient
from relpref.linalg.eigen import Eigen, checked_symmetric, factor_eigen, nearest_semidefinite, symmetric_eigen
from relpref.linalg.implicit import (
    BlockCG,
    GapQuadrature,
    HeatKernel,
    Identity,
    ImplicitCovariance,
    ImplicitSum,
    KernelMatrix,
    LaplacianSolver,
    LowRank,
    Quadrature,
    Solution,
    SparseMatrix,
    SparsePrecision,
    Woodbury,
    block_cg,
    gap_quadrature,
    log_determinant,
    nystrom,
    quadrature,
)
from relpref.linalg.kronecker import Kronecker
from relpref.linalg.operators import BlockDiagonal, CovarianceOperator, Dense, LinearMap, NamedSum, Spectral
from relpref.linalg.pivoted import pivoted_cholesky
from relpref.memory import fits, require_memory

__all__ = [
    "BlockCG",
    "BlockDiagonal",
    "CGResult",
    "CovarianceOperator",
    "Dense",
    "Eigen",
    "Factor",
    "GapQuadrature",
    "HeatKernel",
    "Identity",
    "ImplicitCovariance",
    "ImplicitSum",
    "KernelMatrix",
    "Kronecker",
    "LaplacianSolver",
    "LinearMap",
    "LowRank",
    "NamedSum",
    "Quadrature",
    "Solution",
    "SparseMatrix",
    "SparsePrecision",
    "Spectral",
    "Woodbury",
    "block_cg",
    "checked_symmetric",
    "cholesky",
    "conjugate_gradient",
    "factor_eigen",
    "fits",
    "gap_quadrature",
    "log_determinant",
    "nearest_semidefinite",
    "nystrom",
    "pivoted_cholesky",
    "quadrature",
    "real",
    "require_memory",
    "symmetric_eigen",
]
