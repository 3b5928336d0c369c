"""Priors of hyperparameters: densities and maps to supports with derivatives, and medians.

Where NumPy does not know them, JAX does.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import transforms
from numpyro.distributions.transforms import biject_to
from scipy.special import (
    beta,
    betaln,
    digamma,
    expit,
    gammaincinv,
    gammaln,
    logit,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)

from relpref.compiled import compiled
from relpref.data.arrays import Floats
from relpref.infer.call import Values
from relpref.likelihoods.tilted import prior_quantile, unwrap

Program = Any  # of `relpref.infer.program`, which builds on this module


class Mapped(NamedTuple):
    """Unconstrained numbers on a support, entry by entry."""

    value: Floats
    slope: Floats
    log_slope: Floats
    slope_of_log: Floats  # derivative of ``log_slope``


def _identity(raw: Floats) -> Mapped:
    return Mapped(raw, np.ones_like(raw), np.zeros_like(raw), np.zeros_like(raw))


def _exp(raw: Floats) -> Mapped:
    value = np.exp(raw)
    return Mapped(value, value, raw, np.ones_like(raw))


def _sigmoid(raw: Floats) -> Mapped:
    limits = np.finfo(float)
    value = np.clip(expit(raw), limits.tiny, 1 - limits.eps)
    log_slope = -np.logaddexp(0.0, raw) - np.logaddexp(0.0, -raw)
    return Mapped(value, value * (1 - value), log_slope, 1 - 2 * value)


# Maps to supports, and their inverse functions.
_MAPS: dict[type, tuple[Callable[[Floats], Mapped], Callable[[Floats], Floats]]] = {
    transforms.IdentityTransform: (_identity, np.copy),
    transforms.ExpTransform: (_exp, np.log),
    transforms.SigmoidTransform: (_sigmoid, logit),
}


# Log density, its derivative in the value, and those in the parameters by name, entry by entry.
Density = tuple[Any, Any, dict[str, Any]]


def _normal(value: Any, loc: Any, scale: Any) -> Density:
    z = (value - loc) / scale
    log_density = -0.5 * (z**2 + np.log(2 * np.pi)) - np.log(scale)
    return log_density, -z / scale, {"loc": z / scale, "scale": (z**2 - 1) / scale}


def _half_normal(value: Any, scale: Any) -> Density:
    log_density, slope, slopes = _normal(value, 0.0, scale)
    return log_density + np.log(2.0), slope, {"scale": slopes["scale"]}


def _log_normal(value: Any, loc: Any, scale: Any) -> Density:
    log_density, slope, slopes = _normal(np.log(value), loc, scale)
    return log_density - np.log(value), (slope - 1) / value, slopes


def _weibull(value: Any, scale: Any, concentration: Any) -> Density:
    log_ratio = np.log(value / scale)
    power = np.exp(concentration * log_ratio)
    log_density = np.log(concentration / scale) + (concentration - 1) * log_ratio - power
    slopes = {
        "scale": concentration * (power - 1) / scale,
        "concentration": 1 / concentration + log_ratio * (1 - power),
    }
    return log_density, (concentration - 1 - concentration * power) / value, slopes


def _kumaraswamy(value: Any, concentration1: Any, concentration0: Any) -> Density:
    power = value**concentration1
    odds = (concentration0 - 1) * power / (1 - power)
    log_density = (
        np.log(concentration1 * concentration0)
        + xlogy(concentration1 - 1, value)
        + xlog1py(concentration0 - 1, -power)
    )
    slopes = {
        "concentration1": 1 / concentration1 + np.log(value) * (1 - odds),
        "concentration0": 1 / concentration0 + np.log1p(-power),
    }
    return log_density, (concentration1 - 1 - concentration1 * odds) / value, slopes


def _beta(value: Any, concentration1: Any, concentration0: Any) -> Density:
    log_density = (
        xlogy(concentration1 - 1, value)
        + xlog1py(concentration0 - 1, -value)
        - betaln(concentration1, concentration0)
    )
    total = digamma(concentration1 + concentration0)
    slopes = {
        "concentration1": np.log(value) - digamma(concentration1) + total,
        "concentration0": np.log1p(-value) - digamma(concentration0) + total,
    }
    slope = (concentration1 - 1) / value - (concentration0 - 1) / (1 - value)
    return log_density, slope, slopes


def _gamma(value: Any, concentration: Any, rate: Any) -> Density:
    log_density = (
        xlogy(concentration, rate)
        + xlogy(concentration - 1, value)
        - rate * value
        - gammaln(concentration)
    )
    slopes = {
        "concentration": np.log(rate * value) - digamma(concentration),
        "rate": concentration / rate - value,
    }
    return log_density, (concentration - 1) / value - rate, slopes


def _inverse_gamma(value: Any, concentration: Any, rate: Any) -> Density:
    log_density, slope, slopes = _gamma(1 / value, concentration, rate)
    return log_density - 2 * np.log(value), -(slope / value + 2) / value, slopes


def _exponential(value: Any, rate: Any) -> Density:
    return np.log(rate) - rate * value, -rate, {"rate": 1 / rate - value}


_DENSITIES: dict[type, Callable[..., Density]] = {
    dist.Normal: _normal,
    dist.HalfNormal: _half_normal,
    dist.LogNormal: _log_normal,
    dist.Weibull: _weibull,
    dist.Kumaraswamy: _kumaraswamy,
    dist.Beta: _beta,
    dist.Gamma: _gamma,
    dist.InverseGamma: _inverse_gamma,
    dist.Exponential: _exponential,
}


# Quantiles at Φ(z), and their derivatives in the parameters.
Quantile = Callable[..., tuple[Any, dict[str, Any]]]


def _normal_quantile(z: Any, loc: Any, scale: Any) -> tuple[Any, dict[str, Any]]:
    return loc + scale * z, {"loc": np.ones_like(scale * z), "scale": z}


def _half_normal_quantile(z: Any, scale: Any) -> tuple[Any, dict[str, Any]]:
    unit = -ndtri(0.5 * ndtr(-z))
    return scale * unit, {"scale": unit}


def _log_normal_quantile(z: Any, loc: Any, scale: Any) -> tuple[Any, dict[str, Any]]:
    value = np.exp(loc + scale * z)
    return value, {"loc": value, "scale": z * value}


_QUANTILES: dict[type, Quantile] = {
    dist.Normal: _normal_quantile,
    dist.HalfNormal: _half_normal_quantile,
    dist.LogNormal: _log_normal_quantile,
}


class Form(NamedTuple):
    """The form of a hyperparameter's prior."""

    map: Callable[[Floats], Mapped]
    inverse: Callable[[Floats], Floats]
    density: Callable[..., Density]
    quantile: Quantile | None


