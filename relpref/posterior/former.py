"""Files of schemas 3 and 4, in the form of files of today."""

from collections.abc import Callable, Iterable, Mapping
from json import loads
from typing import Any

from relpref.data import ScaleReference
from relpref.data.relation import OPTIONS
from relpref.posterior.codec import Arrays

Old = Mapping[str, Any]

_ENDS = ("source", "target", "weight")
_SIDES = ("nodes", "objects")
# The kernel of attributes that was the default before schema 4.
_FORMER_KERNEL = {"object": "kernel:SquaredExponential", "fields": {"shared_lengthscale": False}}


def upgraded(old: Old, arrays: Arrays, schema: int) -> dict[str, Any]:
    """Content of today's schema, with the arrays in their places.

    `relpref.posterior.codec.decode` checks it.
    """
    names = old["hyperparameters"]
    values = _named(arrays, "hyperparameters/", names)
    content = {"info": old["info"], "key": arrays["key"], "hyperparameters": values}
    if old.get("kind") == "relation":
        return content | _relation(old, arrays)
    parts = {
        site: _record(
            "Parts",
            means=_named(arrays, f"parts/mean_{row}_", listed, range(len(listed))),
            covariances=_named(arrays, f"parts/covariance_{row}_", listed, range(len(listed))),
        )
        for row, (site, listed) in enumerate(old["parts"].items())
    }
    slices = {site: {"slice": ends} for site, ends in old["slices"].items()}
    content |= {
        "kind": "classes" if old.get("kind") else "utilities" if old["data"] else "program",
        "slices": {"mapping": slices},
        "parts": {"mapping": parts},
        "log_evidence": old["log_evidence"],
        "sites": _named(arrays, "sites/", old["sites"]),
        "hyperparameter_draws": _named(arrays, "hyperparameter_draws/", names),
        "prior_log_weights": arrays.get("prior_log_weights"),
        "data": old["data"] and _data(old["data"], arrays, "data"),
        "origin": old["origin"] and _origin(old["origin"], names, arrays, schema),
    }
    return content | {name: old[name] for name in ("likelihood",) if name in old}


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"object": f"record:{name}", "fields": fields}


def _named(
    arrays: Arrays, prefix: str, names: Iterable[str], ends: Iterable[Any] | None = None
) -> dict[str, Any]:
    """Arrays by name, of those that the file has; their paths end with ``ends`` or the names."""
    paths = zip(names, names if ends is None else ends, strict=True)
    named = {name: arrays.get(f"{prefix}{end}") for name, end in paths}
    return {"mapping": {name: array for name, array in named.items() if array is not None}}


def _labels(stored: str) -> dict[str, Any]:
    return {"tuple": loads(stored)}


def _origin(text: str, names: Any, arrays: Arrays, schema: int) -> dict[str, Any]:
    origin: dict[str, Any] = loads(text)
    options = origin["kwargs"]["mapping"]
    by_default = "attributes_amplitude" in names and not options.get("attribute_kernel")
    if (
        schema == 3
        and by_default
        and origin["program"] in ("program:xpgp", "program:preference_gp")
    ):
        options["attribute_kernel"] = _FORMER_KERNEL
    return {**origin, "kwargs": _argument(origin["kwargs"], arrays)}


def _argument(stored: Any, arrays: Arrays) -> Any:
    """Arguments of a program, with the arrays and data that were kept beside them."""
    if not isinstance(stored, dict):
        return stored
    if "kept" not in stored:
        return {name: _argument(part, arrays) for name, part in stored.items()}
    kept = stored["kept"]
    return arrays[kept["array"]] if "array" in kept else _data(kept, arrays, kept["prefix"])


def _values(shape: Any, array: Callable[[str], Any]) -> dict[str, Any]:
    edges = {"tuple": [array("rows"), array("columns")]} if array("rows") is not None else None
    return _record("RelationValues", shape={"tuple": shape}, values=array("values"), edges=edges)


