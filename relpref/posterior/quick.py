"""Rank-one updates of a posterior by single answers, and sweeps that settle the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jax import Array
from scipy.special import logsumexp

from relpref.compiled import compiled, float64
from relpref.data import Comparisons
from relpref.infer.arrow import Blocks, Kind, middle_of
from relpref.infer.rows import SparseRows
from relpref.infer.sites import Cavity, matched
from relpref.likelihoods import AnswerModel, GaussianSite, TiltedMoments
from relpref.likelihoods.answers import GROUP_SD, weighted
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.powers import knows_derivatives, powered
from relpref.linalg import real
from relpref.posterior.gaussian import Floats, GaussianBelief, MixtureBelief, Positions, mixture
from relpref.posterior.tables import of_its_raters, rows_of

Row = tuple[Positions, Floats]
_SWEEPS = 3  # after an answer, at most
_ENOUGH = 0.01  # error, in posterior sds, below which sweeps end
_ROWS = 32  # number of rows whose change of precision is followed into the variances in a sweep
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
        with np.errstate(divide="ignore"):  # weights may be 0
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


def settled(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Floats,
    belief: MixtureBelief,
    at_mode: bool = False,
    effects: int = 0,
) -> tuple[MixtureBelief, Floats, float]:
    """Sweep over all answers until one more sweep would hardly move the posterior.

    A sweep replaces the sites of answers that share no noise: the shifts of all, to first order,
    and the precisions of the few that change variances by most, in O(n²) for each of these.

    Parameters
    ----------
    parameters : mapping
        Parameters of the likelihood, and the sd of groups, by component, shape (K, ...).
    sites : array, shape (2, K, m)
        Precisions and shifts of single answers, of which ``belief`` is made.
    belief : MixtureBelief
        The first ``effects`` entries are effects of covariates, the others utilities.
    at_mode : bool
        Whether sites are curvatures at the mode (Laplace).

    Returns
    -------
    belief : MixtureBelief
    sites : array, shape (2, K, m)
    error : float
        How far one more sweep would move the mixture, to first order: the largest move of a mean,
        in sds, or relative change of an sd, among utilities relative to the average, gaps of
        compared pairs, and effects of covariates; NaN if a cavity is improper.
    """
    if not len(answers.winner):
        return belief, sites, 0.0
    count, weights = answers.count, belief.weights
    shared = np.zeros(len(count), dtype=bool)
    for number in (answers.list, answers.group):
        if number is not None:
            shared |= (number >= 0) & (np.bincount(number + 1)[number + 1] > 1)
    last, kept = np.inf, (belief, sites, np.nan)
    for left in range(_SWEEPS, -1, -1):
        matrices, mean, variance, target = swept(
            model, parameters, answers, sites, belief, at_mode, effects
        )
        stiffer = count * (target[0] - sites[0])
        pull = count * (target[1] - sites[1]) - stiffer * mean
        taken = np.where(shared, 0.0, [stiffer, pull])
        # Moves of the means by the changes of all sites, and by those that are made.
        turned = [matrix.T for matrix in matrices] * (len(pull) // len(matrices))
        pulls = zip(turned, np.stack([pull, taken[1]], axis=2), strict=True)
        moves = belief.scales @ np.stack([matrix @ each for matrix, each in pulls])
        # Few rows change variances: those whose sites have changed by much.
        rows = np.argsort(weights @ np.abs(stiffer * variance))[-_ROWS:]
        few = np.stack([matrix[rows].toarray() for matrix in matrices])
        changes = few @ belief.scales
        error = _error(belief, answers, effects, moves[:, :, :1], changes, stiffer[:, rows])
        if not error < last:
            break
        last, kept = error, (belief, sites, error)
        if error < _ENOUGH or not left:
            break
        variances, move = changes @ few.swapaxes(1, 2), moves[:, :, 1:]
        # Of the sum of a gap and noise, given the utilities.
        noise = np.maximum(variance[:, rows] - np.diagonal(variances, axis1=1, axis2=2), 0.0)
        center = mean[:, rows] + (few @ move)[:, :, 0] + noise * taken[1][:, rows]
        sites = sites + np.stack([0 * pull, taken[1] / count])
        stiffer = taken[0][:, rows]
        sites[:, :, rows] += np.stack([stiffer, stiffer * center]) / count[rows]
        stiffer = (stiffer / (1 + noise * stiffer))[:, :, None]
        fewer = np.linalg.solve(np.eye(len(rows)) + stiffer * variances, stiffer * changes)
        scales = belief.scales - changes.swapaxes(1, 2) @ fewer
        belief = mixture(belief.locations + move[:, :, 0], scales, weights)
    return kept


def _error(
    belief: MixtureBelief,
    answers: Comparisons,
    effects: int,
    moves: Floats,
    changes: Floats,
    stiffer: Floats,
) -> float:
    """Largest move of a mean, in sds, or relative change of an sd, see `settled`.

    Means move by ``moves``, shape (K, n, 1), and covariances by −Σ_r ``stiffer`` ccᵀ, where the c
    are rows of ``changes``, shape (K, r, n).
    """
    columns, entries = rows_of(answers, effects)

    def parts(values: Floats) -> Floats:
        """Relative utilities, gaps and effects, from entries of shape (K, r, n)."""
        utilities = values[..., effects:] - values[..., effects:].mean(axis=-1, keepdims=True)
        gaps = np.sum(values[..., columns] * entries, axis=-1)
        return np.concatenate([utilities, gaps, values[..., :effects]], axis=-1)

    diagonals = np.diagonal(belief.scales, axis1=1, axis2=2)
    averages = belief.scales[:, effects:, effects:].mean(axis=2)
    relative = diagonals[:, effects:] - 2 * averages + averages.mean(axis=1, keepdims=True)
    gaps = belief.rows(columns, entries).variances
    before = belief.weights @ np.concatenate([relative, gaps, diagonals[:, :effects]], axis=1)
    moved = belief.weights @ np.abs(parts(moves.swapaxes(1, 2))[:, 0])
    narrower = np.einsum("kr,krn->kn", stiffer, np.square(parts(changes)))
    narrower = belief.weights @ np.abs(0.5 * narrower)
    certain = before <= _CERTAIN * before[: relative.shape[1]].max(initial=0.0)
    before = np.where(certain, np.inf, before)
    return float(np.max([moved / np.sqrt(before), narrower / before], initial=0.0))


def swept(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Floats,
    belief: MixtureBelief,
    at_mode: bool,
    effects: int,
) -> tuple[list[Any], Floats, Floats, Floats]:
    """Sums of gaps and the noise of lists and groups, and the sites that match them.

    Returns the coefficients of the sums, shape (m, n), by component (or once, without noise), see
    `_with_shared`; their means and variances, shape (K, m); and the sites, shape (2, K, m), NaN if
    a cavity is improper.
    """
    columns, entries = rows_of(answers, effects)
    of_gaps = SparseRows(columns, entries, np.zeros(belief.size)).matrix
    gaps, count = belief.rows(columns, entries), answers.count
    matrices, mean, variance, size = [of_gaps], gaps.means, gaps.variances, len(count)
    if answers.list is not None or answers.group is not None:
        each = []
        for at, component in enumerate(belief.components):
            given, noise = {name: value[at] for name, value in parameters.items()}, []
            group_sd = given.pop(GROUP_SD, 0.0)
            if answers.group is not None:
                noise.append((answers.group, np.full(size, NOISE * group_sd)))
            if answers.list is not None:
                with float64():
                    noise.append((answers.list, _list_noise(model, answers, given)))
            precision, shift = count * sites[:, at]
            each.append(_with_shared(answers, noise, precision, shift, of_gaps, component))
        matrices = [sums[0] for sums in each]
        mean, variance = (np.stack([sums[at] for sums in each]) for at in (1, 2))
    listed = np.zeros(size, bool) if answers.list is None else answers.list >= 0
    together = np.where(at_mode | listed, 1, count)  # answers of one site
    # Laplace takes the curvature of the likelihood at the mode: means stay, and variances are 0.
    precision, shift = sites * (0 if at_mode else together)
    left = 1 - variance * precision
    left = np.where(left > 0, left, np.nan)
    cavity = (mean - variance * shift) / left, variance / left * (not at_mode)
    with float64():
        after, _ = _matched(model, answers, parameters, *cavity, together.astype(np.float64))
    return matrices, mean, variance, after


def _list_noise(
    model: AnswerModel, answers: Comparisons, parameters: Mapping[str, Floats]
) -> Floats:
    """Sd of the noise that an item has in the list of each row, shape (m,)."""
    gap: Any = np.zeros(len(answers.winner))
    given: Mapping[str, Any] = parameters
    likelihood: Any = model(gap, answers, **given)
    (lists,) = likelihood.shared_noise
    return np.broadcast_to(lists.sd, answers.winner.shape)


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


def _likelihoods(
    model: AnswerModel, number: int, answers: Comparisons, parameters: Mapping[str, Floats]
) -> tuple[Any, Any]:
    """The distribution of m answers for each of a number of components, and their values."""
    gap: Any = np.zeros(len(answers.winner))

    def component(at: int) -> Any:
        given: Mapping[str, Any] = {name: value[at] for name, value in parameters.items()}
        likelihood = weighted(model(gap, answers, **given), answers)
        return likelihood.rows(...) if hasattr(likelihood, "rows") else likelihood

    each = map(component, range(number))
    stacked = jax.tree.map(lambda *arrays: np.stack(list(map(np.asarray, arrays))), *each)
    return stacked, np.asarray(model.value(answers))


@compiled(static_argnums=0)
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
    parameters = {name: each for name, each in parameters.items() if name != GROUP_SD}
    value: Any
    likelihood, value = _likelihoods(model, len(mean), answers, parameters)
    with np.errstate(all="ignore"):
        if knows_derivatives(likelihood):
            value = np.broadcast_to(value, mean.shape)
            moments = powered(
                likelihood, value, mean, variance, np.broadcast_to(number, mean.shape)
            )
        else:
            given = {name: real(each) for name, each in parameters.items()}
            # Numbers of rows are powers of two, so that few are compiled.
            size = mean.shape[1]
            rows = np.minimum(np.arange(1 << (size - 1).bit_length()), size - 1)
            columns: dict[str, Any] = {name: each[rows] for name, each in answers.columns.items()}
            cavities = mean[:, rows], variance[:, rows], number[rows]
            moments = _outside(model, replace(answers, **columns), given, *cavities)
            moments = TiltedMoments(*(each[:, :size] for each in moments))
        sites = np.stack(matched(Cavity(mean, variance), moments)) / number
        if isinstance(likelihood, GaussianSite):
            peak, precision = map(np.asarray, likelihood.gaussian_site(value))
            sites = np.stack([precision, precision * peak])
    return sites, np.asarray(moments.log_normalizer)
