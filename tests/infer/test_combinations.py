"""First fits of random combinations of answer columns and options, each in a fresh process."""

import pytest

from benchmarks.combinations import COLUMNS, answers, drawn, measured

# Several times what they take: 1 to 5 s, and 20 s with weights, ties, strengths and raters.
MOST_SECONDS, MOST_MEGABYTES = 60, 600


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]
)
def test_a_combination_takes_seconds(seed: int) -> None:
    (words,) = drawn(seed, 1)
    result = measured(words)
    assert result["result"] == "converged"
    assert result["seconds"] < MOST_SECONDS
    assert result["megabytes"] < MOST_MEGABYTES


def test_every_column_is_drawn() -> None:
    seen = {word for words in drawn(0, 100) for word in words}
    assert seen == {*COLUMNS, "probability", "Probit", "Logistic", "lapse", "laplace", "maximize"}
    names = {*COLUMNS, "winner", "loser", "x_winner", "x_loser"} - {"covariate"}
    assert set(answers(COLUMNS).columns) == names
