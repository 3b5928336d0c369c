"""Covariance functions of attributes and of graphs, and the Gaussian that carries them."""

from relpref.kernels.attribute import AttributeKernel, Linear, Matern32, Matern52, SquaredExponential
from relpref.kernels.graph import Diffusion, GraphKernel, RegularizedLaplacian
from relpref.kernels.hidden_common_cause import HiddenCommonCause
from relpref.kernels.precomputed import Precomputed
from relpref.kernels.process import GaussianProcess
from relpref.kernels.relation_vectors import RelationVectors

__all__ = [
    "AttributeKernel",
    "Diffusion",
    "GaussianProcess",
    "GraphKernel",
    "HiddenCommonCause",
    "Linear",
    "Matern32",
    "Matern52",
    "Precomputed",
    "RegularizedLaplacian",
    "RelationVectors",
    "SquaredExponential",
]