def _data(old: Old, arrays: Arrays, prefix: str) -> dict[str, Any]:
    def array(name: str) -> Any:
        return arrays.get(f"{prefix}/{name}")

    def parts(names: Iterable[str]) -> dict[str, Any]:
        return {name: old[name] and _data(old[name], arrays, f"{prefix}_{name}") for name in names}

    if "items" in old:
        names = ("positions", "label", "features", "residual")
        labels = {name: _labels(old[name]) for name in ("rankers", "classes")}
        return _record("Rankings", **parts(["items"]), **labels, **{n: array(n) for n in names})
    if "nodes" in old:
        options = {name: old[name] for name in ("symmetry", "shift", "observed")}
        values = _values(old["shape"], array)
        distinct = array("distinct")
        return _record("RelationData", **parts(_SIDES), values=values, distinct=distinct, **options)
    answers = {name: array(name) for name in old["columns"]}
    answers |= {name: _labels(old.get(name, "[]")) for name in ("raters", "groups", "lists")}
    if "tie" in answers:
        answers["tie"] = answers["tie"].astype(bool)
    if "list" in answers and "list_label" not in answers:  # labels of lists were not kept
        answers["lists"] = {"tuple": list(range(int(answers["list"].max()) + 1))}
    covariates = [
        _record("Covariate", **covariate | {"levels": {"tuple": covariate["levels"]}})
        for covariate in old.get("covariates", ())
    ]
    graphs, links = {}, {}
    for row, name in enumerate(old["relations"]):
        reference = {n: array(f"relation_{row}_reference_{n}") for n in ScaleReference._fields}
        graphs[name] = _record(
            "Graph",
            num_nodes=len(loads(old["entities"])),
            counts_cliques=name in old["cliques"],
            frozen_reference=None
            if reference["eigenvalues"] is None
            else _record("ScaleReference", **reference),
            **{end: array(f"relation_{row}_{end}") for end in _ENDS},
        )
    for row, link in enumerate(old["links"]):
        links[link["name"]] = _record(
            "EdgeTable",
            relation=_record("Relation", table=None, **{name: link[name] for name in OPTIONS}),
            targets=_labels(link["targets"]),
            **{end: array(f"links_{row}_{end}") for end in _ENDS},
        )
    return _record(
        "PreferenceData",
        comparisons=_record(
            "Comparisons",
            **answers,
            strengths=old["strengths"],
            covariate_scales=array("covariate_scales"),
            covariates_are={"tuple": covariates},
        ),
        labels=_labels(old["entities"]),
        answered=old["answered"],
        _graphs={"mapping": graphs},
        _links={"mapping": links},
        **{name: {"tuple": old[name]} for name in ("attribute_names", "notes")},
        **{name: array(name) for name in ("attributes", "attribute_center", "attribute_scale")},
    )


def _relation(old: Old, arrays: Arrays) -> dict[str, Any]:
    values, program = _values(old["shape"], arrays.get), old["program"]
    problem = {**old["options"], "shift": old["plain"]["shift"], "values": values}
    scores = {name: old[name] for name in ("regularization", "scale", "stopped") if name in old}
    if "dual" in arrays:
        scores["dual"] = arrays["dual"]
    if program is not None:
        sides = {side: program[side] and _data(program[side], arrays, side) for side in _SIDES}
        options = {name: program[name] for name in ("symmetry", "shift")}
        program = {
            "origin": _origin(program["origin"], old["hyperparameters"], arrays, 4),
            "field": program["field"],
            "data": {"mapping": {**sides, **options, "distinct": arrays.get("distinct")}},
        }
    return {
        "kind": "relation",
        "log_evidence": old["plain"]["log_evidence"],
        "problem": {"mapping": problem},
        "solution": {"mapping": scores},
        **{side: old[side] and _domain(old[side], arrays, f"{side}_") for side in _SIDES},
        "program": program,
    }


def _domain(old: Old, arrays: Arrays, prefix: str) -> dict[str, Any]:
    fields = {"standardize": False} | {
        n: old[n] for n in ("name", "kernel", "standardize") if n in old
    }
    if old["kernel"] is None:  # that of a program, whose matrix is in the file
        fields |= {"features": None, "kernel": arrays[f"{prefix}kernel"]}
    elif old["sparse"] is None:
        fields["features"] = arrays[f"{prefix}features"]
    else:
        parts = {name: arrays[f"{prefix}{name}"] for name in ("data", "indices", "indptr")}
        fields["features"] = {"sparse": {"shape": old["sparse"], **parts}}
    names = old["feature_names"] and {"tuple": old["feature_names"]}
    return {"mapping": fields | {"labels": _labels(old["labels"]), "feature_names": names}}
