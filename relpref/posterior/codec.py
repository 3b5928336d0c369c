"""What files hold: arrays, labels, plain values and registered objects, in netCDF; nothing in a file is imported or called."""

import hashlib
import io
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
    EdgeTable,
    Graph,
    PreferenceData,
    Rankings,
    Relation,
    RelationData,
    RelationValues,
    ScaleReference,
)
from relpref.data.arrays import shown
from relpref.data.columns import COLUMNS
from relpref.data.covariates import Covariate
from relpref.data.relation import OPTIONS, checked_sparse
from relpref.errors import StorageError
from relpref.files import replaced
from relpref.limits import require_memory
from relpref.registry import Kind, find, known, name_of

# 4: the kernel of attributes has a linear part unless the program is told otherwise
SCHEMA, OLDEST = 4, 3

Stored = tuple[dict[str, Any], dict[str, Any]]  # arrays by name, and what JSON holds
Arrays = Mapping[str, Any]
Dataset = PreferenceData | Rankings | RelationData

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
    if isinstance(label, datetime) or type(label) is date:
        names = {"timestamp": pd.Timestamp, "datetime": datetime, "date": date}
        return {
            next(name for name, kind in names.items() if isinstance(label, kind)): label.isoformat()
        }
    raise StorageError(
        f"the label {label!r} is a {type(label).__name__}, which cannot be stored; "
        "use text, numbers, bools, dates or tuples of these as labels"
    )


def decode_label(stored: Any) -> Any:
    """The inverse of `encode_label`."""
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


def encode_labels(labels: Iterable[Any]) -> str:
    return dump([encode_label(label) for label in labels])


def decode_labels(stored: str) -> tuple[Any, ...]:
    """The inverse of `encode_labels`."""
    labels = json.loads(stored)
    if type(labels) is not list:
        raise StorageError(f"{shown(stored)} is stored where labels should be; the file is damaged")
    return tuple(decode_label(label) for label in labels)


def dump(value: Any) -> str:
    """JSON with sorted keys, so that equal content gives equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def conform(value: Any, declared: Any) -> bool:
    """Whether a value from a file is of a declared type.

    A type is what a parameter or field is annotated with, a dictionary from key to type (``"key?"``
    may be missing), or a list of the one type of its entries. ``Any`` is whatever `decode` makes:
    plain values, arrays and registered objects.
    """
    declared = getattr(declared, "__value__", declared)  # of an alias made by ``type``
    if isinstance(declared, dict):
        types_by_name = {name.rstrip("?"): kind for name, kind in declared.items()}
        needed = {name for name in declared if name[-1] != "?"}
        if type(value) is not dict or not needed <= value.keys() <= types_by_name.keys():
            return False
        return all(conform(part, types_by_name[name]) for name, part in value.items())
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
    if isinstance(declared, list) or made_of in (list, Sequence):
        (kind,) = declared if isinstance(declared, list) else parts
        return type(value) is list and all(conform(part, kind) for part in value)
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
        return is_dataclass(value) and all(
            hasattr(value, name) for name in vars(kind) if name[0] != "_"
        )


def checked(value: Any, declared: Any, what: str) -> Any:
    """A value that is of a declared type, see `conform`, or an error."""
    if not conform(value, declared):
        raise StorageError(
            f"{what} is stored as {shown(value)}, which it cannot be; the file is damaged"
        )
    return value


def check_arguments(function: Any, given: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that a function does not have, and values that are not of the type it declares."""
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


def positions(arrays: Arrays, name: str, size: int) -> Any:
    """An array of positions among so many things."""
    array = arrays[name]
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() < size):
        raise StorageError(f"{name} leads out of the {size} that there are; the file is damaged")
    return array


def sparse_arrays(matrix: Any, prefix: str) -> dict[str, Any]:
    """The arrays of a sparse matrix."""
    rows = scipy.sparse.csr_array(matrix)
    return {
        f"{prefix}data": rows.data,
        f"{prefix}indices": rows.indices,
        f"{prefix}indptr": rows.indptr,
    }