def form_of(prior: dist.Distribution) -> tuple[Form, dict[str, Any]] | None:
    """The form of a prior, and its parameters by name; None where JAX alone knows it."""
    base, transform = unwrap(prior), biject_to(prior.support)
    while isinstance(transform, transforms.IndependentTransform):
        transform = transform.base_transform
    if type(base) not in _DENSITIES or type(transform) not in _MAPS:
        return None
    density = _DENSITIES[type(base)]
    form = Form(*_MAPS[type(transform)], density, _QUANTILES.get(type(base)))
    return form, _parameters(density, prior)


def _parameters(function: Callable[..., Any], prior: dist.Distribution) -> dict[str, Any]:
    """The parameters of a prior that a function takes, except for the prior's value."""
    names = [name for name in signature(function).parameters if name != "value"]
    return {name: getattr(unwrap(prior), name) for name in names}


# Unconstrained medians by NumPy, or means of families without a quantile function.
_MEDIANS: dict[type, Callable[..., Any]] = {
    dist.Normal: lambda loc: loc,
    dist.LogNormal: lambda loc: loc,
    dist.HalfNormal: lambda scale: np.log(scale * ndtri(0.75)),
    dist.Weibull: lambda scale, concentration: np.log(scale) + gammaln(1 + 1 / concentration),
    dist.InverseGamma: lambda concentration, rate: np.log(rate / gammaincinv(concentration, 0.5)),
    dist.Beta: lambda concentration1, concentration0: np.log(concentration1 / concentration0),
    dist.Kumaraswamy: lambda concentration1, concentration0: logit(
        concentration0 * beta(1 + 1 / concentration1, concentration0)
    ),
}


def median_by_numpy(prior: dist.Distribution) -> Any:
    """The `median` of a prior; None if NumPy does not know it."""
    family = _MEDIANS.get(type(unwrap(prior)))
    if family is None:
        return None
    values = _parameters(family, prior)
    if any(isinstance(value, jax.Array) for value in values.values()):
        return None
    return np.broadcast_to(family(**values), prior.shape())


@compiled(static_argnums=1)
def medians_by_jax(program: Program, names: tuple[str, ...]) -> Values:
    """Medians of the priors of sites, each given those of the sites before; see `median`."""
    values = program.fixed | program.layout.unravel(jnp.zeros(program.layout.num_latents))
    sites = program.call.trace(program.arrays, values, standard=dict.fromkeys(names, 0.0))
    return {name: median(sites[name]) for name in names}


def median(site: Values) -> Any:
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
