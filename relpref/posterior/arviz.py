"""Posteriors as ArviZ knows them.

Inside, relpref uses the split packages (arviz-base), which have one DataTree API on every Python; `native` turns a tree into what
the ArviZ that is installed works on.
"""

import json
import platform
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.data import RelationData
from relpref.infer.program import (
    BASE,
    Call,
    Layout,
    Program,
    Values,
    gaussian_parts,
)
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Result, code
from relpref.likelihoods import CentredNormal
from relpref.likelihoods.tilted import unwrap
from relpref.posterior.base import Origin, Posterior
from relpref.posterior.classes import ClassPosterior, example_labels
from relpref.posterior.gaussian import DrawsBelief, MixtureBelief, generator
from relpref.posterior.utility import UtilityPosterior


def prepare(origin: Origin) -> tuple[Call, tuple[Any, ...], Layout]:
    """Split an origin's call for JAX and find its layout with no site fixed, also where no engine could treat it; inside ``enable_x64``."""
    program = Program.for_samples(origin.program, origin.args, origin.kwargs)
    return program.call, program.arrays, program.layout


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


# What numpyro and ArviZ call the same thing.
_SAMPLER = {"accept_prob": "acceptance_rate", "num_steps": "n_steps", "adapt_state.step_size": "step_size"}
_CHAINS = 4  # independent draws are laid out as so many chains: with one, ArviZ's diagnostics have nothing to compare


def native(tree: Any) -> Any:
    """A DataTree as the type of the ArviZ that is installed: `InferenceData` where that is 0.x."""
    import arviz

    if int(arviz.__version__.split(".")[0]) >= 1:
        return tree
    convert: Any = arviz.InferenceData.from_datatree
    return convert(tree)


def to_datatree(posterior: Posterior, num_samples: int = 1000, key: Any = None) -> Any:
    """Convert; see `Posterior.to_datatree`."""
    if isinstance(posterior, UtilityPosterior):
        posterior = _one_by_one(posterior)
    rng = generator(posterior.key if key is None else key)
    total = num_samples
    belief = posterior.belief
    sampled = len(belief.weights) > 1 and not np.ptp(belief.weights)
    if sampled:
        total = len(belief.weights)  # the draws, or one of each component
    chains = posterior.chains if sampled else _CHAINS
    per_chain = total // chains
    total = chains * per_chain
    if isinstance(belief, MixtureBelief) and not sampled:
        # Weighted components are resampled, each draw with the hyperparameters of its own.
        which = rng.permutation(belief.draw_components(total, rng))
        vector = np.concatenate([belief.components[component].draw(1, rng) for component in which])
    else:
        which = np.arange(total)
        vector = belief.draw(len(belief.weights) if sampled else total, rng)[:total]
    draws = {name: vector[:, rows] for name, rows in posterior.slices.items()}
    for name, value in posterior.hyperparameters.items():
        repeated = np.broadcast_to(np.asarray(value), (total, *np.shape(value)))
        drawn = posterior.hyperparameter_draws.get(name)
        draws[name] = repeated if drawn is None else drawn[which]

    def by_chain(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: np.reshape(value, (chains, per_chain, *np.shape(value)[1:]))
            for name, value in values.items()
        }

    groups: dict[str, Any] = {}
    dims: dict[str, list[str]] = {}
    if posterior.origin is not None:
        with jax.enable_x64(True):
            call, arrays, layout = prepare(posterior.origin)
            keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(vector))
            draws |= {name: draws[name].reshape(-1, *shape) for name, shape in layout.latents}
            dims = plate_dimensions(call, arrays, {name: value[0] for name, value in draws.items()})
            found = answers(call, layout, arrays, draws, keys)
            log_likelihood, replicated, observed = (
                {n: np.asarray(v) for n, v in group.items()} for group in found
            )
        groups["posterior_predictive"] = by_chain(replicated)
        groups["log_likelihood"] = by_chain(log_likelihood)
        groups["observed_data"] = observed
    groups = {
        "posterior": by_chain(draws),
        **groups,
        "sample_stats": _statistics(posterior, chains, per_chain),
    }
    coords: dict[str, Any] = {}
    if isinstance(posterior, UtilityPosterior):
        _name_utilities(posterior, groups, coords, dims)
    if isinstance(posterior, ClassPosterior):
        _name_classes(posterior, groups, coords, dims)
    elif "score" in posterior.slices and (relation := relation_data(posterior.origin)) is not None:
        _name_scores(relation, groups, coords, dims)
    return _tree(posterior, groups, coords, dims)


