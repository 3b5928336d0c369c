"""What a data set contains: as tables, as groups that hang together, in one line."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import NDArray

from relpref.data.answers import Comparisons
from relpref.data.labels import label_column
from relpref.data.messages import counted

if TYPE_CHECKING:
    from relpref.data.preference import PreferenceData


def to_tables(data: "PreferenceData") -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Return the entities, the comparisons and the edges; see `PreferenceData.to_tables`."""
    labels = label_column(data.entities)
    names = pd.Index(list(data.attribute_names), dtype=object)
    entities = pd.DataFrame(np.array(data.attributes), index=labels.rename("entity"), columns=names)
    comparisons = data.comparisons.table(data.entities)
    relations: dict[str, Any] = {}
    for part, graph in data.relations.items():
        name = data.relation_of(part)
        if name in data.links:
            relations[name] = data.links[name].table(data.entities)
            continue
        ends = {
            "source": labels.take(np.asarray(graph.source)),
            "target": labels.take(np.asarray(graph.target)),
        }
        relations[name] = pd.DataFrame({**ends, "weight": np.array(graph.weight)})
    return entities, comparisons, relations


def groups(data: "PreferenceData") -> NDArray[np.int32]:
    """Return the group of each entity; see `PreferenceData.groups`."""
    sources = [data.winner, *(graph.source for graph in data.relations.values())]
    targets = [data.loser, *(graph.target for graph in data.relations.values())]
    ends = (np.concatenate(sources), np.concatenate(targets))
    shape = (data.num_entities, data.num_entities)
    links = scipy.sparse.coo_array((np.ones(ends[0].size), ends), shape=shape)
    _, group = scipy.sparse.csgraph.connected_components(links, directed=False)
    return np.asarray(group, dtype=np.int32)


def describe(data: "PreferenceData") -> str:
    """Return the sizes in one line; see `PreferenceData.describe`."""
    parts = [counted(data.num_entities, "entity", "entities")]
    if data.attribute_names:
        parts.append(counted(len(data.attribute_names), "attribute"))
    ends = np.stack([np.asarray(data.winner), np.asarray(data.loser)])
    pairs = counted(np.unique(np.sort(ends, axis=0), axis=1).shape[1], "pair")
    parts.append(
        f"{counted(data.num_answers, 'answer')} to {pairs}" if data.answered else f"{pairs}, not answered"
    )
    parts += _answer_words(data.comparisons)
    if data.relations:
        sizes = ", ".join(
            f"{name} ({counted(int((graph.degree > 0).sum()), 'node')}, {counted(graph.num_edges, 'edge')})"
            for name, graph in data.relations.items()
        )
        parts.append(f"relations: {sizes}")
    return ", ".join(parts)


def _answer_words(answers: Comparisons) -> list[str]:
    words = [] if answers.tie is None else [counted(int(answers.count[answers.tie].sum()), "tie")]
    if answers.strengths > 1:
        words.append(f"strengths up to {answers.strengths}")
    if answers.rater is not None:
        words.append(counted(len(answers.raters), "rater"))
    return words
