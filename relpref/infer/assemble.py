"""Posteriors from the arrays of an engine; the class follows from the data of the program."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.data.comparisons import weight_note
from relpref.data.covariates import EFFECT
from relpref.infer.call import Values, preference_data
from relpref.infer.evidence import Evidence, latent_moments
from relpref.infer.layout import Layout
from relpref.infer.sampling import CHAINS
from relpref.likelihoods import AnswerModel, Probit
from relpref.limits import MAX_CHECKED, MAX_NOTED_ITEMS, MAX_NUMBERS_OF_MIXTURE
from relpref.linalg import cholesky
from relpref.linalg.arrays import block_diagonal
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.gaussian import Floats, key_words, mixture
from relpref.posterior.origin import Origin
from relpref.posterior.utility import UTILITY, UtilityPosterior
from relpref.result import Result, warn_user

# Variance of a gap, relative to that of a utility, below which two items are the same; correlation
# above which two parts cannot be told apart.
_EQUAL, _ALIKE = 1e-8, 0.95


class Component(NamedTuple):
    """A posterior at one value of the hyperparameters, copied from an engine's arrays."""

    mean: Floats  # shape (n,)
    covariance: Floats  # shape (n, n)
    # Of each site: means of its named parts, E[part] = K_p α, and their covariances with the total,
    # the diagonal of K_p − K_p R K.
    parts: dict[str, tuple[dict[str, Floats], dict[str, Floats]]]
    sites: dict[str, Floats]  # ``precision`` and ``shift`` of the answers
    log_evidence: float
    # Mean and covariance of the latents before the answers, with the slice and the named
    # covariances of each site, where the posterior will be checked; else None.
    prior: "Prior | None" = None

    @classmethod
    def of(cls, layout: Layout, evidence: Evidence) -> "Component":
        """Component of an evaluation that has its arrays."""
        mean, covariance = latent_moments(evidence)
        alpha, parts = np.asarray(evidence.alpha), {}
        for site, rows in layout.slices.items():
            named = {
                part: np.asarray(matrix) for part, matrix in evidence.blocks[site].items() if part
            }
            means = {part: matrix @ alpha[rows] for part, matrix in named.items()}
            if len(named) <= 1:
                shares = {part: np.array(np.diagonal(covariance[rows, rows])) for part in named}
            else:
                pulled = np.asarray(evidence.pulled)[rows, rows]
                shares = {
                    part: np.diagonal(matrix) - np.einsum("ij,ji->i", matrix, pulled)
                    for part, matrix in named.items()
                }
            parts[site] = means, shares
        sites = {name: np.asarray(value) for name, value in evidence.sites._asdict().items()}
        prior = None
        if len(mean) <= MAX_CHECKED:
            prior = Prior(np.asarray(evidence.location), layout.slices, evidence.blocks)
        return cls(mean, covariance, parts, sites, float(evidence.log_evidence), prior)

    def moved(self, mean: Floats, covariance: Floats) -> "Component":
        """The component with another mean and covariance; parts follow from the total."""
        assert self.prior is not None
        parts = {}
        for site, rows in self.prior.slices.items():
            blocks = self.prior.blocks[site]
            inverse = np.linalg.pinv(sum(blocks.values()), hermitian=True)
            to_parts = {part: matrix @ inverse for part, matrix in blocks.items() if part}
            center, within = (mean - self.prior.location)[rows], covariance[rows, rows]
            means = {part: weights @ center for part, weights in to_parts.items()}
            shares = {
                part: np.einsum("ij,ji->i", weights, within) for part, weights in to_parts.items()
            }
            parts[site] = means, shares
        return self._replace(mean=mean, covariance=covariance, parts=parts)


class Prior(NamedTuple):
    """Prior of a component's latents."""

    location: Floats  # shape (n,)
    slices: Mapping[str, slice]
    blocks: Mapping[str, Mapping[str, Any]]  # as in `Evidence`

    @property
    def covariance(self) -> Floats:
        """Shape (n, n)."""
        return np.asarray(
            block_diagonal(sum(self.blocks[site].values()) for site in self.slices), np.float64
        )


