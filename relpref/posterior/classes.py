"""The posterior of classifiers: probabilities of classes, with the user's own labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import NDArray

from relpref.data import Rankings, RelationData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.program import Call, Values
from relpref.likelihoods import ProbitBernoulli, as_likelihood
from relpref.posterior.arviz import Groups, plain_coordinates
from relpref.posterior.base import Posterior
from relpref.posterior.codec import (
    DATA,
    Stored,
    checked,
    conform,
    decode_data,
    decode_labels,
    decode_values,
    encode_data,
    encode_labels,
)
from relpref.posterior.gaussian import Belief, Floats
from relpref.posterior.origin import Origin
from relpref.posterior.tables import objects

DECISION = "decision"  # the observed site of a classifier's program, shape (m, k)
Examples = Rankings | RelationData
_NUMBERS = 10_000_000  # in the projections of examples that are classified together: 80 MB
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False, repr=False)
class ClassPosterior(Posterior):
    """Beliefs about the weights of a classifier, and what they say of examples, old or new.

    Attributes
    ----------
    data : Rankings or RelationData
        The examples that were learned from.
    """

    kind: ClassVar[Literal["classes"]] = "classes"
    data: Examples = field(kw_only=True)

    def datasets(self) -> dict[str, Any]:
        return {"data": self.data}

    def reported(
        self, belief: Belief | None = None, chosen: NDArray[np.intp] | slice = slice(None)
    ) -> pd.DataFrame:
        table = (self if belief is None else replace(self, belief=belief)).latent()
        return table if table.columns.nlevels == 1 else table.stack(level=1, future_stack=True)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels of the classes, in the order of the columns of `predict_proba`."""
        return self.data.classes

    def examples(self) -> tuple[pd.DataFrame, NDArray[np.intp]]:
        """The examples that were learned from, edges in both directions once, with their ``class``; and its position."""
        distinct = getattr(self.data, "distinct", None)
        kept = slice(None) if distinct is None else distinct
        outcome = self.data.outcomes[kept]
        labels = self.data.index.to_frame(index=False).iloc[kept].reset_index(drop=True)
        return labels.assign(**{"class": objects(self.classes)[outcome]}), outcome

    def predict_proba(self, data: Examples | None = None) -> pd.DataFrame:
        """Probability of each class.

        Parameters
        ----------
        data : Rankings or RelationData, optional
            Rankings of the same items (in any order), or edges between the same nodes in the same order, possibly followed by new
            ones: ``posterior.data.extended(nodes, objects).asking(rows, columns)``. The training examples by default. Labels are not looked at.

        Returns
        -------
        DataFrame
            One row for each example (ranker, or source and target), one column for each class; rows add up to 1.

        Raises
        ------
        UnsupportedProgramError
            If the posterior does not know its program any more.
        DataError
            If the examples are of other items or nodes, or of nodes in another order.
        """
        asked = self._asked(data)
        # P(class c) = Π_{j<c} P(go on at j) · P(stop at c), given hyperparameters; the last class is where nothing stopped.
        going = np.tensordot(self.belief.weights, np.cumprod(self._decide(asked)[2], axis=2), axes=1)
        first = np.ones((len(going), 1))
        before, after = np.hstack([first, going]), np.hstack([going, 0 * first])
        columns = pd.Index(objects(self.classes), name="class", tupleize_cols=False)
        return pd.DataFrame(before - after, index=asked.index, columns=columns)

    def predict(self, data: Examples | None = None) -> pd.Series:
        """The most probable class of each example; arguments as in `predict_proba`."""
        table = self.predict_proba(data)
        labels = objects(self.classes)[np.argmax(table.to_numpy(), axis=1)]
        return pd.Series(labels, index=table.index, name="class")

    def latent(self, data: Examples | None = None) -> pd.DataFrame:
        """Posterior of the latent functions, before noise; arguments as in `predict_proba`.

        Returns
        -------
        DataFrame
            ``mean`` and ``sd`` for two classes; with more, one column of each for every decision, ``(mean, class)``: for the class at
            which the decision stops.
        """
        asked = self._asked(data)
        means, variances, _ = self._decide(asked)
        weights = self.belief.weights
        mean = np.tensordot(weights, means, axes=1)
        sd = np.sqrt(np.tensordot(weights, variances + np.square(means - mean), axes=1))
        if mean.shape[1] == 1:
            return pd.DataFrame({"mean": mean[:, 0], "sd": sd[:, 0]}, index=asked.index)
        columns = pd.MultiIndex.from_product([("mean", "sd"), self.classes[:-1]])
        return pd.DataFrame(np.hstack([mean, sd]), index=asked.index, columns=columns)

    def _asked(self, data: Examples | None) -> Examples:
        """The examples without their labels, as the program wants them."""
        self._warn_if_not_converged()
        given = self.data if data is None else data
        if type(given) is not type(self.data):
            raise DataError(
                f"data is a {type(given).__name__}; this posterior classifies {type(self.data).__name__}"
            )
        known: Any = self.data  # of the same type
        return given.asked_of(known)

    def _decide(self, asked: Examples) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of every decision's latent function, and the probability of going on; shape (s, m, k) each."""
        if self.origin is None:
            raise UnsupportedProgramError(
                "this posterior does not know its program, so it cannot classify; fit with a program and kernels of relpref before saving"
            )
        functions = max(len(self.classes) - 1, 1)
        number = len(asked)
        size = _block(number, self.belief.size * functions)
        parts = [[np.empty((len(self.belief.weights), 0, functions))] * 3] if not number else []
        for start in range(0, number, size):
            rows = np.minimum(np.arange(start, start + size), number - 1)
            found = self._decide_some(asked[rows])
            parts.append([part[:, : number - start] for part in found])
        mean, variance, probability = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        return mean, variance, probability

    def _decide_some(self, asked: Examples) -> tuple[Floats, ...]:
        assert self.origin is not None
        origin = self.origin.with_argument(self.data, asked)
        fixed = {n: v for n, v in self.hyperparameters.items() if n not in self.hyperparameter_draws}
        sites = sorted(self.slices.items(), key=lambda site: site[1].start)
        layout = tuple((name, rows.stop - rows.start) for name, rows in sites)
        location, scale = self.belief.as_mixture()
        with jax.enable_x64(True):
            call, arrays = Call.split(origin.program, origin.args, origin.kwargs)
            values = {name: jnp.asarray(value) for name, value in fixed.items()}
            moving = dict(self.hyperparameter_draws)
            found = _decisions(call, layout, arrays, values, moving, location, scale)
            return tuple(np.asarray(part) for part in found)

    def arrays(self) -> Stored:
        arrays, content = super().arrays()

        def keep(value: Any) -> Any:
            """Store what JSON cannot hold, and return how to find it again."""
            number = len(kept)
            if isinstance(value, Rankings | RelationData):
                prefix = f"kept{number}"
                more, described = encode_examples(value, prefix)
                kept.update(more)
                return {"prefix": prefix, **described}
            if hasattr(value, "__array__") and np.asarray(value).dtype != object:
                kept[f"kept{number}/array"] = np.asarray(value)
                return {"array": f"kept{number}/array"}
            return None

        kept: dict[str, Any] = {}
        more, data = encode_examples(self.data, "data")
        origin = None if self.origin is None else self.origin.encoded(keep)
        return {**arrays, **kept, **more}, {**content, "kind": "class", "data": data, "origin": origin}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], content: Any, program: Any = None) -> "ClassPosterior":
        def restore(kept: Any) -> Any:
            if conform(kept, dict[str, str]):
                return arrays[kept["array"]]
            return decode_examples(arrays, kept, kept["prefix"])

        stored = cls._stored_fields(arrays, content)
        data = decode_examples(arrays, content["data"], "data")
        origin = Origin.decoded(content["origin"], data, restore, program)
        return cls(**stored, data=data, origin=origin)

    def groups(self, num_samples: int, key: Any) -> Groups:
        groups, coords, dims = super().groups(num_samples, key)
        # An example is one observation, however many decisions led to its class.
        coords["example"] = plain_coordinates(tuple(self.data.index))
        coords["class"] = plain_coordinates(self.classes[:-1])
        dims |= {DECISION: ["example", "class"], "intercept": ["class"], "weight": ["class", "feature"]}
        if "log_likelihood" in groups:
            decisions = groups["log_likelihood"].pop(DECISION)
            groups["log_likelihood"]["label"] = decisions.sum(axis=-1)
            dims["label"] = ["example"]
        return Groups(groups, coords, dims)

    def __repr__(self) -> str:
        evidence = "" if self.log_evidence is None else f", log evidence {self.log_evidence:.2f}"
        return f"ClassPosterior({self.data.describe()}; {self.info['engine']}{evidence})"


