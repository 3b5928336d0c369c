"""What a posterior says of answers: of its own with each one's site taken out, or of others that it has not seen.

A posterior is a mixture of one or more components, Gaussians or points, each at its own hyperparameters. In every component an answer
sees one number, its predictor, whose belief without the answer is the cavity of expectation propagation; its probability is the
normalizer of its tilted distribution there.
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.evidence import known_sites
from relpref.infer.program import (
    Observation,
    Program,
    Reading,
    Values,
)
from relpref.infer.sites import SparseRows
from relpref.limits import MAX_ROWS_TAKEN_OUT
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Floats
from relpref.posterior.origin import Origin


class Components(NamedTuple):
    """A posterior as K Gaussians or points.

    Attributes
    ----------
    moving : dict from hyperparameter to array, shape (K, ...)
    location : array, shape (K, n)
    scale : array, shape (K, n, n), or None
        None where the components are points.
    precision, shift : array, shape (K, m)
        Sites of the answers that are taken out; zeros where none is in.
    """

    moving: Values
    location: Any
    scale: Any
    precision: Any
    shift: Any


class Predictive(NamedTuple):
    """What a posterior says of m rows of answers, each row's answer (one of its copies) taken out if it was in.

    Attributes
    ----------
    site : array of int, shape (m,)
        Which of the observed sites each row belongs to.
    count : array, shape (m,)
        Answers in each row; 0 for one that was not asked.
    value : array, shape (m,)
        What was answered.
    side : array, shape (m,)
        Whom it favors: 1 the first (or yes), −1 the second (or no), 0 neither; NaN for numbers.
    paired : array of bool, shape (m,)
        Whether an answer compares two, so that exchanging the two is an accident; not so where answers are yes or no.
    weights : array, shape (K, m)
        Of the components, row by row.
    log_score : array, shape (K, m)
        Log probability of one answer of each row, in each component.
    step : array, shape (K, m)
        A component's mean without the answer is its mean plus this times Σa, a the row's projection.
    chance : array, shape (3, m)
        Probability of an answer for the second (or no), for neither, for the first (or yes); NaN for numbers.
    moments : array, shape (3, m)
        Mean, and second and third central moment, of the log probability that an answer gets if the posterior is right; NaN for
        numbers unless K = 1.
    classes : array, shape (c, examples)
        Probability of each class, where decisions follow each other; else of no size.
    """

    site: Any
    count: Any
    value: Any
    side: Any
    paired: Any
    weights: Any
    log_score: Any
    step: Any
    chance: Any
    moments: Any
    classes: Any


class Question:
    """A posterior and answers to its program, prepared so that nothing is looked at twice.

    Parameters
    ----------
    posterior : Posterior
    origin : Origin, optional
        How the program is called with the answers in question, which are new to the posterior. Those that it comes from by default;
        then each is taken out before it is predicted.
    values : mapping from hyperparameter to value, optional
        At which answers are predicted, instead of those at which the posterior was found.

    Attributes
    ----------
    components : Components
    weights : array, shape (K,)
        Of the components.
    observed : tuple of str
        The sites with answers.

    Raises
    ------
    UnsupportedProgramError
        If the posterior does not know its program, or kept no sites.
    DataError
        If the posterior has no numbers, or answers that came by quick updates.
    """

    def __init__(
        self,
        posterior: Posterior,
        origin: Origin | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        known_origin, values = _usable(posterior), values or {}
        given = known_origin if origin is None else origin
        draws = {n: v for n, v in posterior.hyperparameter_draws.items() if n not in values}
        held = {n: v for n, v in posterior.hyperparameters.items() if n not in draws}
        fixed = {name: np.asarray(value) for name, value in (held | dict(values)).items()}
        with jax.enable_x64(True):
            first = {**fixed, **{name: value[0] for name, value in draws.items()}}
            program = Program.of(given.program, given.args, given.kwargs, first, dense=False)
            self._program = program.at({name: jnp.asarray(value) for name, value in fixed.items()})
        layout = program.layout
        if layout.slices != dict(posterior.slices):
            raise DataError("the program has other Gaussian sites at these answers than the posterior has")
        self.observed = layout.observed
        self.weights = posterior.belief.weights
        location, scale = posterior.belief.as_mixture()
        shape = (len(location), layout.num_rows)
        sites = [np.zeros(shape)] * 2
        if origin is None and scale is not None:
            sites = [np.reshape(posterior.sites[name], shape) for name in ("precision", "shift")]
        self.components = Components(draws, location, scale, *sites)
        # The decisions on one example follow each other until one of them ends at a class.
        self._classes = posterior.kind == "classes"

    def answer(self, weights: Floats | None = None) -> Predictive:
        """Ask every component.

        Parameters
        ----------
        weights : array, shape (K, m), optional
            Of the components, row by row; those of the posterior by default.
        """
        parts = self.components
        if weights is None:
            weights = np.repeat(self.weights[:, None], parts.precision.shape[1], axis=1)
        with jax.enable_x64(True):
            found = _ask(self._program, self._classes, parts, weights)
        return Predictive(*(np.asarray(value) for value in found))

    def projection(self) -> Any:
        """A, the linear part of the predictors, a matrix of shape (m, n), sparse where at most two entries of each row are not 0.

        Raises
        ------
        UnsupportedProgramError
            If it differs between the components.
        """
        program = self._program
        moving = self.components.moving
        if moving and not program.layout.constant_projection:
            raise UnsupportedProgramError(
                "what the answers look at depends on hyperparameters that were integrated over; fit with "
                'hyperparameters="maximise"'
            )
        if program.rows is not None:
            columns, entries = np.asarray(program.rows.column), np.asarray(program.rows.entry)
            rows = np.repeat(np.arange(len(columns)), 2)
            shape = len(columns), program.layout.num_latents
            return sparse.csr_array((entries.ravel(), (rows, columns.ravel())), shape=shape)
        with jax.enable_x64(True):
            first = {name: jnp.asarray(value[0]) for name, value in moving.items()}
            return np.asarray(_projection(program.at(first)))


def _usable(posterior: Posterior) -> Origin:
    """How the program was called, of a posterior that can be asked."""
    if posterior.empty:
        raise DataError(f"the engine ended with {posterior.result.name} and gave no numbers; fit again")
    posterior._warn_if_not_converged()
    if posterior.quick_answers:
        raise DataError("the posterior has answers that came by quick updates; call update() first")
    if posterior.origin is None:
        raise UnsupportedProgramError(
            "the posterior does not know its program, which says what an answer's probability is; fit in this session, or with a "
            "program of relpref.models before saving"
        )
    if not posterior.sites and not posterior.sampled:
        raise UnsupportedProgramError(
            "the posterior has kept no sites of its answers; fit again with EP or Laplace"
        )
    return posterior.origin


@partial(jax.jit, static_argnums=1)
def _ask(program: Program, classes: bool, components: Components, weights: Array) -> Predictive:
    def one(part: Components, weight: Array) -> tuple[dict[str, Any], tuple[Array, Array]]:
        """What is summed over the components, each with its weight; and what is kept of each: log scores and steps."""
        reading = program.at(part.moving).read()
        mean, variance, step = _without_own(reading, program.rows, part)
        found = [
            _outcomes(observation, mean[its], variance[its])
            for observation, its in zip(reading.observations, _slices(reading), strict=True)
        ]
        possible = [outcome.weight for outcome in found]
        sums = {
            "chance": weight * jnp.concatenate([_by_side(outcome) for outcome in found], axis=1),
            "classes": _by_class(reading, possible[0], weight) if classes else jnp.zeros((0, 0)),
            "possible": [weight[its] * each for each, its in zip(possible, _slices(reading), strict=True)],
            "powers": weight * _powers(possible, [outcome.log_probability for outcome in found]),
        }
        return sums, (jnp.concatenate([outcome.log_score for outcome in found]), step)

    def add(sums: Any, inputs: tuple[Components, Array]) -> tuple[Any, tuple[Array, Array]]:
        more, kept = one(*inputs)
        return jax.tree.map(jnp.add, sums, more), kept

    first = jax.tree.map(lambda leaf: leaf[0], components)
    shapes, _ = jax.eval_shape(one, first, weights[0])
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums, (log_score, step) = jax.lax.scan(add, nothing, (components, weights))

    observations = program.at(first.moving).read().observations
    sizes = np.array([observation.value.size for observation in observations])
    side = jnp.concatenate([_side(observation) for observation in observations])
    # Of a mixture the probabilities of outcomes are averages; the density of a number is not known at common nodes.
    listed = [jnp.log(jnp.where(each > 0, each, 1.0)) for each in sums["possible"]]
    single = jnp.where(len(weights) == 1, 0.0, jnp.nan)
    powers = jnp.where(jnp.isnan(side), sums["powers"] + single, _powers(sums["possible"], listed))
    paired = np.array([getattr(observation.likelihood, "paired", True) for observation in observations])
    return Predictive(
        site=jnp.asarray(np.repeat(np.arange(len(sizes)), sizes)),
        count=jnp.concatenate([observation.counts for observation in observations]),
        value=jnp.concatenate([jnp.ravel(jnp.asarray(o.value, float)) for o in observations]),
        side=side,
        paired=jnp.asarray(np.repeat(paired, sizes)),
        weights=weights,
        log_score=log_score,
        step=step,
        chance=sums["chance"],
        moments=_central(*powers),
        classes=sums["classes"],
    )


@jax.jit
def _projection(program: Program) -> Array:
    return _matrix(program.read())


def _matrix(reading: Reading) -> Array:
    return reading.projection.rows(jnp.eye(reading.location.size, dtype=reading.location.dtype))


def _slices(reading: Reading) -> list[slice]:
    """The rows of each observed site."""
    ends = np.cumsum([0, *(observation.value.size for observation in reading.observations)])
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _without_own(reading: Reading, rows: SparseRows | None, part: Components) -> tuple[Array, Array, Array]:
    """Mean and variance of every predictor without its own answer, and the step of the mean; shape (m,) each.

    The cavity is N((m − vν)/(1 − vτ), v/(1 − vτ)), as in `relpref.infer.sites.cavities`. Taking the site out is a change of rank one:
    the mean moves by Σa (τm − ν)/(1 − vτ).
    """
    mean = reading.projection.apply(part.location - reading.location)
    if part.scale is None:
        return mean + reading.offset, jnp.zeros_like(mean), jnp.zeros_like(mean)
    if rows is None:
        matrix = _matrix(reading)
        variance = jnp.sum((matrix @ part.scale) * matrix, axis=1)
    else:
        (first, second), (a, b) = rows.column.T, rows.entry.T
        variance = a**2 * part.scale[first, first] + b**2 * part.scale[second, second]
        variance = variance + 2 * a * b * part.scale[first, second]
    variance = jnp.maximum(variance, 0.0)  # rounding, where two entities are the same to the model
    copies = jnp.minimum(jnp.concatenate([o.counts for o in reading.observations]), 1.0)
    precision, shift = copies * part.precision, copies * part.shift
    left = 1 - variance * precision
    step = (precision * mean - shift) / left
    before = (mean - variance * shift) / left, variance / left
    known = known_sites(reading.observations, reading.offset)
    if known is not None and len(mean) <= MAX_ROWS_TAKEN_OUT:
        closed = known.rows & (precision > 0)
        exact = _without_row(reading, part)
        before = jnp.where(closed, exact[0], before[0]), jnp.where(closed, exact[1], before[1])
        moves = closed & (variance > 0)
        step = jnp.where(moves, (before[0] - mean) / jnp.where(moves, variance, 1.0), step)
    return before[0] + reading.offset, before[1], step


def _without_row(reading: Reading, part: Components) -> tuple[Array, Array]:
    """Mean and variance of every projection without one copy of its row's site, from the prior; shape (m,) each.

    Where a Gaussian site is far more precise than all else that is known of its row, 1 − vτ is rounding. So the whole row is taken out
    by (I + TG)⁻¹, G the prior covariance of the projections (Rasmussen & Williams 2006, eq. 5.12), and its other copies put back.
    """
    counts = jnp.concatenate([o.counts for o in reading.observations])
    precision, shift = counts * part.precision, counts * part.shift
    gram = reading.covariance.congruence(reading.projection.apply)
    scale = 1 / (1 + jnp.abs(precision) * jnp.diagonal(gram))  # of the rows, for the solver
    system = jnp.diag(scale) + (scale * precision)[:, None] * gram
    inverse = jnp.linalg.solve(system, jnp.diag(scale))
    diagonal = jnp.diagonal(inverse)
    inside = jnp.where(precision == 0, 1.0, precision)
    variance = (1 / diagonal - 1) / inside
    mean = (shift - (inverse @ shift) / diagonal) / inside
    rest = jnp.maximum(counts - 1, 0.0)
    left = 1 + rest * part.precision * variance
    return (mean + rest * part.shift * variance) / left, variance / left


# Of the predictive distribution of a number, whose log density is quadratic here: mean and variance of the score are exact with these.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class _Outcomes(NamedTuple):
    """The log score of m answers, and the q possible answers to each question: none where they are not known.

    Attributes
    ----------
    log_score : Array, shape (m,)
    log_probability : Array, shape (q, m)
        Of each, under N(mean, variance) of the predictor; of numbers the log density at q nodes.
    weight : Array, shape (q, m)
        They add up to 1: the probabilities, or the weights of the nodes.
    side : array, shape (q,)
        As `Predictive.side`.
    """

    log_score: Array
    log_probability: Array
    weight: Array
    side: Floats


def _outcomes(observation: Observation, mean: Array, variance: Array) -> _Outcomes:
    likelihood, value, _ = observation
    shape = jnp.shape(likelihood.predictor)
    belief = jnp.reshape(mean, shape), jnp.reshape(variance, shape)

    def log_probability(value: Any) -> Array:
        return jnp.ravel(likelihood.tilted(value, *belief).log_normalizer)

    known = getattr(likelihood, "outcomes", None)
    if known is not None:
        values, favours = known
        each = jnp.stack([log_probability(jnp.full(shape, one)) for one in values])
        return _Outcomes(log_probability(value), each, jnp.exp(each), 2 * favours - 1)
    density = getattr(likelihood, "log_density_at", None)
    number = 0 if density is None else len(_NODES)
    each, weight = jnp.zeros((number, mean.size)), jnp.reshape(jnp.asarray(_WEIGHTS[:number]), (-1, 1))
    if density is not None:
        nodes = jnp.asarray(_NODES).reshape(-1, *[1] * len(shape))
        each = jnp.reshape(density(nodes, *belief), each.shape)
    return _Outcomes(
        log_probability(value), each, jnp.broadcast_to(weight, each.shape), np.full(number, np.nan)
    )


def _side(observation: Observation) -> Array:
    known = getattr(observation.likelihood, "outcomes", None)
    value = jnp.ravel(jnp.asarray(observation.value))
    if known is None:
        return jnp.full(value.shape, jnp.nan)
    values, favours = known
    return jnp.asarray(2 * favours - 1)[value.astype(int) - int(values[0])]


def _by_side(found: _Outcomes) -> Array:
    """Probability of the outcomes for the second, for neither and for the first, shape (3, m)."""
    if not len(found.side) or np.isnan(found.side).any():
        return jnp.full((3, *jnp.shape(found.log_score)), jnp.nan)
    return jnp.stack([jnp.sum(found.weight[found.side == side], axis=0) for side in (-1, 0, 1)])


def _by_class(reading: Reading, chance: Array, weight: Array) -> Array:
    """P(class c) = Π_{j<c} P(go on at j) · P(stop at c); the last class is where nothing stopped. Shape (k + 1, examples)."""
    shape = jnp.shape(reading.observations[0].likelihood.predictor)
    going = jnp.cumprod(jnp.reshape(chance[1], shape), axis=1).T
    one = jnp.ones((1, shape[0]), going.dtype)
    change = jnp.concatenate([one, going]) - jnp.concatenate([going, 0 * one])
    return jnp.reshape(weight, shape)[:, 0] * change


def _powers(weights: Any, values: Any) -> Array:
    """Σ weight·value^k over the outcomes for k = 1, 2, 3, shape (3, m); an outcome that cannot be adds nothing."""

    def expectation(weight: Array, value: Array) -> Array:
        if not len(weight):  # nobody knows what the outcomes are
            return jnp.full((3, *weight.shape[1:]), jnp.nan)
        value = jnp.where(weight > 0, value, 0.0)
        return jnp.stack([jnp.sum(weight * value**k, axis=0) for k in (1, 2, 3)])

    return jnp.concatenate([expectation(*each) for each in zip(weights, values, strict=True)], axis=1)


def _central(first: Array, second: Array, third: Array) -> Array:
    """Mean, variance and third central moment."""
    variance = jnp.maximum(second - first**2, 0.0)
    return jnp.stack([first, variance, third - 3 * first * second + 2 * first**3])
