"""Covariances of the touched entities as functions of the one hyperparameter that each relation's kernel has.

A solve with a large graph takes its time, and a search for hyperparameters asks for dozens of them. So the covariance is worked out
at Chebyshev nodes of the logarithm of the hyperparameter and interpolated between: 12 nodes over the range below leave about a
thousandth (the poles of 1/(λ + ι⁻²) in log ι lie π/2 off the axis, so the error falls by 1.8 with every node; Trefethen 2013,
"Approximation theory and approximation practice", theorem 8.2). The posterior itself never rests on this: once the hyperparameters are
found, the covariance is worked out there.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.data import Graph
from relpref.data.marginal import Table
from relpref.errors import DataError
from relpref.infer.large.problem import Request, shown
from relpref.kernels.implicit import graph_implicit

NODES = 12
# Quantiles of the prior between which the hyperparameter is looked for; a log-normal's 2.5 log-sds.
_LOWER, _UPPER, _DRAWS = 0.0062, 0.9938, 4000


def constant(
    name: str,
    graph: Graph,
    request: Request,
    positions: NDArray[Any],
    values: Mapping[str, Any],
    progress_bar: bool,
) -> Table:
    """At known hyperparameters."""
    known = {key: float(values[site]) for key, site in request.sites.items()}
    return Table(0.0, 1.0, _covariance(name, graph, request, positions, known, progress_bar)[None])


def interpolated(
    name: str,
    graph: Graph,
    request: Request,
    positions: NDArray[Any],
    fixed: Mapping[str, Any],
    sites: Mapping[str, Any],
    progress_bar: bool,
) -> Table:
    """Over the range of the hyperparameter that is to be found; at the known ones if none is.

    Raises
    ------
    DataError
        If several hyperparameters of the kernel are to be found, or one that is no positive scalar.
    """
    free = [key for key, site in request.sites.items() if site not in fixed]
    if not free:
        return constant(name, graph, request, positions, fixed, progress_bar)
    prior = sites[request.sites[free[0]]]["fn"]
    if len(request.sites) > 1 or prior.shape():
        raise DataError(
            f"relation {name!r}: {type(request.kernel).__name__} has the hyperparameters {', '.join(request.sites)}; for so many entities "
            "one positive number can be learned: fix them with fixed={site: value}"
        )
    lower, upper = _range(prior)
    if not 0 < lower < upper < np.inf:
        raise DataError(
            f"relation {name!r}: the prior of {request.sites[free[0]]} reaches from {lower} to {upper}; give one of a positive number"
        )
    centre, reach = 0.5 * np.log(lower * upper), 0.5 * np.log(upper / lower)
    angles = np.pi * (np.arange(NODES) + 0.5) / NODES
    coefficients = np.zeros((NODES, len(positions), len(positions)))
    for node, angle in enumerate(angles):
        value = float(np.exp(centre + reach * np.cos(angle)))
        label = f"{name}, {node + 1} of {NODES}"
        covariance = _covariance(label, graph, request, positions, {free[0]: value}, progress_bar)
        for order in range(NODES):
            coefficients[order] += (2 - (order == 0)) / NODES * np.cos(order * angle) * covariance
    return Table(centre, reach, coefficients)


def _range(prior: Any) -> tuple[float, float]:
    """Quantiles of a prior; of draws, where it has no quantile function."""
    try:
        return float(prior.icdf(_LOWER)), float(prior.icdf(_UPPER))
    except (NotImplementedError, ImportError):  # numpyro says it in both ways
        draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS,)))
        return float(np.quantile(draws, _LOWER)), float(np.quantile(draws, _UPPER))


def _covariance(
    label: str,
    graph: Graph,
    request: Request,
    positions: NDArray[Any],
    values: Mapping[str, float],
    progress_bar: bool,
) -> NDArray[np.float64]:
    form = shown(graph_implicit(request.kernel, graph, request.normalize, values), label, progress_bar)
    covariance = form.block(positions, positions)
    return np.asarray(0.5 * (covariance + covariance.T))


def at_boundary(table: Table, value: float) -> bool:
    """Whether a hyperparameter was found where the range ends."""
    place = (np.log(value) - table.centre) / table.reach
    return len(table.coefficients) > 1 and bool(abs(place) > 0.995)
