"""A relation's kind and its options in one word: ``cites.directed.csv``, or ``tags=t.csv:bipartite,max_degree=50``."""

from pathlib import Path
from typing import Any

from relpref.data.messages import listed, shown
from relpref.data.relation import Relation
from relpref.errors import DataError

_KINDS: dict[str, dict[str, Any]] = {
    "undirected": {"kind": "undirected"},
    "directed": {"kind": "directed"},
    "random_walk": {"kind": "directed", "form": "random_walk"},
    "bipartite": {"kind": "bipartite"},
}
_OPTIONS: dict[str, Any] = {"hubs": str, "max_degree": int, "teleport": float}
KIND_WORDS = tuple(_KINDS)


def says_kind(word: str) -> bool:
    """Whether a word begins with a kind."""
    return word.partition(",")[0] in _KINDS


def with_kind(path: Path, word: str) -> Path | Relation:
    """Return the file of a relation with its kind and options; the path itself where nothing is said.

    Raises
    ------
    DataError
        If an option is none of a relation's, or its value cannot be read.
    """
    if not word:
        return path
    kind, *options = word.split(",")
    values = dict(_KINDS[kind])
    for option in options:
        name, _, value = option.partition("=")
        try:
            values[name] = _OPTIONS[name](value)
        except (KeyError, ValueError):
            raise DataError(
                f"{path}: {shown(option)} is no option of a relation; write {listed(_OPTIONS)}, such as max_degree=50"
            ) from None
    return Relation(path, **values)


def path_and_kind(given: Path | Relation) -> tuple[Path, str]:
    """The inverse of `with_kind`; options that have their defaults are not mentioned."""
    if not isinstance(given, Relation):
        return Path(given), ""
    word = "random_walk" if given.form == "random_walk" else given.kind or ""
    usual = with_kind(Path(given.table), word)
    said = [
        f"{name}={getattr(given, name)}"
        for name in _OPTIONS
        if getattr(given, name) != getattr(usual, name, None)
    ]
    return Path(given.table), ",".join([word, *said])
