"""Numpyro programs. They run under every engine and know none of them."""

from relpref.models.preference import preference_gp, xpgp
from relpref.models.ranking_classifier import ranking_classifier
from relpref.models.relation import conditional_ranking, kronecker_classifier
from relpref.models.relation import edge_landmarks as edge_landmarks

__all__ = [
    "conditional_ranking",
    "kronecker_classifier",
    "preference_gp",
    "ranking_classifier",
    "xpgp",
]
