"""Relations as the user gives them: their options, their names, and the files that hold them."""

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse

from relpref.data.arrays import counted, did_you_mean, listed, shown
from relpref.data.table_files import SUFFIXES, suffix_of
from relpref.data.tables import is_path, read_table
from relpref.errors import DataError
from relpref.files import FilePath, check_decompressed, decompressed, reading
from relpref.limits import require_memory

# Probability that the random walk on a directed relation goes anywhere instead of along a link
# (Brin & Page 1998).
TELEPORT = 0.15

# Parameters of answers are called ``rater_noise`` and so on, those of a relation's kernel
# ``<relation>_amplitude``.
OTHER_PARTS = {"attributes": "the attributes of the items", "individual": "the items themselves"}
RESERVED = ("position", "rater", "soft", "strength", "tie")
OPTIONS = ("kind", "form", "hubs", "max_degree", "teleport")
_CHOICES = {
    "kind": ("undirected", "directed", "bipartite"),
    "form": ("roles", "random_walk"),
    "hubs": ("weight", "count"),
}
Relations = Mapping[str, Any] | None  # links by name
MATRICES = (".mtx", ".mtx.gz", ".npz")
_BYTES_PER_ENTRY = 28  # of a matrix as it is read (COO), and as it is sorted by rows (CSR)
_LONGEST_LINE = 10_000  # of the header of a MatrixMarket file
_BLOCK = 16_000_000
_CONTROL = bytes({*range(32)} - {*b"\t\n\r"})


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
        Form of a directed relation. By default an item has two roles, each with its own utility:
        ``<name>_linking`` joins items that link to the same item (bibliographic coupling),
        ``<name>_linked`` items to which the same item links (co-citation). ``"random_walk"`` joins
        items by how often a walk along the links goes from one to the other (Chung 2005), one graph
        for both directions.
    hubs : {"weight", "count"}, optional
        Factor by which a target that d items share multiplies the product of the weights of two
        links to it: 1/(d − 1), so that a hub joins each item as strongly as a small target does
        (Newman 2001); or 1 for ``"count"``. Not for random walks.
    max_degree : int, optional
        Largest number of links to a target; targets with more are left out, and a note counts
        them. A hub of degree d makes d² edges. Not for random walks.
    teleport : float, optional
        Probability that the random walk goes anywhere instead of along a link; default 0.15.

    Raises
    ------
    DataError
        If an option is not one of these or does not belong to the kind.

    Examples
    --------
    >>> import relpref
    >>> cites = relpref.Relation([("b", "a"), ("c", "a")], kind="directed")
    >>> posterior = relpref.fit(answers=[("a", "b")], relations={"cites": cites})
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
        directed = self.kind == "directed"
        walks = self.form == "random_walk"
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
                f"Relation: teleport is {shown(self.teleport)}; give a probability in (0, 1)"
            )


