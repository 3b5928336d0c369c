"""Predictions of answers by a posterior, either without the site of each answer or for new answers.

A posterior is a mixture of one or more components, Gaussians or points, each at its own
hyperparameters. In every component an answer depends on one number, its predictor. The belief about
the predictor without the answer is the cavity of expectation propagation, and the probability of
the answer is the normalizer of its tilted distribution there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, permutations, product
from math import factorial, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp

from relpref.compiled import compiled, float64
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.arrow import Arrow, Blocks, Items, Kind, Weights, middle_of
from relpref.infer.call import survey
from relpref.infer.evidence import log_of_sites, on_host
from relpref.infer.joint import Joint, slopes_on_host
from relpref.infer.layout import Observation, Prior
from relpref.infer.program import Program
from relpref.infer.sites import Cavity, Sites, cavities, cavities_of_answers
from relpref.infer.spaces import Marginals
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.orthants import log_chosen, log_ordered
from relpref.limits import MAX_ORDERS_OF_LIST, MAX_ROWS_TAKEN_OUT
from relpref.linalg.arrays import namespace
from relpref.posterior.base import Posterior
from relpref.posterior.classes import chances_of_classes
from relpref.posterior.gaussian import Floats
from relpref.posterior.origin import Origin

# Largest precision of a site, in units of that of its predictor.
_MOST_PRECISE = 0.95


@dataclass(eq=False)
class Component:
    """A component of a posterior of n latents: a Gaussian, or a point if ``scale`` is None.

    ``program`` is at the component's hyperparameters, and ``sites`` are those of the rows that are
    to be taken out, 0 for rows without a site. ``apart``, shape (3, m), has the mean and variance
    of each predictor without the sites of its block, and the row's step (see `Predictive`).
    ``log_score``, shape (m,), is the log probability of lists and of one of several answers of a
    row. Both are NaN for the other rows, which `_cavities` predicts.
    """

    program: Program
    location: Floats
    scale: Floats | None
    sites: Sites
    apart: Floats
    log_score: Floats
    blocks: list["Block"] = field(default_factory=list)

    def marginals(self, prior: Prior) -> Marginals:
        """Means of the predictors less their prior means, and variances."""
        mean = prior.projection.apply(self.location - prior.location)
        if self.scale is None:
            return Marginals(mean, np.zeros_like(mean), np.zeros(()))
        # Rounding may make a variance negative for two equal items.
        variance = np.maximum(prior.projection.diagonal(self.scale), 0.0)
        return Marginals(mean, variance, np.zeros(()))


class Block(NamedTuple):
    """Cavities of g blocks of p rows that share noise, see `cavities_of_blocks`."""

    rows: Any  # indices of the rows, shape (g, p); smaller blocks are padded with m
    mean: Floats  # mean of the predictors without the block's sites, shape (g, p)
    covariance: Floats  # their covariance, shape (g, p, p)
    step: Floats  # see `Predictive`, shape (g, p)


class Predictive(NamedTuple):
    """Predictions of m rows of answers; an observed answer is predicted without one copy of itself.

    Rows that share noise, such as those of a list or a group, make up a block. They are predicted
    without any answer of their block.
    """

    site: Any  # index of the observed site of each row, shape (m,)
    count: Any  # answers in each row, 0 for one that was not asked, shape (m,)
    value: Any  # the answer, shape (m,)
    # The side that the answer favors, shape (m,): 1 the first (or yes), −1 the second (or no), 0
    # neither; NaN for numbers and lists.
    side: Any
    # Whether the answer compares two items, whose order is arbitrary, unlike yes and no; (m,).
    paired: Any
    # Log probability of one answer of each row in each component, shape (K, m); that of a list or
    # an example is in its first row.
    log_score: Any
    # Step s of each row, shape (K, m): leaving a block out adds the sum of s Σa over its rows to
    # the component's mean, where Σ is the component's covariance and a the row's projection.
    step: Any
    # Probability of an answer for the first (or yes), for neither, for the second (or no); NaN for
    # numbers and lists; shape (3, m).
    chance: Any
    # Mean, variance and third central moment of the log probability of an answer that is drawn from
    # the prediction; NaN for lists, and for numbers unless K = 1; shape (3, m).
    moments: Any
    # Probability of each class if decisions follow each other, shape (c, examples); else empty.
    classes: Any
    # Log probability of all answers of the row's block together, in each component, shape (K, m).
    leaving: Any


class Question:
    """Answers to be predicted by a posterior: its own, each of which is left out, or new ones.

    ``observed`` has the names of the observed sites, and ``classes`` the labels of classes.
    ``block``, shape (m,), identifies the block of each row by the index of the block's first row.

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
        call, belief = origin or source, posterior.full
        draws = {n: v for n, v in posterior.hyperparameter_draws.items() if n not in values}
        held = {n: v for n, v in posterior.hyperparameters.items() if n not in draws}
        each: list[dict[str, Any]] = []
        for at in range(len(belief.weights)):
            given = {**held, **values, **{name: value[at] for name, value in draws.items()}}
            each.append({name: np.asarray(value) for name, value in given.items()})
        with float64():
            program = Program.of(call.program, call.args, call.kwargs, each[0], dense=False)
        layout = program.layout
        if layout.slices != dict(posterior.slices):
            raise DataError(
                "the program has other Gaussian sites at these answers than the posterior has"
            )
        self.observed, self.integrated = layout.observed, bool(layout.integrated)
        self.weights, self.layout, self._moving = belief.weights, layout, bool(draws)
        number, size = len(each), layout.num_rows
        with_sites = origin is None and belief.scales is not None
        sites = np.broadcast_to(0.0, (2, number, size))
        if with_sites:
            sites = np.reshape([posterior.sites[name] for name in Sites._fields], sites.shape)
        unknown = np.broadcast_to(np.nan, (4, size))
        self.components = [
            Component(
                program.at(given),
                location,
                None if belief.scales is None else belief.scales[at],
                Sites(*sites[:, at]),
                unknown[:3],
                unknown[3],
            )
            for at, (given, location) in enumerate(zip(each, belief.locations, strict=True))
        ]
        # The decisions on one example follow each other until one of them ends at a class.
        self.classes: tuple[Any, ...] = getattr(posterior, "classes", ())
        decisions = max(len(self.classes) - 1, 1)
        self.block = np.arange(size) // decisions * decisions
        self._listed = np.zeros(size, dtype=bool)
        with float64():
            if with_sites and posterior.info.get("corrected"):
                for component in self.components:
                    _bound_sites(component)
            if program.arrow is not None:
                at_mode = origin is None and layout.ordered and source.engine.at_mode
                self._cut_blocks(program.arrow, at_mode)
            if with_sites and layout.repeated and not source.engine.at_mode:
                for component in self.components:
                    _leave_copies(component)

    def answer(self, weights: Floats | None = None) -> Predictive:
        """Predict all rows, averaged over components by ``weights``, shape (K, m).

        By default the weights are the posterior's, the same for all rows.
        """
        if weights is None:
            weights = np.repeat(self.weights[:, None], len(self.block), axis=1)
        with float64(), np.errstate(all="ignore"):
            predictive = _predict(self.components, weights, bool(self.classes))
            exact = np.stack([component.log_score for component in self.components])
            unknown: dict[str, Any] = {
                name: np.where(self._listed, np.nan, getattr(predictive, name))
                for name in ("chance", "moments", "side")
            }
            predictive = _with_scores(predictive._replace(**unknown), exact, weights)
            # Decisions of a classifier that were not reached do not count.
            scores = np.where(predictive.count > 0, predictive.log_score, 0.0)
            leaving = np.zeros_like(scores)
            np.add.at(leaving.T, self.block, scores.T)
            if self.classes:
                predictive = predictive._replace(log_score=leaving)
            if self.integrated:
                for total, component in zip(leaving, self.components, strict=True):
                    _set_log_evidence(total, component)
            return predictive._replace(leaving=leaving[:, self.block])

    def _cut_blocks(self, arrow: Arrow, at_mode: bool) -> None:
        """Compute the cavities of blocks in each component, and scores of lists from them.

        ``at_mode`` is for sites of Laplace's approximation.
        """
        if arrow.rows is None:
            raise UnsupportedProgramError(
                "some answers share noise and depend on more than two latents each, or on "
                "hyperparameters; leaving them out is not supported"
            )
        lists = arrow.kinds[0]
        if self.layout.ordered:
            self._listed = lists.group >= 0
        # Lists of Plackett and Luce have Gumbel noise, which is no part of the cavity.
        call = self.components[0].program.call
        gumbel = any(site.without_moments is not None for site in survey(call).values())
        for component in self.components:
            curvatures = _put_sites_at_mode(component).groups if at_mode else None
            prior = component.program.on_host().prior
            sds = np.array(prior.noise)
            scale = sds[0] / NOISE if gumbel else None
            sds[:1] *= not gumbel
            component.blocks = cavities_of_blocks(component, prior, arrow, sds, curvatures)
            apart = np.full((3, len(self.block) + 1), np.nan)  # with padding
            for rows, mean, covariance, step in component.blocks:
                apart[:, rows] = mean, np.diagonal(covariance, axis1=1, axis2=2), step
            component.apart = apart[:, :-1]
            if self.layout.ordered:
                component.log_score = np.where(self._listed, 0.0, np.nan)
                _score_lists(component.log_score, lists, component.blocks, scale)
        block = np.append(self.block, 0)
        for group in arrow.blocks.groups:
            block[group.rows] = group.rows.min(axis=1, keepdims=True)
        self.block = block[:-1]

    def projection(self) -> Any:
        """Linear part of the predictors, shape (m, n); sparse if rows have few nonzero entries."""
        if self._moving and not self.layout.constant_projection:
            raise UnsupportedProgramError(
                "what the answers look at depends on hyperparameters that were integrated over; "
                'fit with hyperparameters="maximize"'
            )
        with float64():
            return self.components[0].program.on_host().prior.projection.matrix


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


