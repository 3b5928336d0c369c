import math

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
    ("probability", "shown"),
    [
        (0, "<0.1%"),
        (0.0123, "1%"),
        (0.0996, "10%"),
        (0.5, "50%"),
        (0.994, "99.4%"),
        (1, ">99.9%"),
        (math.nan, "–"),
    ],
)
def test_percent(probability: float, shown: str) -> None:
    assert percent(probability) == shown


def test_counted_shares_are_exact() -> None:
    shown = [counted_share(count, 5000) for count in (0, 1, 2500, 4999, 5000)]
    assert shown == ["0%", "<0.1%", "50%", ">99.9%", "100%"]
    assert [counted_share(count, 1, "none", "all") for count in (0, 1)] == ["none", "all"]
    assert counted_share(0, 0) == "–"


@pytest.mark.parametrize(
    ("share", "shown"), [(-0.25, "−25%"), (1.3, "130%"), (0.4, "40%"), (-0.001, "0%")]
)
def test_signed_percent(share: float, shown: str) -> None:
    assert signed_percent(share) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(-1.234, "−1.23"), (-0.001, "0.00"), (math.inf, "–"), (12.0, "12.00")]
)
def test_fixed(number: float, shown: str) -> None:
    assert fixed(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (-1234.5, "−1234"),
        (1e-9, "1.00 × 10⁻⁹"),
        (-2.5e12, "−2.50 × 10¹²"),
        (math.nan, "–"),
        (-math.inf, "−∞"),
    ],
)
def test_significant(number: float, shown: str) -> None:
    assert significant(number) == shown


def test_decimals() -> None:
    assert [decimals_for(v) for v in ([12.0, -3.0], [0.04, 0.01], [0.0], [], [math.nan])] == [
        2,
        3,
        2,
        2,
        2,
    ]


def test_listed() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdef"), most=3) == "a, b and 4 more"


def test_shorten() -> None:
    assert shorten("a" * 28) == "a" * 28
    assert shorten("abcdefghijkl", 7) == "abcdef…"


def test_names_are_cut_at_the_end_and_stay_apart() -> None:
    assert distinct(["a" * 9, "abcdefgh 1", "abcdefgh 2"], 8) == [
        "aaaaaaa…",
        "abcdef…1",
        "abcdef…2",
    ]


def test_clean() -> None:
    assert clean(("x", 1)) == "(x, 1)"
    assert clean("a" * 5000) == "a" * 2000 + "…"
