"""Prior medians of hyperparameters, where searches start."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.transforms import biject_to
from scipy import special

from relpref.compiled import compiled
from relpref.infer.call import Call, Values
from relpref.infer.layout import Layout
from relpref.likelihoods.tilted import prior_quantile, unwrap

# Unconstrained medians by NumPy, or means of families without a quantile function, and the
# parameters that they depend on.
_MEDIANS: dict[type, tuple[Callable[..., Any], tuple[str, ...]]] = {
    dist.Normal: (lambda loc: loc, ("loc",)),
    dist.LogNormal: (lambda loc: loc, ("loc",)),
    dist.HalfNormal: (lambda scale: np.log(scale * special.ndtri(0.75)), ("scale",)),
    dist.Weibull: (
        lambda scale, shape: np.log(scale) + special.gammaln(1 + 1 / shape),
        ("scale", "concentration"),
    ),
    dist.InverseGamma: (
        lambda shape, rate: np.log(rate / special.gammaincinv(shape, 0.5)),
        ("concentration", "rate"),
    ),
    dist.Beta: (lambda first, second: np.log(first / second), ("concentration1", "concentration0")),
    dist.Kumaraswamy: (
        lambda first, second: special.logit(second * special.beta(1 + 1 / first, second)),
        ("concentration1", "concentration0"),
    ),
}


def median_by_numpy(prior: dist.Distribution) -> Any:
    """The `median` of a prior; None if NumPy does not know it."""
    family, parameters = _MEDIANS.get(type(unwrap(prior)), (None, ()))
    values = [getattr(unwrap(prior), parameter) for parameter in parameters]
    if family is None or any(isinstance(value, jax.Array) for value in values):
        return None
    return np.broadcast_to(family(*values), prior.shape())


@compiled(static_argnums=(0, 1, 2))
def medians_by_jax(
    call: Call, names: tuple[str, ...], layout: Layout, arrays: tuple[Any, ...], fixed: Values
) -> Values:
    """Medians of the priors of sites, each given those of the sites before; see `median`."""
    latents = layout.unravel(jnp.zeros(layout.num_latents))
    sites = call.trace(arrays, {**fixed, **latents}, standard=dict.fromkeys(names, 0.0))
    return {name: median(sites[name]) for name in names}


def median(site: Values) -> Array:
    """Unconstrained median of a site's prior.

    Without a quantile function it is the prior's mean, or the site's value where there is none.
    """
    prior, middle = site["fn"], prior_quantile(site["fn"], 0.5)
    into = biject_to(prior.support).inv
    if middle is not None:
        return into(middle)
    value = into(site["value"])
    try:
        mean = into(prior.mean)
    except NotImplementedError:
        return value
    return jnp.where(jnp.isfinite(mean), mean, value)
