"""Read from files the posteriors of more items than a matrix has room for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from relpref.compiled import float64
from relpref.errors import StorageError
from relpref.infer.large.covariance import Conditioned, ImplicitBelief, Unknown
from relpref.infer.large.fit import low_rank_parts
from relpref.infer.large.problem import LargeProblem
from relpref.infer.large.problem import touched as answered_items
from relpref.infer.large.spaces import SeenRows, known_posterior
from relpref.posterior.codec import positions, sparse_matrix
from relpref.posterior.utility import UtilityPosterior


def implicit_belief(arrays: Mapping[str, Any], posterior: UtilityPosterior) -> ImplicitBelief:
    """The distribution of utilities whose covariance is evaluated by the prior of their program."""
    location, origin = np.asarray(arrays["mean"]), posterior.origin
    group = "sparse/" if "sparse/weights" in arrays else "dual/"
    weights = arrays[f"{group}weights"]
    if group == "dual/":
        touched = positions(arrays["dual/touched"], len(location), "dual/touched")
        projection = sparse_matrix(arrays, group, (len(weights), len(touched)))
    if origin is None:
        return ImplicitBelief(location, Forgotten(len(location)))
    with float64():
        values = {
            name: np.asarray(v, dtype=np.float64) for name, v in posterior.hyperparameters.items()
        }
        problem = LargeProblem.of(origin)
        prior = problem.prior(values)
        if group == "dual/":
            return ImplicitBelief(location, Conditioned(prior, touched, projection, weights))
        touched = answered_items(problem.data)
        seen = SeenRows.of(problem.read(touched, None, values), touched, prior.size)
        parts, _ = low_rank_parts(prior, arrays["key"])
        return ImplicitBelief(location, known_posterior(parts, seen, weights))


class Forgotten(Unknown):
    """The covariance of a fit by a custom program, which is not in the file."""

    def _refuse(self, *_: Any) -> Any:
        raise StorageError(
            "the file keeps the means of these items, but not your own program, which defines "
            "their covariance; fit again"
        )

    block = matmul = row_means = average = _refuse  # type: ignore[assignment]
    relative_variance = shares = arrays = _refuse  # type: ignore[assignment]
