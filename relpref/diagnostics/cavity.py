"""What a posterior says of answers: of its own with each one's site taken out, or of others that are new to it.

A posterior is a mixture of one or more components, Gaussians or points, each at its own
hyperparameters. In every component an answer sees one number, its predictor, whose belief without
the answer is the cavity of expectation propagation; its probability is the normalizer of its tilted
distribution there.
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
    zeros where none is in. ``apart``, shape (K, 2, m), are mean and variance of predictors without
    their whole groups, NaN of a row without a group; None where there are no groups.
    """

    moving: Values
    location: Any
    scale: Any
    precision: Any
    shift: Any
    apart: Any = None


class Predictive(NamedTuple):
    """What a posterior says of m rows of answers, each row's answer (one of its copies) taken out if it was in."""

    site: Any  # which of the observed sites each row belongs to, shape (m,)
    count: Any  # answers in each row, 0 for one that was not asked, shape (m,)
    value: Any  # what was answered, shape (m,)
    # Whom it favors: 1 the first (or yes), −1 the second (or no), 0 neither; NaN for numbers; shape
    # (m,).
    side: Any
    # Whether an answer compares two, so that exchanging the two is an accident; not so where
    # answers are yes or no; shape (m,).
    paired: Any
    weights: Any  # of the components, row by row, shape (K, m)
    log_score: Any  # log probability of one answer of each row in each component, shape (K, m)
    # A component's mean without the answer is its mean plus this times Σa, a the row's projection;
    # shape (K, m).
    step: Any
    # Probability of an answer for the first (or yes), for neither, for the second (or no); NaN for
    # numbers; shape (3, m).
    chance: Any
    # Mean, and second and third central moment, of the log probability that an answer gets if the
    # posterior is right; NaN for numbers unless K = 1; shape (3, m).
    moments: Any
    # Probability of each class, where decisions follow each other, shape (c, examples); else of no
    # size.
    classes: Any
    # Log probability of all answers that leave with a row's, in each component, shape (K, m).
    leaving: Any


