"""Problems that are drawn at random: dishes, rock, paper, scissors, and a graph with hubs of any size."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.sparse
import scipy.special
from numpy.typing import NDArray

from relpref.data import PreferenceData
from relpref.data.rankings import Rankings
from relpref.errors import DataError
from relpref.memory import require_memory

# Table 3 of the paper.
DISHES = pd.DataFrame(
    {
        "sweet": [0.9, 0.7, 1.0, 0.0, 0.2, 0.1, 0.4, 0.4],
        "savoury": [0.0, 0.1, 0.0, 0.8, 0.8, 1.0, 0.7, 0.9],
        "juicy": [0.3, 0.0, 0.7, 0.8, 0.9, 1.0, 0.7, 0.6],
    },
    index=pd.Index(
        ["cake", "biscuit", "gelato", "steak", "burger", "sausage", "pasta", "pizza"], name="dish"
    ),
)
_IMPORTANCE = {"sweet": (1, 0.17, 0.09), "juicy": (0.09, 0.17, 1)}


def rank_dishes(number: int, noise: float, seed: int | tuple[int, ...] = 0) -> Rankings:
    """Draw full rankings of eight dishes (section 4.1 of the paper); `Rankings` censors them to the other kinds.

    Parameters
    ----------
    number : int
        How many; half of them by eaters who like it sweet, half by those who like it juicy. At least 2.
    noise : float
        Standard deviation of the Gaussian noise that each eater adds to the score of each dish; 0 or more.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Returns
    -------
    Rankings
        Labeled ``"sweet"`` or ``"juicy"`` (the paper's types one and two), with the attributes of the dishes.

    Raises
    ------
    DataError
        If a number is out of its range.

    Notes
    -----
    A score weights the attribute that the eater likes best by 1, the next by 0.17, the last by 0.09. The scores are those of the
    paper's Table 4, where type two gives gelato 0.79 and pizza 0.79: unrounded, gelato is the better by 0.001, while the paper's
    Table 5 has pizza before gelato.
    """
    if number < 2:
        raise DataError(f"number is {number}; both types need at least one eater, so at least 2")
    if not (np.isfinite(noise) and noise >= 0):
        raise DataError(f"noise is {noise}; it must be a finite number, 0 or more")
    rng = np.random.default_rng(seed)
    types = np.resize(list(_IMPORTANCE), number)
    scores = np.array([DISHES.to_numpy() @ _IMPORTANCE[one] for one in types])
    scores += noise * rng.standard_normal(scores.shape)
    return Rankings.from_scores(scores, items=DISHES).with_labels(types)


MOVES = ("rock", "paper", "scissors")
# Row against column: 1 wins, -1 loses.
_BEATS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])


@dataclass(frozen=True, eq=False)
class RockPaperScissors:
    """Games among some players, and what would happen among others.

    Attributes
    ----------
    players, test_players : DataFrame, shape (n, 3)
        How likely each player shows ``rock``, ``paper`` and ``scissors``; rows add up to 1.
    games : DataFrame
        ``source``, ``target``, ``value``: 1 if the source won, -1 if the target did; one row for each game.
    test_relation : DataFrame, shape (n, n)
        Probability that the player of the row beats the player of the column; NaN on the diagonal.
    """

    players: pd.DataFrame
    games: pd.DataFrame
    test_players: pd.DataFrame
    test_relation: pd.DataFrame


def play_rock_paper_scissors(
    weight: float, *, players: int = 100, games: int = 1000, seed: int | tuple[int, ...] = 0
) -> RockPaperScissors:
    """Draw players and games (the task of Pahikkala et al. 2010, section 6.1).

    Parameters
    ----------
    weight : float
        How one-sided the players are: about 1 they show every move almost equally often, about 100 nearly always the same. 0 or
        more.
    players : int
        In each of the two groups; at least 2.
    games : int
        Between two different players of the first group, drawn with equal probabilities.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Returns
    -------
    RockPaperScissors

    Raises
    ------
    DataError
        If a number is out of its range.

    Notes
    -----
    The generator of the paper is described elsewhere and not public; this one is ours. A player shows a move with a probability
    proportional to exp(weight·z/3), with z uniform between 0 and 1 for each player and move. A draw is decided by a coin, so that
    the probability to win is 1/2 + (P(winning moves) - P(losing moves))/2: bilinear in the two players' probabilities, which a
    linear kernel on players can represent. The divisor 3 was chosen because the errors of regularized least squares at the
    weights 1, 10 and 100 then are of the size that the paper reports (.49, .042, .0014).
    """
    if not (np.isfinite(weight) and weight >= 0):
        raise DataError(f"weight is {weight}; it must be a finite number, 0 or more")
    if players < 2:
        raise DataError(f"players is {players}; a game needs at least 2")
    if games < 1:
        raise DataError(f"games is {games}; it must be at least 1")
    rng = np.random.default_rng(seed)
    known, new = _players(rng, weight, players, "player"), _players(rng, weight, players, "new_player")
    first = rng.integers(players, size=games)
    second = (first + rng.integers(1, players, size=games)) % players
    shown = [_moves(rng, known.to_numpy()[one]) for one in (first, second)]
    won = _BEATS[shown[0], shown[1]]
    outcome = np.where(won == 0, rng.choice([-1, 1], games), won)
    labels = known.index.to_numpy()
    return RockPaperScissors(
        players=known,
        games=pd.DataFrame(
            {"source": labels[first], "target": labels[second], "value": outcome.astype(np.float64)}
        ),
        test_players=new,
        test_relation=_relation(new),
    )


def _players(rng: np.random.Generator, weight: float, number: int, name: str) -> pd.DataFrame:
    scale = weight * rng.random((number, len(MOVES))) / 3
    odds = np.exp(scale - scale.max(axis=1, keepdims=True))
    width = len(str(number - 1))
    index = pd.Index([f"{name}_{at:0{width}d}" for at in range(number)], name="player")
    return pd.DataFrame(odds / odds.sum(axis=1, keepdims=True), index=index, columns=list(MOVES))


def _moves(rng: np.random.Generator, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    below = np.cumsum(probabilities, axis=1)[:, :-1]
    return np.sum(rng.random((len(probabilities), 1)) > below, axis=1)


def _relation(players: pd.DataFrame) -> pd.DataFrame:
    chances = players.to_numpy()
    winning = 0.5 + 0.5 * chances @ _BEATS @ chances.T
    np.fill_diagonal(winning, np.nan)
    return pd.DataFrame(winning, index=players.index, columns=players.index)


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
    centered = values - values.mean()
    return np.asarray(centered / (centered.std() or 1.0))


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
