"""Chooses the posterior's face by the data the program was given."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.data.comparisons import COMPOSED
from relpref.infer.evidence import Component, Evidence
from relpref.infer.program import Layout, Values, preference_data
from relpref.infer.result import Result, warn_user
from relpref.infer.search import CHAINS
from relpref.likelihoods import AnswerModel, Probit
from relpref.linalg import cholesky
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.gaussian import Floats, GaussianBelief, MixtureBelief, key_words
from relpref.posterior.origin import Origin
from relpref.posterior.utility import UtilityPosterior

_UTILITY = "utility"
# Variance of a gap, relative to that of a utility, below which two entities are one; correlation of two parts that are told apart no more.
_EQUAL, _ALIKE, _MOST_COMPARED = 1e-8, 0.95, 2000
MOST_NUMBERS = 30_000_000  # in the covariances of a mixture: 240 MB


def choose(origin: Origin, slices: dict[str, slice], common: dict[str, Any]) -> Posterior:
    """By the data and the Gaussian sites: `ClassPosterior`, `UtilityPosterior`, or the plain `Posterior`."""
    common["hyperparameters"] = {name: plain(value) for name, value in common["hyperparameters"].items()}
    common["key"] = key_words(common["key"])
    examples = [a for a in (*origin.args, *origin.kwargs.values()) if isinstance(a, Rankings | RelationData)]
    if examples and "weight" in slices:
        return ClassPosterior(**common, slices=slices, origin=origin, data=examples[0])
    data = preference_data(origin.args, origin.kwargs)
    if data is not None and list(slices) == [_UTILITY] and slices[_UTILITY].stop == data.num_entities:
        info = {**common["info"], **group_notes(data), **composed_note(data)}
        known = {**common, "info": info, "likelihood": _likelihood(origin)}
        return UtilityPosterior(**known, slices=slices, origin=origin, data=data)
    return Posterior(**common, slices=slices, origin=origin)


def _likelihood(origin: Origin) -> AnswerModel:
    """That of a preference program; a program of one's own may mean something else by the word."""
    given = origin.keywords.get("likelihood")
    return given if isinstance(given, AnswerModel) and not isinstance(given, type) else Probit()


def group_notes(data: PreferenceData) -> dict[str, Any]:
    """What connects the entities, for ``info``, with a warning where nothing does."""
    if any(graph.partial for graph in data.relations.values()):
        return {}  # links lead through others
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


def composed_note(data: PreferenceData) -> dict[str, Any]:
    """Of what the answers were composed, for ``info``."""
    notes = [note for note in data.notes if COMPOSED in note]
    return {"answers": "; ".join(notes)} if notes else {}


def prior_notes(
    data: PreferenceData | None,
    blocks: Mapping[str, Mapping[str, Any]],
    positions: NDArray[np.integer[Any]] | None = None,
) -> dict[str, Any]:
    """What answers cannot tell apart under the prior, for ``info``, with a warning where they were asked about it.

    Parameters
    ----------
    data : PreferenceData or None
        None, as of other programs, of which nothing is said.
    blocks : dict from site to part to array, shape (n, n)
        The prior covariance of the utilities is the sum of their parts.
    positions : array of int, shape (n,), optional
        Of the entities among those of the data, ascending, all that answers are about among them; all by default.

    Returns
    -------
    dict
        ``equal_priors``: two entities that were compared although their utilities are one and the same a priori. ``alike_parts``: pairs of
        parts whose covariances of differences are nearly proportional, as those of a relation of short range and of the entities
        themselves are. Not of more than 2000 entities.
    """
    found: dict[str, Any] = {}
    matrices = {name: np.asarray(part) for name, part in blocks.get(_UTILITY, {}).items()}
    size = 0 if data is None else data.num_entities if positions is None else len(positions)
    if data is None or not matrices or any(matrix.shape != (size, size) for matrix in matrices.values()):
        return found
    total = np.sum(list(matrices.values()), axis=0)
    ends = np.stack([data.winner, data.loser])
    first, second = ends if positions is None else np.searchsorted(positions, ends)
    variance = np.diagonal(total)
    same = variance[first] + variance[second] - 2 * total[first, second] <= _EQUAL * variance.mean()
    if same.any():
        pair = [data.entities[int(end)] for end in ends[:, np.argmax(same)]]
        found["equal_priors"] = (
            f"{pair[0]!r} and {pair[1]!r} were compared, but the prior has one utility for both (nothing that the model looks at differs), "
            "so no answer tells them apart; give each entity a part of its own: leave individual=False out"
        )
        warn_user(found["equal_priors"])
    gaps = {name: _of_gaps(matrix) for name, matrix in matrices.items() if name and size <= _MOST_COMPARED}
    alike = [
        [one, other]
        for one, other in combinations(sorted(gaps), 2)
        if np.vdot(gaps[one], gaps[other]) ** 2
        > _ALIKE**2 * np.vdot(gaps[one], gaps[one]) * np.vdot(gaps[other], gaps[other])
    ]
    return found | ({"alike_parts": alike} if alike else {})


