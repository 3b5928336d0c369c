"""Posteriors as ArviZ knows them. The only module that imports ArviZ.

Inside, it uses the split packages (arviz-base), which have one DataTree API on every Python; `to_arviz` hands out the native type
of the ArviZ that is installed.
"""

import json
import platform
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from relpref.infer.belief import DrawsBelief, generator
from relpref.infer.class_posterior import ClassPosterior, example_labels
from relpref.infer.mixture import MixtureBelief
from relpref.infer.pointwise import answers, prepare
from relpref.infer.posterior import Posterior
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.utility_posterior import UtilityPosterior

_CHAINS = 4  # independent draws are laid out as so many chains: with one, ArviZ's diagnostics have nothing to compare


def to_arviz(posterior: Posterior, num_samples: int, key: Any) -> Any:
    """Convert; see `Posterior.to_arviz`."""
    return _native(to_datatree(posterior, num_samples, key))


def relation_to_arviz(
    posterior: RelationPosterior, query: Any, objects: Any, num_samples: int, key: Any
) -> Any:
    """Convert; see `RelationPosterior.to_arviz`."""
    return _native(relation_to_datatree(posterior, query, objects, num_samples, key))


def _native(tree: Any) -> Any:
    """The type of the ArviZ that is installed."""
    import arviz

    if int(arviz.__version__.split(".")[0]) >= 1:
        return tree
    convert: Any = arviz.InferenceData.from_datatree
    return convert(tree)


def to_datatree(posterior: Posterior, num_samples: int = 1000, key: Any = None) -> Any:
    """The DataTree that ArviZ 1.x uses, whichever version is installed."""
    from arviz_base import from_dict

    if isinstance(posterior, UtilityPosterior):
        posterior = _one_by_one(posterior)
    rng = generator(posterior.key if key is None else key)
    total = num_samples
    kept = isinstance(posterior.belief, DrawsBelief | MixtureBelief)
    if isinstance(posterior.belief, DrawsBelief):
        total = len(posterior.belief.draws)
    elif isinstance(posterior.belief, MixtureBelief):
        total = len(posterior.belief.locations)  # one draw for each of the hyperparameters
    chains = int(posterior.info.get("chains", 1)) if kept else _CHAINS
    per_chain = total // chains
    vector = posterior.belief.draw(total, rng)[: chains * per_chain]
    draws = {name: vector[:, rows] for name, rows in posterior.slices.items()}
    for name, value in posterior.hyperparameters.items():
        repeated = np.broadcast_to(np.asarray(value), (len(vector), *np.shape(value)))
        draws[name] = posterior.hyperparameter_draws.get(name, repeated)[: len(vector)]

    def by_chain(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: np.reshape(value, (chains, per_chain, *np.shape(value)[1:]))
            for name, value in values.items()
        }

    groups: dict[str, Any] = {"posterior": by_chain(draws)}
    coords: dict[str, Any] = {}
    dims: dict[str, list[str]] = {}
    if posterior.origin is not None:
        with jax.enable_x64(True):
            call, arrays, layout = prepare(posterior.origin)
            keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(vector))
            shaped = {**draws, **{name: draws[name].reshape(-1, *shape) for name, shape in layout.latents}}
            found = answers(call, layout, arrays, shaped, keys)
            log_likelihood, replicated, observed = (
                {n: np.asarray(v) for n, v in group.items()} for group in found
            )
        if isinstance(posterior, UtilityPosterior):
            groups["constant_data"] = _constants(posterior)
            dims |= {
                name: ["comparison"] for name in (*observed, *groups["constant_data"]) if name != "attributes"
            }
            coords["comparison"] = np.arange(posterior.data.num_comparisons)
        groups["posterior_predictive"] = by_chain(replicated)
        groups["log_likelihood"] = by_chain(log_likelihood)
        groups["observed_data"] = observed
    groups["sample_stats"] = _statistics(posterior, chains, per_chain)
    if isinstance(posterior, UtilityPosterior):
        coords["entity"] = plain_coordinates(posterior.data.entities)
        coords["attribute"] = list(posterior.data.attribute_names)
        coords["rater"] = plain_coordinates(posterior.data.comparisons.raters)
        dims |= {"utility": ["entity"], "attributes": ["entity", "attribute"], "rater_noise": ["rater"]}
        if np.ndim(posterior.hyperparameters.get("attributes_lengthscale", 0.0)) == 1:
            dims["attributes_lengthscale"] = ["attribute"]
    if isinstance(posterior, ClassPosterior):
        if (
            "log_likelihood" in groups
        ):  # an example is one observation, however many decisions led to its class
            decisions = groups["log_likelihood"].pop("decision")
            groups["log_likelihood"]["label"] = decisions.sum(axis=-1)
            dims["label"] = ["example"]
        coords["example"] = plain_coordinates(example_labels(posterior.data))
        coords["class"] = plain_coordinates(posterior.classes[:-1])
        dims |= {"decision": ["example", "class"], "intercept": ["class"]}
    tree = from_dict(groups, coords=coords, dims=dims)
    _label(tree, posterior)
    return tree


def relation_to_datatree(
    posterior: RelationPosterior, query: Any, objects: Any, num_samples: int, key: Any
) -> Any:
    """Scores and next labels of objects for one conditioning node, as the DataTree of ArviZ 1.x."""
    from arviz_base import from_dict

    rng = generator(posterior.key if key is None else key)
    per_chain = max(num_samples // _CHAINS, 1)
    moments = posterior.belief(query, objects)
    draws = moments.draw(_CHAINS * per_chain, rng).reshape(_CHAINS, per_chain, -1)
    noise = np.sqrt(posterior.label_variance) * rng.standard_normal(draws.shape)
    numbers = {
        name: np.broadcast_to(np.asarray(value), (_CHAINS, per_chain, *np.shape(value)))
        for name, value in posterior.hyperparameters.items()
    }
    labels = posterior.objects.ask(objects).labels
    groups = {
        "posterior": {"score": draws, **numbers},
        "posterior_predictive": {"label": draws + noise},
        "sample_stats": _statistics(posterior, _CHAINS, per_chain),
    }
    dims = {"score": ["object"], "label": ["object"]}
    tree = from_dict(groups, coords={"object": plain_coordinates(labels)}, dims=dims)
    _label(tree, posterior)
    return tree


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
    """The engine's own numbers, the same for every draw."""
    wanted = ("iterations", "residual", "damping")
    numbers = {name: posterior.info[name] for name in wanted if name in posterior.info}
    numbers["converged"] = posterior.info["result"] == "converged"
    return {name: np.full((chains, per_chain), value) for name, value in numbers.items()}


def _label(tree: Any, posterior: Posterior | RelationPosterior) -> None:
    """Versions, seed and engine as attributes; ArviZ's own time stamp removed, so that equal input gives equal bytes."""
    import arviz_base
    import numpyro

    from relpref import __version__

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
