"""Links between positions, read from tables and files of matrices, and tidied: every link or every undirected edge once."""

import os
import zipfile
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.arrays import counted, refuse_first, shown
from relpref.data.labels import GrowingIndex, LabelIndex, Place, blank_note, joined_places
from relpref.data.relation import MATRICES
from relpref.data.tables import Table, check_columns, known_names, suffix_of
from relpref.errors import DataError
from relpref.files import check_decompressed, decompressed, reading
from relpref.limits import LARGEST_WEIGHT, SMALLEST_WEIGHT, require_memory

_WEIGHT_REMEDY = "write a positive number, or leave the column weight out (every weight is 1 then)"
_BYTES_PER_ENTRY = 28  # of a matrix as it is read (COO), and as it is sorted by rows (CSR)
_LONGEST_LINE = 10_000  # of the header
_BLOCK = 16_000_000
_CONTROL = bytes({*range(32)} - {*b"\t\n\r"})


@dataclass(frozen=True, eq=False)
class Edges:
    """Links between positions of items, as they were given; ``where`` maps one to the words that name its place in a message."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float64]
    where: Place


class TargetIndex(GrowingIndex):
    """What the items of a bipartite relation link to, in order of appearance; must not be the label of an item."""

    def __init__(self, items: LabelIndex, known: Iterable[Hashable] = ()) -> None:
        super().__init__(known)
        self._items = items.positions

    def locate(self, labels: Sequence[Hashable], where: Place, remedy: str) -> NDArray[np.int32]:
        if not self._items.keys().isdisjoint(labels):
            row = next(row for row, label in enumerate(labels) if label in self._items)
            raise DataError(
                f"{where(row)}: {shown(labels[row])} is an item, but a bipartite relation links "
                "items to something else; "
                'if items link to each other use kind="directed" or "undirected", otherwise rename '
                "the targets"
            )
        return super().locate(labels, where, remedy)


def ends_of(
    source: Sequence[Any],
    target: Sequence[Any],
    items: LabelIndex,
    targets: LabelIndex,
    places: Iterable[Place],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the positions of both ends of every link, among the items and the targets, which may be the same."""
    remedy = "correct the label, add it to the items, or drop the row"
    first, second = (
        index.locate(labels, where, remedy)
        for labels, index, where in zip((source, target), (items, targets), places, strict=True)
    )
    return first, second


def edges_from_tables(
    tables: Iterable[Table], items: LabelIndex, targets: LabelIndex
) -> tuple[Edges, tuple[str, ...]]:
    """Read the columns source, target and, if there, weight; and notes on how they were read."""
    pieces: list[Edges] = []
    notes: dict[str, None] = {}
    blanks: set[str] = set()
    for read in tables:
        table = replace(
            known_names(read, ("source", "target", "weight")), known=items.positions, blanks=blanks
        )
        unused = check_columns(table, ("source", "target"), ("weight",), ())
        notes |= dict.fromkeys((*table.notes, *unused))
        frame = table.frame
        if len(frame) == 0:
            raise DataError(
                f"{table.name}: the table has no rows; give an edge or leave the relation out"
            )
        places = table.cell("source"), table.cell("target")
        ends = ends_of(table.labels("source"), table.labels("target"), items, targets, places)
        weighted = "weight" in frame.columns
        weight = table.numbers("weight", _WEIGHT_REMEDY) if weighted else np.ones(len(frame))
        pieces.append(Edges(*ends, weight, table.place))
    notes |= dict.fromkeys(blank_note(blanks))
    if len(pieces) == 1:
        return pieces[0], tuple(notes)
    where = joined_places(
        [piece.source.size for piece in pieces], [piece.where for piece in pieces]
    )
    columns = zip(*((piece.source, piece.target, piece.weight) for piece in pieces), strict=True)
    source, target, weight = (np.concatenate(parts) for parts in columns)
    return Edges(source, target, weight, where), tuple(notes)


def tidied(
    edges: Edges, name: str, labels: tuple[Sequence[Any], Sequence[Any]], kind: str | None
) -> tuple[Edges, tuple[str, ...]]:
    """Return every link, or every undirected edge (source < target), once and sorted; and what was dropped or merged.

    Links of weight 0 are dropped, and those from a node to itself unless the ends are of two kinds.
    Two weights of one link are refused. Where the two directions of an edge differ, the larger
    weight counts if the user has said that the relation is undirected (``kind`` is not None).
    """
    notes, where, weight = [], edges.where, edges.weight
    refuse_first(
        weight < 0,
        lambda row: f"{where(row)}: the weight {weight[row]} is negative; correct it",
    )
    refuse_first(
        (weight > LARGEST_WEIGHT) | ((weight > 0) & (weight < SMALLEST_WEIGHT)),
        lambda row: (
            f"{where(row)}: the weight {weight[row]} is not between {SMALLEST_WEIGHT} and "
            f"{LARGEST_WEIGHT}; "
            "rescale the weights"
        ),
    )
    weightless = weight == 0
    loops = (edges.source == edges.target) & ~weightless & (kind != "bipartite")
    if weightless.any():
        notes.append(f"{name}: {counted(int(weightless.sum()), 'edge')} of weight 0 left out")
    if loops.any():
        notes.append(f"{name}: {counted(int(loops.sum()), 'link')} from an item to itself left out")
    rows = np.flatnonzero(~(weightless | loops))
    if not rows.size:
        raise DataError(
            f"{name}: no edge is left but loops and zero weights; add edges or leave it out"
        )
    source, target = edges.source[rows].astype(np.int64), edges.target[rows].astype(np.int64)
    key = (source << 32) | (target << 1)  # positions are below 2**31
    if undirected := kind in (None, "undirected"):
        # Equal edges follow one another, forward ones first.
        key = (
            (np.minimum(source, target) << 32)
            | (np.maximum(source, target) << 1)
            | (source > target)
        )
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    first = np.concatenate([[True], (key[1:] >> 1) != (key[:-1] >> 1)])
    if not first.all():
        _refuse_conflicts(edges, name, rows, first, labels, kind)
        notes.append(f"{name}: {counted(int((~first).sum()), 'repeated edge')} counted once")
    heaviest = np.maximum.reduceat(weight[rows], np.flatnonzero(first))
    rows = rows[first]
    ends = edges.source[rows], edges.target[rows]
    if undirected:
        ends = np.minimum(*ends), np.maximum(*ends)
    return Edges(*ends, heaviest, lambda row: where(int(rows[row]))), tuple(notes)


