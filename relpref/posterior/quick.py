"""Rank-one updates of a posterior by single answers, and an estimate of their error."""

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
from relpref.data.padding import padded_answers
from relpref.infer.arrow import Blocks, Kind, middle_of
from relpref.infer.sites import Cavity, matched
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods import AnswerModel, GaussianSite, TiltedMoments
from relpref.likelihoods.answers import GROUP_SD, weighted
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.powers import powered
from relpref.linalg import real
from relpref.posterior.gaussian import Floats, GaussianBelief, MixtureBelief
from relpref.posterior.tables import of_its_raters, rows_of

Row = tuple[NDArray[np.integer[Any]], Floats]
_ROWS = 24  # number of rows whose change of precision is followed into the variances
_CERTAIN = 1e-12  # variances below this share of the largest one are rounding errors
_AT_ONCE = 2048  # number of answers whose covariances with all utilities are formed together


class RankOne:
    """Mixture of K Gaussians over n entries u, multiplied and divided by sites of rows aᵀu.

    A row a is sparse: a pair of its columns and its entries, see `rows_of`. ``before`` is not
    changed: covariances are Σ − W diag(c) Wᵀ, with the covariances Σ of ``before``, and a column of
    W and an entry of c for each site. In the methods, Σ is the covariance so far.
    """

    def __init__(self, before: MixtureBelief) -> None:
        self._before, self._means = before, before.locations
        self._log_weights = np.log(before.weights)
        self._columns = np.empty((*self._means.shape, 0))
        self._shares = np.empty((len(self._means), 0))
        # Products with Σ; without a matrix each is a solve.
        self._pulls: dict[tuple[bytes, bytes], Floats] = {}

    def belief(self) -> MixtureBelief:
        """The mixture with all sites so far, its weights adding up to 1."""
        weights = np.exp(self._log_weights - logsumexp(self._log_weights))
        return self._before.changed(self._means, self._columns, self._shares, weights)

    def _pull(self, row: Row) -> Floats:
        """Covariance Σa of all entries with aᵀu in each component, shape (K, n)."""
        columns, entries = row
        key = columns.tobytes(), entries.tobytes()
        if key not in self._pulls:
            self._pulls[key] = self._before.pull(columns, entries)
        changes = self._shares * np.einsum("kac,a->kc", self._columns[:, columns], entries)
        return self._pulls[key] - np.einsum("knc,kc->kn", self._columns, changes)

    def gap(self, row: Row) -> tuple[Floats, Floats]:
        """Mean and variance of aᵀu in each component, shape (K,) each."""
        columns, entries = row
        pull = self._pull(row)
        return self._means[:, columns] @ entries, np.maximum(pull[:, columns] @ entries, 0.0)

    def weigh(self, log_probability: Floats) -> float:
        """Add log probabilities of an answer to the log weights of the components, shape (K,).

        Returns the log of the weighted average of the probabilities.
        """
        before = float(logsumexp(self._log_weights))
        self._log_weights = self._log_weights + log_probability
        return float(logsumexp(self._log_weights)) - before

    def add(self, row: Row, site: Floats) -> None:
        """Multiply by a site of each component: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa.

        The site (τ, ν), shape (2, K), is exp(ν x − ½ τ x²) with x = aᵀu, whose prior mean is 0;
        (−τ, −ν) removes it.
        """
        precision, shift = site
        pull = self._pull(row)
        mean, variance = self.gap(row)
        left = 1 + precision * variance
        self._means = self._means + ((shift - precision * mean) / left)[:, None] * pull
        self._columns = np.concatenate([self._columns, pull[:, :, None]], axis=2)
        self._shares = np.column_stack([self._shares, precision / left])


def through(site: Floats, noise: Floats) -> Floats:
    """Site of a gap, given the site of the gap plus Gaussian noise; shape (2, K).

    ``noise`` is the variance of the noise, which is integrated out.
    """
    return site / (1 + noise * site[0])


def cavity_of(
    mean: Floats, variance: Floats, sites: Any, at_mode: bool
) -> tuple[Floats, Floats] | None:
    """Means and variances of gaps with their sites removed; None if a variance is not positive.

    Laplace takes the curvature of the likelihood at the mode (``at_mode``), so means stay and
    variances are 0.
    """
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
    number: Any = 1.0,
) -> tuple[Floats, Floats]:
    """Site (τ, ν) of one of ``number`` equal answers, and the log probability of all of them.

    The shapes are (2, K) and (K,).
    ``gap`` is the distribution of the gap without them, by component: means and variances, shape
    (K,). All their sites match the moments of the posterior, see section 4.1 of XPGP.
    """
    columns: dict[str, Any] = {
        name: column[row : row + 1] for name, column in answers.columns.items()
    }
    answer, values = of_its_raters(replace(answers, **columns | {"list": None}), parameters)
    with float64():
        mean, variance = (value[:, None] for value in gap)
        given = model, answer, values, mean, variance
        sites, log_probability = _matched(*given, np.array([float(number)]))
        return sites[:, :, 0], log_probability[:, 0]


