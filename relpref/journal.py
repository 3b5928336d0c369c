"""Results that are kept on disk as they come, so that an interrupted computation can be continued."""

import base64
import hashlib
import json
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from relpref.errors import DataError, StorageError

_SCHEMA = 1


class Journal:
    """Records of one computation in one file, for example of its simulations or folds.

    The first line of the file has the settings, each other line a record, all as JSON. A record is
    whole or not there: what an interruption left of a line is dropped when the file is opened
    again. One process writes at a time.

    Open it with everything that decides the results, compute what is not among ``records``, and
    `add` each result once it is there::

        settings = {"version": __version__, "fit": fingerprint((posterior.origin, options))}
        journal = Journal("folds.jsonl", "folds", settings)
        for fold in set(range(folds)) - {record["fold"] for record in journal.records}:
            journal.add({"fold": fold, "mean": mean_of(fold)})

    Parameters
    ----------
    path : path
        Made where it is missing; its folder must exist.
    kind : str
        What the file holds, in one lowercase word.
    settings : mapping
        What must be the same for records to belong together, as JSON values; `fingerprint` makes
        one of anything else.

    Attributes
    ----------
    path : Path
    records : list of dict
        Those of the file, in the order in which they were added.

    Raises
    ------
    StorageError
        If the file has other settings, is something else, is damaged before its last line, or
        cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: str, settings: Mapping[str, Any]
    ) -> None:
        self.path, self.records = Path(path), list[dict[str, Any]]()
        first = _encoded({f"relpref_{kind}": _SCHEMA, **settings})
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            lines = whole.decode("utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(
                f"{self.path}: cannot be read ({error}); give another name"
            ) from error
        if lines:
            self._check(self._decoded(lines[0], 1), json.loads(first))
            self.records += [
                self._decoded(line, number) for number, line in enumerate(lines[1:], 2)
            ]
        elif not first.startswith(content):
            raise StorageError(f"{self.path}: this is not a file of relpref; give another name")
        self._write(len(whole), b"" if lines else first)

    def add(self, *records: Mapping[str, Any]) -> None:
        """Append records of JSON values and arrays of numbers, read back as they were; they are on the disk when this returns.

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

    def _check(self, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
        schema = next(iter(wanted))
        if schema not in stored:
            raise StorageError(
                f"{self.path}: not a {schema.replace('_', ' ')} file; give another name"
            )
        for name in [*wanted, *stored]:
            if stored.get(name) != wanted.get(name):
                raise StorageError(
                    f"{self.path}: its records have {name} {stored.get(name)!r}, and "
                    f"{wanted.get(name)!r} is asked for; give another "
                    "file, or remove this one"
                )

    def _decoded(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line, object_hook=_with_array)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise StorageError(f"{self.path}: line {number} is damaged; remove it and what follows")
        return record


def _encoded(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, ensure_ascii=False, default=_plain)}\n".encode()


def _plain(value: Any) -> Any:
    """A NumPy value in JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        text = base64.b64encode(value.tobytes()).decode()
        return {"array": text, "dtype": value.dtype.str, "shape": value.shape}
    raise TypeError(f"{type(value).__name__} cannot stand in a record; give JSON values or arrays")


def _with_array(value: dict[str, Any]) -> Any:
    if value.keys() != {"array", "dtype", "shape"}:
        return value
    try:
        content = base64.b64decode(value["array"], validate=True)
        return np.frombuffer(content, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
    except TypeError as error:
        raise ValueError(str(error)) from error


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
        If there is something in the value that nothing tells from others of its kind.
    """
    return _read(value, {}, ())[:16]


def _read(value: Any, known: dict[int, tuple[str, Any]], within: tuple[int, ...]) -> str:
    """A digest from those of the parts: equal where the values are, whether or not they are one object."""
    if isinstance(value, _PLAIN):
        return _digest(type(value).__name__, repr(value))
    if id(value) in within:  # functions may call themselves
        return _digest("within", str(within.index(id(value))))
    if id(value) not in known:
        kind, *parts = next(
            (take for types_, take in _TAKEN_APART if isinstance(value, types_)), _instance
        )(value)
        inner = *within, id(value)
        # The object, too, which keeps others from its identity.
        known[id(value)] = _digest(kind, *(_read(part, known, inner) for part in parts)), value
    return known[id(value)][0]


def _digest(*texts: str) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _array(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    content = array.tolist() if array.dtype == object else array.tobytes()
    return "array", str(array.dtype), array.shape, content


def _mapping(value: Any) -> tuple[Any, ...]:
    items: list[tuple[Any, Any]] = sorted(value.items(), key=lambda item: fingerprint(item[0]))
    return "mapping", *chain.from_iterable(items)


def _function(value: types.FunctionType) -> tuple[Any, ...]:
    closure = [cell.cell_contents for cell in value.__closure__ or ()]
    own = ("function", _name(value), value.__defaults__, value.__kwdefaults__, closure)
    if _is_relprefs(value):
        return own
    outer = {
        name: value.__globals__[name]
        for name in _names(value.__code__)
        if name in value.__globals__
    }
    return (
        *own,
        value.__code__,
        {name: _outer(part, value.__module__) for name, part in outer.items()},
    )


def _names(code: types.CodeType) -> set[str]:
    """What code and the functions in it refer to."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _outer(value: Any, module: str) -> Any:
    """What code refers to in its module: values, and its own functions and classes; anything else by name."""
    own = callable(value) and getattr(value, "__module__", None) == module
    if own or isinstance(value, (*_PLAIN, *_ARRAYS, *_HOLDERS)):
        return value
    return _name(value if hasattr(value, "__name__") else type(value))


def _class(value: type) -> tuple[Any, ...]:
    if _is_relprefs(value):
        return "class", _name(value)
    own = {
        name: part
        for name, part in vars(value).items()
        if isinstance(part, (types.FunctionType, *_PLAIN))
    }
    return "class", _name(value), [_name(base) for base in value.__bases__], own


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
        "be known again; keep none, or give "
        "a function, a functools.partial or a frozen dataclass in its place"
    )


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    return f"{getattr(value, '__module__', '')}.{name}"


def _is_relprefs(value: Any) -> bool:
    return str(value.__module__).split(".")[0] == "relpref"


# For each type a word for the kind of object, and what it is made of.
_TAKEN_APART: tuple[tuple[Any, Callable[[Any], tuple[Any, ...]]], ...] = (
    (_ARRAYS, _array),
    (dict | types.MappingProxyType, _mapping),
    (set | frozenset, lambda value: ("set", *sorted(map(fingerprint, value)))),
    (list | tuple, lambda value: (type(value).__name__, *value)),
    (types.CodeType, lambda value: ("code", value.co_code, value.co_names, value.co_consts)),
    (partial, lambda value: ("partial", value.func, value.args, value.keywords)),
    (types.MethodType, lambda value: ("method", value.__func__, value.__self__)),
    (type, _class),
    (types.FunctionType, _function),
    (types.BuiltinFunctionType | np.ufunc, lambda value: ("function", _name(value))),
)
