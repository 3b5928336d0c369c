"""The problem of a relation in files: labels, features and options of its nodes, and the program that their kernels come from."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse

from relpref.data import PreferenceData, RelationData, RelationValues
from relpref.data.relation_data import Symmetry
from relpref.errors import StorageError
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.domain import Domain, NodeKernel
from relpref.infer.exact.solve import ClosedScores, EdgeScores, RelationProblem, Scores, Solver
from relpref.infer.exact.structure import ProgramKernel
from relpref.posterior.codec import (
    DATA,
    Stored,
    checked,
    decode,
    decode_data,
    decode_labels,
    decode_values,
    encode,
    encode_data,
    encode_labels,
    sparse_arrays,
    sparse_matrix,
)
from relpref.posterior.origin import Origin

_OPTIONS = {"loss": Loss, "symmetry": Symmetry, "pair_kernel": str, "solver": Solver}
_DOMAIN = {
    "labels": str,
    "name": str,
    "feature_names": list[str] | None,
    "kernel": Any,
    "sparse": list[int] | None,
    "standardize?": bool,
}
_PROGRAM = {
    "origin": str,
    "field": str,
    "nodes": DATA,
    "objects": dict[str, Any] | None,
    "symmetry": Symmetry,
    "shift": float,
}
PROBLEM = {
    "shape": list[int],
    "options": _OPTIONS,
    "regularization": float,
    "scale": float,
    "nodes": _DOMAIN,
    "objects": dict[str, Any] | None,
    "program": dict[str, Any] | None,
    "stopped?": bool,
}


def encode_problem(problem: RelationProblem, solution: Scores) -> Stored:
    """A problem and its solution; closed forms are solved again when they are asked."""
    values = problem.values
    arrays: dict[str, Any] = {"values": values.values}
    if values.edges is not None:
        arrays["rows"], arrays["columns"] = values.edges
    content: dict[str, Any] = {
        "shape": list(values.shape),
        "options": {name: getattr(problem, name) for name in _OPTIONS},
        "regularization": solution.regularization,
        "scale": solution.scale,
        "nodes": _encode_domain(problem.nodes, "nodes", arrays),
        "objects": None,
        "program": _encode_program(problem.nodes, arrays),
    }
    if problem.objects is not problem.nodes:
        content["objects"] = _encode_domain(problem.objects, "objects", arrays)
    if solved := solution.arrays():
        content["stopped"] = solution.stopped
    return arrays | solved, content


def decode_problem(
    arrays: Mapping[str, Any],
    content: Mapping[str, Any],
    shift: float,
    hyperparameters: dict[str, Any],
    own: Any,
) -> tuple[RelationProblem, Scores]:
    """The inverse of `encode_problem`; ``own`` is the caller's program."""
    values = decode_values(arrays, content["shape"])
    kernel = _decode_program(arrays, content["program"], values, hyperparameters, own)
    nodes = _decode_domain(arrays, content["nodes"], "nodes", kernel)
    objects = nodes
    if content["objects"] is not None:
        objects = _decode_domain(arrays, content["objects"], "objects", kernel)
    problem = RelationProblem(nodes, objects, values, **content["options"], shift=shift)
    scales = content["regularization"], content["scale"]
    if "dual" in arrays:
        return problem, EdgeScores(problem, *scales, arrays["dual"], content["stopped"])
    return problem, ClosedScores(problem, *scales)


def _encode_domain(domain: Domain, side: str, arrays: dict[str, Any]) -> dict[str, Any]:
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
    if issparse(domain.features):
        content["sparse"] = list(domain.features.shape)
        arrays |= sparse_arrays(domain.features.astype(np.float64), f"{side}_")
    else:
        arrays[f"{side}_features"] = np.asarray(domain.features, dtype=np.float64)
    return content


def _decode_domain(
    arrays: Mapping[str, Any], content: Any, side: Literal["nodes", "objects"], from_program: Any
) -> Domain:
    checked(content, _DOMAIN, f"the {side}")
    labels, name = decode_labels(content["labels"]), content["name"]
    names = content["feature_names"] and tuple(content["feature_names"])
    if content["kernel"] is None:
        return Domain(labels, None, from_program(side), name, names)
    if content["sparse"] is None:
        features = arrays[f"{side}_features"]
    else:
        rows, columns = content["sparse"]
        features = sparse_matrix(arrays, f"{side}_", (rows, columns))
    kernel = checked(decode(content["kernel"]), NodeKernel, f"the kernel of the {side}")
    standardize = content.get("standardize", False)  # earlier files have the features as they were given
    return Domain(labels, features, kernel, name, names, standardize)


def _encode_program(domain: Domain, arrays: dict[str, Any]) -> dict[str, Any] | None:
    """The program and its data, where a later session can call it: for nodes that come later."""
    kernel: Any = domain.kernel
    if domain.features is not None or kernel.data is None:
        return None
    origin, data = Origin(kernel.program, *kernel.arguments).encoded(), kernel.data
    if origin is None:
        return None
    content = {"origin": origin, "field": kernel.field, "symmetry": data.symmetry, "shift": data.shift}
    for side in ("nodes", "objects"):
        entities: PreferenceData | None = getattr(data, side)
        more, content[side] = ({}, None) if entities is None else encode_data(entities, side)
        arrays |= more
    if data.distinct is not None:
        arrays["distinct"] = data.distinct
    return content


def _decode_program(
    arrays: Mapping[str, Any], content: Any, values: RelationValues, hyperparameters: dict[str, Any], own: Any
) -> Any:
    """From a side to its kernel, for nodes that come later where the program is known."""
    data = origin = None
    if content is not None:
        checked(content, _PROGRAM, "the program")
        nodes, objects = (
            content[side] and decode_data(arrays, content[side], side) for side in ("nodes", "objects")
        )
        distinct = arrays.get("distinct")
        data = RelationData(nodes, objects, values, content["symmetry"], content["shift"], distinct)
        origin = Origin.decoded(content["origin"], data, program=own)
    field = "" if content is None else content["field"]
    program: Any = origin and origin.program
    arguments = (origin.args, origin.kwargs) if origin else ((), {})
    data = data if origin else None

    def kernel(side: Literal["nodes", "objects"]) -> ProgramKernel:
        return ProgramKernel(program, arguments, data, hyperparameters, field, side, arrays[f"{side}_kernel"])

    return kernel
