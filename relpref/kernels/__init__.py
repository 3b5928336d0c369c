"""Covariance functions of attributes and of graphs, and the Gaussian that carries them."""

from relpref.kernels.attribute import AttributeKernel, Linear, Matern32, Matern52, SquaredExponential
from relpref.kernels.graph import GraphKernel, RegularizedLaplacian
from relpref.kernels.precomputed import Precomputed
from relpref.kernels.process import GaussianProcess

__all__ = [
    "AttributeKernel",
    "GaussianProcess",
    "GraphKernel",
    "Linear",
    "Matern32",
    "Matern52",
    "Precomputed",
    "RegularizedLaplacian",
    "SquaredExponential",
]
