"""Covariance operators and their factorisations; knows nothing of statistics."""

from relpref.linalg.arrays import real
from relpref.linalg.cholesky import Factor, cholesky
from relpref.linalg.operators import BlockDiagonal, CovarianceOperator, Dense, LinearMap, NamedSum, Spectral

__all__ = [
    "BlockDiagonal",
    "CovarianceOperator",
    "Dense",
    "Factor",
    "LinearMap",
    "NamedSum",
    "Spectral",
    "cholesky",
    "real",
]
