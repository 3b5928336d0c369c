"""Comparison of a posterior with NUTS on the same answers."""

import sys
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from scipy import sparse
from scipy.linalg import solve_triangular

from relpref.compiled import float64
from relpref.data import PreferenceData
from relpref.data.arrays import counted
from relpref.diagnostics.certificate import comparison, off
from relpref.diagnostics.simulation import nuts_draws
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.call import Values
from relpref.infer.large.problem import answered
from relpref.infer.program import Program
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.reweighting import (
    Target,
    directions,
    is_sample,
    log_likelihood,
    whitened,
)
from relpref.infer.smoothing import by_chain, convergence
from relpref.linalg import cholesky
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import (
    Belief,
    DrawsBelief,
    Floats,
    GaussianBelief,
    Positions,
    as_key,
)
from relpref.posterior.summary import row_name

_AGREE, _ENOUGH = 1.02, 200  # R-hat and effective draws of NUTS that are required
_PROBABILITY = 0.05  # tolerance of probabilities
_LATENT = "latent vector, whitened"  # differs from the name of any site


@dataclass(frozen=True, eq=False)
class Check:
    """Differences between a posterior and NUTS.

    Attributes
    ----------
    verdict : {"agrees", "differs", "undecided"}
        "undecided" if NUTS itself did not converge.
    sentence : str
    table : DataFrame
        The columns of `Certificate.table`, with NUTS for the exact posterior. If only some items
        are compared, utilities are relative to their average. Empty if nothing was compared.
    probability_shift : float
        Largest difference of a probability: that the first of a compared pair is better, or of a
        class. NaN for other programs.
    hyperparameters : DataFrame or None
        ``value`` of the posterior, ``nuts_mean`` and ``nuts_sd`` by name; None unless sampled.
    r_hat, ess, divergences : float, float, int
        Largest R-hat, smallest effective number of draws and number of divergent steps of NUTS.
    """

    verdict: Literal["agrees", "differs", "undecided"]
    sentence: str
    table: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    probability_shift: float = np.nan
    hyperparameters: pd.DataFrame | None = field(default=None, repr=False)
    r_hat: float = np.nan
    ess: float = np.nan
    divergences: int = 0

    @property
    def ok(self) -> bool:
        """Whether the posterior agrees with NUTS."""
        return self.verdict == "agrees"


def check(
    posterior: Posterior | RelationPosterior,
    *,
    max_items: int = 150,
    hyperparameters: bool = False,
    draws: int = 2000,
    chains: int = 4,
    warmup: int = 300,
    rng_key: Any = None,
    progress_bar: bool = True,
) -> Check:
    """Compare a posterior with NUTS, whitened by it, on the same answers.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        The posterior, other than from the exact engine.
    max_items : int
        Largest number of items. Of more items those with many answers among themselves are
        compared, by these answers alone.
    hyperparameters : bool
        False holds them at the posterior's values, which tests the engine. True samples those that
        the fit did not fix, which also shows the effect of maximizing them, and takes a Cholesky
        factor for every step. Mixtures over hyperparameters and samples always have them sampled.
    draws : int
        Number of draws of all chains together.
    chains, warmup : int
        Number of chains, and of warmup steps of each.
    rng_key : JAX key or int, optional
        The posterior's own by default.
    progress_bar : bool
        Show progress if stderr is a terminal.

    Returns
    -------
    Check

    Raises
    ------
    DataError
        If a number is too small, or draws of too many items are to be compared.
    UnsupportedProgramError
        If the posterior does not know its program, or its priors where hyperparameters are sampled.
    InferenceError
        If there is no posterior, or a part of it cannot be fitted.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> check = relpref.diagnostics.check(posterior, draws=100, chains=2)
    >>> sentence = check.sentence
    """
    settings = {"draws": draws, "chains": chains, "warmup": warmup}
    numbers, least = {"max_items": max_items, **settings}, (2, 100, 1, 10)
    for (name, number), minimum in zip(numbers.items(), least, strict=True):
        if number < minimum:
            raise DataError(f"{name} is {number}; it must be at least {minimum}")
    result = posterior.result
    if posterior.kind == "relation":
        sentence = (
            "The posterior solves linear equations, so there is nothing that NUTS could tell. "
        )
        return Check("agrees" if result.ok else "undecided", sentence + result.value)
    posterior = answered(posterior)
    if result.empty:
        raise InferenceError(
            f"there is no posterior to check: {result.name}: {result.value}", result
        )
    if not posterior.has_answers:
        return Check(
            "agrees", "There are no answers, so the posterior is the prior, which is exact."
        )
    free = hyperparameters or bool(posterior.hyperparameter_draws)
    if free and posterior.origin is not None and not posterior.origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep, so that "
            "hyperparameters cannot be sampled; check before saving, or with hyperparameters held"
        )
    if rng_key is None:
        rng_key = jax.random.wrap_key_data(jnp.asarray(posterior.key))
    posterior, chosen, note = _subject(posterior, max_items, free, progress_bar)
    belief = posterior.full
    if len(chosen) < belief.size:
        belief = belief.subset(chosen)
    covariance = belief.covariance()
    if posterior.sampled:  # the covariance of few draws is singular
        weight = len(belief.weights) / (len(belief.weights) + belief.size)
        covariance = weight * covariance + (1 - weight) * np.diag(np.diagonal(covariance))
    near = GaussianBelief(belief.mean(), covariance)
    options = {**settings, "progress_bar": progress_bar}
    with float64():
        nuts = sample(posterior, chosen, near, free, as_key(rng_key), **options)
    return _compared(posterior, chosen, belief, nuts, note)


