"""Rows of results that are kept on disk as they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from relpref.files import replaced

Row = dict[str, Any]


class Rows:
    """A CSV file of results; replaced whole at each addition, so that it is never half of one.

    Parameters
    ----------
    path : Path
        Rows that are there already are kept.
    key : sequence of str
        Columns that tell rows apart.
    """

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self._path = path
        self._key = list(key)
        self.rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=self._key)

    def add(self, rows: list[Row]) -> None:
        """Write more rows; a row replaces an earlier one of the same key."""
        more = pd.DataFrame(rows)
        joined = pd.concat([self.rows, more]) if len(self.rows) else more
        self.rows = joined.drop_duplicates(self._key, keep="last").sort_values(
            self._key, ignore_index=True
        )
        with replaced(self._path) as part:
            self.rows.to_csv(part, index=False)
