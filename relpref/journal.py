"""Journals of results on disk, from which interrupted computations continue."""

import base64
import hashlib
import json
import os
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from relpref.errors import DataError, StorageError
from relpref.files import FilePath

_SCHEMA = 1
Record = dict[str, Any]  # JSON values and arrays of numbers


class Journal:
    """Records of one computation in one file, for example of its simulations or folds.

    The first line of the file has the settings, each other line a record, all as JSON. An
    incomplete last line, after an interruption, is dropped when the file is opened again. One
    process writes at a time.

    Open it with everything that determines the results, compute what is not among ``records``, and
    `add` each result::

        settings = {"version": __version__, "fit": fingerprint((posterior.origin, options))}
        journal = Journal("folds.jsonl", "folds", settings)
        for fold in set(range(folds)) - {record["fold"] for record in journal.records}:
            journal.add({"fold": fold, "mean": mean_of(fold)})

    Parameters
    ----------
    path : path
        The file is created if it does not exist; its folder must exist.
    kind : str
        Content of the file, in one lowercase word.
    settings : mapping
        Settings that must be the same for records to belong together, as JSON values; `fingerprint`
        makes one of anything else.

    Attributes
    ----------
    path : Path
    records : list of dict
        Records of the file, in the order in which they were added.

    Raises
    ------
    StorageError
        If the file has other settings, is something else, is damaged before its last line, or
        cannot be written.
    """

    def __init__(self, path: FilePath, kind: str, settings: Mapping[str, Any]) -> None:
        self.path, self.records = Path(path), list[Record]()
        header = _encoded({f"relpref_{kind}": _SCHEMA, **settings})
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            complete = content[: content.rfind(b"\n") + 1]
            lines = complete.decode("utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(
                f"{self.path}: cannot be read ({error}); give another name"
            ) from error
        if lines:
            self._check(self._decoded(lines[0], 1), json.loads(header))
            self.records += map(self._decoded, lines[1:], count(2))
        elif not header.startswith(content):
            raise StorageError(f"{self.path}: this is not a file of relpref; give another name")
        self._write(len(complete), b"" if lines else header)

    def add(self, *records: Mapping[str, Any]) -> None:
        """Append records of JSON values and arrays of numbers; they are on the disk on return.

        Raises
        ------
        StorageError
            If the file cannot be written.
        """
        self._write(None, b"".join(map(_encoded, records)))
        self.records += map(dict, records)

    def _write(self, size: int | None, lines: bytes) -> None:
        """Cut the file to a size, if one is given, and append."""
        try:
            with self.path.open("ab") as file:
                if size is not None:
                    file.truncate(size)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"{self.path}: cannot be written ({error.strerror}); give another"
            ) from error

    def _check(self, stored: Record, settings: Record) -> None:
        """Refuse a file with other settings."""
        schema = next(iter(settings))
        if schema not in stored:
            raise StorageError(
                f"{self.path}: not a {schema.replace('_', ' ')} file; give another name"
            )
        for name in [*settings, *stored]:
            if stored.get(name) != settings.get(name):
                raise StorageError(
                    f"{self.path}: its records have {name} {stored.get(name)!r}, and "
                    f"{settings.get(name)!r} is asked for; give another file, or remove this one"
                )

    def _decoded(self, line: str, number: int) -> Record:
        try:
            record = json.loads(line, object_hook=_with_array)
        except (ValueError, TypeError):
            record = None
        if not isinstance(record, dict):
            raise StorageError(f"{self.path}: line {number} is damaged; remove it and what follows")
        return record


def _encoded(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, ensure_ascii=False, default=_plain)}\n".encode()


