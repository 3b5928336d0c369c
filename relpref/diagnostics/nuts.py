"""A posterior against NUTS on the same answers."""

import sys
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

from relpref.compiled import float64
from relpref.data import PreferenceData
from relpref.data.arrays import counted
from relpref.diagnostics.certificate import called, comparison, off
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.call import Values
from relpref.infer.large.problem import answered
from relpref.infer.program import Program
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import by_chain, convergence
from relpref.infer.reweighting import Target, directions, log_likelihood, whitened
from relpref.linalg import cholesky
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Belief, DrawsBelief, Floats, GaussianBelief, as_key

_AGREE, _ENOUGH = 1.02, 200  # largest R-hat and fewest effective draws with which NUTS may judge
_PROBABILITY = 0.05  # by which a probability may be off
_LATENT = "latent vector, whitened"  # no site of a program is called that


@dataclass(frozen=True, eq=False)
class Check:
    """What differs between a posterior and NUTS.

    Attributes
    ----------
    verdict : {"agrees", "differs", "undecided"}
        "undecided" if NUTS itself did not converge.
    sentence : str
    table : DataFrame
        As `Certificate.table`, with NUTS for the exact posterior; of some items alone, relative to
        their average. Empty where nothing was compared.
    probability_shift : float
        Largest difference of a probability: that the first of an asked pair is the better one; of a
        class, for classifiers. NaN for other programs.
    hyperparameters : DataFrame or None
        Where NUTS sampled them: by name ``value`` (of the posterior), ``nuts_mean`` and
        ``nuts_sd``.
    r_hat, ess, divergences : float, float, int
        Of NUTS: largest R-hat, smallest effective number of draws, divergent steps.
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
        Not from the exact engine.
    max_items : int
        Of more items this many are compared, those with many answers among themselves, by these
        answers alone.
    hyperparameters : bool
        False holds them at the posterior's values, which tests the engine. True samples those that
        the fit did not fix, which also shows what it means to have maximized them, and takes a
        Cholesky factor for every step. A mixture over hyperparameters, and samples of them, are
        compared with NUTS over all.
    draws : int
        Of all chains together.
    chains, warmup : int
        Chains, and steps to tune each by.
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
    """
    given = {"max_items": max_items, "draws": draws, "chains": chains, "warmup": warmup}
    for (name, number), least in zip(given.items(), (2, 100, 1, 10), strict=True):
        if number < least:
            raise DataError(f"{name} is {number}; it must be at least {least}")
    result = posterior.result
    if posterior.kind == "relation":
        return Check(
            "agrees" if result.ok else "undecided",
            "The posterior is the solution of linear equations, not an approximation, so there is "
            "nothing that NUTS could tell. " + result.value,
        )
    posterior = answered(posterior)
    if result.empty:
        raise InferenceError(
            f"there is no posterior to check: {result.name}: {result.value}", result
        )
    if not posterior.has_answers:
        return Check(
            "agrees",
            "There are no answers, so the posterior is the prior, and nothing was approximated.",
        )
    free = hyperparameters or bool(posterior.hyperparameter_draws)
    if free and posterior.origin is not None and not posterior.origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep, so that "
            "hyperparameters cannot be sampled; check "
            "before saving, or with the hyperparameters held"
        )
    rng_key = (
        jax.random.wrap_key_data(jnp.asarray(posterior.key)) if rng_key is None else as_key(rng_key)
    )
    posterior, chosen, note = _subject(posterior, max_items, free, progress_bar)
    belief = posterior.whole
    if len(chosen) < belief.size:
        belief = belief.subset(chosen)
    covariance = belief.covariance()
    if posterior.sampled:  # of few draws the covariance is singular
        weight = len(belief.weights) / (len(belief.weights) + belief.size)
        covariance = weight * covariance + (1 - weight) * np.diag(np.diagonal(covariance))
    near = GaussianBelief(belief.mean(), covariance)
    settings: dict[str, Any] = {"draws": draws, "chains": chains, "warmup": warmup}
    with float64():
        nuts = sample(posterior, chosen, near, free, rng_key, **settings, progress_bar=progress_bar)
    return _compared(posterior, chosen, belief, nuts, note)


class Chains(NamedTuple):
    """Draws of the chosen latent entries, shape (chains, s, k), and of hyperparameters, shape (chains * s, ...), by NUTS."""

    latent: Floats
    hyperparameters: dict[str, Floats]
    divergences: int