def _with_scores(predictive: Predictive, exact: Floats, weights: Floats) -> Predictive:
    """Put exact log scores, shape (K, m), into a prediction, and into the chances of their side.

    They are NaN for other rows. The chances of the other sides keep their ratio.
    """
    scores = np.where(np.isnan(exact), predictive.log_score, exact)
    more = np.sum(weights * (np.exp(scores) - np.exp(predictive.log_score)), axis=0)
    given = predictive.side == np.array([[1], [0], [-1]])
    rest = np.sum(np.where(given, 0.0, predictive.chance), axis=0)
    less = np.divide(more, rest, out=0 * more, where=rest > 0)
    chance = np.where(given, predictive.chance + more, predictive.chance * (1 - less))
    return predictive._replace(log_score=scores, chance=chance)


def _bound_sites(component: Component) -> None:
    """Make sites less precise than the posterior, which may have become wider when put right."""
    variance = component.marginals(component.program.on_host().prior).variance
    precision = component.sites.precision * variance
    share = np.divide(
        _MOST_PRECISE, precision, out=1 + 0 * variance, where=precision > _MOST_PRECISE
    )
    component.sites = Sites(*(share * part for part in component.sites))


def _leave_copies(component: Component) -> None:
    """Predict one of the n answers of a row of a component, given the n − 1 others.

    With the cavity of the row's p^n they are those of p^(n − 1) times the cavity, matched by a
    Gaussian; the score is exact.
    """
    prior, moments, *_ = on_host(component.program, {})
    marginals = component.marginals(prior)
    cavity, power = cavities_of_answers(prior.counts, prior.power, component.sites, marginals)
    less = np.where(power > 1, power - 1, 1.0)
    rest, all_answers = (moments(*cavity, number) for number in (less, power))
    left = cavity.mean + cavity.variance * rest.gradient
    spread = cavity.variance - np.square(cavity.variance) * rest.curvature
    mean, variance = marginals.mean, marginals.variance
    step = np.divide(left - mean, variance, out=0 * mean, where=variance > 0)
    rows = (power > 1) & np.isnan(component.apart[0])
    component.apart = np.where(rows, [left + prior.offset, spread, step], component.apart)
    score = all_answers.log_normalizer - rest.log_normalizer
    component.log_score = np.where(rows, score, component.log_score)


