"""Which question to ask next, and what its answer is worth."""

from relpref.explore.items import Item
from relpref.explore.loop import Loop, Progress
from relpref.explore.questions.choose import next_pairs
from relpref.explore.questions.stopping import Worth, why, worth
from relpref.explore.scores import DEFAULT, SCORES
from relpref.explore.scores.gap_scores import Bald, Eubo, Gaps, Random, Ratio, Score, Scorer, State, Variance
from relpref.explore.scores.lookahead import LookAhead, MutualInformation, TopK
from relpref.explore.simulation.curves import AnswersSaved, answers_saved, learning_curves
from relpref.explore.simulation.simulate import Step, Truth, simulate, simulate_steps
from relpref.explore.store.answer_store import AnswerStore, Question

__all__ = [
    "DEFAULT",
    "SCORES",
    "AnswerStore",
    "AnswersSaved",
    "Bald",
    "Eubo",
    "Gaps",
    "Item",
    "LookAhead",
    "Loop",
    "MutualInformation",
    "Progress",
    "Question",
    "Random",
    "Ratio",
    "Score",
    "Scorer",
    "State",
    "Step",
    "TopK",
    "Truth",
    "Variance",
    "Worth",
    "answers_saved",
    "learning_curves",
    "next_pairs",
    "simulate",
    "simulate_steps",
    "why",
    "worth",
]
