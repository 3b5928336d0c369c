"""Answers that are themselves probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from relpref.likelihoods.comparison import Comparison
from relpref.likelihoods.tilted import TiltedMoments


class SoftComparison(Comparison):
    """A reported probability p that the first is the better: Φ⁻¹(p) = gap + shift + scale·ε, ε standard normal.

    A rater who is asked how sure they are sees the gap with an error, and reports what `ProbitComparison` makes of it. A report of 0.9
    says that the gap is near Φ⁻¹(0.9) = 1.28, with more force the smaller ``scale`` is; it is not nine answers out of ten.

    Parameters
    ----------
    gap, scale, shift
        As in `Comparison`; ``scale`` is the error of a report.

    Notes
    -----
    On the probit scale the answer is Gaussian, so expectation propagation on it is exact. The log density is that of p itself: a
    proper one, with the Jacobian 1/φ(Φ⁻¹(p)).
    """

    support = constraints.open_interval(0.0, 1.0)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw reports; never 0 or 1, to which Φ is rounded far out."""
        noise = jax.random.normal(key, sample_shape + self.batch_shape, self.gap.dtype)
        limits = np.finfo(noise.dtype)
        report = ndtr(self.gap + self.shift + self.scale * noise)
        return jnp.clip(report, limits.tiny, 1 - limits.epsneg)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return the log density of p."""
        return self.tilted(jnp.asarray(value), self.gap, jnp.zeros_like(self.gap)).log_normalizer

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """The gap that is reported, Φ⁻¹(p) − shift, and 1/scale²."""
        peak = ndtri(value) - self.shift
        return peak, jnp.broadcast_to(1 / jnp.square(self.scale), jnp.shape(peak))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of the product of two Gaussians; of the density of p."""
        report = ndtri(value)
        total = 1 + variance
        error = report / self.scale - mean
        log_density = -0.5 * (jnp.square(error) / total + jnp.log(total)) - jnp.log(self.scale)
        return TiltedMoments(log_density + 0.5 * jnp.square(report), error / total, 1 / total)

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectations over the next report, where the gap is N(mean, variance).

        Returns
        -------
        dict
            ``probability``: of the report itself, E[Φ(gap + shift + scale·ε)].
        """
        spread = jnp.sqrt(1 + jnp.square(self.scale) + variance)
        return {"probability": ndtr((mean + self.shift) / spread)}
