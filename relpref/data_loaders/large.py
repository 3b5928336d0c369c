"""A drawn problem of any size: a graph with hubs and communities, utilities that are smooth over it, and answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.sparse
import scipy.special
from numpy.typing import NDArray

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.memory import require_memory

_INSIDE = 0.8  # share of the links that stay within a community
_STEPS = 20  # of diffusion: what differs within a community is gone long before what differs between two
_ROUGH = 0.3  # standard deviation of what the graph does not tell about a utility
_BYTES_PER_LINK, _BYTES_PER_ENTITY = 150, 400  # at the peak


@dataclass(frozen=True, eq=False)
class PowerLaw:
    """A drawn problem and its solution.

    Attributes
    ----------
    data : PreferenceData
        With the relation ``links``.
    utilities : array of float64, shape (n,)
        From which the answers were drawn; mean 0 and variance 1 over the entities.
    """

    data: PreferenceData
    utilities: NDArray[np.float64]


def power_law(
    num_entities: int,
    num_links: int,
    answers: int,
    *,
    attributes: int = 0,
    exponent: float = 2.5,
    seed: int | tuple[int, ...] = 0,
) -> PowerLaw:
    """Draw a graph whose degrees follow a power law, utilities that are smooth over it, and answers to pairs.

    Parameters
    ----------
    num_entities : int
        Entities n, from 3 on, in the order of the labels ``e0``, ``e1``, ...
    num_links : int
        Distinct links, each of weight 1; at most n(n − 1)/(4g) for the g communities, about the cube root of n.
    answers : int
        Each to a pair of two entities, which are asked about in proportion to their numbers of links.
    attributes : int
        Columns of independent normal numbers; with them, half of the variance of the utilities is linear in them.
    exponent : float
        The share of entities with d links falls like d to minus this power; above 2.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Returns
    -------
    PowerLaw

    Raises
    ------
    DataError
        If a number is out of its range, or the problem would not fit into memory.

    Notes
    -----
    The ends of links are drawn in proportion to given weights (Chung & Lu 2002, PNAS 99), cut off at the degree √(2e), above which
    a pair would be linked more than once; four of five links stay within a community. Utilities are noise after 20 steps of
    diffusion along the links (and a little noise that is not smoothed); the better of two wins with the probability Φ(difference).
    """
    communities = max(1, round(num_entities ** (1 / 3)))
    _check(num_entities, num_links, answers, attributes, exponent, communities)
    require_memory(
        _BYTES_PER_LINK * num_links + (_BYTES_PER_ENTITY + 8.0 * attributes) * num_entities,
        f"drawing {num_links} links of {num_entities} entities",
    )
    rng = np.random.default_rng(seed)
    adjacency = _graph(rng, num_entities, num_links, exponent, communities)
    utilities = _standard(_smooth(rng, adjacency)) * np.sqrt(1 - _ROUGH**2)
    utilities = _standard(utilities + _ROUGH * rng.standard_normal(num_entities))
    columns = rng.standard_normal((num_entities, attributes))
    if attributes:
        utilities = _standard(utilities + _standard(columns @ rng.standard_normal(attributes)))
    labels = [f"e{position}" for position in range(num_entities)]
    names = [f"x{column}" for column in range(attributes)]
    entities = pd.DataFrame(columns, index=labels, columns=names) if attributes else labels
    data = PreferenceData.from_tables(
        entities, _answers(rng, adjacency, utilities, answers, labels), {"links": adjacency}
    )
    return PowerLaw(data, utilities)


def _check(n: int, links: int, answers: int, attributes: int, exponent: float, communities: int) -> None:
    most = n * (n - 1) // (4 * communities)
    for name, value, fits, words in (
        ("num_entities", n, n >= 3, "give 3 or more"),
        ("num_links", links, 1 <= links <= most, f"{n} entities can have 1 to {most} here"),
        ("answers", answers, answers >= 0, "give 0 or more"),
        ("attributes", attributes, attributes >= 0, "give 0 or more"),
        ("exponent", exponent, 2 < exponent < np.inf, "it must be a finite number above 2"),
    ):
        if not fits:
            raise DataError(f"{name} is {value}; {words}")


def _graph(rng: np.random.Generator, n: int, links: int, exponent: float, communities: int) -> Any:
    """Symmetric adjacency matrix; the number of a node says nothing about its degree."""
    power = 1 - 1 / (exponent - 1)
    shift = _shift(n, links, power)

    def ranks(size: int) -> NDArray[np.int64]:
        """Drawn in proportion to (r + shift)^(power − 1), by inverting its integral."""
        low, high = shift**power, (n + shift) ** power
        drawn = (low + rng.random(size) * (high - low)) ** (1 / power) - shift
        return np.clip(drawn.astype(np.int64), 0, n - 1)

    keys = np.zeros(0, dtype=np.int64)
    while missing := links - keys.size:
        one, other = ranks(missing), ranks(missing)
        # Ranks belong to the communities in turn, so that each has its hubs.
        own = other - other % communities + one % communities
        other = np.where((rng.random(missing) < _INSIDE) & (own < n), own, other)
        key = np.minimum(one, other) * n + np.maximum(one, other)
        # Those that are there already are in order, which a stable sort uses.
        keys = np.sort(np.concatenate([keys, key[one != other]]), kind="stable")
        keys = keys[np.diff(keys, prepend=-1) > 0]
    place = rng.permutation(n).astype(np.int32)
    ends = place[keys // n], place[keys % n]
    upper = scipy.sparse.coo_array((np.ones(links), ends), shape=(n, n)).tocsr()
    return upper + upper.T


def _shift(n: int, links: int, power: float) -> float:
    """What is added to ranks so that the first one expects √(2e) of the 2e ends, or almost nothing where it expects fewer."""

    def excess(log_shift: float) -> float:
        first, all_of_them = (np.expm1(power * np.log1p(size * np.exp(-log_shift))) for size in (1, n))
        return float(np.sqrt(2 * links) * first - all_of_them)

    lowest, highest = -20.0, np.log(n) + 10
    return float(np.exp(lowest if excess(lowest) <= 0 else scipy.optimize.brentq(excess, lowest, highest)))


def _smooth(rng: np.random.Generator, adjacency: Any) -> NDArray[np.float64]:
    """Noise that random walks have averaged, without the constant to which they would all come."""
    degree = adjacency.sum(axis=1)
    values = rng.standard_normal(degree.size)
    for _ in range(_STEPS):
        values = adjacency @ values / np.maximum(degree, 1)
        values -= degree @ values / degree.sum()
        values /= np.abs(values).max() or 1.0
    return np.asarray(values)


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean()
    return np.asarray(centred / (centred.std() or 1.0))


def _answers(
    rng: np.random.Generator, adjacency: Any, utilities: NDArray[np.float64], number: int, labels: list[str]
) -> pd.DataFrame | None:
    if not number:
        return None
    # An end of a link drawn at random is a node in proportion to its degree.
    first = adjacency.indices[rng.integers(adjacency.nnz, size=number)]
    second = adjacency.indices[rng.integers(adjacency.nnz, size=number)]
    second = np.where(first == second, (second + 1) % utilities.size, second)
    wins = rng.random(number) < scipy.special.ndtr(utilities[first] - utilities[second])
    named = np.asarray(labels, dtype=object)
    return pd.DataFrame(
        {"winner": named[np.where(wins, first, second)], "loser": named[np.where(wins, second, first)]}
    )