@partial(jax.jit, static_argnums=(0, 1))
def _decisions(
    call: Call,
    layout: tuple[tuple[str, int], ...],
    arrays: tuple[Any, ...],
    fixed: Values,
    moving: Values,
    location: Array,
    scale: Array | None,
) -> tuple[Array, Array, Array]:
    """For each of s beliefs about weights: mean and variance of the latent functions, and probability of a 1; (s, m, k) each."""
    shapes = _latent_shapes(call, layout, arrays, fixed, moving)

    def one(inputs: tuple[Values, Array, Array | None]) -> tuple[Array, Array, Array]:
        values, mean, covariance = inputs

        def site(vector: Array) -> ProbitBernoulli:
            latents, start = {}, 0
            for name, shape in shapes:
                stop = start + int(np.prod(shape))
                latents[name] = jnp.reshape(vector[start:stop], shape)
                start = stop
            likelihood = as_likelihood(call.trace(arrays, {**fixed, **values, **latents})[DECISION]["fn"])
            assert isinstance(likelihood, ProbitBernoulli)  # a decision is yes or no
            return likelihood

        likelihood = site(mean)
        predictor = likelihood.predictor
        variance = jnp.zeros_like(predictor)
        if covariance is not None:
            _, apply = jax.linearize(lambda vector: jnp.ravel(site(vector).predictor), mean)
            rows = jax.vmap(apply, in_axes=1, out_axes=1)(jnp.eye(len(mean), dtype=mean.dtype))
            variance = jnp.reshape(jnp.sum((rows @ covariance) * rows, axis=1), predictor.shape)
            variance = jnp.maximum(variance, 0.0)
        moments = likelihood.tilted(jnp.ones(predictor.shape, jnp.int32), predictor, variance)
        if likelihood.spread is not None:  # what the process varies besides its features
            variance = variance + likelihood.spread
        return predictor, variance, jnp.exp(moments.log_normalizer)

    return jax.lax.map(one, (moving, location, scale))


