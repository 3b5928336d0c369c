"""What the demo says about its numbers, whatever they are; for the terminal and for the report."""

import math
from typing import Any

from relpref.demo import ALONE, INTERVAL, RELATION, SHUFFLED, Outcome

ABOUT = (
    "210 travellers between Sydney, Canberra and Melbourne chose among air, train, bus and car (1987, public domain). "
    "Every traveller's four alternatives are entities; the attributes are times and cost, and the relation joins alternatives of "
    "the same mode whose travellers are alike in income and party."
)
ERRORS = (
    "Log loss: per comparison of a traveller held out; a coin toss has 0.693. ±: one standard error, over travellers: "
    "the three comparisons of one choice are not independent."
)
SAMPLE = "The sample was drawn by mode, so this is no market share."


def split(outcome_or_experiment: Any) -> str:
    """How many travellers were learned from."""
    held = outcome_or_experiment.held_out
    traveller = outcome_or_experiment.choices.traveller
    number = traveller.loc[held["winner"]].nunique()
    return (
        f"{traveller.nunique() - number} travellers to learn from; {number} held out, whose alternatives are known, "
        "but not their choice."
    )


def predictions(outcome: Outcome) -> str:
    """What the relation does for the travellers that were held out."""
    table = outcome.table()
    real, control = table.loc[RELATION], table.loc[SHUFFLED]
    words = f"Held out, the relation {_changes(real['gain'])} {_size(real)}, {_strength(real)}."
    if _score(control) < 2:
        return f"{words} Shuffled, it {_changes(control['gain'])} {_size(control)}, {_strength(control)}, as it should be."
    return (
        f"{words} But shuffled, it {_changes(control['gain'])} {_size(control)}, {_strength(control)}: "
        "whatever does that is not who resembles whom."
    )


def evidence(outcome: Outcome) -> str:
    """What the log evidence says, and how much of it is not about the relation at all."""
    found = outcome.table()["log_evidence"]
    real, control = found[RELATION] - found[ALONE], found[SHUFFLED] - found[ALONE]
    words = f"Log evidence: {real:+.1f} nats by the relation, {control:+.1f} by the shuffled one"
    if control > max(real, 0) / 2:
        words += ", so that the evidence alone does not tell the two apart"
    return f"{words}. Who resembles whom: {real - control:+.1f} nats."


def share() -> str:
    """The probability of the intervals, in words."""
    return f"{100 * INTERVAL:g} %"


def _score(row: Any) -> float:
    return abs(row["gain"]) / row["gain_se"] if row["gain_se"] > 0 else math.inf


def _changes(gain: float) -> str:
    return "saves" if gain >= 0 else "costs"


def _size(row: Any) -> str:
    return f"{abs(row['gain']):.3f} ± {row['gain_se']:.3f} nats a comparison"


def _strength(row: Any) -> str:
    score = _score(row)
    if score < 1:
        return "which is nothing"
    if score < 2:
        return "which may well be chance"
    return "more than chance explains"
