"""What an experiment has to say: what it is cut into, how to compute a piece, and how to show the
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.reproduce.rows import Row

Part = tuple[int | str, ...]


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    Attributes
    ----------
    name, title : str
    part : tuple of str
        Columns that name a piece. A piece is computed at once, and its rows are kept together.
    key : tuple of str
        Columns that tell rows apart; they begin with ``part``.
    parts : callable
        From ``quick`` to all pieces, as values of the columns ``part``.
    compute : callable
        From one piece (and ``quick``) to its rows, which need not repeat the columns ``part``.
    markdown : callable
        From all rows to the table that is printed.
    draw : callable, optional
        Draws all rows into a matplotlib figure.
    size : tuple of float
        Width and height of the figure in inches.
    """

    name: str
    title: str
    part: tuple[str, ...]
    key: tuple[str, ...]
    parts: Callable[[bool], list[Part]]
    compute: Callable[[Part, bool], list[Row]]
    markdown: Callable[[pd.DataFrame], str]
    draw: Callable[[pd.DataFrame, Any], None] | None = None
    size: tuple[float, float] = (8, 3.4)

    def left(self, rows: pd.DataFrame, quick: bool) -> list[Part]:
        """The pieces without rows."""
        done = set(map(tuple, rows[list(self.part)].drop_duplicates().to_numpy().tolist()))
        return [part for part in self.parts(quick) if part not in done]
