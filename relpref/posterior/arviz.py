"""Posteriors as ArviZ knows them.

Inside, relpref uses the split packages (arviz-base), which have one DataTree API on every Python; `native` turns a tree into what
the ArviZ that is installed works on.
"""

import json
import platform
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref._version import __version__
from relpref.infer.program import Call, Layout, Values
from relpref.infer.result import CODES
from relpref.likelihoods import CentredNormal
from relpref.likelihoods.tilted import unwrap
from relpref.posterior.gaussian import generator


class Groups(NamedTuple):
    """What a DataTree is made of: arrays by group and variable, labels by dimension, and dimensions after chain and draw by variable."""

    groups: dict[str, dict[str, Any]]
    coords: dict[str, Any]
    dims: dict[str, list[str]]


@partial(jax.jit, static_argnums=(0, 1))
def answers(
    call: Call, layout: Layout, arrays: tuple[Any, ...], draws: Values, keys: Array
) -> tuple[Values, Values, Values]:
    """Log likelihood and replicates of the observed values at each of s draws, shape (s, m), and these values, shape (m,), by site.

    The likelihood is that of one answer of each row; labels that depend on each other (`CentredNormal`) are each given the others.
    """

    def one(inputs: tuple[Values, Array]) -> tuple[Values, Values]:
        values, key = inputs
        sites = call.trace(arrays, values)
        log_likelihood = {name: _pointwise(**sites[name]) for name in layout.observed}
        keys = dict(zip(layout.observed, jax.random.split(key, len(layout.observed)), strict=True))
        return log_likelihood, {name: sites[name]["fn"].sample(keys[name]) for name in layout.observed}

    first = call.trace(arrays, {name: value[0] for name, value in draws.items()})
    observed = {name: jnp.asarray(first[name]["value"]) for name in layout.observed}
    return *jax.lax.map(one, (draws, keys)), observed


def _pointwise(fn: Any, value: Any, **site: Any) -> Array:
    """Log density of every value by itself."""
    base = unwrap(fn)
    if isinstance(base, CentredNormal):
        return base.conditional_log_prob(value)
    return jnp.asarray(fn.log_prob(value))


def plate_dimensions(call: Call, arrays: tuple[Any, ...], values: Values) -> dict[str, list[str]]:
    """Names of the plates that a program's sites lie in, axis by axis; of sites whose every axis lies in one."""
    plates: dict[str, list[str]] = {}

    def look(arrays: tuple[Any, ...], values: Values) -> None:
        for name, site in call.trace(arrays, values).items():
            axes = jnp.ndim(site["value"])
            if site["type"] == "sample" and axes:
                last = axes - site["fn"].event_dim
                named = {last + frame.dim: frame.name for frame in site["cond_indep_stack"]}
                if len(named) == axes:
                    plates[name] = [named[axis] for axis in range(axes)]

    jax.eval_shape(look, arrays, values)
    return plates


# What numpyro and ArviZ call the same thing.
_SAMPLER = {"accept_prob": "acceptance_rate", "num_steps": "n_steps", "adapt_state.step_size": "step_size"}
CHAINS = 4  # independent draws are laid out as so many chains: with one, ArviZ's diagnostics have nothing to compare


def native(tree: Any) -> Any:
    """A DataTree as the type of the ArviZ that is installed: `InferenceData` where that is 0.x."""
    import arviz

    new = int(arviz.__version__.split(".")[0]) >= 1
    return tree if new else arviz.InferenceData.from_datatree(tree)


