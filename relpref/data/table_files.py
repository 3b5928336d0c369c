"""Tables from files, whole or in pieces: CSV, also compressed, and Parquet where pyarrow is installed."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from relpref.data.csv_text import Piece, read_csv
from relpref.data.messages import counted
from relpref.data.tables import Table
from relpref.errors import DataError
from relpref.files import Decompressed, check_decompressed

SUFFIXES = (".csv", ".csv.gz", ".parquet")
# Rows of a Parquet file that are in memory at a time.
ROWS = 1 << 19


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending that says what a file is: ``.csv``, but ``.csv.gz`` where it is compressed."""
    last = Path(path).suffix.lower()
    return (Path(path).with_suffix("").suffix.lower() if last == ".gz" else "") + last


def read_table(path: str | os.PathLike[str], *, max_columns: int | None = None) -> Table:
    """Read a CSV or Parquet file.

    CSV is read strictly: UTF-8 (a byte order mark is accepted), separated by commas, a header line,
    the same number of cells in every row. Cells stay text, so that labels such as ``NA`` or ``007``
    survive.

    Parameters
    ----------
    path : path
        File whose name ends in ``.csv``, ``.csv.gz`` or ``.parquet``.
    max_columns : int, optional
        Refuse wider tables before reading their rows.

    Returns
    -------
    Table
        The rows and the lines on which they begin.

    Raises
    ------
    DataError
        If the file is missing, a directory, empty, damaged, of another kind, or too wide.
    """
    pieces = list(_read(Path(path), max_columns, whole=True))
    if len(pieces) == 1:
        return pieces[0]
    frame = pd.concat([piece.frame for piece in pieces], ignore_index=True)
    lines = np.concatenate([np.asarray(piece.lines, dtype=np.int64) for piece in pieces])
    return Table(frame, pieces[0].name, lines, text=True)


def read_pieces(path: str | os.PathLike[str], *, max_columns: int | None = None) -> Iterator[Table]:
    """Read a CSV or Parquet file in pieces, see `read_table`.

    Yields
    ------
    Table
        Some consecutive rows; of a file without rows one table without rows.
    """
    return _read(Path(path), max_columns, whole=False)


def _read(file: Path, max_columns: int | None, *, whole: bool) -> Iterator[Table]:
    suffix = suffix_of(file)
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: tables are read from files ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, "
            f"not {suffix or 'no ending'!r}; convert or rename the file"
        )
    with _opened(file, compressed=suffix.endswith(".gz")) as stream:
        if suffix == ".parquet":
            yield from _read_parquet(file, stream, max_columns, whole=whole)
        else:
            for piece in read_csv(file, stream, max_columns):
                yield _table(file, piece)


@contextmanager
def _opened(file: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    try:
        stream = file.open("rb")
        empty = not stream.read(1)
        stream.seek(0)
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{file}: this is a directory, not a table; give the file inside it") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: the file cannot be read ({error}); check its name and permissions"
        ) from error
    with stream:
        if empty:
            raise DataError(f"{file}: the file is empty; write a header and at least one row")
        if compressed:
            yield cast("IO[bytes]", Decompressed(file, cast("IO[bytes]", gzip.GzipFile(fileobj=stream))))
        else:
            yield stream


def _table(file: Path, piece: Piece) -> Table:
    cells = dict(zip(piece.header, piece.columns, strict=True))
    frame = pd.DataFrame(cells, columns=pd.Index(piece.header, dtype=object), dtype=object)
    return Table(frame, str(file), piece.lines, text=True)


def _read_parquet(file: Path, stream: IO[bytes], max_columns: int | None, *, whole: bool) -> Iterator[Table]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"{file}: reading Parquet needs pyarrow; install it with: pip install 'relpref[parquet]' "
            "(or save the table as CSV)"
        ) from error
    # A damaged file makes the decoder raise errors of many types; all of them mean the same to the reader.
    try:
        opened = parquet.ParquetFile(stream)
        width = len(opened.schema_arrow.names)
    except Exception as error:
        raise DataError(f"{file}: this is not a readable Parquet file ({error}); write it again") from error
    # What is repeated takes no room in a Parquet file.
    check_decompressed(
        file, 8.0 * width * (min(ROWS, opened.metadata.num_rows) if not whole else opened.metadata.num_rows)
    )
    if max_columns is not None and width > max_columns:
        raise DataError(
            f"{file}: {counted(width, 'column')} are more than the limit of {max_columns}; select or reduce the columns"
        )
    first = 0
    for frame in _frames(file, opened, whole=whole):
        if first and isinstance(frame.index, pd.RangeIndex):
            frame.index = pd.RangeIndex(first, first + len(frame))
        yield Table(frame, str(file), first=first)
        first += len(frame)


def _frames(file: Path, opened: Any, *, whole: bool) -> Iterator[Any]:
    batches = iter([]) if whole else opened.iter_batches(batch_size=ROWS)
    found = False
    while True:
        try:
            # A file without rows has no batches; what is read then has the columns all the same.
            batch = next((one for one in batches if one.num_rows), None)
            if batch is None and found:
                return
            frame = (opened.read() if batch is None else batch).to_pandas()
        except Exception as error:
            raise DataError(f"{file}: the Parquet file is damaged ({error}); write it again") from error
        yield frame
        if batch is None:
            return
        found = True
