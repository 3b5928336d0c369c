"""What was done, in words: the model of answers and utilities, and how places come about."""

import numpy as np

from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL, parts_of
from relpref.infer import UtilityPosterior
from relpref.infer.large.belief import ImplicitBelief
from relpref.likelihoods import Logistic
from relpref.report.methods import approximation
from relpref.report.text import listed
from relpref.report.utilities.kernels import kernels

_COVERAGE = (
    "In a simulation with 20 entities and 30 answers, intervals of 50, 80 and 95% from expectation propagation at maximized "
    "hyperparameters held the truth in 44, 72 and 90% of the cases, and averaged over hyperparameters in 49, 79 and 95%."
)


def methods(posterior: UtilityPosterior) -> list[str]:
    """Paragraphs."""
    paragraphs = [f"{_answers(posterior)} {_utilities(posterior)}", kernels(posterior)]
    paragraphs.append(approximation(posterior))
    searched = "evaluations" in posterior.info
    if posterior.info["engine"] == "EP" and searched:
        paragraphs[-1] += f" {_COVERAGE}"
    which = "the utilities shown, all" if isinstance(posterior.belief, ImplicitBelief) else "all utilities"
    paragraphs.append(
        f"Places, their intervals and the probabilities of being the best come from draws of {which} at once, so they "
        f"respect that entities move together. They carry a simulation error of up to {_simulation_error(posterior)}."
    )
    return paragraphs


def _simulation_error(posterior: UtilityPosterior) -> str:
    """Of a probability near one half, from 4000 draws, or from as many as there are."""
    weights = posterior.belief.weights
    if len(weights) == 1 or np.ptp(weights):
        return "one percentage point"
    kept = len(weights)
    effective = min(float(posterior.info.get("ess", kept)), kept)
    more = "" if "ess" in posterior.info else ", more where draws resemble each other"
    return f"{50 / np.sqrt(max(effective, 1.0)):.0f} percentage points{more}"


def _answers(posterior: UtilityPosterior) -> str:
    """How answers come about, from the columns that are there."""
    answers = posterior.data.comparisons
    logistic = isinstance(posterior.likelihood, Logistic)
    noise = "logistic" if logistic else "Gaussian"
    function = "the logistic function" if logistic else "Φ"
    text = "Every entity has a hidden utility, and "
    if answers.probability is not None:
        text += "a reported probability is Φ of the difference of two utilities, seen with a Gaussian error."
    elif answers.tie is not None or answers.strength is not None:
        said = " and ".join(
            words
            for words, column in (
                ("a tie where it is small", answers.tie),
                ("the stronger the larger it is", answers.strength),
            )
            if column is not None
        )
        text += f"an answer follows the difference of two utilities, seen with Gaussian noise: {said} (Glenn and David 1960)."
    else:
        text += f"an answer favours the first of two with the probability {function} of the difference of their utilities"
        text += " (Bradley and Terry 1952)." if logistic else "."
    if answers.rater is not None:
        text += f" The {noise} noise of each rater has a scale of its own, 1 for a typical one."
    if answers.shown_first is not None:
        text += " The entity that is shown first may gain by it."
    if "lapse" in posterior.hyperparameters:
        text += " Some answers are given at random, whatever the difference; their share is a hyperparameter."
    composed = posterior.info.get("answers")
    return f"{text} The answers are {composed.split(': ')[-1]}." if composed else text


def _utilities(posterior: UtilityPosterior) -> str:
    parts = parts_of(posterior)
    smooth = ATTRIBUTES in parts if parts else bool(posterior.data.attribute_names)
    text = "The utilities are a Gaussian process a priori"
    related = any(part not in (ATTRIBUTES, INDIVIDUAL) for part in parts)
    own = "one part for each entity itself, which is independent of all others"
    if related:
        summands = [
            *(["one part that varies smoothly with the attributes"] if smooth else []),
            "one part for each relation, which varies smoothly along its links, as if entities that are linked had a common cause (Kersting and Xu 2009)",
            *([own] if INDIVIDUAL in parts else []),
        ]
        return f"{text}: a sum of {listed(summands)}."
    if smooth:
        more = f", and have {own}" if INDIVIDUAL in parts else ""
        return f"{text}: they vary smoothly with the attributes (Chu and Ghahramani 2005){more}."
    if INDIVIDUAL in parts:
        return f"{text}: those of different entities are independent (Thurstone 1927)."
    return f"{text}."
