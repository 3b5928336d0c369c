"""Predictions of answers by a posterior, either without the site of each answer or for new answers.

A posterior is a mixture of one or more components, Gaussians or points, each at its own
hyperparameters. In every component an answer depends on one number, its predictor. The belief about
the predictor without the answer is the cavity of expectation propagation, and the probability of
the answer is the normalizer of its tilted distribution there.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse

from relpref.compiled import float64
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.arrow import Arrow, Groups, Items, Weights, middle_of, offset_and_noise
from relpref.infer.call import Values, survey
from relpref.infer.evidence import known_sites, log_of_sites
from relpref.infer.gradient import tilted
from relpref.infer.joint import joint_on_host
from relpref.infer.layout import Observation, Reading
from relpref.infer.program import Program
from relpref.infer.rows import SparseRows
from relpref.infer.sites import Cavity, Sites
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods import TiltedMoments
from relpref.likelihoods.orthants import log_ordered
from relpref.limits import MAX_ROWS_TAKEN_OUT
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Floats
from relpref.posterior.origin import Origin


class Components(NamedTuple):
    """A posterior as K Gaussians, or points without a ``scale``.

    ``moving`` has K values of each hyperparameter; ``location`` and ``scale`` are of shapes (K, n)
    and (K, n, n); ``precision`` and ``shift``, shape (K, m), are the sites that are taken out,
    zeros for rows without a site. ``apart``, shape (K, 2, m), are mean and variance of predictors
    without the sites of their groups, NaN for rows without a group; None without groups.
    """

    moving: Values
    location: Any
    scale: Any
    precision: Any
    shift: Any
    apart: Any = None


class Predictive(NamedTuple):
    """Predictions of m rows of answers, each without one copy of the answer if it was observed."""

    site: Any  # index of the observed site of each row, shape (m,)
    count: Any  # answers in each row, 0 for one that was not asked, shape (m,)
    value: Any  # the answer, shape (m,)
    # The side that the answer favors, shape (m,): 1 the first (or yes), −1 the second (or no), 0
    # neither; NaN for numbers.
    side: Any
    # Whether the answer compares two, whose order is arbitrary, unlike yes and no; shape (m,).
    paired: Any
    weights: Any  # weights of the components for each row, shape (K, m)
    log_score: Any  # log probability of one answer of each row in each component, shape (K, m)
    # Shift of each component's mean when the answer is left out, in units of Σa with a the row's
    # projection; shape (K, m).
    step: Any
    # Probability of an answer for the first (or yes), for neither, for the second (or no); NaN for
    # numbers; shape (3, m).
    chance: Any
    # Mean, and second and third central moment, of the log probability of a random answer if the
    # posterior is right; NaN for numbers unless K = 1; shape (3, m).
    moments: Any
    # Probability of each class if decisions follow each other, shape (c, examples); else empty.
    classes: Any
    # Log probability of all answers that are left out with a row's, in each component; (K, m).
    leaving: Any


class Question:
    """A posterior and answers to its program, prepared to be predicted.

    Parameters
    ----------
    posterior : Posterior
    origin : Origin, optional
        Source of answers that are new to the posterior. By default the answers are the posterior's
        own, each of which is taken out before it is predicted.
    values : mapping, optional
        Hyperparameters for the predictions in place of the posterior's.
    """

    def __init__(
        self,
        posterior: Posterior,
        origin: Origin | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        source, values = _usable(posterior), dict(values or {})
        call = origin or source
        draws = {n: v for n, v in posterior.hyperparameter_draws.items() if n not in values}
        held = {n: v for n, v in posterior.hyperparameters.items() if n not in draws}
        fixed = {name: np.asarray(value) for name, value in (held | values).items()}
        with float64():
            first = {**fixed, **{name: value[0] for name, value in draws.items()}}
            program = Program.of(call.program, call.args, call.kwargs, first, dense=False)
            self._program = program.at({name: jnp.asarray(value) for name, value in fixed.items()})
        layout = program.layout
        if layout.slices != dict(posterior.slices):
            raise DataError(
                "the program has other Gaussian sites at these answers than the posterior has"
            )
        self.observed = layout.observed
        self.weights = posterior.full.weights
        location, scale = posterior.full.locations, posterior.full.scales
        shape = (len(location), layout.num_rows)
        sites = [np.zeros(shape)] * 2
        if origin is None and scale is not None:
            sites = [np.reshape(posterior.sites[name], shape) for name in ("precision", "shift")]
        self.components = Components(draws, location, scale, *sites)
        # Laplace's sites of lists are blocks.
        self._joint: list[Weights] = []
        if origin is None and layout.ordered and source.engine.at_mode:
            self._set_sites_at_mode()
        if layout.integrated:
            self.components = self.components._replace(apart=self._group_margins())
        # The decisions on one example follow each other until one of them ends at a class.
        self._classes = posterior.kind == "classes"

    def answer(self, weights: Floats | None = None) -> Predictive:
        """Predict all rows; ``weights`` of components, shape (K, m), replace the posterior's."""
        if weights is None:
            weights = np.repeat(self.weights[:, None], self.components.precision.shape[1], axis=1)
        with float64():
            predictive = Predictive(
                *map(np.asarray, _predict(self._program, self._classes, self.components, weights))
            )
            if self._program.layout.ordered:
                return self._with_lists(predictive)
            if self.components.apart is not None:
                return self._with_groups(predictive)
            return predictive

    def _group_cavities(self) -> Iterator[list[tuple[Groups, Floats, Floats]]]:
        """Yield for each component the groups of rows that share noise, and their cavities.

        A cavity has the mean and covariance of a group's predictors without the group's sites.
        """
        arrow, program = self._program.arrow, self._program
        if arrow is None or arrow.rows is None:
            raise UnsupportedProgramError(
                "some answers share noise and depend on more than two latents each, or on "
                "hyperparameters; leaving them out is not supported"
            )
        for at, part in enumerate(self._parts()):
            location, offset, sds = map(np.asarray, offset_and_noise(program.at(part.moving)))
            centered = part._replace(location=part.location - location)
            weights = self._joint[at].groups if self._joint else None
            yield cavities_of_groups(arrow, centered, offset, sds, self._counts, weights)

    def _set_sites_at_mode(self) -> None:
        """Set the sites to Laplace's at the mode, which are blocks for lists."""
        program, arrow = self._program.at_a_point(), self._program.arrow
        assert arrow is not None and program.rows is not None
        precision, shift = np.zeros((2, *self.components.precision.shape))
        with float64():
            for at, part in enumerate(self._parts()):
                here = program.at(part.moving)
                location, offset, _ = map(np.asarray, offset_and_noise(here))
                value = program.rows.apply(np.asarray(part.location) - location)
                joint = joint_on_host(arrow, here, {}, lambda points: points)
                around, alone = joint.at(value), joint.alone
                moments = _tilted(here, value + offset, 1 - alone)
                curvature = np.asarray(moments.curvature)
                self._joint.append(joint.weights(self._counts * curvature, around.second))
                precision[at] = alone * curvature
                shift[at] = alone * np.asarray(moments.gradient) + precision[at] * value
                shift[at] += around.slope + (1 - alone) * joint.times(self._joint[at], value)
        self.components = self.components._replace(precision=precision, shift=shift)

    @property
    def _counts(self) -> Floats:
        return np.asarray(self._program.counts, dtype=np.float64)

    def _parts(self) -> list[Components]:
        """Each component by itself, without the leading axis."""
        number = len(self.components.location)
        return [jax.tree.map(lambda leaf, at=at: leaf[at], self.components) for at in range(number)]

    def _group_margins(self) -> Floats:
        """Moments of predictors without their groups' sites; NaN without one, shape (K, 2, m)."""
        if self._program.layout.ordered:
            raise UnsupportedProgramError(
                "lists within groups of answers cannot be left out; leave the column 'group' out, "
                "or read the answers with lists='pairs'"
            )
        shape = self.components.precision.shape
        margins = np.full((shape[0], 2, shape[1] + 1), np.nan)  # the last row is padding
        with float64():
            for at, blocks in enumerate(self._group_cavities()):
                for group, mean, covariance in blocks:
                    margins[at][:, group.rows] = mean, np.diagonal(covariance, axis1=1, axis2=2)
        return margins[:, :, :-1]

    def _with_groups(self, predictive: Predictive) -> Predictive:
        """Add log probabilities of groups by EP: the evidence of their rows at the fitted sites.

        With sites exp(h·g − ½ gᵀTg) of predictors g ~ N(m, C) this is the integral of the product
        of the sites, times Ẑ and the correction for the cavity of each row.
        """
        counts, leaving = self._counts, predictive.log_score.copy()
        for at, (part, blocks) in enumerate(
            zip(self._parts(), self._group_cavities(), strict=True)
        ):
            program, total = self._program.at(part.moving), np.zeros(len(counts) + 1)
            offset = np.asarray(offset_and_noise(program)[1])
            tau, nu, copies, start = (
                np.append(each, 0.0) for each in (part.precision, part.shift, counts, offset)
            )
            cavity, integrals = np.zeros((2, len(counts) + 1)), []
            for group, mean, covariance in blocks:
                rows = group.rows
                precision, pull = (copies * tau)[rows], (copies * nu)[rows]
                mean = mean - start[rows]
                system = np.eye(rows.shape[1]) + covariance * precision[:, None, :]
                inside = np.linalg.inv(system) @ covariance
                rest = pull - precision * mean
                response = _times(inside, rest)
                variance = np.diagonal(inside, axis1=1, axis2=2)
                removed = variance * np.minimum(copies[rows], 1.0)
                left = 1 - removed * tau[rows]
                cavity[:, rows] = (mean + response - removed * nu[rows]) / left, variance / left
                quadratic = np.sum(mean * (pull + rest) + rest * response, axis=1)
                integrals.append((rows, 0.5 * (quadratic - np.linalg.slogdet(system)[1])))
            mean, variance = cavity[:, :-1]
            log_normalizer = np.asarray(_tilted(program, mean + offset, variance).log_normalizer)
            sites = Sites(part.precision, part.shift)
            single = log_of_sites(counts, log_normalizer, sites, Cavity(mean, variance))
            single = np.append(single, 0.0)
            for rows, integral in integrals:
                total[rows] = (integral + single[rows].sum(axis=1))[:, None]
            leaving[at] = np.where(np.isnan(part.apart[0]), leaving[at], total[:-1])
        return predictive._replace(leaving=leaving)

    def _with_lists(self, predictive: Predictive) -> Predictive:
        """Score each list by its order, in its first row; its pairs have no predictions."""
        for site in survey(self._program.call):
            if site.without_moments is not None:
                raise UnsupportedProgramError(
                    "the probability of a new list with logistic noise (Plackett and Luce) is not "
                    "found; take the likelihood Probit()"
                )
        number, log_score = len(predictive.value), predictive.log_score.copy()
        listed = np.zeros(number, dtype=bool)
        (kind,) = self._program.arrow.kinds if self._program.arrow else ()
        for at, blocks in enumerate(self._group_cavities()):
            for group, mean, covariance in blocks:
                rows, inside = group.rows, group.rows < number
                first = np.where(inside, rows, 0)
                entries = np.where(inside[:, :, None], kind.entry[first], 0.0)
                gaps = Items.of(kind.column[first], entries).entries
                # Items up to a common constant, which gaps do not determine.
                back = np.linalg.pinv(gaps)
                spread = back @ covariance @ back.swapaxes(1, 2)
                listed[rows[inside]], log_score[at, rows[inside]] = True, 0.0
                log_score[at, rows[:, 0]] = log_ordered(_times(back, mean), spread, _places(gaps))
        unknown: dict[str, Any] = {
            name: np.where(listed, np.nan, getattr(predictive, name))
            for name in ("chance", "moments", "step", "side")
        }
        return predictive._replace(log_score=log_score, leaving=log_score, **unknown)

    def projection(self) -> Any:
        """Linear part of the predictors, shape (m, n); sparse if rows have few nonzero entries."""
        program, moving = self._program, self.components.moving
        if moving and not program.layout.constant_projection:
            raise UnsupportedProgramError(
                "what the answers look at depends on hyperparameters that were integrated over; "
                'fit with hyperparameters="maximize"'
            )
        if program.rows is not None:
            columns, entries = np.asarray(program.rows.column), np.asarray(program.rows.entry)
            rows = np.repeat(np.arange(len(columns)), columns.shape[1])
            shape = len(columns), program.layout.num_latents
            return sparse.csr_array((entries.ravel(), (rows, columns.ravel())), shape=shape)
        with float64():
            return np.asarray(
                _projection(program.at({n: jnp.asarray(v[0]) for n, v in moving.items()}))
            )


