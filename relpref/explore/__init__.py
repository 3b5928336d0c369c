"""Which question to ask next, and what its answer is worth."""

from importlib import import_module
from typing import Any
from warnings import warn

from relpref.explore.choose import next_pairs
from relpref.explore.curves import AnswersSaved, answers_saved, learning_curves
from relpref.explore.pairs import Gaps
from relpref.explore.scores import (
    DEFAULT,
    SCORES,
    Bald,
    Eubo,
    LookAhead,
    MutualInformation,
    Random,
    Ratio,
    Score,
    Scorer,
    State,
    TopK,
    Variance,
)
from relpref.explore.simulation import Step, Truth, simulate, simulate_steps
from relpref.explore.stopping import Worth, why, worth

__all__ = [
    "DEFAULT",
    "SCORES",
    "AnswersSaved",
    "Bald",
    "Eubo",
    "Gaps",
    "LookAhead",
    "MutualInformation",
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

_MOVED = {"AnswerStore", "Item", "Loop", "Progress", "Question"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"relpref.explore.{name} is relpref.ask.{name} now", DeprecationWarning, stacklevel=2)
    return getattr(import_module("relpref.ask"), name)
