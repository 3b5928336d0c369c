"""Names of raters: one person is one rater, on a terminal, on a page and in a program."""

import unicodedata
from typing import Any

from relpref.data.messages import shown
from relpref.errors import DataError

LONGEST_NAME = 80


def rater_name(given: Any) -> str:
    """A rater's name as it is kept: white space is one space, characters are composed (NFC).

    Parameters
    ----------
    given : str

    Raises
    ------
    DataError
        If it is empty, longer than 80 characters, or holds characters that nobody sees.
    """
    if isinstance(given, str):
        name = unicodedata.normalize("NFC", " ".join(given.split()))
        if 0 < len(name) <= LONGEST_NAME and name.isprintable():
            return name
    raise DataError(
        f"rater is {shown(given)}; give a name of 1 to {LONGEST_NAME} characters, all of which can be seen, such as 'ann'"
    )