def _usable(posterior: Posterior) -> Origin:
    """Return the call of the posterior's program; raise if its answers cannot be predicted."""
    if posterior.empty:
        raise DataError(
            f"the engine ended with {posterior.result.name} and gave no numbers; fit again"
        )
    posterior._warn_if_not_converged()
    if posterior.quick_answers:
        raise DataError("the posterior has answers that came by quick updates; call update() first")
    if posterior.origin is None:
        raise UnsupportedProgramError(
            "the posterior does not know its program, which gives the probability of an answer; "
            "fit in this session, or with a program of relpref.models before saving"
        )
    if not posterior.sites and not posterior.sampled:
        raise UnsupportedProgramError(
            "the posterior has kept no sites of its answers; fit again with EP or Laplace"
        )
    return posterior.origin


@lazy_jit(static_argnums=1)
def _predict(program: Program, classes: bool, components: Components, weights: Array) -> Predictive:
    """Predictions of all rows, summed over the components one after the other."""

    def predict(part: Components, weight: Array) -> tuple[dict[str, Any], tuple[Array, Array]]:
        """Weighted terms of the sums over components, and the log scores and steps of this one."""
        reading = program.at(part.moving).read()
        mean, variance, step = _cavities(reading, program.rows, part)
        if part.apart is not None:
            grouped = ~jnp.isnan(part.apart[0])
            mean, variance = (
                jnp.where(grouped, *both) for both in zip(part.apart, (mean, variance), strict=True)
            )
            step = jnp.where(grouped, jnp.nan, step)
        ends = np.cumsum([0, *(observation.value.size for observation in reading.observations)])
        places = [slice(*pair) for pair in pairwise(ends)]
        scores, chances, logs = zip(
            *(
                _outcomes(observation, mean[rows], variance[rows])
                for observation, rows in zip(reading.observations, places, strict=True)
            ),
            strict=True,
        )
        sums = {
            "chances": [weight[i] * chance for i, chance in zip(places, chances, strict=True)],
            "logs": [weight[i] * log for i, log in zip(places, logs, strict=True)],
            "classes": _by_class(reading, chances[0], weight) if classes else jnp.zeros((0, 0)),
        }
        return sums, (jnp.concatenate(scores), step)

    def add(sums: Any, inputs: tuple[Components, Array]) -> tuple[Any, tuple[Array, Array]]:
        terms, each = predict(*inputs)
        return jax.tree.map(jnp.add, sums, terms), each

    first = jax.tree.map(lambda leaf: leaf[0], components)
    shapes, _ = jax.eval_shape(predict, first, weights[0])
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums, (log_score, step) = jax.lax.scan(add, zeros, (components, weights))

    observations = program.at(first.moving).read().observations
    sizes = np.array([observation.value.size for observation in observations])
    paired = np.array(
        [getattr(observation.likelihood, "paired", True) for observation in observations]
    )
    side, chance, moments = [], [], []
    for observation, chances, logs in zip(observations, sums["chances"], sums["logs"], strict=True):
        value = jnp.ravel(jnp.asarray(observation.value))
        outcomes = getattr(observation.likelihood, "outcomes", None)
        unknown = jnp.full(value.shape, jnp.nan)
        if outcomes is None:
            # The density of a number under a mixture is not known at common nodes.
            logs = logs if len(logs) and len(weights) == 1 else unknown[None]
            chances = chances if len(chances) else unknown[None]
            side.append(unknown)
            chance.append(jnp.stack([unknown] * 3))
        else:
            sides = 2 * outcomes[1] - 1
            # An impossible outcome adds nothing.
            logs = jnp.log(jnp.where(chances > 0, chances, 1.0))
            side.append(jnp.asarray(sides)[value.astype(int) - int(outcomes[0][0])])
            chance.append(jnp.stack([jnp.sum(chances[sides == at], axis=0) for at in (1, 0, -1)]))
        moments.append(_central(*(jnp.sum(chances * logs**k, axis=0) for k in (1, 2, 3))))
    return Predictive(
        site=jnp.asarray(np.repeat(np.arange(len(sizes)), sizes)),
        count=jnp.concatenate([observation.counts for observation in observations]),
        value=jnp.concatenate([jnp.ravel(jnp.asarray(o.value, float)) for o in observations]),
        side=jnp.concatenate(side),
        paired=jnp.asarray(np.repeat(paired, sizes)),
        weights=weights,
        log_score=log_score,
        step=step,
        chance=jnp.concatenate(chance, axis=1),
        moments=jnp.concatenate(moments, axis=1),
        classes=sums["classes"],
        leaving=log_score,
    )


