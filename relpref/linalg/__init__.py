"""Covariances and their factorizations; knows nothing of statistics."""

from relpref.limits import fits as fits
from relpref.limits import require_memory as require_memory
from relpref.linalg.cg import CGResult as CGResult
from relpref.linalg.cg import block_cg as block_cg
from relpref.linalg.cg import conjugate_gradient as conjugate_gradient
from relpref.linalg.covariance import (
    BlockDiagonal,
    Covariance,
    Dense,
    Identity,
    Kronecker,
    LowRank,
    NamedSum,
)
from relpref.linalg.covariance import KernelMatrix as KernelMatrix
from relpref.linalg.covariance import LinearMap as LinearMap
from relpref.linalg.covariance import SparseMatrix as SparseMatrix
from relpref.linalg.covariance import nystrom as nystrom
from relpref.linalg.factor import Eigen as Eigen
from relpref.linalg.factor import checked_symmetric as checked_symmetric
from relpref.linalg.factor import cholesky as cholesky
from relpref.linalg.factor import factor_eigen as factor_eigen
from relpref.linalg.factor import nearest_semidefinite as nearest_semidefinite
from relpref.linalg.factor import pivoted_cholesky as pivoted_cholesky
from relpref.linalg.factor import real as real
from relpref.linalg.factor import symmetric_eigen as symmetric_eigen
from relpref.linalg.graph_covariance import HeatKernel as HeatKernel
from relpref.linalg.graph_covariance import SparsePrecision
from relpref.linalg.graph_solver import LaplacianSolver
from relpref.linalg.lanczos import gap_quadrature as gap_quadrature

# The others are for the package's own rooms.
__all__ = [
    "BlockDiagonal",
    "Covariance",
    "Dense",
    "Identity",
    "Kronecker",
    "LaplacianSolver",
    "LowRank",
    "NamedSum",
    "SparsePrecision",
]
