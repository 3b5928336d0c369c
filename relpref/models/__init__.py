"""Numpyro programs, one file each. They run under every engine and know none of them."""

from relpref.models.conditional_ranking import conditional_ranking
from relpref.models.kronecker_classifier import edge_landmarks, kronecker_classifier
from relpref.models.preference_gp import preference_gp
from relpref.models.ranking_classifier import ranking_classifier
from relpref.models.xpgp import xpgp

__all__ = [
    "conditional_ranking",
    "edge_landmarks",
    "kronecker_classifier",
    "preference_gp",
    "ranking_classifier",
    "xpgp",
]
