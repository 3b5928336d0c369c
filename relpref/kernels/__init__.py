"""Covariance functions of attributes, of graphs and of edges, and the Gaussian that carries them."""

from relpref.kernels.attribute import AttributeKernel, Linear, Matern32, Matern52, SquaredExponential
from relpref.kernels.cut import cut_features, cut_kernel, cut_scale
from relpref.kernels.edge_gram import EdgeGram
from relpref.kernels.edge_landmarks import EdgeLandmarks
from relpref.kernels.features import Features, landmark_features
from relpref.kernels.graph import Diffusion, GraphKernel, RegularizedLaplacian
from relpref.kernels.hidden_common_cause import HiddenCommonCause
from relpref.kernels.implicit import attribute_covariance, graph_covariance, individual_covariance
from relpref.kernels.item_graph import item_graph
from relpref.kernels.kendall import kendall_features, kendall_kernel
from relpref.kernels.landmarks import GramKernel, Landmarks, mallows_features, mallows_landmarks
from relpref.kernels.mallows import mallows_kernel
from relpref.kernels.pairwise import (
    MLPK,
    Cartesian,
    Kronecker,
    PairwiseKernel,
    Preference,
    Reciprocal,
    Side,
    Symmetric,
)
from relpref.kernels.precomputed import Precomputed
from relpref.kernels.process import GaussianProcess
from relpref.kernels.ranking import Cut, GivenFeatures, Kendall, Mallows, RankingKernel
from relpref.kernels.relation_vectors import RelationVectors
from relpref.kernels.submodular import SubmodularFunction, submodular_features

__all__ = [
    "MLPK",
    "AttributeKernel",
    "Cartesian",
    "Cut",
    "Diffusion",
    "EdgeGram",
    "EdgeLandmarks",
    "Features",
    "GaussianProcess",
    "GivenFeatures",
    "GramKernel",
    "GraphKernel",
    "HiddenCommonCause",
    "Kendall",
    "Kronecker",
    "Landmarks",
    "Linear",
    "Mallows",
    "Matern32",
    "Matern52",
    "PairwiseKernel",
    "Precomputed",
    "Preference",
    "RankingKernel",
    "Reciprocal",
    "RegularizedLaplacian",
    "RelationVectors",
    "Side",
    "SquaredExponential",
    "SubmodularFunction",
    "Symmetric",
    "attribute_covariance",
    "cut_features",
    "cut_kernel",
    "cut_scale",
    "graph_covariance",
    "individual_covariance",
    "item_graph",
    "kendall_features",
    "kendall_kernel",
    "landmark_features",
    "mallows_features",
    "mallows_kernel",
    "mallows_landmarks",
    "submodular_features",
]