def _name_utilities(
    posterior: UtilityPosterior, groups: dict[str, Any], coords: dict[str, Any], dims: dict[str, list[str]]
) -> None:
    """What was compared, by the user's labels."""
    data = posterior.data
    coords["entity"] = plain_coordinates(data.entities)
    coords["attribute"] = list(data.attribute_names)
    coords["rater"] = plain_coordinates(data.comparisons.raters)
    dims |= {"utility": ["entity"], "attributes": ["entity", "attribute"], "rater_noise": ["rater"]}
    if np.ndim(posterior.hyperparameters.get("attributes_lengthscale", 0.0)) == 1:
        dims["attributes_lengthscale"] = ["attribute"]
    if "observed_data" in groups:
        groups["constant_data"] = _constants(posterior)
        asked = (*groups["observed_data"], *groups["constant_data"])
        dims |= {name: ["comparison"] for name in asked if name != "attributes"}
        coords["comparison"] = np.arange(data.num_comparisons)


def _name_classes(
    posterior: ClassPosterior, groups: dict[str, Any], coords: dict[str, Any], dims: dict[str, list[str]]
) -> None:
    """Who is classified, by the user's labels; an example is one observation, however many decisions led to its class."""
    coords["example"] = plain_coordinates(example_labels(posterior.data))
    coords["class"] = plain_coordinates(posterior.classes[:-1])
    dims |= {"decision": ["example", "class"], "intercept": ["class"], "weight": ["class", "feature"]}
    if "log_likelihood" in groups:
        decisions = groups["log_likelihood"].pop("decision")
        groups["log_likelihood"]["label"] = decisions.sum(axis=-1)
        dims["label"] = ["example"]


def relation_data(origin: Origin | None) -> RelationData | None:
    """The relation among a program's arguments."""
    given = () if origin is None else (*origin.args, *origin.kwargs.values())
    return next((value for value in given if isinstance(value, RelationData)), None)


def _name_scores(
    data: RelationData, groups: dict[str, Any], coords: dict[str, Any], dims: dict[str, list[str]]
) -> None:
    """Every pair's score, by the labels of its conditioning node and object."""
    coords["node"] = plain_coordinates(data.nodes.entities)
    coords["object"] = plain_coordinates((data.nodes if data.objects is None else data.objects).entities)
    scores = groups["posterior"]["score"]
    if scores.shape[2:] != (len(coords["node"]) * len(coords["object"]),):
        return  # of a program that means something else by the word
    groups["posterior"]["score"] = scores.reshape(*scores.shape[:2], len(coords["node"]), -1)
    dims["score"] = ["node", "object"]
    if "label" in groups.get("observed_data", {}):
        dims["label"] = ["edge"]


