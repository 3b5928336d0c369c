"""Which question to ask next, and what its answer is worth."""

from relpref.explore.items import Item
from relpref.explore.loop import Loop, Progress
from relpref.explore.questions.choose import next_pairs
from relpref.explore.questions.stopping import Worth, why, worth
from relpref.explore.scores import DEFAULT, SCORES
from relpref.explore.scores.gap_scores import Bald, Eubo, Random, Ratio, Score, Scorer, State, Variance
from relpref.explore.scores.gaps import Gaps
from relpref.explore.scores.lookahead import LookAhead
from relpref.explore.scores.mutual import MutualInformation
from relpref.explore.scores.topk import TopK
from relpref.explore.simulation.curves import AnswersSaved, answers_saved, learning_curves
from relpref.explore.simulation.run import Step, simulate_steps
from relpref.explore.simulation.simulate import simulate
from relpref.explore.simulation.truth import Truth
from relpref.explore.store.answer_store import AnswerStore
from relpref.explore.store.question import Question

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
