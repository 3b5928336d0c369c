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

# As the text cites them -> the source.
_SOURCES = {
    "Kersting and Xu 2009": (
        "K. Kersting and Z. Xu (2009). Learning Preferences with Hidden Common Cause Relations. In: Machine Learning and Knowledge "
        "Discovery in Databases (ECML PKDD 2009)."
    ),
    "Chu and Ghahramani 2005": (
        "W. Chu and Z. Ghahramani (2005). Preference Learning with Gaussian Processes. In: Proceedings of the 22nd International "
        "Conference on Machine Learning (ICML 2005)."
    ),
    "Glenn and David 1960": (
        "W. A. Glenn and H. A. David (1960). Ties in Paired-Comparison Experiments Using a Modified Thurstone-Mosteller Model. "
        "Biometrics 16(1)."
    ),
    "Bradley and Terry 1952": (
        "R. A. Bradley and M. E. Terry (1952). Rank Analysis of Incomplete Block Designs: I. The Method of Paired Comparisons. "
        "Biometrika 39(3/4)."
    ),
    "Silva, Chu and Ghahramani 2007": (
        "R. Silva, W. Chu and Z. Ghahramani (2007). Hidden Common Cause Relations in Relational Learning. In: Advances in Neural "
        "Information Processing Systems 20 (NIPS 2007)."
    ),
    "Chung 2005": (
        "F. Chung (2005). Laplacians and the Cheeger Inequality for Directed Graphs. Annals of Combinatorics 9(1)."
    ),
    "Minka 2001": (
        "T. P. Minka (2001). Expectation Propagation for Approximate Bayesian Inference. In: Proceedings of the 17th Conference on "
        "Uncertainty in Artificial Intelligence (UAI 2001)."
    ),
    "Williams and Barber 1998": (
        "C. K. I. Williams and D. Barber (1998). Bayesian Classification with Gaussian Processes. "
        "IEEE Transactions on Pattern Analysis and Machine Intelligence 20(12)."
    ),
    "Hoffman and Gelman 2014": (
        "M. D. Hoffman and A. Gelman (2014). The No-U-Turn Sampler: Adaptively Setting Path Lengths in Hamiltonian Monte Carlo. "
        "Journal of Machine Learning Research 15."
    ),
}
_APPROXIMATIONS = {
    "EP": (
        "The posterior was approximated by expectation propagation (Minka 2001), which replaces each answer by a Gaussian "
        "term that is fitted to it in the company of all the others."
    ),
    "Laplace": (
        "The posterior was approximated by Laplace's method: a Gaussian at its mode, as curved as it is there (Williams and Barber "
        "1998). Where answers are few its means lie too near to 0; expectation propagation is more accurate."
    ),
}
# Of EP at maximised hyperparameters.
_COVERAGE = ": in a simulation with 20 entities and 30 answers, intervals of 50, 80 and 95% held the truth in 44, 72 and 90% of the cases."


def methods(posterior: Posterior) -> Chapter:
    """The chapter."""
    paragraphs = []
    if isinstance(posterior, UtilityPosterior):
        parts = parts_of(posterior)
        relational = any(part != ATTRIBUTES for part in parts)
        paragraphs += [f"{_answers(posterior)} {_utilities(relational)}", kernels(posterior)]
    engine = posterior.info["engine"]
    if engine in _APPROXIMATIONS:
        text = _APPROXIMATIONS[engine]
        if posterior.hyperparameter_draws:
            text += (
                " The hyperparameters were drawn from their posterior by the no-U-turn sampler (Hoffman and Gelman 2014) on the "
                "evidence, and every answer on this page is an average over the draws, so their uncertainty is in the intervals."
            )
        elif "evaluations" in posterior.info:
            text += (
                " Hyperparameters were set to the values that maximise the evidence and their prior. Their own uncertainty is not "
                "in the intervals, which makes these somewhat too narrow on small data"
            )
            text += _COVERAGE if engine == "EP" else "."
        paragraphs.append(text)
    else:
        paragraphs.append(
            "The posterior is represented by draws; means, intervals and ranks are averages over them."
        )
    if isinstance(posterior, UtilityPosterior):
        paragraphs.append(
            "Places, their intervals and the probabilities of being the best come from draws of all utilities at once, so they "
            "respect that entities move together. They carry a simulation error of up to one percentage point."
        )
    blocks: list[Block] = [Text(paragraph) for paragraph in paragraphs if paragraph]
    sources = [source for cited, source in _SOURCES.items() if cited in " ".join(paragraphs)]
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
