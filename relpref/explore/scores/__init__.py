"""What makes a question worth asking: the scores, and what they look at."""

from relpref.explore.scores.gap_scores import Bald, Eubo, Random, Ratio, Score, Variance
from relpref.explore.scores.lookahead import LookAhead, MutualInformation, TopK

SCORES: dict[str, type[Score]] = {
    score.name: score for score in (Ratio, Variance, Bald, MutualInformation, LookAhead, Eubo, TopK, Random)
}
# Needs the fewest answers in most simulators, see docs/exploration_results.md.
DEFAULT = MutualInformation.name
