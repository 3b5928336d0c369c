"""Covariance functions of attributes and of graphs, and the Gaussian that carries them."""

from relpref.kernels.attribute import AttributeKernel, Precomputed, SquaredExponential
from relpref.kernels.graph import GraphKernel, RegularizedLaplacian
from relpref.kernels.process import GaussianProcess

__all__ = [
    "AttributeKernel",
    "GaussianProcess",
    "GraphKernel",
    "Precomputed",
    "RegularizedLaplacian",
    "SquaredExponential",
]
