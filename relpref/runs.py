"""The folder of a run: the tables it was made from, how, and what came out.

``run.json`` says which versions, model, seed and options, and the SHA-256 of every other file;
``data/`` holds the tables as they were given; ``posterior.nc`` is the posterior; ``report.html``
the report, where one was written. There are no dates and no timings: the same tables, seed and
versions give the same bytes. Where people were asked, ``answers.sqlite`` holds what they answered,
and ``posterior-<version>.nc`` is the posterior of the answers up to that version.
"""

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from relpref._version import versions
from relpref.errors import DataError, StorageError
from relpref.files import FilePath, file_digest, previous, replaced_folder

if TYPE_CHECKING:
    from relpref.data.relation import Files
    from relpref.infer import Posterior, RelationPosterior

SCHEMA = 1
RECORD, POSTERIOR, REPORT = "run.json", "posterior.nc", "report.html"
LOCK = ".lock"  # held while a later posterior is published
TABLES, ANSWERS = "data", "answers.sqlite"
_SCHEMA_KEY = "relpref_run"
_FILE = re.compile(r"posterior(-\d+)?\.nc|answers\.sqlite")  # what a record may name, beside it


# The content of ``run.json``, as `relpref.posterior.codec.conform` checks it.
_RECORD = {
    "relpref_run": int,
    "command?": str,
    "model?": str,
    "seed?": int,
    "options?": dict[str, Any],
    "tables?": [{"file": str, "given": str, "sha256": str}],
    "posterior?": {"file": str, "sha256": str},
    "versions?": dict[str, str],
    "answers?": {"file": str, "store": str, "version": int},
}


@dataclass(frozen=True)
class Copy:
    """Copy of a table in the folder of a run.

    Attributes
    ----------
    name : str
        Path in the folder of the run.
    given : str
        Name of the file that was given.
    source : Path or bytes
        That file, or its content.
    sha256 : str
        Digest of the content when the copy was announced.
    """

    name: str
    given: str
    source: Path | bytes
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        """Compute the digest."""
        try:
            with self._open() as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise DataError(
                f"{self.source!s}: cannot be read ({error.strerror}); check its name"
            ) from error
        object.__setattr__(self, "sha256", digest)

    def _open(self) -> Any:
        return BytesIO(self.source) if isinstance(self.source, bytes) else self.source.open("rb")

    def write(self, file: Path) -> None:
        """Write the content to a new file."""
        # Not over a file: names of two relations may differ in their case only.
        with file.open("xb") as copy, self._open() as content:
            shutil.copyfileobj(content, copy)
        if file_digest(file) != self.sha256:
            raise StorageError(
                f"{self.source!s}: the file was changed after it was read, so what was computed "
                "does not belong to it; run the command again"
            )


@dataclass(frozen=True)
class Run:
    """Run read from its folder; the metadata are the content of ``run.json``."""

    folder: Path
    posterior: Any  # a Posterior or a RelationPosterior
    metadata: Mapping[str, Any]


def copies(tables: "Files") -> tuple[Copy, ...]:
    """Copies of the tables of a data set."""
    return copied(files_by_name(tables))


def files_by_name(tables: "Files") -> dict[str, Path]:
    """Files of a data set, by their names in the folder of a run without suffix."""
    from relpref.data.relation import path_and_kind

    files = {"entities": tables.items, "comparisons": tables.comparisons}
    for name, given in tables.relations.items():
        path, kind = path_and_kind(given)
        files[f"relations/{name}.{kind}" if kind else f"relations/{name}"] = path
    return {name: path for name, path in files.items() if path is not None}


def copied(files: Mapping[str, Path]) -> tuple[Copy, ...]:
    """Copies of files, given by their names in the folder of the run without suffix."""
    from relpref.data.table_files import suffix_of

    return tuple(
        Copy(f"{TABLES}/{name}{suffix_of(path)}", path.name, path) for name, path in files.items()
    )


