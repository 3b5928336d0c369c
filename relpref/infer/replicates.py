"""Likelihood of observed values at draws of a program's sites, and replicates of these values."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.compiled import float64
from relpref.infer.call import Values
from relpref.infer.program import Program
from relpref.likelihoods import CentredNormal, as_likelihood
from relpref.likelihoods.tilted import unwrap


def replicates(
    origin: Any, draws: dict[str, Any], seed: int
) -> tuple[dict[str, Any], dict[str, list[str]], tuple[Any, Any, Any]]:
    """Draws of all sites in the program's shapes, their plates, and `answers` at each draw."""
    with float64():
        program = origin.read()
        layout = program.layout
        draws = draws | {name: draws[name].reshape(-1, *shape) for name, shape in layout.latents}
        first = {name: value[0] for name, value in draws.items()}
        keys = jax.random.split(jax.random.key(seed), len(next(iter(draws.values()))))
        kinds = () if program.arrow is None else program.arrow.kinds
        integrated = kinds[len(kinds) - len(layout.integrated) :]
        shares = [np.square(kind.entry).sum(axis=1) for kind in integrated]
        likelihoods = jax.device_get(answers(program, draws, keys, shares))
        return draws, plate_dimensions(program, first), likelihoods


@jax.jit
def answers(
    program: Program, draws: Values, keys: Array, shares: Sequence[Array]
) -> tuple[Values, Values, Values]:
    """Log likelihood and replicates of the observed values at s draws, and these values, by site.

    The first two have the shape (s, m), the values have the shape (m,). The likelihood is that of
    one answer of each row; labels that depend on each other (`CentredNormal`) are each given the
    others. Sites that are integrated out have variances of ``shares`` times their variance in the
    predictors; they are integrated out for each answer by itself, and other groups are drawn for
    replicates.
    """
    layout = program.layout

    def at_draw(inputs: tuple[Values, Array]) -> tuple[Values, Values]:
        values, key = inputs
        sites = program.call.trace(program.arrays, values)
        integrated = {name: sites[name]["fn"] for name, _ in layout.integrated}
        variance = sum(
            share * jnp.square(unwrap(fn).scale)
            for share, fn in zip(shares, integrated.values(), strict=True)
        )
        log_likelihood = {name: _pointwise(variance, **sites[name]) for name in layout.observed}
        drawn = {
            name: fn.sample(jax.random.fold_in(key, at))
            for at, (name, fn) in enumerate(integrated.items(), start=1)
        }
        sites = program.call.trace(program.arrays, {**values, **drawn}) if drawn else sites
        keys = dict(zip(layout.observed, jax.random.split(key, len(layout.observed)), strict=True))
        return log_likelihood, {
            name: sites[name]["fn"].sample(keys[name]) for name in layout.observed
        }

    values = {name: value[0] for name, value in draws.items()}
    first = program.call.trace(program.arrays, values)
    observed = {name: jnp.asarray(first[name]["value"]) for name in layout.observed}
    return *jax.lax.map(at_draw, (draws, keys)), observed


def _pointwise(variance: Any, fn: Any, value: Any, **site: Any) -> Array:
    """Log density of every value by itself, where the predictors have a variance."""
    base = unwrap(fn)
    if jnp.ndim(variance):
        likelihood = as_likelihood(base)
        return likelihood.tilted(value, likelihood.predictor, variance).log_normalizer
    if isinstance(base, CentredNormal):
        return base.conditional_log_prob(value)
    return jnp.asarray(fn.log_prob(value))


def plate_dimensions(program: Program, values: Values) -> dict[str, list[str]]:
    """Names of the plates of a program's sites, axis by axis.

    Sites with an axis outside of plates are left out.
    """
    plates: dict[str, list[str]] = {}

    def look(program: Program, values: Values) -> None:
        for name, site in program.call.trace(program.arrays, values).items():
            axes = jnp.ndim(site["value"])
            if site["type"] == "sample" and axes:
                last = axes - site["fn"].event_dim
                named = {last + frame.dim: frame.name for frame in site["cond_indep_stack"]}
                if len(named) == axes:
                    plates[name] = [named[axis] for axis in range(axes)]

    jax.eval_shape(look, program, values)
    return plates
