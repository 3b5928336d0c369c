"""A relation that needs no file: rock, paper, scissors."""

import numpy as np
import pytest

from relpref.data_loaders import play_rock_paper_scissors
from relpref.errors import DataError


def test_games_are_won_as_often_as_expected() -> None:
    # Two players and many games: the share that one wins is binomial; 4.5 standard errors are
    # exceeded once in 100 000.
    games = 40_000
    drawn = play_rock_paper_scissors(10.0, players=2, games=games, seed=7)
    rock, paper, scissors = drawn.players.to_numpy().T
    wins = rock[0] * scissors[1] + paper[0] * rock[1] + scissors[0] * paper[1]
    losses = rock[1] * scissors[0] + paper[1] * rock[0] + scissors[1] * paper[0]
    expected = 0.5 + 0.5 * (wins - losses)
    first = np.where(drawn.games["source"] == drawn.players.index[0], 1, -1) * drawn.games["value"]
    assert set(drawn.games["value"]) == {-1.0, 1.0}
    assert abs((first > 0).mean() - expected) < 4.5 * np.sqrt(0.25 / games)
    assert expected != pytest.approx(0.5, abs=0.01)  # otherwise the test would say little


def test_the_relation_of_players() -> None:
    drawn = play_rock_paper_scissors(10.0, seed=(1, 2))
    values = drawn.test_relation.to_numpy()
    assert np.isnan(np.diag(values)).all()
    off = ~np.eye(100, dtype=bool)
    np.testing.assert_allclose((values + values.T)[off], 1.0, atol=1e-15)
    one, other = drawn.test_players.iloc[3].to_numpy(), drawn.test_players.iloc[8].to_numpy()
    by_hand = one[0] * other[2] + one[1] * other[0] + one[2] * other[1] + 0.5 * one @ other
    assert drawn.test_relation.iloc[3, 8] == pytest.approx(by_hand)
    assert (drawn.games["source"] != drawn.games["target"]).all() and len(drawn.games) == 1000
    assert not drawn.players.index.intersection(drawn.test_players.index).size


def test_weight_is_how_one_sided_players_are() -> None:
    # The largest of three uniform numbers is 1/4 above the second on average: with the weight 100 a
    # ratio of e^8.
    favourites = [
        play_rock_paper_scissors(weight).players.max(axis=1).mean() for weight in (0, 1, 10, 100)
    ]
    assert favourites[0] == pytest.approx(1 / 3)
    assert favourites[1] < 0.4 < favourites[2] < 0.9 < favourites[3]


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"weight": -1.0}, "weight is -1"),
        ({"weight": np.nan}, "weight is nan"),
        ({"weight": 1.0, "players": 1}, "players is 1; a game needs at least 2"),
        ({"weight": 1.0, "games": 0}, "games is 0"),
    ],
)
def test_numbers_out_of_range(keywords: dict[str, float], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        play_rock_paper_scissors(**keywords)  # type: ignore[arg-type]