def check_target(folder: FilePath, *, replace: bool, how: str) -> None:
    """Refuse a folder into which no run can be written, before anything is computed."""
    target = Path(folder)
    parent = target.absolute().parent
    while not parent.exists():
        parent = parent.parent
    another, reason = "give the name of a new folder", ""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        reason = f"this is a file or a link, not a folder; {another}"
    elif target.exists() and target.samefile(Path.cwd()):
        reason = f"this is the folder you are in; {another}"
    elif os.path.ismount(target):
        reason = "this is where a disk is mounted; give the name of a folder inside it"
    elif not parent.is_dir():
        reason = f"{parent} is a file, not a folder; give the name of a folder that can be made"
    elif not os.access(parent, os.W_OK | os.X_OK):
        reason = f"nothing can be written in {parent}; give the name of a folder elsewhere"
    elif target.exists() and any(target.iterdir()):
        reason = _reason_to_keep(target, replace, how, another)
    if reason:
        raise StorageError(f"{target}: {reason}")


def _reason_to_keep(target: Path, replace: bool, how: str, another: str) -> str:
    """Reason why a folder with content may not be replaced; empty if it may."""
    record = _record_or_none(target)
    if record is None:
        return f"it holds something else than a run, which is never touched; {another}"
    foreign = _foreign(target, record)
    # The posterior includes answers even if their file is gone.
    if target / ANSWERS in foreign or "answers" in record:
        return (
            "the run may not be replaced, because people's answers are in it and would be lost; "
            f"give the name of a new folder (relpref ask {quote(str(target))} --export "
            "comparisons.csv writes the answers as a table to fit)"
        )
    if foreign:
        return (
            f"the run may not be replaced, because {foreign[0]} is not part of it and would be "
            f"lost; move it away, or {another}"
        )
    return "" if replace else f"there is a run already; {how}, or {another}"


def runs_in(folder: Path) -> dict[str, Path]:
    """Runs in a folder by name: subfolders that are runs, or the folder itself."""
    if (folder / RECORD).is_file():
        return {folder.absolute().name: folder}
    if not folder.is_dir():
        raise DataError(
            f"{folder}: there is no such folder; give one with the runs that relpref fit wrote"
        )
    return {path.name: path for path in sorted(folder.iterdir()) if (path / RECORD).is_file()}


def is_run_of(folder: FilePath, command: str) -> bool:
    """Whether a folder is a run that a command wrote."""
    record = _record_or_none(Path(folder))
    return record is not None and record.get("command") == command


def save_run(
    folder: FilePath,
    posterior: "Posterior | RelationPosterior",
    tables: tuple[Copy, ...],
    *,
    command: str,
    model: str,
    seed: int,
    options: Mapping[str, Any],
    replace: bool,
    report: Callable[[Path], object] | None = None,
) -> None:
    """Write the folder of a run atomically, perhaps in place of an earlier run."""
    check_target(folder, replace=replace, how="it was written meanwhile")
    with replaced_folder(folder) as part:
        for table in tables:
            file = part / table.name
            file.parent.mkdir(parents=True, exist_ok=True)
            table.write(file)
        posterior.save(part / POSTERIOR)
        if report is not None:
            report(part / REPORT)
        record = {
            _SCHEMA_KEY: SCHEMA,
            "command": command,
            "model": model,
            "seed": seed,
            "options": dict(options),
            "tables": [
                {"file": table.name, "given": table.given, "sha256": table.sha256}
                for table in tables
            ],
            "posterior": {"file": POSTERIOR, "sha256": file_digest(part / POSTERIOR)},
            "versions": versions() | {"python": platform.python_version()},
        }
        (part / RECORD).write_text(record_text(record), encoding="utf-8")


def load_run(folder: FilePath) -> Run:
    """Read a run."""
    path = Path(folder)
    record = read_record(path)
    try:
        return _loaded(path, record)
    except StorageError:
        now = read_record(path)  # another process may have published a newer posterior meanwhile
        if now == record:
            raise
        return _loaded(path, now)


