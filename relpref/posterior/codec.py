"""Store posteriors in netCDF files as arrays and JSON; nothing in a file is imported or called.

Values are encoded by their types: plain values, labels, arrays, and the fields of registered
dataclasses.
"""

import hashlib
import io
import json
import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime
from inspect import Parameter, isclass, signature
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pandas as pd
import scipy.sparse

from relpref._version import __version__
from relpref.data import PreferenceData, Rankings, RelationData, RelationValues
from relpref.data.arrays import shown
from relpref.data.relation import checked_sparse
from relpref.errors import StorageError
from relpref.files import replaced
from relpref.limits import require_memory
from relpref.registry import Closed, Kind, find, known, name_of

SCHEMA = 5

Stored = tuple[dict[str, Any], dict[str, Any]]  # arrays by name, and what JSON holds
Arrays = Mapping[str, Any]
Dataset = PreferenceData | Rankings | RelationData

# Dates by name, the more special first, with the reader of each.
_DATES: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "timestamp": (pd.Timestamp, pd.Timestamp),
    "datetime": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
}
_LABELS = {"float": float, **{name: read for name, (_, read) in _DATES.items()}}


def encode_label(label: Any) -> Any:
    """Encode a label as JSON; types that JSON lacks become {type: value}, as {"float": "0.5"}."""
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    if type(label) in (str, int, bool):
        return label
    if type(label) is float:
        return {"float": repr(label)}
    if isinstance(label, datetime) or type(label) is date:
        kinds = (name for name, (kind, _) in _DATES.items() if isinstance(label, kind))
        return {next(kinds): label.isoformat()}
    raise StorageError(
        f"the label {label!r} is a {type(label).__name__}, which cannot be stored; "
        "use text, numbers, bools, dates or tuples of these as labels"
    )


def decode_label(stored: Any) -> Any:
    """Decode what `encode_label` made."""
    if type(stored) in (str, int, bool):
        return stored
    if type(stored) is not dict or len(stored) != 1:
        raise StorageError(
            f"{shown(stored)} is stored where a label should be; the file is damaged"
        )
    ((kind, value),) = stored.items()
    if kind == "tuple" and type(value) is list:
        return tuple(decode_label(part) for part in value)
    if kind not in _LABELS:
        raise StorageError(
            f"a stored label is of the unknown kind {shown(kind)}; the file is from a newer relpref"
        )
    try:
        label = _LABELS[kind](value)
        if encode_label(label) == stored:
            return label
    except (ValueError, TypeError):
        pass
    raise StorageError(
        f"{shown(value)} is stored as a label, and is no {kind}; the file is damaged"
    )


