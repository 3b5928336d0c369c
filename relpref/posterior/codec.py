"""What files hold: arrays, labels, plain values and registered objects, in netCDF; nothing in a file is imported or called."""

import hashlib
import json
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from inspect import Parameter, isclass, signature
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pandas as pd
import scipy.sparse

from relpref._version import __version__
from relpref.data import (
    Comparisons,
    Graph,
    Links,
    PreferenceData,
    Relation,
    RelationValues,
    ScaleReference,
)
from relpref.data.arrays import shown
from relpref.data.links import OPTIONS
from relpref.errors import StorageError
from relpref.files import replaced
from relpref.memory import require_memory
from relpref.registry import EARLIER, Kind, find, name_of

# 2: links and their kinds, columns of answers, likelihood; 3: entities have parts of their own unless the program is told otherwise
SCHEMA, OLDEST = 3, 2

Stored = tuple[dict[str, Any], dict[str, Any]]  # arrays by name, and what JSON holds
Keep = Callable[[Any], Any]  # from what JSON cannot hold to how it can be found again, or None
Restore = Callable[[Any], Any]

_LABELS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "timestamp": pd.Timestamp,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def encode_label(label: Any) -> Any:
    """A label as JSON; what JSON has no type for becomes an object with one key, the type's name."""
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    if type(label) in (str, int, bool):
        return label
    if type(label) is float:
        return {"float": repr(label)}
    for name, kind in (("timestamp", pd.Timestamp), ("datetime", datetime)):
        if isinstance(label, kind):
            return {name: label.isoformat()}
    if type(label) is date:
        return {"date": label.isoformat()}
    raise StorageError(
        f"the label {label!r} is a {type(label).__name__}, which cannot be stored; "
        "use text, numbers, bools, dates or tuples of these as labels"
    )


def decode_label(stored: Any) -> Any:
    """The inverse of `encode_label`."""
    if type(stored) in (str, int, bool):
        return stored
    if type(stored) is not dict or len(stored) != 1:
        raise StorageError(f"{shown(stored)} is stored where a label should be; the file is damaged")
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
    raise StorageError(f"{shown(value)} is stored as a label, and is no {kind}; the file is damaged")


def dump(value: Any) -> str:
    """JSON with sorted keys, so that equal content gives equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def encode_labels(labels: Iterable[Any]) -> str:
    """Labels as one JSON text."""
    return dump([encode_label(label) for label in labels])


def decode_labels(stored: str) -> tuple[Any, ...]:
    """The inverse of `encode_labels`."""
    labels = json.loads(stored)
    if type(labels) is not list:
        raise StorageError(f"{shown(stored)} is stored where labels should be; the file is damaged")
    return tuple(decode_label(label) for label in labels)


def conform(value: Any, declared: Any) -> bool:
    """Whether a value from a file is of a declared type.

    A type is what a parameter or field is annotated with, a dictionary from key to type (``"key?"`` may be missing), or a list of
    the one type of its entries. ``Any`` is whatever `decode` makes: plain values, arrays and registered objects.
    """
    declared = getattr(declared, "__value__", declared)  # of an alias made by ``type``
    if isinstance(declared, dict):
        known = {name.rstrip("?"): kind for name, kind in declared.items()}
        needed = {name for name in declared if name[-1] != "?"}
        if type(value) is not dict or not needed <= value.keys() <= known.keys():
            return False
        return all(conform(part, known[name]) for name, part in value.items())
    if isinstance(declared, list):
        return type(value) is list and all(conform(part, declared[0]) for part in value)
    made_of, parts = get_origin(declared), get_args(declared)
    if declared is Any:
        return True
    if made_of in (Union, types.UnionType):
        return any(conform(value, part) for part in parts)
    if made_of is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if declared is None or declared in (type(None), bool, int, str):
        return type(value) is (type(None) if declared is None else declared)
    if declared is float:
        return type(value) in (float, int)
    if made_of in (list, Sequence):
        return type(value) is list and all(conform(part, parts[0]) for part in value)
    if made_of in (dict, Mapping):
        return type(value) is dict and all(
            conform(k, parts[0]) and conform(v, parts[1]) for k, v in value.items()
        )
    if made_of is Callable or made_of is types.FunctionType:
        return callable(value)
    kind = made_of or declared
    try:
        return isclass(kind) and isinstance(value, kind)
    except TypeError:  # a protocol that does not check instances itself
        return is_dataclass(value) and all(hasattr(value, name) for name in vars(kind) if name[0] != "_")


def checked(value: Any, declared: Any, what: str) -> Any:
    """A value that is of a declared type, see `conform`.

    Raises
    ------
    StorageError
        If it is of another.
    """
    if not conform(value, declared):
        raise StorageError(f"{what} is stored as {shown(value)}, which it cannot be; the file is damaged")
    return value


def check_arguments(function: Any, given: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that a function does not have, and values that are not of the type it declares."""
    known = signature(function, eval_str=True).parameters
    anything = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    keywords = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is not None and parameter.kind in keywords:
            declared = parameter.annotation
            checked(value, Any if declared is Parameter.empty else declared, f"{what}: {name}")
        elif not anything:
            raise StorageError(f"the file gives {what} the argument {shown(name)}, which it does not have")