def quick_error(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Mapping[str, Floats],
    belief: GaussianBelief,
    at_mode: bool = False,
    effects: int = 0,
) -> float:
    """Estimate the error of a Gaussian posterior: how far one more sweep would move it.

    The sweep replaces the sites of all answers, to first order, at a cost of O(n²). The error is
    the largest move of a mean, in sds, or relative change of an sd, among utilities relative to the
    average, gaps of compared pairs, and effects of covariates; it is infinite if a cavity is
    improper. ``at_mode`` says that sites are curvatures at the mode (Laplace). The first
    ``effects`` entries of the Gaussian are effects of covariates, the others utilities.
    """
    if not len(answers.winner):
        return 0.0
    parameters = dict(parameters)
    group_sd = float(parameters.pop(GROUP_SD, 0.0))
    columns, entries = rows_of(answers, effects)
    gaps, count, scale = belief.rows(columns, entries), answers.count, belief.scale
    size, spots = belief.size, np.arange(0, columns.size + 1, columns.shape[1])
    of_gaps = scipy.sparse.csr_array(
        (entries.ravel(), columns.ravel(), spots), (len(columns), size)
    )
    precision, shift = sites["precision"], sites["shift"]
    matrix, mean, variance = of_gaps, gaps.mean, np.square(gaps.sd)
    padded = padded_answers(answers)
    spare = (0, len(padded.winner) - len(mean))
    noise = [] if answers.group is None else [(answers.group, np.full(len(mean), NOISE * group_sd))]
    if answers.list is not None:
        with float64():
            sds = np.asarray(_list_noise(model, padded, parameters))
        noise.append((answers.list, sds[: len(mean)]))
    if noise:
        matrix, mean, variance = _with_shared(
            answers, noise, count * precision, count * shift, of_gaps, belief
        )
    listed = np.zeros(len(mean), bool) if answers.list is None else answers.list >= 0
    together = np.where(at_mode | listed, 1, count)  # answers of one site
    cavity = cavity_of(mean, variance, (together * precision, together * shift), at_mode)
    if cavity is None:
        return np.inf
    with float64():
        alone = {name: np.asarray(value)[None] for name, value in parameters.items()}
        number = np.pad(together.astype(np.float64), spare, constant_values=1.0)
        middle, spread = (np.pad(each, spare)[None] for each in cavity)
        sites_after, _ = _matched(model, padded, alone, middle, spread, number)
        after_precision, after_shift = sites_after
        stiffer = count * (after_precision[0, : len(mean)] - precision)
        pull = count * (after_shift[0, : len(mean)] - shift) - stiffer * mean
    move = scale @ (matrix.T @ pull)
    # Few rows change variances: those whose sites have changed by much.
    rows = np.argsort(np.abs(stiffer * variance))[-_ROWS:]
    changes = matrix[rows] @ scale
    utilities = scale[effects:, effects:]
    averages = utilities.mean(axis=1)
    relative_variances = np.maximum(np.diagonal(utilities) - 2 * averages + averages.mean(), 0.0)

    def parts(values: Floats) -> list[Floats]:
        """Split changes of entries, shape (..., n), into relative utilities, gaps and effects."""
        relative = values[..., effects:] - values[..., effects:].mean(axis=-1, keepdims=True)
        return [relative, (of_gaps @ values.T).T, values[..., :effects]]

    variances = relative_variances, np.square(gaps.sd), np.diagonal(scale)[:effects]
    changed_sds = []
    for moved, narrower, before in zip(parts(move), parts(changes), variances, strict=True):
        open_to = before > _CERTAIN * relative_variances.max(initial=0.0)
        spread = 0.5 * stiffer[rows] @ np.square(narrower)
        changed_sds += [
            moved[open_to] / np.sqrt(before[open_to]),
            spread[open_to] / before[open_to],
        ]
    worst = float(np.max(np.abs(np.concatenate(changed_sds)), initial=0.0))
    return worst if np.isfinite(worst) else np.inf


@lazy_jit(static_argnums=0)
def _list_noise(model: AnswerModel, answers: Comparisons, parameters: Mapping[str, Array]) -> Array:
    """Sd of the noise that an item has in the list of each row, shape (m,)."""
    given = {name: real(value) for name, value in parameters.items()}
    likelihood: Any = model(jnp.zeros(len(answers.winner)), answers, **given)
    (lists,) = likelihood.shared_noise
    return jnp.broadcast_to(lists.sd, answers.winner.shape)


