"""What a posterior says of answers: of its own with each one's site taken out, or of others that it has not seen.

A posterior is a mixture of one or more components, Gaussians or points, each at its own hyperparameters. In every component an answer
sees one number, its predictor, whose belief without the answer is the cavity of expectation propagation; its probability is the
normaliser of its tilted distribution there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.diagnostics.predictive.held_out import Outcomes, favours, outcomes
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.evidence import known_sites
from relpref.infer.program import (
    Observation,
    Program,
    Reading,
    Values,
    shapes_of,
    survey,
)
from relpref.infer.sites import DenseRows, Rows, SparseRows
from relpref.posterior.base import Origin, Posterior
from relpref.posterior.gaussian import Floats

_MOST_ROWS = 4000  # whose prior covariance is worth factorising to take a Gaussian site out exactly


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


@dataclass(frozen=True, eq=False)
class Predictive:
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
        Whom it favours, see `relpref.diagnostics.predictive.held_out.favours`.
    weights : array, shape (K, m)
        Of the components, row by row.
    log_score : array, shape (K, m)
        Log probability of one answer of each row, in each component.
    step : array, shape (K, m)
        A component's mean without the answer is its mean plus this times Σa, a the row's projection.
    mean, variance : array, shape (m,)
        Of the predictors, over the components.
    chance : array, shape (3, m)
        Probability of an answer for the second (or no), for neither, for the first (or yes); NaN for numbers.
    moments : array, shape (3, m)
        Mean, and second and third central moment, of the log probability that an answer gets if the posterior is right; NaN for
        numbers unless K = 1.
    classes : array, shape (c, examples)
        Probability of each class, where decisions follow each other; else of no size.
    """

    site: Any
    count: Floats
    value: Floats
    side: Floats
    weights: Floats
    log_score: Floats
    step: Floats
    mean: Floats
    variance: Floats
    chance: Floats
    moments: Floats
    classes: Floats


class Question:
    """A posterior and answers to its program, prepared so that nothing is looked at twice.

    Parameters
    ----------
    posterior : Posterior
    origin : Origin, optional
        How the program is called with the answers in question, which are new to the posterior. Those that it comes from by default;
        then each is taken out before it is predicted.
    classes : bool
        Whether the decisions of one row follow each other until one of them ends at a class.
    values : mapping from hyperparameter to value, optional
        At which answers are predicted, instead of those at which the posterior was found.

    Attributes
    ----------
    components : Components
    weights : array, shape (K,)
        Of the components.
    observed : tuple of str
        The sites with answers.
    paired : array of bool
        Which of them compare two, so that exchanging the two is an accident; not so where answers are yes or no.

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
        classes: bool = False,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        known_origin = _usable(posterior)
        given = known_origin if origin is None else origin
        changed = {name: np.asarray(value) for name, value in (values or {}).items()}
        draws = {n: v for n, v in posterior.hyperparameter_draws.items() if n not in changed}
        fixed = {name: np.asarray(v) for name, v in posterior.hyperparameters.items() if name not in draws}
        fixed |= changed
        with jax.enable_x64(True):
            first = {**fixed, **{name: value[0] for name, value in draws.items()}}
            program = Program.of(given.program, given.args, given.kwargs, first, dense=False)
            self._program = program.at({name: jnp.asarray(value) for name, value in fixed.items()})
        layout = program.layout
        if layout.slices != dict(posterior.slices):
            raise DataError("the program has other Gaussian sites at these answers than the posterior has")
        self.observed = layout.observed
        kinds = {site.name: site.kind for site in survey(program.call, shapes_of(program.arrays))}
        self.paired = np.array([not kinds[name].endswith("Bernoulli") for name in layout.observed])
        self.weights = posterior.belief.weights
        self.components = _components(posterior, draws, layout.num_rows, taken_out=origin is None)
        self._classes = classes

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
        return Predictive(weights=weights, **{name: np.asarray(value) for name, value in found.items()})

    def projection(self) -> Rows:
        """A, the linear part of the predictors, shape (m, n).

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
            return program.rows
        with jax.enable_x64(True):
            first = {name: jnp.asarray(value[0]) for name, value in moving.items()}
            return DenseRows(_projection(program.at(first)))


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


def _components(posterior: Posterior, draws: Values, num_rows: int, *, taken_out: bool) -> Components:
    location, scale = posterior.belief.as_mixture()
    shape = (len(location), num_rows)
    sites = [np.zeros(shape)] * 2
    if taken_out and scale is not None:
        sites = [np.reshape(posterior.sites[name], shape) for name in ("precision", "shift")]
    return Components(draws, location, scale, *sites)