def _plain(value: Any) -> Any:
    """Convert a NumPy value for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        text = base64.b64encode(value.tobytes()).decode()
        return {"array": text, "dtype": value.dtype.str, "shape": value.shape}
    raise TypeError(f"{type(value).__name__} cannot stand in a record; give JSON values or arrays")


def _with_array(value: Record) -> Any:
    if value.keys() != {"array", "dtype", "shape"}:
        return value
    content = base64.b64decode(value["array"], validate=True)
    return np.frombuffer(content, np.dtype(value["dtype"])).reshape(value["shape"]).copy()


_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, types.NoneType, types.EllipsisType)
_ARRAYS = (np.ndarray, np.generic, jax.Array)
_HOLDERS = (list, tuple, dict, set, frozenset, partial, dist.Distribution)


def fingerprint(value: Any) -> str:
    """Sixteen hexadecimal digits that are the same for equal values, in any process.

    The value may be anything: arrays, containers, functions with what they refer to, distributions,
    dataclasses.

    Raises
    ------
    DataError
        If a part of the value cannot be distinguished from others of its type.
    """
    return _read(value, {}, ())[:16]


def _read(value: Any, digests: dict[int, tuple[str, Any]], outer: tuple[int, ...]) -> str:
    """Digest of a value from those of its parts; equal values have equal digests.

    ``digests`` has those of other objects by identity, ``outer`` the identities of the objects that
    contain the value.
    """
    if isinstance(value, _PLAIN):
        return _digest(type(value).__name__, repr(value))
    if id(value) in outer:  # functions may call themselves
        return _digest("within", str(outer.index(id(value))))
    if id(value) not in digests:
        kind, *parts = _parts(value)
        inner = *outer, id(value)
        digest = _digest(kind, *(_read(part, digests, inner) for part in parts))
        digests[id(value)] = digest, value  # while the object is kept, its identity is unique
    return digests[id(value)][0]


def _digest(*texts: str) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _parts(value: Any) -> tuple[Any, ...]:
    """Kind and parts of an object."""
    match value:
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(value)
            content = array.tolist() if array.dtype == object else array.tobytes()
            return "array", str(array.dtype), array.shape, content
        case dict() | types.MappingProxyType():
            items = sorted(value.items(), key=lambda item: fingerprint(item[0]))
            return "mapping", *chain.from_iterable(items)
        case set() | frozenset():
            return "set", *sorted(map(fingerprint, value))
        case list() | tuple():
            return type(value).__name__, *value
        case types.CodeType():
            return "code", value.co_code, value.co_names, value.co_consts
        case partial():
            return "partial", value.func, value.args, value.keywords
        case types.MethodType():
            return "method", value.__func__, value.__self__
        case type():
            return _class(value)
        case types.FunctionType():
            return _function(value)
        case types.BuiltinFunctionType() | np.ufunc():
            return "function", _name(value)
        case _:
            return _instance(value)


def _function(value: types.FunctionType) -> tuple[Any, ...]:
    closure = [cell.cell_contents for cell in value.__closure__ or ()]
    defaults = value.__defaults__, value.__kwdefaults__
    parts = "function", _name(value), *defaults, closure
    if _is_relprefs(value):
        return parts
    variables = {
        name: _variable(value.__globals__[name], value.__module__)
        for name in _names(value.__code__)
        if name in value.__globals__
    }
    return *parts, value.__code__, variables


def _names(code: types.CodeType) -> set[str]:
    """Names that code and the functions in it refer to."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _variable(value: Any, module: str) -> Any:
    """Value, function or class of a module that its code refers to; the name of anything else."""
    local = callable(value) and getattr(value, "__module__", None) == module
    if local or isinstance(value, (*_PLAIN, *_ARRAYS, *_HOLDERS)):
        return value
    return _name(value if hasattr(value, "__name__") else type(value))


def _class(value: type) -> tuple[Any, ...]:
    if _is_relprefs(value):
        return "class", _name(value)
    content = (types.FunctionType, *_PLAIN)
    attributes = {name: part for name, part in vars(value).items() if isinstance(part, content)}
    return "class", _name(value), [_name(base) for base in value.__bases__], attributes


def _instance(value: Any) -> tuple[Any, ...]:
    kind = type(value)
    if hasattr(value, "__wrapped__"):  # jitted
        return "wrapper", value.__wrapped__
    if isinstance(value, dist.Distribution):
        names = [*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields()]
        names = [name for name in names if name != "_validate_args"]
        return "object", _name(kind), {name: getattr(value, name, None) for name in names}
    if is_dataclass(value):
        return "object", kind, {field.name: getattr(value, field.name) for field in fields(value)}
    if state := getattr(value, "__dict__", None):
        return "object", kind, state
    if " at 0x" not in repr(value):
        return "object", _name(kind), repr(value)
    raise DataError(
        f"{value!r} cannot be told from others of its kind, so that files of its results would not "
        "be known again; keep none, or give a function, a functools.partial or a frozen dataclass "
        "in its place"
    )


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    return f"{getattr(value, '__module__', '')}.{name}"


def _is_relprefs(value: Any) -> bool:
    return str(value.__module__).split(".")[0] == "relpref"
