"""Simulations of a program, and quantities of them that are affine in the Gaussian sites."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro import handlers
from scipy.special import ndtr

from relpref.compiled import QUICKLY, compiled
from relpref.data import PreferenceData, Rankings, RelationData
from relpref.data.covariates import EFFECT
from relpref.data.relation_data import SIGN
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.call import Call, Model, Values, running
from relpref.infer.exact.structure import find_structure
from relpref.infer.layout import Layout
from relpref.infer.program import discover
from relpref.infer.relation_posterior import RelationPosterior
from relpref.likelihoods import as_likelihood
from relpref.posterior.base import Posterior
from relpref.posterior.classes import DECISION
from relpref.posterior.gaussian import Belief

Picked = NDArray[np.intp]


@dataclass(frozen=True)
class Answered:
    """A program whose answers are its first argument, so that simulations share compiled code."""

    program: Model

    def __call__(self, answers: Values, *args: Any, **kwargs: Any) -> None:
        if DECISION in answers and any(
            type(value) is Rankings for value in (*args, *kwargs.values())
        ):
            # Rankings get the classes that the decisions lead to, because the program derives from
            # them which decisions were taken.
            label: Any = jnp.sum(jnp.cumprod(answers[DECISION], axis=1), axis=1).astype(np.int32)
            args, kwargs = _changed(
                args, kwargs, {Rankings: lambda data: replace(data, label=label)}
            )
            answers = {}
        with handlers.condition(data=answers):
            self.program(*args, **kwargs)


@dataclass(frozen=True)
class Substituted:
    """A program with values of some sites as first argument, which hides these sites."""

    program: Model

    def __call__(self, values: Values, *args: Any, **kwargs: Any) -> None:
        inner = handlers.substitute(self.program, data=values)
        handlers.block(inner, hide=list(values))(*args, **kwargs)


class Draws(NamedTuple):
    """Simulations: values by site, shape (s, ...)."""

    hyperparameters: Values
    latents: Values
    answers: Values

    def at(self, row: int) -> "Draws":
        """Return a single simulation."""
        return Draws(*({name: value[row] for name, value in part.items()} for part in self))


def nuts_draws(sampler: Any, key: Any, *args: Any, **options: Any) -> tuple[Values, int]:
    """Draws by name, shape (chains, s, ...), and divergent steps of numpyro's ``MCMC`` by NUTS."""
    sampler.run(key, *args, extra_fields=("diverging",), **options)
    values = jax.tree.map(jnp.asarray, sampler.get_samples(group_by_chain=True))
    return values, int(np.sum(sampler.get_extra_fields()["diverging"]))


@dataclass(frozen=True)
class Questions:
    """A program to simulate, its arguments without answers, and the layout of its sites."""

    program: Model
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    layout: Layout

    @classmethod
    def of(
        cls,
        program: Model,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        relation: bool = False,
        sampled: bool = False,
    ) -> "Questions":
        """Read a program; inside ``enable_x64``.

        ``relation`` is for the exact engine. ``sampled`` is for samplers, which also take labels
        that depend on each other.
        """
        # One row per answer: the k simulated answers of an answer with k repeats may differ.
        single: Any = {
            PreferenceData: lambda data: replace(data, comparisons=data.comparisons.single())
        }
        args, kwargs = _changed(args, kwargs, single)
        layout = _layout(*Call.split(program, args, kwargs), relation, sampled)
        # Hide the answers from the program.
        hidden: Any = {
            PreferenceData: PreferenceData.without_answers,
            Rankings: Rankings.without_labels,
        }
        return cls(program, *_changed(args, kwargs, hidden), layout)

    def draw(self, keys: Array) -> Draws:
        """Draw one simulation for each of s keys; inside ``enable_x64``."""
        call, arrays = Call.split(self.program, self.args, self.kwargs)
        sites = jax.tree.map(np.asarray, _draw(call, arrays, keys))
        parts = [
            [name for name, _ in part]
            for part in (self.layout.hyperparameters, self.layout.latents)
        ]
        return Draws(
            *({name: sites[name] for name in part} for part in (*parts, self.layout.observed))
        )

    def call(self, answers: Values) -> tuple[Call, tuple[Any, ...]]:
        """Call of the program with simulated answers, and its arrays, the answers first."""
        return Call.split(Answered(self.program), (answers, *self.args), self.kwargs)


