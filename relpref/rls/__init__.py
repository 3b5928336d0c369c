"""Regularized least squares (RLS) and its ranking variant, with cross-validation from the same decomposition."""

from relpref.rls.conditional import ConditionalRanker
from relpref.rls.conditional_cv import ConditionalRankerCV
from relpref.rls.hold_out import (
    leave_column_out,
    leave_edge_out,
    leave_nodes_out,
    leave_object_pairs_out,
    leave_row_out,
)
from relpref.rls.node_kernels import gram
from relpref.rls.ridge import RLS, RLSCV, RankRLS, RankRLSCV
from relpref.rls.spectrum import HeldOutPairs, LeavePairOut
from relpref.rls.splits import (
    BothKFold,
    EdgeKFold,
    PerNode,
    SourceKFold,
    TargetKFold,
    auc,
    concordance,
    ndcg,
    per_node,
    ranking_error,
    spearman,
)

__all__ = [
    "RLS",
    "RLSCV",
    "BothKFold",
    "ConditionalRanker",
    "ConditionalRankerCV",
    "EdgeKFold",
    "HeldOutPairs",
    "LeavePairOut",
    "PerNode",
    "RankRLS",
    "RankRLSCV",
    "SourceKFold",
    "TargetKFold",
    "auc",
    "concordance",
    "gram",
    "leave_column_out",
    "leave_edge_out",
    "leave_nodes_out",
    "leave_object_pairs_out",
    "leave_row_out",
    "ndcg",
    "per_node",
    "ranking_error",
    "spearman",
]