@lazy_jit
def _tilted(program: Program, mean: Array, variance: Array) -> TiltedMoments:
    """Tilted moments of every row, where predictors are N(mean, variance)."""
    reading = program.read()
    return tilted(reading.observations, jnp.zeros_like(mean), mean, variance)


def cavities_of_groups(
    arrow: Arrow,
    part: Components,
    offset: Any,
    sds: Any,
    counts: Any,
    curvatures: Sequence[Any] | None = None,
) -> list[tuple[Groups, Floats, Floats]]:
    """Mean and covariance of the predictors of groups without the groups' sites.

    They are of shapes (g, p) and (g, p, p) for g groups of p rows. ``part`` is one component whose
    location is relative to the prior mean. Without the sites of a group, whose rows are N(m, G),
    predictors are N((I − GT)⁻¹(m − Gν), (I − GT)⁻¹G). Sites with ``curvatures``, blocks of shape
    (g, p, p), are of rows without their shared noise, which is added last.
    """
    blocks, rows, cavities = arrow.blocks, arrow.rows, []
    assert rows is not None
    each = zip(
        blocks.groups,
        rows.items,
        blocks.factors(sds),
        *map(blocks.cut, (counts * part.precision, counts * part.shift, offset)),
        strict=True,
    )
    for at, (group, (columns, entries), factor, tau, nu, start) in enumerate(each):
        identity, shared = np.eye(tau.shape[1]), factor @ factor.swapaxes(1, 2)
        if curvatures is None:
            noise, sites = shared, tau[:, None, :] * identity
        else:
            # Sites of rows without noise are blocks, and the precisions of single rows are 0.
            noise, sites = 0 * shared, np.asarray(curvatures[at])
        pulled = middle_of(tau, factor).weights @ noise  # MC
        left = identity - pulled.swapaxes(1, 2)
        spread = noise - noise @ pulled
        if part.scale is not None:
            prior = np.asarray(part.scale)[columns[:, :, None], columns[:, None, :]]
            spread = spread + left @ entries @ prior @ entries.swapaxes(1, 2) @ left.swapaxes(1, 2)
        predictor = _times(entries, np.asarray(part.location)[columns])
        mean = _times(left, predictor) + _times(noise, nu - _times(pulled, nu))
        without = np.linalg.inv(identity - spread @ sites)
        covariance = without @ spread + (shared - noise)
        mean = _times(without, mean - _times(spread, nu)) + start
        cavities.append((group, mean, 0.5 * (covariance + covariance.swapaxes(1, 2))))
    return cavities