def _put_sites_at_mode(component: Component) -> Weights:
    """Set the sites of a component to those of Laplace's approximation at the mode.

    Lists couple their rows, so the precisions of these rows are 0, and the curvatures of lists are
    returned.
    """
    here = component.program.at_a_point()
    assert here.arrow is not None and here.rows is not None
    value = here.rows.apply(component.location - here.on_host().prior.location)
    joint = Joint.of(here.arrow, partial(slopes_on_host, here, {}))
    around, alone = joint.at(value), joint.alone
    moments = on_host(here, {}).moments(value, 1 - alone)
    precision = alone * moments.curvature
    weights = joint.weights(0 * value, around.second)
    slope = alone * moments.gradient + around.slope
    shift = slope + precision * value + joint.times(weights, value)
    component.sites = Sites(precision, shift)
    return weights


def _set_log_evidence(total: Floats, component: Component) -> None:
    """Compute EP's log probability of all answers of each block of rows that share noise.

    It replaces the block's entry at its first row in ``total``, shape (m,). With sites
    exp(h·g − ½ gᵀTg) of predictors g ~ N(m, C) it is the integral of the product of the fitted
    sites, times Ẑ and the correction for the cavity of each row.
    """
    prior, at_cavity, *_ = on_host(component.program, {})
    counts, sites = prior.counts, component.sites
    precision, pull, start = (
        np.append(each, 0.0) for each in (counts * sites[0], counts * sites[1], prior.offset)
    )
    moments, integrals = np.zeros((2, len(counts) + 1)), []
    for rows, mean, covariance, _ in component.blocks:
        mean, tau = mean - start[rows], precision[rows]
        system = np.eye(rows.shape[1]) + covariance * tau[:, None, :]
        inside, rest = np.linalg.inv(system) @ covariance, pull[rows] - tau * mean
        response = _times(inside, rest)
        moments[:, rows] = mean + response, np.diagonal(inside, axis1=1, axis2=2)
        quadratic = np.sum(mean * (pull[rows] + rest) + rest * response, axis=1)
        integrals.append((rows, 0.5 * (quadratic - np.linalg.slogdet(system)[1])))
    around = Marginals(moments[0, :-1], moments[1, :-1], np.zeros(()))
    cavity, power = cavities_of_answers(counts, prior.power, sites, around)
    sites = Sites(*(power * each for each in sites))
    log_normalizer = at_cavity(*cavity, power).log_normalizer
    single = np.append(log_of_sites(counts / power, log_normalizer, sites, cavity), 0.0)
    for rows, integral in integrals:
        total[rows.min(axis=1)] = integral + single[rows].sum(axis=1)


