"""What a file keeps of a belief that has no covariance matrix: its dual weights; the prior is made again from program and data."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import scipy.sparse

from relpref.errors import StorageError
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.covariance import Conditioned
from relpref.infer.large.problem import LargeProblem
from relpref.infer.posterior import Origin

_GROUP = "dual"


def pack(belief: ImplicitBelief) -> dict[str, Any]:
    """Arrays by name.

    Raises
    ------
    StorageError
        If the belief is of another kind than `relpref.infer.large.fit` makes.
    """
    implicit = belief.implicit
    if not isinstance(implicit, Conditioned):
        raise StorageError(f"a belief with a {type(implicit).__name__} cannot be stored")
    projection = scipy.sparse.csr_array(implicit.projection)
    return {
        "mean": belief.location,
        f"{_GROUP}/touched": implicit.touched,
        f"{_GROUP}/data": projection.data,
        f"{_GROUP}/indices": projection.indices,
        f"{_GROUP}/indptr": projection.indptr,
        f"{_GROUP}/weights": implicit.weights,
    }


def is_packed(arrays: Mapping[str, Any]) -> bool:
    """Whether a file holds such a belief."""
    return f"{_GROUP}/weights" in arrays


def unpack(
    arrays: Mapping[str, Any], origin: Origin | None, hyperparameters: Mapping[str, Any]
) -> ImplicitBelief:
    """The inverse of `pack`."""
    dual = {name.partition("/")[2]: value for name, value in arrays.items() if name.startswith(f"{_GROUP}/")}
    location, touched = np.asarray(arrays["mean"]), dual["touched"]
    prior: Any = _Forgotten(len(location))
    if origin is not None:
        with jax.enable_x64(True):
            values = {name: np.asarray(value, dtype=np.float64) for name, value in hyperparameters.items()}
            prior = LargeProblem.of(origin.program, origin.args, origin.kwargs).read(values).prior
    shape = (len(dual["weights"]), len(touched))
    projection = scipy.sparse.csr_array((dual["data"], dual["indices"], dual["indptr"]), shape=shape)
    return ImplicitBelief(location, Conditioned(prior, touched, projection, dual["weights"]))


class _Forgotten:
    """The prior of a program of one's own, which no file keeps."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: dict[str, Any] = {}

    def _refuse(self, *_: Any) -> Any:
        raise StorageError(
            "the file keeps the means of so many entities, but not the program of your own that says how they vary together; fit again"
        )

    block = matmul = row_means = scaled = average = _refuse