def _with_shared(
    answers: Comparisons,
    noise: Sequence[tuple[Any, Floats]],
    precision: Floats,
    shift: Floats,
    gaps: Any,
    belief: GaussianBelief,
) -> tuple[Any, Floats, Floats]:
    """Coefficients (m, n), means and variances (m,) of gaps plus the noise of lists and groups.

    The sums are A u + w with w ~ N(0, C), C = FFᵀ, see `relpref.infer.arrow`; ``gaps`` is A, and
    ``noise`` has the numbers of lists or groups with their sds. Given u and the sites with
    precision T and shift ν, the sums have the mean L A u + L C ν and the covariance L C, where
    L = I − CM. The coefficients are L A; the means and variances are those of the posterior.
    """
    size, variance, offset = len(precision), np.zeros(len(precision)), np.zeros(len(precision))
    blocks = Blocks.of([Kind.of_gaps(number, answers.winner, answers.loser) for number, _ in noise])
    factors = blocks.factors([sds for _, sds in noise])
    cut = zip(blocks.cut(precision), blocks.cut(shift), factors, blocks.groups, strict=True)
    parts = [(blocks.alone, blocks.alone, np.ones(len(blocks.alone)))]
    for precisions, shifts, factor, group in cut:
        pulled = middle_of(precisions, factor).pulled.swapaxes(1, 2)
        left = np.eye(factor.shape[1]) - factor @ pulled
        rows, real = group.rows, group.rows < size
        means = left @ factor @ (factor.swapaxes(1, 2) @ shifts[:, :, None])
        variance[rows[real]] = np.sum(left @ factor * factor, axis=2)[real]
        offset[rows[real]] = means[real][:, 0]
        row, column = np.broadcast_arrays(rows[:, :, None], rows[:, None, :])
        both = (row < size) & (column < size)
        parts.append((row[both], column[both], left[both]))
    row, column, entry = (np.concatenate(each) for each in zip(*parts, strict=True))
    matrix = scipy.sparse.csr_array((entry, (row, column)), (size, size)) @ gaps
    for start in range(0, size, _AT_ONCE):
        some = matrix[start : start + _AT_ONCE]
        variance[start : start + _AT_ONCE] += some.multiply(some @ belief.scale).sum(axis=1)
    return matrix, matrix @ belief.location + offset, variance


@lazy_jit(static_argnums=(0, 1))
def _likelihoods(
    model: AnswerModel, number: int, answers: Comparisons, parameters: Mapping[str, Array]
) -> tuple[Any, Array]:
    """The distribution of m answers for each of a number of components, and their values."""
    gap = jnp.zeros(len(answers.winner))

    def component(given: Mapping[str, Array]) -> Any:
        likelihood = weighted(model(gap, answers, **given), answers)
        return likelihood.rows(...) if hasattr(likelihood, "rows") else likelihood

    given = {name: real(value) for name, value in parameters.items()}
    return jax.vmap(component, axis_size=number)(given), model.value(answers)


@lazy_jit(static_argnums=0)
def _outside(
    model: AnswerModel, answers: Comparisons, parameters: Mapping[str, Array], *given: Array
) -> TiltedMoments:
    def component(parameters: Mapping[str, Array], mean: Array, variance: Array) -> TiltedMoments:
        likelihood = model(mean, answers, **parameters)
        return powered(likelihood, model.value(answers), mean, variance, given[2])

    moments: TiltedMoments = jax.vmap(component)(parameters, *given[:2])
    return moments


def _matched(
    model: AnswerModel,
    answers: Comparisons,
    parameters: Mapping[str, Any],
    mean: Floats,
    variance: Floats,
    number: Floats,
) -> tuple[Floats, Floats]:
    """Sites of single answers, shape (2, K, m), and log probabilities of all ``number`` equal ones.

    Cavities without them are given by component, shape (K, m).
    """
    value: Any
    likelihood, value = _likelihoods(model, len(mean), answers, parameters)
    with np.errstate(all="ignore"):
        if hasattr(likelihood, "powered"):
            value = np.broadcast_to(value, mean.shape)
            moments = powered(
                likelihood, value, mean, variance, np.broadcast_to(number, mean.shape)
            )
        else:
            given = {name: real(each) for name, each in parameters.items()}
            moments = _outside(model, answers, given, mean, variance, number)
        sites = np.stack(matched(Cavity(mean, variance), moments)) / number
        if isinstance(likelihood, GaussianSite):
            peak, precision = map(np.asarray, likelihood.gaussian_site(value))
            sites = np.stack([precision, precision * peak])
    return sites, np.asarray(moments.log_normalizer)