def _predict(components: list[Component], weights: Floats, classes: bool) -> Predictive:
    """Predict all rows: scores and steps by component, the rest averaged with the weights."""
    scores, steps, several = [], [], []
    observations: Sequence[Observation] = ()
    for component, weight in zip(components, weights, strict=True):
        program, prior = component.program, component.program.on_host().prior
        alone = _cavities(component, prior)
        mean, variance, step = np.where(np.isnan(component.apart), alone, component.apart)
        observations = observations or prior.observations or program.read().observations
        ends = np.cumsum([observation.value.size for observation in observations])[:-1]
        if prior.direct:
            parts = (np.split(each, ends) for each in (mean, variance))
            answered = list(map(_outcomes, prior.observations, *parts))
        else:
            answered = jax.tree.map(np.asarray, _outcomes_by_jax(program, mean, variance))
        each_score, *chances_and_logs = zip(*answered, strict=True)
        shares = np.split(weight, ends)
        sums = [
            [share * each for share, each in zip(shares, part, strict=True)]
            for part in chances_and_logs
        ]
        by_class = np.zeros(0)
        if classes:
            shape = np.shape(observations[0].likelihood.predictor)
            going = chances_and_logs[0][0][1].reshape(shape)
            by_class = weight.reshape(shape)[:, 0] * chances_of_classes(going).T
        several.append((*sums, by_class))
        scores.append(np.concatenate(each_score))
        steps.append(step)
    chances, logs, by_class = jax.tree.map(lambda *leaves: sum(leaves), *several)
    side, chance, moments = [], [], []
    for observation, probabilities, terms in zip(observations, chances, logs, strict=True):
        value = np.ravel(np.asarray(observation.value))
        outcomes = getattr(observation.likelihood, "outcomes", None)
        if outcomes is None:
            # The density of a number under a mixture is not known at common nodes.
            terms = terms if len(weights) == 1 else np.nan * terms
            side.append(np.full(value.shape, np.nan))
            chance.append(np.full((3, value.size), np.nan))
        else:
            sides = 2 * np.asarray(outcomes[1]) - 1
            # An impossible outcome adds nothing.
            terms = np.log(np.where(probabilities > 0, probabilities, 1.0))
            side.append(sides[value.astype(int) - int(outcomes[0][0])])
            by_side = [np.sum(probabilities[sides == at], axis=0) for at in (1, 0, -1)]
            chance.append(np.stack(by_side))
        powers = (np.sum(probabilities * terms**k, axis=0) for k in (1, 2, 3))
        moments.append(_central(*powers))
    sizes = [observation.value.size for observation in observations]
    paired = [getattr(observation.likelihood, "paired", True) for observation in observations]
    return Predictive(
        site=np.repeat(np.arange(len(sizes)), sizes),
        count=np.concatenate([np.asarray(observation.counts) for observation in observations]),
        value=np.concatenate([np.ravel(np.asarray(o.value, float)) for o in observations]),
        side=np.concatenate(side),
        paired=np.repeat(paired, sizes),
        log_score=np.stack(scores),
        step=np.stack(steps),
        chance=np.concatenate(chance, axis=1),
        moments=np.concatenate(moments, axis=1),
        classes=by_class,
        leaving=np.stack(scores),
    )


