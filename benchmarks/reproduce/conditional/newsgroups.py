"""20 Newsgroups in closed form (Pahikkala et al. 2010, section 6.2): rank the messages of groups
that were never seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import wilcoxon
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.measure import note, table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.results import p_value
from benchmarks.reproduce.rows import Row
from relpref.data_loaders.newsgroups import load
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.solve import RelationProblem
from relpref.rls import ConditionalRanker, per_node, ranking_error

Array = NDArray[np.float64]

# The two sets of newsgroups of the paper: no group is in both.
SET_1 = ("rec.autos", "rec.sport.baseball", "comp.sys.ibm.pc.hardware", "comp.windows.x")
SET_2 = (
    "rec.motorcycles",
    "rec.sport.hockey",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.mac.hardware",
)
# Which groups are similar is our choice; the paper names the two of rec.sport only.
SIMILAR = (r"comp\..*", r"rec\.sport\..*", r"rec\.(autos|motorcycles)")
SAME_GROUP, SIMILAR_GROUP, OTHER_GROUP = 1.0, 0.5, 0.0
RAREST_WORD = 3  # messages that a word is in, at least
DIRECTIONS = {"set 1 to set 2": (SET_1, SET_2), "set 2 to set 1": (SET_2, SET_1)}
CONTROL = "cosine"
LOSSES: tuple[Loss, ...] = ("regression", "ranking")
REGULARIZATIONS = tuple(float(value) for value in 10.0 ** np.arange(-3, 7))
# Conditioning nodes on which a regularization is judged; all the held-out messages are ranked for
# each.
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
    def of(cls, known: pd.DataFrame, new: pd.DataFrame) -> Task:
        """Messages as counts of words, scaled to unit Euclidean length."""
        vectorizer = TfidfVectorizer(min_df=RAREST_WORD, use_idf=False, norm="l2")
        known_words = vectorizer.fit_transform(known["text"])
        new_words = vectorizer.transform(new["text"])
        return cls(
            kernel=(known_words @ known_words.T).toarray(),
            cross=(new_words @ known_words.T).toarray(),
            new_kernel=(new_words @ new_words.T).toarray(),
            relation=similarity(known["group"]),
            judged=similarity(new["group"]),
        )

    def shuffled(self, rng: np.random.Generator) -> Task:
        """The same with the known messages in another order."""
        order = rng.permutation(len(self.kernel))
        both = np.ix_(order, order)
        return self._replace(
            kernel=self.kernel[both], cross=self.cross[:, order], relation=self.relation[both]
        )


def similarity(groups: Iterable[str]) -> Array:
    """The relation of messages, by their groups: 1 for the same, 0.5 for similar ones, 0 for
    others.

    Similar are two groups of ``comp.*``, two of ``rec.sport.*``, and ``rec.autos`` and
    ``rec.motorcycles``.
    """
    codes, names = pd.factorize(np.array(list(groups), dtype=object))
    topics = np.array(
        [next((topic for topic in SIMILAR if re.fullmatch(topic, name)), name) for name in names]
    )
    similar = np.where(np.equal.outer(topics, topics), SIMILAR_GROUP, OTHER_GROUP)
    levels = np.where(np.eye(len(names), dtype=bool), SAME_GROUP, similar)
    return levels[np.ix_(codes, codes)]


@lru_cache(maxsize=1)
def messages() -> pd.DataFrame:
    return load([*SET_1, *SET_2])


def of_groups(table: pd.DataFrame, groups: tuple[str, ...]) -> pd.DataFrame:
    """Messages of some newsgroups."""
    return table[table["group"].isin(groups)]


def sample(table: pd.DataFrame, size: int) -> pd.DataFrame:
    """Draw some of the messages, in their order."""
    return table.iloc[np.sort(np.random.default_rng(0).permutation(len(table))[:size])]


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
    """Ranking error of each new node at each regularization; the first rows of ``relation`` only,
    if it has fewer than ``cross``.
    """
    nodes, objects = problem.nodes.ask(cross[: len(relation)]), problem.objects.ask(cross)
    for value in path:
        scores = problem.closed_scores(value, scale=1.0).mean(nodes, objects)
        yield per_node(ranking_error, relation, scores).values


def choose(known: pd.DataFrame, groups: tuple[str, ...]) -> dict[Loss, float]:
    """The regularization with the smallest error on held-out groups, for each loss."""
    errors = {loss: np.zeros(len(REGULARIZATIONS)) for loss in LOSSES}
    for trained, held_out in halves(groups):
        new = of_groups(known, held_out)
        shuffled = np.random.default_rng(0).permutation(len(new))
        task = Task.of(of_groups(known, trained), new.iloc[shuffled])
        for loss, problem in problems(task).items():
            for at, found in enumerate(
                errors_of(problem, REGULARIZATIONS, task.cross, task.judged[:JUDGED])
            ):
                errors[loss][at] += found.mean() / 2
                note(
                    f"{loss}, {REGULARIZATIONS[at]:g}: {found.mean():.4f} on {', '.join(held_out)}"
                )
    return {loss: REGULARIZATIONS[int(np.argmin(found))] for loss, found in errors.items()}


def compute(part: Part, quick: bool) -> list[Row]:
    """Choose a regularization for either loss, train on the whole set, and judge every message of
    the other.
    """
    groups, other = DIRECTIONS[str(part[0])]
    known, new = of_groups(messages(), groups), of_groups(messages(), other)
    if quick:
        known, new = sample(known, QUICK_SIZE), sample(new, QUICK_SIZE)
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
        for label, error in zip(new.index, found, strict=True)
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
