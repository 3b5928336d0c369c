"""Regularised least squares (RLS) and its ranking variant, with cross-validation from the same decomposition."""

from relpref.rls.conditional import ConditionalRanker
from relpref.rls.measures import PerNode, auc, concordance, ndcg, per_node, ranking_error, spearman
from relpref.rls.node_kernels import gram

__all__ = [
    "ConditionalRanker",
    "PerNode",
    "auc",
    "concordance",
    "gram",
    "ndcg",
    "per_node",
    "ranking_error",
    "spearman",
]