def dump(value: Any) -> str:
    """Write a value as JSON text; NumPy arrays become lists, and mappings keep their order."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def conform(value: Any, declared: Any) -> bool:
    """Whether a value from a file has a declared type.

    A declared type is an annotation, a dictionary from each key to its type (``"key?"`` may be
    missing), or a list with the type of all entries, such as ``[int]``. ``Any`` allows all that
    `decode` makes: plain values, arrays and registered objects.
    """
    declared = getattr(declared, "__value__", declared)  # of an alias made by ``type``
    if isinstance(declared, dict):
        types_by_name = {name.rstrip("?"): kind for name, kind in declared.items()}
        needed = {name for name in declared if name[-1] != "?"}
        if type(value) is not dict or not needed <= value.keys() <= types_by_name.keys():
            return False
        return all(conform(part, types_by_name[name]) for name, part in value.items())
    origin, parts = get_origin(declared), get_args(declared)
    if declared is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(conform(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if declared is None or declared in (type(None), bool, int, str):
        return type(value) is (type(None) if declared is None else declared)
    if declared is float:
        return type(value) in (float, int)
    if isinstance(declared, list) or origin in (list, Sequence):
        (kind,) = declared if isinstance(declared, list) else parts
        return type(value) is list and all(conform(part, kind) for part in value)
    if origin is tuple:
        kinds = parts[:1] * len(value) if parts[-1] is Ellipsis and type(value) is tuple else parts
        return type(value) is tuple and len(value) == len(kinds) and all(map(conform, value, kinds))
    if origin in (dict, Mapping):
        return type(value) is dict and all(
            conform(k, parts[0]) and conform(v, parts[1]) for k, v in value.items()
        )
    if origin is Callable or origin is types.FunctionType:
        return callable(value)
    kind = origin or declared
    try:
        return isclass(kind) and isinstance(value, kind)
    except TypeError:  # a protocol that does not check instances itself
        return is_dataclass(value) and all(
            hasattr(value, name) for name in vars(kind) if name[0] != "_"
        )


def checked(value: Any, declared: Any, what: str) -> Any:
    """Return a value if it has the declared type, see `conform`; otherwise raise an error."""
    if not conform(value, declared):
        raise StorageError(
            f"{what} is stored as {shown(value)}, which it cannot be; the file is damaged"
        )
    return value


def check_arguments(function: Any, given: Mapping[str, Any], what: str) -> None:
    """Refuse arguments that ``function`` does not have or whose values have the wrong type."""
    parameters = signature(function, eval_str=True).parameters
    keywords = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    declared = {name: part.annotation for name, part in parameters.items() if part.kind in keywords}
    anything = any(part.kind is Parameter.VAR_KEYWORD for part in parameters.values())
    for name, value in given.items():
        if name in declared:
            kind = declared[name]
            checked(value, Any if kind is Parameter.empty else kind, f"{what}: {name}")
        elif not anything:
            raise StorageError(
                f"the file gives {what} the argument {shown(name)}, which it does not have"
            )


def sparse_arrays(matrix: Any, prefix: str) -> dict[str, Any]:
    """Return the three arrays of a sparse matrix in CSR format, their names after a prefix."""
    rows = scipy.sparse.csr_array(matrix)
    return {
        f"{prefix}data": rows.data,
        f"{prefix}indices": rows.indices,
        f"{prefix}indptr": rows.indptr,
    }


def sparse_matrix(arrays: Arrays, prefix: str, shape: Sequence[int]) -> Any:
    """Make a CSR array of what `sparse_arrays` made; refuses arrays that do not fit together."""
    parts = arrays[f"{prefix}data"], arrays[f"{prefix}indices"], arrays[f"{prefix}indptr"]
    return checked_sparse(parts, shape)


def check_registered(kinds: Sequence[Kind | Closed], stored: str) -> tuple[Kind | Closed, str]:
    """Split a stored ``kind:name``; refuses names that are not registered, and imports nothing."""
    kind, _, name = stored.partition(":")
    for allowed in kinds:
        if allowed == kind and known(allowed, name):
            return allowed, name
    raise StorageError(
        f"the file needs {shown(stored)}, which is not registered: if it is your own, call "
        "relpref.register before relpref.load; "
        "otherwise the file is damaged, or from a newer relpref"
    )


def registered(kinds: Sequence[Kind | Closed], stored: str) -> Any:
    """Import and return the registered object that a file names as ``kind:name``."""
    return find(*check_registered(kinds, stored))


_OBJECTS: tuple[Kind | Closed, ...] = ("kernel", "likelihood", "record")


def encode(value: Any, arrays: dict[str, Any], path: str) -> Any:
    """Return a value as data for JSON, and add its arrays to ``arrays``, named by their paths.

    ``path`` is the place of the value in the file, its parts joined by slashes.

    Raises
    ------
    StorageError
        If the value, or a part of it, is neither plain, a label, an array nor registered.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, np.generic):
        return encode(value.item(), arrays, path)
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop]}
    if isinstance(value, Mapping):
        return {"mapping": {str(k): encode(v, arrays, f"{path}/{k}") for k, v in value.items()}}
    for kind in _OBJECTS:
        name = name_of(kind, type(value))
        if name is not None:
            named = {field: getattr(value, field) for field in _stored(type(value))}
            return {
                "object": f"{kind}:{name}",
                "fields": encode(named, arrays, path)["mapping"],
            }
    if isinstance(value, list | tuple):
        listed = [encode(part, arrays, f"{path}/{row}") for row, part in enumerate(value)]
        return {"tuple": listed} if isinstance(value, tuple) else listed
    if scipy.sparse.issparse(value):
        parts = {"shape": list(value.shape), **sparse_arrays(value, "")}
        return {"sparse": encode(parts, arrays, path)["mapping"]}
    if hasattr(value, "__array__") and np.asarray(value).dtype.kind in "fiub":
        return _encode_array(np.asarray(value), arrays, path)
    return encode_label(value)


def _stored(cls: type) -> list[str]:
    """Return the arguments of a class that are stored: all but fields marked as not stored."""
    kept = getattr(cls, "__dataclass_fields__", {})
    names = signature(cls).parameters
    return [name for name in names if name not in kept or kept[name].metadata.get("stored", True)]


def _encode_array(array: Any, arrays: dict[str, Any], path: str) -> dict[str, str]:
    # JSON has the type, and ``arrays`` the values.
    name = array_name(path)
    if name in arrays:
        raise StorageError(f"there are two arrays of the name {name}; rename one of their parts")
    arrays[name] = array.astype(np.int8) if array.dtype == bool else array  # netCDF has no bool
    return {"array": array.dtype.name}


def array_name(path: str) -> str:
    """Turn a path a/b/c into the name a.b/c, as files have groups but no groups within groups."""
    group, _, name = path.rpartition("/")
    return f"{group.replace('/', '.')}/{name}".removeprefix("/")


