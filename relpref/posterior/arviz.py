"""Posteriors as ArviZ knows them.

Inside, relpref uses the split packages (arviz-base), which have one DataTree API on every Python;
`native` turns a tree into what the ArviZ that is installed works on.
"""

import json
import platform
from typing import Any, NamedTuple

import numpy as np

from relpref._version import __version__
from relpref.result import CODES


class Groups(NamedTuple):
    """Contents of a DataTree.

    Arrays by group and variable, labels by dimension, and dimensions (after chain and draw) by
    variable.
    """

    groups: dict[str, dict[str, Any]]
    coords: dict[str, Any]
    dims: dict[str, list[str]]


# What numpyro and ArviZ call the same thing.
_SAMPLER = {
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "adapt_state.step_size": "step_size",
}
# Independent draws are laid out as so many chains: with one, ArviZ's diagnostics have nothing to
# compare.
CHAINS = 4


def native(tree: Any) -> Any:
    """A DataTree as the type of the ArviZ that is installed: `InferenceData` where that is 0.x."""
    import arviz

    new = int(arviz.__version__.split(".")[0]) >= 1
    return tree if new else arviz.InferenceData.from_datatree(tree)


def draw_groups(posterior: Any, num_samples: int, rng_key: Any) -> Groups:
    """Draws of sites and hyperparameters, and answers where the program is available."""
    rng = posterior._rng(rng_key)
    belief, weights = posterior.full, posterior.full.weights
    as_it_is = belief.equal  # the draws, or one of each component
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
        return {
            name: np.reshape(v, (chains, per_chain, *np.shape(v)[1:])) for name, v in values.items()
        }

    groups: dict[str, Any] = {}
    dims: dict[str, list[str]] = {}
    if posterior.origin is not None:
        from relpref.infer.replicates import replicates

        draws, dims, (log_likelihood, replicated, observed) = replicates(
            posterior.origin, draws, int(rng.integers(2**31))
        )
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
    for name, value in posterior.full.sampler.items() if posterior.sampled else ():
        kept = value[: chains * per_chain].reshape(chains, per_chain)
        statistics[_SAMPLER.get(name, name)] = kept.astype(bool) if name == "diverging" else kept
    return statistics


def tree(posterior: Any, content: Groups) -> Any:
    """Build the DataTree, with versions, seed and engine as attributes.

    It has no time stamp, so that equal input gives equal bytes.
    """
    import arviz_base
    import jax
    import numpyro

    dims = {
        n: named
        for n, named in content.dims.items()
        if any(n in group for group in content.groups.values())
    }
    used = {dimension for named in dims.values() for dimension in named}
    coords = {name: values for name, values in content.coords.items() if name in used}
    datatree = arviz_base.from_dict(content.groups, coords=coords, dims=dims)
    for group in datatree.subtree:
        group.attrs.pop("created_at", None)
    datatree.attrs |= {
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
        datatree.attrs["log_evidence"] = posterior.log_evidence
    return datatree