class Question:
    """A posterior and answers to its program, prepared so that nothing is looked at twice.

    The answers are those of ``origin``, new to the posterior; by default its own, each of which is
    taken out before it is predicted. ``values`` are hyperparameters at which they are predicted,
    instead of the posterior's.
    """

    def __init__(
        self,
        posterior: Posterior,
        origin: Origin | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        own, values = _usable(posterior), dict(values or {})
        given = own if origin is None else origin
        draws = {n: v for n, v in posterior.hyperparameter_draws.items() if n not in values}
        held = {n: v for n, v in posterior.hyperparameters.items() if n not in draws}
        fixed = {name: np.asarray(value) for name, value in (held | values).items()}
        with float64():
            first = {**fixed, **{name: value[0] for name, value in draws.items()}}
            program = Program.of(given.program, given.args, given.kwargs, first, dense=False)
            self._program = program.at({name: jnp.asarray(value) for name, value in fixed.items()})
        layout = program.layout
        if layout.slices != dict(posterior.slices):
            raise DataError(
                "the program has other Gaussian sites at these answers than the posterior has"
            )
        self.observed = layout.observed
        self.weights = posterior.whole.weights
        location, scale = posterior.whole.locations, posterior.whole.scales
        shape = (len(location), layout.num_rows)
        sites = [np.zeros(shape)] * 2
        if origin is None and scale is not None:
            sites = [np.reshape(posterior.sites[name], shape) for name in ("precision", "shift")]
        self.components = Components(draws, location, scale, *sites)
        # Laplace's sites of lists are blocks.
        self._joint: list[Weights] = []
        if origin is None and layout.ordered and own.engine.at_mode:
            self._touch()
        if layout.integrated:
            self.components = self.components._replace(apart=self._without_groups())
        # The decisions on one example follow each other until one of them ends at a class.
        self._classes = posterior.kind == "classes"

    def answer(self, weights: Floats | None = None) -> Predictive:
        """Ask every component, weighted row by row, shape (K, m), or as in the posterior."""
        if weights is None:
            weights = np.repeat(self.weights[:, None], self.components.precision.shape[1], axis=1)
        with float64():
            found = Predictive(
                *map(np.asarray, _ask(self._program, self._classes, self.components, weights))
            )
            if self._program.layout.ordered:
                return self._with_lists(found)
            return found if self.components.apart is None else self._with_groups(found)

    def _blocks(self) -> Iterator[list[tuple[Groups, Floats, Floats]]]:
        """Of every component the groups of rows that share noise, with mean and covariance of the predictors without their sites."""
        arrow, program = self._program.arrow, self._program
        if arrow is None or arrow.rows is None:
            raise UnsupportedProgramError(
                "some answers share noise and look at more than two latents each, or at what "
                "hyperparameters change; what is known "
                "without one of them is found for other programs alone"
            )
        for at, (moving, *rest) in enumerate(zip(*self._each(), strict=True)):
            location, offset, sds = map(np.asarray, offset_and_noise(program.at(moving)))
            component = (rest[0] - location, *rest[1:])
            weights = self._joint[at].groups if self._joint else None
            yield cavities_of_groups(arrow, component, offset, sds, self._counts, weights)

    def _touch(self) -> None:
        """Laplace's sites at the mode: of single answers their precisions and shifts, of lists blocks and slopes."""
        program, arrow = self._program.at_a_point(), self._program.arrow
        assert arrow is not None and program.rows is not None
        precision, shift = np.zeros((2, *self.components.precision.shape))
        with float64():
            for at, (moving, mean, *_) in enumerate(zip(*self._each(), strict=True)):
                here = program.at(moving)
                location, offset, _ = map(np.asarray, offset_and_noise(here))
                value = program.rows.apply(np.asarray(mean) - location)
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

    def _without_groups(self) -> Floats:
        """Mean and variance of each predictor without the sites of its whole group; NaN of rows without one, shape (K, 2, m)."""
        if self._program.layout.ordered:
            raise UnsupportedProgramError(
                "lists within groups of answers cannot be left out; leave the column 'group' out, "
                "or read the answers with lists='pairs'"
            )
        shape = self.components.precision.shape
        found = np.full((shape[0], 2, shape[1] + 1), np.nan)
        with float64():
            for at, blocks in enumerate(self._blocks()):
                for group, mean, covariance in blocks:
                    found[at][:, group.rows] = mean, np.diagonal(covariance, axis1=1, axis2=2)
        return found[:, :, :-1]

    def _with_groups(self, found: Predictive) -> Predictive:
        """The log probability of whole groups by EP: the evidence of their rows alone, whose sites are those of the whole.

        With sites exp(h·g − ½ gᵀTg) of predictors g ~ N(m, C) that is the integral of their
        product, times Ẑ and what makes up for the cavities, row by row.
        """
        counts, leaving = self._counts, found.log_score.copy()
        for at, blocks in enumerate(self._blocks()):
            moving, _, _, precision, shift = (each[at] for each in self._each())
            program, total = self._program.at(moving), np.zeros(len(counts) + 1)
            offset = np.asarray(offset_and_noise(program)[1])
            tau, nu, copies = (np.append(each, 0.0) for each in (precision, shift, counts))
            start, members = np.append(offset, 0.0), []
            cavity = np.zeros((2, len(counts) + 1))
            for group, mean, covariance in blocks:
                rows = group.rows
                own, pull = (copies * tau)[rows], (copies * nu)[rows]
                own_mean = mean - start[rows]
                inside = (
                    np.linalg.inv(np.eye(rows.shape[1]) + covariance * own[:, None, :]) @ covariance
                )
                rest = pull - own * own_mean
                after, spread = (
                    own_mean + _times(inside, rest),
                    np.diagonal(inside, axis1=1, axis2=2),
                )
                removed = spread * np.minimum(copies[rows], 1.0)
                left = 1 - removed * tau[rows]
                cavity[:, rows] = (after - removed * nu[rows]) / left, spread / left
                _, size = np.linalg.slogdet(np.eye(rows.shape[1]) + covariance * own[:, None, :])
                quadratic = np.sum(own_mean * (pull + rest) + rest * _times(inside, rest), axis=1)
                members.append((rows, 0.5 * (quadratic - size)))
            mean, variance = cavity[:, :-1]
            log_normalizer = np.asarray(_tilted(program, mean + offset, variance).log_normalizer)
            sites = Sites(precision, shift)
            for rows, joint in members:
                single = np.append(
                    log_of_sites(counts, log_normalizer, sites, Cavity(mean, variance)), 0.0
                )
                total[rows] = (joint + single[rows].sum(axis=1))[:, None]
            grouped = ~np.isnan(self.components.apart[at, 0])
            leaving[at] = np.where(grouped, total[:-1], leaving[at])
        return found._replace(leaving=leaving)

    def _with_lists(self, found: Predictive) -> Predictive:
        """Lists leave whole: the log score of their order is that of their first row, and of single pairs nothing is said."""
        for site in survey(self._program.call):
            if site.without_moments is not None:
                raise UnsupportedProgramError(
                    "the probability of a new list with logistic noise (Plackett and Luce) is not "
                    "found; take the likelihood Probit()"
                )
        listed, log_score = np.zeros(len(found.value), dtype=bool), found.log_score.copy()
        (kind,) = self._program.arrow.kinds if self._program.arrow else ()
        for at, blocks in enumerate(self._blocks()):
            for group, mean, covariance in blocks:
                rows, there = group.rows, group.rows < len(listed)
                first = np.where(there, rows, 0)
                gaps = Items.of(
                    kind.column[first], np.where(there[:, :, None], kind.entry[first], 0.0)
                ).entries
                # Items up to what they have in common, of which gaps know nothing.
                back = np.linalg.pinv(gaps)
                score = log_ordered(
                    _times(back, mean), back @ covariance @ back.swapaxes(1, 2), _places(gaps)
                )
                listed[rows[there]], log_score[at, rows[there]] = True, 0.0
                log_score[at, rows[:, 0]] = score
        unknown: dict[str, Any] = {
            name: np.where(listed, np.nan, getattr(found, name))
            for name in ("chance", "moments", "step", "side")
        }
        return found._replace(log_score=log_score, leaving=log_score, **unknown)

    def _each(self) -> tuple[Any, ...]:
        """Hyperparameters, and means, covariances and sites of the components."""
        moving, location, scale, precision, shift, _ = self.components
        number = len(location)
        values = [{name: value[at] for name, value in moving.items()} for at in range(number)]
        return values, location, [None] * number if scale is None else scale, precision, shift

    def projection(self) -> Any:
        """A, the linear part of the predictors, shape (m, n), sparse where few entries of each row are not 0."""
        program, moving = self._program, self.components.moving
        if moving and not program.layout.constant_projection:
            raise UnsupportedProgramError(
                "what the answers look at depends on hyperparameters that were integrated over; "
                "fit with "
                'hyperparameters="maximize"'
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
    """How the program was called, of a posterior that can be asked."""
    if posterior.empty:
        raise DataError(
            f"the engine ended with {posterior.result.name} and gave no numbers; fit again"
        )
    posterior._warn_if_not_converged()
    if posterior.quick_answers:
        raise DataError("the posterior has answers that came by quick updates; call update() first")
    if posterior.origin is None:
        raise UnsupportedProgramError(
            "the posterior does not know its program, which says what an answer's probability is; "
            "fit in this session, or with a "
            "program of relpref.models before saving"
        )
    if not posterior.sites and not posterior.sampled:
        raise UnsupportedProgramError(
            "the posterior has kept no sites of its answers; fit again with EP or Laplace"
        )
    return posterior.origin


@lazy_jit(static_argnums=1)
def _ask(program: Program, classes: bool, components: Components, weights: Array) -> Predictive:
    def one(part: Components, weight: Array) -> tuple[dict[str, Any], tuple[Array, Array]]:
        """What is summed over the components, each with its weight; and what is kept of each: log scores and steps."""
        reading = program.at(part.moving).read()
        mean, variance, step = _without_own(reading, program.rows, part)
        if part.apart is not None:
            grouped = ~jnp.isnan(part.apart[0])
            mean, variance = (
                jnp.where(grouped, *both) for both in zip(part.apart, (mean, variance), strict=True)
            )
            step = jnp.where(grouped, jnp.nan, step)
        its = _slices(reading)
        each = [
            _outcomes(o, mean[i], variance[i])
            for o, i in zip(reading.observations, its, strict=True)
        ]
        sums = {
            "chances": [weight[i] * chance for i, (_, chance, _) in zip(its, each, strict=True)],
            "logs": [weight[i] * log for i, (_, _, log) in zip(its, each, strict=True)],
            "classes": _by_class(reading, each[0][1], weight) if classes else jnp.zeros((0, 0)),
        }
        return sums, (jnp.concatenate([log_score for log_score, _, _ in each]), step)

    def add(sums: Any, inputs: tuple[Components, Array]) -> tuple[Any, tuple[Array, Array]]:
        more, kept = one(*inputs)
        return jax.tree.map(jnp.add, sums, more), kept

    first = jax.tree.map(lambda leaf: leaf[0], components)
    shapes, _ = jax.eval_shape(one, first, weights[0])
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums, (log_score, step) = jax.lax.scan(add, nothing, (components, weights))

    observations = program.at(first.moving).read().observations
    sizes = np.array([observation.value.size for observation in observations])
    paired = np.array(
        [getattr(observation.likelihood, "paired", True) for observation in observations]
    )
    side, chance, moments = [], [], []
    for observation, chances, logs in zip(observations, sums["chances"], sums["logs"], strict=True):
        value = jnp.ravel(jnp.asarray(observation.value))
        known = getattr(observation.likelihood, "outcomes", None)
        unknown = jnp.full(value.shape, jnp.nan)
        if known is None:
            # The density of a number under a mixture is not known at common nodes.
            logs = logs if len(logs) and len(weights) == 1 else unknown[None]
            chances = chances if len(chances) else unknown[None]
            side.append(unknown)
            chance.append(jnp.stack([unknown] * 3))
        else:
            sides = 2 * known[1] - 1
            logs = jnp.log(
                jnp.where(chances > 0, chances, 1.0)
            )  # an outcome that cannot be adds nothing
            side.append(jnp.asarray(sides)[value.astype(int) - int(known[0][0])])
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
    component: Any,
    offset: Any,
    sds: Any,
    counts: Any,
    curvatures: Sequence[Any] | None = None,
) -> list[tuple[Groups, Floats, Floats]]:
    """Mean and covariance of the predictors of groups of rows without any of their sites, shape (g, p) and (g, p, p) each.

    A component is the mean less that of the prior and the covariance of the latents (None of a
    point), and the sites of rows. Without the sites of a group, whose rows are N(m, G), these are
    N((I − GT)⁻¹(m − Gν), (I − GT)⁻¹G). Sites with ``curvatures``, blocks of shape (g, p, p), are of
    rows without the noise that they share, which is added to them at last.
    """
    location, scale, precision, shift = component
    blocks, rows, found = arrow.blocks, arrow.rows, []
    assert rows is not None
    each = zip(
        blocks.groups,
        rows.items,
        blocks.factors(sds),
        *(blocks.cut(np.asarray(part)) for part in (counts * precision, counts * shift, offset)),
        strict=True,
    )
    for at, (group, (columns, entries), factor, tau, nu, start) in enumerate(each):
        own = factor @ factor.swapaxes(1, 2)
        # Of rows without it the sites are blocks, and their own precisions 0.
        noise = own if curvatures is None else 0 * own
        sites = (
            tau[:, None, :] * np.eye(tau.shape[1])
            if curvatures is None
            else np.asarray(curvatures[at])
        )
        pulled = middle_of(tau, factor).weights @ noise  # MC
        left = np.eye(tau.shape[1]) - pulled.swapaxes(1, 2)
        spread = noise - noise @ pulled
        if scale is not None:
            prior = np.asarray(scale)[columns[:, :, None], columns[:, None, :]]
            spread = spread + left @ entries @ prior @ entries.swapaxes(1, 2) @ left.swapaxes(1, 2)
        seen = _times(entries, np.asarray(location)[columns])
        mean = _times(left, seen) + _times(noise, nu - _times(pulled, nu))
        without = np.linalg.inv(np.eye(tau.shape[1]) - spread @ sites)
        cavity = without @ spread + (own - noise)
        middle = _times(without, mean - _times(spread, nu)) + start
        found.append((group, middle, 0.5 * (cavity + cavity.swapaxes(1, 2))))
    return found


def _places(gaps: Floats) -> Any:
    """The block of each item of lists, from their rows, shape (g, p, k), each above (1) and below (−1) another; −1 of no item."""
    above, below = (gaps > 0)[:, :, :, None], (gaps < 0)[:, :, None, :]
    over = (above & below).any(axis=1)  # shape (g, k, k)
    found = np.zeros(over.shape[:2], dtype=np.int64)
    for _ in range(over.shape[1]):
        found = np.max(over * (found[:, :, None] + 1), axis=1, initial=0)
    return np.where(gaps.any(axis=1), found, -1)


def _times(blocks: Any, vectors: Any) -> Floats:
    return np.asarray((blocks @ vectors[:, :, None])[:, :, 0])


@lazy_jit
def _projection(program: Program) -> Array:
    return _matrix(program.read())


def _matrix(reading: Reading) -> Array:
    return reading.projection.rows(jnp.eye(reading.location.size, dtype=reading.location.dtype))


def _slices(reading: Reading) -> list[slice]:
    """The rows of each observed site."""
    ends = np.cumsum([0, *(observation.value.size for observation in reading.observations)])
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _without_own(
    reading: Reading, rows: SparseRows | None, part: Components
) -> tuple[Array, Array, Array]:
    """Mean and variance of every predictor without its own answer, and the step of the mean; shape (m,) each.

    The cavity is N((m − vν)/(1 − vτ), v/(1 − vτ)), as in `relpref.infer.sites.cavities`. Taking the
    site out is a change of rank one: the mean moves by Σa (τm − ν)/(1 − vτ).
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
    before = (mean - variance * shift) / left, variance / left
    known = known_sites(reading.observations, reading.offset)
    if known is not None and len(mean) <= MAX_ROWS_TAKEN_OUT:
        closed = known.rows & (precision > 0)
        exact = _without_row(reading, part, counts)
        before = jnp.where(closed, exact[0], before[0]), jnp.where(closed, exact[1], before[1])
        moves = closed & (variance > 0)
        step = jnp.where(moves, (before[0] - mean) / jnp.where(moves, variance, 1.0), step)
    return before[0] + reading.offset, before[1], step


def _without_row(reading: Reading, part: Components, counts: Array) -> tuple[Array, Array]:
    """Mean and variance of every projection without one copy of its row's site, from the prior; shape (m,) each.

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


# Of the predictive distribution of a number, whose log density is quadratic here: mean and variance
# of the score are exact with these.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _outcomes(observation: Observation, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Log scores of m answers, shape (m,), and of the q possible ones the probabilities and log probabilities, shape (q, m).

    The predictor is N(mean, variance). Of numbers there are the weights and the log density at q
    nodes; none where it is not known.
    """
    likelihood, value, _ = observation
    shape = jnp.shape(likelihood.predictor)
    belief = jnp.reshape(mean, shape), jnp.reshape(variance, shape)

    def log_probability(value: Any) -> Array:
        return jnp.ravel(likelihood.tilted(value, *belief).log_normalizer)

    known = getattr(likelihood, "outcomes", None)
    density = getattr(likelihood, "log_density_at", None)
    logs, weights = jnp.zeros((0, mean.size)), jnp.zeros((0, mean.size))
    if known is not None:
        logs = jnp.stack([log_probability(jnp.full(shape, one)) for one in known[0]])
        weights = jnp.exp(logs)
    elif density is not None:
        nodes = jnp.reshape(jnp.asarray(_NODES), (-1, *[1] * len(shape)))
        logs = jnp.reshape(density(nodes, *belief), (len(_NODES), mean.size))
        weights = jnp.broadcast_to(jnp.asarray(_WEIGHTS)[:, None], logs.shape)
    return log_probability(value), weights, logs


def _by_class(reading: Reading, chance: Array, weight: Array) -> Array:
    """P(class c) = Π_{j<c} P(go on at j) · P(stop at c); the last class is where nothing stopped. Shape (k + 1, examples)."""
    shape = jnp.shape(reading.observations[0].likelihood.predictor)
    going = jnp.cumprod(jnp.reshape(chance[1], shape), axis=1).T
    one = jnp.ones((1, shape[0]), going.dtype)
    change = jnp.concatenate([one, going]) - jnp.concatenate([going, 0 * one])
    return jnp.reshape(weight, shape)[:, 0] * change


def _central(first: Array, second: Array, third: Array) -> Array:
    """Mean, variance and third central moment."""
    variance = jnp.maximum(second - first**2, 0.0)
    return jnp.stack([first, variance, third - 3 * first * second + 2 * first**3])
