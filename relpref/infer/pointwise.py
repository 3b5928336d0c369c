"""What a program says of its answers at draws of its latent sites."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from relpref.errors import UnsupportedProgramError
from relpref.infer.layout import discover, sampled_layout
from relpref.infer.noncentered import BASE
from relpref.infer.observed import unwrap
from relpref.infer.posterior import Origin
from relpref.infer.program import Call, Layout, Values, gaussian_parts, in_double
from relpref.likelihoods import CentredNormal


def prepare(origin: Origin) -> tuple[Call, tuple[Any, ...], Layout]:
    """Split an origin's call for JAX and find its layout with no site fixed, also where no engine could treat it; inside ``enable_x64``."""
    call, arrays = Call.split(origin.program, origin.args, origin.kwargs)
    arrays = tuple(in_double(array) for array in arrays)
    try:
        return call, arrays, discover(call, arrays, {}).layout
    except UnsupportedProgramError:
        return call, arrays, sampled_layout(call, arrays)


@partial(jax.jit, static_argnums=(0, 1))
def answers(
    call: Call, layout: Layout, arrays: tuple[Any, ...], draws: Values, keys: Array
) -> tuple[Values, Values, Values]:
    """Log likelihood of the observed values, replicated values, and the observed values themselves, site by site.

    Parameters
    ----------
    draws : dict
        A value of every latent site and hyperparameter for each of s draws.
    keys : array of s keys

    Returns
    -------
    log_likelihood, replicated : dict from site to Array, shape (s, m)
        Of one answer of each row; labels that depend on each other (`CentredNormal`) each given the others.
    observed : dict from site to Array, shape (m,)
    """

    def one(inputs: tuple[Values, Array]) -> tuple[Values, Values]:
        values, key = inputs
        sites = call.trace(arrays, values)
        found = {name: _pointwise(**sites[name]) for name in layout.observed}
        parts = dict(zip(layout.observed, jax.random.split(key, len(layout.observed)), strict=True))
        return found, {name: sites[name]["fn"].sample(parts[name]) for name in layout.observed}

    first = call.trace(arrays, {name: value[0] for name, value in draws.items()})
    observed = {name: jnp.asarray(first[name]["value"]) for name in layout.observed}
    log_likelihood, replicated = jax.lax.map(one, (draws, keys))
    return log_likelihood, replicated, observed


def _pointwise(fn: Any, value: Any, **site: Any) -> Array:
    """Log density of every value by itself."""
    base = unwrap(fn)
    if isinstance(base, CentredNormal):
        return base.conditional_log_prob(value)
    return jnp.asarray(fn.log_prob(value))


def plate_dimensions(call: Call, arrays: tuple[Any, ...], values: Values) -> dict[str, list[str]]:
    """Names of the plates that a program's sites lie in, axis by axis; of sites whose every axis lies in one."""
    found: dict[str, list[str]] = {}

    def look(arrays: tuple[Any, ...], values: Values) -> None:
        for name, site in call.trace(arrays, values).items():
            axes = jnp.ndim(site["value"])
            if site["type"] == "sample" and axes:
                last = axes - site["fn"].event_dim
                named = {last + frame.dim: frame.name for frame in site["cond_indep_stack"]}
                if len(named) == axes:
                    found[name] = [named[axis] for axis in range(axes)]

    jax.eval_shape(look, arrays, values)
    return found


@partial(jax.jit, static_argnums=(0, 1, 4))
def latent_parts(
    call: Call, layout: Layout, arrays: tuple[Any, ...], draws: Values, fixed: bool = False
) -> tuple[Values, dict[str, dict[str, Array]]]:
    """Gaussian sites at each draw, and the expectation of their named parts given them, K_p K⁻¹ u.

    A site that was sampled whitened, as ``<site>_base``, is multiplied by the root of its covariance. With ``fixed`` hyperparameters are
    those of the first draw.
    """

    def one(values: Values) -> tuple[Values, dict[str, dict[str, Array]]]:
        placeholder = {name: jnp.zeros(shape) for name, shape in layout.latents}
        sites = call.trace(arrays, {**placeholder, **values})
        latents, parts = {}, {}
        for name, shape in layout.latents:
            location, covariance = gaussian_parts(sites[name]["fn"])
            root = covariance.root().lower
            value = (
                jnp.ravel(values[name])
                if name in values
                else location + root @ jnp.ravel(values[name + BASE])
            )
            latents[name] = jnp.reshape(value, shape)
            alpha = jax.scipy.linalg.cho_solve((root, True), value - location)
            named = getattr(covariance, "parts", {})
            raw = {part: operator.matmul(alpha) for part, operator in named.items()}
            # Jitter, where the covariance needed it, belongs to no part: share it out so that the parts add up to u.
            missing = (value - location - sum(raw.values(), jnp.zeros_like(value))) / max(len(raw), 1)
            parts[name] = {part: mean + missing for part, mean in raw.items()}
        return latents, parts

    if fixed:
        known = {name: draws[name][0] for name, _ in layout.hyperparameters}
        moving = {name: value for name, value in draws.items() if name not in known}
        return jax.vmap(lambda values: one({**known, **values}))(moving)
    return jax.lax.map(one, draws)