def draw_groups(posterior: Any, num_samples: int, rng_key: Any) -> Groups:
    """Draws of a posterior's sites and hyperparameters, and where its program is known of its answers."""
    rng = generator(posterior.key if rng_key is None else rng_key)
    belief, weights = posterior.belief, posterior.belief.weights
    as_it_is = len(weights) > 1 and not np.ptp(weights)  # the draws, or one of each component
    chains = posterior.chains if as_it_is else CHAINS
    per_chain = (len(weights) if as_it_is else num_samples) // chains
    total = chains * per_chain
    if len(belief.components) > 1 and not as_it_is:
        # Weighted components are resampled, each draw with the hyperparameters of its own.
        which = rng.permutation(belief.draw_components(total, rng))
        vector = np.concatenate([belief.components[component].draw(1, rng) for component in which])
    else:
        which = np.arange(total)
        vector = belief.draw(len(weights) if as_it_is else total, rng)[:total]
    draws = {name: vector[:, rows] for name, rows in posterior.slices.items()}
    for name, value in posterior.hyperparameters.items():
        repeated = np.broadcast_to(np.asarray(value), (total, *np.shape(value)))
        drawn = posterior.hyperparameter_draws.get(name)
        draws[name] = repeated if drawn is None else drawn[which]

    def by_chain(values: dict[str, Any]) -> dict[str, Any]:
        return {name: np.reshape(v, (chains, per_chain, *np.shape(v)[1:])) for name, v in values.items()}

    groups: dict[str, Any] = {}
    dims: dict[str, list[str]] = {}
    if posterior.origin is not None:
        with jax.enable_x64(True):
            program = posterior.origin.read()
            call, arrays, layout = program.call, program.arrays, program.layout
            keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(vector))
            draws |= {name: draws[name].reshape(-1, *shape) for name, shape in layout.latents}
            dims = plate_dimensions(call, arrays, {name: value[0] for name, value in draws.items()})
            log_likelihood, replicated, observed = jax.device_get(answers(call, layout, arrays, draws, keys))
        groups["posterior_predictive"] = by_chain(replicated)
        groups["log_likelihood"] = by_chain(log_likelihood)
        groups["observed_data"] = observed
    statistics = sample_stats(posterior, chains, per_chain)
    return Groups({"posterior": by_chain(draws), **groups, "sample_stats": statistics}, {}, dims)


def plain_coordinates(labels: tuple[Any, ...]) -> list[Any]:
    """Labels as a coordinate can hold them: integers as they are, anything else as text."""
    if all(type(label) is int for label in labels):
        return list(labels)
    return [label if isinstance(label, str) else str(label) for label in labels]


def sample_stats(posterior: Any, chains: int, per_chain: int) -> dict[str, Any]:
    """The engine's own numbers, the same for every draw, and a sampler's, draw by draw."""
    info = posterior.info
    numbers = {name: info[name] for name in ("residual", "damping") if name in info}
    if "iterations" in info:
        numbers["sweeps" if "damping" in info else "iterations"] = info["iterations"]
    numbers |= {"code": CODES.index(posterior.result), "converged": posterior.converged}
    statistics = {name: np.full((chains, per_chain), value) for name, value in numbers.items()}
    for name, value in posterior.belief.sampler.items() if posterior.sampled else ():
        kept = value[: chains * per_chain].reshape(chains, per_chain)
        statistics[_SAMPLER.get(name, name)] = kept.astype(bool) if name == "diverging" else kept
    return statistics


def tree(posterior: Any, content: Groups) -> Any:
    """The DataTree, with versions, seed and engine as attributes; without ArviZ's time stamp, so that equal input gives equal bytes."""
    import arviz_base
    import numpyro

    dims = {
        n: named for n, named in content.dims.items() if any(n in group for group in content.groups.values())
    }
    wanted = {dimension for named in dims.values() for dimension in named}
    coords = {name: values for name, values in content.coords.items() if name in wanted}
    made = arviz_base.from_dict(content.groups, coords=coords, dims=dims)
    for group in made.subtree:
        group.attrs.pop("created_at", None)
    made.attrs |= {
        "inference_library": "relpref",
        "inference_library_version": __version__,
        "arviz_base_version": arviz_base.__version__,
        "jax_version": jax.__version__,
        "numpyro_version": numpyro.__version__,
        "python_version": platform.python_version(),
        "random_key": json.dumps(posterior.key.tolist()),
        "engine": posterior.engine,
        "result": posterior.result.name,
    }
    if posterior.log_evidence is not None:
        made.attrs["log_evidence"] = posterior.log_evidence
    return made
