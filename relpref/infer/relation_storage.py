"""Posteriors of relations in netCDF files: labels, features and options; closed forms are solved again when they are asked."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from scipy import sparse

from relpref.data import PreferenceData, RelationData, RelationValues
from relpref.data.relation_data import Symmetry
from relpref.errors import StorageError
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.domain import Domain, NodeKernel
from relpref.infer.exact.solve import ClosedScores, EdgeScores, RelationProblem, Scores, Solver
from relpref.infer.exact.structure import ProgramKernel
from relpref.infer.relation_posterior import RelationPosterior
from relpref.posterior.base import Origin
from relpref.posterior.storage import (
    StoredData,
    checked,
    checked_info,
    decode,
    decode_labels,
    decode_origin,
    encode,
    encode_labels,
    encode_origin,
    pack_data,
    positions,
    sparse_rows,
    unpack_data,
)

_OPTIONS = ("loss", "symmetry", "pair_kernel", "solver")
_PLAIN = ("noise", "shift", "log_evidence")
_Side = Literal["nodes", "objects"]


class _Options(TypedDict):
    """Of `RelationProblem`."""

    loss: Loss
    symmetry: Symmetry
    pair_kernel: str
    solver: Solver


class _Plain(TypedDict):
    """Of `RelationPosterior`."""

    noise: float
    shift: float
    log_evidence: float | None


class _Domain(TypedDict):
    """Of `Domain`."""

    labels: str
    name: str
    feature_names: list[str] | None
    kernel: Any
    sparse: list[int] | None
    standardize: NotRequired[bool]


class _Program(TypedDict):
    """Of `ProgramKernel`."""

    origin: str
    field: str
    nodes: StoredData
    objects: StoredData | None
    symmetry: Symmetry
    shift: float


class _Stored(TypedDict):
    """What JSON holds."""

    kind: str
    shape: list[int]
    options: _Options
    plain: _Plain
    regularization: float
    scale: float
    info: dict[str, Any]
    hyperparameters: list[str]
    nodes: _Domain
    objects: _Domain | None
    program: _Program | None
    stopped: NotRequired[bool]


def pack(posterior: RelationPosterior) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by name, and what JSON can hold."""
    problem, solution = posterior.problem, posterior.solution
    arrays: dict[str, Any] = {"key": posterior.key, "values": problem.values.values}
    if problem.values.edges is not None:
        arrays["rows"], arrays["columns"] = problem.values.edges
    arrays |= {f"hyperparameters/{name}": np.asarray(v) for name, v in posterior.hyperparameters.items()}
    more = {"stopped": solution.stopped} if solution.arrays() else {}
    arrays |= solution.arrays()
    content: dict[str, Any] = {
        "kind": "relation",
        "shape": list(problem.values.shape),
        "options": {name: getattr(problem, name) for name in _OPTIONS},
        "plain": {name: getattr(posterior, name) for name in _PLAIN},
        "regularization": solution.regularization,
        "scale": solution.scale,
        "info": dict(posterior.info),
        "hyperparameters": list(posterior.hyperparameters),
        "nodes": _pack_domain(problem.nodes, "nodes", arrays),
        "objects": None,
        "program": _pack_program(problem.nodes, arrays),
        **more,
    }
    if problem.objects is not problem.nodes:
        content["objects"] = _pack_domain(problem.objects, "objects", arrays)
    return arrays, content


def unpack(arrays: Mapping[str, Any], content: dict[str, Any], own: Any = None) -> RelationPosterior:
    """The inverse of `pack`; ``own`` is the caller's program."""
    checked(content, _Stored, "the posterior")
    checked_info(content["info"])
    p, m = content["shape"]
    edges = None
    if "rows" in arrays:
        edges = (positions(arrays, "rows", p), positions(arrays, "columns", m))
    values = RelationValues((p, m), arrays["values"], edges)
    program = content["program"]
    found = {name: arrays[f"hyperparameters/{name}"] for name in content["hyperparameters"]}
    hyperparameters = {name: float(v) if v.ndim == 0 else v for name, v in found.items()}
    origin = None if program is None else _unpack_program(arrays, program, values, own)
    nodes = _unpack_domain(arrays, content["nodes"], "nodes", origin, hyperparameters, program)
    objects = nodes
    if content["objects"] is not None:
        objects = _unpack_domain(arrays, content["objects"], "objects", origin, hyperparameters, program)
    plain = content["plain"]
    problem = RelationProblem(nodes, objects, values, **content["options"], shift=plain["shift"])
    regularization, scale = content["regularization"], content["scale"]
    solution: Scores
    if "dual" in arrays:
        solution = EdgeScores(problem, regularization, scale, arrays["dual"], content["stopped"])
    else:
        solution = ClosedScores(problem, regularization, scale)
    return RelationPosterior(
        problem=problem,
        solution=solution,
        hyperparameters=hyperparameters,
        info=content["info"],
        key=arrays["key"],
        log_evidence=plain["log_evidence"],
    )