def choose(origin: Origin, slices: dict[str, slice], common: dict[str, Any]) -> Posterior:
    """Posterior of the class that fits the data and the Gaussian sites.

    It is a `ClassPosterior`, a `UtilityPosterior` or the plain `Posterior`.
    """
    common["hyperparameters"] = {
        name: plain(value) for name, value in common["hyperparameters"].items()
    }
    common["key"] = key_words(common["key"])
    examples = [
        a for a in (*origin.args, *origin.kwargs.values()) if isinstance(a, Rankings | RelationData)
    ]
    if examples and "weight" in slices:
        return ClassPosterior(**common, slices=slices, origin=origin, data=examples[0])
    data = preference_data(origin)
    if data is not None and _about_items(slices, data):
        weights = (
            {} if data.comparisons.weight is None else {"weights": weight_note(data.comparisons)}
        )
        common["info"] = {**common["info"], **group_notes(data), **weights}
        model = origin.keywords.get("likelihood")
        # A custom program may use the keyword for something else.
        is_model = isinstance(model, AnswerModel) and not isinstance(model, type)
        likelihood: Any = model if is_model else Probit()
        posterior = UtilityPosterior(
            **common, likelihood=likelihood, slices=slices, origin=origin, data=data
        )
        return posterior if len(slices) == 1 else posterior.with_full(common["belief"])
    return Posterior(**common, slices=slices, origin=origin)


def _about_items(slices: dict[str, slice], data: PreferenceData) -> bool:
    """Whether Gaussian sites are utilities, after effects of covariates if there are any."""
    sizes = {site: rows.stop - rows.start for site, rows in slices.items()}
    possible = {EFFECT: len(data.comparisons.covariate_names), UTILITY: data.num_items}
    return list(sizes)[-1:] == [UTILITY] and sizes.items() <= possible.items()


def group_notes(data: PreferenceData) -> dict[str, Any]:
    """Entries of ``info`` on groups of items that nothing connects; warns about them."""
    if any(graph.partial for graph in data.relations.values()):
        return {}  # links lead through others
    groups = len(np.unique(data.groups()))
    if groups == 1:
        return {}
    if data.attributes.shape[1]:
        return {"groups": f"{groups} groups of items are tied together by their attributes alone"}
    note = (
        f"{groups} groups of items are tied together by no comparison, relation or attribute; "
        "utilities can be compared within a group only"
    )
    warn_user(note)
    return {"groups": note}


def prior_notes(
    data: PreferenceData | None,
    blocks: Mapping[str, Mapping[str, Any]],
    positions: NDArray[np.integer[Any]] | None = None,
) -> dict[str, Any]:
    """Entries of ``info`` on items and parts that no answer can tell apart under the prior.

    ``equal_priors``, with a warning: two items that were compared although the prior has the same
    utility for both. ``alike_parts``: pairs of parts whose covariances of differences are nearly
    proportional, such as those of a relation of short range and of the items themselves; not for
    more than 2000 items.

    ``blocks`` are the parts whose sum is the prior covariance of the utilities, by site and name;
    ``positions`` those of their items among the items of the data, ascending, including all items
    of answers (all by default).
    """
    notes: dict[str, Any] = {}
    matrices = {name: np.asarray(part) for name, part in blocks.get(UTILITY, {}).items()}
    size = 0 if data is None else data.num_items if positions is None else len(positions)
    if (
        data is None
        or not matrices
        or any(matrix.shape != (size, size) for matrix in matrices.values())
    ):
        return notes
    total = np.sum(list(matrices.values()), axis=0)
    ends = np.stack([data.comparisons.winner, data.comparisons.loser])
    first, second = ends if positions is None else np.searchsorted(positions, ends)
    variance = np.diagonal(total)
    same = variance[first] + variance[second] - 2 * total[first, second] <= _EQUAL * variance.mean()
    if same.any():
        pair = [data.labels[int(end)] for end in ends[:, np.argmax(same)]]
        notes["equal_priors"] = (
            f"{pair[0]!r} and {pair[1]!r} were compared, but the prior has one utility for both "
            "(nothing that the model looks at differs), "
            "so no answer tells them apart; give each item a part of its own: leave "
            "individual=False out"
        )
        warn_user(notes["equal_priors"])
    gaps = {}
    for name, matrix in matrices.items():
        if name and size <= MAX_NOTED_ITEMS:
            # C K C with the centering matrix C: answers depend on nothing else.
            rows = matrix - matrix.mean(axis=0)
            gaps[name] = rows - rows.mean(axis=1, keepdims=True)
    alike = [
        [left, right]
        for left, right in combinations(sorted(gaps), 2)
        if np.vdot(gaps[left], gaps[right]) ** 2
        > _ALIKE**2 * np.vdot(gaps[left], gaps[left]) * np.vdot(gaps[right], gaps[right])
    ]
    return notes | ({"alike_parts": alike} if alike else {})


