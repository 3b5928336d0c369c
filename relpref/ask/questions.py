"""Questions, the names of those who answer them, and changes of the answers."""

import unicodedata
from dataclasses import dataclass
from typing import Any

import pandas as pd

from relpref.data.arrays import shown
from relpref.data.labels import BLANKS, is_invisible, trimmed
from relpref.errors import DataError
from relpref.limits import MAX_NAME_LENGTH

_UNSEEN = set(BLANKS) - {" "}


@dataclass(frozen=True)
class Question:
    """A question which of two items is better.

    Attributes
    ----------
    id : str
        Unique; it cannot be guessed.
    first, second : label
    left : label
        The item that is shown on the left, or first.
    rater : str
        Who is asked.
    """

    id: str
    first: Any
    second: Any
    left: Any
    rater: str

    @property
    def sides(self) -> dict[str, Any]:
        """Labels by the outcome that prefers them, the left one first."""
        sides = {"first": self.first, "second": self.second}
        return sides if self.left == self.first else dict(reversed(sides.items()))


def rater_name(given: Any) -> str:
    """Normalize a rater's name: white space becomes one space, characters are composed (NFC).

    Raises
    ------
    DataError
        If the name is empty, too long, or has an invisible character.
    """
    if isinstance(given, str):
        name = unicodedata.normalize("NFC", " ".join(trimmed(given).split()))
        visible = name.isprintable() and not is_invisible(name) and not set(name) & _UNSEEN
        if visible and len(name) <= MAX_NAME_LENGTH:
            return name
    raise DataError(
        f"rater is {shown(given)}; give a name of 1 to {MAX_NAME_LENGTH} characters, all of which "
        "can be seen, such as 'ann'"
    )


@dataclass(frozen=True)
class Changes:
    """Changes of the answers after some version.

    Attributes
    ----------
    version : int
        Number of the last event.
    steps : DataFrame
        One row for each event about an answer, in order: ``version`` of the answer, ``change`` (1
        if it was added, −1 if it was withdrawn), and the columns of the answer; covariates and
        columns shared with other answers only where some answer has them. All answers to questions
        about one pair are in one ``group``, because people saw the same two items.
    """

    version: int
    steps: pd.DataFrame

    def __len__(self) -> int:
        """Count the answers that were added or withdrawn."""
        return len(self.added) + len(self.withdrawn)

    @property
    def added(self) -> pd.DataFrame:
        """New answers that still stand."""
        return self._net(1)

    @property
    def withdrawn(self) -> pd.DataFrame:
        """Earlier answers that no longer stand."""
        return self._net(-1)

    def _net(self, change: int) -> pd.DataFrame:
        """Answers with this net change; an answer that was added and withdrawn has none."""
        net = self.steps.groupby("version")["change"].transform("sum")
        return self.steps[net == change].drop(columns=["version", "change"])
