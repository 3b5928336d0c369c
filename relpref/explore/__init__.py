"""Which question to ask next, and what its answer is worth."""

from relpref.explore.choose import next_pairs
from relpref.explore.scores import DEFAULT, SCORES, Bald, Eubo, Random, Ratio, Score, Variance

__all__ = ["DEFAULT", "SCORES", "Bald", "Eubo", "Random", "Ratio", "Score", "Variance", "next_pairs"]