class Chains(NamedTuple):
    """Draws by NUTS of latent entries, (chains, s, k), and hyperparameters, (chains * s, ...)."""

    latent: Floats
    hyperparameters: dict[str, Floats]
    divergences: int


def sample(
    posterior: Posterior,
    chosen: Positions,
    belief: GaussianBelief,
    free: bool,
    key: Any,
    **settings: Any,
) -> Chains:
    """Sample chosen entries of the exact posterior, whitened by a belief; inside ``enable_x64``.

    With ``free`` the hyperparameters that the fit did not fix are sampled, too. ``settings`` are
    those of `check`.
    """
    from numpyro.infer import MCMC, NUTS

    target = Target.of(posterior, dict(posterior.hyperparameters))
    origin, chains = posterior.origin, settings["chains"]
    program, theta = target.program, dict[str, Any]()
    if free and origin is not None:
        program = Program.of(origin.program, origin.args, origin.kwargs, dict(origin.fixed))
        theta = program.unconstrained(posterior.hyperparameters)
    prior, location = target.covariance[np.ix_(chosen, chosen)], target.location[chosen]
    lower = cholesky(jnp.asarray(prior)).lower
    # Choose c and R so that L (c + R z) has the belief's moments about the prior mean for z ~
    # N(0, I). They are computed in the directions D of the prior and turned to those of L by the
    # orthogonal Q = L⁻¹D. Where the prior has no variance, z keeps its prior.
    root = directions(prior)
    mean, covariance = whitened(root, belief.location - location, belief.scale)
    turn = solve_triangular(np.asarray(lower), root, lower=True)
    spread = np.eye(len(prior)) + turn @ (covariance - np.eye(len(mean))) @ turn.T
    center = jnp.asarray(turn @ mean)
    factor = cholesky(jnp.asarray(0.5 * (spread + spread.T))).lower
    effects = dict(program.layout.integrated)  # sampled in units of their sds

    def latent(state: Values) -> tuple[Array, Array, Values, Any]:
        """Latent u, whitened w = c + R z, other values, and log prior of the hyperparameters."""
        white = center + factor @ state[_LATENT]
        vector = location + lower @ white
        if not (theta or effects):
            return vector, white, {}, 0.0
        reading = program.read({name: state[name] for name in theta})
        sds = reading.noise[len(reading.noise) - len(effects) :]
        values = {name: sd[0] * state[name] for name, sd in zip(effects, sds, strict=True)}
        values |= reading.hyperparameters
        if not theta:
            return vector, white, values, 0.0
        root = cholesky(reading.covariance.congruence(lambda u: u[chosen])).lower
        return reading.location[chosen] + root @ white, white, values, reading.log_prior

    def potential(state: Values) -> Array:
        vector, white, values, log_prior = latent(state)
        latents = jnp.zeros(program.layout.num_latents).at[chosen].set(vector)
        squares = sum(jnp.vdot(part, part) for part in (white, *(state[name] for name in effects)))
        return 0.5 * squares - log_likelihood(program.at(values), latents) - log_prior

    begin = {_LATENT: jnp.zeros(len(center)), **theta}
    begin |= {name: jnp.zeros(size) for name, size in effects.items()}
    starts = {
        name: jnp.broadcast_to(value, (chains, *jnp.shape(value)))
        + 0.1 * jax.random.normal(jax.random.fold_in(key, at), (chains, *jnp.shape(value)))
        for at, (name, value) in enumerate(begin.items(), start=1)
    }
    sampler = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=settings["warmup"],
        num_samples=-(-settings["draws"] // chains),
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=settings["progress_bar"] and sys.stderr.isatty(),
    )
    if chains == 1:
        starts = {name: value[0] for name, value in starts.items()}
    grouped, divergences = nuts_draws(sampler, jax.random.fold_in(key, 0), init_params=starts)
    states = {name: jnp.concatenate(value) for name, value in grouped.items()}
    vectors = jax.jit(lambda states: jax.lax.map(lambda state: latent(state)[0], states))(states)
    values = program.constrained({name: states[name] for name in theta}) if theta else {}
    return Chains(
        np.asarray(vectors).reshape(chains, -1, len(chosen)),
        {name: np.asarray(value) for name, value in values.items()},
        divergences,
    )


