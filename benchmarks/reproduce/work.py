"""Cutting an experiment into items for `relpref.parallel.run_all`, and computing one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.reproduce import ohsumed, trec
from benchmarks.reproduce.models import MODELS
from benchmarks.reproduce.problem import quality
from benchmarks.reproduce.protocol import Protocol, Source
from benchmarks.reproduce.rows import Row

PROTOCOLS = {one.name: one for one in (ohsumed.PROTOCOL, trec.PROTOCOL)}
KEY = ("protocol", "setting", "query", "size", "rerun", "model")


@dataclass(frozen=True)
class Item:
    """All reruns of one query with one number of known pairs: they share what JAX compiles, and the
    spectra of the graphs.

    Attributes
    ----------
    protocol : str
    source : Source
    query, size : int
    reruns : tuple of int
        Those that have not been computed yet.
    """

    protocol: str
    source: Source
    query: int
    size: int
    reruns: tuple[int, ...]


def items(protocol: Protocol, source: Source, done: set[tuple[Any, ...]]) -> list[Item]:
    """What is left to do; ``done`` holds protocol, query, size and rerun of what is complete."""
    left = []
    for query in range(protocol.queries):
        for size in protocol.sizes:
            reruns = tuple(
                rerun
                for rerun in range(protocol.reruns)
                if (protocol.name, query, size, rerun) not in done
            )
            if reruns:
                left.append(Item(protocol.name, source, query, size, reruns))
    return left


def compute(item: Item) -> list[Row]:
    """Fit and judge every model in every setting, one row each."""
    protocol = PROTOCOLS[item.protocol]
    rows = []
    for setting, problem in protocol.load(item.source, item.query).items():
        for rerun in item.reruns:
            seed = (protocol.seed, item.query, item.size, rerun)
            known, remaining = problem.draw(item.size, seed)
            for name, model in MODELS.items():
                fitted = model.fit(problem, known, remaining)
                judged = quality(fitted.scores)
                values = (item.protocol, setting, item.query, item.size, rerun, name)
                judgement = {"error": judged.error, "auc": judged.auc, "result": fitted.result}
                rows.append(dict(zip(KEY, values, strict=True)) | judgement)
    return rows
