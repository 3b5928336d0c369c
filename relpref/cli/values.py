"""Values of options, read from text."""

import argparse

from relpref.errors import DataError
from relpref.parallel import FORMS, Scheduler


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def seed_number(text: str) -> int:
    """A seed."""
    number = whole(text)
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {2**32 - 1}")
    return number


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def scheduler(text: str) -> str:
    """Where many computations are done."""
    try:
        Scheduler.read(text)
    except DataError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {FORMS}") from None
    return text


def regularizations(text: str) -> list[float]:
    """Positive numbers between commas, ascending."""
    values = [number(part) for part in text.split(",")]
    if not all(0 < value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text}: a regularization is a positive number")
    return sorted(set(values))