@compiled
def _outcomes_by_jax(program: Program, mean: Array, variance: Array) -> list[Any]:
    """Outcomes, see `_outcomes`, of all observations of a program."""
    observations = program.read().observations
    ends = np.cumsum([observation.value.size for observation in observations])[:-1]
    return list(map(_outcomes, observations, *(jnp.split(each, ends) for each in (mean, variance))))


def cavities_of_blocks(
    component: Component,
    prior: Prior,
    arrow: Arrow,
    sds: Any,
    curvatures: Sequence[Any] | None = None,
) -> list[Block]:
    """Cavities of blocks of rows that share noise, each without all sites of the block.

    ``sds`` are those of the noise. Returns a `Block` for each group of blocks of the same size.
    With noise of covariance C that is integrated out, the sites T and ν of a block act on the
    latents u as M = (T⁻¹ + C)⁻¹ and h = (I − MC)ν. Without them A u has the mean A m + G s and the
    covariance G (I − MG)⁻¹, where u ~ N(m, Σ), G = AΣAᵀ and s = (I − MG)⁻¹(MA m − h); and u has
    the mean m + ΣAᵀs: s is the block's step. C is added to the covariance of A u. ``curvatures``,
    arrays of shape (g, p, p), are M of lists at a mode, where no noise is integrated out of the
    sites.
    """
    blocks, rows, cavities = arrow.blocks, arrow.rows, []
    assert rows is not None
    counts, sites, drift = prior.counts, component.sites, component.location - prior.location
    values = counts * sites.precision, counts * sites.shift, prior.offset
    each = zip(
        blocks.groups, rows.items, blocks.factors(sds), *map(blocks.cut, values), strict=True
    )
    for at, (group, (columns, entries), factor, tau, pull, start) in enumerate(each):
        shared, value = factor @ factor.swapaxes(1, 2), _times(entries, drift[columns])
        if curvatures is None:
            weights = middle_of(tau, factor).weights
            pull = pull - _times(weights, _times(shared, pull))
        else:
            weights = curvatures[at]
        gram = np.zeros_like(shared)
        if component.scale is not None:
            scale = component.scale[columns[:, :, None], columns[:, None, :]]
            gram = entries @ scale @ entries.swapaxes(1, 2)
        left = np.linalg.inv(np.eye(tau.shape[1]) - weights @ gram)
        step = _times(left, _times(weights, value) - pull)
        covariance = gram @ left + shared
        covariance = 0.5 * (covariance + covariance.swapaxes(1, 2))
        cavities.append(Block(group.rows, value + _times(gram, step) + start, covariance, step))
    return cavities


