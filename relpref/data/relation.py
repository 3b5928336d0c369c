"""A relation as the user gives it, how to understand it, and the files of a data set in a folder."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple

from relpref.data.arrays import did_you_mean, listed, shown
from relpref.data.tables import SUFFIXES, suffix_of
from relpref.errors import DataError

# Of the random walk on a directed relation: the chance to go anywhere instead of along a link (Brin
# & Page 1998).
TELEPORT = 0.15

# Parameters of answers are called ``rater_noise`` and so on, those of a relation's kernel
# ``<relation>_amplitude``.
OTHER_PARTS = {"attributes": "the attributes of the items", "individual": "the items themselves"}
RESERVED = ("position", "rater", "soft", "strength", "tie")
_CHOICES = {
    "kind": ("undirected", "directed", "bipartite"),
    "form": ("roles", "random_walk"),
    "hubs": ("weight", "count"),
}


@dataclass(frozen=True, eq=False)
class Relation:
    """Links and the meaning of their direction.

    Parameters
    ----------
    table : DataFrame, list of tuples, Series, networkx graph, matrix, or path of a file
        Columns source, target and optionally weight (default 1); or tuples of these; or a graph
        whose nodes are labels, with the edge attribute weight (default 1); or an n x n matrix of
        weights, dense or sparse, in the order of the items (row to column), or a DataFrame with the
        labels in both its index and its columns. A Series (or a dictionary) gives the group of each
        item, and items of one group are linked: a bipartite relation. A file holds a table
        (``.csv``, ``.csv.gz``, ``.parquet``), which is read in pieces, so that ten million lines
        need little memory; or a matrix (MatrixMarket, ``.mtx`` or ``.mtx.gz``; ``.npz`` as
        `scipy.sparse.save_npz` writes it).
    kind : {"undirected", "directed", "bipartite"}, optional
        Undirected: items are joined by the edges as they stand. Not needed where both directions
        agree; say ``"undirected"`` for a table, matrix or ``DiGraph`` whose directions differ: the
        larger of the two weights is used then.

        Directed: the direction matters. Bipartite: items (sources) link to things that are not
        items (targets), and two that link to the same target are joined; a table or a networkx
        graph.
    form : {"roles", "random_walk"}, optional
        Of a directed relation. By default an item has two roles, each with a utility of its own:
        ``<name>_linking`` joins those who link to the same item (bibliographic coupling),
        ``<name>_linked`` those to whom the same item links (co-citation). ``"random_walk"`` joins
        items by how often a walk along the links goes from one to the other (Chung 2005), one graph
        for both directions.
    hubs : {"weight", "count"}, optional
        What a target shared by d items adds to the edge between two of them, in addition to the
        product of the weights of their links: 1/(d − 1), so that a hub joins each of them as
        strongly as a small one (Newman 2001); or 1 for ``"count"``. Not for random walks.
    max_degree : int, optional
        Targets that more items link to are left out (a note counts them): a hub of degree d makes
        d² edges. Not for random walks.
    teleport : float, optional
        Chance that the random walk goes anywhere instead of along a link; 0.15 by default.

    Raises
    ------
    DataError
        If an option is not one of these or does not belong to the kind.
    """

    table: Any
    kind: Literal["undirected", "directed", "bipartite"] | None = None
    form: Literal["roles", "random_walk"] | None = None
    hubs: Literal["weight", "count"] | None = None
    max_degree: int | None = None
    teleport: float | None = None

    def __post_init__(self) -> None:
        """Check the options and fill in the defaults of those that belong to the kind."""
        if isinstance(self.table, Relation):
            raise DataError("Relation: the table is itself a Relation; pass its table")
        for option, choices in _CHOICES.items():
            value = getattr(self, option)
            if value is not None and value not in choices:
                raise DataError(
                    f"Relation: there is no {option} {shown(value)}; use {listed(choices)}"
                )
        directed, walks = self.kind == "directed", self.form == "random_walk"
        projected = self.kind == "bipartite" or (directed and not walks)
        whose = "bipartite relations and the roles of directed ones"
        for option, belongs, owners, default in (
            ("form", directed, "directed relations", "roles"),
            ("hubs", projected, whose, "weight"),
            ("max_degree", projected, whose, None),
            ("teleport", walks, 'directed relations of form="random_walk"', TELEPORT),
        ):
            if getattr(self, option) is None:
                object.__setattr__(self, option, default if belongs else None)
            elif not belongs:
                raise DataError(
                    f"Relation: {option} belongs to {owners}; leave it out or give the kind"
                )
        cap = self.max_degree
        if cap is not None and (not isinstance(cap, Integral) or isinstance(cap, bool) or cap < 2):
            raise DataError(f"Relation: max_degree is {shown(cap)}; give a whole number from 2 on")
        if self.teleport is not None and not 0 < self.teleport < 1:
            raise DataError(
                f"Relation: teleport is {shown(self.teleport)}; give a chance in (0, 1)"
            )


def check_relation_name(name: object) -> str:
    """Return the name of a relation if it can become part of the names of model sites."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+( [\w-]+)*", name):
        raise DataError(
            f"relations: {shown(name)} cannot be the name of a relation; use letters, digits, _, - "
            "and single spaces only "
            "(for a file, the name before its ending)"
        )
    if name in OTHER_PARTS:
        raise DataError(
            f'relations: the name "{name}" stands for {OTHER_PARTS[name]}; rename the relation'
        )
    if name in RESERVED:
        raise DataError(
            f"relations: {name!r} is the name of a parameter of answers; rename the relation"
        )
    return name


