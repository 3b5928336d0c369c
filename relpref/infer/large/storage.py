"""What a file keeps of a belief that has no covariance matrix: its dual weights; the prior is made again from program and data."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import scipy.sparse

from relpref.errors import StorageError
from relpref.infer.encoding import positions, sparse_rows
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.covariance import Conditioned
from relpref.infer.large.many import low_rank_parts
from relpref.infer.large.problem import LargeProblem
from relpref.infer.large.quick import Changed
from relpref.infer.large.sparse import SparsePosterior
from relpref.infer.posterior import Origin

_DUAL, _SPARSE = "dual", "sparse"  # groups of a file
_DUAL_ARRAYS = ("weights", "touched", "data", "indices", "indptr")


def pack(belief: ImplicitBelief) -> dict[str, Any]:
    """Arrays by name.

    Raises
    ------
    StorageError
        If the fit gave no posterior, the file it was read from did not keep all of it, or it was updated quickly.
    """
    implicit = belief.implicit
    if isinstance(implicit, SparsePosterior):
        return {"mean": belief.location, f"{_SPARSE}/weights": implicit.weights}
    if not isinstance(implicit, Conditioned):
        why = (
            "what quick updates made of the covariance of so many entities is not stored; call update() first"
            if isinstance(implicit, Changed)
            else "so many entities without a covariance cannot be stored; fit again, and save what converged"
        )
        raise StorageError(why)
    projection = scipy.sparse.csr_array(implicit.projection)
    return {
        "mean": belief.location,
        f"{_DUAL}/touched": implicit.touched,
        f"{_DUAL}/data": projection.data,
        f"{_DUAL}/indices": projection.indices,
        f"{_DUAL}/indptr": projection.indptr,
        f"{_DUAL}/weights": implicit.weights,
    }


def is_packed(arrays: Mapping[str, Any]) -> bool:
    """Whether a file holds such a belief."""
    return f"{_DUAL}/weights" in arrays or f"{_SPARSE}/weights" in arrays


def unpack(
    arrays: Mapping[str, Any], origin: Origin | None, hyperparameters: Mapping[str, Any]
) -> ImplicitBelief:
    """The inverse of `pack`."""
    location = np.asarray(arrays["mean"])
    sparse = f"{_SPARSE}/weights" in arrays
    names = (f"{_SPARSE}/weights",) if sparse else tuple(f"{_DUAL}/{name}" for name in _DUAL_ARRAYS)
    weights, *more = (arrays[name] for name in names)
    if origin is None:
        return ImplicitBelief(location, Forgotten(len(location)))
    with jax.enable_x64(True):
        values = {name: np.asarray(value, dtype=np.float64) for name, value in hyperparameters.items()}
        reading = LargeProblem.of(origin.program, origin.args, origin.kwargs).read(values)
        if sparse:
            parts, _ = low_rank_parts(reading, arrays["key"])
            posterior = SparsePosterior.at(parts, reading.ends.T, reading.entries.T, weights)
            return ImplicitBelief(location, posterior)
    touched = positions(arrays, f"{_DUAL}/touched", len(location))
    projection = sparse_rows(more[1:], (len(weights), len(touched)))
    return ImplicitBelief(location, Conditioned(reading.prior, touched, projection, weights))


class Forgotten:
    """The prior of a program of one's own, which no file keeps."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: dict[str, Any] = {}

    def _refuse(self, *_: Any) -> Any:
        raise StorageError(
            "the file keeps the means of so many entities, but not the program of your own that says how they vary together; fit again"
        )

    block = matmul = row_means = scaled = average = relative_variance = shares = _refuse
