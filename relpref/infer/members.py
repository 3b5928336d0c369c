"""Integrals over hyperparameters of members, such as the noise of each rater.

Each answer depends on the hyperparameters of one member. Let θ_r be the values of member r, with
independent priors, and let row i of the answers be that of member r(i). The approximation is q(u)
Π_r q(θ_r), with one Gaussian site and one site on θ_r for each row. Under a cavity N(m_i, v_i) of
its projection a row has the likelihood Ẑ_i(θ) = ∫ p(y_i | z, θ) N(z; m_i, v_i) dz of its member. At
a fixed point of EP therefore

    q(θ_r) ∝ p(θ_r) Π_{i of r} Ẑ_i(θ_r),    log Z_r = log ∫ p(θ) Π_{i of r} Ẑ_i(θ) dθ,

and ∂ log Z_r/∂m_i and its derivative are the moments that a Gaussian site matches: averages over
q(θ_r) of those of a row with given θ. Integrals are sums over nodes z_k of a standard
normal variable, θ = F⁻¹(Φ(z)) with the prior's distribution function F, which may depend on other
hyperparameters, such as one scale for all members.
"""

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import cumulative_trapezoid
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

from relpref.data.arrays import Floats
from relpref.likelihoods.powers import powered
from relpref.likelihoods.tilted import TiltedMoments
from relpref.linalg.arrays import Array, namespace
from relpref.linalg.covariance import Pulls, joined
from relpref.pytree import register

# The trapezoidal rule on ±3 sds of the prior resolves a member's posterior down to half a step. n
# answers determine the logarithm of a noise to about 2.9/√n, so steps are halved from so many
# answers of one member on.
_RANGE, _MORE_NODES = 3.0, (33, 133, 530)
_OF_SEVERAL = 2  # at most, of several sites: 13 nodes for each
# Steps of a quantile's table between two nodes, and the least probability in it.
_FINER, _LEAST = 16, 1e-200


@dataclass(frozen=True)
class Members:
    """The sites with an entry for each member, and the member of each row."""

    names: tuple[str, ...]
    number: int  # of members
    steps: int  # between 0 and 1 of the nodes
    row: Any  # the member of each row, shape (m,)

    @classmethod
    def of(cls, names: tuple[str, ...], number: int, row: Any, counts: Any) -> "Members":
        """Members with as many nodes as the one with the most answers needs."""
        most = np.bincount(row, counts, number).max(initial=0.0)
        steps = 2 ** int(np.searchsorted(_MORE_NODES, most))
        return cls(names, number, steps if len(names) == 1 else min(steps, _OF_SEVERAL), row)

    @property
    def nodes(self) -> tuple[Floats, Floats]:
        """Nodes of z, shape (K, sites), and the logarithms of their weights, shape (K,)."""
        reach = int(_RANGE * self.steps)
        line = np.arange(-reach, reach + 1) / self.steps
        grid = np.array(list(product(line, repeat=len(self.names))))
        log_weights = -0.5 * np.sum(np.square(grid), axis=1)
        return grid, log_weights - np.log(np.sum(np.exp(log_weights)))


register(Members, leaves=("row",), static=("names", "number", "steps"))


class Known(NamedTuple):
    """Posterior of the members."""

    probability: Array  # q at the nodes, shape (K, number)
    log_normalizer: Array  # log Z_r, shape (number,)
    each: TiltedMoments  # of rows given the nodes, shape (K, m)