def sparse_matrix(arrays: Arrays, prefix: str, shape: Sequence[int]) -> Any:
    """The inverse of `sparse_arrays`."""
    parts = arrays[f"{prefix}data"], arrays[f"{prefix}indices"], arrays[f"{prefix}indptr"]
    return checked_sparse(parts, shape)


def check_registered(kinds: Sequence[Kind], stored: str) -> tuple[Kind, str]:
    """Kind and name of the registered object that a file names as ``kind:name``, which is not imported for that."""
    kind, _, name = stored.partition(":")
    for one in kinds:
        if one == kind and known(one, name):
            return one, name
    raise StorageError(
        f"the file needs {shown(stored)}, which is not registered: if it is your own, call "
        "relpref.register before relpref.load; "
        "otherwise the file is damaged, or from a newer relpref"
    )


def registered(kinds: Sequence[Kind], stored: str) -> Any:
    """The registered object that a file names as ``kind:name``."""
    return find(*check_registered(kinds, stored))


_OBJECTS: tuple[Kind, ...] = ("kernel", "likelihood")


def encode(value: Any, kept: dict[str, Any] | None = None) -> Any:
    """Options as JSON: plain values, registered kernels and likelihoods, and, in ``kept``, arrays and data; a TypeError for others."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"mapping": {str(key): encode(part, kept) for key, part in value.items()}}
    if kept is not None:
        prefix = f"kept{sum(name.startswith('kept') for name in kept)}"
        if isinstance(value, Dataset):
            arrays, described = encode_data(value, prefix)
            kept |= arrays
            return {"kept": {"prefix": prefix, **described}}
        if hasattr(value, "__array__") and np.asarray(value).dtype != object:
            kept[f"{prefix}/array"] = np.asarray(value)
            return {"kept": {"array": f"{prefix}/array"}}
    for kind in _OBJECTS:
        name = name_of(kind, type(value))
        if name is not None:
            stored = {f.name: encode(getattr(value, f.name), kept) for f in fields(value) if f.init}
            return {"object": f"{kind}:{name}", "fields": stored}
    raise TypeError(f"{type(value).__name__} cannot be stored")


def decode(stored: Any, arrays: Arrays | None = None) -> Any:
    """The inverse of `encode`; the fields of registered objects are checked."""
    if stored is None or isinstance(stored, str | bool | int | float):
        return stored
    if conform(stored, {"mapping": dict[str, Any]}):
        return {key: decode(part, arrays) for key, part in stored["mapping"].items()}
    if conform(stored, {"kept": dict[str, Any]}) and arrays is not None:
        kept = stored["kept"]
        if conform(kept, {"array": str}):
            return arrays[kept["array"]]
        return decode_data(arrays, {n: v for n, v in kept.items() if n != "prefix"}, kept["prefix"])
    if conform(stored, {"object": str, "fields": dict[str, Any]}):
        made = registered(_OBJECTS, stored["object"])
        values = {field: decode(part, arrays) for field, part in stored["fields"].items()}
        check_arguments(made, values, made.__name__)
        return made(**values)
    raise StorageError(f"the file holds {shown(stored)} where an option should be; it is damaged")


_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"


def write(path: str | os.PathLike[str], arrays: Arrays, content: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all."""
    import h5netcdf

    text, memory = (
        dump(content),
        io.BytesIO(),
    )  # HDF5 ends the process some time after a disk was full
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
        part.write_bytes(memory.getbuffer())


