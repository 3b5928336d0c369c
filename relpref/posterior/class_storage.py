"""Posteriors of classifiers in netCDF files: with their examples, and with the matrices and landmarks of their kernels."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from relpref.data import Rankings, RelationData, RelationValues
from relpref.posterior.classes import ClassPosterior, Examples
from relpref.posterior.storage import (
    StoredData,
    checked,
    conform,
    decode_labels,
    decode_origin,
    encode_labels,
    encode_origin,
    pack_data,
    positions,
    unpack_data,
)

_GIVEN = ("label", "features", "residual")


class _Rankings(TypedDict):
    """Of `Rankings`, what JSON holds."""

    prefix: NotRequired[str]
    items: StoredData
    rankers: str
    classes: str


class _Relation(TypedDict):
    """Of `RelationData`, what JSON holds."""

    prefix: NotRequired[str]
    nodes: StoredData
    objects: StoredData | None
    shape: list[int]
    symmetry: Literal["none", "symmetric", "reciprocal"]
    shift: float
    observed: bool


def pack_class(posterior: ClassPosterior) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a classifier's posterior has besides any posterior: arrays by name, and what JSON can hold."""
    arrays: dict[str, Any] = {}

    def keep(value: Any) -> Any:
        """Store what JSON cannot hold, and return how to find it again."""
        if isinstance(value, Rankings | RelationData):
            prefix = f"kept{len(arrays)}"
            more, content = pack_examples(value, prefix)
            arrays.update(more)
            return {"prefix": prefix, **content}
        if hasattr(value, "__array__") and np.asarray(value).dtype != object:
            name = f"kept{len(arrays)}/array"
            arrays[name] = np.asarray(value)
            return {"array": name}
        return None

    more, content = pack_examples(posterior.data, "data")
    stored = encode_origin(posterior.origin, keep)
    return {**arrays, **more}, {"kind": "class", "data": content, "origin": stored}


def unpack_class(
    arrays: Mapping[str, Any], content: dict[str, Any], common: dict[str, Any], program: Any
) -> ClassPosterior:
    """From what `pack_class` made."""

    def restore(kept: Any) -> Any:
        if conform(kept, dict[str, str]):
            return arrays[kept["array"]]
        return unpack_examples(arrays, kept, kept["prefix"])

    data = unpack_examples(arrays, content["data"], "data")
    origin = decode_origin(content["origin"], data, restore, program)
    return ClassPosterior(**common, data=data, origin=origin)


def pack_examples(data: Examples, prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by name, in groups that begin with the prefix, and what JSON can hold."""
    if isinstance(data, Rankings):
        arrays, items = pack_data(data.items, f"{prefix}_items")
        arrays[f"{prefix}/positions"] = data.positions
        for name in _GIVEN:
            if getattr(data, name) is not None:
                arrays[f"{prefix}/{name}"] = getattr(data, name)
        return arrays, {
            "items": items,
            "rankers": encode_labels(data.rankers),
            "classes": encode_labels(data.classes),
        }
    arrays, nodes = pack_data(data.nodes, f"{prefix}_nodes")
    objects = None
    if data.objects is not None:
        more, objects = pack_data(data.objects, f"{prefix}_objects")
        arrays |= more
    arrays[f"{prefix}/values"] = data.values.values
    if data.values.edges is not None:
        arrays[f"{prefix}/rows"], arrays[f"{prefix}/columns"] = data.values.edges
    if data.distinct is not None:
        arrays[f"{prefix}/distinct"] = data.distinct
    return arrays, {
        "nodes": nodes,
        "objects": objects,
        "shape": list(data.values.shape),
        "symmetry": data.symmetry,
        "shift": data.shift,
        "observed": data.observed,
    }


def unpack_examples(arrays: Mapping[str, Any], content: dict[str, Any], prefix: str) -> Examples:
    """The inverse of `pack_examples`."""
    checked(content, _Rankings | _Relation, "the examples")
    if "items" in content:
        given: dict[str, Any] = {name: arrays.get(f"{prefix}/{name}") for name in _GIVEN}
        for name in ("rankers", "classes"):
            given[name] = decode_labels(content[name])
        items = unpack_data(arrays, content["items"], f"{prefix}_items")
        return Rankings(items=items, positions=arrays[f"{prefix}/positions"], **given)
    objects = None
    if content["objects"] is not None:
        objects = unpack_data(arrays, content["objects"], f"{prefix}_objects")
    p, m = content["shape"]
    edges = None
    if f"{prefix}/rows" in arrays:
        edges = (positions(arrays, f"{prefix}/rows", p), positions(arrays, f"{prefix}/columns", m))
    return RelationData(
        nodes=unpack_data(arrays, content["nodes"], f"{prefix}_nodes"),
        objects=objects,
        values=RelationValues((p, m), arrays[f"{prefix}/values"], edges),
        symmetry=content["symmetry"],
        shift=content["shift"],
        distinct=arrays.get(f"{prefix}/distinct"),
        observed=content["observed"],
    )
