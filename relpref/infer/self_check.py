"""Fits check themselves by importance weights of some thousand draws.

The engine's posterior is a mixture of Gaussians q(u | θ_k) with weights a_k Z_k, where Z_k is its
evidence at the hyperparameters θ_k and a_k comes from their prior. The exact joint posterior is
p(k, u | answers) ∝ a_k p(answers | u, θ_k) N(u; m_k, K_k). Draws of multivariate t distributions
around the q(u | θ_k), in Latin hypercubes, get weights for the exact posterior and for the
mixture. The means and covariances of the mixture are known, so the difference of both weighted
averages is added to them, and most of the error of the draws cancels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from relpref.infer.assemble import Component
from relpref.infer.call import Values
from relpref.infer.program import Program
from relpref.infer.reweighting import MIN_EFFECTIVE, directions, log_likelihoods
from relpref.infer.sites import Sites
from relpref.infer.smoothing import smoothed, threshold
from relpref.limits import MAX_CHECKED_NUMBERS
from relpref.posterior.gaussian import Floats, mixture, root_of
from relpref.posterior.utility import UTILITY

# Sequences of draws, independent of each other, whose differences give the errors, and how many of
# them there are after each round, in units of the first: later rounds come where few do not decide.
_SEQUENCES, _ROUNDS = 8, (1, 4, 16)
# Draws of a sequence in the first round: at most so many numbers are computed in all, but draws are
# between two bounds; in the only round, where these are too many.
_FIRST_NUMBERS, _FEWEST, _MOST, _ONLY = 1_000_000, 128, 1024, 64
# Degrees of freedom, factor of the sds and share of each proposal, for dimensions below a number.
# In few dimensions second moments need draws in tails, which may be as wide as those of the prior,
# and the rest is of the prior, so that no weight is large. In many such draws have no weight.
_PROPOSALS = (
    (10, ((7.0, 1.15, 0.5), (3.0, 2.0, 0.375))),
    (50, ((7.0, 1.15, 1.0),)),
    (np.inf, ((200.0, 1.05, 1.0),)),
)
_EVERY = 8  # so many draws are shared among the proposals
# Effective share of all draws from which on a tail that looks heavy is none, where weights are
# bounded because some draws are of the prior.
_EVEN = 0.05
# Errors of means, in sds, and of sds that are put right.
_TOLERANCE = 0.05
# Of probabilities, beyond which quantiles are not taken, and of errors.
_ENDS = 1e-9
_RIGHT = "no mean is seen to be off by more than 0.05 sds, no sd by more than 5 %"
_UNDECIDED = "not decided, because so few draws do not tell whether means or sds are off"
_SKEWED = (
    "probabilities of an order may be off by up to {:.2f}, because the exact posterior is skewed; "
    "reweighted() has its shape"
)
# Error of a probability that is said, if it is this many standard errors of the draws.
_VISIBLE, _SURE = 0.01, 4.0
_NUMBERS_OF_ROW = 5  # one answer costs as much as so many integrands
_MOST_PAIRS = 500  # whose probabilities are compared
_UNRELIABLE = "because the importance weights of draws cannot be relied on"
_ILL_CONDITIONED = 1e8  # from this condition number on, directions without variance are left out


@dataclass(frozen=True)
class Checked:
    """Components that were checked, and what was seen."""

    components: list[Component]
    log_evidence: float  # that of the exact posterior less that of the engine, where it is known
    note: str  # in words, for ``info["check"]``
    reliable: bool  # whether the weights are
    corrected: bool = False


class _Target(NamedTuple):
    """One component: its mean, roots of prior and posterior covariance, and the program there."""

    program: Program
    location: Floats
    prior_root: Floats  # R with R Rᵀ = K, shape (n, r)
    mean: Floats
    root: Floats  # shape (r, r), of the posterior covariance of w, u = location + R w
    log_evidence: float
    sites: Sites

    @classmethod
    def of(cls, program: Program, component: Component) -> "_Target":
        assert component.prior is not None
        location, covariance = component.prior.location, component.prior.covariance
        try:
            prior_root = cholesky(covariance, lower=True, check_finite=False)
            into = solve_triangular(prior_root, np.eye(len(location)), lower=True)
            # Rounding errors of the posterior covariance grow by this factor.
            growth = np.sum(np.square(into)) * np.max(np.diagonal(covariance))
            if not growth < _ILL_CONDITIONED:
                raise LinAlgError
        except LinAlgError:  # the prior does not vary in all directions
            prior_root = directions(covariance)
            into = (prior_root / np.sum(np.square(prior_root), axis=0)).T
        root = root_of(into @ component.covariance @ into.T)
        mean, sites = into @ (component.mean - location), Sites(**component.sites)
        return cls(program, location, prior_root, mean, root, component.log_evidence, sites)


class _Draws(NamedTuple):
    """Draws of latent vectors, and their log weights for the exact posterior and the mixture."""

    vectors: Floats  # shape (s, n)
    exact: Floats
    mixture: Floats
    sequence: NDArray[np.int64]

    def moments(self) -> tuple[Floats, Floats]:
        """Changes of mean and covariance from the mixture to the exact posterior.

        They are by all draws, and without each of the sequences, shapes (1 + sequences, n) and
        (1 + sequences, n, n).
        """
        center, changes = self.vectors.mean(axis=0), []
        for log_weights in (self.exact, self.mixture):
            weights = np.exp(log_weights - log_weights.max())
            x, sums = self.vectors - center, []
            for number in range(_SEQUENCES):
                rows = self.sequence == number
                w, part = weights[rows], x[rows]
                sums.append((w.sum(), w @ part, (part.T * w) @ part))
            zeroth, first, second = (np.stack(each) for each in zip(*sums, strict=True))
            zeroth, first, second = (
                np.concatenate([each.sum(axis=0)[None], each.sum(axis=0) - each])
                for each in (zeroth, first, second)
            )
            mean = first / zeroth[:, None]
            outer = mean[:, :, None] * mean[:, None, :]
            changes.append((mean, second / zeroth[:, None, None] - outer))
        (mean, covariance), (before, before_covariance) = changes
        return mean - before, covariance - before_covariance


class Mixture(NamedTuple):
    """Components, with their priors, the hyperparameters that the program has not fixed, weights.

    Hyperparameters are on their supports; weights, shape (K,), add up to 1.
    """

    components: list[Component]
    values: list[Values]
    weights: Floats


def checked(program: Program, fitted: Mixture, averaged: Mixture | None = None) -> Checked:
    """Components whose mixture has the moments of the exact posterior where the engine erred.

    If members were drawn for them, ``averaged`` is the mixture without: it is near the exact
    posterior of all that members may be, with which both are compared if that takes little time.
    """
    components, values, weights = fitted
    proposed, nodes = fitted, 1
    if averaged is not None and program.members is not None:
        proposed, nodes = averaged, len(program.members.nodes[1])
    cost = _SEQUENCES * _cost(program, program.fixed | values[0])
    if nodes * cost * _FEWEST > MAX_CHECKED_NUMBERS:
        proposed, nodes = fitted, 1
    cost *= nodes
    first = 2 ** int(np.log2(np.clip(_FIRST_NUMBERS / cost, _FEWEST, _MOST)))
    most = MAX_CHECKED_NUMBERS / cost
    ends = [number * first for number in _ROUNDS if number * first <= most]
    ends = ends or [_ONLY]
    if most < ends[0]:
        return Checked(list(components), 0.0, "not checked, because it takes too long", True)
    targets = [
        _Target.of(program.at(program.fixed | given), component)
        for component, given in zip(*proposed[:2], strict=True)
    ]
    bounded = sum(share for *_, share in _proposals(targets)) < 1
    mean, covariance = _moments(fitted)
    mean_before, covariance_before = _moments(proposed)
    apart = mean_before - mean, covariance_before - covariance
    several: list[_Draws] = []
    for start, end in pairwise([0, *ends]):
        several.append(_weighted(targets, proposed.weights, end - start, start))
        draws = _Draws(*(np.concatenate(part) for part in zip(*several, strict=True)))
        tail = smoothed(draws.exact)
        effective = tail.ess
        number = len(draws.exact)
        even = bounded and end == ends[-1] and effective >= _EVEN * number
        light = even or float(tail.k_hat) <= threshold(number)
        reliable = effective >= MIN_EFFECTIVE and light
        if not reliable:
            # More draws have at most as many more effective ones.
            if effective * ends[-1] < MIN_EFFECTIVE * end:
                break
            continue
        changes = [each + more for each, more in zip(draws.moments(), apart, strict=True)]
        verdict = _Verdict.of(program, mean, covariance, *changes)
        if verdict.decided:
            break
    facts = f"{effective:.0f} effective draws of {len(draws.exact)}"
    if not reliable:
        return Checked(list(components), 0.0, f"not checked, {_UNRELIABLE} ({facts})", False)
    moved, shift = list(components), 0.0
    note = _RIGHT if verdict.decided or end == _ROUNDS[-1] * first else _UNDECIDED
    if verdict.off:
        move = _transport(covariance, covariance + changes[1][0])
        center = mean + changes[0][0]
        shift = float(special.logsumexp(draws.exact) - special.logsumexp(draws.mixture))
        note = f"{verdict}; put right by importance weights"
        moved = [
            each.moved(center + move @ (each.mean - mean), move @ each.covariance @ move.T)
            for each in components
        ]
    error = _error_of_probabilities(program, proposed, moved, weights, draws)
    facts += f"; {_SKEWED.format(error)}" if error else ""
    moved = [each._replace(log_evidence=each.log_evidence + shift) for each in moved]
    return Checked(moved, shift, f"{note} ({facts})", True, verdict.off)


def _proposals(targets: Sequence[_Target]) -> tuple[tuple[float, float, float], ...]:
    """Degrees of freedom, factor of the sds and share of each proposal beside the prior."""
    size = max(len(target.root) for target in targets)
    return next(each for most, each in _PROPOSALS if size < most)


def _weighted(targets: Sequence[_Target], weights: Floats, number: int, start: int) -> _Draws:
    """Draws of all sequences with their log weights, ``number`` in each."""
    size = max(len(target.root) for target in targets)
    proposals = _proposals(targets)
    rng = np.random.default_rng(start)
    # Each sequence is a Latin hypercube: coordinates of the noise, its scale, and the component.
    places = np.argsort(rng.random((_SEQUENCES, number, size + 2)), axis=1)
    uniform = ((places + rng.random(places.shape)) / number).reshape(-1, size + 2)
    uniform = np.clip(uniform, _ENDS, 1 - _ENDS)
    of_prior = 1 - sum(share for *_, share in proposals)
    ends = np.cumsum([share for *_, share in proposals])
    kind = np.searchsorted(ends, (np.arange(len(uniform)) % _EVERY + 0.5) / _EVERY)
    noise = special.ndtri(uniform[:, :size])
    for number_of_kind, (degrees, widening, _) in enumerate(proposals):
        rows = kind == number_of_kind
        scale = special.gammaincinv(0.5 * degrees, uniform[rows, size]) * 2 / degrees
        noise[rows] *= (widening / np.sqrt(scale))[:, None]
    # Few draws would be of a component that is improbable and wide.
    shares = weights + (weights > 0) / len(weights)
    ends = np.cumsum(shares)
    component = np.searchsorted(ends, uniform[:, -1] * ends[-1])
    vectors = np.empty((len(noise), len(targets[0].location)))
    exact, mixture = np.empty((2, len(noise)))
    for at in np.unique(component):
        rows, target = component == at, targets[at]
        rank = len(target.root)
        standard, drawn = noise[rows, :rank], kind[rows, None] == len(proposals)
        white = np.where(drawn, standard, target.mean + standard @ target.root.T)
        if of_prior:
            standard = np.linalg.solve(target.root, (white - target.mean).T).T
        vectors[rows] = target.location + white @ target.prior_root.T
        squares = np.sum(np.square(standard), axis=1)
        # Log densities without −½ rank log 2π; the last two also lack −log det of the root.
        log_prior = -0.5 * np.sum(np.square(white), axis=1)
        log_mixture = -0.5 * squares
        log_proposal = special.logsumexp(
            [
                special.gammaln(0.5 * (degrees + rank))
                - special.gammaln(0.5 * degrees)
                - 0.5 * rank * np.log(0.5 * degrees * widening**2)
                - 0.5 * (degrees + rank) * np.log1p(squares / (degrees * widening**2))
                + np.log(share)
                for degrees, widening, share in proposals
            ],
            axis=0,
        )
        log_root = np.linalg.slogdet(target.root)[1]
        if of_prior:
            log_proposal = np.logaddexp(log_proposal, log_prior + log_root + np.log(of_prior))
        log_proposal += np.log(shares[at] / weights[at])
        exact[rows] = log_prior + log_root - target.log_evidence - log_proposal
        mixture[rows] = log_mixture - log_proposal
        exact[rows] += log_likelihoods(target.program, vectors[rows], target.sites, rng)
    sequence = np.repeat(np.arange(_SEQUENCES), number)
    return _Draws(vectors, exact, mixture, sequence)


def _cost(program: Program, values: Mapping[str, Any]) -> float:
    """Numbers that the log likelihood of a draw needs: those of integrals of lists, and of rows."""
    cost = float(_NUMBERS_OF_ROW * max(program.layout.num_rows, 1))
    if program.layout.ordered:
        for likelihood, *_ in program.at(values).on_host().prior.observations:
            cost += getattr(likelihood, "integrands", 0)
    return cost


def _moments(fitted: Mixture) -> tuple[Floats, Floats]:
    """Mean and covariance of a mixture."""
    means = np.stack([component.mean for component in fitted.components])
    covariances = np.stack([component.covariance for component in fitted.components])
    belief = mixture(means, covariances, fitted.weights)
    return belief.mean(), belief.covariance()


def _error_of_probabilities(
    program: Program,
    before: Mixture,
    after: Sequence[Component],
    weights: Floats,
    draws: _Draws,
) -> float:
    """Largest error of the probability that a contrast is positive, after means are put right.

    0 where it is not visible beside the errors of the draws.
    """
    contrasts = _Contrasts.of(program, draws.vectors.shape[1]).first_ones(_MOST_PAIRS)
    values, chances = np.ascontiguousarray(draws.vectors.T), []
    for components, share in ((before.components, before.weights), (after, weights)):
        means = contrasts.means(np.stack([each.mean for each in components]))
        variances = contrasts.variances(np.stack([each.covariance for each in components]))
        sds = np.sqrt(np.maximum(variances, np.finfo(float).tiny))
        chances.append(share @ special.ndtr(means / sds))
    positive = np.concatenate(
        [values[contrasts.first] > values[contrasts.second], values[contrasts.alone] > 0]
    )
    both = exact, mixture = np.stack([special.softmax(each) for each in draws[1:3]])
    sums = positive.astype(float) @ np.concatenate([both, (exact - mixture) * both]).T
    seen, expected, by_exact, by_mixture = sums.T
    # The sum of the squares of exact (positive − seen) − mixture (positive − expected).
    change = np.stack([seen, -expected])
    variance = by_exact * (1 - 2 * seen) - by_mixture * (1 - 2 * expected)
    variance += np.sum(change * (both @ both.T @ change), axis=0)
    unsure = _SURE * np.sqrt(np.maximum(variance, 0.0))
    errors = np.abs(chances[1] - np.clip(chances[0] + seen - expected, 0, 1))
    return float(errors.max(where=errors > np.maximum(unsure, _VISIBLE), initial=0.0))


def _transport(before: Floats, after: Floats) -> Floats:
    """The symmetric matrix A with A C Aᵀ = C' that moves N(0, C) to N(0, C') the least."""
    basis = directions(before)
    sizes = np.sqrt(np.sum(np.square(basis), axis=0))
    axes = basis / sizes
    inside = sizes[:, None] * (axes.T @ after @ axes) * sizes
    values, vectors = np.linalg.eigh(inside)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray((axes / sizes) @ root @ (axes / sizes).T)


@dataclass(frozen=True)
class _Verdict:
    """Largest errors of the engine's means and sds."""

    shift: float  # in sds
    ratio: float  # of an sd of the engine to the exact one, that is furthest from 1
    off: bool
    decided: bool

    @classmethod
    def of(
        cls, program: Program, mean: Floats, covariance: Floats, shifts: Floats, changes: Floats
    ) -> "_Verdict":
        contrasts = _Contrasts.of(program, len(mean))
        sd = np.sqrt(np.maximum(contrasts.variances(covariance), 0.0))
        kept = sd > 1e-6 * sd.max(initial=0.0)
        sd = sd[kept]
        exact = np.sqrt(
            np.maximum(contrasts.variances(covariance + changes)[:, kept], 1e-6 * sd**2)
        )
        effects = np.stack([contrasts.means(shifts)[:, kept] / sd, np.log(sd / exact)], axis=1)
        errors = np.sqrt((_SEQUENCES - 1) * effects[1:].var(axis=0))
        # Errors by few sequences scatter; none is far below what is usual. Where likelihoods are
        # not log-concave, single numbers are off, and errors differ.
        even = program.layout.log_concave
        noise = np.sqrt(np.mean(np.square(errors), axis=1, keepdims=True))
        errors = np.maximum(np.maximum(errors, noise if even else 0.5 * noise), _ENDS)
        largest = 1 + np.sqrt(2 * np.log(max(effects[0].size, 2)))
        sizes = np.abs(effects[0])
        ratios = sizes / errors
        beyond = (sizes > _TOLERANCE) & (ratios > largest)
        # Of very many numbers some are off by chance: most of what is seen must be no noise, or
        # some number must stand out.
        seen = np.mean(np.square(ratios), axis=1, keepdims=True)
        off = bool((beyond & ((seen > 4) | (ratios > 2 * largest))).any())
        clear = largest * errors.max(initial=0.0) <= max(_TOLERANCE, 0.25 * sizes.max(initial=0.0))
        excess = np.mean(np.square(sizes) - np.square(noise), axis=1)
        usual = bool(np.all(excess <= (0.5 * _TOLERANCE) ** 2))
        usual &= even or bool(largest * noise.max() <= 2 * _TOLERANCE)
        decided = (off and clear) or (usual and not beyond.any())
        ratio = np.exp(effects[0, 1])
        worst = ratio[np.argmax(sizes[1])] if ratio.size else 1.0
        return cls(float(sizes[0].max(initial=0.0)), float(worst), off, decided)

    def __str__(self) -> str:
        shift = f"means by up to {max(self.shift, 0.01):.2f} sds"
        return f"off, {shift}, sds {self.ratio:.2f} times the exact ones"


