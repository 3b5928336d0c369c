"""Items of rankings: matched by label, never by the order in which they happen to be read."""

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.entities import Entities, index_entities, read_entities
from relpref.data.messages import listed
from relpref.data.nodes import unanswered
from relpref.data.preference import PreferenceData
from relpref.errors import DataError

if TYPE_CHECKING:
    from relpref.data.rankings import Rankings


def code_of(items: PreferenceData) -> int:
    """A number for the labels in their order, the same in every process."""
    return zlib.crc32(repr(items.entities).encode("utf-8", "surrogatepass"))


def mostly_alike(items: PreferenceData) -> bool:
    """Whether the median distance of two items in their attributes is 0 (or there are no two items)."""
    n = items.num_entities
    _, sizes = np.unique(np.asarray(items.attributes), axis=0, return_counts=True)
    pairs, alike = n * (n - 1) // 2, int(np.sum(sizes * (sizes - 1))) // 2
    return pairs == 0 or 2 * alike > pairs


def with_attributes(items: PreferenceData, table: Any, relations: Any) -> PreferenceData:
    """Return the same items, in their order, with other attributes and relations; see `Rankings.with_items`."""
    read = read_entities(table)
    index = index_entities(read)
    rows = index.locate(items.entities, lambda _: "items", "give every ranked item a row in the table")
    if len(index) > len(rows):
        extra = [label for label in index.labels if label not in set(items.entities)]
        raise DataError(
            f"items: {listed(extra)} belong to no known item; drop these rows, or give all items when the rankings are read"
        )
    same = Entities(list(items.entities), read.attributes[rows], read.attribute_names, read.where)
    return unanswered(same, relations)


def positions_among(rankings: "Rankings", items: PreferenceData) -> NDArray[np.int32]:
    """Return the positions of these items, −1 for those that the rankings do not know; see `Rankings.aligned`."""
    columns = items.index(rankings.items.entities)
    if rankings.features is not None:
        raise DataError(
            "the rankings carry features that were computed for items in another order than those they are to be compared with; read them "
            "with the same items=, and compute their features then"
        )
    positions = np.full((len(rankings), items.num_entities), -1, dtype=np.int32)
    positions[:, columns] = rankings.positions
    return read_only(positions)
