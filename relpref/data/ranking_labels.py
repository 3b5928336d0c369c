"""Classes of those who gave the rankings."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.labels import plain_labels
from relpref.data.messages import counted, listed, shown
from relpref.data.ranking_orders import in_order, place_of
from relpref.errors import DataError


def read_labels(
    labels: Any, classes: Sequence[Hashable] | None, rankers: Sequence[Hashable]
) -> tuple[tuple[Hashable, ...], NDArray[np.int32]]:
    """Return the classes and, for each ranking, a position in them; see `Rankings.with_labels`."""
    if isinstance(labels, pd.Series):
        _check_index(labels.index.tolist(), rankers)
    plain = plain_labels(
        in_order(labels, "labels"), lambda row: place_of(rankers, min(row, len(rankers) - 1))
    )
    if len(plain) != len(rankers):
        raise DataError(
            f"labels: there are {len(plain)} for {counted(len(rankers), 'ranking')}; give one for each ranking"
        )
    known = _sorted(plain) if classes is None else _distinct(classes)
    codes = {label: code for code, label in enumerate(known)}
    for row, label in enumerate(plain):
        if label not in codes:
            raise DataError(
                f"{place_of(rankers, row)}: the label {shown(label)} is none of the classes {listed(known)}; correct it"
            )
    found = np.fromiter((codes[label] for label in plain), dtype=np.int32, count=len(plain))
    return tuple(codes), read_only(found)


def _distinct(classes: Any) -> list[Any]:
    known = plain_labels(in_order(classes, "classes"), lambda row: f"classes, position {row}")
    for position, label in enumerate(known):
        if label in known[:position]:
            raise DataError(f"classes: {shown(label)} is among them twice; name each class once")
    return known


def _sorted(labels: Sequence[Any]) -> list[Any]:
    distinct = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)
    except TypeError:
        raise DataError(
            f"labels: {listed(distinct)} are of different types and have no order; make all of them text"
        ) from None


def _check_index(index: Sequence[Any], rankers: Sequence[Any]) -> None:
    if tuple(index) != tuple(rankers) and set(index) == set(rankers):
        raise DataError(
            "labels: the index of the Series names the rankers in another order than the rankings; "
            "pass labels.loc[list(rankings.rankers)], or labels.to_numpy() if they are in the order of the rankings"
        )
