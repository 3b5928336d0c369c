"""Files of schemas 3 and 4, rearranged as files of today."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from relpref.data import ScaleReference
from relpref.data.links import OPTIONS
from relpref.posterior.codec import Arrays, Stored, array_name, dump

_ENDS = ("source", "target", "weight")
# The kernel of attributes that was the default before schema 4.
_FORMER_KERNEL = {"object": "kernel:SquaredExponential", "fields": {"shared_lengthscale": False}}


def upgraded(arrays: Arrays, old: Mapping[str, Any], schema: int) -> Stored:
    """Arrays and content of today's schema; `relpref.posterior.codec.decode` checks them."""
    content = _content(old, arrays, schema)
    program = content.get("program")
    origin = program["origin"] if program else content.get("origin")
    renamed: dict[str, Any] = {}
    parts = {**content, "data": program["data"]} if program else dict(content)
    if origin:
        parts["origin"] = origin["kwargs"]
    used = {name for path, part in parts.items() for name in _rename(part, path, arrays, renamed)}
    if origin:
        (program or content)["origin"] = dump(origin)
    return {name: arrays[name] for name in arrays if name not in used} | renamed, content


def _rename(part: Any, path: str, arrays: Arrays, renamed: dict[str, Any]) -> Iterator[str]:
    """Give the arrays of a part the names that `encode` gives them; yields the former names."""
    if not isinstance(part, dict):
        return
    if "array" in part:
        former = part["array"]
        yield former
        array = arrays[former]
        renamed[array_name(path)] = array
        part["array"] = part.pop("dtype", array.dtype.name)
        return
    for tag in ("mapping", "fields", "tuple", "sparse"):
        inside = part.get(tag, {})
        for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            yield from _rename(value, f"{path}/{key}", arrays, renamed)


def _content(old: Mapping[str, Any], arrays: Arrays, schema: int) -> dict[str, Any]:
    """Content whose arrays have their former names."""
    content = {
        "info": old["info"],
        "hyperparameters": _mapping(f"hyperparameters/{n}" for n in old["hyperparameters"]),
        "key": _array("key"),
    }
    if old.get("kind") == "relation":
        return content | _relation(old, arrays)
    has_data, parts = old["data"] is not None, {}
    for row, (site, names) in enumerate(old["parts"].items()):
        means, covariances = (
            {name: _optional(arrays, f"parts/{kind}_{row}_{at}") for at, name in enumerate(names)}
            for kind in ("mean", "covariance")
        )
        covariances = {name: value for name, value in covariances.items() if value}
        fields = {"means": {"mapping": means}, "covariances": {"mapping": covariances}}
        parts[site] = _record("Parts", **fields)
    draws = [f"hyperparameter_draws/{name}" for name in old["hyperparameters"]]
    content |= {
        "kind": "classes" if old.get("kind") else "utilities" if has_data else "program",
        "slices": {"mapping": {name: {"slice": ends} for name, ends in old["slices"].items()}},
        "parts": {"mapping": parts},
        "log_evidence": old["log_evidence"],
        "sites": _mapping(f"sites/{name}" for name in old["sites"]),
        "hyperparameter_draws": _mapping(path for path in draws if path in arrays),
        "prior_log_weights": _optional(arrays, "prior_log_weights"),
        "data": _data(old["data"], arrays, "data") if has_data else None,
        "origin": old["origin"] and _origin(old["origin"], old["hyperparameters"], arrays, schema),
    }
    return content | {name: old[name] for name in ("likelihood",) if name in old}


def _array(path: str) -> dict[str, Any]:
    return {"array": path}


def _optional(arrays: Arrays, path: str) -> dict[str, Any] | None:
    return _array(path) if path in arrays else None


def _mapping(paths: Any) -> dict[str, Any]:
    """Mapping of arrays by the last part of their paths."""
    return {"mapping": {path.partition("/")[2]: _array(path) for path in paths}}


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"object": f"record:{name}", "fields": fields}


def _labels(stored: str) -> dict[str, Any]:
    return {"tuple": json.loads(stored)}


def _origin(text: str, hyperparameters: Any, arrays: Arrays, schema: int) -> dict[str, Any]:
    origin = json.loads(text)
    options = origin["kwargs"]["mapping"]
    _, registered, program = origin["program"].rpartition(":")
    by_default = "attributes_amplitude" in hyperparameters and not options.get("attribute_kernel")
    if schema == 3 and registered and program in ("xpgp", "preference_gp") and by_default:
        options["attribute_kernel"] = _FORMER_KERNEL
    return {**origin, "kwargs": _argument(origin["kwargs"], arrays)}


def _argument(stored: Any, arrays: Arrays) -> Any:
    """Arguments of a program; arrays and data among them were marked as kept."""
    if not isinstance(stored, dict):
        return stored
    if "kept" not in stored:
        return {name: _argument(part, arrays) for name, part in stored.items()}
    kept = stored["kept"]
    return _array(kept["array"]) if "array" in kept else _data(kept, arrays, kept["prefix"])


