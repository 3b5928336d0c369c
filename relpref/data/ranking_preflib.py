"""Files of PrefLib (Mattei & Walsh 2013): orders of numbered alternatives, each with how often it was given."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.messages import counted, shown
from relpref.data.preference import PreferenceData
from relpref.data.ranking_blocks import check_size
from relpref.data.ranking_orders import read_items
from relpref.errors import DataError
from relpref.files import reading

_TYPES = ("soc", "soi", "toc", "toi")
_MEANINGS = ("top-k", "subset")
_ORDER = re.compile(r"(\{\s*\d+(?:\s*,\s*\d+)*\s*\}|\d+)(?:\s*,\s*|\s*$)")


def read_preflib(
    path: str | os.PathLike[str], incomplete: Any
) -> tuple[PreferenceData, NDArray[np.int32], tuple[int, ...]]:
    """Return items, positions and rankers; see `Rankings.from_preflib`."""
    if incomplete not in (None, *_MEANINGS):
        raise DataError(f"incomplete is {shown(incomplete)}; choose 'top-k' or 'subset'")
    file = Path(path)
    lines = _lines(file)
    about = {
        key.strip(): value.strip()
        for key, _, value in (one[1:].partition(":") for _, one in lines if one[0] == "#")
    }
    kind = about.get("DATA TYPE", file.suffix[1:]).lower()
    if kind not in _TYPES:
        raise DataError(
            f"{file}: its data type is {kind!r}; orders are in files of the types {', '.join(_TYPES)}"
        )
    if kind[2] == "i" and incomplete is None:
        raise DataError(
            f"{file}: it may lack alternatives, and the format does not say what that means; give incomplete='top-k' if they are "
            "below all that are there, incomplete='subset' if nothing is known of them"
        )
    names = _names(file, about)
    orders: list[NDArray[np.int32]] = []
    counts: list[int] = []
    for number, line in lines:
        if line[0] != "#":
            count, positions = _order(f"{file}, line {number}", line, len(names), kind)
            orders.append(positions)
            counts.append(count)
    _check_total(file, about, sum(counts))
    check_size(sum(counts), len(names))
    positions = read_only(np.repeat(np.array(orders, dtype=np.int32), counts, axis=0))
    return read_items(names), positions, tuple(range(len(positions)))


def _lines(file: Path) -> list[tuple[int, str]]:
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines or not lines[0][1].startswith("#"):
        raise DataError(
            f"{file}: it does not begin with the metadata of a PrefLib file ('# FILE NAME: ...'); files from before September 2022 "
            "have another format: get the current one from preflib.org"
        )
    return lines


def _names(file: Path, about: dict[str, str]) -> list[str]:
    number = about.get("NUMBER ALTERNATIVES", "")
    if not number.isdecimal() or int(number) < 1:
        raise DataError(f"{file}: the metadata lack the NUMBER ALTERNATIVES; get the file again")
    keys = [f"ALTERNATIVE NAME {one}" for one in range(1, int(number) + 1)]
    for key in keys:
        if not about.get(key):
            raise DataError(f"{file}: the metadata lack the {key}; get the file again")
    named = sum(key.startswith("ALTERNATIVE NAME ") for key in about)
    if named != len(keys):
        raise DataError(
            f"{file}: there are {named} names where the NUMBER ALTERNATIVES is {number}; get the file again"
        )
    return [about[key] for key in keys]


def _order(where: str, line: str, n: int, kind: str) -> tuple[int, NDArray[np.int32]]:
    count, _, order = line.partition(":")
    order = order.strip()
    entries = _ORDER.findall(order)
    if not count.strip().isdecimal() or int(count) < 1 or _ORDER.sub("", order) or not entries:
        raise DataError(
            f"{where}: {shown(line)} is not an order; expected how often it was given and the alternatives, as in '3: 1,2,{{3,4}}'"
        )
    positions = np.full(n, -1, dtype=np.int32)
    for block, entry in enumerate(entries):
        if entry[0] == "{" and kind[0] == "s":
            raise DataError(
                f"{where}: {entry} is a tie, but the file is of strict orders ({kind}); get the file again"
            )
        for alternative in map(int, re.findall(r"\d+", entry)):
            if not 1 <= alternative <= n:
                raise DataError(
                    f"{where}: there is no alternative {alternative}, only 1 to {n}; get the file again"
                )
            if positions[alternative - 1] >= 0:
                raise DataError(
                    f"{where}: the alternative {alternative} is in the order twice; get the file again"
                )
            positions[alternative - 1] = block
    if kind[2] == "c" and (positions < 0).any():
        missing = int(np.argmax(positions < 0)) + 1
        raise DataError(
            f"{where}: the alternative {missing} is missing in a file of complete orders ({kind}); get the file again"
        )
    return int(count), positions


def _check_total(file: Path, about: dict[str, str], found: int) -> None:
    voters = about.get("NUMBER VOTERS", "")
    if found == 0:
        raise DataError(f"{file}: there are no orders in it; get the file again")
    if voters.isdecimal() and int(voters) != found:
        raise DataError(
            f"{file}: there are orders of {counted(found, 'voter')} where the metadata promise {voters}; get the file again"
        )
