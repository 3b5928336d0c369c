"""Regularized least squares (RLS), also for rankings, with exact cross-validation."""

from relpref.rls.conditional import ConditionalRanker
from relpref.rls.conditional_cv import ConditionalRankerCV
from relpref.rls.hold_out import (
    leave_column_out,
    leave_edge_out,
    leave_nodes_out,
    leave_object_pairs_out,
    leave_row_out,
)
from relpref.rls.node_kernels import gram as gram
from relpref.rls.ridge import RLS, RLSCV, RankRLS, RankRLSCV
from relpref.rls.spectrum import HeldOutPairs as HeldOutPairs
from relpref.rls.spectrum import LeavePairOut as LeavePairOut
from relpref.rls.splits import (
    BothKFold,
    EdgeKFold,
    SourceKFold,
    TargetKFold,
    per_node,
    ranking_error,
)
from relpref.rls.splits import PerNode as PerNode
from relpref.rls.splits import auc as auc
from relpref.rls.splits import concordance as concordance
from relpref.rls.splits import ndcg as ndcg
from relpref.rls.splits import spearman as spearman

__all__ = [
    "RLS",
    "RLSCV",
    "BothKFold",
    "ConditionalRanker",
    "ConditionalRankerCV",
    "EdgeKFold",
    "RankRLS",
    "RankRLSCV",
    "SourceKFold",
    "TargetKFold",
    "leave_column_out",
    "leave_edge_out",
    "leave_nodes_out",
    "leave_object_pairs_out",
    "leave_row_out",
    "per_node",
    "ranking_error",
]
