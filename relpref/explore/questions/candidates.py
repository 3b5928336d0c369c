"""Of more entities than a matrix has room for, those that questions are chosen among."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.explore.questions.limits import Limits, appearances
from relpref.infer import UtilityPosterior
from relpref.infer.about import about
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.problem import touched
from relpref.infer.ranks import pairs_of_labels

MOST = 600  # candidates; those that the user names, up to five times as many
# Entities that no answer is about cost a solve with the graph each: so many at most, fewer where the links, times their number, would
# be more than the last.
_MOST_NEW, _WORK = 200, 1e9
# Their covariances take products with a matrix of the answers: the square of their number times the candidates stays below this.
_FEWEST, _PRODUCTS = 300, 1e10


def narrowed(
    posterior: UtilityPosterior, limits: Limits, rng: np.random.Generator
) -> tuple[UtilityPosterior, Limits, NDArray[np.float64]]:
    """A posterior of some of the entities to choose questions by; itself where there is a matrix of all.

    With the limits as they are for it, and how often each of its entities was asked about.

    Half of the candidates that answers are about are the best of them, half are drawn at random, and so are others: so nobody is left
    out for ever.

    Raises
    ------
    DataError
        If more entities are named than can be looked at.
    """
    if not isinstance(posterior.belief, ImplicitBelief):
        return posterior, limits, appearances(posterior.data)
    chosen: NDArray[np.integer[Any]]
    if limits.pairs is not None:
        pairs = pairs_of_labels(limits.pairs)
        limits = replace(limits, pairs=pairs)
        chosen = posterior.data.index([label for pair in pairs for label in pair])
    elif limits.entities is not None:
        entities = list(limits.entities)
        limits = replace(limits, entities=entities)
        chosen = posterior.data.index(entities)
    else:
        chosen = _chosen(posterior, limits, rng)
    positions = np.unique(chosen)
    if len(positions) > 5 * MOST:
        raise DataError(
            f"questions can be chosen among {5 * MOST} entities at a time where there are so many, and {len(positions)} were named; "
            "name fewer"
        )
    avoid = pairs_of_labels(limits.avoid)
    ends = posterior.data.index([label for pair in avoid for label in pair]).reshape(-1, 2)
    here = np.isin(ends, positions)
    limits = replace(limits, avoid=[pair for pair, inside in zip(avoid, here, strict=True) if inside.all()])
    if limits.pairs is None:
        limits = replace(limits, entities=None)
    some = about(posterior, positions.astype(np.int64), parts=False)
    return some, limits, appearances(posterior.data)[positions]


def _chosen(posterior: UtilityPosterior, limits: Limits, rng: np.random.Generator) -> NDArray[np.int64]:
    data, mean = posterior.data, posterior.belief.mean()
    open_ = np.ones(data.num_entities, dtype=bool)
    if limits.most_appearances is not None:
        open_ = appearances(data) < limits.most_appearances
    known = np.zeros(data.num_entities, dtype=bool)
    known[touched(data)] = True
    links = sum(2 * graph.num_edges + graph.num_nodes for graph in data.relations.values())
    most = int(np.clip(_PRODUCTS / max(data.num_comparisons, 1) ** 2, _FEWEST, MOST))
    new = int(np.clip(_WORK / max(links, 1), 20, _MOST_NEW))
    parts = [
        _best_and_others(np.flatnonzero(group), mean, number, rng)
        for group, number in ((known & open_, most - new), (~known & open_, new))
    ]
    chosen = np.concatenate(parts)
    return (
        chosen if len(chosen) > 1 else touched(data)[:2]
    )  # where nobody may be asked about, none of these may be either


def _best_and_others(
    group: NDArray[np.int64], mean: NDArray[np.float64], number: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    if len(group) <= number:
        return group
    best = group[np.argpartition(-mean[group], number // 2)[: number // 2]]
    others = np.setdiff1d(group, best, assume_unique=True)
    return np.concatenate([best, rng.choice(others, number - len(best), replace=False)])