def positions(arrays: Mapping[str, Any], name: str, size: int) -> Any:
    """An array of positions among so many things."""
    array = arrays[name]
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() < size):
        raise StorageError(f"{name} leads out of the {size} that there are; the file is damaged")
    return array


def sparse_arrays(matrix: Any, prefix: str) -> dict[str, Any]:
    """The arrays of a sparse matrix."""
    rows = scipy.sparse.csr_array(matrix)
    return {f"{prefix}data": rows.data, f"{prefix}indices": rows.indices, f"{prefix}indptr": rows.indptr}


def sparse_matrix(arrays: Mapping[str, Any], prefix: str, shape: Sequence[int]) -> Any:
    """The inverse of `sparse_arrays`; checked, because algebra with indices out of range ends the process."""
    parts = tuple(arrays[prefix + name] for name in ("data", "indices", "indptr"))
    matrix = scipy.sparse.csr_array(parts, shape=tuple(shape))
    matrix.check_format(full_check=True)
    return matrix


def registered(kinds: Sequence[Kind], stored: str) -> Any:
    """The registered object that a file names as ``kind:name``."""
    kind, name = EARLIER.get(stored, stored.partition(":")[::2])
    named = next((find(known, name) for known in kinds if known == kind), None)
    if named is None:
        raise StorageError(
            f"the file needs {shown(stored)}, which is not registered: if it is your own, call relpref.register before relpref.load; "
            "otherwise the file is damaged, or from a newer relpref"
        )
    return named


_OBJECTS: tuple[Kind, ...] = ("kernel", "likelihood")