def check_relation_name(name: object) -> str:
    """Return the name of a relation if it can become part of the names of model sites."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+( [\w-]+)*", name):
        raise DataError(
            f"relations: {shown(name)} cannot be the name of a relation; use letters, digits, _, - "
            "and single spaces only (for a file, the name before its ending)"
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


def check_known(name: object, relations: Collection[str]) -> None:
    """Refuse a name that is none of the relations."""
    if name not in relations:
        hint = did_you_mean(name, relations, "use one of these" if relations else "leave it out")
        names = (
            f"the relations are {listed(relations)}" if relations else "the data has no relations"
        )
        raise DataError(f"relations: there is no relation {shown(name)}; {names}; {hint}")


_OPTIONS_OF_FILES = {"hubs": str, "max_degree": int, "teleport": float}
KIND_WORDS = ("undirected", "directed", "random_walk", "bipartite")


def says_kind(word: str) -> bool:
    """Whether a word begins with a kind."""
    return word.partition(",")[0] in KIND_WORDS


def with_kind(path: Path, word: str) -> Path | Relation:
    """Return the file of a relation with the kind and options in a word; the path without one."""
    if not word:
        return path
    kind, *options = word.split(",")
    walks = kind == "random_walk"
    values: dict[str, Any] = {"kind": "directed", "form": kind} if walks else {"kind": kind}
    for option in options:
        name, _, value = option.partition("=")
        try:
            values[name] = _OPTIONS_OF_FILES[name](value)
        except (KeyError, ValueError):
            raise DataError(
                f"{path}: {shown(option)} is no option of a relation; write "
                f"{listed(_OPTIONS_OF_FILES)}"
            ) from None
    return Relation(path, **values)


def path_and_kind(given: Path | Relation) -> tuple[Path, str]:
    """The inverse of `with_kind`; options that have their defaults are not mentioned."""
    if not isinstance(given, Relation):
        return Path(given), ""
    word = "random_walk" if given.form == "random_walk" else given.kind or ""
    path = Path(given.table)
    defaults = with_kind(path, word)
    options = [
        f"{name}={getattr(given, name)}"
        for name in _OPTIONS_OF_FILES
        if getattr(given, name) != getattr(defaults, name, None)
    ]
    return path, ",".join([word, *options])


class Files(NamedTuple):
    """The files of a data set; see `PreferenceData.from_files`."""

    items: Path | None
    comparisons: Path | None
    relations: dict[str, Path | Relation]  # sorted by name


def find_files(path: FilePath) -> Files:
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
            name = stem
            word = ""
        if name in relations:
            other = path_and_kind(relations[name])[0].name
            raise DataError(
                f"{file}: the relation {shown(name)} is also in {other}; remove one of the two"
            )
        relations[name] = with_kind(file, word)
    tables = _table_of(folder, "items", "entities"), _table_of(folder, "answers", "comparisons")
    return Files(*tables, relations)


def _table_of(folder: Path, stem: str, former: str) -> Path:
    """Return the one file of a folder that has a stem or the stem that runs used before."""
    paths = (folder / f"{name}{suffix}" for name in (stem, former) for suffix in SUFFIXES)
    files = [path for path in paths if path.exists()]
    if not files:
        raise DataError(
            f"{folder}: there is no {stem}.csv (or {stem}.parquet) in the folder; add it"
        )
    if len(files) > 1:
        raise DataError(
            f"{folder}: there is {files[0].name} and {files[1].name}; remove one of the two"
        )
    return files[0]


def decoded(value: Any, encoding: str) -> Any:
    """Return the table of a file in an encoding; other tables, and matrices, as they are."""
    if isinstance(value, Relation):
        return replace(value, table=decoded(value.table, encoding))
    if is_path(value) and not is_matrix_file(value):
        return read_table(value, encoding=encoding)
    return value


def is_matrix_file(path: FilePath) -> bool:
    """Whether the name of a file ends like that of a matrix."""
    return suffix_of(path) in MATRICES


def read_matrix(path: FilePath) -> Any:
    """Read a sparse matrix from a MatrixMarket file or an archive of `scipy.sparse.save_npz`."""
    file = Path(path)
    try:
        with reading(file, "matrix"):
            file.open("rb").close()
        return _read_archive(file) if suffix_of(file) == ".npz" else _read_matrix_market(file)
    except DataError:
        raise
    # Damaged files make the readers raise errors of many types; all of them mean the same.
    except Exception as error:
        raise DataError(
            f"{file}: this is not a readable sparse matrix ({error}); it is damaged or cut off: "
            "fetch or write it again"
        ) from error


def _read_matrix_market(file: Path) -> Any:
    import scipy.io  # takes a moment, which other tables need not wait for

    with file.open("rb") as stream:
        _check_lines(decompressed(file, stream) if suffix_of(file).endswith(".gz") else stream)
    _, _, entries, form, *_ = scipy.io.mminfo(file)
    if form != "coordinate":
        raise DataError(
            f"{file}: the matrix is dense (array); write it in the format coordinate, for example "
            "with scipy.io.mmwrite(path, scipy.sparse.coo_array(matrix))"
        )
    # A file of a symmetric matrix holds one triangle.
    require_memory(2.0 * _BYTES_PER_ENTRY * entries, f"{file}: a matrix of {entries} entries")
    # Older versions know only matrices, newer ones warn unless told.
    as_array = {"spmatrix": False} if "spmatrix" in signature(scipy.io.mmread).parameters else {}
    return scipy.io.mmread(file, **as_array)


def _check_lines(stream: IO[bytes]) -> None:
    """Refuse lines that scipy would misread: too many fields, bytes that are no text, no end."""
    header = stream.readline(_LONGEST_LINE).lower().split()
    if header[:1] != [b"%%matrixmarket"] or len(header) < 4:
        raise ValueError("line 1 is not that of a MatrixMarket file")
    if header[2] != b"coordinate":
        return
    fields = {b"pattern": 2, b"complex": 4}.get(header[3], 3)
    line = 1
    text = b"%"
    while text[:1] in (b"%", b"\n", b"\r"):  # up to the line of the size; entries follow
        line = line + 1
        text = stream.readline(_LONGEST_LINE)
        _check_bytes(text)
    while block := stream.read(_BLOCK):
        block += stream.readline(_BLOCK)
        _check_bytes(block)
        raw = np.frombuffer(b" " + block.removesuffix(b"\n") + b"\n", np.uint8)
        dark = raw > ord(" ")
        begins = np.cumsum(dark[1:] & ~dark[:-1], dtype=np.int64)
        numbers = np.diff(begins[raw[1:] == ord("\n")], prepend=0)  # of fields in each line
        wrong = np.flatnonzero((numbers != fields) & (numbers != 0))
        if wrong.size:
            number = counted(int(numbers[wrong[0]]), "field")
            raise ValueError(f"line {line + 1 + wrong[0]} has {number} where {fields} belong")
        line += len(numbers)
        last = block[block.rfind(b"\n") + 1 :]
        if len(last) > _BLOCK:
            raise ValueError(f"line {line} is longer than any")
        if last != last.rstrip():
            raise ValueError(f"line {line}, the last, is not ended")


def _check_bytes(text: bytes) -> None:
    if text.translate(None, _CONTROL) != text:
        raise ValueError("there are bytes that are no text")


def _read_archive(file: Path) -> Any:
    with file.open("rb") as stream:
        with zipfile.ZipFile(stream) as archive:
            check_decompressed(file, sum(entry.file_size for entry in archive.infolist()))
        stream.seek(0)
        with np.load(stream) as parts:
            form = np.asarray(parts["format"]).astype("U").item()
            if form in ("csr", "csc", "bsr"):
                arrays = parts["data"], parts["indices"], parts["indptr"]
                return checked_sparse(arrays, parts["shape"], form)
        stream.seek(0)
        return scipy.sparse.load_npz(stream)  # the others are checked when they are made


def checked_sparse(parts: tuple[Any, Any, Any], shape: Sequence[int], form: str = "csr") -> Any:
    """Make a sparse array of the data, indices and index pointers in a file.

    Algebra with arrays that do not fit each other reads and writes memory that is not theirs, and
    scipy checks only a part of this.

    Raises
    ------
    ValueError
        If they do not fit.
    """
    data, indices, pointers = parts
    if (
        not {indices.dtype.kind, pointers.dtype.kind} <= {"i", "u"}
        or not indices.ndim == pointers.ndim == 1
        or not pointers.size
        or pointers[0] != 0
        or (pointers[1:] < pointers[:-1]).any()
        or not pointers[-1] == len(indices) == len(data)
    ):
        raise ValueError(
            f"the index pointers do not rise from 0 to {len(indices)}, the number of stored entries"
        )
    matrix = getattr(scipy.sparse, f"{form}_array")(parts, shape=tuple(shape))
    matrix.check_format(full_check=True)  # the indices are in range
    return matrix
