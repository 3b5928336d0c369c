"""Rankings in words."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.messages import counted, shown

if TYPE_CHECKING:
    from relpref.data.rankings import Rankings

_RANKINGS_SHOWN = 5
_BLOCKS_SHOWN = 10


def write_order(places: NDArray[np.int32], items: Sequence[Hashable]) -> list[Any]:
    """Return one ranking, best first, with a tuple for each tie and around a label that is itself a tuple."""
    order = np.argsort(places, kind="stable")
    order = order[places[order] >= 0]
    blocks = np.split(order, np.flatnonzero(np.diff(places[order])) + 1)
    tied = [tuple(items[item] for item in block) for block in blocks if len(block)]
    return [block if len(block) > 1 or isinstance(block[0], tuple) else block[0] for block in tied]


def describe(rankings: "Rankings") -> str:
    """Return kind, sizes and classes in one line."""
    m, n = rankings.shape
    kind = rankings.kind if len(set(rankings.kinds)) == 1 else f"partly {rankings.kind}"
    ranked = (rankings.positions >= 0).sum(axis=1)
    few, many = ranked.min(initial=n), ranked.max(initial=0)
    of = "" if few == n else f"{few} of " if few == many else f"{few} to {many} of "
    return f"{counted(m, f'{kind} ranking')} of {of}{counted(n, 'item')}{_classes(rankings)}"


def _classes(rankings: "Rankings") -> str:
    if rankings.label is None:
        return f", {counted(len(rankings.classes), 'class', 'classes')}" if rankings.classes else ""
    sizes = Counter(rankings.label.tolist())
    return ", classes " + ", ".join(
        f"{shown(label)} ({sizes[code]})" for code, label in enumerate(rankings.classes)
    )


def first_lines(rankings: "Rankings") -> list[str]:
    """Return the first rankings, cut to a readable length."""
    lines = []
    for ranker, places in zip(rankings.rankers[:_RANKINGS_SHOWN], rankings.positions, strict=False):
        order = write_order(places, rankings.items.entities)
        blocks = [" = ".join(map(str, one if isinstance(one, tuple) else (one,))) for one in order]
        more = [f"{len(blocks) - _BLOCKS_SHOWN} more"] if len(blocks) > _BLOCKS_SHOWN else []
        lines.append(f"  {ranker}: {' > '.join([*blocks[:_BLOCKS_SHOWN], *more])}")
    return [*lines, "  ..."] if len(rankings) > _RANKINGS_SHOWN else lines