def _of_gaps(covariance: Floats) -> Floats:
    """C K C with the centring matrix C: all that answers see of a covariance."""
    rows = covariance - covariance.mean(axis=0)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


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
    answered: int,
) -> Posterior:
    """Turn an engine's arrays into a posterior; JAX arrays end here. The first ``answered`` rows are answers."""
    mean, covariance, shares, sites, log_evidence = Component.of(layout, evidence, answered)
    parts = {site: Parts(*both) for site, both in shares.items()}
    if Result[info["result"]].empty:
        log_evidence = np.nan
        blank(mean, covariance, parts)
    common = {
        "belief": GaussianBelief(mean, covariance),
        "parts": parts,
        "hyperparameters": {**fixed, **evidence.hyperparameters},
        "log_evidence": log_evidence,
        "info": info,
        "sites": sites,
        "key": key,
    }
    return choose(origin, layout.slices, common)


def thinned(rows: list[Any], size: int) -> list[Any]:
    """As many of the draws, evenly from each chain, as there is room for a covariance of each."""
    most = max(1, MOST_NUMBERS // max(size, 1) ** 2 // CHAINS)
    length = len(rows) // CHAINS
    if length <= most:
        return rows
    kept = np.linspace(0, length - 1, most).astype(int)
    return [rows[chain * length + row] for chain in range(CHAINS) for row in kept]


def assemble_mixture(
    layout: Layout,
    fixed: Values,
    components: Sequence[Component],
    draws: dict[str, Floats],
    prior_log_weights: Floats,
    log_evidence: float | None,
    info: dict[str, Any],
    key: Any,
    origin: Origin,
) -> Posterior:
    """One Gaussian for each value of the hyperparameters, with weights by prior and evidence."""
    log_weights = prior_log_weights + [component.log_evidence for component in components]
    weights = np.exp(log_weights - logsumexp(log_weights))
    belief = MixtureBelief(
        np.stack([c.mean for c in components]), np.stack([c.covariance for c in components]), weights
    )
    parts = {
        site: _mixed_parts([c.parts[site] for c in components], belief.locations[:, rows], weights)
        for site, rows in layout.slices.items()
    }
    if Result[info["result"]].empty:
        blank(belief.locations, belief.scales, parts)
    averages = {name: np.tensordot(weights, value, axes=1) for name, value in draws.items()}
    common = {
        "belief": belief,
        "parts": parts,
        "hyperparameters": {**fixed, **averages},
        "hyperparameter_draws": draws,
        "prior_log_weights": prior_log_weights,
        "log_evidence": log_evidence,
        "info": info,
        "sites": {name: np.stack([c.sites[name] for c in components]) for name in components[0].sites},
        "key": key,
    }
    return choose(origin, layout.slices, common)


def blank(mean: Floats, covariance: Floats, parts: dict[str, Parts]) -> None:
    """No sweep gave a posterior: not one number may look like an answer."""
    numbers = [v for p in parts.values() for d in (p.means, p.covariances) for v in d.values()]
    for array in (mean, covariance, *numbers):
        array[...] = np.nan


def _mixed_parts(
    parts: list[tuple[dict[str, Floats], dict[str, Floats]]], totals: Floats, weights: Floats
) -> Parts:
    """By the laws of total expectation and total covariance."""
    means, covariances = {}, {}
    centered = totals - weights @ totals
    for name in parts[0][0]:
        each = np.stack([part[0][name] for part in parts])
        means[name] = weights @ each
        within = weights @ np.stack([part[1][name] for part in parts])
        covariances[name] = within + weights @ (centered * each)
    return Parts(means, covariances)


def plain(value: Any) -> Any:
    """A float for a scalar, a NumPy array otherwise."""
    array = np.asarray(value)
    return float(array) if array.ndim == 0 else array