def _latent_shapes(
    call: Call, layout: tuple[tuple[str, int], ...], arrays: tuple[Any, ...], fixed: Values, moving: Values
) -> Shapes:
    """Shapes of the Gaussian sites in the program at these examples, in the order of the joint vector."""
    drawn = {name: value[0] for name, value in moving.items()}
    sites = jax.eval_shape(lambda: {n: s["value"] for n, s in call.trace(arrays, {**fixed, **drawn}).items()})
    shapes = tuple((name, tuple(sites[name].shape)) for name, _ in layout)
    for (name, size), (_, shape) in zip(layout, shapes, strict=True):
        if int(np.prod(shape)) != size:
            raise DataError(
                f"the program has {int(np.prod(shape))} values of {name!r} at these examples and had {size}; "
                "give features of as many columns as those it was fitted to"
            )
    return shapes


def _block(number: int, latents: int) -> int:
    """Examples to classify together: a power of two, so that few sizes are compiled, of which the projections fit into memory."""
    most = max(_NUMBERS // max(latents, 1), 16)
    return 2 ** min(max(number - 1, 15).bit_length(), most.bit_length() - 1)


_RANKINGS = {"prefix?": str, "items": DATA, "rankers": str, "classes": str}
_RELATION = {
    "prefix?": str,
    "nodes": DATA,
    "objects": dict[str, Any] | None,
    "shape": list[int],
    "symmetry": Literal["none", "symmetric", "reciprocal"],
    "shift": float,
    "observed": bool,
}
_OF_RANKINGS = ("label", "features", "residual")


def encode_examples(data: Examples, prefix: str) -> Stored:
    """Arrays by name, in groups that begin with the prefix, and what JSON can hold."""
    if isinstance(data, Rankings):
        arrays, items = encode_data(data.items, f"{prefix}_items")
        arrays[f"{prefix}/positions"] = data.positions
        optional = {name: getattr(data, name) for name in _OF_RANKINGS}
        content: dict[str, Any] = {"items": items, "rankers": encode_labels(data.rankers)}
        content["classes"] = encode_labels(data.classes)
    else:
        arrays, nodes = encode_data(data.nodes, f"{prefix}_nodes")
        content = {"nodes": nodes, "objects": None, "shape": list(data.values.shape)}
        content |= {name: getattr(data, name) for name in ("symmetry", "shift", "observed")}
        if data.objects is not None:
            more, content["objects"] = encode_data(data.objects, f"{prefix}_objects")
            arrays |= more
        arrays[f"{prefix}/values"] = data.values.values
        rows, columns = data.values.edges or (None, None)
        optional = {"rows": rows, "columns": columns, "distinct": data.distinct}
    return arrays | {f"{prefix}/{n}": value for n, value in optional.items() if value is not None}, content


def decode_examples(arrays: Mapping[str, Any], content: dict[str, Any], prefix: str) -> Examples:
    """The inverse of `encode_examples`."""
    if "items" in content:
        checked(content, _RANKINGS, "the examples")
        optional: dict[str, Any] = {name: arrays.get(f"{prefix}/{name}") for name in _OF_RANKINGS}
        for name in ("rankers", "classes"):
            optional[name] = decode_labels(content[name])
        items = decode_data(arrays, content["items"], f"{prefix}_items")
        return Rankings(items=items, positions=arrays[f"{prefix}/positions"], **optional)
    checked(content, _RELATION, "the examples")
    objects = None
    if content["objects"] is not None:
        objects = decode_data(arrays, content["objects"], f"{prefix}_objects")
    return RelationData(
        nodes=decode_data(arrays, content["nodes"], f"{prefix}_nodes"),
        objects=objects,
        values=decode_values(arrays, content["shape"], f"{prefix}/"),
        distinct=arrays.get(f"{prefix}/distinct"),
        **{name: content[name] for name in ("symmetry", "shift", "observed")},
    )
