"""Layout of a program's latent sites and rows, and its values at given hyperparameters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer

from relpref.infer.call import Values
from relpref.infer.sites import Known, Sites
from relpref.likelihoods import Likelihood, SharedNoise, as_likelihood, is_log_concave
from relpref.likelihoods.powers import knows_derivatives
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import BlockDiagonal, require_memory
from relpref.linalg.arrays import Array, namespace

NamedShapes = tuple[tuple[str, tuple[int, ...]], ...]  # of sites

MATRICES = 4  # number of matrices of the size of a prior covariance that are needed at once


def require_memory_for(size: int) -> None:
    """Refuse more latent values than there is memory for."""
    require_memory(MATRICES * 8.0 * size**2, f"the prior covariance of {size} values")


class Observation(NamedTuple):
    """An observed site: its likelihood, its value and the number of answers of each row."""

    likelihood: Likelihood
    value: Array
    counts: Array

    @classmethod
    def of(cls, site: Values, likelihood: Likelihood | None = None) -> "Observation":
        """The observation of a traced site; by default with its distribution's likelihood."""
        likelihood = likelihood or as_likelihood(site["fn"])
        shape, value = jnp.shape(likelihood.predictor), site["value"]
        return cls(likelihood, namespace(value).broadcast_to(value, shape), counts_of(site, shape))


def placed(observations: Sequence[Observation]) -> Iterator[tuple[Any, Array, Array, slice]]:
    """Observations with the places of their rows among those of all."""
    start = 0
    for likelihood, value, counts in observations:
        yield likelihood, value, counts, slice(start, start + value.size)
        start += value.size


def joined_rows(parts: Sequence[Array]) -> Array:
    """Arrays as one vector."""
    xp = namespace(*parts)
    vectors = [xp.ravel(part) for part in parts]
    return vectors[0] if len(vectors) == 1 else xp.concatenate(vectors)


def shared_noise(likelihoods: Sequence[Likelihood]) -> list[SharedNoise]:
    """The kinds of noise that rows share by their likelihoods, for all rows."""
    sizes = [int(np.prod(jnp.shape(likelihood.predictor))) for likelihood in likelihoods]
    kinds, ends = [], np.cumsum(sizes)
    for likelihood, size, end in zip(likelihoods, sizes, ends, strict=True):
        padding = (int(end) - size, int(ends[-1] - end))
        for kind in getattr(likelihood, "shared_noise", ()):
            padded = (
                namespace(part).pad(part.ravel(), padding, constant_values=missing)
                for part, missing in zip(kind, (-1, -1, -1, 0), strict=True)
            )
            kinds.append(SharedNoise(*padded))
    return kinds


def counts_of(site: Values, shape: tuple[int, ...]) -> Array:
    """The number of answers of each row of an observed site, shape (m,)."""
    factors = [1.0 if site["scale"] is None else site["scale"]]
    distribution, base = site["fn"], unwrap(site["fn"])
    while distribution is not base:
        if isinstance(distribution, dist.MaskedDistribution):  # a masked row was not answered
            factors.append(distribution._mask)
        distribution = distribution.base_dist
    xp = jnp if any(isinstance(factor, Tracer) for factor in factors) else np
    counts, *masks = map(xp.asarray, factors)
    for mask in masks:
        counts = xp.where(mask, counts, 0.0)
    return xp.ravel(xp.broadcast_to(xp.asarray(counts, jnp.result_type(float)), shape))


