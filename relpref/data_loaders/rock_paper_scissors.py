"""Players of rock, paper, scissors: a reciprocal relation without a best player, drawn as often as one likes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.errors import DataError

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
    linear kernel on players can represent. The divisor 3 was chosen because the errors of regularised least squares at the
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