def _places(gaps: Floats) -> Any:
    """Rank of each item within its list, from rows of shape (g, p, k); −1 for no item.

    A row has 1 at the item above and −1 at the item below; items of one block have equal ranks.
    """
    above, below = (gaps > 0)[:, :, :, None], (gaps < 0)[:, :, None, :]
    over = (above & below).any(axis=1)  # shape (g, k, k)
    places = np.zeros(over.shape[:2], dtype=np.int64)
    for _ in range(over.shape[1]):
        places = np.max(over * (places[:, :, None] + 1), axis=1, initial=0)
    return np.where(gaps.any(axis=1), places, -1)


def _times(blocks: Any, vectors: Any) -> Floats:
    return np.asarray((blocks @ vectors[:, :, None])[:, :, 0])


@lazy_jit
def _projection(program: Program) -> Array:
    return _matrix(program.read())


def _matrix(reading: Reading) -> Array:
    return reading.projection.rows(jnp.eye(reading.location.size, dtype=reading.location.dtype))


def _cavities(
    reading: Reading, rows: SparseRows | None, part: Components
) -> tuple[Array, Array, Array]:
    """Mean and variance of every predictor without its own answer, and the step of the mean.

    Each has shape (m,). The cavity is N((m − vν)/(1 − vτ), v/(1 − vτ)), as in
    `relpref.infer.sites.cavities`. Taking the site out is a change of rank one: the mean moves by
    Σa (τm − ν)/(1 − vτ).
    """
    mean = reading.projection.apply(part.location - reading.location)
    if part.scale is None:
        return mean + reading.offset, jnp.zeros_like(mean), jnp.zeros_like(mean)
    if rows is None:
        matrix = _matrix(reading)
        variance = jnp.sum((matrix @ part.scale) * matrix, axis=1)
    else:
        spread = part.scale[rows.column[:, :, None], rows.column[:, None, :]]
        variance = jnp.sum(rows.entry[:, :, None] * spread * rows.entry[:, None, :], axis=(1, 2))
    variance = jnp.maximum(variance, 0.0)  # rounding, where two items are the same to the model
    counts = jnp.concatenate([observation.counts for observation in reading.observations])
    copies = jnp.minimum(counts, 1.0)
    precision, shift = copies * part.precision, copies * part.shift
    left = 1 - variance * precision
    step = (precision * mean - shift) / left
    cavity = (mean - variance * shift) / left, variance / left
    gaussian = known_sites(reading.observations, reading.offset)
    if gaussian is not None and len(mean) <= MAX_ROWS_TAKEN_OUT:
        closed = gaussian.rows & (precision > 0)
        exact = _exact_cavities(reading, part, counts)
        cavity = jnp.where(closed, exact[0], cavity[0]), jnp.where(closed, exact[1], cavity[1])
        moves = closed & (variance > 0)
        step = jnp.where(moves, (cavity[0] - mean) / jnp.where(moves, variance, 1.0), step)
    return cavity[0] + reading.offset, cavity[1], step


