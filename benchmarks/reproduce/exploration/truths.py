"""Five hidden truths, each drawn anew from a seed. All have as many items, so that they share what
JAX compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.reproduce.neighbours import DERIVED, nearest_neighbours
from benchmarks.simulation import Truth
from relpref import PreferenceData
from relpref.infer import EP
from relpref.models import xpgp

SIZE = 60
COMMUNITIES = 4
ATTRIBUTES = 3
WITHIN, BETWEEN = 0.3, 0.01  # five links within the community of an item, less than one to others
COMPONENTS, NEIGHBOURS = 8, 5

# Two items that have nothing in common differ by √2 · 2 = 2.8 times an answer's noise: about as
# much as the model expects.
ATTRIBUTES_AS_DRAWN = {"attributes_amplitude": 2.0, "attributes_lengthscale": 1.5}
LINKS_AS_DRAWN = {"links_amplitude": 2.0, "links_range": 1.0}


def attributes(seed: int) -> Truth:
    """A smooth function of three attributes, drawn from the model's own prior."""
    rng = np.random.default_rng((1, seed))
    data = _data(_features(rng))
    return Truth(data, _from_prior(data, ATTRIBUTES_AS_DRAWN, rng))


def graph(seed: int) -> Truth:
    """Items without attributes in four communities; utilities drawn from the model's own prior on
    the links.
    """
    rng = np.random.default_rng((2, seed))
    data = _data(pd.DataFrame(index=range(SIZE)), _links(rng))
    return Truth(data, _from_prior(data, LINKS_AS_DRAWN, rng))


def mixed(seed: int) -> Truth:
    """Both, in equal parts."""
    rng = np.random.default_rng((3, seed))
    data = _data(_features(rng), _links(rng))
    return Truth(data, _from_prior(data, ATTRIBUTES_AS_DRAWN | LINKS_AS_DRAWN, rng) / np.sqrt(2))


def misspecified(seed: int) -> Truth:
    """Steps in two attributes (the third says nothing), heavy-tailed effects of communities and
    items, half of the links wrong.
    """
    rng = np.random.default_rng((4, seed))
    features = _features(rng)
    links = _links(rng)
    wrong = rng.random(len(links)) < 0.5
    ends = rng.integers(SIZE, size=(int(wrong.sum()), 2))
    links.loc[wrong, ["source", "target"]] = np.column_stack([ends[:, 0], (ends[:, 1] + 1) % SIZE])
    links = links[links["source"] != links["target"]]
    links = pd.DataFrame(np.sort(links.to_numpy(), axis=1), columns=links.columns).drop_duplicates()
    values = features.to_numpy()
    steps = 3.0 * (values[:, 0] > 0) + 1.5 * (values[:, 1] > 0.5)
    community = rng.standard_t(2, size=COMMUNITIES)[np.arange(SIZE) % COMMUNITIES]
    return Truth(_data(features, links), steps + community + 0.3 * rng.standard_t(2, size=SIZE))


def digits(seed: int) -> Truth:
    """Handwritten digits (UCI) to be sorted by the number they show; whether two 7s are told apart
    is a coin toss.
    """
    images, values = _digits()
    rng = np.random.default_rng((5, seed))
    chosen = np.sort(rng.choice(len(values), SIZE, replace=False))
    pixels = pd.DataFrame(images[chosen], index=range(SIZE))
    components = pd.DataFrame(_components(images)[chosen], index=pixels.index)
    components.columns = [f"component_{number}" for number in components]
    data = _data(components, nearest_neighbours(pixels, NEIGHBOURS), DERIVED)
    return Truth(data, values[chosen].astype(float))


TRUTHS: dict[str, Callable[[int], Truth]] = {
    one.__name__: one for one in (attributes, graph, mixed, misspecified, digits)
}


def _data(
    features: pd.DataFrame, links: pd.DataFrame | None = None, name: str = "links"
) -> PreferenceData:
    relations = {} if links is None else {name: links}
    return PreferenceData.from_tables(features, None, relations)


def _features(rng: np.random.Generator) -> pd.DataFrame:
    columns = [f"attribute_{number}" for number in range(ATTRIBUTES)]
    return pd.DataFrame(rng.standard_normal((SIZE, ATTRIBUTES)), columns=columns)


def _links(rng: np.random.Generator) -> pd.DataFrame:
    """Item i is in community i modulo their number; a path leads through each, and from each to the
    next.
    """
    first, second = np.triu_indices(SIZE, 1)
    together = (second - first) % COMMUNITIES == 0
    linked = rng.random(len(first)) < np.where(together, WITHIN, BETWEEN)
    linked |= (second - first == COMMUNITIES) | ((second < COMMUNITIES) & (second - first == 1))
    return pd.DataFrame({"source": first[linked], "target": second[linked]})


def _from_prior(
    data: PreferenceData, values: dict[str, float], rng: np.random.Generator
) -> np.ndarray:
    """Utilities: without an answer, the posterior is the prior."""
    posterior = EP(xpgp, fixed=values).run(0, data, progress_bar=False, individual=False)
    return posterior.belief.draw(1, rng)[0]


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.data, bunch.target


def _components(images: np.ndarray) -> np.ndarray:
    """The first principal components of all images."""
    centred = images - images.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    return centred @ directions[:COMPONENTS].T