def positive_definite(evidence: Evidence) -> bool:
    """Whether every site's prior covariance is positive definite, up to jitter.

    EP in gap space factorizes none of them.
    """
    totals = [
        sum(np.asarray(part) for part in parts.values()) for parts in evidence.blocks.values()
    ]
    return all(bool(np.all(np.isfinite(np.asarray(cholesky(total).lower)))) for total in totals)


def thinned(rows: list[Any], size: int) -> list[Any]:
    """Draws, evenly from each chain, as many as memory allows covariances for."""
    most = max(1, MAX_NUMBERS_OF_MIXTURE // max(size, 1) ** 2 // CHAINS)
    length = len(rows) // CHAINS
    if length <= most:
        return rows
    kept = np.linspace(0, length - 1, most).astype(int)
    return [rows[chain * length + row] for chain in range(CHAINS) for row in kept]


def assemble(
    layout: Layout,
    fixed: Values,
    components: list[Component],
    result: Result,
    info: dict[str, Any],
    key: Any,
    origin: Origin,
    draws: dict[str, Floats],
    prior_log_weights: Floats | None,
    log_evidence: float | None,
) -> Posterior:
    """Posterior of the components: a single Gaussian, or a mixture.

    The mixture has a component for each draw of the hyperparameters, weighted by prior and
    evidence. The list of components is used up, because memory may not hold their covariances
    twice.
    """
    single = prior_log_weights is None
    log_weights = np.zeros(1)
    if prior_log_weights is not None:
        log_weights = prior_log_weights + [component.log_evidence for component in components]
    weights = np.exp(log_weights - logsumexp(log_weights))
    averages = {name: np.tensordot(weights, value, axes=1) for name, value in draws.items()}
    locations = np.stack([component.mean for component in components])
    scales = np.empty((*locations.shape, locations.shape[1]))
    for row, component in enumerate(components):
        scales[row] = component.covariance
        components[row] = component._replace(covariance=scales[row])
    parts = {}
    for site, rows in layout.slices.items():
        means: dict[str, Floats] = {}
        covariances: dict[str, Floats] = {}
        # By the laws of total expectation and total covariance.
        centered = locations[:, rows] - weights @ locations[:, rows]
        for name in components[0].parts[site][0]:
            each = np.stack([component.parts[site][0][name] for component in components])
            within = weights @ np.stack(
                [component.parts[site][1][name] for component in components]
            )
            means[name] = weights @ each
            covariances[name] = within + weights @ (centered * each)
        parts[site] = Parts(means, covariances)
    if result.empty:  # no sweep gave a posterior: not one number may look like an answer
        log_evidence = np.nan if single else log_evidence
        numbers = [v for p in parts.values() for d in (p.means, p.covariances) for v in d.values()]
        for array in (locations, scales, *numbers):
            array[...] = np.nan
    elif single:
        log_evidence = components[0].log_evidence
    sites = {name: np.stack([c.sites[name] for c in components]) for name in components[0].sites}
    common = {
        "belief": mixture(locations, scales, weights),
        "parts": parts,
        "hyperparameters": {**fixed, **averages},
        "hyperparameter_draws": draws,
        "prior_log_weights": prior_log_weights,
        "log_evidence": log_evidence,
        "info": info | {"result": result.name},
        "sites": {name: value[0] for name, value in sites.items()} if single else sites,
        "key": key,
    }
    return choose(origin, layout.slices, common)


def plain(value: Any) -> Any:
    """A float for a scalar, a NumPy array otherwise."""
    array = np.asarray(value)
    return float(array) if array.ndim == 0 else array