def _pack_domain(domain: Domain, side: str, arrays: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {
        "labels": encode_labels(domain.labels),
        "name": domain.name,
        "feature_names": domain.feature_names and list(domain.feature_names),
        "kernel": None,
        "sparse": None,
        "standardize": domain.standardize,
    }
    if domain.features is None:  # the kernel is that of a program
        arrays[f"{side}_kernel"] = domain.gram
        return content
    try:
        content["kernel"] = encode(domain.kernel)
    except TypeError as error:
        raise StorageError(
            f"the kernel of the {side} cannot be stored ({error}); kernels by name and those of relpref.kernels on "
            "attributes can: or give the kernel matrix with kernel='precomputed'"
        ) from None
    features = domain.features
    if sparse.issparse(features):
        rows = sparse.csr_array(features)
        content["sparse"] = list(rows.shape)
        arrays |= {
            f"{side}_data": rows.data.astype(np.float64),
            f"{side}_indices": rows.indices,
            f"{side}_indptr": rows.indptr,
        }
    else:
        arrays[f"{side}_features"] = np.asarray(features, dtype=np.float64)
    return content


def _unpack_domain(
    arrays: Mapping[str, Any],
    content: dict[str, Any],
    side: _Side,
    origin: tuple[Origin, RelationData] | None,
    hyperparameters: dict[str, Any],
    program: dict[str, Any] | None,
) -> Domain:
    labels = decode_labels(content["labels"])
    names = content["feature_names"] and tuple(content["feature_names"])
    if content["kernel"] is None:
        matrix = arrays[f"{side}_kernel"]
        source: Any = None
        arguments: tuple[Any, Any] = ((), {})
        data = None
        if origin is not None:
            source, arguments, data = origin[0].program, (origin[0].args, origin[0].kwargs), origin[1]
        field = "" if program is None else program["field"]
        kernel = ProgramKernel(source, arguments, data, hyperparameters, field, side, matrix)
        return Domain(labels, None, kernel, content["name"], names)
    if content["sparse"] is None:
        features = arrays[f"{side}_features"]
    else:
        parts = [arrays[f"{side}_{name}"] for name in ("data", "indices", "indptr")]
        rows, columns = content["sparse"]
        features = sparse_rows(parts, (rows, columns))
    kernel = checked(decode(content["kernel"]), NodeKernel, f"the kernel of the {side}")
    standardize = content.get("standardize", False)  # earlier files have the features as they were given
    return Domain(labels, features, kernel, content["name"], names, standardize)


def _pack_program(domain: Domain, arrays: dict[str, Any]) -> dict[str, Any] | None:
    """The program and its data, where a later session can call it: for nodes that come later."""
    kernel: Any = domain.kernel
    if domain.features is not None or kernel.data is None:
        return None
    origin = encode_origin(Origin(kernel.program, *kernel.arguments))
    if origin is None:
        return None
    data = kernel.data
    more, nodes = pack_data(data.nodes, "nodes")
    arrays |= more
    objects = None
    if data.objects is not None:
        more, objects = pack_data(data.objects, "objects")
        arrays |= more
    if data.distinct is not None:
        arrays["distinct"] = data.distinct
    return {
        "origin": origin,
        "field": kernel.field,
        "nodes": nodes,
        "objects": objects,
        "symmetry": data.symmetry,
        "shift": data.shift,
    }


def _unpack_program(
    arrays: Mapping[str, Any], content: dict[str, Any], values: RelationValues, program: Any
) -> tuple[Origin, RelationData] | None:
    objects: PreferenceData | None = None
    if content["objects"] is not None:
        objects = unpack_data(arrays, content["objects"], "objects")
    data = RelationData(
        unpack_data(arrays, content["nodes"], "nodes"),
        objects,
        values,
        content["symmetry"],
        content["shift"],
        arrays.get("distinct"),
    )
    origin = decode_origin(content["origin"], data, program=program)
    return None if origin is None else (origin, data)
