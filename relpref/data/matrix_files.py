"""Sparse matrices from files: MatrixMarket, and the archives of scipy."""

import os
import zipfile
from inspect import signature
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse

from relpref.data.arrays import counted, shown
from relpref.data.relation import Relation, path_and_kind, says_kind, with_kind
from relpref.data.tables import SUFFIXES, suffix_of
from relpref.errors import DataError
from relpref.files import check_decompressed, decompressed
from relpref.memory import require_memory

MATRICES = (".mtx", ".mtx.gz", ".npz")
# Of an entry as it is read (COO), and as it is sorted by rows (CSR).
_BYTES = 28
_LONGEST_LINE = 10_000  # of the header
_BLOCK = 16_000_000
_CONTROL = bytes({*range(32)} - {*b"\t\n\r"})
# Older versions know only matrices, newer ones warn unless told.
_AS_ARRAY = {"spmatrix": False} if "spmatrix" in signature(scipy.io.mmread).parameters else {}


def is_matrix_file(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file ends like that of a matrix."""
    return suffix_of(path) in MATRICES


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """Read a sparse matrix."""
    file = Path(path)
    try:
        return _archive(file) if suffix_of(file) == ".npz" else _matrix_market(file)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{file}: this is a directory, not a matrix; give the file inside it") from None
    # Damaged files make the readers raise errors of many types; all of them mean the same.
    except Exception as error:
        raise DataError(
            f"{file}: this is not a readable sparse matrix ({error}); it is damaged or cut off: fetch or write it again"
        ) from error


def _matrix_market(file: Path) -> Any:
    with file.open("rb") as stream:
        _check_lines(decompressed(file, stream) if suffix_of(file).endswith(".gz") else stream)
    _, _, entries, form, *_ = scipy.io.mminfo(file)
    if form != "coordinate":
        raise DataError(
            f"{file}: the matrix is dense (array); write it in the format coordinate, for example with "
            "scipy.io.mmwrite(path, scipy.sparse.coo_array(matrix))"
        )
    # Of a symmetric matrix one triangle is stored.
    require_memory(2.0 * _BYTES * entries, f"{file}: a matrix of {entries} entries")
    return scipy.io.mmread(file, **_AS_ARRAY)


def _check_lines(stream: IO[bytes]) -> None:
    """Refuse lines that scipy's reader would read past: with too many fields, with a byte that is no text, or not ended."""
    header = stream.readline(_LONGEST_LINE).lower().split()
    if header[:1] != [b"%%matrixmarket"] or len(header) < 4:
        raise ValueError("line 1 is not that of a MatrixMarket file")
    if header[2] != b"coordinate":
        return
    fields = {b"pattern": 2, b"complex": 4}.get(header[3], 3)
    line = 1
    while True:
        line, text = line + 1, stream.readline(_LONGEST_LINE)
        if text[:1] not in (b"%", b"\n", b"\r"):  # of the size; entries follow
            break
        _check_bytes(text)
    _check_bytes(text)
    rest = b""
    while block := stream.read(_BLOCK):
        _check_bytes(block)
        end = block.rfind(b"\n") + 1
        line = _check_fields(rest + block[:end], fields, line)
        rest = block[end:] if end else rest + block
        if len(rest) > _BLOCK:
            raise ValueError(f"line {line + 1} is longer than any")
    if rest != rest.rstrip():
        raise ValueError(f"line {line + 1}, the last, is not ended")
    _check_fields(rest + b"\n", fields, line)


def _check_bytes(text: bytes) -> None:
    if text.translate(None, _CONTROL) != text:
        raise ValueError("there are bytes that are no text")


def _check_fields(text: bytes, fields: int, line: int) -> int:
    """Check whole lines, of which the first comes after ``line``; the number of the last one."""
    if not text:
        return line
    dark = np.frombuffer(b" " + text, np.uint8) > ord(" ")
    begins = np.cumsum(dark[1:] & ~dark[:-1], dtype=np.int64)
    found = np.diff(begins[np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))], prepend=0)
    wrong = np.flatnonzero((found != fields) & (found != 0))
    if wrong.size:
        place, number = line + 1 + wrong[0], counted(int(found[wrong[0]]), "field")
        raise ValueError(f"line {place} has {number} where {fields} belong")
    return line + len(found)


def _archive(file: Path) -> Any:
    with file.open("rb") as stream:
        with zipfile.ZipFile(stream) as archive:
            check_decompressed(file, sum(entry.file_size for entry in archive.infolist()))
        stream.seek(0)
        matrix = scipy.sparse.load_npz(stream)
    if matrix.format in ("csr", "csc", "bsr"):  # the others are checked when they are made
        matrix.check_format(full_check=True)
    return matrix


class Files(NamedTuple):
    """The files of a data set.

    Attributes
    ----------
    entities, comparisons : path
        One table each; no comparisons where nothing was asked yet, and no entities where the comparisons name them.
    relations : dict of str to path or Relation
        One file per relation, sorted by name; a `Relation` holds the path as its table.
    """

    entities: Path | None
    comparisons: Path | None
    relations: dict[str, Path | Relation]


def find_files(path: str | os.PathLike[str]) -> Files:
    """Find the tables of a data set in a folder."""
    folder = Path(path)
    if not folder.is_dir():
        what = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {what}; give the folder that holds entities.csv and comparisons.csv")
    relations: dict[str, Path | Relation] = {}
    inside = folder / "relations"
    if inside.exists() and not inside.is_dir():
        raise DataError(f"{inside}: this is a file; make it a folder with one table per relation")
    if inside.is_dir():
        try:
            found = sorted(inside.iterdir())
        except OSError as error:
            raise DataError(
                f"{inside}: the folder cannot be read ({error}); check its permissions"
            ) from error
        for file in found:
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
    return Files(_one(folder, "entities"), _one(folder, "comparisons"), relations)


def _one(folder: Path, stem: str) -> Path:
    found = [file for file in (folder / f"{stem}{suffix}" for suffix in SUFFIXES) if file.exists()]
    if not found:
        raise DataError(f"{folder}: there is no {stem}.csv (or {stem}.parquet) in the folder; add it")
    if len(found) > 1:
        raise DataError(f"{folder}: there is {found[0].name} and {found[1].name}; remove one of the two")
    return found[0]
