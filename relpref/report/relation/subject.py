"""What a page about a relation is about: the posterior, how nodes and objects are called, and how much may be computed."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.infer import RelationPosterior
from relpref.infer.belief import Floats
from relpref.report.text import Names

INTERVAL = 0.9
MOST_EDGES = 4000  # without a closed form uncertainty needs a factor of the edges' kernel, O(edges³)
MOST_RANKED = 300  # objects of one ranking: their joint covariance and 4000 draws of it
_MOST_NODES = 200  # of whom all scores are looked at
_MOST_NUMBERS = 10_000_000  # in their table of scores


@dataclass(frozen=True)
class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : RelationPosterior
    """

    posterior: RelationPosterior

    @cached_property
    def nodes(self) -> Names:
        """Of the conditioning nodes."""
        return Names(self.posterior.nodes.labels)

    @cached_property
    def objects(self) -> Names:
        """Of the objects."""
        return self.nodes if self.one_kind else Names(self.posterior.objects.labels)

    @property
    def one_kind(self) -> bool:
        """Whether nodes are ranked for one another."""
        return self.posterior.nodes is self.posterior.objects

    @property
    def uncertain(self) -> str:
        """Why there is no uncertainty of scores; empty where there is."""
        problem, solution = self.posterior.problem, self.posterior.solution
        if problem.closed:
            return ""
        if getattr(solution, "stopped", False):
            return "the iterations ended before the solution, so there are scores without intervals"
        edges = len(problem.values.values)
        if edges > MOST_EDGES:
            return f"intervals for a relation with {edges} labels and no closed form take long, so they are left out"
        return ""

    @cached_property
    def looked_at(self) -> NDArray[np.intp]:
        """Positions of the nodes of whom all scores are looked at: all of them, or some evenly spread over the data."""
        p, m = len(self.posterior.nodes.labels), len(self.posterior.objects.labels)
        number = max(1, min(p, _MOST_NODES, _MOST_NUMBERS // max(m, 1)))
        return np.unique(np.linspace(0, p - 1, number).round().astype(np.intp))

    @cached_property
    def scores(self) -> Floats:
        """Mean scores of all objects for those nodes, shape (k, m); NaN for a node itself."""
        posterior = self.posterior
        left = posterior.nodes.ask([posterior.nodes.labels[row] for row in self.looked_at])
        right = posterior.objects.ask(None)
        scores = posterior.shift + np.asarray(posterior.solution.mean(left, right))
        if self.one_kind:
            scores[np.arange(len(scores)), self.looked_at] = np.nan
        return scores

    def ranking(self, node: int) -> pd.DataFrame:
        """The objects for one of the nodes looked at, best first, by position; without intervals where they take too long."""
        posterior = self.posterior
        row = int(np.flatnonzero(self.looked_at == node)[0])
        scores = self.scores[row]
        order = np.argsort(-scores, kind="stable")  # NaN last
        order = order[np.isfinite(scores[order])][:MOST_RANKED]
        if not self.uncertain and len(order):
            # By position: a label may be equal to another's text.
            labels = [posterior.objects.labels[position] for position in order]
            table = posterior.ranking(posterior.nodes.labels[node], labels, interval=INTERVAL)
            position = dict(zip(labels, order, strict=True))
            return table.assign(position=[position[label] for label in table.index]).reset_index(drop=True)
        shown = scores[order]
        if posterior.loss == "ranking" and len(shown):
            shown = shown - shown.mean()
        return pd.DataFrame({"mean": shown, "position": order})

    def known(self, node: int) -> dict[int, float]:
        """Average label of every object that is known for a node, by its position."""
        values = self.posterior.problem.values
        mine = np.flatnonzero(values.rows == node)
        columns, labels = values.columns[mine], values.values[mine] + self.posterior.shift
        sums, counts = (np.bincount(columns, weights) for weights in (labels, None))
        return {int(c): float(sums[c] / counts[c]) for c in np.unique(columns)}
