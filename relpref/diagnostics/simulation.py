"""Simulations of a program, and the numbers that a posterior of them is asked about: affine in the Gaussian sites."""

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

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.data.covariates import EFFECT
from relpref.data.relation_data import SIGN
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.call import Call, Model, Values, running
from relpref.infer.exact.structure import find_structure
from relpref.infer.layout import Layout
from relpref.infer.program import discover
from relpref.infer.relation_posterior import RelationPosterior
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods import as_likelihood
from relpref.posterior.base import Posterior
from relpref.posterior.classes import DECISION
from relpref.posterior.gaussian import Belief

Picked = NDArray[np.intp]


@dataclass(frozen=True)
class Answered:
    """A program with other answers, which are its first argument: all simulations share what JAX compiles."""

    program: Model

    def __call__(self, answers: Values, *args: Any, **kwargs: Any) -> None:
        if DECISION in answers and any(
            type(value) is Rankings for value in (*args, *kwargs.values())
        ):
            # Rankings get the classes that the decisions lead to: which decisions were taken
            # depends on them.
            label: Any = jnp.sum(jnp.cumprod(answers[DECISION], axis=1), axis=1).astype(np.int32)
            args, kwargs = _changed(
                args, kwargs, {Rankings: lambda data: replace(data, label=label)}
            )
            answers = {}
        with handlers.condition(data=answers):
            self.program(*args, **kwargs)


@dataclass(frozen=True)
class Known:
    """A program some of whose sites have known values, which are its first argument; to engines they are no sites."""

    program: Model

    def __call__(self, known: Values, *args: Any, **kwargs: Any) -> None:
        inner = handlers.substitute(self.program, data=known)
        handlers.block(inner, hide=list(known))(*args, **kwargs)


class Draws(NamedTuple):
    """Simulations: values by site, shape (s, ...)."""

    hyperparameters: Values
    latents: Values
    answers: Values

    def one(self, row: int) -> "Draws":
        return Draws(*({name: value[row] for name, value in part.items()} for part in self))


@dataclass(frozen=True)
class Questions:
    """What is simulated: a program, what it was called with, without answers, and which of its sites are what."""

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

        ``relation`` is for the exact engine, ``sampled`` for samplers, which take labels that
        depend on each other, too.
        """
        # Every answer is a row of its own: to an answer that was given k times belong k simulated
        # ones, which may differ.
        single: Any = {
            PreferenceData: lambda data: replace(data, comparisons=data.comparisons.single())
        }
        args, kwargs = _changed(args, kwargs, single)
        layout = _layout(*Call.split(program, args, kwargs), relation, sampled)
        # Nothing tells the program which answers there were.
        hidden: Any = {
            PreferenceData: PreferenceData.without_answers,
            Rankings: Rankings.without_labels,
        }
        return cls(program, *_changed(args, kwargs, hidden), layout)

    def draw(self, keys: Array) -> Draws:
        """One simulation for each of s keys; inside ``enable_x64``."""
        sites = jax.tree.map(
            np.asarray, _draw(*Call.split(self.program, self.args, self.kwargs), keys)
        )
        parts = [
            [name for name, _ in part]
            for part in (self.layout.hyperparameters, self.layout.latents)
        ]
        return Draws(
            *({name: sites[name] for name in part} for part in (*parts, self.layout.observed))
        )

    def call(self, answers: Values) -> tuple[Call, tuple[Any, ...]]:
        """The program with simulated answers, for JAX; the arrays begin with those of the answers."""
        return Call.split(Answered(self.program), (answers, *self.args), self.kwargs)


@lazy_jit(static_argnums=0)
def _draw(call: Call, arrays: tuple[Any, ...], keys: Array) -> Values:
    args, kwargs = call.skeleton.join(arrays)

    def one(key: Array) -> Values:
        model = handlers.seed(handlers.uncondition(call.program), key)
        with running:
            sites = handlers.trace(model).get_trace(*args, **kwargs)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}

    return jax.vmap(one)(keys)


def _layout(call: Call, arrays: tuple[Any, ...], relation: bool, sampled: bool) -> Layout:
    if not relation:
        try:
            found = discover(call, arrays, {})
        except UnsupportedProgramError:
            if not sampled:
                raise
        else:
            if not np.all(np.isin(found.counts, (0.0, 1.0))):
                raise DataError(
                    "the program gives some of its answers another weight than one, so that they "
                    "cannot be drawn; calibrate it without weights"
                )
            return found.layout
    structure = find_structure(call, arrays, {})
    if structure.loss == "ranking" and structure.symmetry != "none":
        raise DataError(
            f"the ranking loss uses every label of a {structure.symmetry} relation at both its "
            "ends, which is no distribution of labels "
            "to draw from; take loss='regression', which is relpref conditional fit --loss "
            "regression"
        )
    return structure.program.layout


def _changed(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], changes: Mapping[type, Callable[[Any], Any]]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those of some types changed."""

    def one(value: Any) -> Any:
        return changes[type(value)](value) if type(value) in changes else value

    return tuple(map(one, args)), {name: one(value) for name, value in kwargs.items()}


