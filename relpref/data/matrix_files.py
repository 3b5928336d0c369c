"""Sparse matrices from files: MatrixMarket, and the archives of scipy."""

import os
from inspect import signature
from pathlib import Path
from typing import Any

import scipy.io
import scipy.sparse

from relpref.data.table_files import suffix_of
from relpref.errors import DataError
from relpref.memory import require_memory

MATRICES = (".mtx", ".mtx.gz", ".npz")
# Of an entry as it is read (COO), and as it is sorted by rows (CSR).
_BYTES = 28
# Older versions know only matrices, newer ones warn unless told.
_AS_ARRAY = {"spmatrix": False} if "spmatrix" in signature(scipy.io.mmread).parameters else {}


def is_matrix_file(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file ends like that of a matrix."""
    return suffix_of(path) in MATRICES


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """Read a sparse matrix.

    Parameters
    ----------
    path : path
        File whose name ends in ``.mtx``, ``.mtx.gz`` or ``.npz``.

    Returns
    -------
    scipy sparse array or matrix
        Not checked further.

    Raises
    ------
    DataError
        If the file is missing, damaged, holds a dense matrix, or its entries would not fit into memory.
    """
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
    _, _, entries, form, *_ = scipy.io.mminfo(file)
    if form != "coordinate":
        raise DataError(
            f"{file}: the matrix is dense (array); write it in the format coordinate, for example with "
            "scipy.io.mmwrite(path, scipy.sparse.coo_array(matrix))"
        )
    # Of a symmetric matrix one triangle is stored.
    require_memory(2.0 * _BYTES * entries, f"{file}: a matrix of {entries} entries")
    return scipy.io.mmread(file, **_AS_ARRAY)


def _archive(file: Path) -> Any:
    with file.open("rb") as stream:
        return scipy.sparse.load_npz(stream)
