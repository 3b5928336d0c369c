"""Numbers that a posterior is asked about: a function of a program's sites, affine in the Gaussian ones, and where its truth falls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.data import PreferenceData, RelationData
from relpref.data.relation_values import SIGN
from relpref.diagnostics.calibration.simulate import Draws, Questions
from relpref.infer import RelationPosterior
from relpref.infer.belief import DrawsBelief
from relpref.infer.posterior import Posterior
from relpref.infer.program import Call, Layout, Values
from relpref.likelihoods import as_likelihood

Picked = NDArray[np.intp]
_UTILITY, _SCORE = "utility", "score"


class Quantity(Protocol):
    """A number; hashable, because JAX compiles for it."""

    @property
    def name(self) -> str:
        """Of the number."""

    def pick(self, rng: np.random.Generator) -> Picked:
        """Which of several alike, at random."""

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        """The number in a trace of the program."""


@dataclass(frozen=True)
class Gap:
    """Difference of two random entries in a random row of a Gaussian site; the only thing that comparisons identify.

    Attributes
    ----------
    site : str
    rows, columns : int
    sign : {0, 1, -1}
        Of the transpose that is averaged with the site.
    name : str
    """

    site: str
    rows: int
    columns: int
    sign: int = 0
    name: str = "gap"

    def pick(self, rng: np.random.Generator) -> Picked:
        """The positions of both."""
        return int(rng.integers(self.rows)) * self.columns + rng.choice(self.columns, 2, replace=False)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        """The first less the second."""
        field = sites[self.site]["value"]

        def entry(at: Any) -> Array:
            if not self.sign:
                return field[at]
            return 0.5 * (
                field[at] + self.sign * field[at % self.columns * self.columns + at // self.columns]
            )

        return entry(picked[0]) - entry(picked[1])


@dataclass(frozen=True)
class Predictor:
    """What a random observed row looks at: a classifier's latent decision on an example."""

    observed: tuple[str, ...]
    rows: int
    name: str = "decision"

    def pick(self, rng: np.random.Generator) -> Picked:
        """The row."""
        return rng.choice(self.rows, 1)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        """The predictor there."""
        each = [jnp.ravel(as_likelihood(sites[name]["fn"]).predictor) for name in self.observed]
        return jnp.concatenate(each)[picked[0]]


@dataclass(frozen=True)
class Own:
    """A function of the sites' values."""

    function: Callable[[Mapping[str, Any]], Any]
    name: str = "quantity"

    def pick(self, rng: np.random.Generator) -> Picked:
        """Nothing to pick."""
        return np.zeros(0, dtype=np.intp)

    def __call__(self, sites: Mapping[str, Any], picked: Any) -> Array:
        """The function's value."""
        return jnp.asarray(self.function({name: site["value"] for name, site in sites.items()}))


def usual(questions: Questions) -> Quantity:
    """The gap of two entities' utilities, the difference of two objects' scores, or the predictor of a random row."""
    layout = questions.layout
    latents = dict(layout.latents)
    for value in (*questions.args, *questions.kwargs.values()):
        if isinstance(value, PreferenceData) and latents.keys() == {_UTILITY}:
            return Gap(_UTILITY, 1, value.num_entities)
        if isinstance(value, RelationData) and latents.keys() == {_SCORE}:
            return Gap(_SCORE, *value.values.shape, int(SIGN[value.symmetry]), "difference")
    return Predictor(layout.observed, layout.num_rows)


@partial(jax.jit, static_argnums=(0, 1, 2))
def values_at(
    quantity: Quantity,
    call: Call,
    layout: Layout,
    arrays: tuple[Any, ...],
    known: Values,
    vectors: Array,
    picked: Any,
) -> Array:
    """The quantity at each of s hyperparameters and joint latent vectors, shape (s,)."""

    def one(known: Values, vector: Array) -> Array:
        return quantity(call.trace(arrays, {**known, **layout.unravel(vector)}), picked)

    return jax.vmap(one)(known, vectors)


@partial(jax.jit, static_argnums=(0, 1, 2))
def moments_at(
    quantity: Quantity,
    call: Call,
    layout: Layout,
    arrays: tuple[Any, ...],
    known: Values,
    means: Array,
    covariances: Array,
    picked: Any,
) -> tuple[Array, Array]:
    """Its mean and variance under each of s hyperparameters and Gaussians, shape (s,) each."""

    def one(known: Values, mean: Array, covariance: Array) -> tuple[Array, Array]:
        def at(vector: Array) -> Array:
            return quantity(call.trace(arrays, {**known, **layout.unravel(vector)}), picked)

        value, slope = jax.value_and_grad(at)(mean)
        return value, slope @ covariance @ slope

    return jax.vmap(one)(known, means, covariances)


def below_truth(
    quantity: Quantity,
    posterior: Posterior | RelationPosterior,
    questions: Questions,
    truth: Draws,
    picked: Picked,
    rng: np.random.Generator,
) -> float:
    """Posterior probability that the quantity lies below its true value."""
    call, arrays = questions.call(truth.answers)
    layout = questions.layout
    known = {name: np.asarray(value)[None] for name, value in truth.hyperparameters.items()}
    true = float(values_at(quantity, call, layout, arrays, known, truth.vector(layout)[None], picked)[0])
    if isinstance(posterior, RelationPosterior):
        return _below_in_relation(posterior, quantity, picked, true)
    belief = posterior.belief
    drawn = posterior.hyperparameter_draws
    number = len(next(iter(drawn.values()))) if drawn else 1
    fixed = {name: value for name, value in posterior.hyperparameters.items() if name not in drawn}
    everywhere = {
        name: np.broadcast_to(np.asarray(value, float), (number, *np.shape(value)))
        for name, value in fixed.items()
    } | {name: np.asarray(value) for name, value in drawn.items()}
    if isinstance(belief, DrawsBelief):
        if not drawn:
            number = len(belief.draws)
            everywhere = {name: np.repeat(value, number, axis=0) for name, value in everywhere.items()}
        found = values_at(quantity, call, layout, arrays, everywhere, belief.draws, picked)
        return rank(np.asarray(found), true, rng)
    means, covariances = belief.as_mixture()
    value, variance = moments_at(quantity, call, layout, arrays, everywhere, means, covariances, picked)
    return average_below(true, np.asarray(value), np.asarray(variance), belief.weights)


def average_below(true: Any, means: Any, variances: Any, weights: Any) -> float:
    """Φ((truth − mean)/sd), averaged over the Gaussians."""
    return float(weights @ np.ravel(ndtr((true - means) / np.sqrt(variances))))


def rank(draws: NDArray[np.float64], true: float, rng: np.random.Generator) -> float:
    """Where the truth ranks among draws, between 0 and 1: uniform if it is one more of them."""
    below, equal = np.sum(draws < true), np.sum(draws == true)
    return float((below + rng.uniform() * (1 + equal)) / (len(draws) + 1))


def _below_in_relation(
    posterior: RelationPosterior, quantity: Quantity, picked: Picked, true: float
) -> float:
    """Of the difference of two objects' scores for one node."""
    assert isinstance(quantity, Gap)  # what calibrate() asks an exact posterior about
    node, columns = divmod(int(picked[0]), quantity.columns)[0], picked % quantity.columns
    pair = [posterior.objects.labels[column] for column in columns]
    margins = posterior.belief(posterior.nodes.labels[node], pair).differences(np.array([0]), np.array([1]))
    return average_below(true, margins.mean, margins.sd**2, margins.weights)
