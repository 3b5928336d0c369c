"""Quick changes of a posterior: a rank-one change for each answer, and how far these are from what an engine would find."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import Array
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref.compiled import float64
from relpref.data import Comparisons
from relpref.data.lists import NO_LISTS
from relpref.data.padding import padded_answers
from relpref.infer.arrow import Blocks, Kind, middle_of
from relpref.infer.sites import Cavity, Sites, matched
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods import AnswerModel, GaussianSite
from relpref.likelihoods.answers import GROUP_SD, weighted
from relpref.likelihoods.chances import NOISE
from relpref.linalg import real
from relpref.posterior.gaussian import Floats, GaussianBelief, MixtureBelief
from relpref.posterior.tables import of_its_raters, rows_of

Row = tuple[NDArray[np.integer[Any]], Floats]
_ROWS = 24  # whose change of precision is followed into the variances
_CERTAIN = 1e-12  # of the largest variance: below, a difference is known up to rounding
_AT_ONCE = 2048  # answers whose covariances with all utilities are formed together


class RankOne:
    """A mixture of K Gaussians that is multiplied and divided by sites; the one that it starts from stays as it is.

    A row a is given by the columns in which it has entries, and these, see `rows_of`.
    Covariances are Σ − W diag(c) Wᵀ, with a column of W and an entry of c for each site.
    """

    def __init__(self, before: MixtureBelief) -> None:
        self._before, self._means, self._log_weights = (
            before,
            before.locations,
            np.log(before.weights),
        )
        self._columns = np.empty((*self._means.shape, 0))
        self._shares = np.empty((len(self._means), 0))
        self._pulls: dict[
            tuple[bytes, bytes], Floats
        ] = {}  # under Σ; without a matrix each is a solve

    def belief(self) -> MixtureBelief:
        weights = np.exp(self._log_weights - logsumexp(self._log_weights))
        return self._before.changed(self._means, self._columns, self._shares, weights)

    def _pull(self, row: Row) -> Floats:
        """Σa, shape (K, n)."""
        columns, entries = row
        key = columns.tobytes(), entries.tobytes()
        if key not in self._pulls:
            self._pulls[key] = self._before.pull(columns, entries)
        seen = self._shares * np.einsum("kac,a->kc", self._columns[:, columns], entries)
        return self._pulls[key] - np.einsum("knc,kc->kn", self._columns, seen)

    def gap(self, row: Row) -> tuple[Floats, Floats]:
        """Mean and variance of aᵀu, shape (K,)."""
        columns, entries = row
        pull = self._pull(row)
        return self._means[:, columns] @ entries, np.maximum(pull[:, columns] @ entries, 0.0)

    def weigh(self, log_probability: Floats) -> float:
        """Multiply the weights by the probability of an answer in each component; the log of its average."""
        before = float(logsumexp(self._log_weights))
        self._log_weights = self._log_weights + log_probability
        return float(logsumexp(self._log_weights)) - before

    def add(self, row: Row, site: Floats) -> None:
        """Multiply by a site of each component: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa.

        Sites (τ, ν), shape (2, K), are exp(ν x − ½ τ x²), x = aᵀu less its prior mean, which is 0;
        the negative divides one out.
        """
        precision, shift = site
        pull = self._pull(row)
        mean, variance = self.gap(row)
        left = 1 + precision * variance
        self._means = self._means + ((shift - precision * mean) / left)[:, None] * pull
        self._columns = np.concatenate([self._columns, pull[:, :, None]], axis=2)
        self._shares = np.column_stack([self._shares, precision / left])


def through(site: Floats, noise: Floats) -> Floats:
    """A site of a gap with noise of a variance, as one of the gap alone."""
    return site / (1 + noise * site[0])


def cavity_of(
    mean: Floats, variance: Floats, sites: Any, at_mode: bool
) -> tuple[Floats, Floats] | None:
    """Differences without one copy of their sites, None where one is improper; at the mode for Laplace, whose sites are a curvature."""
    precision, shift = sites
    left = np.ones_like(mean) if at_mode else 1 - variance * precision
    if not np.all(left > 0):
        return None
    return (mean, 0 * mean) if at_mode else ((mean - variance * shift) / left, variance / left)


def match(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    row: int,
    gap: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """One answer's site, shape (2, K), whose cavity is the gap's N(mean, variance) (XPGP section 4.1), and its log probability."""
    columns: dict[str, Any] = {
        name: column[row : row + 1] for name, column in answers.columns.items()
    }
    columns |= NO_LISTS
    one, own = of_its_raters(replace(answers, **columns), parameters)
    with float64():
        sites, log_probability = _matched(model, one, own, *(value[:, None] for value in gap))
        return np.stack(sites)[:, :, 0], np.asarray(log_probability)[:, 0]


def quick_error(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Mapping[str, Floats],
    belief: GaussianBelief,
    at_mode: bool = False,
    effects: int = 0,
) -> float:
    """How far a Gaussian is from what its engine would find: the move of one sweep over all answers, to first order in the sites.

    That is the largest move of a utility relative to the average, of a compared pair's gap, or of
    an effect of covariates, in sds, or relative change of such an sd. Infinite where a cavity is
    improper. O(n²). Sites are ``at_mode`` where they touch the likelihood at the mean (Laplace).
    The Gaussian's first so many entries are ``effects``.
    """
    if not len(answers.winner):
        return 0.0
    parameters = dict(parameters)
    group_sd = float(parameters.pop(GROUP_SD, 0.0))
    columns, entries = rows_of(answers, effects)
    gaps, count, scale = belief.rows(columns, entries), answers.count, belief.scale
    size, spots = belief.size, np.arange(0, columns.size + 1, columns.shape[1])
    seen = scipy.sparse.csr_array((entries.ravel(), columns.ravel(), spots), (len(columns), size))
    precision, shift = sites["precision"], sites["shift"]
    looked, mean, variance = seen, gaps.mean, np.square(gaps.sd)
    with_room = padded_answers(answers)
    spare = (0, len(with_room.winner) - len(mean))
    noise = [] if answers.group is None else [(answers.group, np.full(len(mean), NOISE * group_sd))]
    if answers.list is not None:
        with float64():
            noise.append(
                (answers.list, np.asarray(_list_noise(model, with_room, parameters))[: len(mean)])
            )
    if noise:
        looked, mean, variance = _with_shared(
            answers, noise, count * precision, count * shift, seen, belief
        )
    cavity = cavity_of(mean, variance, (precision, shift), at_mode)
    if cavity is None:
        return np.inf
    with float64():
        alone = {name: np.asarray(value)[None] for name, value in parameters.items()}
        after, _ = _matched(
            model, with_room, alone, *(np.pad(each, spare)[None] for each in cavity)
        )
        stiffer = count * (np.asarray(after.precision)[0, : len(mean)] - precision)
        pull = count * (np.asarray(after.shift)[0, : len(mean)] - shift) - stiffer * mean
    move = scale @ (looked.T @ pull)
    # What changes variances: few rows, of which one answer more is known than their sites take into
    # account.
    rows = np.argsort(np.abs(stiffer * variance))[-_ROWS:]
    changes = looked[rows] @ scale
    utilities = scale[effects:, effects:]
    averages = utilities.mean(axis=1)
    own = np.maximum(np.diagonal(utilities) - 2 * averages + averages.mean(), 0.0)

    def parts(values: Floats) -> list[Floats]:
        """Of utilities less their average, gaps and effects."""
        relative = values[..., effects:] - values[..., effects:].mean(axis=-1, keepdims=True)
        return [relative, (seen @ values.T).T, values[..., :effects]]

    variances = own, np.square(gaps.sd), np.diagonal(scale)[:effects]
    changed_sds = []
    for moved, narrower, before in zip(parts(move), parts(changes), variances, strict=True):
        open_to = before > _CERTAIN * own.max(initial=0.0)
        spread = 0.5 * stiffer[rows] @ np.square(narrower)
        changed_sds += [
            moved[open_to] / np.sqrt(before[open_to]),
            spread[open_to] / before[open_to],
        ]
    worst = float(np.max(np.abs(np.concatenate(changed_sds)), initial=0.0))
    return worst if np.isfinite(worst) else np.inf


@lazy_jit(static_argnums=0)
def _list_noise(model: AnswerModel, answers: Comparisons, parameters: Mapping[str, Array]) -> Array:
    """Sd of the noise of an item in the list of each row."""
    given = {name: real(value) for name, value in parameters.items()}
    likelihood: Any = model(jnp.zeros(len(answers.winner)), answers, **given)
    (lists,) = likelihood.shared_noise
    return jnp.broadcast_to(lists.sd, answers.winner.shape)


def _with_shared(
    answers: Comparisons,
    noise: Sequence[tuple[Any, Floats]],
    precision: Floats,
    shift: Floats,
    seen: Any,
    belief: GaussianBelief,
) -> tuple[Any, Floats, Floats]:
    """What gaps with the noise of their lists and groups look at, and their means and variances, under sites T and ν of all answers.

    The gaps are A u + w with w ~ N(0, C), C = FFᵀ, see `relpref.infer.arrow`; ``seen`` is A,
    ``noise`` the numbers of lists or groups and its sds. Given u and the sites they have the mean L
    A u + L C ν and the covariance L C, where L = I − CM.
    """
    size, own_variance, offset = len(precision), np.zeros(len(precision)), np.zeros(len(precision))
    blocks = Blocks.of([Kind.of_gaps(number, answers.winner, answers.loser) for number, _ in noise])
    factors = blocks.factors([sds for _, sds in noise])
    cut = zip(blocks.cut(precision), blocks.cut(shift), factors, blocks.groups, strict=True)
    parts = [(blocks.alone, blocks.alone, np.ones(len(blocks.alone)))]
    for own, its, values, group in cut:
        left = np.eye(values.shape[1]) - values @ middle_of(own, values).pulled.swapaxes(1, 2)
        rows, there = group.rows, group.rows < size
        own_variance[rows[there]] = np.sum(left @ values * values, axis=2)[there]
        offset[rows[there]] = (left @ values @ (values.swapaxes(1, 2) @ its[:, :, None]))[there][
            :, 0
        ]
        one, other = np.broadcast_arrays(rows[:, :, None], rows[:, None, :])
        both = (one < size) & (other < size)
        parts.append((one[both], other[both], left[both]))
    row, column, entry = (np.concatenate(each) for each in zip(*parts, strict=True))
    looked = scipy.sparse.csr_array((entry, (row, column)), (size, size)) @ seen
    for start in range(0, size, _AT_ONCE):
        some = looked[start : start + _AT_ONCE]
        own_variance[start : start + _AT_ONCE] += some.multiply(some @ belief.scale).sum(axis=1)
    return looked, looked @ belief.location + offset, own_variance


@lazy_jit(static_argnums=0)
def _matched(
    model: AnswerModel,
    one: Comparisons,
    parameters: Mapping[str, Array],
    mean: Array,
    variance: Array,
) -> tuple[Sites, Array]:
    def component(given: Mapping[str, Array], mean: Array, variance: Array) -> tuple[Sites, Array]:
        likelihood = weighted(model(mean, one, **given), one)
        moments = likelihood.tilted(model.value(one), mean, variance)
        if isinstance(likelihood, GaussianSite):
            peak, precision = likelihood.gaussian_site(model.value(one))
            return Sites(precision, precision * peak), moments.log_normalizer
        return matched(Cavity(mean, variance), moments), moments.log_normalizer

    given = {name: real(value) for name, value in parameters.items()}
    return jax.vmap(component)(given, real(mean), real(variance))
