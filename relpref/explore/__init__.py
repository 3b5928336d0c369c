"""Which question to ask next, and what its answer is worth."""

from relpref.explore.choose import next_pairs
from relpref.explore.items import Item
from relpref.explore.loop import Loop, Progress
from relpref.explore.scores import DEFAULT, SCORES, Bald, Eubo, Random, Ratio, Score, Variance
from relpref.explore.store import AnswerStore, Question

__all__ = [
    "DEFAULT",
    "SCORES",
    "AnswerStore",
    "Bald",
    "Eubo",
    "Item",
    "Loop",
    "Progress",
    "Question",
    "Random",
    "Ratio",
    "Score",
    "Variance",
    "next_pairs",
]
