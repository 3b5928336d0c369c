"""Chooses the posterior's face by the data the program was given."""

from typing import Any

import numpy as np
from scipy.linalg import block_diag

from relpref.data import PreferenceData
from relpref.infer.belief import GaussianBelief, key_words
from relpref.infer.evidence import Evidence
from relpref.infer.posterior import Origin, Parts, Posterior
from relpref.infer.program import Layout, Values
from relpref.infer.result import Result
from relpref.infer.utility_posterior import UtilityPosterior
from relpref.infer.warn import warn_user
from relpref.linalg import cholesky

_UTILITY = "utility"


def preference_data(origin: Origin) -> PreferenceData | None:
    """The preference data among a program's arguments."""
    found = [a for a in (*origin.args, *origin.kwargs.values()) if isinstance(a, PreferenceData)]
    return found[0] if found else None


def choose(origin: Origin, slices: dict[str, slice], common: dict[str, Any]) -> Posterior:
    """A `UtilityPosterior` where the one Gaussian site is the entities' utility, the plain `Posterior` otherwise."""
    data = preference_data(origin)
    if data is not None and list(slices) == [_UTILITY] and slices[_UTILITY].stop == data.num_entities:
        info = {**common["info"], **group_notes(data)}
        return UtilityPosterior(**{**common, "info": info}, slices=slices, origin=origin, data=data)
    return Posterior(**common, slices=slices, origin=origin)


def group_notes(data: PreferenceData) -> dict[str, Any]:
    """What connects the entities, for ``info``, with a warning where nothing does."""
    groups = len(np.unique(data.groups()))
    if groups == 1:
        return {}
    if data.attributes.shape[1]:
        return {"groups": f"{groups} groups of entities are tied together by their attributes alone"}
    note = (
        f"{groups} groups of entities are tied together by no comparison, relation or attribute; "
        "utilities can be compared within a group only"
    )
    warn_user(note)
    return {"groups": note}


def positive_definite(evidence: Evidence) -> bool:
    """Whether every site's prior covariance is one, up to jitter; EP in gap space factorises none of them."""
    totals = [sum(np.asarray(part) for part in parts.values()) for parts in evidence.blocks.values()]
    return all(bool(np.all(np.isfinite(np.asarray(cholesky(total).lower)))) for total in totals)


def assemble(
    layout: Layout,
    fixed: Values,
    evidence: Evidence,
    info: dict[str, Any],
    key: Any,
    origin: Origin,
) -> Posterior:
    """Turn an engine's arrays into a posterior; JAX arrays end here."""
    alpha = np.asarray(evidence.alpha)
    blocks = {
        site: {part: np.asarray(matrix) for part, matrix in parts.items()}
        for site, parts in evidence.blocks.items()
    }
    totals = {site: sum(parts.values()) for site, parts in blocks.items()}
    if evidence.white is not None:
        white = np.asarray(evidence.white)
        covariance = white @ white.T
    else:
        total = block_diag(*(totals[site] for site in layout.slices))  # JAX sorts dictionaries
        covariance = total - total @ np.asarray(evidence.weights) @ total
        covariance = 0.5 * (covariance + covariance.T)
    parts: dict[str, Parts] = {}
    mean = np.array(evidence.location)
    for site, rows in layout.slices.items():
        mean[rows] += totals[site] @ alpha[rows]
        named = {part: matrix for part, matrix in blocks[site].items() if part}
        means = {part: matrix @ alpha[rows] for part, matrix in named.items()}  # E[part] = K_p α
        if len(named) <= 1:
            shares = {part: np.array(np.diagonal(covariance[rows, rows])) for part in named}
        else:
            # Cov(part, total) = K_p − K_p R K, its diagonal.
            pulled = totals[site] @ np.asarray(evidence.weights)[rows, rows]
            shares = {
                part: np.diagonal(matrix) - np.sum(matrix * pulled, axis=1) for part, matrix in named.items()
            }
        parts[site] = Parts(means, shares)
    log_evidence = float(evidence.log_evidence)
    if Result[info["result"]].empty:
        # No sweep gave a posterior: not one number may look like an answer.
        log_evidence = np.nan
        for array in (
            mean,
            covariance,
            *(v for p in parts.values() for d in (p.means, p.covariances) for v in d.values()),
        ):
            array[...] = np.nan
    hyperparameters = {**fixed, **evidence.hyperparameters}
    common = {
        "belief": GaussianBelief(mean, covariance),
        "parts": parts,
        "hyperparameters": {name: plain(value) for name, value in hyperparameters.items()},
        "log_evidence": log_evidence,
        "info": info,
        "sites": {
            "precision": np.asarray(evidence.sites.precision),
            "shift": np.asarray(evidence.sites.shift),
        },
        "key": key_words(key),
    }
    return choose(origin, layout.slices, common)


def plain(value: Any) -> Any:
    """A float for a scalar, a NumPy array otherwise."""
    array = np.asarray(value)
    return float(array) if array.ndim == 0 else array