def sample(
    posterior: Posterior,
    chosen: NDArray[np.intp],
    belief: GaussianBelief,
    free: bool,
    key: Any,
    **settings: Any,
) -> Chains:
    """Sample chosen entries of the exact posterior, whitened by a belief about them; inside ``enable_x64``.

    The others follow from the prior. With ``free`` the hyperparameters that the fit did not fix are
    sampled, too; ``settings`` are those of `check`.
    """
    from numpyro.infer import MCMC, NUTS

    target, origin, chains = (
        Target.of(posterior, dict(posterior.hyperparameters)),
        posterior.origin,
        settings["chains"],
    )
    program, theta = target.program, dict[str, Any]()
    if free and origin is not None:
        program = Program.of(origin.program, origin.args, origin.kwargs, dict(origin.fixed))
        theta = program.unconstrained(posterior.hyperparameters)
    prior, location = target.covariance[np.ix_(chosen, chosen)], target.location[chosen]
    lower = cholesky(jnp.asarray(prior)).lower
    # L (c + R z) has the belief's moments about the prior mean where z is N(0, I): in the
    # directions D of the prior, then turned to those of L by the orthogonal Q = L⁻¹D; where the
    # prior has no variance, z is as the prior has it.
    root = directions(prior)
    mean, covariance = whitened(root, belief.location - location, belief.scale)
    turn = solve_triangular(np.asarray(lower), root, lower=True)
    spread = np.eye(len(prior)) + turn @ (covariance - np.eye(len(mean))) @ turn.T
    centre, spread = (
        jnp.asarray(turn @ mean),
        cholesky(jnp.asarray(0.5 * (spread + spread.T))).lower,
    )

    effects = dict(program.layout.integrated)  # sampled, too, in units of their sds

    def latent(state: Values) -> tuple[Array, Array, Values, Any]:
        """u, its whitened form w = c + R z, all that is held or drawn besides, and the log prior of free hyperparameters."""
        white = centre + spread @ state[_LATENT]
        reading = program.read({name: state[name] for name in theta}) if theta or effects else None
        values = {} if reading is None else dict(reading.hyperparameters)
        for name, sd in zip(
            effects, () if reading is None else reading.noise[-len(effects) :], strict=False
        ):
            values[name] = sd[0] * state[name]
        if not theta or reading is None:
            return location + lower @ white, white, values, 0.0
        own = cholesky(reading.covariance.congruence(lambda u: u[chosen])).lower
        return reading.location[chosen] + own @ white, white, values, reading.log_prior

    def potential(state: Values) -> Array:
        vector, white, values, log_prior = latent(state)
        whole = jnp.zeros(program.layout.num_latents).at[chosen].set(vector)
        squares = sum(jnp.vdot(part, part) for part in (white, *(state[name] for name in effects)))
        return 0.5 * squares - log_likelihood(program.at(values), whole) - log_prior

    begin = {_LATENT: jnp.zeros(len(centre)), **theta} | {
        n: jnp.zeros(size) for n, size in effects.items()
    }
    starts = {
        name: jnp.broadcast_to(value, (chains, *jnp.shape(value)))
        + 0.1 * jax.random.normal(jax.random.fold_in(key, at), (chains, *jnp.shape(value)))
        for at, (name, value) in enumerate(begin.items(), start=1)
    }
    sampler: Any = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=settings["warmup"],
        num_samples=-(-settings["draws"] // chains),
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=settings["progress_bar"] and sys.stderr.isatty(),
    )
    if chains == 1:
        starts = {name: value[0] for name, value in starts.items()}
    sampler.run(jax.random.fold_in(key, 0), init_params=starts, extra_fields=("diverging",))
    states = sampler.get_samples()
    vectors = jax.jit(lambda s: jax.lax.map(lambda one: latent(one)[0], s))(states)
    values = program.constrained({name: states[name] for name in theta}) if theta else {}
    return Chains(
        np.asarray(vectors).reshape(chains, -1, len(chosen)),
        {name: np.asarray(value) for name, value in values.items()},
        int(np.sum(sampler.get_extra_fields()["diverging"])),
    )


def _subject(
    posterior: Posterior, max_items: int, refit: bool, progress_bar: bool
) -> tuple[Posterior, NDArray[np.intp], str]:
    """The posterior, the entries of its latent vector that are compared, and what to say of the choice.

    Of many items it is the posterior of the answers among some well answered ones. Their prior is
    what the whole prior says of them: no other item's answers, relations or attributes get lost
    from it.
    """
    size = posterior.belief.size
    if posterior.kind != "utilities" or size <= max_items:
        return posterior, np.arange(posterior.whole.size), ""
    if posterior.sampled:
        raise DataError(
            f"the posterior is made of draws of {size} items, and there is no engine to fit a part "
            "of them again; "
            f"compare all with max_items={size}"
        )
    data, origin = posterior.datasets()["data"], posterior.origin
    assert origin is not None  # from an engine
    chosen = well_answered(data, max_items)
    among = np.isin(data.winner, chosen) & np.isin(data.loser, chosen)
    smaller = data.select_comparisons(data.comparisons.whole_lists(among))
    changes = {} if refit else {"fixed": posterior.hyperparameters}
    part = origin.with_argument(data, smaller)
    again = part.run(None, posterior.key, progress_bar=progress_bar, **changes)
    how = "hyperparameters fitted again" if refit else "the same hyperparameters"
    note = (
        f"Compared on {len(chosen)} of {size} items, which have many answers among themselves, by "
        f"{smaller.num_answers} of "
        f"{data.num_answers} answers and with {how}."
    )
    effects = posterior.whole.size - size  # of covariates, before the utilities
    return again, np.concatenate([np.arange(effects), effects + chosen]), note


