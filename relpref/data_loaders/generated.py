"""Problems drawn at random: dishes, rock, paper, scissors, and a graph with hubs of any size."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.sparse
import scipy.special
from numpy.random import Generator

from relpref.data import PreferenceData
from relpref.data.arrays import Floats, Integers
from relpref.data.rankings import Rankings
from relpref.errors import DataError
from relpref.limits import require_memory

# Table 3 of Conserva, Deisenroth & Kumar 2022.
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


def _check(*numbers: tuple[str, float, bool, str]) -> None:
    """Refuse the first number that is out of range: name, value, whether it is in range, remedy."""
    for name, value, valid, remedy in numbers:
        if not valid:
            raise DataError(f"{name} is {value}; {remedy}")


def rank_dishes(number: int, noise: float, seed: int | tuple[int, ...] = 0) -> Rankings:
    """Draw full rankings of eight dishes; `Rankings` censors them to the other kinds.

    They are those of section 4.1 of Conserva, Deisenroth & Kumar 2022.

    Parameters
    ----------
    number : int
        At least 2. Half of the rankings are by eaters who like it sweet, half by those who like it
        juicy.
    noise : float
        Standard deviation of the Gaussian noise that each eater adds to the score of each dish; 0
        or more.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Returns
    -------
    Rankings
        Labeled ``"sweet"`` or ``"juicy"`` (the paper's types one and two), with the attributes of
        the dishes.

    Notes
    -----
    A score weights the attribute that the eater likes best by 1, the next by 0.17, the last by 0.09
    (the paper's Table 4). Type two prefers gelato to pizza by 0.001; the paper's Table 5, from
    rounded scores, has pizza first.
    """
    _check(
        ("number", number, number >= 2, "both types need at least one eater, so at least 2"),
        ("noise", noise, 0 <= noise < np.inf, "it must be a finite number, 0 or more"),
    )
    rng = np.random.default_rng(seed)
    types = np.resize(list(_IMPORTANCE), number)
    scores = np.array([DISHES.to_numpy() @ _IMPORTANCE[name] for name in types])
    scores += noise * rng.standard_normal(scores.shape)
    return Rankings.from_scores(scores, items=DISHES).with_labels(types)


MOVES = ("rock", "paper", "scissors")
# Row against column: 1 wins, -1 loses.
_BEATS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])


@dataclass(frozen=True, eq=False)
class RockPaperScissors:
    """Games among some players, and probabilities of games among others.

    Attributes
    ----------
    players, test_players : DataFrame, shape (n, 3)
        Probabilities that a player shows ``rock``, ``paper`` and ``scissors``; rows add up to 1.
    games : DataFrame
        ``source``, ``target``, ``value``: 1 if the source won, -1 if the target did; one row for
        each game.
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
        One-sidedness of the players, 0 or more: about 1 they show every move almost equally often,
        about 100 nearly always the same.
    players : int
        In each of the two groups; at least 2.
    games : int
        Between two different players of the first group, drawn with equal probabilities.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Notes
    -----
    The generator of the paper is not public; this one is ours. A player shows a move with a
    probability proportional to exp(weight·z/3), with z uniform between 0 and 1 for each player and
    move. A draw is decided by a coin, so that the probability to win is 1/2 + (P(winning moves) -
    P(losing moves))/2: bilinear in the two players' probabilities, which a linear kernel on players
    can represent. With the divisor 3 the errors of regularized least squares at the weights 1, 10
    and 100 are of the size that the paper reports (.49, .042, .0014).
    """
    _check(
        ("weight", weight, 0 <= weight < np.inf, "it must be a finite number, 0 or more"),
        ("players", players, players >= 2, "a game needs at least 2"),
        ("games", games, games >= 1, "it must be at least 1"),
    )
    rng = np.random.default_rng(seed)
    trained = _players(rng, weight, players, "player")
    new = _players(rng, weight, players, "new_player")
    first = rng.integers(players, size=games)
    second = (first + rng.integers(1, players, size=games)) % players
    moves = [_moves(rng, trained.to_numpy()[player]) for player in (first, second)]
    won = _BEATS[moves[0], moves[1]]
    outcome = np.where(won == 0, rng.choice([-1, 1], games), won)
    table = {
        "source": trained.index[first],
        "target": trained.index[second],
        "value": outcome.astype(np.float64),
    }
    chances = new.to_numpy()
    winning = 0.5 + 0.5 * chances @ _BEATS @ chances.T
    np.fill_diagonal(winning, np.nan)
    relation = pd.DataFrame(winning, index=new.index, columns=new.index)
    return RockPaperScissors(trained, pd.DataFrame(table), new, relation)


def _players(rng: Generator, weight: float, number: int, name: str) -> pd.DataFrame:
    """Draw the probabilities of each player's moves."""
    odds = scipy.special.softmax(weight * rng.random((number, len(MOVES))) / 3, axis=1)
    width = len(str(number - 1))
    index = pd.Index([f"{name}_{at:0{width}d}" for at in range(number)], name="player")
    return pd.DataFrame(odds, index=index, columns=list(MOVES))


def _moves(rng: Generator, probabilities: Floats) -> Integers:
    """Draw a move for each row of probabilities."""
    below = np.cumsum(probabilities, axis=1)[:, :-1]
    return np.sum(rng.random((len(probabilities), 1)) > below, axis=1)


_INSIDE = 0.8  # share of the links that stay within a community
# Diffusion: differences within a community vanish long before those between two.
_STEPS = 20
_ROUGH = 0.3  # standard deviation of the part of a utility that does not follow the graph
_BYTES_PER_LINK, _BYTES_PER_ITEM = 150, 400  # at the peak


@dataclass(frozen=True, eq=False)
class PowerLaw:
    """A drawn problem and its solution.

    Attributes
    ----------
    data : PreferenceData
        Items and answers with the relation ``links``.
    utilities : array of float64, shape (n,)
        Utilities that the answers were drawn from; mean 0 and variance 1 over the items.
    """

    data: PreferenceData
    utilities: Floats


def power_law(
    num_items: int,
    num_links: int,
    answers: int,
    *,
    attributes: int = 0,
    exponent: float = 2.5,
    seed: int | tuple[int, ...] = 0,
) -> PowerLaw:
    """Draw a graph with power-law degrees, utilities that are smooth over it, and answers to pairs.

    Parameters
    ----------
    num_items : int
        Items n, from 3 on, in the order of the labels ``e0``, ``e1``, ...
    num_links : int
        Distinct links, each of weight 1; at most n(n − 1)/(4g) for the g communities, about the
        cube root of n.
    answers : int
        Number of answers, to pairs of items drawn in proportion to their numbers of links.
    attributes : int
        Number of columns of independent normal numbers; with them, half of the variance of the
        utilities is linear in them.
    exponent : float
        The share of items with d links falls like d to minus this power; above 2.
    seed : int or tuple of int
        Equal seeds give equal draws.

    Raises
    ------
    DataError
        If a number is out of its range, or the problem would not fit into memory.

    Notes
    -----
    The ends of links are drawn in proportion to given weights (Chung & Lu 2002, PNAS 99), cut off
    at the degree √(2e), above which a pair would be linked more than once; four of five links stay
    within a community. Utilities are noise after 20 steps of diffusion along the links (and a
    little noise that is not smoothed); the better of two wins with the probability Φ(difference).
    """
    communities = max(1, round(num_items ** (1 / 3)))
    most = num_items * (num_items - 1) // (4 * communities)
    possible = f"{num_items} items can have 1 to {most} here"
    _check(
        ("num_items", num_items, num_items >= 3, "give 3 or more"),
        ("num_links", num_links, 1 <= num_links <= most, possible),
        ("answers", answers, answers >= 0, "give 0 or more"),
        ("attributes", attributes, attributes >= 0, "give 0 or more"),
        ("exponent", exponent, 2 < exponent < np.inf, "it must be a finite number above 2"),
    )
    require_memory(
        _BYTES_PER_LINK * num_links + (_BYTES_PER_ITEM + 8.0 * attributes) * num_items,
        f"drawing {num_links} links of {num_items} items",
    )
    rng = np.random.default_rng(seed)
    adjacency = _graph(rng, num_items, num_links, exponent, communities)
    utilities = _standard(_smooth(rng, adjacency)) * np.sqrt(1 - _ROUGH**2)
    utilities = _standard(utilities + _ROUGH * rng.standard_normal(num_items))
    columns = rng.standard_normal((num_items, attributes))
    if attributes:
        utilities = _standard(utilities + _standard(columns @ rng.standard_normal(attributes)))
    labels = np.array([f"e{position}" for position in range(num_items)], dtype=object)
    names = [f"x{column}" for column in range(attributes)]
    items = pd.DataFrame(columns, index=labels, columns=names) if attributes else labels
    ends = labels[_answers(rng, adjacency, utilities, answers)]
    table = pd.DataFrame(ends.T, columns=["winner", "loser"]) if answers else None
    return PowerLaw(PreferenceData.from_tables(items, table, {"links": adjacency}), utilities)


def _graph(rng: Generator, n: int, links: int, exponent: float, communities: int) -> Any:
    """Draw a symmetric adjacency matrix, with the nodes in random order."""
    power = 1 - 1 / (exponent - 1)
    shift = _shift(n, links, power)

    def ranks(size: int) -> Integers:
        """Draw ranks in proportion to (r + shift)^(power − 1), by inverting its integral."""
        low, high = shift**power, (n + shift) ** power
        drawn = (low + rng.random(size) * (high - low)) ** (1 / power) - shift
        return np.clip(drawn.astype(np.int64), 0, n - 1)

    keys = np.zeros(0, dtype=np.int64)
    while missing := links - keys.size:
        first, second = ranks(missing), ranks(missing)
        # Ranks belong to the communities in turn, so that each has hubs.
        inside = second - second % communities + first % communities
        second = np.where((rng.random(missing) < _INSIDE) & (inside < n), inside, second)
        key = np.minimum(first, second) * n + np.maximum(first, second)
        # Earlier keys are in order, which makes a stable sort fast.
        keys = np.sort(np.concatenate([keys, key[first != second]]), kind="stable")
        keys = keys[np.diff(keys, prepend=-1) > 0]
    place = rng.permutation(n).astype(np.int32)
    ends = place[keys // n], place[keys % n]
    upper = scipy.sparse.coo_array((np.ones(links), ends), shape=(n, n)).tocsr()
    return upper + upper.T


def _shift(n: int, links: int, power: float) -> float:
    """Number added to ranks, with which the first rank expects √(2e) of the 2e ends.

    Almost nothing where the first rank expects fewer.
    """

    def excess(log_shift: float) -> float:
        first, total = np.expm1(power * np.log1p(np.array([1, n]) * np.exp(-log_shift)))
        return float(np.sqrt(2 * links) * first - total)

    lowest, highest = -20.0, np.log(n) + 10
    if excess(lowest) <= 0:
        return float(np.exp(lowest))
    return float(np.exp(scipy.optimize.brentq(excess, lowest, highest)))


def _smooth(rng: Generator, adjacency: Any) -> Floats:
    """Draw noise and average it along random walks, without the constant that is their limit."""
    degree = adjacency.sum(axis=1)
    values = rng.standard_normal(degree.size)
    for _ in range(_STEPS):
        values = adjacency @ values / np.maximum(degree, 1)
        values -= degree @ values / degree.sum()
        values /= np.abs(values).max() or 1.0
    return np.asarray(values)


def _standard(values: Floats) -> Floats:
    """Center, and scale to variance 1."""
    centered = values - values.mean()
    return np.asarray(centered / (centered.std() or 1.0))


def _answers(rng: Generator, adjacency: Any, utilities: Floats, number: int) -> Integers:
    """Draw answers as positions of winners and losers, shape (2, number)."""
    # An end of a link drawn at random is a node in proportion to its degree.
    first, second = (adjacency.indices[rng.integers(adjacency.nnz, size=number)] for _ in range(2))
    second = np.where(first == second, (second + 1) % utilities.size, second)
    wins = rng.random(number) < scipy.special.ndtr(utilities[first] - utilities[second])
    return np.where(wins, (first, second), (second, first))