@compiled(static_argnums=0, **QUICKLY)
def _draw(call: Call, arrays: tuple[Any, ...], keys: Array) -> Values:
    args, kwargs = call.skeleton.join(arrays)

    def draw(key: Array) -> Values:
        model = handlers.seed(handlers.uncondition(call.program), key)
        with running:
            sites = handlers.trace(model).get_trace(*args, **kwargs)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}

    return jax.vmap(draw)(keys)


def _layout(call: Call, arrays: tuple[Any, ...], relation: bool, sampled: bool) -> Layout:
    """Layout of a program's sites; raise if its answers cannot be drawn."""
    if not relation:
        try:
            program = discover(call, arrays, {})
        except UnsupportedProgramError:
            if not sampled:
                raise
        else:
            if not np.all(np.isin(program.counts, (0.0, 1.0))):
                raise DataError(
                    "the program gives some of its answers another weight than one, so that they "
                    "cannot be drawn; calibrate it without weights"
                )
            return program.layout
    structure = find_structure(call, arrays, {})
    if structure.loss == "ranking" and structure.symmetry != "none":
        raise DataError(
            f"the ranking loss uses every label of a {structure.symmetry} relation at both its "
            "ends, so that labels cannot be drawn; take loss='regression', which is relpref "
            "conditional fit --loss regression"
        )
    return structure.program.layout


def _changed(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], changes: Mapping[type, Callable[[Any], Any]]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace the arguments of some types by functions of them."""

    def change(value: Any) -> Any:
        return changes[type(value)](value) if type(value) in changes else value

    return tuple(map(change, args)), {name: change(value) for name, value in kwargs.items()}


@dataclass(frozen=True)
class Gap:
    """Difference of two random entries in a random row of a Gaussian site.

    Comparisons identify only such differences. ``sign`` (0, 1, -1) is that of the transpose that is
    averaged with the site.
    """

    site: str
    rows: int
    columns: int
    sign: int = 0
    name: str = "gap"

    def pick(self, rng: np.random.Generator) -> Picked:
        return int(rng.integers(self.rows)) * self.columns + rng.choice(
            self.columns, 2, replace=False
        )

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        """First entry minus the second."""
        entries = sites[self.site]["value"]
        if self.sign:
            transposed = picked % self.columns * self.columns + picked // self.columns
            both = 0.5 * (entries[picked] + self.sign * entries[transposed])
        else:
            both = entries[picked]
        return both[0] - both[1]


@dataclass(frozen=True)
class Predictor:
    """Predictor of a random observed row, such as a classifier's latent decision on an example."""

    observed: tuple[str, ...]
    rows: int
    name: str = "decision"

    def pick(self, rng: np.random.Generator) -> Picked:
        return rng.choice(self.rows, 1)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        each = [jnp.ravel(as_likelihood(sites[name]["fn"]).predictor) for name in self.observed]
        return jnp.concatenate(each)[picked[0]]


@dataclass(frozen=True)
class Custom:
    """A function of the values of all sites."""

    function: Callable[[Mapping[str, Any]], Any]
    name: str = "quantity"

    def pick(self, rng: np.random.Generator) -> Picked:
        return np.zeros(0, dtype=np.intp)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        return jnp.asarray(self.function({name: site["value"] for name, site in sites.items()}))


Quantity = Gap | Predictor | Custom  # hashable, as static argument of compiled functions