def _score_lists(scores: Floats, kind: Kind, blocks: list[Block], scale: Floats | None) -> None:
    """Compute the log probability of each list, and store it in ``scores`` at the list's first row.

    ``scores`` has shape (m,), and so has ``scale``, that of the Gumbel noise; None if the noise is
    Gaussian.
    """
    number = len(scores)
    for group in Blocks.of([kind]).groups:
        rows, inside = group.rows, group.rows < number
        at_rows = np.where(inside, rows, 0)
        entries = np.where(inside[:, :, None], kind.entry[at_rows], 0.0)
        gaps = Items.of(kind.column[at_rows], entries).entries
        # The pseudoinverse takes gaps to utilities, up to a constant that does not matter. Gaps of
        # 1 then give the place of each item's block in the list.
        back, present = np.linalg.pinv(gaps), gaps.any(axis=1)
        level = np.where(present, back.sum(axis=2), -np.inf)
        places = np.where(present, level.max(axis=1, keepdims=True) - level, -1)
        places = np.rint(places).astype(np.int64)
        if scale is not None:
            back = back / scale[rows[:, 0], None, None]
        mean, covariance = _moments_of(blocks, rows, number)
        moments = _times(back, mean), back @ covariance @ back.swapaxes(1, 2)
        log_probability = log_ordered if scale is None else _log_plackett_luce
        scores[rows.min(axis=1)] = log_probability(*moments, places)


def _moments_of(blocks: list[Block], rows: Any, number: int) -> tuple[Floats, Floats]:
    """Cavity means (l, p) and covariances (l, p, p) of lists, given the rows of each, (l, p).

    The rows of a list lie in one block, which may have other lists, too.
    """
    mean, covariance = np.zeros(rows.shape), np.zeros((*rows.shape, rows.shape[1]))
    for block in blocks:
        place = np.full(number + 1, -1)
        place[block.rows] = np.arange(block.rows.size).reshape(block.rows.shape)
        here = place[rows[:, 0]] >= 0
        place[number] = 0  # padding, whose gaps are 0
        which, at = np.divmod(place[rows[here]], block.rows.shape[1])
        which = which[:, :1]
        mean[here] = block.mean[which, at]
        covariance[here] = block.covariance[which[:, :, None], at[:, :, None], at[:, None, :]]
    return mean, covariance