def relation_to_datatree(
    posterior: RelationPosterior, query: Any, objects: Any, num_samples: int, key: Any
) -> Any:
    """Convert; see `RelationPosterior.to_datatree`."""
    rng = generator(posterior.key if key is None else key)
    per_chain = max(num_samples // _CHAINS, 1)
    belief = posterior.belief(query, objects)
    draws = belief.draw(_CHAINS * per_chain, rng).reshape(_CHAINS, per_chain, -1)
    noise = np.sqrt(posterior.label_variance) * rng.standard_normal(draws.shape)
    numbers = {
        name: np.broadcast_to(np.asarray(value), (_CHAINS, per_chain, *np.shape(value)))
        for name, value in posterior.hyperparameters.items()
    }
    groups = {
        "posterior": {"score": draws, **numbers},
        "posterior_predictive": {"next_label": draws + noise},
        "sample_stats": _statistics(posterior, _CHAINS, per_chain),
    }
    names = plain_coordinates(posterior.objects.ask(objects).labels)
    coords = {"object": names}
    known, labels = posterior.labels_of(query, objects)
    if len(known):
        groups["posterior_predictive"]["label"] = (draws + noise)[..., known]
        groups["log_likelihood"] = {"label": posterior.log_likelihood(draws[..., known], labels)}
        groups["observed_data"] = {"label": labels}
        coords["labelled"] = [names[position] for position in known]
    groups["constant_data"] = {"label_sd": np.sqrt(posterior.label_variance)}
    dims = {"score": ["object"], "next_label": ["object"], "label": ["labelled"]}
    return _tree(posterior, groups, coords, dims)


def plain_coordinates(labels: tuple[Any, ...]) -> list[Any]:
    """Labels as a coordinate can hold them: integers as they are, anything else as text."""
    if all(type(label) is int for label in labels):
        return list(labels)
    return [label if isinstance(label, str) else str(label) for label in labels]


def _one_by_one(posterior: UtilityPosterior) -> UtilityPosterior:
    """The posterior with every answer in a row of its own: a row of count k has k replicates, not one k times."""
    data = replace(posterior.data, comparisons=posterior.data.comparisons.single())
    origin = posterior.origin
    if origin is not None:
        args = tuple(data if value is posterior.data else value for value in origin.args)
        kwargs = {name: data if value is posterior.data else value for name, value in origin.kwargs.items()}
        origin = replace(origin, args=args, kwargs=kwargs)
    return replace(posterior, data=data, origin=origin)


def _constants(posterior: UtilityPosterior) -> dict[str, Any]:
    labels = np.asarray(plain_coordinates(posterior.data.entities))
    answers = posterior.data.comparisons
    constants = {"winner": labels[answers.winner], "loser": labels[answers.loser]}
    if answers.rater is not None:
        constants["rater"] = np.asarray(plain_coordinates(answers.raters))[answers.rater]
    if posterior.data.attributes.shape[1]:
        constants["attributes"] = posterior.data.attributes
    return constants


def _statistics(posterior: Posterior | RelationPosterior, chains: int, per_chain: int) -> dict[str, Any]:
    """The engine's own numbers, the same for every draw, and a sampler's, draw by draw."""
    info = posterior.info
    numbers = {name: info[name] for name in ("residual", "damping") if name in info}
    if "iterations" in info:
        numbers["sweeps" if "damping" in info else "iterations"] = info["iterations"]
    result = Result[info["result"]]
    numbers |= {"code": code(result), "converged": result.ok}
    found = {name: np.full((chains, per_chain), value) for name, value in numbers.items()}
    belief = getattr(posterior, "belief", None)
    if isinstance(belief, DrawsBelief):
        for name, value in belief.sampler.items():
            kept = value[: chains * per_chain].reshape(chains, per_chain)
            found[_SAMPLER.get(name, name)] = kept.astype(bool) if name == "diverging" else kept
    return found


def _tree(
    posterior: Posterior | RelationPosterior,
    groups: dict[str, Any],
    coords: dict[str, Any],
    dims: dict[str, list[str]],
) -> Any:
    """The DataTree, with versions, seed and engine as attributes; without ArviZ's time stamp, so that equal input gives equal bytes."""
    import arviz_base
    import numpyro

    from relpref import __version__

    used = {name for group in groups.values() for name in group}
    dims = {name: named for name, named in dims.items() if name in used}
    wanted = {dimension for named in dims.values() for dimension in named}
    coords = {name: values for name, values in coords.items() if name in wanted}
    tree = arviz_base.from_dict(groups, coords=coords, dims=dims)
    for group in tree.subtree:
        group.attrs.pop("created_at", None)
    tree.attrs |= {
        "inference_library": "relpref",
        "inference_library_version": __version__,
        "arviz_base_version": arviz_base.__version__,
        "jax_version": jax.__version__,
        "numpyro_version": numpyro.__version__,
        "python_version": platform.python_version(),
        "random_key": json.dumps(posterior.key.tolist()),
        "engine": posterior.info["engine"],
        "result": posterior.info["result"],
    }
    if posterior.log_evidence is not None:
        tree.attrs["log_evidence"] = posterior.log_evidence
    return tree
