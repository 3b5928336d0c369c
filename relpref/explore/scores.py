"""The scores by name."""

from relpref.explore.gap_scores import Bald, Eubo, Random, Ratio, Score, Variance
from relpref.explore.lookahead import LookAhead
from relpref.explore.mutual import MutualInformation
from relpref.explore.topk import TopK

SCORES: dict[str, type[Score]] = {
    score.name: score for score in (Ratio, Variance, Bald, MutualInformation, LookAhead, Eubo, TopK, Random)
}
DEFAULT = Bald.name