@dataclass(frozen=True)
class Gap:
    """Difference of two random entries in a random row of a Gaussian site; the only thing that comparisons identify.

    ``sign`` (0, 1, -1) is that of the transpose that is averaged with the site.
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
        """The first less the second."""
        entries = sites[self.site]["value"]
        if self.sign:
            transposed = picked % self.columns * self.columns + picked // self.columns
            both = 0.5 * (entries[picked] + self.sign * entries[transposed])
        else:
            both = entries[picked]
        return both[0] - both[1]


@dataclass(frozen=True)
class Predictor:
    """What a random observed row looks at: a classifier's latent decision on an example."""

    observed: tuple[str, ...]
    rows: int
    name: str = "decision"

    def pick(self, rng: np.random.Generator) -> Picked:
        return rng.choice(self.rows, 1)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        each = [jnp.ravel(as_likelihood(sites[name]["fn"]).predictor) for name in self.observed]
        return jnp.concatenate(each)[picked[0]]


@dataclass(frozen=True)
class Own:
    """A function of the sites' values."""

    function: Callable[[Mapping[str, Any]], Any]
    name: str = "quantity"

    def pick(self, rng: np.random.Generator) -> Picked:
        return np.zeros(0, dtype=np.intp)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        return jnp.asarray(self.function({name: site["value"] for name, site in sites.items()}))


Quantity = Gap | Predictor | Own  # hashable, because JAX compiles for it


def usual(questions: Questions) -> Quantity:
    """The gap of two items' utilities, the difference of two objects' scores, or the predictor of a random row."""
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
    """A quantity of one simulation, whose value is known; to be asked inside ``enable_x64``."""

    questions: Questions
    quantity: Quantity
    truth: Draws
    picked: Picked
    rng: np.random.Generator

    @property
    def true(self) -> float:
        """The value in the simulation."""
        latents = [np.ravel(self.truth.latents[name]) for name, _ in self.questions.layout.latents]
        return float(
            self._moments(self.truth.hyperparameters, np.concatenate(latents)[None], None)[0][0]
        )

    def below(self, posterior: Posterior | RelationPosterior) -> float:
        """Posterior probability that it lies below its true value."""
        if posterior.kind != "relation":
            values = {**posterior.hyperparameters, **posterior.hyperparameter_draws}
            return self.below_belief(posterior.whole, values)
        # Of the difference of two objects' scores for one node.
        objects = posterior.objects.labels
        node, pair = (
            int(self.picked[0]) // len(objects),
            [objects[at] for at in self.picked % len(objects)],
        )
        belief = posterior.belief(posterior.nodes.labels[node], pair)
        margins = belief.differences(np.array([0]), np.array([1]))
        return _average_below(self.true, margins.mean, margins.sd**2, margins.weights)

    def below_belief(self, belief: Belief, values: Mapping[str, Any]) -> float:
        """The same under a belief, at hyperparameters with a value for each component or one for all."""
        means, covariances = belief.locations, belief.scales
        mean, variance = self._moments(values, means, covariances)
        if covariances is None:
            return rank(mean, self.true, self.rng)
        return _average_below(self.true, mean, variance, belief.weights)

    def _moments(self, values: Mapping[str, Any], means: Any, covariances: Any) -> tuple[Any, Any]:
        layout = self.questions.layout
        known = {
            name: np.broadcast_to(np.asarray(values[name], float), (len(means), *shape))
            for name, shape in layout.hyperparameters
        }
        call, arrays = self.questions.call(self.truth.answers)
        mean, variance = _moments(
            self.quantity, call, layout, (arrays, self.picked), known, means, covariances
        )
        return np.asarray(mean), np.asarray(variance)


@lazy_jit(static_argnums=(0, 1, 2))
def _moments(
    quantity: Quantity,
    call: Call,
    layout: Layout,
    given: Any,
    known: Values,
    means: Any,
    covariances: Any,
) -> tuple[Array, Array]:
    """Mean and variance of the quantity under each of s hyperparameters and Gaussians, or points; shape (s,) each."""
    arrays, picked = given

    def one(known: Values, mean: Array, covariance: Array | None) -> tuple[Array, Array]:
        def at(vector: Array) -> Array:
            return quantity(call.trace(arrays, {**known, **layout.unravel(vector)}), picked)

        if covariance is None:
            return at(mean), jnp.zeros(())
        value, slope = jax.value_and_grad(at)(mean)
        return value, slope @ covariance @ slope

    return jax.vmap(one)(known, means, covariances)


def _average_below(true: float, means: Any, variances: Any, weights: Any) -> float:
    """Φ((truth − mean)/sd), averaged over the Gaussians."""
    return float(weights @ np.ravel(ndtr((true - means) / np.sqrt(variances))))


def rank(draws: NDArray[np.float64], true: float, rng: np.random.Generator) -> float:
    """Where the truth ranks among draws, between 0 and 1: uniform if it is one more of them."""
    below, equal = np.sum(draws < true), np.sum(draws == true)
    return float((below + rng.uniform() * (1 + equal)) / (len(draws) + 1))
