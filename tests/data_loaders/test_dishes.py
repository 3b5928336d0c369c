import numpy as np
import pytest

from relpref.data_loaders import rank_dishes
from relpref.errors import DataError


def test_without_noise_both_types_order_the_dishes_as_in_the_paper() -> None:
    sweet, juicy = rank_dishes(2, 0).orders()
    # Table 5, with gelato and pizza of type two as their scores (Table 4) have it.
    assert sweet == ["gelato", "cake", "biscuit", "pizza", "pasta", "burger", "sausage", "steak"]
    assert juicy == ["sausage", "burger", "steak", "pasta", "gelato", "pizza", "cake", "biscuit"]


def test_draws() -> None:
    drawn = rank_dishes(251, 1.0, seed=3)
    assert drawn.kind == "full" and drawn.classes == ("juicy", "sweet")
    np.testing.assert_array_equal(np.bincount(np.asarray(drawn.label)), [125, 126])
    np.testing.assert_array_equal(drawn.positions, rank_dishes(251, 1.0, seed=3).positions)
    assert (drawn.positions != rank_dishes(251, 1.0, seed=4).positions).any()
    # With much noise the attributes no longer tell: cake is in each half equally often (once in
    # 10^5 not).
    many = rank_dishes(4000, 1e6)
    assert abs((many.positions[:, 0] < 4).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(4000)
    assert many.items.attribute_names == ("sweet", "savoury", "juicy")


@pytest.mark.parametrize(("number", "noise"), [(1, 1.0), (10, -1.0), (10, float("nan"))])
def test_numbers_out_of_range(number: int, noise: float) -> None:
    with pytest.raises(DataError, match="or more|at least 2"):
        rank_dishes(number, noise)
