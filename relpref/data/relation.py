"""A relation as the user gives it, and how to understand it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from relpref.data.arrays import listed, nearest, shown
from relpref.errors import DataError

# Of the random walk on a directed relation: the chance to go anywhere instead of along a link (Brin & Page 1998).
TELEPORT = 0.15

# Parameters of answers are called ``rater_noise`` and so on, those of a relation's kernel ``<relation>_amplitude``.
OTHER_PARTS = {"attributes": "the attributes of the entities", "individual": "the entities themselves"}
RESERVED = ("position", "rater", "soft", "strength", "tie")


@dataclass(frozen=True, eq=False)
class Relation:
    """Links, and what their direction means.

    Parameters
    ----------
    table : DataFrame, networkx graph, scipy sparse matrix, or path of a file
        Columns source, target and optionally weight (default 1); or a graph whose nodes are labels, with
        the edge attribute weight (default 1); or an n x n matrix of weights in the order of the entities (row to column).
        A file holds a table (``.csv``, ``.csv.gz``, ``.parquet``), which is read in pieces, so that ten million lines need little
        memory; or a matrix (MatrixMarket, ``.mtx`` or ``.mtx.gz``; ``.npz`` as `scipy.sparse.save_npz` writes it).
    kind : {"undirected", "directed", "bipartite"}, optional
        Undirected: entities are joined by the edges as they stand. Not needed where both directions agree; say
        ``"undirected"`` for a table, matrix or ``DiGraph`` whose directions differ: the larger of the two weights is used then.

        Directed: who links to whom matters. Bipartite: entities (sources) link to something that is no entity (targets),
        and two that link to the same target are joined; a table or a networkx graph.
    form : {"roles", "random_walk"}, optional
        Of a directed relation. By default an entity has two roles, each with a utility of its own: ``<name>_linking`` joins those
        who link to the same entity (bibliographic coupling), ``<name>_linked`` those to whom the same entity links
        (co-citation). ``"random_walk"`` joins entities by how often a walk along the links goes from one to the other
        (Chung 2005), one graph for both directions.
    hubs : {"weight", "count"}, optional
        What a target shared by d entities adds to the edge between two of them, besides the product of the weights of their links:
        1/(d − 1), so that a hub joins each of them as strongly as a small one (Newman 2001); or 1 for ``"count"``.
        Not for random walks.
    max_degree : int, optional
        Targets that more entities link to are left out (a note says what that cost): a hub of degree d makes d² edges.
        Not for random walks.
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
        _check_choice("kind", self.kind, ("undirected", "directed", "bipartite"))
        _check_choice("form", self.form, ("roles", "random_walk"))
        _check_choice("hubs", self.hubs, ("weight", "count"))
        walks = self.form == "random_walk"
        projected = self.kind == "bipartite" or (self.kind == "directed" and not walks)
        for option, belongs, whose in (
            ("form", self.kind == "directed", "directed relations"),
            ("hubs", projected, "bipartite relations and the roles of directed ones"),
            ("max_degree", projected, "bipartite relations and the roles of directed ones"),
            ("teleport", walks, 'directed relations of form="random_walk"'),
        ):
            if getattr(self, option) is not None and not belongs:
                raise DataError(f"Relation: {option} belongs to {whose}; leave it out or give the kind")
        cap = self.max_degree
        if cap is not None and (not isinstance(cap, Integral) or isinstance(cap, bool) or cap < 2):
            raise DataError(
                f"Relation: max_degree is {shown(cap)}; give a whole number from 2 on, as a target joins two entities or more"
            )
        if self.teleport is not None and not 0 < self.teleport < 1:
            raise DataError(
                f"Relation: teleport is {shown(self.teleport)}; give a chance between 0 and 1, such as {TELEPORT}"
            )
        if self.kind == "directed" and self.form is None:
            object.__setattr__(self, "form", "roles")
        if projected and self.hubs is None:
            object.__setattr__(self, "hubs", "weight")
        if walks and self.teleport is None:
            object.__setattr__(self, "teleport", TELEPORT)


def _check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise DataError(f"Relation: there is no {option} {shown(value)}; use one of {listed(choices)}")


def check_relation_name(name: object) -> str:
    """Return the name of a relation if it can become part of the names of model sites."""
    if not isinstance(name, str) or not name.replace("_", "a").replace("-", "a").isalnum():
        raise DataError(
            f"relations: {shown(name)} cannot be the name of a relation; use letters, digits, _ and - only "
            "(for a file, the name before its ending)"
        )
    if name in OTHER_PARTS:
        raise DataError(f'relations: the name "{name}" stands for {OTHER_PARTS[name]}; rename the relation')
    if name in RESERVED:
        raise DataError(
            f"relations: the name {name!r} stands for a parameter of the answers in the model; rename the relation"
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
    return {check_relation_name(name): value for name, value in relations.items()}


def check_known(name: object, known: Collection[str]) -> None:
    """Refuse the name of a relation that is not there."""
    if name not in known:
        meant = nearest(name, known, most=1)
        hint = f"did you mean {meant[0]!r}?" if meant else "use one of these" if known else "leave it out"
        there = f"the relations are {listed(known)}" if known else "the data has no relations"
        raise DataError(f"relations: there is no relation {shown(name)}; {there}; {hint}")


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
    """Return the file of a relation with its kind and options; the path itself where nothing is said."""
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