def usual(questions: Questions) -> Quantity:
    """Gap of two utilities, difference of two objects' scores, or predictor of a random row."""
    layout = questions.layout
    latents = [latent for latent in layout.latents if latent[0] != EFFECT]
    for value in (*questions.args, *questions.kwargs.values()):
        for site, shape in latents if len(latents) == 1 else ():
            if isinstance(value, PreferenceData) and shape == (value.num_items,):
                return Gap(site, 1, value.num_items)
            pairs = value.values.shape if isinstance(value, RelationData) else ()
            if pairs and layout.observed != (DECISION,) and np.prod(shape) == np.prod(pairs):
                return Gap(site, *pairs, int(SIGN[value.symmetry]), "difference")
    return Predictor(layout.observed, layout.num_rows)


class Asked(NamedTuple):
    """A quantity of one simulation with a known value; use its methods inside ``enable_x64``."""

    questions: Questions
    quantity: Quantity
    truth: Draws
    picked: Picked
    rng: np.random.Generator

    @property
    def true(self) -> float:
        """Value in the simulation."""
        latents = [np.ravel(self.truth.latents[name]) for name, _ in self.questions.layout.latents]
        return float(
            self._moments(self.truth.hyperparameters, np.concatenate(latents)[None], None)[0][0]
        )

    def below(self, posterior: Posterior | RelationPosterior) -> float:
        """Posterior probability that the quantity lies below its true value."""
        if posterior.kind != "relation":
            values = {**posterior.hyperparameters, **posterior.hyperparameter_draws}
            return self.below_belief(posterior.full, values)
        # The difference of two objects' scores for one node.
        objects = posterior.objects.labels
        node, pair = (
            int(self.picked[0]) // len(objects),
            [objects[at] for at in self.picked % len(objects)],
        )
        belief = posterior.belief(posterior.nodes.labels[node], pair)
        margins = belief.differences(np.array([0]), np.array([1]))
        return _average_below(self.true, margins.mean, margins.sd**2, margins.weights)

    def below_belief(self, belief: Belief, values: Mapping[str, Any]) -> float:
        """Compute `below` for a belief, with values of hyperparameters by component or for all."""
        means, covariances = belief.locations, belief.scales
        mean, variance = self._moments(values, means, covariances)
        if covariances is None:
            return rank(mean, self.true, self.rng)
        return _average_below(self.true, mean, variance, belief.weights)

    def _moments(self, values: Mapping[str, Any], means: Any, covariances: Any) -> tuple[Any, Any]:
        layout = self.questions.layout
        values = {
            name: np.broadcast_to(np.asarray(values[name], float), (len(means), *shape))
            for name, shape in layout.hyperparameters
        }
        call, arrays = self.questions.call(self.truth.answers)
        mean, variance = _moments(
            self.quantity, call, layout, (arrays, self.picked), values, means, covariances
        )
        return np.asarray(mean), np.asarray(variance)


@compiled(static_argnums=(0, 1, 2), **QUICKLY)
def _moments(
    quantity: Quantity,
    call: Call,
    layout: Layout,
    inputs: Any,
    values: Values,
    means: Any,
    covariances: Any,
) -> tuple[Array, Array]:
    """Mean and variance of the quantity for each of s hyperparameters and Gaussians or points."""
    arrays, picked = inputs

    def moments(values: Values, mean: Array, covariance: Array | None) -> tuple[Array, Array]:
        def at(vector: Array) -> Array:
            return quantity(call.trace(arrays, {**values, **layout.unravel(vector)}), picked)

        if covariance is None:
            return at(mean), jnp.zeros(())
        value, slope = jax.value_and_grad(at)(mean)
        return value, slope @ covariance @ slope

    return jax.vmap(moments)(values, means, covariances)


def _average_below(true: float, means: Any, variances: Any, weights: Any) -> float:
    """Average of Φ((truth − mean)/sd) over the Gaussians."""
    return float(weights @ np.ravel(ndtr((true - means) / np.sqrt(variances))))


def rank(draws: NDArray[np.float64], true: float, rng: np.random.Generator) -> float:
    """Rank of the truth among draws, scaled to (0, 1): uniform if it has their distribution."""
    below, equal = np.sum(draws < true), np.sum(draws == true)
    return float((below + rng.uniform() * (1 + equal)) / (len(draws) + 1))
