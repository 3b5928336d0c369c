"""Rows of the store as tables of answers, and labels as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.labels import label_column
from relpref.infer.encoding import decode_label, encode_label

# Of an answer, in the table ``event``.
COLUMNS = ("winner", "loser", "count", "tie", "strength", "probability", "rater", "shown_first")


@dataclass(frozen=True)
class Changes:
    """What happened to the answers after some version.

    Attributes
    ----------
    version : int
        Of the last event.
    steps : DataFrame
        One row for each event about an answer, in their order: ``version`` of the answer, ``change`` (1 if it was added, −1 if it was
        withdrawn), and all columns that an answer can have, blank where there is nothing to be said.
    """

    version: int
    steps: pd.DataFrame

    @classmethod
    def of(cls, version: int, rows: Sequence[tuple[Any, ...]], labels: Sequence[Any]) -> "Changes":
        """From rows of the table ``event``: version of the answer, of the event, the change, then `COLUMNS`."""
        names = ("version", "event", "change", *COLUMNS)
        given = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
        return cls(version, _frame(given, labels))

    def __len__(self) -> int:
        """How many answers differ after all of it."""
        return len(self.added) + len(self.withdrawn)

    @property
    def added(self) -> pd.DataFrame:
        """Answers that are new and stand."""
        return self._net(1)

    @property
    def withdrawn(self) -> pd.DataFrame:
        """Answers that were there before and do not stand any more."""
        return self._net(-1)

    def _net(self, change: int) -> pd.DataFrame:
        """What was added and withdrawn since leaves nothing."""
        return self.steps[self.steps.groupby("version")["change"].transform("sum") == change].drop(
            columns=["version", "change"]
        )


def text(label: Any) -> str:
    """A label as JSON, in ASCII, because SQLite cannot hold half of a surrogate pair or search past a zero."""
    return json.dumps(encode_label(label))


def value(stored: str) -> Any:
    """The inverse of `text`."""
    return decode_label(json.loads(stored))


def _frame(given: Mapping[str, Sequence[Any]], labels: Sequence[Any]) -> pd.DataFrame:
    """Columns of the table ``event`` with the labels of the entities."""
    raters = {stored: value(stored) for stored in set(given["rater"]) if stored is not None}
    return pd.DataFrame(
        {name: np.array(given[name], dtype=np.int64) for name in ("version", "change")}
        | {name: label_column([labels[end] for end in given[name]]) for name in ("winner", "loser")}
        | {
            "count": np.array(given["count"], dtype=np.int64),
            "tie": np.array(given["tie"], dtype=bool),
            "strength": pd.array(
                [pd.NA if cell is None else cell for cell in given["strength"]], dtype="Int64"
            ),
            "probability": np.array(
                [np.nan if cell is None else cell for cell in given["probability"]], float
            ),
            "rater": _cells([None if cell is None else raters[cell] for cell in given["rater"]]),
            "shown_first": _cells([None if end is None else labels[end] for end in given["shown_first"]]),
        },
        index=pd.Index(given["event"], dtype=np.int64, name="event"),
    )


def _cells(values: Sequence[Any]) -> Any:
    """A column of labels, tuples included, and blanks."""
    cells = np.empty(len(values), dtype=object)
    for row, cell in enumerate(values):
        cells[row] = cell
    return cells
