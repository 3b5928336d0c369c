"""The file that finished simulations are added to: one line of JSON each, after a line that says what was simulated.

Each line is on the disk before the next one is begun. A process killed at any moment leaves at most a last line that is not whole, which
the next one takes off; the simulation is done again, with the same outcome.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from relpref.errors import StorageError

_SCHEMA_KEY, _SCHEMA = "relpref_calibration", 1


class Record(NamedTuple):
    """One simulation.

    Attributes
    ----------
    simulation : int
    result : str
        How the fit ended.
    pits : dict from quantity to float
        Posterior probability below the truth; None where there is no posterior.
    """

    simulation: int
    result: str
    pits: Mapping[str, float | None]


class Journal:
    """A file of simulations, for one setting.

    Parameters
    ----------
    path : path
        Made where it is missing.
    settings : mapping
        Of what is simulated, as plain values.

    Raises
    ------
    StorageError
        If the file is of other settings, something else, damaged before its last line, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.records: dict[int, Record] = {}
        first = json.dumps({_SCHEMA_KEY: _SCHEMA, **settings}, ensure_ascii=False)
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            lines = whole.decode("utf-8").splitlines()
            if lines:
                self._check(lines[0], json.loads(first))
                for number, line in enumerate(lines[1:], 2):
                    record = self._parsed(line, number)
                    self.records[record.simulation] = record
            elif not first.encode().startswith(content):
                raise StorageError(f"{self.path}: this is no file of simulations; give another name")
            if len(whole) < len(content):
                os.truncate(self.path, len(whole))
            if not lines:
                self._append([first])
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"{self.path}: cannot be read or written ({error}); give another name"
            ) from error

    def add(self, records: Iterable[Record]) -> None:
        """Keep some finished simulations; they are on the disk when this returns."""
        new = list(records)
        self._append([json.dumps(record._asdict(), ensure_ascii=False, allow_nan=False) for record in new])
        self.records |= {record.simulation: record for record in new}

    def _append(self, lines: list[str]) -> None:
        try:
            with self.path.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written ({error.strerror})") from error

    def _check(self, line: str, wanted: Mapping[str, Any]) -> None:
        found = self._json(line, 1)
        if _SCHEMA_KEY not in found:
            raise StorageError(f"{self.path}: this is no file of simulations; give another name")
        for name, value in wanted.items():
            if found.get(name) != value:
                raise StorageError(
                    f"{self.path}: its simulations have {name} {found.get(name)!r}, and {value!r} is asked for; give another file, or "
                    "remove this one"
                )

    def _parsed(self, line: str, number: int) -> Record:
        try:
            return Record(**self._json(line, number))
        except TypeError as error:
            raise self._damaged(number) from error

    def _json(self, line: str, number: int) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise self._damaged(number) from error
        if not isinstance(found, dict):
            raise self._damaged(number)
        return found

    def _damaged(self, number: int) -> StorageError:
        return StorageError(
            f"{self.path}: line {number} is damaged; remove the file, or its lines from there on"
        )