def read(path: Path) -> Stored:
    """Every array of a file by its path in it, and the file's attributes."""
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
    """Refuses what leads out of the file, is larger than the file says, or is no array of numbers."""
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
    """Of the content, so that a flipped bit is found whatever HDF5 makes of it."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


_ATTRIBUTES = ("attributes", "attribute_center", "attribute_scale")
_OF_RANKINGS = ("label", "features", "residual")
_OF_RELATIONS = ("symmetry", "shift", "observed")
_EDGES = ("source", "target", "weight")
_COLUMN: Any = Literal[tuple(COLUMNS)]
DATA = {
    "entities": str,
    "attribute_names": list[str],
    "relations": list[str],
    "cliques": list[str],
    "columns": list[_COLUMN],
    "raters": str,
    "groups?": str,
    "lists?": str,
    "strengths": int,
    "covariates?": list[dict[str, Any]],
    "links": list[dict[str, Any]],
    "answered": bool,
    "notes": list[str],
}
_COVARIATE = {"name": str, "kind": Literal["number", "category", "side"], "levels": list[str]}
_RANKINGS = {"items": DATA, "rankers": str, "classes": str}
_RELATION = {
    "nodes": DATA,
    "objects": dict[str, Any] | None,
    "shape": list[int],
    "symmetry": Literal["none", "symmetric", "reciprocal"],
    "shift": float,
    "observed": bool,
}


def encode_data(data: Dataset, prefix: str = "data") -> Stored:
    """Arrays in groups that begin with the prefix, and what JSON can hold."""
    parts: dict[str, PreferenceData | None] = {}
    if isinstance(data, Rankings):
        parts = {"items": data.items}
        arrays = {name: getattr(data, name) for name in ("positions", *_OF_RANKINGS)}
        content: dict[str, Any] = {
            name: encode_labels(getattr(data, name)) for name in ("rankers", "classes")
        }
    elif isinstance(data, RelationData):
        parts = {"nodes": data.nodes, "objects": data.objects}
        rows, columns = data.values.edges or (None, None)
        arrays = {
            "values": data.values.values,
            "rows": rows,
            "columns": columns,
            "distinct": data.distinct,
        }
        content = {"shape": list(data.values.shape)} | {
            name: getattr(data, name) for name in _OF_RELATIONS
        }
    else:
        arrays, content = _encode_preferences(data)
    arrays = {f"{prefix}/{name}": array for name, array in arrays.items() if array is not None}
    for name, part in parts.items():
        more, content[name] = ({}, None) if part is None else encode_data(part, f"{prefix}_{name}")
        arrays |= more
    return arrays, content


def _encode_preferences(data: PreferenceData) -> Stored:
    arrays = {name: getattr(data, name) for name in _ATTRIBUTES} | {
        # netCDF has no booleans
        name: column.astype(np.int8) if column.dtype == bool else column
        for name, column in data.comparisons.columns.items()
    }
    covariates = [
        {"name": each.name, "kind": each.kind, "levels": list(each.levels)}
        for each in data.comparisons.covariates_are
    ]
    if data.comparisons.covariate_scales is not None:
        arrays["covariate_scales"] = data.comparisons.covariate_scales
    for row, graph in enumerate(data.relations.values()):
        arrays |= {f"relation_{row}_{name}": getattr(graph, name) for name in _EDGES}
        if graph.frozen_reference is not None:
            reference = graph.frozen_reference._asdict()
            arrays |= {
                f"relation_{row}_reference_{name}": np.asarray(v) for name, v in reference.items()
            }
    for row, links in enumerate(data.links.values()):
        arrays |= {f"links_{row}_{name}": getattr(links, name) for name in _EDGES}
    shared = {"groups": data.comparisons.groups, "lists": data.comparisons.lists}
    return arrays, {name: encode_labels(labels) for name, labels in shared.items() if labels} | {
        "entities": encode_labels(data.labels),
        "attribute_names": list(data.attribute_names),
        "relations": list(data.relations),
        "cliques": [name for name, graph in data.relations.items() if graph.counts_cliques],
        "columns": list(data.comparisons.columns),
        "raters": encode_labels(data.comparisons.raters),
        "strengths": data.comparisons.strengths,
        **({"covariates": covariates} if covariates else {}),
        "links": [
            {option: getattr(links.relation, option) for option in OPTIONS}
            | {"name": name, "targets": encode_labels(links.targets)}
            for name, links in data.links.items()
        ],
        "answered": data.answered,
        "notes": list(data.notes),
    }


def decode_data(arrays: Arrays, content: dict[str, Any], prefix: str = "data") -> Any:
    """The inverse of `encode_data`."""
    if "items" in content:
        checked(content, _RANKINGS, "the examples")
        optional: dict[str, Any] = {name: arrays.get(f"{prefix}/{name}") for name in _OF_RANKINGS}
        optional |= {name: decode_labels(content[name]) for name in ("rankers", "classes")}
        items = decode_data(arrays, content["items"], f"{prefix}_items")
        return Rankings(items=items, positions=arrays[f"{prefix}/positions"], **optional)
    if "nodes" in content:
        checked(content, _RELATION, "the examples")
        nodes, objects = (
            content[side] and decode_data(arrays, content[side], f"{prefix}_{side}")
            for side in ("nodes", "objects")
        )
        values = decode_values(arrays, content["shape"], f"{prefix}/")
        options = {name: content[name] for name in _OF_RELATIONS}
        distinct = arrays.get(f"{prefix}/distinct")
        return RelationData(
            nodes=nodes, objects=objects, values=values, distinct=distinct, **options
        )
    checked(content, DATA, "the data")
    items, raters = decode_labels(content["entities"]), decode_labels(content["raters"])
    groups, lists = (
        decode_labels(content[name]) if name in content else () for name in ("groups", "lists")
    )
    size = len(items)
    for name, labels in (("group", groups), ("list_label", lists)):
        if name in content["columns"]:  # −1 where there is none
            place = f"{prefix}/{name}"
            positions({place: arrays[place] + 1}, place, len(labels) + 1)
    for name, number in (("winner", size), ("loser", size), ("rater", len(raters))):
        if name != "rater" or name in content["columns"]:
            positions(arrays, f"{prefix}/{name}", number)
    graphs, links = {}, {}
    for row, name in enumerate(content["relations"]):
        part = f"{prefix}/relation_{row}_"
        frozen = [arrays.get(f"{part}reference_{field}") for field in ScaleReference._fields]
        reference = None
        if frozen[0] is not None:
            eigenvalues, gap_weights, mean_degree, component = frozen
            reference = ScaleReference(eigenvalues, gap_weights, np.float64(mean_degree), component)
        source, target, weight = (arrays[part + end] for end in _EDGES)
        cliques = name in content["cliques"]
        graphs[name] = Graph(
            size, source, target, weight, frozen_reference=reference, counts_cliques=cliques
        )
    for row, stored in enumerate(content["links"]):
        options = {option: stored[option] for option in OPTIONS}
        check_arguments(Relation, options, "a relation")
        targets = decode_labels(stored["targets"])
        part = f"{prefix}/links_{row}_"
        links[checked(stored["name"], str, "a relation")] = EdgeTable(
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
    if (
        "list" in columns and "list_label" not in columns
    ):  # the file is from before labels were kept
        columns["list_label"], lists = columns["list"], tuple(range(int(columns["list"].max()) + 1))
    covariates = tuple(
        Covariate(**checked(each, _COVARIATE, "a covariate") | {"levels": tuple(each["levels"])})
        for each in content.get("covariates", ())
    )
    scales, effects = (
        arrays.get(f"{prefix}/covariate_scales"),
        sum(len(each.effects) for each in covariates),
    )
    for array in (columns.get("covariates"), scales):
        if effects != (0 if array is None else array.shape[-1]):
            raise StorageError(
                f"the answers are said to have {effects} effects of covariates; the file is damaged"
            )
    return PreferenceData(
        comparisons=Comparisons(
            **columns,
            raters=raters,
            groups=groups,
            lists=lists,
            strengths=content["strengths"],
            covariate_scales=scales,
            covariates_are=covariates,
        ),
        labels=items,
        attribute_names=tuple(content["attribute_names"]),
        _graphs=graphs,
        _links=links,
        answered=content["answered"],
        notes=tuple(content["notes"]),
        **attributes,
    )


def decode_values(arrays: Arrays, shape: Sequence[int], prefix: str = "") -> RelationValues:
    """The labels of pairs: all of them, or those in some rows and columns."""
    p, m = shape
    edges = None
    if f"{prefix}rows" in arrays:
        edges = (positions(arrays, f"{prefix}rows", p), positions(arrays, f"{prefix}columns", m))
    return RelationValues((p, m), arrays[f"{prefix}values"], edges)
