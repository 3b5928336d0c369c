"""How well answers that were left out were predicted: the measures, and a picture of calibration."""

import numpy as np

from relpref.diagnostics import HeldOut
from relpref.infer import Posterior
from relpref.posterior.gaussian import Floats
from relpref.report.blocks import Block, Cell, Items, Picture, Text, fixed, percent, sentence
from relpref.report.plots import NARROW, WIDE, calibration, grid

_FEWEST = 20  # answers that a picture of calibration needs
_READINGS = {
    "log_loss": ("Log loss", "the average of −log probability of what was answered; 0 for a prophet"),
    "brier": (
        "Brier score",
        "the average of half the squared distance between probability and outcome; 0 for a prophet",
    ),
    "accuracy": ("Accuracy", "how often the more probable was answered; 1 for a prophet"),
    "auc": (
        "AUC",
        "how often, of two cases, the one where it came true had the higher probability; 1 for a prophet",
    ),
}


def measures(held: HeldOut) -> Block:
    rows: list[list[Cell | str]] = []
    for name, row in held.summary().iterrows():
        if name not in _READINGS or not np.isfinite(row["value"]):
            continue
        title, reading = _READINGS[str(name)]
        value = float(row["value"])
        if name == "log_loss" and (held.outcome < 0).any():
            title, value = "Log density", -value
            reading = (
                "the average of the log density of what was observed: the higher the better; it has no bound, depends on the units, and "
                "there is no guessing to hold it against, so compare it between models of the same numbers"
            )
        elif name == "accuracy" and held.paired and (held.outcome == 1).any():
            reading = f"{reading}; ties aside"
        error = f"± {fixed(row['se'], 3)}" if np.isfinite(row["se"]) else ""
        base = fixed(row["baseline"], 3) if np.isfinite(row["baseline"]) else ""
        rows.append([title, fixed(value, 3), error, base, reading])
    columns = ("Measure", "Value", "Standard error", "Guessing", "How to read it")
    return grid("What was left out and predicted", columns, rows, (1, 2, 3))


def notes(held: HeldOut) -> list[Block]:
    """What is to be known of how answers were left out."""
    return [Items([sentence(note) for note in held.notes])] if held.notes else []


def favourites(held: HeldOut) -> tuple[Floats, Floats] | None:
    """Probability of each answer's favourite, the most probable outcome, and whether it came true; None for numbers.

    The favourite is one event for each answer: who is named first in a table is an accident, and both sides of an answer
    would count it twice.
    """
    forecasts = held.forecasts
    if forecasts is None:
        return None
    categories = [0, 2] if forecasts.paired else list(range(forecasts.chances.shape[1]))
    chances = forecasts.chances[:, categories]
    best = chances.argmax(axis=1)
    right = (np.asarray(categories)[best] == forecasts.outcome).astype(np.float64)
    count = np.round(forecasts.weight).astype(int)
    return np.repeat(chances.max(axis=1), count), np.repeat(right, count)


def calibrated(held: HeldOut, posterior: Posterior) -> list[Block]:
    """A sentence and a picture on whether probabilities can be taken at their word."""
    found = favourites(held)
    if found is None:
        return []
    predicted, right = found
    number = len(predicted)
    if number < _FEWEST:
        return [
            Text(f"{number} answers are too few to say whether the probabilities can be taken at their word.")
        ]
    expected, observed = float(predicted.mean()), float(right.mean())
    # Of a sum of independent outcomes with these probabilities.
    error = float(np.sqrt(np.sum(predicted * (1 - predicted)))) / number
    gap = (observed - expected) / error if error > 0 else 0.0
    verdict = "That fits: the probabilities can be taken at their word."
    if gap < -2:
        verdict = "That is less than it should be: the model is too sure of itself, and true probabilities are nearer to even."
    elif gap > 2:
        verdict = "That is more than it should be: the model is too careful, and true probabilities are further from even."
    ties = held.paired and bool((held.outcome == 1).any())
    tied = ", where a tie counts as a favourite that failed" if ties else ""
    text = (
        f"The model expects its favourites to come true in {percent(expected)} of the cases, give or take {percent(error)}; "
        f"they did in {percent(observed)}{tied}. {verdict}"
    )
    description = (
        "A line that says how often the favourite came true, by the probability that it was given; a dashed diagonal, on which the "
        "line lies if the probabilities are right; and a band around it for chance."
    )
    wide, narrow = (
        calibration(predicted, right, f"calibration{shape.width:.0f}", description, _seed(posterior), shape)
        for shape in (WIDE, NARROW)
    )
    caption = (
        "How often the favourite came true, by the probability it was given. If the probabilities are right, the line stays in the band "
        "nine times out of ten at every point."
    )
    return [Text(text), Picture(wide, caption, narrow=narrow)]


def _seed(posterior: Posterior) -> int:
    return int(posterior.key[-1])
