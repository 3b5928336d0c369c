"""Which question to ask next, and what its answer is worth."""

from importlib import import_module
from typing import Any

from relpref.errors import warn_renamed
from relpref.explore.choose import next_pairs
from relpref.explore.forecast import Gaps
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
from relpref.explore.simulation import (
    AnswersSaved,
    Step,
    Truth,
    answers_saved,
    learning_curves,
    simulate,
    simulate_steps,
)
from relpref.explore.stopping import ExpectedGain, expected_gain, why

__all__ = [
    "DEFAULT",
    "SCORES",
    "AnswersSaved",
    "Bald",
    "Eubo",
    "ExpectedGain",
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
    "answers_saved",
    "expected_gain",
    "learning_curves",
    "next_pairs",
    "simulate",
    "simulate_steps",
    "why",
]

_RENAMED = {"Worth": "relpref.explore.ExpectedGain", "worth": "relpref.explore.expected_gain"} | {
    name: f"relpref.ask.{name}" for name in ("AnswerStore", "Item", "Loop", "Progress", "Question")
}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"relpref.explore.{name}", _RENAMED[name])
    module, attribute = _RENAMED[name].rsplit(".", 1)
    return getattr(import_module(module), attribute)
