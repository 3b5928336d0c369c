"""Importance weights of a posterior's draws for the exact posterior (Vehtari et al. 2024).

The exact posterior p(u | answers) ∝ p(answers | u) N(u; location, K) is known up to its evidence.
Where the Gaussian q of an engine is near it, the weights p(answers | u) N(u; location, K) / q(u) of
draws of q vary little.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from scipy import sparse

from relpref.compiled import compiled, float64
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.call import Values
from relpref.infer.gradient import tilted
from relpref.infer.large.problem import answered
from relpref.infer.layout import Observation, Prior, placed
from relpref.infer.program import Program
from relpref.infer.samples import from_samples
from relpref.infer.sites import Sites
from relpref.infer.smoothing import Smoothed, smoothed, threshold
from relpref.likelihoods.orders import NODES
from relpref.limits import MAX_NUMBERS_OF_DRAWS, MAX_PREDICTORS_OF_DRAWS
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Floats, GaussianBelief, Positions, root_of

MIN_DRAWS = 100  # from which a tail can be fitted
MIN_EFFECTIVE = 100  # effective draws: below, a tail that looks light may look so by luck
# Directions in which the prior varies less than this, relative to the one in which it varies most,
# are left out: their standard deviation is a hundred-thousandth of the largest, and rounding would
# decide their values.
_MIN_VARIANCE = 1e-10
_COMPONENTS = 25  # of a sample of hyperparameters that are looked at
_NEGLIGIBLE = 1e-4  # share of a component that is left out
_GROUPS = 50  # of draws, by which errors are found
# Twice as many draws are taken, and twice as many again, until the weights can be relied on (few
# draws may see the foot of a tail that is light further out) and the verdict is decided. Not where
# that could not help, nor where there is no memory for it.
_ROUNDS = (1, 1, 2, 4, 8)
# A Gaussian that is too narrow is no proposal; a wider one is, in a few dimensions.
_WIDER = (1.0, 2.5)
_MUCH_WIDER = 1.2
# Effective share of draws whose weights hardly differ, and the largest weight.
_ALIKE, _MAX_SHARE = 0.9, 0.02
_RESAMPLED_FROM = 1000  # effective draws


@dataclass(frozen=True, eq=False)
class Target:
    """p(answers | u) N(u; location, covariance) of a program with fixed hyperparameters."""

    program: Program

    @classmethod
    def of(cls, posterior: Posterior, hyperparameters: Values) -> "Target":
        """The posterior's program at values of all hyperparameters; inside ``enable_x64``."""
        origin = posterior.origin
        if origin is None:
            raise UnsupportedProgramError(
                "this posterior does not know its program, so there is nothing to hold it against; "
                "fit with a program of "
                "relpref.models before saving, or certify in the session of the fit"
            )
        return cls(Program.of(origin.program, origin.args, origin.kwargs, hyperparameters))

    def at(self, hyperparameters: Values) -> "Target":
        """The target at other values of the same hyperparameters; nothing is traced again."""
        values = {
            name: np.broadcast_to(hyperparameters[name], np.shape(v))
            for name, v in self.program.fixed.items()
        }
        return Target(self.program.at(values))

    @cached_property
    def location(self) -> Floats:
        return np.asarray(self.program.on_host().prior.location)

    @cached_property
    def covariance(self) -> Floats:
        return np.asarray(self.program.on_host().prior.covariance.dense())

    @cached_property
    def root(self) -> Floats:
        """R with R Rᵀ = covariance, shape (n, r)."""
        return directions(self.covariance)

    def proposal(self, belief: GaussianBelief) -> tuple[Floats, Floats]:
        """Mean and root of the covariance of a Gaussian in whitened coordinates.

        These are w with u = location + root w, whose prior is N(0, I). Directions in which the
        prior does not vary are left out.
        """
        mean, covariance = whitened(self.root, belief.location - self.location, belief.scale)
        return mean, root_of(covariance)

    def weigh(
        self,
        proposal: tuple[Floats, Floats],
        number: int,
        rng: np.random.Generator,
        wider: float,
        sites: Sites | None = None,
    ) -> tuple[Floats, Floats]:
        """Antithetic pairs of draws of a `proposal` with ``wider`` sds, and their log weights.

        The mean of the weights estimates the evidence. Where answers are in groups, the ``sites``
        of EP give the distribution from which their effects are drawn.
        """
        mean, lower = proposal[0], wider * proposal[1]
        half = rng.standard_normal((number // 2, len(mean)))
        noise = np.concatenate([half, -half])
        white = mean + noise @ lower.T
        draws = self.location + white @ self.root.T
        log_prior = -0.5 * np.sum(np.square(white), axis=1)
        log_proposal = -0.5 * np.sum(np.square(noise), axis=1) - np.linalg.slogdet(lower)[1]
        return draws, log_likelihoods(self.program, draws, sites, rng) + log_prior - log_proposal


def directions(covariance: Floats) -> Floats:
    """R with R Rᵀ = covariance, shape (n, r), and orthogonal columns.

    There is a column for each direction in which there is variance.
    """
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _MIN_VARIANCE * max(values.max(initial=0.0), np.finfo(float).tiny)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def whitened(root: Floats, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of w, where ``root`` w has the given ones; see `directions`."""
    inverse = (root / np.sum(np.square(root), axis=0)).T
    white = inverse @ covariance @ inverse.T
    return inverse @ mean, 0.5 * (white + white.T)


def log_likelihoods(
    program: Program,
    draws: Floats,
    sites: Sites | None = None,
    rng: np.random.Generator | None = None,
) -> Floats:
    """Log likelihoods of all answers at draws of the latent vector, shape (s,).

    Where answers are in groups, effects ε of the groups are drawn from a distribution q that the
    ``sites`` of EP give, and the result is the log of p(answers, ε | u)/q(ε | u).
    """
    layout, number, prior = program.layout, len(draws), program.on_host().prior
    observations, direct = prior.observations, prior.direct
    # Numbers of draws are powers of two, so that few are traced.
    size = 1 << max(number - 1, 1).bit_length()
    block = min(max(1, MAX_PREDICTORS_OF_DRAWS // max(layout.num_rows, 1)), size)
    lists = layout.ordered and bool(observations)
    if not direct and not (layout.integrated or lists):
        return np.asarray(_log_likelihoods(program, block, filled(draws, size)))[:number]
    predictors = prior.offset + prior.projection.rows((draws - prior.location).T).T
    total, counts = np.zeros(number), np.array(program.counts, np.float64)
    if layout.integrated:
        assert sites is not None and rng is not None
        total, predictors = _effects(program, prior, predictors, sites, rng)
    for likelihood, value, count, rows in placed(observations if lists else ()):
        if not hasattr(likelihood, "log_prob_of_lists"):
            continue
        first = likelihood.first_rows[likelihood.first_rows < value.size]
        sizes = likelihood.sizes
        together = MAX_PREDICTORS_OF_DRAWS // (sizes.lists * sizes.items * NODES + 1) + 1
        for at in range(0, number, together):
            some = slice(at, at + together)
            each = likelihood.log_prob_of_lists(value, predictors[some, rows])
            total[some] += each[:, : len(first)] @ count[first]
        counts[rows] = np.where(likelihood.number >= 0, 0.0, counts[rows])
    if direct:
        for at in range(0, number, block):
            some = slice(at, at + block)
            total[some] += _at_predictors(observations, counts, predictors[some])
    elif np.any(counts):
        by_draw = _log_likelihoods_at(program, counts, block, filled(predictors, size))
        total = total + np.asarray(by_draw)[:number]
    return total


def filled(draws: Floats, size: int) -> Floats:
    """Draws, with zeros up to a number of them."""
    return np.pad(draws, ((0, size - len(draws)), (0, 0)))


def _at_predictors(
    observations: tuple[Observation, ...], counts: Floats, predictors: Floats
) -> Floats:
    """Log likelihoods at predictors, shape (s, m), by rows whose count is not 0."""
    total = np.zeros(len(predictors))
    for likelihood, value, _, places in placed(observations):
        rows = np.flatnonzero(counts[places])
        given = value.ravel()[rows], predictors[:, places][:, rows]
        if hasattr(likelihood, "members"):
            total += likelihood.log_prob_of_draws(*given, rows)
        else:
            alone = likelihood.single if hasattr(likelihood, "log_prob_of_lists") else likelihood
            total += alone.rows(rows).log_at(*given) @ counts[places][rows]
    return total


def _effects(
    program: Program, prior: Prior, predictors: Floats, sites: Sites, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Log of p(ε)/q(ε | u) at effects ε of groups drawn from q, and predictors with these.

    The noise of a group's rows is Fε with ε ~ N(0, I), see `relpref.infer.arrow`, and their sites
    give q. Noise of lists is a part of F, but only effects of groups are drawn: the others are
    integrated out of q. A precision that is negative counts as 0: q may be anything.
    """
    arrow, counts, total = program.arrow, np.asarray(program.counts), np.zeros(len(predictors))
    assert arrow is not None
    seen_by_rows = np.pad(predictors, ((0, 0), (0, 1)))
    start = np.append(prior.offset, 0.0)
    drawn = len(program.layout.integrated)
    parts = (arrow.blocks.cut(counts * part) for part in sites)
    for group, factor, tau, nu in zip(
        arrow.blocks.groups, arrow.blocks.factors(prior.noise), *parts, strict=True
    ):
        first = sum(kind.shape[2] for kind in group.shared[:-drawn])
        back, seen = factor.swapaxes(1, 2), seen_by_rows[:, group.rows] - start[group.rows]
        tau = np.maximum(tau, 0.0)
        inverse = np.eye(factor.shape[2]) + back @ (tau[:, :, None] * factor)
        covariance = np.linalg.inv(inverse)[:, first:]
        root = np.linalg.cholesky(covariance[:, :, first:])
        half = rng.standard_normal((len(predictors) // 2 + 1, *root.shape[:2], 1))
        noise = np.concatenate([half, -half])[: len(predictors)]
        effects = covariance @ (back @ (nu - tau * seen)[..., None]) + root @ noise
        log_root = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)))
        squares = np.sum(np.square(noise) - np.square(effects), axis=(1, 2, 3))
        total += 0.5 * squares + log_root
        seen_by_rows[:, group.rows] += (factor[:, :, first:] @ effects)[..., 0]
    return total, seen_by_rows[:, :-1]


@compiled(static_argnums=1)
def _log_likelihoods(program: Program, block: int, draws: Array) -> Array:
    return jax.lax.map(partial(log_likelihood, program), draws, batch_size=block)


@compiled(static_argnums=2)
def _log_likelihoods_at(program: Program, counts: Array, block: int, predictors: Array) -> Array:
    """Log likelihoods of answers at their predictors, shape (s,); rows of count 0 are left out."""
    observations = program.read().observations

    def at_draw(at: Array) -> Array:
        moments = tilted(observations, jnp.zeros_like(at), at, jnp.zeros_like(at))
        return jnp.sum(jnp.where(counts > 0, counts * moments.log_normalizer, 0.0))

    return jax.lax.map(at_draw, predictors, batch_size=block)


def log_likelihood(program: Program, vector: Array) -> Array:
    """Σ log p(answer | u) by the distributions' densities, each row times its count."""
    sites = program.sites(vector)
    total = jnp.zeros(())
    for name in program.layout.observed:
        site = sites[name]
        each = site["fn"].log_prob(site["value"])
        total = total + jnp.sum(each if site["scale"] is None else site["scale"] * each)
    return total


class WeightedDraws(NamedTuple):
    """Draws of a posterior with smoothed weights."""

    draws: Floats  # shape (s, n)
    log_weights: Floats  # as they are; their mean estimates the evidence, shape (s,)
    smoothed: Smoothed
    groups: Positions  # from 0 on; draws of different groups are independent, shape (s,)
    component: Positions  # of each draw, shape (s,)
    values: list[dict[str, Any]]  # hyperparameters of each component

    @property
    def reliable(self) -> bool:
        """Whether the weights are reliable: by the shape of their tail, or as they hardly differ.

        Where nearly all are equal k-hat takes the few others for a heavy tail, however light it
        is.
        """
        weights, number = self.smoothed, len(self.log_weights)
        alike = weights.ess >= _ALIKE * number and np.max(weights.log_weights) <= np.log(_MAX_SHARE)
        return bool((weights.k_hat <= threshold(number) or alike) and weights.ess >= MIN_EFFECTIVE)

    @property
    def log_evidence(self) -> float:
        """Log evidence of the exact model at the hyperparameters.

        It is NaN for several components and for unreliable weights.
        """
        if len(self.values) > 1 or not self.reliable:
            return np.nan
        highest = self.log_weights.max()
        return float(highest + np.log(np.mean(np.exp(self.log_weights - highest))))

    def moments(self, posterior: Posterior) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Means and sds of the exact posterior, and their errors, see `reweighted_moments`."""
        return reweighted_moments(
            posterior, self.draws, np.exp(self.smoothed.log_weights), self.groups
        )


def weighted_draws(
    posterior: Posterior, num_samples: int, rng: np.random.Generator, wider: float = 1.0
) -> Iterator[WeightedDraws]:
    """Weighted draws, twice as many each time, up to 16 times ``num_samples`` or the memory."""
    most = MAX_NUMBERS_OF_DRAWS // max(posterior.full.size, 1)
    parts: list[tuple[Floats, Floats]] = []
    with float64():
        proposals = list(_proposals(posterior))
    pairs = np.array([-(-num_samples * each.share // 2) for each in proposals], np.intp)
    # Draws are independent between the components of a sample, or between pairs.
    component = np.repeat(np.arange(len(pairs)), 2 * pairs)
    groups = component
    if not is_sample(posterior):
        starts = np.cumsum(pairs) - pairs
        numbers = [
            np.tile(start + np.arange(number), 2)
            for start, number in zip(starts, pairs, strict=True)
        ]
        groups = np.concatenate(numbers) % _GROUPS
    for rounds in _ROUNDS:
        with float64():
            for _ in range(rounds):
                for number, each in zip(pairs, proposals, strict=True):
                    draws, log_weights = each.target.weigh(
                        each.gaussian, 2 * number, rng, wider, each.sites
                    )
                    represented = np.log(each.share * np.sum(pairs) / number)
                    parts.append((draws, log_weights + represented - each.log_evidence))
        draws, log_weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        repeats, number = len(parts) // len(proposals), len(log_weights)
        batch = WeightedDraws(
            draws,
            log_weights,
            smoothed(log_weights),
            np.tile(groups, repeats),
            np.tile(component, repeats),
            [each.values for each in proposals],
        )
        yield batch
        hopeless = float(batch.smoothed.ess) / number * sum(_ROUNDS) * num_samples < MIN_EFFECTIVE
        if (hopeless and not batch.reliable) or 2 * number > most:
            return


class _Proposal(NamedTuple):
    """A component, from which latent vectors are drawn."""

    target: Target
    gaussian: tuple[Floats, Floats]  # see `Target.proposal`
    share: float  # of all draws
    log_evidence: float  # the engine's
    values: dict[str, Any]  # all hyperparameters
    sites: Sites | None  # where answers are in groups


def is_sample(posterior: Posterior) -> bool:
    """Whether the components of a mixture are draws of the hyperparameters.

    Then they have equal weights. Components of other weights are the points of an integral, whose
    weights say themselves whether they can be relied on.
    """
    belief: Any = posterior.full
    return belief.equal and not belief.sampled


def _proposals(posterior: Posterior) -> Iterator[_Proposal]:
    """Proposals for a Gaussian, or for the components of a mixture.

    A mixture draws its hyperparameters θ by the weights of its components, which are p(θ) Z_q(θ)
    with the engine's evidence. For the joint posterior the weight of θ and u together is
    p(answers | u) p(u | θ) / (q(u | θ) Z_q(θ)).
    """
    belief = posterior.full
    shares = belief.weights / belief.weights.sum()
    chosen = np.flatnonzero(shares > _NEGLIGIBLE)
    if is_sample(posterior):
        number = min(len(shares), _COMPONENTS)
        chosen = ((np.arange(number) + 0.5) / number * len(shares)).astype(np.intp)
    several, total = bool(posterior.hyperparameter_draws) or len(shares) > 1, shares[chosen].sum()
    log_evidences = log_evidences_of(posterior) if several else np.zeros(1)
    target = None
    for at in chosen.tolist():
        values = posterior.hyperparameters_at(at)
        target = Target.of(posterior, values) if target is None else target.at(values)
        layout, sites = target.program.layout, None
        if layout.integrated:
            shape = len(shares), layout.num_rows
            sites = Sites(*(posterior.sites[name].reshape(shape)[at] for name in Sites._fields))
        gaussian, log_evidence = target.proposal(belief.components[at]), float(log_evidences[at])
        yield _Proposal(target, gaussian, shares[at] / total, log_evidence, values, sites)


def log_evidences_of(posterior: Posterior) -> Floats:
    """The engine's log evidence at each component of a mixture, shape (K,), by its weight.

    Where that of the mixture is not known, each is relative to it.
    """
    prior, weights = posterior.prior_log_weights, np.asarray(posterior.full.weights)
    assert prior is not None  # of a mixture
    log_weights = np.log(weights, out=np.full(len(weights), -np.inf), where=weights > 0)
    return np.asarray(log_weights - prior + (posterior.log_evidence or 0.0))


def reweighted_moments(
    posterior: Posterior, draws: Floats, weights: Floats, groups: Positions
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means and sds of the exact posterior, as in `Posterior.reported`, and their errors.

    Errors are those of the jackknife over groups. The change that the weights, which add up to 1,
    make in the moments of the posterior's draws, shape (s, n), is applied to its exact moments: to
    the mean as a difference, to the sd as a factor. Most of the noise of the draws cancels.
    """
    # Weighted draws have no hyperparameters: a classifier's features are taken at the averages.
    held, reported = replace(posterior, hyperparameter_draws={}), posterior.reported()
    plain = np.full(len(draws), 1 / len(draws))
    seen = held.displayed(draws)
    after, before = (_without_each(held, draws, seen, each, groups) for each in (weights, plain))
    mean, log_sd = (after - before)[0]
    mean_error, log_sd_error = np.sqrt((len(after) - 2) * (after - before)[1:].var(axis=0))
    belief: Any = posterior.full
    if is_sample(posterior):  # its mean is itself known up to an error
        between = np.cov(belief.locations, rowvar=False, bias=True)
        beliefs = (GaussianBelief(belief.mean(), scale) for scale in (between, 0 * between))
        spread, nothing = (held.reported(each)["sd"] for each in beliefs)
        components = posterior.effective_draws or len(belief.components)
        mean_error = np.hypot(
            mean_error, np.sqrt(np.maximum(spread**2 - nothing**2, 0.0) / components)
        )
    exact = pd.DataFrame({"mean": reported["mean"] + mean, "sd": reported["sd"] * np.exp(log_sd)})
    return exact, pd.DataFrame(
        {"mean": mean_error, "sd": exact["sd"] * log_sd_error}, index=exact.index
    )


def _without_each(
    held: Posterior, draws: Floats, seen: Floats | None, weights: Floats, groups: Positions
) -> Floats:
    """Reported means and log sds by all draws, and without each group of them.

    The shape is (1 + groups, 2, rows).
    """
    number = int(groups.max()) + 1
    left = 1 - np.append(0.0, np.bincount(groups, weights, number))[:, None]
    values = draws if seen is None else seen
    center = weights @ values
    values = values - center
    by_group = sparse.csr_array((weights, (groups, np.arange(len(draws)))), (number, len(draws)))
    shift = -np.pad(by_group @ values, ((1, 0), (0, 0))) / left
    if seen is None:
        squares = [np.zeros((len(center), len(center)))]
        for group in range(number):
            part = values[groups == group]
            squares.append((part.T * weights[groups == group]) @ part)
        total, tables = np.sum(squares, axis=0), []
        for share, move, square in zip(left, shift, squares, strict=True):
            scale = (total - square) / share - np.outer(move, move)
            tables.append(held.reported(GaussianBelief(center + move, scale)))
        mean, sd = (np.stack([table[name] for table in tables]) for name in ("mean", "sd"))
    else:
        second = np.pad(by_group @ np.square(values, out=values), ((1, 0), (0, 0)))
        variance = (second.sum(axis=0) - second) / left
        mean, sd = center + shift, np.sqrt(np.maximum(variance - np.square(shift), 0.0))
    return np.stack([mean, np.log(np.where(sd > 0, sd, 1.0))], axis=1)


def require_draws(num_samples: int) -> None:
    """Refuse too few draws."""
    if num_samples < MIN_DRAWS:
        raise DataError(f"num_samples is {num_samples}; give at least {MIN_DRAWS}")


def reweighted(posterior: Posterior, num_samples: int, rng_key: Any) -> Posterior:
    """See `Posterior.reweighted`."""
    require_draws(num_samples)
    posterior._warn_if_not_converged()
    posterior = answered(posterior)
    if posterior.sampled:
        return posterior
    rng = posterior._rng(rng_key)
    for wider in _WIDER:
        for batch in weighted_draws(posterior, num_samples, rng, wider):
            if batch.reliable and float(batch.smoothed.ess) >= min(num_samples, _RESAMPLED_FROM):
                break
        if not batch.reliable:
            continue
        # Where the exact posterior is much wider than the draws, these do not reach its tails.
        exact_sd = batch.moments(posterior)[0]["sd"]
        if wider > 1 or not (exact_sd > _MUCH_WIDER * posterior.reported()["sd"]).any():
            break
    k_hat, ess = float(batch.smoothed.k_hat), float(batch.smoothed.ess)
    number = len(batch.log_weights)
    if not batch.reliable:
        raise InferenceError(
            f"the weights of {number} draws cannot be relied on (k-hat {k_hat:.2f}, {ess:.0f} "
            "effective draws), so there are no "
            "reweighted ones; raise num_samples, or run NUTS on the same program and from_samples",
            batch.smoothed,
        )
    # Systematic resampling: a draw of weight w comes w·s times, plus or minus one.
    total = np.cumsum(np.exp(batch.smoothed.log_weights))
    places = (np.arange(num_samples) + rng.random()) / num_samples * total[-1]
    kept = rng.permutation(np.minimum(np.searchsorted(total, places), number - 1))
    values = [batch.values[at] for at in batch.component[kept]]
    samples = {
        name: np.stack([np.asarray(value[name]) for value in values]) for name in batch.values[0]
    }
    samples |= {site: batch.draws[kept][:, columns] for site, columns in posterior.slices.items()}
    origin: Any = posterior.origin  # known, or there were no weights
    result = from_samples(
        samples, origin.program, *origin.args, rng_key=posterior.key, **origin.kwargs
    )
    info = {**result.info, "engine": f"{posterior.engine}, reweighted", "k_hat": k_hat, "ess": ess}
    log_evidence = batch.log_evidence if np.isfinite(batch.log_evidence) else None
    return replace(result, info=info, log_evidence=log_evidence)
