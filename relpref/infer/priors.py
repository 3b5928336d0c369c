"""Densities of priors and maps to their supports, with derivatives, on arrays of NumPy."""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from numpy.typing import NDArray
from numpyro.distributions import transforms
from numpyro.distributions.transforms import biject_to
from scipy.special import betaln, digamma, expit, gammaln, logit, ndtr, ndtri, xlog1py, xlogy

from relpref.likelihoods.tilted import unwrap

Floats = NDArray[np.float64]


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
    names = list(signature(density).parameters)[1:]
    form = Form(*_MAPS[type(transform)], density, _QUANTILES.get(type(base)))
    return form, {name: getattr(base, name) for name in names}
