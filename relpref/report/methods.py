"""The last chapters: what was done, by whom it was invented, and with which versions."""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from numpy.typing import NDArray

from relpref._version import __version__
from relpref.infer import Posterior
from relpref.report.blocks import Block, Cell, Chapter, Items, Text
from relpref.report.foreign import AnyPosterior
from relpref.report.model import engine_of
from relpref.report.plots import grid

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
    "Chung 2005": (
        "F. Chung (2005). Laplacians and the Cheeger Inequality for Directed Graphs. Annals of Combinatorics 9(1)."
    ),
    "Agresti 2013": "A. Agresti (2013). Categorical Data Analysis, section 8.3.4. Wiley, 3rd edition.",
    "Pahikkala et al. 2010": (
        "T. Pahikkala, W. Waegeman, A. Airola, T. Salakoski and B. De Baets (2010). Conditional Ranking on Relational Data. In: Machine "
        "Learning and Knowledge Discovery in Databases (ECML PKDD 2010)."
    ),
    "Pahikkala et al. 2013": (
        "T. Pahikkala, A. Airola, M. Stock, B. De Baets and W. Waegeman (2013). Efficient Regularized Least-Squares Algorithms for "
        "Conditional Ranking on Relational Data. Machine Learning 93."
    ),
    "Hoffman and Gelman 2014": (
        "M. D. Hoffman and A. Gelman (2014). The No-U-Turn Sampler: Adaptively Setting Path Lengths in Hamiltonian Monte Carlo. "
        "Journal of Machine Learning Research 15."
    ),
}


def methods(paragraphs: Sequence[str], cited: Iterable[str] = ()) -> Chapter:
    """The chapter, with the sources that its paragraphs cite, and those that are given."""
    blocks: list[Block] = [Text(paragraph) for paragraph in paragraphs if paragraph]
    sources = {source for cited, source in _SOURCES.items() if cited in " ".join(paragraphs)}
    if sources | set(cited):
        blocks.append(Items(sorted(sources | set(cited))))
    return Chapter("Methods", blocks)


def approximation(posterior: Posterior) -> str:
    """How the posterior was computed."""
    engine = engine_of(posterior)
    if engine is None:
        return "The posterior is represented by draws; means, intervals and ranks are averages over them."
    text = engine.sentence
    if posterior.prior_log_weights is not None and posterior.log_evidence is not None:
        return text + (
            f" Every answer on this page is an average over {len(posterior.belief.weights)} values of the hyperparameters, weighted by "
            "their prior and the evidence, so their uncertainty is in the intervals."
        )
    if posterior.hyperparameter_draws:
        return text + (
            " The hyperparameters were drawn from their posterior by the no-U-turn sampler (Hoffman and Gelman 2014) on the "
            "evidence, and every answer on this page is an average over the draws, so their uncertainty is in the intervals."
        )
    if posterior.searched:
        return text + (
            " Hyperparameters were set to the values that maximise the evidence and their prior. Their own uncertainty is not "
            "in the intervals, which makes these somewhat too narrow on small data."
        )
    return text


def versions(posterior: AnyPosterior) -> Chapter:
    """What one needs to make the same page again."""
    rows = [[Cell("relpref"), Cell(__version__)], [Cell("Python"), Cell(platform.python_version())]]
    rows += [[Cell(name), Cell(_version(name))] for name in ("jax", "numpyro", "numpy")]
    rows.append([Cell("Random key"), Cell(_key(posterior.key))])
    text = "The same data, options, key and versions give the same page, byte for byte, on the same machine."
    return Chapter(
        "Versions", [grid("Versions and random key", ("What", "Value"), rows), Text(text, small=True)]
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _key(words: NDArray[Any]) -> str:
    """A key made by ``jax.random.key(seed)`` as its seed, another by its words."""
    numbers = [int(word) for word in words]
    return f"seed {numbers[1]}" if len(numbers) == 2 and numbers[0] == 0 else " ".join(map(str, numbers))