def _refuse_conflicts(
    edges: Edges,
    name: str,
    rows: NDArray[np.int64],
    first: NDArray[np.bool_],
    labels: tuple[Sequence[Any], Sequence[Any]],
    kind: str | None,
) -> None:
    """Refuse two weights of one link, or of the two directions of an edge if their meaning is not given."""
    source, weight, where = edges.source[rows], edges.weight[rows], edges.where
    differs = ~first[1:] & (weight[1:] != weight[:-1])
    turned = source[1:] != source[:-1]

    def ends(row: int) -> tuple[str, str]:
        return shown(labels[0][edges.source[row]]), shown(labels[1][edges.target[row]])

    def twice(at: int) -> str:
        one, other = sorted((int(rows[at]), int(rows[at + 1])))
        source, target = ends(other)
        return (
            f"{where(other)}: the edge from {source} to {target} has the weight "
            f"{edges.weight[other]}, but the weight "
            f"{edges.weight[one]} at {where(one)}; keep one of the two rows"
        )

    def both_ways(at: int) -> str:
        there, back = int(rows[at]), int(rows[at + 1])
        return (
            f"{name}: the edge between {' and '.join(ends(there))} has the weight {weight[at]} "
            f"({where(there)}) "
            f"in one direction and {weight[at + 1]} ({where(back)}) in the other; "
            f"{how_to_say_the_kind()}"
        )

    refuse_first(differs & ~turned, twice)
    if kind is None:
        refuse_first(differs, both_ways)


def how_to_say_the_kind() -> str:
    """Return the remedy for a relation whose directions differ."""
    return (
        'say what that means: Relation(table, kind="directed") if it matters who links to whom, or '
        'Relation(table, kind="undirected"), which takes the larger weight of the two directions '
        "(on the command line, end the file with :directed or :undirected)"
    )


def is_matrix_file(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file ends like that of a matrix."""
    return suffix_of(path) in MATRICES


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """Read a sparse matrix."""
    file = Path(path)
    try:
        with reading(file, "matrix"):
            file.open("rb").close()
        return _archive(file) if suffix_of(file) == ".npz" else _matrix_market(file)
    except DataError:
        raise
    # Damaged files make the readers raise errors of many types; all of them mean the same.
    except Exception as error:
        raise DataError(
            f"{file}: this is not a readable sparse matrix ({error}); it is damaged or cut off: "
            "fetch or write it again"
        ) from error


def _matrix_market(file: Path) -> Any:
    import scipy.io  # takes a moment, which other tables need not wait for

    with file.open("rb") as stream:
        _check_lines(decompressed(file, stream) if suffix_of(file).endswith(".gz") else stream)
    _, _, entries, form, *_ = scipy.io.mminfo(file)
    if form != "coordinate":
        raise DataError(
            f"{file}: the matrix is dense (array); write it in the format coordinate, for example "
            "with "
            "scipy.io.mmwrite(path, scipy.sparse.coo_array(matrix))"
        )
    # Of a symmetric matrix one triangle is stored.
    require_memory(2.0 * _BYTES_PER_ENTRY * entries, f"{file}: a matrix of {entries} entries")
    # Older versions know only matrices, newer ones warn unless told.
    as_array = {"spmatrix": False} if "spmatrix" in signature(scipy.io.mmread).parameters else {}
    return scipy.io.mmread(file, **as_array)


def _check_lines(stream: IO[bytes]) -> None:
    """Refuse lines that scipy's reader would read past: with too many fields, with a byte that is no text, or not ended."""
    header = stream.readline(_LONGEST_LINE).lower().split()
    if header[:1] != [b"%%matrixmarket"] or len(header) < 4:
        raise ValueError("line 1 is not that of a MatrixMarket file")
    if header[2] != b"coordinate":
        return
    fields = {b"pattern": 2, b"complex": 4}.get(header[3], 3)
    line, text = 1, b"%"
    while text[:1] in (b"%", b"\n", b"\r"):  # up to the line of the size; entries follow
        line, text = line + 1, stream.readline(_LONGEST_LINE)
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


def _archive(file: Path) -> Any:
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
    fitting = pointers.ndim == indices.ndim == 1 and {pointers.dtype.kind, indices.dtype.kind} <= {
        "i",
        "u",
    }
    fitting = fitting and pointers.size > 0 and pointers[0] == 0
    if not (
        fitting
        and (pointers[1:] >= pointers[:-1]).all()
        and pointers[-1] == len(indices) == len(data)
    ):
        raise ValueError(
            f"the index pointers do not rise from 0 to {len(indices)}, the number of stored entries"
        )
    matrix = getattr(scipy.sparse, f"{form}_array")(parts, shape=tuple(shape))
    matrix.check_format(full_check=True)  # the indices are in range
    return matrix
