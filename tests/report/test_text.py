import math
from collections.abc import Callable
from typing import Any

import pytest

from relpref.posterior.names import distinct, shorten
from relpref.report.blocks import (
    clean,
    counted_share,
    decimals_for,
    fixed,
    listed,
    percent,
    signed_percent,
    significant,
)


@pytest.mark.parametrize(
    ("written", "given", "shown"),
    [
        (
            percent,
            [0, 0.0123, 0.0996, 0.5, 0.994, 1, math.nan],
            ["<0.1%", "1%", "10%", "50%", "99.4%", ">99.9%", "–"],
        ),
        (
            lambda count: counted_share(count, 5000),
            [0, 1, 2500, 4999, 5000],
            ["0%", "<0.1%", "50%", ">99.9%", "100%"],
        ),
        (lambda count: counted_share(count, 1, "none", "all"), [0, 1], ["none", "all"]),
        (lambda size: counted_share(0, size), [0], ["–"]),
        (signed_percent, [-0.25, 1.3, 0.4, -0.001], ["−25%", "130%", "40%", "0%"]),
        (fixed, [-1.234, -0.001, math.inf, 12.0], ["−1.23", "0.00", "–", "12.00"]),
        (
            significant,
            [0, 0.012345, -1234.5, 1e-9, -2.5e12, math.nan, -math.inf],
            ["0", "0.0123", "−1234", "1.00 × 10⁻⁹", "−2.50 × 10¹²", "–", "−∞"],
        ),
        (decimals_for, [[12.0, -3.0], [0.04, 0.01], [0.0], [], [math.nan]], [2, 3, 2, 2, 2]),
        (listed, [["a"], ["a", "b", "c"]], ["a", "a, b and c"]),
        (shorten, ["a" * 28], ["a" * 28]),
        (clean, [("x", 1), "a" * 5000], ["(x, 1)", "a" * 2000 + "…"]),
    ],
)
def test_numbers_and_names_in_words(
    written: Callable[[Any], Any], given: list[Any], shown: list[Any]
) -> None:
    assert [*map(written, given)] == shown


def test_what_is_long_is_cut() -> None:
    assert listed(list("abcdef"), most=3) == "a, b and 4 more"
    assert shorten("abcdefghijkl", 7) == "abcdef…"
    names = distinct(["a" * 9, "abcdefgh 1", "abcdefgh 2"], 8)
    assert names == ["aaaaaaa…", "abcdef…1", "abcdef…2"]  # cut at the end, and apart