@dataclass(frozen=True)
class Layout:
    """The roles of a program's sites; static, so that JAX can compile for it."""

    # (name, shape) of the Gaussian vectors, in their order in the joint latent vector.
    latents: NamedShapes
    # (name, shape) of the sites to be estimated.
    hyperparameters: NamedShapes
    observed: tuple[str, ...]
    # Observed sites whose tilted moments are computed by quadrature, and whether they are
    # log-concave.
    quadrature: tuple[tuple[str, bool], ...] = ()
    num_rows: int = 0  # entries of all predictors together
    constant_projection: bool = True  # whether the projection does not depend on hyperparameters
    log_concave: bool = True  # whether all likelihoods are, so that no site precision is negative
    # Whether sites may be so precise that only careful algebra holds: some likelihood is Gaussian
    # in its predictor, see `relpref.likelihoods.GaussianSite`, or a row stands for more than 20
    # answers.
    precise: bool = False
    repeated: bool = False  # whether a row stands for other than one answer
    ordered: bool = False  # whether some rows are those of lists, whose likelihoods share noise
    # Whether observation space is required: rows share noise, and the projection depends on
    # hyperparameters or has more than two entries in a row.
    observation_only: bool = False
    # Whether rows that share noise are taken together at a point, see `relpref.infer.joint`,
    # instead of each with its moments.
    joint: bool = False
    # Whether JAX may cache a run: there are arrays among the arguments, and no distribution holds
    # state that JAX does not see.
    portable: bool = False
    # Sites that are integrated out, with their lengths: noise that rows share, after the kinds
    # that likelihoods define.
    integrated: tuple[tuple[str, int], ...] = ()

    @cached_property
    def num_latents(self) -> int:
        """Length of the joint latent vector."""
        return sum(int(np.prod(shape)) for _, shape in self.latents)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The slice of each Gaussian site in the joint latent vector."""
        stops = np.cumsum([int(np.prod(shape)) for _, shape in self.latents])
        pairs = zip(self.latents, [0, *stops], stops, strict=False)
        return {name: slice(int(start), int(stop)) for (name, _), start, stop in pairs}

    def unravel(self, vector: Array) -> Values:
        """Cut the joint latent vector into its sites."""
        return {name: vector[self.slices[name]].reshape(shape) for name, shape in self.latents}


class Prior(NamedTuple):
    """A program at given hyperparameters."""

    hyperparameters: Values  # on their supports; without the fixed ones
    covariance: BlockDiagonal  # prior covariance K of the joint latent vector
    location: Array  # its prior mean, shape (n,)
    offset: Array  # the predictors at the prior mean, shape (m,)
    projection: Any  # the linear part of the predictors, A
    # Likelihoods and values of the answers, at a latent vector of zeros; on the host without those
    # that JAX cannot build again.
    observations: tuple[Observation, ...]
    log_prior: Array  # log density of the hyperparameters in the unconstrained space
    noise: tuple[Array, ...]  # sds of the noise that rows share, by its kind, shape (m,) each
    gaussian: Known | None  # sites of rows whose likelihood is Gaussian
    log_concave: Array  # of each row, shape (m,)
    counts: Array
    power: Array  # of each row's likelihood, see `powers`
    blocks: dict[str, dict[str, Array]]  # as in `relpref.infer.evidence.Evidence`

    @property
    def direct(self) -> bool:
        """Whether NumPy has all likelihoods, with their moments and derivatives."""
        likelihoods = [likelihood for likelihood, *_ in self.observations]
        return bool(likelihoods) and all(map(knows_derivatives, likelihoods))

    @classmethod
    def of(cls, observations: tuple[Observation, ...], offset: Array, **numbers: Any) -> "Prior":
        """The program by its answers and by what else it computes, without blocks."""
        concave = [np.full(value.size, is_log_concave(term)) for term, value, _ in observations]
        return cls(
            observations=observations,
            offset=offset,
            gaussian=known_sites(observations, offset),
            log_concave=np.concatenate(concave),
            counts=joined_rows([observation.counts for observation in observations]),
            power=powers(observations),
            blocks={},
            **numbers,
        )


def known_sites(observations: tuple[Observation, ...], offset: Array) -> Known | None:
    """Sites of rows whose likelihood is Gaussian in the predictor; None without such rows."""
    if not any(hasattr(observation.likelihood, "gaussian_site") for observation in observations):
        return None
    rows, peaks, precisions = [], [], []
    for likelihood, value, _, places in placed(observations):
        mean = offset[places]
        site = getattr(likelihood, "gaussian_site", None)
        peak, precision = site(value) if site else (mean, 0 * mean)
        rows.append(np.full(value.size, site is not None))
        peaks.append(peak.ravel() - mean)
        precisions.append(precision)
    peak, precision = joined_rows(peaks), joined_rows(precisions)
    return Known(np.concatenate(rows), peak, Sites(precision, precision * peak))


def powers(observations: tuple[Observation, ...]) -> Array:
    """The power n of each row's p^n, which has one site; 1 where each answer has its own."""
    parts = []
    for likelihood, _, counts in observations:
        copied = getattr(likelihood, "copied", False) | hasattr(likelihood, "gaussian_site")
        xp = namespace(counts, copied)
        parts.append(xp.where(xp.ravel(copied) | (counts == 0), 1.0, counts))
    return joined_rows(parts)