@dataclass(frozen=True, eq=False)
class OfMembers:
    """A likelihood whose rows are averaged over the posterior of their members.

    A row's log Ẑ is its equal share of log Z_r.
    """

    each: Any  # the likelihood at every node, with a first axis in each of its arrays
    members: Members
    counts: Array  # how many answers each row stands for, shape (m,); 0 for none
    log_concave: bool = field(default=False, init=False)
    # Equal answers have a site each: without all of them a cavity knows too little of a member who
    # contradicts himself.
    copied: bool = field(default=True, init=False)

    @property
    def predictor(self) -> Array:
        return jnp.ravel(self.each.predictor[0])

    def rows(self, index: Any) -> "OfMembers":
        """The answers of some rows."""
        members = replace(self.members, row=self.members.row[index])
        return OfMembers(self.each.rows((slice(None), index)), members, self.counts[index])

    def known(self, value: Array, mean: Array, variance: Array, power: Any = 1.0) -> Known:
        """Posterior of the members under cavities of all rows; a row is p^n, n being ``power``."""
        xp, members = namespace(mean, self.counts), self.members
        _, log_weights = members.nodes
        each = self._each(value, mean, variance, power)
        log_likelihood = xp.where(self.counts > 0, self.counts / power * each.log_normalizer, 0.0)
        joint = _sums(log_likelihood, members) + log_weights[:, None]
        top = xp.max(joint, axis=0)
        total = top + xp.log(xp.sum(xp.exp(joint - top), axis=0))
        return Known(xp.exp(joint - total), total, each)

    def _each(self, value: Array, mean: Array, variance: Array, power: Any = 1.0) -> TiltedMoments:
        """Moments at every node, shape (K, m)."""
        if hasattr(self.each, "powered"):
            moments: TiltedMoments = self.each.powered(*self._spread(value, mean, variance, power))
            return moments
        each: TiltedMoments = jax.vmap(lambda each: powered(each, value, mean, variance, power))(
            self.each
        )
        return each

    def _spread(self, *arrays: Any) -> tuple[Any, ...]:
        """Arrays of rows with a first axis of nodes."""
        shape, xp = jnp.shape(self.each.predictor), namespace(self.counts, *arrays)
        return tuple(
            array if isinstance(array, float) else xp.broadcast_to(array, shape) for array in arrays
        )

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of rows, averaged over their members."""
        return self.powered(value, mean, variance, 1.0)

    def powered(self, value: Array, mean: Array, variance: Array, power: Any) -> TiltedMoments:
        """Moments of powers p^n of rows, averaged over their members."""
        xp = namespace(mean, self.counts)
        posterior, row = self.known(value, mean, variance, power), self.members.row
        probability = posterior.probability[:, row]
        sites = _sums((self.counts / power)[None], self.members)[0]
        gradient = xp.sum(probability * posterior.each.gradient, axis=0)
        second = xp.sum(
            probability * (xp.square(posterior.each.gradient) - posterior.each.curvature), axis=0
        )
        share = posterior.log_normalizer / xp.where(sites > 0, sites, 1.0)
        return TiltedMoments(share[row], gradient, xp.square(gradient) - second)

    def log_prob_of_draws(self, value: Floats, predictors: Floats, rows: Any) -> Floats:
        """Log probability of some rows at draws of their predictors, shape (s, m) to (s,)."""
        of_member = np.eye(self.members.number)[self.members.row[rows]]
        of_member *= np.asarray(self.counts)[rows, None]
        by_node = [
            self.each.rows((node, rows)).log_at(value, predictors) @ of_member + log_weight
            for node, log_weight in enumerate(self.members.nodes[1])
        ]
        return np.asarray(logsumexp(by_node, axis=0).sum(axis=1))

    def pull(
        self,
        value: Array,
        mean: Array,
        variance: Array,
        weight: Array,
        power: Any = 1.0,
        spread: Any = 0.0,
    ) -> Pulls:
        """Derivatives, see `relpref.likelihoods.Comparison.pull`."""
        probability = self.known(value, mean, variance, power).probability[:, self.members.row]
        cavity, rest = self._spread(value, mean, variance), self._spread(power, spread)
        return joined(self.each.pull(*cavity, probability * weight, *rest), "each")


def _sums(rows: Array, members: Members) -> Array:
    """Sums of the rows of each member, shape (K, number), of an array of shape (K, m)."""
    if namespace(rows, members.row) is np:
        shape, (nodes, _) = (len(rows), members.number), rows.shape
        place = members.row + members.number * np.arange(nodes)[:, None]
        return np.bincount(place.ravel(), rows.ravel(), nodes * members.number).reshape(shape)
    return jnp.zeros((len(rows), members.number), rows.dtype).at[:, members.row].add(rows)


register(OfMembers, leaves=("each", "members", "counts"))


def quantiles(members: Members, probability: Floats, at: Floats) -> tuple[Floats, float]:
    """Quantiles of z of each member under q, shape (sites, number), at probabilities of that shape.

    Also the logarithm of their density under the prior over that under q. Quantiles of a second
    site are conditional on the value of the first. Between the nodes the logarithm of a density is
    a spline.
    """
    line = np.unique(members.nodes[0][:, 0])
    fine = np.linspace(line[0], line[-1], _FINER * (len(line) - 1) + 1)
    result, log_ratio = np.empty((len(members.names), members.number)), 0.0
    everyone = np.arange(members.number)
    joint = probability.reshape(*(len(line),) * len(members.names), members.number)
    for site, probabilities in enumerate(at):
        marginal = joint.reshape(len(line), -1, members.number).sum(axis=1)
        density = np.exp(CubicSpline(line, np.log(np.maximum(marginal, _LEAST)))(fine))
        below = cumulative_trapezoid(density, fine, axis=0, initial=0)
        density, below = density / below[-1], below / below[-1]
        left = np.clip(np.sum(below < probabilities, axis=0) - 1, 0, len(fine) - 2)
        step = below[left + 1, everyone] - below[left, everyone]
        share = (probabilities - below[left, everyone]) / np.maximum(step, _LEAST)
        result[site] = fine[left] + share * (fine[1] - fine[0])
        height = density[left, everyone] * (1 - share) + density[left + 1, everyone] * share
        log_ratio -= float(np.sum(np.log(height)))
        place = (result[site] - line[0]) * members.steps
        left = np.minimum(place.astype(np.int64), len(line) - 2)
        share = place - left
        joint = (
            joint[left, ..., everyone].T * (1 - share) + joint[left + 1, ..., everyone].T * share
        )
    log_prior = -0.5 * np.sum(np.square(result) + np.log(2 * np.pi))
    return result, float(log_prior + log_ratio)


def means(members: Members, probability: Floats) -> Floats:
    """Means of z of each member under q, shape (sites, number)."""
    return members.nodes[0].T @ probability


def strata(weights: Floats, number: int, rng: np.random.Generator) -> Floats:
    """Probabilities of ``number`` variables for weighted points, shape (points, number).

    They are as even as the weights allow, a Latin hypercube: each variable has a different order of
    the points, and each point is in the middle of its share. With few variables the orders are
    hardly correlated (Iman & Conover 1982, "A
    distribution-free approach to inducing rank correlation among input variables").
    """
    scores = rng.standard_normal((len(weights), number))
    if 2 * number <= len(weights):
        centered = scores - weights @ scores
        root = np.linalg.cholesky((centered.T * weights) @ centered)
        scores = np.linalg.solve(root, centered.T).T
    probabilities = np.empty(scores.shape)
    for column, order in enumerate(np.argsort(scores, axis=0).T):
        shares = weights[order]
        probabilities[order, column] = np.cumsum(shares) - 0.5 * shares
    return probabilities
