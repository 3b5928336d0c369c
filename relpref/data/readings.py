"""Ways to read a table of answers: the words of its columns, and its cells as text."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.labels import is_missing, trimmed
from relpref.data.tables import MISSING, Table

# Words in names of columns of numbers of things, and of things that are compared.
NUMBERS = {"id", "ids", "key", "code", "uuid", "index", "idx", "nr", "no", "number"}
ITEMS = {
    "item", "driver", "horse", "player", "athlete", "runner", "candidate", "option", "rider",
    "alternative", "team", "product", "model", "name", "dish", "wine", "coffee", "competitor",
    "boat", "car", "brand", "variety",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One way to read a table: how that is described, and the table with the names used here."""

    description: str
    table: Callable[[], Table]


def words(name: Any) -> tuple[str, ...]:
    """Split a name into lower-case words, so that ``HomeTeam`` and ``home_team`` are equal."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", str(name))
    text = re.sub(r"(?<=[A-Za-z])(?=\d)", " ", text)
    return tuple(part for part in re.split(r"[\s_.\-/]+", text.strip().lower()) if part)


def cells_of(table: Table, column: Any) -> list[str]:
    """Return the cells of a column as text: no blanks around it, whole numbers without a point."""

    def text(cell: Any) -> str:
        if is_missing(cell):
            return ""
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        cell = str(trimmed(cell))
        return "" if cell in MISSING else cell

    codes, distinct = pd.factorize(table.frame[column], use_na_sentinel=False)
    texts = np.array([text(cell) for cell in distinct.tolist()], dtype=object)
    return [] if not len(codes) else texts[codes].tolist()


def is_numeric(cells: Sequence[str]) -> bool:
    """Tell whether all cells that are not blank are numbers, and some are."""
    given = set(cells) - {""}
    return bool(given) and all(re.fullmatch(r"[+-]?\d+(\.\d+)?", cell) for cell in given)
