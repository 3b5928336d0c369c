"""What a protocol has to say: how many queries, pairs and reruns, and how to load a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.reproduce.problem import Problem

QUICK_QUERIES = QUICK_RERUNS = 2


@dataclass(frozen=True)
class Source:
    """Where a protocol reads.

    Attributes
    ----------
    data : Path or None
        The folder of the data set; None for the one below ``RELPREF_DATA``.
    relation : Path or None
        A relation file of the user's own.
    """

    data: Path | None = None
    relation: Path | None = None


@dataclass(frozen=True)
class Protocol:
    """An experiment.

    Attributes
    ----------
    name, title : str
    sizes : tuple of int
        Numbers of known pairs.
    load : callable
        From the source and the number of a query (0, 1, ...) to its problems by the name of their
        setting.
    queries, reruns : int
    seed : int
        With the numbers of query, size and rerun it seeds the choice of the known pairs.
    """

    name: str
    title: str
    sizes: tuple[int, ...]
    load: Callable[[Source, int], dict[str, Problem]]
    queries: int = 10
    reruns: int = 20
    seed: int = 2009

    def quick(self) -> Protocol:
        """Two queries, two reruns, the smallest and the largest number of pairs."""
        return replace(
            self, queries=QUICK_QUERIES, reruns=QUICK_RERUNS, sizes=(self.sizes[0], self.sizes[-1])
        )