def load(path: FilePath, *, program: Any = None) -> "Posterior | RelationPosterior":
    """Read a posterior that its ``save`` wrote, or that of a run, which ``relpref fit`` wrote.

    Nothing named in the file is imported or called: programs, kernels and likelihoods are those of
    the package and those given to `relpref.register`, and their arguments are checked against the
    types they declare.

    Parameters
    ----------
    path : path
    program : callable, optional
        The numpyro program that was fitted, if it is custom: a file keeps its name and its
        arguments, not the program. Without it, such a posterior answers questions about the items
        it knows, and cannot be updated.

    Returns
    -------
    Posterior or RelationPosterior
        Posterior of the type that was saved.

    Raises
    ------
    StorageError
        If the file is missing, damaged, not a posterior, or from a newer version.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> posterior.save("drinks.nc")
    >>> relpref.load("drinks.nc").ranking().index[0]
    'tea'
    """
    from relpref.posterior import storage

    if program is None and Path(path).is_dir():
        return load_run(path).posterior
    return storage.load(path, program=program)


def _loaded(path: Path, record: Mapping[str, Any]) -> Run:
    from relpref.posterior.storage import load

    if "posterior" not in record:
        raise StorageError(f"{path / RECORD}: there is no 'posterior' in it; {_again(path)}")
    file = path / record["posterior"]["file"]
    try:
        digest = file_digest(file)
    except OSError as error:
        raise StorageError(f"{file}: cannot be read ({error.strerror}); {_again(path)}") from error
    if digest != record["posterior"]["sha256"]:
        raise StorageError(f"{file}: it is damaged or was changed (checksum); {_again(path)}")
    return Run(path, load(file), record)


def read_record(folder: Path) -> dict[str, Any]:
    """Read ``run.json`` and check that this version can read the run."""
    if not folder.exists() and previous(folder).is_dir():
        raise StorageError(
            f"{folder}: there is no such folder; a command that was killed while it replaced the "
            f"run left it in {previous(folder)}: rename that"
        )
    if not folder.is_dir():
        trouble = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise StorageError(f"{folder}: {trouble}; give the folder that relpref fit --out wrote")
    file = folder / RECORD
    try:
        record = json.loads(file.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        remedy = "give the folder that relpref fit --out wrote"
        if (folder / "entities.csv").exists():
            remedy = f"make one with relpref fit --folder {quote(str(folder))} --out run/"
        raise StorageError(
            f"{folder}: this is not a run, there is no {RECORD} in it; {remedy}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{file}: cannot be read ({error}); {_again(folder)}") from error
    except ValueError:
        record = None
    if not isinstance(record, dict) or type(record.get(_SCHEMA_KEY)) is not int:
        raise StorageError(f"{file}: the file is damaged or not of relpref; {_again(folder)}")
    if record[_SCHEMA_KEY] > SCHEMA:
        raise StorageError(
            f"{file}: the run has the schema {record[_SCHEMA_KEY]}, this relpref reads up to "
            f"{SCHEMA}; install a newer one: pip install --upgrade relpref"
        )
    from relpref.posterior.codec import conform

    parts = [record[part] for part in ("posterior", "answers") if part in record]
    if not conform(record, _RECORD) or not all(_FILE.fullmatch(part["file"]) for part in parts):
        raise StorageError(
            f"{file}: the file is damaged: it is not what relpref writes; {_again(folder)}"
        )
    return record


def _record_or_none(folder: Path) -> dict[str, Any] | None:
    try:
        return read_record(folder)
    except StorageError:
        return None


def _foreign(folder: Path, record: Mapping[str, Any]) -> list[Path]:
    """Files in the folder of a run that are not part of it."""
    written = {folder / name for name in (RECORD, POSTERIOR, REPORT, LOCK)}
    written |= {folder / table["file"] for table in record.get("tables", [])}
    written |= set(folder.glob("posterior-*.nc"))
    ignored = {".DS_Store", "Thumbs.db"}
    inside = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
    return [path for path in inside if path not in written and path.name not in ignored]


def record_text(record: Mapping[str, Any]) -> str:
    """Text of ``run.json``."""
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _again(folder: Path) -> str:
    return f"fit again (the tables are in {folder / TABLES})"
