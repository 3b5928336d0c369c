"""Covariances and their factorizations; knows nothing of statistics."""

import warnings
from typing import Any

from relpref.limits import fits, require_memory
from relpref.linalg.cg import CGResult, block_cg, conjugate_gradient
from relpref.linalg.covariance import (
    BlockDiagonal,
    Covariance,
    Dense,
    Identity,
    KernelMatrix,
    Kronecker,
    LinearMap,
    LowRank,
    NamedSum,
    SparseMatrix,
    Spectral,
    nystrom,
)
from relpref.linalg.factor import (
    Eigen,
    checked_symmetric,
    cholesky,
    factor_eigen,
    nearest_semidefinite,
    pivoted_cholesky,
    real,
    symmetric_eigen,
)
from relpref.linalg.graph_covariance import HeatKernel, SparsePrecision
from relpref.linalg.graph_solver import LaplacianSolver
from relpref.linalg.lanczos import gap_quadrature

__all__ = [
    "BlockDiagonal",
    "CGResult",
    "Covariance",
    "Dense",
    "Eigen",
    "HeatKernel",
    "Identity",
    "KernelMatrix",
    "Kronecker",
    "LaplacianSolver",
    "LinearMap",
    "LowRank",
    "NamedSum",
    "SparseMatrix",
    "SparsePrecision",
    "Spectral",
    "block_cg",
    "checked_symmetric",
    "cholesky",
    "conjugate_gradient",
    "factor_eigen",
    "fits",
    "gap_quadrature",
    "nearest_semidefinite",
    "nystrom",
    "pivoted_cholesky",
    "real",
    "require_memory",
    "symmetric_eigen",
]

_RENAMED = {"CovarianceOperator": Covariance, "ImplicitCovariance": Covariance, "ImplicitSum": NamedSum}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(f"relpref.linalg.{name} is now {new.__name__}", DeprecationWarning, stacklevel=2)
        return new
    raise AttributeError(f"module 'relpref.linalg' has no attribute {name!r}")
