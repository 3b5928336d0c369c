"""The last chapters: what was done, by whom it was invented, and with which versions."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from numpy.typing import NDArray

from relpref import __version__
from relpref.diagnostics.relations import ATTRIBUTES, parts_of
from relpref.infer import Posterior, UtilityPosterior
from relpref.likelihoods import Logistic
from relpref.report.blocks import Block, Cell, Chapter, Items, Text
from relpref.report.grid import grid
from relpref.report.kernels import kernels

_KERSTING_XU = (
    "K. Kersting and Z. Xu (2009). Learning Preferences with Hidden Common Cause Relations. In: Machine Learning and Knowledge "
    "Discovery in Databases (ECML PKDD 2009)."
)
_CHU_GHAHRAMANI = (
    "W. Chu and Z. Ghahramani (2005). Preference Learning with Gaussian Processes. In: Proceedings of the 22nd International "
    "Conference on Machine Learning (ICML 2005)."
)
_BRADLEY_TERRY = (
    "R. A. Bradley and M. E. Terry (1952). Rank Analysis of Incomplete Block Designs: I. The Method of Paired Comparisons. "
    "Biometrika 39(3/4)."
)
_GLENN_DAVID = (
    "W. A. Glenn and H. A. David (1960). Ties in Paired-Comparison Experiments Using a Modified Thurstone-Mosteller Model. "
    "Biometrics 16(1)."
)
_MINKA = (
    "T. P. Minka (2001). Expectation Propagation for Approximate Bayesian Inference. In: Proceedings of the 17th Conference on "
    "Uncertainty in Artificial Intelligence (UAI 2001)."
)


_WILLIAMS_BARBER = (
    "Williams, C. K. I. and Barber, D. (1998). Bayesian classification with Gaussian processes. "
    "IEEE Transactions on Pattern Analysis and Machine Intelligence 20(12)."
)
_APPROXIMATIONS = {
    "EP": (
        (
            "The posterior was approximated by expectation propagation (Minka 2001), which replaces each answer by a Gaussian "
            "term that is fitted to it in the company of all the others."
        ),
        _MINKA,
    ),
    "Laplace": (
        (
            "The posterior was approximated by Laplace's method: a Gaussian at its mode, as curved as it is there (Williams and Barber "
            "1998). Where answers are few its means lie too near to 0; expectation propagation is more accurate."
        ),
        _WILLIAMS_BARBER,
    ),
}


def methods(posterior: Posterior) -> Chapter:
    """The chapter."""
    blocks: list[Block] = []
    sources = []
    if isinstance(posterior, UtilityPosterior):
        parts = parts_of(posterior)
        relational = any(part != ATTRIBUTES for part in parts)
        sources.append(_KERSTING_XU if relational or not parts else _CHU_GHAHRAMANI)
        if posterior.data.comparisons.tie is not None or posterior.data.comparisons.strength is not None:
            sources.append(_GLENN_DAVID)
        if isinstance(posterior.likelihood, Logistic):
            sources.append(_BRADLEY_TERRY)
        blocks.append(Text(f"{_answers(posterior)} {_utilities(relational)}"))
        words = kernels(posterior)
        if words:
            blocks.append(Text(words))
    if posterior.info["engine"] in _APPROXIMATIONS:
        text, source = _APPROXIMATIONS[posterior.info["engine"]]
        sources.append(source)
        if posterior.hyperparameter_draws:
            text += (
                " The hyperparameters were drawn from their posterior by the no-U-turn sampler on the evidence, and every answer on "
                "this page is an average over the draws, so their uncertainty is in the intervals."
            )
        elif "evaluations" in posterior.info:
            text += (
                " Hyperparameters were set to the values that maximise the evidence and their prior. Their own uncertainty is not "
                "in the intervals, which makes these somewhat too narrow on small data: in a simulation with 20 entities and 30 "
                "answers, intervals of 50, 80 and 95% held the truth in 44, 72 and 90% of the cases."
            )
        blocks.append(Text(text))
    else:
        blocks.append(
            Text("The posterior is represented by draws; means, intervals and ranks are averages over them.")
        )
    if isinstance(posterior, UtilityPosterior):
        text = (
            "Places, their intervals and the probabilities of being the best come from draws of all utilities at once, so they "
            "respect that entities move together. They carry a simulation error of up to one percentage point."
        )
        blocks.append(Text(text))
    if sources:
        blocks.append(Items(sources))
    return Chapter("Methods", blocks)


def versions(posterior: Posterior) -> Chapter:
    """What one needs to make the same page again."""
    rows = [[Cell("relpref"), Cell(__version__)], [Cell("Python"), Cell(platform.python_version())]]
    rows += [[Cell(name), Cell(_version(name))] for name in ("jax", "numpyro", "numpy")]
    rows.append([Cell("Random key"), Cell(_key(posterior.key))])
    text = "The same data, options, key and versions give the same page, byte for byte, on the same machine."
    return Chapter(
        "Versions", [grid("Versions and random key", ("What", "Value"), rows), Text(text, small=True)]
    )


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
    composed = posterior.info.get("answers")
    return f"{text} The answers are {composed.split(': ')[-1]}." if composed else text


def _utilities(relational: bool) -> str:
    text = "The utilities are a Gaussian process a priori: "
    if relational:
        return text + (
            "a sum of one part that varies smoothly with the attributes and one part for each relation, which varies smoothly "
            "along its links, as if entities that are linked had a common cause (Kersting and Xu 2009)."
        )
    return text + "they vary smoothly with the attributes (Chu and Ghahramani 2005)."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _key(words: NDArray[Any]) -> str:
    """A key made by ``jax.random.key(seed)`` as its seed, another by its words."""
    numbers = [int(word) for word in words]
    return f"seed {numbers[1]}" if len(numbers) == 2 and numbers[0] == 0 else " ".join(map(str, numbers))