def encode(value: Any, keep: Keep | None = None) -> Any:
    """Options, as far as JSON, registered kernels and likelihoods, and ``keep`` can hold them.

    Raises
    ------
    TypeError
        If they are something else.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"mapping": {str(key): encode(part, keep) for key, part in value.items()}}
    kept = None if keep is None else keep(value)
    if kept is not None:
        return {"kept": kept}
    for kind in _OBJECTS:
        name = name_of(kind, type(value))
        if name is not None:
            stored = {f.name: encode(getattr(value, f.name), keep) for f in fields(value) if f.init}
            return {"object": f"{kind}:{name}", "fields": stored}
    raise TypeError(f"{type(value).__name__} cannot be stored")


def decode(stored: Any, restore: Restore | None = None) -> Any:
    """The inverse of `encode`: plain values, what was kept, and registered kernels and likelihoods with checked fields."""
    if stored is None or isinstance(stored, str | bool | int | float):
        return stored
    if conform(stored, {"mapping": dict[str, Any]}):
        return {key: decode(part, restore) for key, part in stored["mapping"].items()}
    if conform(stored, {"kept": Any}) and restore is not None:
        return restore(stored["kept"])
    if conform(stored, {"object": str, "fields": dict[str, Any]}):
        made = registered(_OBJECTS, stored["object"])
        values = {field: decode(part, restore) for field, part in stored["fields"].items()}
        check_arguments(made, values, made.__name__)
        return made(**values)
    raise StorageError(f"the file holds {shown(stored)} where an option should be; it is damaged")


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all."""
    import h5netcdf

    text = dump(content)
    attributes = {
        "relpref_schema": SCHEMA,
        "relpref_version": __version__,
        "relpref": text,
        "relpref_sha256": checksum(arrays, text),
    }
    with replaced(path) as part, h5netcdf.File(part, "w") as file:
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, array in arrays.items():
            group, _, variable = name.rpartition("/")
            target = file
            if group:
                target = file[group] if group in file.groups else file.create_group(group)
            dims = []
            for axis, length in enumerate(array.shape):
                # An axis is named by what it holds; the second of two equal axes needs a name of its own.
                dim = f"{variable}_axis{axis}" if len(array.shape) > 1 or length else f"{variable}_axis"
                target.dimensions[dim] = length
                dims.append(dim)
            target.create_variable(variable, tuple(dims), data=array)


def read(path: Path) -> Stored:
    """Every array of a file by its path in it, and the file's attributes."""
    import h5netcdf
    import h5py

    if not path.exists():
        raise StorageError(f"{path} does not exist; give the file that posterior.save(...) wrote")
    try:
        with h5py.File(path, "r") as raw:
            _check_contents(raw)
            # Where one cannot be read, h5netcdf would leave a file behind that it can neither open nor close.
            dict(raw.attrs)
        with h5netcdf.File(path, "r") as file:
            attributes = {name: file.attrs[name] for name in file.attrs}
            arrays = {name: np.asarray(variable[...]) for name, variable in file.variables.items()}
            for group, content in file.groups.items():
                arrays |= {f"{group}/{name}": np.asarray(v[...]) for name, v in content.variables.items()}
    except Exception as error:  # HDF5 raises many types on a damaged file
        raise StorageError(f"{path} cannot be read as a posterior ({error}); save it again") from error
    return arrays, attributes


def _check_contents(group: Any) -> None:
    """Refuse what leads out of the file, is larger than the file says, or is no array of numbers."""
    import h5py

    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise StorageError(f"{name} is a link to elsewhere")
        item = group[name]
        if isinstance(item, h5py.Group):
            _check_contents(item)
        elif item.dtype.kind not in "fiub" or item.is_virtual or item.external:
            raise StorageError(f"{name} is no array of numbers")
        else:
            require_memory(float(item.nbytes), f"the array {name}")