def checked_relations(relations: Any) -> dict[str, Any]:
    """Return the relations as given, after checking their names; none if ``relations`` is None."""
    if relations is None:
        return {}
    if not isinstance(relations, Mapping):
        raise DataError(
            f"relations: expected a mapping of names to edges, got {type(relations).__name__}; "
            'pass {"name": edges} with a name of your choice'
        )
    # A relation may be read twice.
    return {
        check_relation_name(name): list(value) if isinstance(value, Iterator) else value
        for name, value in relations.items()
    }


def check_known(name: object, known: Collection[str]) -> None:
    """Refuse the name of a relation that is not there."""
    if name not in known:
        hint = did_you_mean(name, known, "use one of these" if known else "leave it out")
        there = f"the relations are {listed(known)}" if known else "the data has no relations"
        raise DataError(f"relations: there is no relation {shown(name)}; {there}; {hint}")


MATRICES = (".mtx", ".mtx.gz", ".npz")
_OPTIONS: dict[str, Any] = {"hubs": str, "max_degree": int, "teleport": float}
KIND_WORDS = ("undirected", "directed", "random_walk", "bipartite")


def says_kind(word: str) -> bool:
    """Whether a word begins with a kind."""
    return word.partition(",")[0] in KIND_WORDS


def with_kind(path: Path, word: str) -> Path | Relation:
    """Return the file of a relation with its kind and options; the path itself where nothing is said."""
    if not word:
        return path
    kind, *options = word.split(",")
    walks = kind == "random_walk"
    values: dict[str, Any] = {"kind": "directed", "form": kind} if walks else {"kind": kind}
    for option in options:
        name, _, value = option.partition("=")
        try:
            values[name] = _OPTIONS[name](value)
        except (KeyError, ValueError):
            raise DataError(
                f"{path}: {shown(option)} is no option of a relation; write {listed(_OPTIONS)}"
            ) from None
    return Relation(path, **values)


def path_and_kind(given: Path | Relation) -> tuple[Path, str]:
    """The inverse of `with_kind`; options that have their defaults are not mentioned."""
    if not isinstance(given, Relation):
        return Path(given), ""
    word = "random_walk" if given.form == "random_walk" else given.kind or ""
    path, usual = Path(given.table), with_kind(Path(given.table), word)
    options = {name: getattr(given, name) for name in _OPTIONS}
    said = [
        f"{name}={options[name]}" for name in options if options[name] != getattr(usual, name, None)
    ]
    return path, ",".join([word, *said])


class Files(NamedTuple):
    """The files of a data set; see `PreferenceData.from_files`."""

    items: Path | None
    comparisons: Path | None
    relations: dict[str, Path | Relation]  # sorted by name


def find_files(path: str | os.PathLike[str]) -> Files:
    """Find the tables of a data set in a folder."""
    folder = Path(path)
    if not folder.is_dir():
        what = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {what}; give the folder that holds items.csv and answers.csv")
    relations: dict[str, Path | Relation] = {}
    inside = folder / "relations"
    if inside.exists() and not inside.is_dir():
        raise DataError(f"{inside}: this is a file; make it a folder with one table per relation")
    try:
        files = sorted(inside.iterdir()) if inside.exists() else []
    except OSError as error:
        raise DataError(
            f"{inside}: the folder cannot be read ({error}); check its permissions"
        ) from error
    for file in files:
        # Desktop systems leave hidden files such as ._links.csv behind.
        suffix = suffix_of(file)
        if suffix not in (*SUFFIXES, *MATRICES) or file.name.startswith("."):
            continue
        stem = file.name[: -len(suffix)]
        name, _, word = stem.partition(".")
        if not says_kind(word):
            name, word = stem, ""
        if name in relations:
            other = path_and_kind(relations[name])[0].name
            raise DataError(
                f"{file}: the relation {shown(name)} is also in {other}; remove one of the two"
            )
        relations[name] = with_kind(file, word)
    return Files(
        _one(folder, "items", "entities"), _one(folder, "answers", "comparisons"), relations
    )


def _one(folder: Path, stem: str, former: str) -> Path:
    places = (folder / f"{name}{suffix}" for name in (stem, former) for suffix in SUFFIXES)
    files = [file for file in places if file.exists()]
    if not files:
        raise DataError(
            f"{folder}: there is no {stem}.csv (or {stem}.parquet) in the folder; add it"
        )
    if len(files) > 1:
        raise DataError(
            f"{folder}: there is {files[0].name} and {files[1].name}; remove one of the two"
        )
    return files[0]
