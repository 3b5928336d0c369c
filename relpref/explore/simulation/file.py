"""Finished runs of a simulation in a CSV file, appended as they come."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relpref.errors import DataError, StorageError
from relpref.files import replaced

Row = dict[str, Any]
Run = tuple[str, int]
_TYPES = {"strategy": str, "seed": int, "answers": int, "last": int}  # the others are measures


class SimulationFile:
    """Rows of whole runs; what an interruption left of a run is dropped when the file is opened next.

    The first line holds the settings and what the strategies are, as a comment. The last row of a run is marked in the column ``last``.
    Numbers are written so that they are read back as they were.

    Parameters
    ----------
    path : path
        Its folder must exist.
    settings : mapping from str to JSON values
        What all runs of the file share.
    strategies : mapping from name to str
        What asks in these runs; the file may have runs of others.

    Raises
    ------
    DataError
        If the file has other settings, another strategy of the same name, or is no such file.
    StorageError
        If it cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], strategies: Mapping[str, str]
    ) -> None:
        self._path = Path(path)
        self._rows = self._read(dict(settings), dict(strategies))

    @property
    def done(self) -> set[Run]:
        """The runs that are there."""
        return {_run(row) for row in self._rows}

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [{name: row[name] for name in row if name != "last"} for row in self._rows]

    def add(self, rows: Sequence[Row]) -> None:
        """Append whole runs; they are on the disk when this returns."""
        following = [*rows[1:], None]
        marked = [
            row | {"last": int(after is None or _run(after) != _run(row))}
            for row, after in zip(rows, following, strict=True)
        ]
        text = _text(marked, header=not self._rows)
        try:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}") from error
        self._rows += marked

    def _read(self, settings: dict[str, Any], strategies: dict[str, str]) -> list[Row]:
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        line, _, body = text.partition("\n")
        known = self._checked(line, settings, strategies) if text else {}
        shared = settings | {"strategies": known | strategies}
        first_line = f"# {json.dumps(shared, sort_keys=True)}\n"
        lines = csv.DictReader(io.StringIO(body[: body.rfind("\n") + 1]))  # the last line may be half of one
        try:
            found = [{name: _TYPES.get(name, float)(value) for name, value in line.items()} for line in lines]
            whole = {_run(row) for row in found if row["last"]}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self._path} does not hold the rows of a simulation: {error}") from error
        kept = [row for row in found if _run(row) in whole]
        clean = first_line + (_text(kept, header=True) if kept else "")
        if clean != text:
            with replaced(self._path) as part:
                part.write_text(clean, encoding="utf-8")
        return kept

    def _checked(self, line: str, settings: dict[str, Any], strategies: dict[str, str]) -> dict[str, str]:
        """The strategies of the file, whose first line this is; refuses what cannot stand in one table with these runs."""
        try:
            found = json.loads(line.removeprefix("# "))
            known: dict[str, str] = found.pop("strategies")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self._path} begins with {line[:80]!r}, as no file of a simulation does; give another file"
            ) from error
        for name in sorted({*found, *settings}):
            if found.get(name) != settings.get(name):
                raise DataError(
                    f"{self._path} holds runs with other settings: {name} was {found.get(name)} and is {settings.get(name)}; "
                    "give another file for these"
                )
        for name in sorted(known.keys() & strategies.keys()):
            if known[name] != strategies[name]:
                raise DataError(
                    f"{self._path} holds runs of another strategy {name!r}: it was {known[name]} and is {strategies[name]}; "
                    "give this one another name, or another file"
                )
        return known


def _run(row: Row) -> Run:
    return row["strategy"], row["seed"]


def _text(rows: Sequence[Row], header: bool) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