def _values(shape: Any, arrays: Arrays, prefix: str = "") -> dict[str, Any]:
    edges = [_array(f"{prefix}{end}") for end in ("rows", "columns")]
    return _record(
        "RelationValues",
        shape={"tuple": shape},
        values=_array(f"{prefix}values"),
        edges={"tuple": edges} if f"{prefix}rows" in arrays else None,
    )


def _data(old: Mapping[str, Any], arrays: Arrays, prefix: str) -> dict[str, Any]:
    def array(name: str) -> dict[str, Any] | None:
        return _optional(arrays, f"{prefix}/{name}")

    if "items" in old:
        return _record(
            "Rankings",
            items=_data(old["items"], arrays, f"{prefix}_items"),
            **{name: _labels(old[name]) for name in ("rankers", "classes")},
            **{name: array(name) for name in ("positions", "label", "features", "residual")},
        )
    if "nodes" in old:
        sides = ("nodes", "objects")
        return _record(
            "RelationData",
            values=_values(old["shape"], arrays, f"{prefix}/"),
            distinct=array("distinct"),
            **{side: old[side] and _data(old[side], arrays, f"{prefix}_{side}") for side in sides},
            **{name: old[name] for name in ("symmetry", "shift", "observed")},
        )
    columns = {name: array(name) for name in old["columns"]}
    if "tie" in columns:
        columns["tie"] = {"array": f"{prefix}/tie", "dtype": "bool"}
    lists = _labels(old.get("lists", "[]"))
    if "list" in columns and "list_label" not in columns:  # labels of lists were not kept
        columns["list_label"] = array("list")
        lists = {"tuple": list(range(int(arrays[f"{prefix}/list"].max()) + 1))}
    covariates = [
        _record("Covariate", **each | {"levels": {"tuple": each["levels"]}})
        for each in old.get("covariates", ())
    ]
    size, graphs, links = len(json.loads(old["entities"])), {}, {}
    for row, name in enumerate(old["relations"]):
        reference = {n: array(f"relation_{row}_reference_{n}") for n in ScaleReference._fields}
        graphs[name] = _record(
            "Graph",
            num_nodes=size,
            counts_cliques=name in old["cliques"],
            frozen_reference=_record("ScaleReference", **reference)
            if any(reference.values())
            else None,
            **{end: array(f"relation_{row}_{end}") for end in _ENDS},
        )
    for row, link in enumerate(old["links"]):
        links[link["name"]] = _record(
            "Links",
            relation=_record("Relation", table=None, **{name: link[name] for name in OPTIONS}),
            targets=_labels(link["targets"]),
            **{end: array(f"links_{row}_{end}") for end in _ENDS},
        )
    return _record(
        "PreferenceData",
        comparisons=_record(
            "Comparisons",
            **columns,
            raters=_labels(old["raters"]),
            groups=_labels(old.get("groups", "[]")),
            lists=lists,
            strengths=old["strengths"],
            covariate_scales=array("covariate_scales"),
            covariates_are={"tuple": covariates},
        ),
        labels=_labels(old["entities"]),
        attribute_names={"tuple": old["attribute_names"]},
        notes={"tuple": old["notes"]},
        answered=old["answered"],
        _graphs={"mapping": graphs},
        _links={"mapping": links},
        **{name: array(name) for name in ("attributes", "attribute_center", "attribute_scale")},
    )


def _relation(old: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    values = _values(old["shape"], arrays)
    problem = {**old["options"], "shift": old["plain"]["shift"], "values": values}
    solution = {name: old[name] for name in ("regularization", "scale")}
    if "dual" in arrays:
        solution |= {"dual": _array("dual"), "stopped": old["stopped"]}
    program = old["program"]
    if program is not None:
        sides = ("nodes", "objects")
        data = {
            "distinct": _optional(arrays, "distinct"),
            **{side: program[side] and _data(program[side], arrays, side) for side in sides},
            **{name: program[name] for name in ("symmetry", "shift")},
        }
        data = {"mapping": data}
        origin = _origin(program["origin"], old["hyperparameters"], arrays, schema=4)
        program = {"origin": origin, "field": program["field"], "data": data}
    return {
        "kind": "relation",
        "log_evidence": old["plain"]["log_evidence"],
        "problem": {"mapping": problem},
        "solution": {"mapping": solution},
        "nodes": _domain(old["nodes"], "nodes"),
        "objects": old["objects"] and _domain(old["objects"], "objects"),
        "program": program,
    }


def _domain(old: Mapping[str, Any], side: str) -> dict[str, Any]:
    features: dict[str, Any] | None = _array(f"{side}_features")
    if old["kernel"] is None:  # its matrix is in the file
        features = None
    elif old["sparse"]:
        parts = {name: _array(f"{side}_{name}") for name in ("data", "indices", "indptr")}
        features = {"sparse": {"shape": old["sparse"], **parts}}
    names, standardize = old["feature_names"], old.get("standardize", False)
    fields = {
        "labels": _labels(old["labels"]),
        "features": features,
        "kernel": old["kernel"] or _array(f"{side}_kernel"),
        "name": old["name"],
        "feature_names": names and {"tuple": names},
        "standardize": standardize,
    }
    return {"mapping": fields}