@dataclass(frozen=True)
class _Contrasts:
    """Differences of the utilities of all pairs of items, and values of other latents."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    alone: NDArray[np.int64]

    @classmethod
    def of(cls, program: Program, size: int) -> "_Contrasts":
        alone = np.ones(size, bool)
        pairs = [np.zeros((2, 0), np.int64)]
        place = program.layout.slices.get(UTILITY)
        if place is not None and place.stop - place.start > 1:
            alone[place] = False
            pairs.append(place.start + np.stack(np.triu_indices(place.stop - place.start, 1)))
        first, second = np.concatenate(pairs, axis=1)
        return cls(first, second, np.flatnonzero(alone))

    def first_ones(self, number: int) -> "_Contrasts":
        """The first pairs and values alone."""
        return _Contrasts(self.first[:number], self.second[:number], self.alone[:number])

    def means(self, means: Floats) -> Floats:
        """Means of the contrasts, by means of the latents, shape (..., n)."""
        gaps = means[..., self.first] - means[..., self.second]
        return np.concatenate([gaps, means[..., self.alone]], axis=-1)

    def variances(self, covariances: Floats) -> Floats:
        """Variances of the contrasts, by covariances of the latents, shape (..., n, n)."""
        diagonal = np.diagonal(covariances, axis1=-2, axis2=-1)
        both = diagonal[..., self.first] + diagonal[..., self.second]
        gaps = both - 2 * covariances[..., self.first, self.second]
        return np.concatenate([gaps, diagonal[..., self.alone]], axis=-1)
