"""A posterior as a proposal for the exact one: importance weights, and what they say (Vehtari et al. 2024).

The exact posterior p(u | answers) ∝ p(answers | u) N(u; location, K) is known up to its evidence. Where the Gaussian q that an engine
found is near it, the weights p(answers | u) N(u; location, K) / q(u) of draws of q vary little.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

from relpref.data import PreferenceData
from relpref.diagnostics.certificates.certificate import (
    LEAST,
    Certificate,
    comparison,
    exact_algebra,
    is_open,
    moments,
    of_draws,
    of_weights,
    prior_alone,
    same_weights,
    unusable,
)
from relpref.diagnostics.psis import Smoothed, smoothed, threshold
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.large.answered import answered
from relpref.infer.program import Call, Layout, Values, constrained, prepare, read, unconstrained_values
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.samples import from_samples
from relpref.linalg import cholesky
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import DrawsBelief, Floats, GaussianBelief, MixtureBelief, generator
from relpref.posterior.update import engine_again
from relpref.posterior.utility import UtilityPosterior

# Directions in which the prior varies less than that, relative to the one in which it varies most, are left out: their standard deviation
# is a hundred-thousandth of the largest, and rounding would decide what is seen of them.
_SMALLEST = 1e-10
_NUMBERS = 2_000_000  # in the predictors of draws that are looked at together: 16 MB


@dataclass(frozen=True, eq=False)
class Target:
    """p(answers | u) N(u; location, covariance).

    Attributes
    ----------
    call, layout, arrays, fixed
        The program, all of whose hyperparameters are fixed.
    location : array, shape (n,)
    covariance : array, shape (n, n)
    """

    call: Call
    layout: Layout
    arrays: tuple[Any, ...]
    fixed: Values
    location: Floats
    covariance: Floats

    @classmethod
    def of(cls, posterior: Posterior, hyperparameters: Values) -> "Target":
        """The posterior's program at some hyperparameters, all of them; inside ``enable_x64``."""
        origin = posterior.origin
        if origin is None:
            raise UnsupportedProgramError(
                "this posterior does not know its program, so there is nothing to hold it against; fit with a program of "
                "relpref.models before saving, or certify in the session of the fit"
            )
        prepared = prepare(origin.program, origin.args, origin.kwargs, hyperparameters, padding=False)
        call, arrays, fixed, layout = (
            prepared.call,
            prepared.arrays,
            prepared.fixed,
            prepared.discovery.layout,
        )
        location, covariance = (np.asarray(part) for part in _prior(call, layout, arrays, fixed))
        return cls(call, layout, arrays, fixed, location, covariance)

    @cached_property
    def root(self) -> Floats:
        """R with R Rᵀ = covariance, shape (n, r), see `directions`."""
        return directions(self.covariance)

    def whitened(self, belief: GaussianBelief) -> tuple[Floats, Floats]:
        """Mean, shape (r,), and covariance, shape (r, r), of a belief about w, where u = location + root w and w is N(0, I) a priori."""
        return whitened(self.root, belief.location - self.location, belief.scale)

    def log_likelihood(self, draws: Floats) -> Floats:
        """Log p(answers | u) of draws of u, shape (s, n); inside ``enable_x64``."""
        block = max(1, _NUMBERS // max(self.layout.num_rows, 1))
        found = _log_likelihoods(
            self.call, self.layout, min(block, len(draws)), self.arrays, self.fixed, jnp.asarray(draws)
        )
        return np.asarray(found)


def directions(covariance: Floats) -> Floats:
    """R with R Rᵀ = covariance, shape (n, r): orthogonal columns, one for each direction in which there is variance."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _SMALLEST * max(values.max(initial=0.0), np.finfo(float).tiny)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def whitened(root: Floats, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of w, where ``root`` w, of `directions`, has the given ones."""
    inverse = (root / np.sum(np.square(root), axis=0)).T
    found = inverse @ covariance @ inverse.T
    return inverse @ mean, 0.5 * (found + found.T)


@partial(jax.jit, static_argnums=(0, 1))
def _prior(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values) -> tuple[Array, Array]:
    reading = read(call, arrays, layout, {}, fixed)
    return reading.location, reading.covariance.dense()


@partial(jax.jit, static_argnums=(0, 1, 2))
def _log_likelihoods(
    call: Call, layout: Layout, block: int, arrays: tuple[Any, ...], fixed: Values, draws: Array
) -> Array:
    return jax.lax.map(
        lambda vector: log_likelihood(call, layout, arrays, fixed, vector), draws, batch_size=block
    )


def log_likelihood(
    call: Call, layout: Layout, arrays: tuple[Any, ...], values: Values, vector: Array
) -> Array:
    """Σ log p(answer | u) by the distributions' own densities, each row counted as often as it was answered."""
    sites = call.trace(arrays, {**values, **layout.unravel(vector)})
    total = jnp.zeros(())
    for name in layout.observed:
        site = sites[name]
        each = site["fn"].log_prob(site["value"])
        total = total + jnp.sum(each if site["scale"] is None else site["scale"] * each)
    return total


_LATENT = "latent vector, whitened"  # no site of a program is called that


@dataclass(frozen=True)
class Settings:
    """How long to sample: draws of all chains together, and steps to tune each chain by."""

    draws: int
    chains: int
    warmup: int
    progress_bar: bool


@dataclass(frozen=True, eq=False)
class Chains:
    """What NUTS found.

    Attributes
    ----------
    latent : array, shape (chains, s, k)
        Draws of the chosen entries of the latent vector.
    hyperparameters : dict from site to array, shape (chains * s, ...)
        On their supports; empty where all were fixed.
    divergences : int
    """

    latent: Floats
    hyperparameters: dict[str, Floats]
    divergences: int


def sample(
    posterior: Posterior,
    chosen: NDArray[np.intp],
    belief: GaussianBelief,
    free: bool,
    key: Any,
    settings: Settings,
) -> Chains:
    """Sample the exact posterior; inside ``enable_x64``.

    Parameters
    ----------
    posterior : Posterior
        Whose program, answers and hyperparameters are meant.
    chosen : array of int, shape (k,)
        Entries of the latent vector that the answers look at; the others follow from the prior and are left out.
    belief : GaussianBelief
        About the chosen entries, to whiten by.
    free : bool
        Whether to sample the hyperparameters that the fit did not fix, too.
    key : JAX key
    settings : Settings
    """
    from numpyro.infer import MCMC, NUTS

    target = Target.of(posterior, dict(posterior.hyperparameters))
    call, layout, arrays, fixed = target.call, target.layout, target.arrays, target.fixed
    theta: Values = {}
    if free:
        assert posterior.origin is not None  # or there were no target
        origin = posterior.origin
        known = dict(origin.engine.get("fixed", {}))
        prepared = prepare(origin.program, origin.args, origin.kwargs, known, padding=False)
        fixed, layout = prepared.fixed, prepared.discovery.layout
        theta = unconstrained_values(call, arrays, posterior.hyperparameters, prepared.discovery.medians)
    prior = target.covariance[np.ix_(chosen, chosen)]
    location, lower = jnp.asarray(target.location[chosen]), cholesky(jnp.asarray(prior)).lower
    centre, spread = (
        jnp.asarray(part) for part in _whitening(target.location[chosen], prior, np.asarray(lower), belief)
    )

    def factor(reading: Any) -> tuple[Array, Array]:
        return reading.location[chosen], cholesky(reading.covariance.congruence(lambda u: u[chosen])).lower

    def latent(state: Values) -> tuple[Array, Array, Values, Array]:
        """u, its whitened form w = c + R z, all hyperparameters, and the log prior of those that are free."""
        white = centre + spread @ state[_LATENT]
        if not theta:
            return location + lower @ white, white, fixed, jnp.zeros(())
        reading = read(call, arrays, layout, {name: state[name] for name in theta}, fixed)
        moved, root = factor(reading)
        return moved + root @ white, white, {**fixed, **reading.hyperparameters}, reading.log_prior

    def potential(state: Values) -> Array:
        vector, white, values, log_prior = latent(state)
        whole = jnp.zeros(layout.num_latents).at[chosen].set(vector)
        log_density = log_likelihood(call, layout, arrays, values, whole) - 0.5 * jnp.vdot(white, white)
        return -log_density - log_prior

    starts = {
        name: jnp.broadcast_to(value, (settings.chains, *jnp.shape(value)))
        + 0.1 * jax.random.normal(jax.random.fold_in(key, at), (settings.chains, *jnp.shape(value)))
        for at, (name, value) in enumerate({_LATENT: jnp.zeros(len(centre)), **theta}.items(), start=1)
    }
    sampler: Any = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=settings.warmup,
        num_samples=-(-settings.draws // settings.chains),
        num_chains=settings.chains,
        chain_method="vectorized",
        progress_bar=settings.progress_bar and sys.stderr.isatty(),
    )
    if settings.chains == 1:
        starts = {name: value[0] for name, value in starts.items()}
    sampler.run(jax.random.fold_in(key, 0), init_params=starts, extra_fields=("diverging",))
    states = sampler.get_samples()
    vectors = np.asarray(jax.jit(lambda s: jax.lax.map(lambda one: latent(one)[0], s))(states))
    free_draws = {name: states[name] for name in theta}
    values = constrained(call, layout, arrays, fixed, free_draws) if theta else {}
    return Chains(
        vectors.reshape(settings.chains, -1, len(chosen)),
        {name: np.asarray(value) for name, value in values.items()},
        int(np.sum(np.asarray(sampler.get_extra_fields()["diverging"]))),
    )


def _whitening(
    location: Floats, prior: Floats, lower: Floats, belief: GaussianBelief
) -> tuple[Floats, Floats]:
    """C and R, so that L (c + R z) has the belief's moments about the prior mean where z is N(0, I).

    In the directions D of the prior, then turned to those of L by the orthogonal Q = L⁻¹D; where the prior has no variance, z is as
    the prior has it.
    """
    root = directions(prior)
    mean, covariance = whitened(root, belief.location - location, belief.scale)
    turn = solve_triangular(lower, root, lower=True)
    size = len(prior)
    spread = np.eye(size) + turn @ (covariance - np.eye(len(mean))) @ turn.T
    return turn @ mean, np.asarray(cholesky(jnp.asarray(0.5 * (spread + spread.T))).lower)


class Subject(NamedTuple):
    """A posterior, the entries of its latent vector that are compared, and what to say of the choice."""

    posterior: Posterior
    chosen: NDArray[np.intp]
    note: str


def subject(posterior: Posterior, most_entities: int, refit: bool, progress_bar: bool) -> Subject:
    """The posterior, or one of the answers among some well answered entities.

    Their prior is what the whole prior says of them: no other entity's answers, relations or attributes get lost from it.

    Parameters
    ----------
    posterior : Posterior
    most_entities : int
    refit : bool
        Whether hyperparameters are fitted again where a part is taken, and not kept.
    progress_bar : bool
    """
    everything = np.arange(posterior.belief.size)
    if not isinstance(posterior, UtilityPosterior) or len(everything) <= most_entities:
        return Subject(posterior, everything, "")
    if isinstance(posterior.belief, DrawsBelief):
        raise DataError(
            f"the posterior is made of draws of {len(everything)} entities, and there is no engine to fit a part of them again; "
            f"compare all with most_entities={len(everything)}"
        )
    data, origin = posterior.data, posterior.origin
    assert origin is not None  # from an engine
    chosen = well_answered(data, most_entities)
    inside = np.isin(data.winner, chosen) & np.isin(data.loser, chosen)
    smaller = data.select_comparisons(inside)
    changes: dict[str, Any] = {}
    if not refit:
        changes["fixed"] = posterior.hyperparameters
    part = origin.with_argument(data, smaller)
    again = engine_again(part, **changes).run_from(
        None, posterior.key, *part.args, progress_bar=progress_bar, **part.kwargs
    )
    how = "hyperparameters fitted again" if refit else "the same hyperparameters"
    note = (
        f"Compared on {len(chosen)} of {len(everything)} entities, which have many answers among themselves, by {smaller.num_answers} of "
        f"{data.num_answers} answers and with {how}."
    )
    return Subject(again, chosen, note)


def well_answered(data: PreferenceData, number: int) -> NDArray[np.intp]:
    """Entities with many answers among themselves: the most answered one, then always the one with the most answers about those before."""
    size = data.num_entities
    ends = (np.concatenate([data.winner, data.loser]), np.concatenate([data.loser, data.winner]))
    counts = sparse.csr_array((np.tile(data.count, 2), ends), shape=(size, size))
    total = np.asarray(counts.sum(axis=1), dtype=np.float64)
    shared, chosen = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(min(number, size)):
        # Of equally many shared answers the entity with more answers in all.
        order = np.where(chosen, -1.0, shared + total / (1 + total.max(initial=0.0)))
        best = int(np.argmax(order))
        chosen[best] = True
        row = slice(counts.indptr[best], counts.indptr[best + 1])
        shared[counts.indices[row]] += counts.data[row]
    return np.flatnonzero(chosen)


def reweighted(
    posterior: Posterior, draws: Floats, weights: Floats, groups: NDArray[np.intp]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means and sds of the exact posterior, as `moments` has them, and their errors.

    What is known of the posterior without draws is changed by what the weights change in its draws, in which most of the noise of the draws
    cancels: the mean by a difference, the sd by a factor.

    Parameters
    ----------
    posterior : Posterior
    draws : array, shape (s, n)
        Of the posterior.
    weights : array, shape (s,)
        They add up to 1.
    groups : array of int, shape (s,)
        From 0 on. Draws of different groups know nothing of one another. The errors are those of the jackknife that leaves out each group,
        for a product of weight and draw varies more than either does.
    """
    # Weighted draws are at no hyperparameters of their own: a classifier's features are taken at the averages.
    held = replace(posterior, hyperparameter_draws={})
    reported = moments(posterior, posterior.belief)
    equal = np.full(len(draws), 1 / len(draws))
    both = [_Sums(draws, weights), _Sums(draws, equal)]

    def change(left_out: NDArray[np.bool_] | None) -> Floats:
        """Of means, and of the logarithms of sds; shape (2, rows)."""
        after, before = (moments(held, sums.belief(left_out)) for sums in both)
        change_sd = np.log(
            after["sd"].where(after["sd"] > 0, 1.0) / before["sd"].where(before["sd"] > 0, 1.0)
        )
        return np.stack([after["mean"] - before["mean"], change_sd])

    number = int(groups.max()) + 1
    without = np.stack([change(groups == group) for group in range(number)])
    mean, log_sd = change(None)
    mean_error, log_sd_error = np.sqrt((number - 1) * without.var(axis=0))
    mean_error = np.hypot(mean_error, _own_error(posterior, held))
    exact = pd.DataFrame({"mean": reported["mean"] + mean, "sd": reported["sd"] * np.exp(log_sd)})
    return exact, pd.DataFrame({"mean": mean_error, "sd": exact["sd"] * log_sd_error}, index=exact.index)


class _Sums:
    """Weighted draws, from which groups can be left out."""

    def __init__(self, draws: Floats, weights: Floats) -> None:
        self.centre, self.weights = weights @ draws, weights
        self.centred = draws - self.centre
        self.squares = self._squares(slice(None))

    def _squares(self, rows: NDArray[np.bool_] | slice) -> Floats:
        centred = self.centred[rows]
        return np.asarray((self.weights[rows, None] * centred).T @ centred)

    def belief(self, left_out: NDArray[np.bool_] | None) -> GaussianBelief:
        """The moments, of all draws or without some."""
        if left_out is None:
            return GaussianBelief(self.centre, self.squares)
        weights = self.weights[left_out]
        total = 1 - weights.sum()
        shift = -(weights @ self.centred[left_out]) / total
        squares = (self.squares - self._squares(left_out)) / total
        return GaussianBelief(self.centre + shift, squares - np.outer(shift, shift))


def _own_error(posterior: Posterior, held: Posterior) -> Floats | float:
    """Of a mixture whose components are a sample: how well its mean is known.

    Weighted components are the points of an integral, whose weights say themselves whether they can be relied on.
    """
    belief = posterior.belief
    if not isinstance(belief, MixtureBelief) or np.ptp(belief.weights):
        return 0.0
    mean, between = belief.mean(), np.cov(belief.locations, rowvar=False, bias=True)
    spread, nothing = (moments(held, GaussianBelief(mean, scale))["sd"] for scale in (between, 0 * between))
    number = posterior.effective_draws or len(belief.locations)
    return np.asarray(np.sqrt(np.maximum(spread**2 - nothing**2, 0.0) / number))


_FEWEST = 100  # draws from which a tail can be fitted
_COMPONENTS = 25  # of a mixture that are looked at
_GROUPS = 50  # of draws, by which errors are found
_EQUAL = 1e-3  # sd of log weights that are equal but for rounding
# Twice as many draws are taken, and twice as many again, until the weights can be relied on (few draws may see the foot of a tail that
# is light further out) and the verdict is decided. Not where that could not help, nor where it would take more than so many numbers (160 MB).
_ROUNDS = (1, 1, 2, 4, 8)
_WIDER = (1.0, 2.5)  # a Gaussian that is too narrow is no proposal, a wider one is, in a few dimensions
_MUCH_WIDER = 1.2
_ALIKE, _LARGEST = (
    0.9,
    0.02,
)  # effective share of draws whose weights hardly differ, and the largest share of one of them
_ENOUGH = 1000  # effective draws to be resampled
_CERTIFY_NUMBERS = 20_000_000


class Proposal(NamedTuple):
    """A Gaussian to draw from, for a target at values of all hyperparameters.

    ``log_scale`` is taken off the log weights: of a mixture the engine's log evidence there, by which its hyperparameters were weighted.
    """

    target: Target
    belief: GaussianBelief
    log_scale: float
    values: dict[str, Any]


class Weighted(NamedTuple):
    """Draws with the logarithms of their weights, whose mean estimates the evidence."""

    draws: Floats
    log_weights: Floats


def certify(
    posterior: Posterior | RelationPosterior, num_samples: int = 4000, key: Any = None
) -> Certificate:
    """Whether a posterior is the exact one, as far as importance weights can tell.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        From EP or Laplace: at its hyperparameters, whose own uncertainty is no part of the question. A mixture over hyperparameters: as
        a proposal for hyperparameters and latent vector together, by 25 of its components. From samples: whether the chains agree.
        Of `Exact`: it is exact.
    num_samples : int
        Draws to be weighted, at least 100; up to 16 times as many, until the verdict is decided. They come in pairs on either side of the mean.
    key : JAX key or int, optional
        The posterior's own by default.

    Returns
    -------
    Certificate

    Raises
    ------
    DataError
        If there are too few draws.
    UnsupportedProgramError
        If the posterior does not know its program.

    Notes
    -----
    Weights of n-dimensional draws vary the more the larger n is, even where every margin is right: with hundreds of entities they may
    fail although EP is right. `check` compares with NUTS then.
    """
    if num_samples < _FEWEST:
        raise DataError(f"num_samples is {num_samples}; weights of fewer than {_FEWEST} draws say nothing")
    if isinstance(posterior, RelationPosterior):
        return exact_algebra(posterior)
    if posterior.empty:
        return unusable(posterior)
    posterior = answered(posterior)
    belief = posterior.belief
    if isinstance(belief, DrawsBelief):
        return of_draws(belief, posterior.chains)
    if isinstance(posterior, UtilityPosterior) and not posterior.data.num_answers:
        return prior_alone()
    rng = generator(posterior.key if key is None else key)
    number = 0
    for drawn in _drawn(posterior, num_samples, rng):
        found, number = drawn.smoothed, len(drawn.log_weights)
        if np.all(np.isfinite(drawn.log_weights)) and np.std(drawn.log_weights) < _EQUAL:
            return same_weights(number, float(np.mean(drawn.log_weights)))
        table = None
        if drawn.reliable:
            exact, errors = reweighted(posterior, drawn.draws, np.exp(found.log_weights), drawn.groups)
            table = comparison(moments(posterior, belief), exact, errors)
            if not is_open(table):
                break
    return of_weights(
        posterior,
        float(found.k_hat),
        float(found.ess),
        number,
        table,
        drawn.log_evidence if drawn.reliable else np.nan,
    )


def reweighted_posterior(posterior: Posterior, num_samples: int = 4000, key: Any = None) -> Posterior:
    """See `Posterior.reweighted`."""
    if num_samples < _FEWEST:
        raise DataError(f"num_samples is {num_samples}; weights of fewer than {_FEWEST} draws say nothing")
    posterior._warn_if_not_converged()
    posterior = answered(posterior)
    if isinstance(posterior.belief, DrawsBelief):
        return posterior
    rng = generator(posterior.key if key is None else key)
    for wider in _WIDER:
        for drawn in _drawn(posterior, num_samples, rng, wider):
            if drawn.reliable and float(drawn.smoothed.ess) >= min(num_samples, _ENOUGH):
                break
        if drawn.reliable and (wider > 1 or not _too_narrow(posterior, drawn)):
            break
    k_hat, ess, number = float(drawn.smoothed.k_hat), float(drawn.smoothed.ess), len(drawn.log_weights)
    if not drawn.reliable:
        raise InferenceError(
            f"the weights of {number} draws cannot be relied on (k-hat {k_hat:.2f}, {ess:.0f} effective draws), so there are no reweighted "
            "ones; raise num_samples, or run NUTS on the same program and from_samples",
            drawn.smoothed,
        )
    # Systematic resampling: a draw of weight w comes w·s times, but for one more or less.
    total = np.cumsum(np.exp(drawn.smoothed.log_weights))
    places = (np.arange(num_samples) + rng.random()) / num_samples * total[-1]
    kept = rng.permutation(np.minimum(np.searchsorted(total, places), number - 1))
    rows = drawn.draws[kept]
    values = [drawn.values[at] for at in drawn.proposal[kept]]
    samples = {name: np.stack([np.asarray(value[name]) for value in values]) for name in drawn.values[0]}
    origin = posterior.origin
    assert origin is not None  # or there were no weights
    samples |= {site: rows[:, its] for site, its in posterior.slices.items()}
    found = from_samples(samples, origin.program, *origin.args, rng_key=posterior.key, **origin.kwargs)
    info = {**found.info, "engine": f"{posterior.engine}, reweighted", "k_hat": k_hat, "ess": ess}
    log_evidence = drawn.log_evidence if np.isfinite(drawn.log_evidence) else None
    return replace(found, info=info, log_evidence=log_evidence)


def _too_narrow(posterior: Posterior, drawn: "_Drawn") -> bool:
    """Whether weights say that the exact posterior is much wider than the draws, which then do not reach its tails."""
    exact, _ = reweighted(posterior, drawn.draws, np.exp(drawn.smoothed.log_weights), drawn.groups)
    return bool((exact["sd"] > _MUCH_WIDER * moments(posterior, posterior.belief)["sd"]).any())


class _Drawn(NamedTuple):
    """Draws with smoothed weights; ``proposal`` says of which of the proposals, at ``values`` of the hyperparameters, each is."""

    draws: Floats
    log_weights: Floats
    smoothed: Smoothed
    groups: NDArray[np.intp]
    proposal: NDArray[np.intp]
    values: list[dict[str, Any]]

    @property
    def reliable(self) -> bool:
        """Whether the weights can be relied on: by the shape of their tail, or because they hardly differ.

        Of weights nearly all of which are equal the few others look like a heavy tail to k-hat, however light it is.
        """
        found, number = self.smoothed, len(self.log_weights)
        alike = found.ess >= _ALIKE * number and np.max(found.log_weights) <= np.log(_LARGEST)
        return bool((found.k_hat <= threshold(number) or alike) and found.ess >= LEAST)

    @property
    def log_evidence(self) -> float:
        """Of the exact model at the hyperparameters; NaN of several proposals."""
        if len(self.values) > 1:
            return np.nan
        highest = self.log_weights.max()
        return float(highest + np.log(np.mean(np.exp(self.log_weights - highest))))


def _drawn(
    posterior: Posterior, num_samples: int, rng: np.random.Generator, wider: float = 1.0
) -> Iterator[_Drawn]:
    """Twice as many draws each time, until 16 times ``num_samples`` or as many as there is memory for."""
    most = _CERTIFY_NUMBERS // max(posterior.belief.size, 1)
    parts: list[Weighted] = []
    with jax.enable_x64(True):
        proposals = _proposals(posterior)
        each = 2 * -(-num_samples // (2 * len(proposals)))  # pairs
    for rounds in _ROUNDS:
        with jax.enable_x64(True):
            parts += [weighted(proposal, each, rng, wider) for _ in range(rounds) for proposal in proposals]
        log_weights = np.concatenate([part.log_weights for part in parts])
        repeats = len(parts) // len(proposals)
        found = _Drawn(
            np.concatenate([part.draws for part in parts]),
            log_weights,
            smoothed(log_weights),
            _groups(len(proposals), each, repeats),
            np.tile(np.repeat(np.arange(len(proposals)), each), repeats),
            [proposal.values for proposal in proposals],
        )
        yield found
        number = len(log_weights)
        hopeless = float(found.smoothed.ess) / number * sum(_ROUNDS) * num_samples < LEAST
        if (hopeless and not found.reliable) or 2 * number > most:
            return


def weighted(proposal: Proposal, number: int, rng: np.random.Generator, wider: float = 1.0) -> Weighted:
    """Antithetic draws of a Gaussian, an even number of them, and their weights for the target; inside ``enable_x64``.

    With sds that are ``wider`` times those of the proposal.

    In coordinates w in which the prior is N(0, I): directions in which it does not vary have no part in either density.
    """
    target = proposal.target
    mean, covariance = target.whitened(proposal.belief)
    lower = wider * np.asarray(cholesky(jax.numpy.asarray(covariance)).lower)
    half = rng.standard_normal((number // 2, len(mean)))
    noise = np.concatenate([half, -half])
    white = mean + noise @ lower.T
    draws = target.location + white @ target.root.T
    log_prior = -0.5 * np.sum(np.square(white), axis=1)
    log_proposal = -0.5 * np.sum(np.square(noise), axis=1) - np.sum(np.log(np.diagonal(lower)))
    return Weighted(draws, target.log_likelihood(draws) + log_prior - log_proposal - proposal.log_scale)


def _proposals(posterior: Posterior) -> list[Proposal]:
    """The Gaussian, or some components of a mixture.

    The hyperparameters θ of a mixture have the distribution p(θ) Z_q(θ), with the engine's evidence, and u that of q(u | θ): for the joint posterior the
    weight of both together is p(answers | u) p(u | θ) / (q(u | θ) Z_q(θ)).
    """
    belief, origin = posterior.belief, posterior.origin
    if not isinstance(belief, MixtureBelief):
        assert isinstance(belief, GaussianBelief)  # draws have been dealt with
        values = dict(posterior.hyperparameters)
        return [Proposal(Target.of(posterior, values), belief, 0.0, values)]
    total = min(len(belief.locations), _COMPONENTS)
    # As many places in the cumulative weights, so that each stands for the same share; a heavy component may have several.
    places = (np.arange(total) + 0.5) / total * belief.weights.sum()
    chosen, times = np.unique(
        np.minimum(np.searchsorted(np.cumsum(belief.weights), places), len(belief.weights) - 1),
        return_counts=True,
    )
    found = []
    for at, number in zip(chosen, times, strict=True):
        moving = {name: draws[at] for name, draws in posterior.hyperparameter_draws.items()}
        values = {**posterior.hyperparameters, **moving}
        target = Target.of(posterior, values)
        assert origin is not None  # or there were no target
        again = engine_again(origin, fixed=values).run_from(
            None, 0, *origin.args, progress_bar=False, **origin.kwargs
        )
        assert again.log_evidence is not None  # EP and Laplace compute it
        log_scale = again.log_evidence - float(np.log(number))
        found.append(Proposal(target, belief.components[at], log_scale, values))
    return found


def _groups(proposals: int, each: int, rounds: int) -> NDArray[np.intp]:
    """Which draws may know of one another: of a mixture those of one component, of a Gaussian the pairs."""
    if proposals > 1:
        return np.tile(np.repeat(np.arange(proposals), each), rounds)
    return np.tile(np.arange(each // 2) % _GROUPS, 2 * rounds)