def checksum(arrays: Mapping[str, Any], text: str) -> str:
    """Of the content, so that a flipped bit is found whatever HDF5 makes of it."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


_ATTRIBUTES = ("attributes", "attribute_center", "attribute_scale")
_EDGES = ("source", "target", "weight")
_COLUMN = Literal["winner", "loser", "count", "tie", "strength", "probability", "rater", "shown_first"]
DATA = {
    "entities": str,
    "attribute_names": list[str],
    "relations": list[str],
    "cliques": list[str],
    "columns": list[_COLUMN],
    "raters": str,
    "strengths": int,
    "links": list[dict[str, Any]],
    "answered": bool,
    "notes": list[str],
}


def encode_data(data: PreferenceData, prefix: str = "data") -> Stored:
    """Preference data, with arrays in a group."""
    arrays = {f"{prefix}/{name}": getattr(data, name) for name in _ATTRIBUTES} | {
        # netCDF has no booleans
        f"{prefix}/{name}": column.astype(np.int8) if column.dtype == bool else column
        for name, column in data.comparisons.columns.items()
    }
    for row, graph in enumerate(data.relations.values()):
        part = f"{prefix}/relation_{row}_"
        arrays |= {part + name: getattr(graph, name) for name in _EDGES}
        if graph.frozen_reference is not None:
            reference = graph.frozen_reference._asdict()
            arrays |= {f"{part}reference_{name}": np.asarray(value) for name, value in reference.items()}
    for row, links in enumerate(data.links.values()):
        arrays |= {f"{prefix}/links_{row}_{name}": getattr(links, name) for name in _EDGES}
    return arrays, {
        "entities": encode_labels(data.entities),
        "attribute_names": list(data.attribute_names),
        "relations": list(data.relations),
        "cliques": [name for name, graph in data.relations.items() if graph.counts_cliques],
        "columns": list(data.comparisons.columns),
        "raters": encode_labels(data.comparisons.raters),
        "strengths": data.comparisons.strengths,
        "links": [
            {option: getattr(links.relation, option) for option in OPTIONS}
            | {"name": name, "targets": encode_labels(links.targets)}
            for name, links in data.links.items()
        ],
        "answered": data.answered,
        "notes": list(data.notes),
    }


def decode_data(arrays: Mapping[str, Any], content: dict[str, Any], prefix: str = "data") -> PreferenceData:
    """The inverse of `encode_data`."""
    checked(content, DATA, "the data")
    entities, raters = decode_labels(content["entities"]), decode_labels(content["raters"])
    size = len(entities)
    for name, number in (("winner", size), ("loser", size), ("rater", len(raters))):
        if name != "rater" or name in content["columns"]:
            positions(arrays, f"{prefix}/{name}", number)
    graphs = {}
    for row, name in enumerate(content["relations"]):
        part = f"{prefix}/relation_{row}_"
        frozen = [arrays.get(f"{part}reference_{field}") for field in ScaleReference._fields]
        reference = None
        if frozen[0] is not None:
            values, gap_weights, mean_degree, component = frozen
            reference = ScaleReference(values, gap_weights, np.float64(mean_degree), component)
        source, target, weight = (arrays[part + end] for end in _EDGES)
        cliques = name in content["cliques"]
        graphs[name] = Graph(size, source, target, weight, frozen_reference=reference, counts_cliques=cliques)
    links = {}
    for row, stored in enumerate(content["links"]):
        options = {option: stored[option] for option in OPTIONS}
        check_arguments(Relation, options, "a relation")
        targets = decode_labels(stored["targets"])
        part = f"{prefix}/links_{row}_"
        links[checked(stored["name"], str, "a relation")] = Links(
            Relation(None, **options),
            positions(arrays, part + "source", size),
            positions(arrays, part + "target", len(targets) or size),
            arrays[part + "weight"],
            targets,
        )
    attributes = {name: arrays[f"{prefix}/{name}"] for name in _ATTRIBUTES}
    columns = {name: arrays[f"{prefix}/{name}"] for name in content["columns"]}
    for array in (*attributes.values(), *columns.values()):
        array.flags.writeable = False
    if "tie" in columns:
        columns["tie"] = columns["tie"].astype(bool)
    return PreferenceData(
        comparisons=Comparisons(**columns, raters=raters, strengths=content["strengths"]),
        entities=entities,
        attribute_names=tuple(content["attribute_names"]),
        _graphs=graphs,
        _links=links,
        answered=content["answered"],
        notes=tuple(content["notes"]),
        **attributes,
    )


def decode_values(arrays: Mapping[str, Any], shape: Sequence[int], prefix: str = "") -> RelationValues:
    """The labels of pairs: all of them, or those in some rows and columns."""
    p, m = shape
    edges = None
    if f"{prefix}rows" in arrays:
        edges = (positions(arrays, f"{prefix}rows", p), positions(arrays, f"{prefix}columns", m))
    return RelationValues((p, m), arrays[f"{prefix}values"], edges)
