"""The protocol of TREC (XPGP Fig. 3) on Cora: few relevant ones among a thousand linked documents.

The paper's crawl of .gov cannot be had. Each of ten subsets of Cora stands for a query: 16 papers
of one class are relevant, 984 of other classes are not, the words are the attributes, and the
relations are the citations among the thousand and the two-hop graph (two papers that share a
neighbor, also one outside of the subset).
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import pandas as pd
import scipy.sparse

from benchmarks.reproduce.problem import Problem, distances
from benchmarks.reproduce.protocol import Protocol, Source
from relpref import PreferenceData
from relpref.data_loaders import planetoid
from relpref.data_loaders.letor import pairs_of

DOCUMENTS, RELEVANT = 1000, 16


@cache
def _cora(source: Source) -> tuple[planetoid.CitationNetwork, pd.DataFrame]:
    network = planetoid.load("cora", source.data)
    return network, two_hop(network.links)


def two_hop(links: pd.DataFrame) -> pd.DataFrame:
    """Join every two papers that share a neighbor, ``source`` < ``target`` (XPGP section 6)."""
    labels = pd.Index(np.unique(links[["source", "target"]].to_numpy()))
    ends = [labels.get_indexer(links[end]) for end in ("source", "target")]
    adjacency = scipy.sparse.csr_array((np.ones(len(links)), ends), shape=(len(labels),) * 2)
    adjacency = adjacency + adjacency.T
    shared = scipy.sparse.triu(adjacency @ adjacency, 1, format="csr")
    shared.sort_indices()
    source, target = shared.nonzero()
    return pd.DataFrame({"source": labels[source], "target": labels[target]})


@lru_cache(maxsize=2)  # a hundred megabytes each
def load(source: Source, query: int) -> dict[str, Problem]:
    """One subset; the classes take turns in being the relevant one."""
    network, hops = _cora(source)
    wanted = query % (int(network.classes.max()) + 1)
    rng = np.random.default_rng((2009, query))
    relevant = rng.choice(np.flatnonzero(network.classes == wanted), RELEVANT, replace=False)
    others = rng.choice(
        np.flatnonzero(network.classes != wanted), DOCUMENTS - RELEVANT, replace=False
    )
    papers = np.sort(np.concatenate([relevant, others]))
    words = network.words[papers].toarray()
    relevance = pd.Series((network.classes[papers] == wanted).astype(int), index=papers)
    data = PreferenceData.from_tables(
        pd.DataFrame(
            words, index=papers, columns=[f"word_{number}" for number in range(words.shape[1])]
        ),
        pairs_of(relevance),
        {"links": _within(network.links, papers), "two_hop": _within(hops, papers)},
    )
    return {"links and two-hop": Problem(data, distances(words))}


def _within(links: pd.DataFrame, papers: np.ndarray) -> pd.DataFrame:
    return links[links["source"].isin(papers) & links["target"].isin(papers)]


PROTOCOL = Protocol("trec", "TREC's protocol on Cora (XPGP Fig. 3)", (5, 10, 15, 20), load)
