"""The algebra of EP's sweeps where the posterior precision is sparse, on the host."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relpref.infer.large.sparse.latents import Latents
from relpref.infer.large.sparse.posterior import SparsePosterior
from relpref.infer.large.sparse.relations import (
    Estimate,
    Factorised,
    Iterative,
    Noise,
    Relations,
    Sampled,
    exact_variances,
)
from relpref.infer.sites import Fit, Sites
from relpref.infer.spaces import Marginals

Floats = NDArray[np.float64]
Method = Literal["factorised", "sampled", "refined"]


class Algebra:
    """The posterior of the last fresh sweep.

    Parameters
    ----------
    latents : Latents
    counts : array, shape (m,)
    tol : float
        Of every solve.
    noise : Noise or None
        None for dense factors.

    Attributes
    ----------
    mean, parts : array of shape (n,), and dict of such arrays
        What the last response stands for, and what it is made of.
    """

    def __init__(self, latents: Latents, counts: Floats, tol: float, noise: Noise | None) -> None:
        self.latents, self.counts = latents, counts
        self._tol, self._noise = tol, noise
        self._last: dict[str, Floats] = {}
        self._relations: Relations
        self._posterior: SparsePosterior
        self._ratio = np.ones(len(counts))
        self.parts: dict[str, Floats] = {}

    def refresh(self, given: Sites) -> Fit:
        """The posterior under given sites."""
        weights = np.asarray(self.counts * np.asarray(given.precision))
        if self._noise is None:
            self._relations = Factorised(self.latents, weights)
        else:
            self._relations = Sampled(self.latents, weights, self._tol, self._last, self._noise)
        self._posterior = SparsePosterior.under(self.latents, self._relations, weights)
        mean = self.response(self.counts * np.asarray(given.shift))
        return Fit(given, NO_FACTOR, marginals(mean, self.gap_variances().value))

    def response(self, pull: Any) -> Any:
        """Posterior covariance of the projections times a vector."""
        self.parts = self._posterior.by_part(self.latents.projection.T @ pull, "mean")
        return np.asarray(self.latents.projection @ self.mean)

    @property
    def mean(self) -> Floats:
        """Sum of the parts."""
        return np.asarray(sum(self.parts.values()))

    def gap_variances(self) -> Estimate:
        """Of the rows, with standard errors."""
        value, error = self._relations.variances
        return self._posterior.gap_variances(Estimate(self._ratio * value, self._ratio * error))

    def refine(self) -> Floats:
        """From now on take variances in the ratio of exact to estimated ones under the sites of now.

        The random numbers are the same in every sweep, so the ratio hardly depends on the sites.

        Returns
        -------
        array, shape (m,)
            Exact less estimated variance of the rows so far.
        """
        value = self._relations.variances.value
        exact = exact_variances(self.latents, self._relations)
        wrong = exact - self._ratio * value
        self._ratio = exact / value
        return wrong

    def half_log_ratio(self) -> Estimate:
        """Half the log ratio of prior to posterior volume."""
        return self._posterior.half_log_ratio(self._relations.half_log_ratio())

    def mean_error(self, slope: Floats, wrong: Floats | None) -> Floats:
        """What the errors of the variances do to the means, shape (n,), to first order.

        Parameters
        ----------
        slope : array, shape (m,)
            Of each row's pull ν − τ·mean in its variance.
        wrong : array, shape (m,), or None
            Error of each variance; None takes the samples' (the infinitesimal jackknife: each sample is left out in turn).
        """
        deviations = self._relations.deviations if wrong is None else wrong[:, None]
        if not deviations.size:
            return np.zeros(self.latents.size)
        pull = self.latents.projection.T @ (slope[:, None] * deviations)
        return np.asarray(np.sqrt(np.sum(self._posterior.matmul(pull) ** 2, axis=1)))

    def lasting(self) -> SparsePosterior:
        """Without the random numbers and the solutions that only further sweeps would need."""
        if self._noise is None:
            return self._posterior
        relations = Iterative(self.latents, self._posterior.weights, self._tol)
        return replace(self._posterior, relations=relations)


NO_FACTOR: Any = ()  # of a `Fit`: the host keeps it


def sites(precision: Any, shift: Any) -> Sites:
    """Sites on the host."""
    found: Any = Sites
    return found(np.asarray(precision, np.float64), np.asarray(shift, np.float64))


def marginals(mean: Any, variance: Any) -> Marginals:
    """Marginals on the host, before the determinant is known."""
    found: Any = Marginals
    return found(mean, variance, np.zeros(()))
