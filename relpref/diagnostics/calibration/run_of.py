"""The problem that a posterior was fitted to, as something to simulate: the program, what it is called with, and its keywords."""

from typing import Any

import numpy as np
import pandas as pd

from relpref.data import PreferenceData, RelationData
from relpref.errors import UnsupportedProgramError
from relpref.infer import RelationPosterior, UtilityPosterior
from relpref.kernels import Precomputed
from relpref.models import conditional_ranking

Problem = tuple[Any, tuple[Any, ...], dict[str, Any]]


def simulated_utilities(posterior: UtilityPosterior) -> Problem:
    """The program with the posterior's entities, relations and questions; hyperparameters that were fixed stay so.

    Raises
    ------
    UnsupportedProgramError
        If it is not known any more.
    """
    origin = posterior.origin
    if origin is None or not origin.complete:
        raise UnsupportedProgramError(
            "the posterior does not know its program with all of its priors, which a file cannot hold; call relpref.diagnostics.calibrate "
            "with the program"
        )
    call = origin.unbound()
    args = tuple(posterior.data if isinstance(value, PreferenceData) else value for value in call.args)
    return call.program, args, {**call.kwargs, "fixed": dict(origin.engine.get("fixed", {}))}


def simulated_relation(posterior: RelationPosterior) -> Problem:
    """A relation with the posterior's kernels and known pairs; scale and noise are those that were found."""
    problem = posterior.problem
    left, right = problem.nodes, problem.objects
    one = left is right
    data = RelationData(
        _named(left.labels),
        None if one else _named(right.labels),
        problem.values,
        problem.symmetry,
        posterior.shift,
        _distinct(posterior),
    )
    scale = posterior.noise / posterior.solution.regularization
    # One set of nodes: the amplitude is squared in both factors of the product.
    fixed = {"attributes_amplitude": scale ** (0.25 if one else 0.5), "noise": np.sqrt(posterior.noise)}
    kernels = {"node_kernel": Precomputed(_symmetric(left.gram))}
    if not one:
        kernels["object_kernel"] = Precomputed(_symmetric(right.gram))
    return (
        conditional_ranking,
        (data,),
        {"loss": problem.loss, "standardize": False, **kernels, "fixed": fixed},
    )


def _named(labels: Any) -> PreferenceData:
    """Nodes of these labels; their attribute is not looked at, since the kernel is known."""
    index = pd.Index(list(labels), tupleize_cols=False)
    return PreferenceData.from_tables(
        pd.DataFrame({"number": np.arange(len(index), dtype=float)}, index=index)
    )


def _symmetric(gram: Any) -> Any:
    matrix = np.asarray(gram, dtype=np.float64)
    return 0.5 * (matrix + matrix.T)


def _distinct(posterior: RelationPosterior) -> Any:
    """Each pair of nodes once, as `RelationData.of_values` has it."""
    values, symmetry = posterior.problem.values, posterior.problem.symmetry
    if symmetry == "none":
        return None
    gap = values.columns - values.rows
    return np.flatnonzero(gap >= 0 if symmetry == "symmetric" else gap > 0)
