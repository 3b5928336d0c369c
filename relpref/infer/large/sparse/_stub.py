from dataclasses import dataclass
from typing import Any, Protocol


class ImplicitCovariance(Protocol):
    size: int


@dataclass
class Solver:
    adjacency: Any


@dataclass
class SparsePrecision:
    solver: Solver
    shift: float
    scale: float

    @property
    def size(self):
        return self.solver.adjacency.shape[0]


@dataclass
class LowRank:
    factor: Any

    @property
    def size(self):
        return len(self.factor)
