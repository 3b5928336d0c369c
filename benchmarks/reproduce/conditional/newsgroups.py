"""20 Newsgroups in closed form (Pahikkala et al. 2010, section 6.2): rank the messages of groups that were never seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from benchmarks.measure import note, table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.results import p_value
from benchmarks.reproduce.rows import Row
from relpref.data_loaders import newsgroups
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.solve import RelationProblem
from relpref.rls import ConditionalRanker, per_node, ranking_error

Array = NDArray[np.float64]

DIRECTIONS = {
    "set 1 to set 2": (newsgroups.SET_1, newsgroups.SET_2),
    "set 2 to set 1": (newsgroups.SET_2, newsgroups.SET_1),
}
CONTROL = "cosine"
LOSSES: tuple[Loss, ...] = ("regression", "ranking")
REGULARIZATIONS = tuple(float(value) for value in 10.0 ** np.arange(-3, 7))
# Conditioning nodes on which a regularization is judged; all the held-out messages are ranked for each.
JUDGED = 500
QUICK_SIZE = 400


class Task(NamedTuple):
    """Messages that are known and messages that are new, by the words of the known ones.

    Attributes
    ----------
    kernel, cross, new_kernel : array
        Linear kernel (the cosine) of known messages, of new ones with known ones, and of new ones.
    relation, judged : array
        Between known messages, and between new ones.
    """

    kernel: Array
    cross: Array
    new_kernel: Array
    relation: Array
    judged: Array

    @classmethod
    def of(cls, known: newsgroups.Newsgroups, new: newsgroups.Newsgroups) -> Task:
        left = newsgroups.newsgroups_relation(known)
        right = newsgroups.newsgroups_relation(new, words=left)
        known_words, new_words = left.words, right.words
        return cls(
            kernel=(known_words @ known_words.T).toarray(),
            cross=(new_words @ known_words.T).toarray(),
            new_kernel=(new_words @ new_words.T).toarray(),
            relation=left.values,
            judged=right.values,
        )

    def shuffled(self, rng: np.random.Generator) -> Task:
        """The same with the known messages in another order."""
        order = rng.permutation(len(self.kernel))
        both = np.ix_(order, order)
        return self._replace(
            kernel=self.kernel[both], cross=self.cross[:, order], relation=self.relation[both]
        )


@lru_cache(maxsize=1)
def messages() -> newsgroups.Newsgroups:
    return newsgroups.load([*newsgroups.SET_1, *newsgroups.SET_2])


def halves(groups: tuple[str, ...]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every second group held out, and the other half: each is trained on once and judged once."""
    first, second = groups[::2], groups[1::2]
    return [(first, second), (second, first)]


def problems(task: Task) -> dict[Loss, RelationProblem]:
    """Both losses on the same nodes: they share the eigendecomposition of the kernel."""
    ranker = ConditionalRanker(kernel="precomputed", loss="regression")
    regression = ranker.problem(task.kernel, task.relation)
    return {loss: replace(regression, loss=loss) for loss in LOSSES}


def errors_of(
    problem: RelationProblem, path: Iterable[float], cross: Array, relation: Array
) -> Iterator[Array]:
    """Ranking error of each new node at each regularization; the first rows of ``relation`` only, if it has fewer than ``cross``."""
    nodes, objects = problem.nodes.ask(cross[: len(relation)]), problem.objects.ask(cross)
    for value in path:
        scores = problem.closed_scores(value, scale=1.0).mean(nodes, objects)
        yield per_node(ranking_error, relation, scores).values


def choose(known: newsgroups.Newsgroups, groups: tuple[str, ...]) -> dict[Loss, float]:
    """The regularization with the smallest error on held-out groups, for each loss."""
    errors = {loss: np.zeros(len(REGULARIZATIONS)) for loss in LOSSES}
    for trained, held_out in halves(groups):
        new = known.of(held_out)
        shuffled = np.random.default_rng(0).permutation(len(new.texts))
        task = Task.of(known.of(trained), new.take(shuffled))
        for loss, problem in problems(task).items():
            for at, found in enumerate(errors_of(problem, REGULARIZATIONS, task.cross, task.judged[:JUDGED])):
                errors[loss][at] += found.mean() / 2
                note(f"{loss}, {REGULARIZATIONS[at]:g}: {found.mean():.4f} on {', '.join(held_out)}")
    return {loss: REGULARIZATIONS[int(np.argmin(found))] for loss, found in errors.items()}


def compute(part: Part, quick: bool) -> list[Row]:
    """Choose a regularization for either loss, train on the whole set, and judge every message of the other."""
    groups, other = DIRECTIONS[str(part[0])]
    known, new = messages().of(groups), messages().of(other)
    if quick:
        known, new = known.sample(QUICK_SIZE), new.sample(QUICK_SIZE)
    best = choose(known, groups)
    task = Task.of(known, new)
    errors = {CONTROL: per_node(ranking_error, task.judged, task.new_kernel).values}
    for loss, problem in problems(task).items():
        (errors[loss],) = errors_of(problem, [best[loss]], task.cross, task.judged)
        note(f"{part[0]}, {loss}: regularization {best[loss]:g}, error {errors[loss].mean():.4f}")
    return [
        {"loss": name, "message": label, "error": error, "nodes": len(task.kernel)}
        | ({"regularization": best[name]} if name in best else {})
        for name, found in errors.items()
        for label, error in zip(new.texts.index, found, strict=True)
    ]


def markdown(rows: pd.DataFrame) -> str:
    """Mean error over the test messages, and Wilcoxon's test for pairs over them."""
    lines = []
    for direction, group in rows.groupby("direction"):
        errors = group.pivot(index="message", columns="loss", values="error")
        difference = errors["ranking"] - errors["regression"]
        for loss in (CONTROL, *LOSSES):
            mine = group[group["loss"] == loss]
            lines.append(
                [
                    str(direction),
                    f"{mine['nodes'].iloc[0]:,}",
                    f"{len(mine):,}",
                    loss,
                    "" if loss == CONTROL else f"{mine['regularization'].iloc[0]:g}",
                    f"{mine['error'].mean():.4f}",
                    p_value(float(wilcoxon(difference).pvalue)) if loss == "ranking" else "",
                    f"{100 * (difference < 0).mean():.0f} %" if loss == "ranking" else "",
                ]
            )
    header = ["experiment", "training nodes", "test nodes", "loss", "λ", "error", "signed rank, p"]
    return table([*header, "test nodes it ranks better than regression"], lines)


EXPERIMENT = Experiment(
    name="newsgroups",
    title="20 Newsgroups, groups never seen",
    part=("direction",),
    key=("direction", "loss", "message"),
    parts=lambda quick: [(direction,) for direction in DIRECTIONS],
    compute=compute,
    markdown=markdown,
)
