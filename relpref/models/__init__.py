"""Numpyro programs. They run under every engine and know none of them."""

from relpref.models.preference import preference_gp, xpgp
from relpref.models.ranking_classifier import ranking_classifier
from relpref.models.relation import conditional_ranking, edge_landmarks, kronecker_classifier

__all__ = [
    "conditional_ranking",
    "edge_landmarks",
    "kronecker_classifier",
    "preference_gp",
    "ranking_classifier",
    "xpgp",
]
