"""A question that is stored before anybody sees it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Question:
    """Which of two is asked about.

    Attributes
    ----------
    id : str
        Unique; it cannot be guessed.
    first, second : label
    left : label
        The one that is shown on the left, or first.
    rater : str
        Who is asked.
    """

    id: str
    first: Any
    second: Any
    left: Any
    rater: str