def _exact_cavities(reading: Reading, part: Components, counts: Array) -> tuple[Array, Array]:
    """Mean and variance of every projection without one copy of its row's site, shape (m,) each.

    Where a Gaussian site is far more precise than all else that is known of its row, 1 − vτ is
    rounding. So the whole row is taken out by (I + TG)⁻¹, G the prior covariance of the projections
    (Rasmussen & Williams 2006, eq. 5.12), and its other copies put back.
    """
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


# Nodes for the predictive distribution of a number. Its log density is quadratic here, so mean and
# variance of the score are exact.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _outcomes(observation: Observation, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Log scores of m answers, and probabilities and log probabilities of the q possible answers.

    They are of shapes (m,), (q, m) and (q, m). The predictor is N(mean, variance). For numbers the
    probabilities are weights of q nodes and the log probabilities log densities there; q = 0 where
    the density is not known.
    """
    likelihood, value, _ = observation
    shape = jnp.shape(likelihood.predictor)
    belief = jnp.reshape(mean, shape), jnp.reshape(variance, shape)

    def log_probability(value: Any) -> Array:
        return jnp.ravel(likelihood.tilted(value, *belief).log_normalizer)

    outcomes = getattr(likelihood, "outcomes", None)
    density = getattr(likelihood, "log_density_at", None)
    logs, weights = jnp.zeros((0, mean.size)), jnp.zeros((0, mean.size))
    if outcomes is not None:
        logs = jnp.stack([log_probability(jnp.full(shape, outcome)) for outcome in outcomes[0]])
        weights = jnp.exp(logs)
    elif density is not None:
        nodes = jnp.reshape(jnp.asarray(_NODES), (-1, *[1] * len(shape)))
        logs = jnp.reshape(density(nodes, *belief), (len(_NODES), mean.size))
        weights = jnp.broadcast_to(jnp.asarray(_WEIGHTS)[:, None], logs.shape)
    return log_probability(value), weights, logs


def _by_class(reading: Reading, chance: Array, weight: Array) -> Array:
    """Weighted probabilities of k + 1 classes, shape (k + 1, examples).

    P(class c) = Π_{j<c} P(go on at j) · P(stop at c); the last class is reached by never stopping.
    """
    shape = jnp.shape(reading.observations[0].likelihood.predictor)
    going = jnp.cumprod(jnp.reshape(chance[1], shape), axis=1).T
    reached = jnp.pad(going, ((1, 0), (0, 0)), constant_values=1.0)
    passed = jnp.pad(going, ((0, 1), (0, 0)))
    return jnp.reshape(weight, shape)[:, 0] * (reached - passed)


def _central(first: Array, second: Array, third: Array) -> Array:
    """Mean, variance and third central moment, from the first three moments about 0."""
    variance = jnp.maximum(second - first**2, 0.0)
    return jnp.stack([first, variance, third - 3 * first * second + 2 * first**3])