def _log_plackett_luce(mean: Floats, covariance: Floats, block: Any) -> Floats:
    """Log probability of lists of items with Gaussian utilities and Gumbel noise, shape (l,).

    The arguments are those of `log_ordered`. A list is an ordered partition, and its probability
    the sum of those of all orders that agree with it. The order within its last block does not
    matter.
    """
    total = np.zeros(len(mean))
    last = block.max(axis=1, keepdims=True)
    order = np.argsort(np.where(block < 0, last + 1, block), axis=1, kind="stable")
    patterns, which = np.unique(np.sort(block, axis=1), axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        sizes, lists = np.bincount(pattern[pattern >= 0]), np.flatnonzero(which.ravel() == number)
        orders = prod(factorial(size) for size in sizes[:-1])
        if orders > MAX_ORDERS_OF_LIST:
            raise UnsupportedProgramError(
                f"a list with blocks of {', '.join(map(str, sizes))} items stands for {orders} "
                f"orders, and at most {MAX_ORDERS_OF_LIST} are added up with logistic noise; fit "
                "with EP and Probit()"
            )
        *blocks, last_block = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
        each = product(*map(permutations, blocks))
        places = np.array([[*chain(*above), *last_block] for above in each])
        items = order[lists][:, places]  # shape (lists, orders, k)
        owner, (*shape, size) = lists[:, None, None], items.shape
        spread = covariance[owner[..., None], items[..., None], items[:, :, None]]
        spread = spread.reshape(1, -1, size, size)
        logs = log_chosen(mean[owner, items].reshape(1, -1, size), spread, [1.0], last_block[0])
        total[lists] = logsumexp(logs.reshape(shape), axis=1)
    return total


def _times(blocks: Any, vectors: Any) -> Floats:
    # Products of g matrices, shape (g, p, q), with g vectors, shape (g, q).
    return np.asarray((blocks @ vectors[:, :, None])[:, :, 0])


def _cavities(component: Component, prior: Prior) -> Floats:
    """Cavity mean and variance of each row's predictor, and the row's step, shape (3, m).

    One copy of the row's own site (τ, ν) is taken out. That is a change of rank one: the mean of
    the latents moves by Σa times the step τc − ν, where c is the cavity mean without the offset.
    """
    sites, marginals = component.sites, component.marginals(prior)
    mean, variance, _ = marginals
    if component.scale is None:
        return np.stack([mean + prior.offset, variance, variance])
    copies = np.minimum(prior.counts, 1.0)
    cavity = cavities(prior.counts, sites, marginals)
    step = copies * (sites.precision * cavity.mean - sites.shift)
    # Gaussian sites may be too precise for these formulas; use exact ones if there are few rows.
    if prior.gaussian is not None and len(mean) <= MAX_ROWS_TAKEN_OUT:
        closed = prior.gaussian.rows & (copies * sites.precision > 0)
        exact = _exact_cavities(prior, sites)
        cavity = Cavity(*(np.where(closed, *both) for both in zip(exact, cavity, strict=True)))
        moves = closed & (variance > 0)
        step = np.where(moves, (cavity.mean - mean) / np.where(moves, variance, 1.0), step)
    return np.stack([cavity.mean + prior.offset, cavity.variance, step])


def _exact_cavities(prior: Prior, sites: Sites) -> tuple[Floats, Floats]:
    """Mean and variance of every projection without one copy of its row's site, shape (m,) each.

    If a Gaussian site is far more precise than all other information on its row, 1 − vτ is nothing
    but rounding. So all copies of the site are taken out by (I + TG)⁻¹, where G is the prior
    covariance of the projections (Rasmussen & Williams 2006, eq. 5.12), and all but one put back.
    """
    counts = prior.counts
    precision, shift = counts * sites.precision, counts * sites.shift
    rows = prior.projection
    gram = rows.rows(rows.rows(prior.covariance.dense()).T)
    scale = 1 / (1 + np.abs(precision) * np.diagonal(gram))  # of the rows, for the solver
    system = np.diag(scale) + (scale * precision)[:, None] * gram
    inverse = np.linalg.solve(system, np.diag(scale))
    diagonal = np.diagonal(inverse)
    inside = np.where(precision == 0, 1.0, precision)
    variance = (1 / diagonal - 1) / inside
    mean = (shift - (inverse @ shift) / diagonal) / inside
    rest = np.maximum(counts - 1, 0.0)
    left = 1 + rest * sites.precision * variance
    return (mean + rest * sites.shift * variance) / left, variance / left


# Gauss-Hermite rule for the predictive distribution of a number. Its log density is quadratic, so
# the mean and variance of the log score are exact.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _outcomes(observation: Observation, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """Log scores of m answers, and probabilities and log probabilities of the q possible answers.

    They have shapes (m,), (q, m) and (q, m). The predictors are N(mean, variance). For numbers the
    probabilities are the weights of q nodes, and the log probabilities the log densities at the
    nodes. If the possible answers or the density are unknown, q is 1 and both are NaN.
    """
    likelihood, value, _ = observation
    shape, xp = np.shape(likelihood.predictor), namespace(mean)
    belief = mean.reshape(shape), variance.reshape(shape)

    def log_probability(value: Any) -> Any:
        return xp.ravel(likelihood.tilted(value, *belief).log_normalizer)

    outcomes = getattr(likelihood, "outcomes", None)
    density = getattr(likelihood, "log_density_at", None)
    logs = weights = xp.full((1, mean.size), np.nan)
    if outcomes is not None:
        logs = xp.stack([log_probability(xp.full(shape, outcome)) for outcome in outcomes[0]])
        weights = xp.exp(logs)
    elif density is not None:
        nodes = _NODES.reshape(-1, *[1] * len(shape))
        logs = xp.reshape(density(nodes, *belief), (len(_NODES), mean.size))
        weights = xp.broadcast_to(_WEIGHTS[:, None], logs.shape)
    return log_probability(value), weights, logs


def _central(first: Floats, second: Floats, third: Floats) -> Floats:
    """Mean, variance and third central moment, from the first three moments about 0."""
    variance = np.maximum(second - first**2, 0.0)
    return np.stack([first, variance, third - 3 * first * second + 2 * first**3])