def well_answered(data: PreferenceData, number: int) -> NDArray[np.intp]:
    """Items with many answers among themselves: the most answered one, then always the one with the most answers about those before."""
    size = data.num_items
    ends = (np.concatenate([data.winner, data.loser]), np.concatenate([data.loser, data.winner]))
    counts = sparse.csr_array((np.tile(data.count, 2), ends), shape=(size, size))
    total = np.asarray(counts.sum(axis=1), dtype=np.float64)
    shared, chosen = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(min(number, size)):
        # Of equally many shared answers the item with more answers in all.
        order = np.where(chosen, -1.0, shared + total / (1 + total.max(initial=0.0)))
        best = int(np.argmax(order))
        chosen[best] = True
        row = slice(counts.indptr[best], counts.indptr[best + 1])
        shared[counts.indices[row]] += counts.data[row]
    return np.flatnonzero(chosen)


def _compared(
    posterior: Posterior, chosen: NDArray[np.intp], belief: Belief, nuts: Chains, note: str
) -> Check:
    utilities, effects = posterior.kind == "utilities", posterior.whole.size - posterior.belief.size
    latent, items = nuts.latent[..., effects:], chosen[effects:] - effects
    if utilities:  # only their differences are reported
        latent = latent - latent.mean(axis=-1, keepdims=True)
        latent = np.concatenate([latent, nuts.latent[..., :effects]], axis=-1)
    r_hat, ess = convergence(latent)
    # Chains of NUTS may lean from one side to the other: their means are then known better than
    # their spread.
    ess = min(ess, convergence(np.square(latent - latent.mean(axis=(0, 1))))[1])
    exact = DrawsBelief(nuts.latent.reshape(-1, nuts.latent.shape[-1]))
    sampled = replace(posterior, belief=exact, hyperparameter_draws=nuts.hyperparameters)
    reported, true = posterior.reported(belief, items), sampled.reported(exact, items)
    own = np.inf  # effective number of draws that the posterior itself consists of
    if posterior.sampled:
        own = convergence(by_chain(belief.locations, posterior.chains))[1]
    elif posterior.hyperparameter_draws:
        own = posterior.effective_draws or float(1 / np.sum(np.square(belief.weights)))
    both = 1 / (1 / ess + 1 / own)
    error = pd.DataFrame({"mean": true["sd"] / np.sqrt(both), "sd": true["sd"] / np.sqrt(2 * both)})
    table, far, what = comparison(reported, true, error), np.nan, ""
    if utilities:
        data = posterior.datasets()["data"]
        place = np.full(data.num_items, -1)
        place[items] = np.arange(len(items))
        pairs = place[data.winner], place[data.loser]
        shifts, true_shifts = (
            each.after(effects).differences(*pairs).positive for each in (belief, exact)
        )
        far, what = (
            float(np.max(np.abs(shifts - true_shifts), initial=0.0)),
            "that one of an asked pair is the better",
        )
    elif posterior.kind == "classes":
        chances, what = (
            [each.predict_proba().to_numpy() for each in (posterior, sampled)],
            "of a class",
        )  # type: ignore[attr-defined]
        far = float(np.max(np.abs(chances[0] - chances[1])))
    engine = "The sample" if posterior.sampled else posterior.engine
    if posterior.hyperparameter_draws and not posterior.sampled:
        engine += ", averaged over hyperparameters,"
    facts = f"{counted(len(latent), 'chain')}, R-hat {r_hat:.3f}, {ess:.0f} effective draws"
    verdict: Literal["agrees", "differs", "undecided"] = "undecided"
    sentence = (
        f"NUTS did not converge ({facts}), so it cannot say anything about {engine}; ask "
        "for more draws."
    )
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
        label = called(worst.index[int(np.argmax(worst.to_numpy()))])
        sentence = (
            f"{engine} {word} NUTS{over}: off by up to {worst.max():.2f} posterior sd ({label}) in "
            f"the mean; sds are {ratios.min():.2f} to "
            f"{ratios.max():.2f} times those of NUTS"
        )
        sentence += (
            f", and probabilities {what} differ by up to {far:.3f} ({facts})."
            if what
            else f" ({facts})."
        )
        if parts:
            sentence += f" Off by more than a tenth: {' and '.join(parts)}."
        if nuts.divergences:
            sentence += (
                f" NUTS reported {nuts.divergences} divergent steps, so it may be off itself."
            )
    values = _hyperparameters(posterior, nuts) if nuts.hyperparameters else None
    sentence = f"{sentence} {note}".strip()
    return Check(verdict, sentence, table, far, values, r_hat, ess, nuts.divergences)


def _hyperparameters(posterior: Posterior, nuts: Chains) -> pd.DataFrame:
    rows = {}
    for name, draws in nuts.hyperparameters.items():
        values = np.broadcast_to(posterior.hyperparameters[name], draws.shape[1:])
        for index in np.ndindex(*values.shape):
            at, column = np.ravel_multi_index(index, values.shape), draws[:, *index]
            label = f"{name}[{at}]" if index else name
            rows[label] = {
                "value": values[index],
                "nuts_mean": column.mean(),
                "nuts_sd": column.std(ddof=1),
            }
    return pd.DataFrame.from_dict(rows, orient="index", dtype=float)