def decode(stored: Any, arrays: Arrays, path: str) -> Any:
    """Make the value that `encode` encoded; refuses registered objects with wrong fields."""
    match stored:
        case None | bool() | int() | float() | str():
            return stored
        case list():
            return [decode(part, arrays, f"{path}/{row}") for row, part in enumerate(stored)]
        case {"tuple": list(parts)}:
            return tuple(decode(parts, arrays, path))
        case {"mapping": dict(named)}:
            return {key: decode(part, arrays, f"{path}/{key}") for key, part in named.items()}
        case {"array": str(dtype)}:
            array = np.asarray(arrays[array_name(path)])
            if dtype == "bool":
                array = array.astype(bool)
            if array.dtype.name != dtype:
                raise StorageError(f"{path} is of the type {array.dtype}, not {shown(dtype)}")
            array.flags.writeable = False
            return array[()] if array.ndim == 0 else array
        case {"slice": [int(start), int(stop)]}:
            return slice(start, stop)
        case {"sparse": dict(named)}:
            matrix = decode({"mapping": named}, arrays, path)
            return sparse_matrix(matrix, "", checked(matrix["shape"], list[int], path))
        case {"object": str(name), "fields": dict(named)}:
            cls = registered(_OBJECTS, name)
            values = decode({"mapping": named}, arrays, path)
            check_arguments(cls, values, cls.__name__)
            value = cls(**values)
            _CHECKS.get(name, lambda _: None)(value)
            return value
    return decode_label(stored)


def positions(array: Any, size: int, what: str, lowest: int = 0) -> Any:
    """Return an array whose entries are from ``lowest`` to size − 1; otherwise raise an error."""
    if array.dtype.kind not in "iu" or np.any((array < lowest) | (array >= size)):
        raise StorageError(f"{what} leads out of the {size} that there are; the file is damaged")
    return array


def _check_data(data: PreferenceData) -> None:
    """Refuse answers and links with positions out of range or a wrong number of covariates."""
    answers, size = data.comparisons, len(data.labels)
    for name, number, lowest in (
        ("winner", size, 0),
        ("loser", size, 0),
        ("rater", len(answers.raters), 0),
        ("group", len(answers.groups), -1),
        ("list", len(answers.lists), -1),
    ):
        column = getattr(answers, name)
        if column is not None:
            positions(column, number, name, lowest)
    for name, links in data.links.items():
        positions(links.source, size, name)
        positions(links.target, len(links.targets) or size, name)
    effects = len(answers.covariate_names)
    for array in (answers.covariates, answers.covariate_scales):
        if effects != (0 if array is None else array.shape[-1]):
            raise StorageError(
                f"the answers are said to have {effects} effects of covariates; the file is damaged"
            )


def _check_values(relation: RelationValues) -> None:
    for array, size in zip(relation.edges or (), relation.shape, strict=False):
        positions(array, size, "an edge of the relation")


_CHECKS: dict[str, Callable[[Any], None]] = {
    "record:PreferenceData": _check_data,
    "record:RelationValues": _check_values,
}


_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"


def write(path: str | os.PathLike[str], arrays: Arrays, content: Mapping[str, Any]) -> None:
    """Write arrays and JSON to a file, completely or not at all; an array a/b is in group a."""
    import h5netcdf

    # In memory first: HDF5 ends the process some time after a disk was full.
    text, memory = dump(content), io.BytesIO()
    with h5netcdf.File(memory, "w") as file:
        file.attrs.update(
            relpref_schema=SCHEMA,
            relpref_version=__version__,
            relpref=text,
            relpref_sha256=checksum(arrays, text),
        )
        for name, array in arrays.items():
            group, _, variable = name.rpartition("/")
            target = file
            if group:
                target = file[group] if group in file.groups else file.create_group(group)
            dims = tuple(f"{variable}_axis{axis}" for axis in range(array.ndim))
            target.dimensions.update(zip(dims, array.shape, strict=True))
            target.create_variable(variable, dims, data=array)
    with replaced(path) as part:
        part.write_bytes(memory.getvalue())


def read(path: Path) -> Stored:
    """Read a file: its arrays, by the names that `write` was given, and its attributes."""
    import h5py

    if not path.exists():
        raise StorageError(f"{path} does not exist; give the file that posterior.save(...) wrote")
    try:
        with h5py.File(path, "r") as file:
            # netCDF has no scalar attributes: a number is an array of one.
            attributes = {n: v.item() if np.shape(v) == (1,) else v for n, v in file.attrs.items()}
            return _arrays_of(file), attributes
    except Exception as error:  # HDF5 raises many types on a damaged file
        raise StorageError(
            f"{path} cannot be read as a posterior ({error}); save it again"
        ) from error


def _arrays_of(group: Any, prefix: str = "") -> dict[str, Any]:
    """Read the arrays of a file or group; refuses links, huge arrays and all but numbers."""
    import h5py

    arrays: dict[str, Any] = {}
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise StorageError(f"{name} is a link to elsewhere")
        item = group[name]
        if isinstance(item, h5py.Group) and not prefix:
            arrays |= _arrays_of(item, f"{name}/")
            continue
        if (
            isinstance(item, h5py.Group)
            or item.dtype.kind not in "fiub"
            or item.is_virtual
            or item.external
        ):
            raise StorageError(f"{name} is no array of numbers")
        require_memory(float(item.nbytes), f"the array {name}")
        if not bytes(item.attrs.get("NAME", b"")).startswith(_DIMENSION):
            arrays[prefix + name] = np.asarray(item[...])
    return arrays


def checksum(arrays: Arrays, text: str) -> str:
    """SHA-256 of the arrays and the JSON text, so that flipped bits are detected."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