def _subject(
    posterior: Posterior, max_items: int, refit: bool, progress_bar: bool
) -> tuple[Posterior, Positions, str]:
    """Posterior and entries of its latent vector to compare, and a note on the choice.

    With many items it is the posterior of the answers among those with many answers. Their prior is
    the marginal of the full prior, so relations and attributes of other items still count.
    """
    size = posterior.belief.size
    if posterior.kind != "utilities" or size <= max_items:
        return posterior, np.arange(posterior.full.size), ""
    if posterior.sampled:
        raise DataError(
            f"the posterior is made of draws of {size} items, and no engine can fit a part of them "
            f"again; compare all with max_items={size}"
        )
    data, origin = posterior.data, posterior.origin
    assert origin is not None  # from an engine
    chosen = well_answered(data, max_items)
    among = data.comparisons.among(np.isin(np.arange(size), chosen))
    smaller = data.select_comparisons(among)
    changes = {} if refit else {"fixed": posterior.hyperparameters}
    part = origin.with_argument(data, smaller)
    again = part.run(None, posterior.key, progress_bar=progress_bar, **changes)
    how = "hyperparameters fitted again" if refit else "the same hyperparameters"
    note = (
        f"Compared on {len(chosen)} of {size} items, which have many answers among themselves, by "
        f"{smaller.num_answers} of {data.num_answers} answers and with {how}."
    )
    effects = posterior.full.size - size  # of covariates, before the utilities
    return again, np.concatenate([np.arange(effects), effects + chosen]), note


def well_answered(data: PreferenceData, number: int) -> Positions:
    """Items with many answers among themselves.

    The first is the one with most answers, each further one has the most answers with those before.
    """
    size = data.num_items
    ends = (np.concatenate([data.winner, data.loser]), np.concatenate([data.loser, data.winner]))
    counts = sparse.csr_array((np.tile(data.count, 2), ends), shape=(size, size))
    total = np.asarray(counts.sum(axis=1), dtype=np.float64)
    shared, chosen = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(min(number, size)):
        # Ties go to the item with more answers in all.
        order = np.where(chosen, -1.0, shared + total / (1 + total.max(initial=0.0)))
        best = int(np.argmax(order))
        chosen[best] = True
        row = slice(counts.indptr[best], counts.indptr[best + 1])
        shared[counts.indices[row]] += counts.data[row]
    return np.flatnonzero(chosen)


