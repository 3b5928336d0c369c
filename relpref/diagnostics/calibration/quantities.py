"""Numbers that a posterior is asked about: a function of a program's sites, affine in the Gaussian ones, and where its truth falls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro import handlers
from scipy.special import ndtr

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.data.relation_data import SIGN
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import RelationPosterior
from relpref.infer.exact.structure import find_structure
from relpref.infer.program import Call, Layout, Model, Values, discover, shapes_of, survey
from relpref.likelihoods import as_likelihood
from relpref.posterior.base import Posterior
from relpref.posterior.classes import DECISION
from relpref.posterior.gaussian import DrawsBelief


@dataclass(frozen=True)
class Answered:
    """A program with other answers, which are its first argument: all simulations share what JAX compiles."""

    program: Model

    def __call__(self, answers: Values, *args: Any, **kwargs: Any) -> None:
        """Run it with them observed."""
        args = tuple(_labelled(value, answers) for value in args)
        kwargs = {name: _labelled(value, answers) for name, value in kwargs.items()}
        labelled = any(isinstance(value, Rankings) for value in (*args, *kwargs.values()))
        with handlers.condition(data={} if labelled and DECISION in answers else answers):
            self.program(*args, **kwargs)


@dataclass(frozen=True)
class Unanswered:
    """A program whose observed sites are drawn like the others."""

    program: Model

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with handlers.uncondition():
            self.program(*args, **kwargs)


@dataclass(frozen=True)
class Known:
    """A program some of whose sites have known values, which are its first argument; to engines they are no sites."""

    program: Model

    def __call__(self, known: Values, *args: Any, **kwargs: Any) -> None:
        inner = handlers.substitute(self.program, data=known)
        handlers.block(inner, hide=list(known))(*args, **kwargs)


@dataclass(frozen=True)
class Questions:
    """What is simulated: a program and what it was called with.

    Attributes
    ----------
    program : callable
    args : tuple
    kwargs : mapping
        Without answers, or with answers that are not looked at.
    layout : Layout
        Which of its sites are what.
    """

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
        """Look at a program; inside of ``enable_x64``.

        Parameters
        ----------
        program, args, kwargs
        relation : bool
            It is one for the exact engine.
        sampled : bool
            A sampler takes it, and with it what no Gaussian engine but the exact one does: labels that depend on each other.

        Raises
        ------
        UnsupportedProgramError
            If it has no observed site, or no Gaussian one that enters the predictors linearly.
        DataError
            If what it observes could not have been drawn from it.
        """
        args = tuple(_one_by_one(value) for value in args)
        kwargs = {name: _one_by_one(value) for name, value in kwargs.items()}
        call, arrays = split(program, args, kwargs)
        layout = _relation_layout(call, arrays) if relation else _layout(call, arrays, sampled)
        hidden = tuple(_hidden(value) for value in args)
        return cls(program, hidden, {name: _hidden(value) for name, value in kwargs.items()}, layout)

    def draw(self, keys: Array) -> "Draws":
        """One simulation for each of s keys."""
        call, arrays = split(Unanswered(self.program), self.args, self.kwargs)
        sites = jax.tree.map(np.asarray, _draw(call, arrays, keys))
        known = {name: sites[name] for name, _ in self.layout.hyperparameters}
        latents = {name: sites[name] for name, _ in self.layout.latents}
        return Draws(known, latents, {name: sites[name] for name in self.layout.observed})

    def call(self, answers: Values) -> tuple[Call, tuple[Any, ...]]:
        """The program with simulated answers, for JAX; the arrays begin with those of the answers."""
        return split(Answered(self.program), (answers, *self.args), self.kwargs)


@dataclass(frozen=True)
class Draws:
    """Simulations.

    Attributes
    ----------
    hyperparameters, latents, answers : dict from site to array, shape (s, ...)
    """

    hyperparameters: Values
    latents: Values
    answers: Values

    def __getitem__(self, row: int) -> "Draws":
        parts = (self.hyperparameters, self.latents, self.answers)
        return Draws(*({name: value[row] for name, value in part.items()} for part in parts))

    def vector(self, layout: Layout) -> Any:
        """The joint latent vector of one."""
        return np.concatenate([np.ravel(self.latents[name]) for name, _ in layout.latents])


@partial(jax.jit, static_argnums=0)
def _draw(call: Call, arrays: tuple[Any, ...], keys: Array) -> Values:
    def one(key: Array) -> Values:
        sites = call.trace(arrays, {}, key)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}

    return jax.vmap(one)(keys)


def split(program: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, tuple[Any, ...]]:
    """A call for JAX, in double precision."""
    return Call.split(program, args, kwargs)


def _layout(call: Call, arrays: tuple[Any, ...], sampled: bool) -> Layout:
    try:
        found = discover(call, arrays, {})
    except UnsupportedProgramError:
        if not sampled:
            raise
        return _relation_layout(call, arrays)
    if not np.all(np.isin(found.counts, (0.0, 1.0))):
        raise DataError(
            "the program gives some of its answers another weight than one, so that they cannot be drawn; calibrate it without weights"
        )
    return found.layout


def _relation_layout(call: Call, arrays: tuple[Any, ...]) -> Layout:
    structure = find_structure(call, arrays, {})
    if structure.loss == "ranking" and structure.symmetry != "none":
        raise DataError(
            f"the ranking loss uses every label of a {structure.symmetry} relation at both its ends, which is no distribution of labels "
            "to draw from; take loss='regression', which is relpref conditional fit --loss regression"
        )
    shapes = {site.name: site.shape for site in survey(call, shapes_of(arrays))}
    hyperparameters = tuple((name, shapes[name]) for name in structure.hyperparameters)
    return Layout(
        ((structure.field, shapes[structure.field]),),
        hyperparameters,
        (structure.label,),
        num_rows=int(np.prod(shapes[structure.label])),
    )


def _one_by_one(value: Any) -> Any:
    """Every answer a row of its own: to an answer that was given k times belong k simulated ones, which may differ."""
    if not isinstance(value, PreferenceData):
        return value
    return replace(value, comparisons=value.comparisons.single())


def _hidden(value: Any) -> Any:
    """Without what would tell a program which answers there were."""
    if isinstance(value, PreferenceData):
        return value.without_answers()
    return value.without_labels() if isinstance(value, Rankings) else value


def _labelled(value: Any, answers: Values) -> Any:
    """Rankings with the classes that the decisions lead to: which decisions were taken depends on them."""
    if not isinstance(value, Rankings) or DECISION not in answers:
        return value
    went_on = jnp.cumprod(answers[DECISION], axis=1)  # to stop at the first class is 0
    label: Any = jnp.sum(went_on, axis=1).astype(np.int32)
    return replace(value, label=label)


Picked = NDArray[np.intp]
_UTILITY, _SCORE = "utility", "score"


class Quantity(Protocol):
    """A number; hashable, because JAX compiles for it."""

    @property
    def name(self) -> str: ...

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
