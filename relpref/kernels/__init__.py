"""Covariance functions of attributes, of graphs and of edges, and the Gaussian that carries them.

Examples
--------
>>> import relpref
>>> from relpref.kernels import Diffusion, Matern52
>>> posterior = relpref.fit(
...     {"price": [2.0, 3.0, 1.0]},
...     [(1, 0), (0, 2)],
...     {"shelf": [(0, 1)]},
...     attribute_kernel=Matern52(),
...     relation_kernels={"shelf": Diffusion()},
... )
"""

from relpref.kernels.attribute import AttributeKernel as AttributeKernel
from relpref.kernels.attribute import (
    Linear,
    Matern32,
    Matern52,
    Precomputed,
    SquaredExponential,
    SquaredExponentialPlusLinear,
)
from relpref.kernels.cut import SubmodularFunction as SubmodularFunction
from relpref.kernels.cut import cut_features, cut_kernel, item_graph, submodular_features
from relpref.kernels.cut import cut_scale as cut_scale
from relpref.kernels.edge_landmarks import EdgeGram as EdgeGram
from relpref.kernels.edge_landmarks import EdgeLandmarks as EdgeLandmarks
from relpref.kernels.graph import (
    Diffusion,
    GaussianProcess,
    HiddenCommonCause,
    RegularizedLaplacian,
)
from relpref.kernels.graph import Features as Features
from relpref.kernels.graph import GraphCovariance as GraphCovariance
from relpref.kernels.graph import GraphKernel as GraphKernel
from relpref.kernels.graph import landmark_features as landmark_features
from relpref.kernels.mallows import kendall_features, kendall_kernel, mallows_kernel
from relpref.kernels.pairwise import MLPK as MLPK
from relpref.kernels.pairwise import Cartesian as Cartesian
from relpref.kernels.pairwise import Kronecker as Kronecker
from relpref.kernels.pairwise import PairwiseKernel as PairwiseKernel
from relpref.kernels.pairwise import Preference as Preference
from relpref.kernels.pairwise import Reciprocal as Reciprocal
from relpref.kernels.pairwise import RelationVectors
from relpref.kernels.pairwise import Side as Side
from relpref.kernels.pairwise import Symmetric as Symmetric
from relpref.kernels.ranking import Cut, Kendall, Landmarks, Mallows
from relpref.kernels.ranking import GivenFeatures as GivenFeatures
from relpref.kernels.ranking import GramKernel as GramKernel
from relpref.kernels.ranking import RankingKernel as RankingKernel
from relpref.kernels.ranking import mallows_landmarks as mallows_landmarks

__all__ = [
    "Cut",
    "Diffusion",
    "GaussianProcess",
    "HiddenCommonCause",
    "Kendall",
    "Landmarks",
    "Linear",
    "Mallows",
    "Matern32",
    "Matern52",
    "Precomputed",
    "RegularizedLaplacian",
    "RelationVectors",
    "SquaredExponential",
    "SquaredExponentialPlusLinear",
    "cut_features",
    "cut_kernel",
    "item_graph",
    "kendall_features",
    "kendall_kernel",
    "mallows_kernel",
    "submodular_features",
]