def _compared(
    posterior: Posterior, chosen: Positions, belief: Belief, nuts: Chains, note: str
) -> Check:
    """Compare the belief about the chosen entries with the draws of NUTS."""
    utilities, effects = posterior.kind == "utilities", posterior.full.size - posterior.belief.size
    latent, items = nuts.latent[..., effects:], chosen[effects:] - effects
    if utilities:  # only their differences are reported
        latent = latent - latent.mean(axis=-1, keepdims=True)
        latent = np.concatenate([latent, nuts.latent[..., :effects]], axis=-1)
    r_hat, ess = convergence(latent)
    # Chains may alternate between sides, so that means are more precise than variances.
    ess = min(ess, convergence(np.square(latent - latent.mean(axis=(0, 1))))[1])
    exact = DrawsBelief(nuts.latent.reshape(-1, nuts.latent.shape[-1]))
    sampled = replace(posterior, belief=exact, hyperparameter_draws=nuts.hyperparameters)
    reported, true = posterior.reported(belief, items), sampled.reported(exact, items)
    effective = np.inf  # draws of the posterior
    if posterior.sampled:
        effective = convergence(by_chain(belief.locations, posterior.chains))[1]
    elif is_sample(posterior):
        effective = posterior.effective_draws or len(belief.weights)
    both = 1 / (1 / ess + 1 / effective)
    error = pd.DataFrame({"mean": true["sd"] / np.sqrt(both), "sd": true["sd"] / np.sqrt(2 * both)})
    table, far, event = comparison(reported, true, error), np.nan, ""
    if utilities:
        data = posterior.data
        place = np.full(data.num_items, -1)
        place[items] = np.arange(len(items))
        pairs = effects + place[data.winner], effects + place[data.loser]
        event = "that one of an asked pair is the better"
        chances = [each.differences(*pairs).positive for each in (belief, exact)]
    elif posterior.kind == "classes":
        event = "of a class"
        classifiers: Any = posterior, sampled
        chances = [each.predict_proba().to_numpy() for each in classifiers]
    if event:
        far = float(np.max(np.abs(chances[0] - chances[1]), initial=0.0))
    engine = "The sample" if posterior.sampled else posterior.engine
    if posterior.hyperparameter_draws and not posterior.sampled:
        engine += ", averaged over hyperparameters,"
    facts = f"{counted(len(latent), 'chain')}, R-hat {r_hat:.3f}, {ess:.0f} effective draws"
    verdict: Literal["agrees", "differs", "undecided"] = "undecided"
    sentence = f"NUTS did not converge ({facts}), so {engine} cannot be judged; use more draws."
    if r_hat <= _AGREE and ess >= _ENOUGH:
        parts = [
            f"{number} of {len(table)} {name}"
            for name, number in off(table).sum().items()
            if number
        ]
        unequal = bool(parts) or far > _PROBABILITY + 3 * 0.5 / np.sqrt(ess)
        verdict, word = ("differs", "differs from") if unequal else ("agrees", "agrees with")
        over = " over hyperparameters, too" if nuts.hyperparameters else ""
        worst, ratios = table["shift"].abs(), table["sd_ratio"]
        label = row_name(worst.index[int(np.argmax(worst.to_numpy()))], ", ")
        also = f", and probabilities {event} differ by up to {far:.3f}" if event else ""
        sentence = (
            f"{engine} {word} NUTS{over}: off by up to {worst.max():.2f} posterior sd ({label}) in "
            f"the mean; sds are {ratios.min():.2f} to {ratios.max():.2f} times those of NUTS{also} "
            f"({facts})."
        )
        if parts:
            sentence += f" Off by more than a tenth: {' and '.join(parts)}."
        if nuts.divergences:
            sentence += f" NUTS had {nuts.divergences} divergent steps, so it may be off itself."
    values = _hyperparameters(posterior, nuts) if nuts.hyperparameters else None
    sentence = f"{sentence} {note}".strip()
    return Check(verdict, sentence, table, far, values, r_hat, ess, nuts.divergences)


def _hyperparameters(posterior: Posterior, nuts: Chains) -> pd.DataFrame:
    """Table of every entry of the hyperparameters, see `Check`."""
    rows = {}
    for name, draws in nuts.hyperparameters.items():
        values = np.broadcast_to(posterior.hyperparameters[name], draws.shape[1:]).ravel()
        for at, (value, entry) in enumerate(
            zip(values, draws.reshape(len(draws), -1).T, strict=True)
        ):
            label = f"{name}[{at}]" if draws.ndim > 1 else name
            rows[label] = {"value": value, "nuts_mean": entry.mean(), "nuts_sd": entry.std(ddof=1)}
    return pd.DataFrame.from_dict(rows, orient="index", dtype=float)