class _Totals(NamedTuple):
    """Sums over the components, each with its weight.

    Attributes
    ----------
    mean, square : Array, shape (m,)
        First and second moment of the predictors.
    chance : Array, shape (3, m)
    classes : Array, shape (c, examples)
    possible : tuple of Array, shape (q, m_site)
        For each observed site, the probabilities of its outcomes.
    powers : Array, shape (3, m)
        Moments of the log scores within components.
    """

    mean: Array
    square: Array
    chance: Array
    classes: Array
    possible: tuple[Array, ...]
    powers: Array


@partial(jax.jit, static_argnums=1)
def _ask(program: Program, classes: bool, components: Components, weights: Array) -> dict[str, Array]:
    def at(part: Components) -> Reading:
        return program.at(part.moving).read()

    def one(part: Components, weight: Array) -> tuple[_Totals, tuple[Array, Array]]:
        reading = at(part)
        mean, variance, step = _without_own(reading, program.rows, part)
        found = [
            _site(observation, mean[its], variance[its])
            for observation, its in zip(reading.observations, _slices(reading), strict=True)
        ]
        possible = [outcome.weight for _, outcome in found]
        log_probability = [outcome.log_probability for _, outcome in found]
        totals = _Totals(
            mean=weight * mean,
            square=weight * (variance + jnp.square(mean)),
            chance=weight * jnp.concatenate([_by_side(outcome) for _, outcome in found], axis=1),
            classes=_by_class(reading, found[0][1], weight) if classes else jnp.zeros((0, 0)),
            possible=tuple(weight[its] * each for each, its in zip(possible, _slices(reading), strict=True)),
            powers=weight * _powers(possible, log_probability),
        )
        return totals, (jnp.concatenate([log_score for log_score, _ in found]), step)

    def add(totals: _Totals, inputs: tuple[Components, Array]) -> tuple[_Totals, tuple[Array, Array]]:
        more, each = one(*inputs)
        return jax.tree.map(jnp.add, totals, more), each

    first = jax.tree.map(lambda leaf: leaf[0], components)
    shapes, _ = jax.eval_shape(one, first, weights[0])
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    totals, (log_score, step) = jax.lax.scan(add, nothing, (components, weights))

    reading = at(first)
    observations = reading.observations
    sizes = np.array([observation.value.size for observation in observations])
    side = jnp.concatenate([jnp.ravel(favours(o.likelihood, o.value)) for o in observations])
    # Of a mixture the probabilities of outcomes are averages; the density of a number is not known at common nodes.
    listed = [jnp.log(jnp.where(each > 0, each, 1.0)) for each in totals.possible]
    single = jnp.where(len(weights) == 1, 0.0, jnp.nan)
    powers = jnp.where(jnp.isnan(side), totals.powers + single, _powers(totals.possible, listed))
    return {
        "site": jnp.asarray(np.repeat(np.arange(len(sizes)), sizes)),
        "count": jnp.concatenate([observation.counts for observation in observations]),
        "value": jnp.concatenate([jnp.ravel(jnp.asarray(o.value, float)) for o in observations]),
        "side": side,
        "log_score": log_score,
        "step": step,
        "mean": totals.mean,
        "variance": totals.square - jnp.square(totals.mean),
        "chance": totals.chance,
        "moments": _central(*powers),
        "classes": totals.classes,
    }


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
    if known is not None and len(mean) <= _MOST_ROWS:
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


def _site(observation: Observation, mean: Array, variance: Array) -> tuple[Array, Outcomes]:
    """The log score of an observed site's answers, and what else they could have been, rows laid out in one axis."""
    likelihood, value, _ = observation
    shape = jnp.shape(likelihood.predictor)
    belief = jnp.reshape(mean, shape), jnp.reshape(variance, shape)
    found = outcomes(likelihood, *belief)
    flat = Outcomes(*(jnp.reshape(each, (each.shape[0], mean.size)) for each in found))
    return jnp.ravel(likelihood.tilted(value, *belief).log_normalizer), flat


def _by_side(found: Outcomes) -> Array:
    """Probability of the outcomes for the second, for neither and for the first, shape (3, m)."""
    numbers = jnp.isnan(jnp.sum(found.side, axis=0)) | (found.side.shape[0] == 0)
    chances = [jnp.sum(jnp.where(found.side == side, found.weight, 0.0), axis=0) for side in (-1, 0, 1)]
    return jnp.where(numbers, jnp.nan, jnp.stack(chances))


def _by_class(reading: Reading, found: Outcomes, weight: Array) -> Array:
    """P(class c) = Π_{j<c} P(go on at j) · P(stop at c); the last class is where nothing stopped. Shape (k + 1, examples)."""
    shape = jnp.shape(reading.observations[0].likelihood.predictor)
    going = jnp.cumprod(jnp.reshape(found.weight[1], shape), axis=1).T
    one = jnp.ones((1, shape[0]), going.dtype)
    return jnp.reshape(weight, shape)[:, 0] * (
        jnp.concatenate([one, going]) - jnp.concatenate([going, 0 * one])
    )


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
