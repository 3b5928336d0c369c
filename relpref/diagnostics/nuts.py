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

from relpref.data import PreferenceData
from relpref.diagnostics.certificate import called, comparison, off
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.large.answered import answered
from relpref.infer.program import Program, Values
from relpref.infer.psis import by_chain, convergence
from relpref.infer.relation_posterior import RelationPosterior
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
        "undecided" where NUTS itself did not converge, which says nothing of the posterior.
    sentence : str
        In plain words.
    table : DataFrame
        As `Certificate.table`, with NUTS for the exact posterior; of some entities alone, relative to their average. Empty where nothing
        was compared.
    probability_shift : float
        Largest difference of a probability: that the first of an asked pair is the better one; of a class, for classifiers. NaN for other
        programs.
    hyperparameters : DataFrame or None
        Where NUTS sampled them: by name ``value`` (of the posterior), ``nuts_mean`` and ``nuts_sd``.
    r_hat, ess : float
        Of NUTS: largest R-hat, smallest effective number of draws.
    divergences : int
        Of NUTS.
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
    most_entities: int = 150,
    hyperparameters: bool = False,
    draws: int = 2000,
    chains: int = 4,
    warmup: int = 300,
    key: Any = None,
    progress_bar: bool = True,
) -> Check:
    """Compare a posterior with NUTS, whitened by it, on the same answers.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        The exact engine has nothing to be compared.
    most_entities : int
        Of more entities, so many with many answers among themselves are compared, by those answers alone.
    hyperparameters : bool
        False holds them at the posterior's values, which tests the engine. True samples those that the fit did not fix, which also
        shows what it means to have maximized them, and takes a Cholesky factor for every step. A mixture over hyperparameters, and
        samples of them, are compared with NUTS over all.
    draws : int
        Of all chains together.
    chains, warmup : int
        Chains, and steps to tune each by.
    key : JAX key or int, optional
        The posterior's own by default.
    progress_bar : bool
        Show NUTS at work, where a person watches.

    Returns
    -------
    Check

    Raises
    ------
    DataError
        If a number is too small, or draws of too many entities are to be compared.
    UnsupportedProgramError
        If the posterior does not know its program, or its priors where hyperparameters are sampled.
    InferenceError
        If there is no posterior, or a part of it cannot be fitted.
    """
    given = {"most_entities": most_entities, "draws": draws, "chains": chains, "warmup": warmup}
    for (name, number), least in zip(given.items(), (2, 100, 1, 10), strict=True):
        if number < least:
            raise DataError(f"{name} is {number}; it must be at least {least}")
    result = posterior.result
    if posterior.kind == "relation":
        return Check(
            "agrees" if result.ok else "undecided",
            "The posterior is the solution of linear equations, not an approximation, so there is nothing that NUTS could tell. "
            + result.value,
        )
    posterior = answered(posterior)
    if result.empty:
        raise InferenceError(f"there is no posterior to check: {result.name}: {result.value}", result)
    if not posterior.has_answers:
        return Check(
            "agrees", "There are no answers, so the posterior is the prior, and nothing was approximated."
        )
    free = hyperparameters or bool(posterior.hyperparameter_draws)
    if free and posterior.origin is not None and not posterior.origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep, so that hyperparameters cannot be sampled; check "
            "before saving, or with the hyperparameters held"
        )
    key = jax.random.wrap_key_data(jnp.asarray(posterior.key)) if key is None else as_key(key)
    posterior, chosen, note = _subject(posterior, most_entities, free, progress_bar)
    belief = posterior.belief
    if len(chosen) < belief.size:
        belief = belief.project(np.eye(belief.size)[chosen])
    covariance = belief.covariance()
    if posterior.sampled:  # of few draws the covariance is singular
        weight = len(belief.weights) / (len(belief.weights) + belief.size)
        covariance = weight * covariance + (1 - weight) * np.diag(np.diagonal(covariance))
    near = GaussianBelief(belief.mean(), covariance)
    length: dict[str, Any] = {
        "draws": draws,
        "chains": chains,
        "warmup": warmup,
        "progress_bar": progress_bar,
    }
    with jax.enable_x64(True):
        nuts = sample(posterior, chosen, near, free, key, **length)
    return _compared(posterior, chosen, belief, nuts, note)


class Chains(NamedTuple):
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
    *,
    draws: int,
    chains: int,
    warmup: int,
    progress_bar: bool,
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
    draws, chains, warmup, progress_bar
        As of `check`.
    """
    from numpyro.infer import MCMC, NUTS

    target = Target.of(posterior, dict(posterior.hyperparameters))
    program = target.program
    theta: Values = {}
    if free:
        assert posterior.origin is not None  # or there were no target
        origin = posterior.origin
        known = dict(origin.fixed)
        program = Program.of(origin.program, origin.args, origin.kwargs, known)
        theta = program.unconstrained(posterior.hyperparameters)
    prior = target.covariance[np.ix_(chosen, chosen)]
    location, lower = jnp.asarray(target.location[chosen]), cholesky(jnp.asarray(prior)).lower
    centre, spread = (
        jnp.asarray(part) for part in _whitening(target.location[chosen], prior, np.asarray(lower), belief)
    )

    def latent(state: Values) -> tuple[Array, Array, Values, Array]:
        """u, its whitened form w = c + R z, all hyperparameters, and the log prior of those that are free."""
        white = centre + spread @ state[_LATENT]
        if not theta:
            return location + lower @ white, white, {}, jnp.zeros(())
        reading = program.read({name: state[name] for name in theta})
        root = cholesky(reading.covariance.congruence(lambda u: u[chosen])).lower
        values = reading.hyperparameters
        return reading.location[chosen] + root @ white, white, values, reading.log_prior

    def potential(state: Values) -> Array:
        vector, white, values, log_prior = latent(state)
        whole = jnp.zeros(program.layout.num_latents).at[chosen].set(vector)
        log_density = log_likelihood(program.at(values), whole) - 0.5 * jnp.vdot(white, white)
        return -log_density - log_prior

    starts = {
        name: jnp.broadcast_to(value, (chains, *jnp.shape(value)))
        + 0.1 * jax.random.normal(jax.random.fold_in(key, at), (chains, *jnp.shape(value)))
        for at, (name, value) in enumerate({_LATENT: jnp.zeros(len(centre)), **theta}.items(), start=1)
    }
    sampler: Any = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=warmup,
        num_samples=-(-draws // chains),
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=progress_bar and sys.stderr.isatty(),
    )
    if chains == 1:
        starts = {name: value[0] for name, value in starts.items()}
    sampler.run(jax.random.fold_in(key, 0), init_params=starts, extra_fields=("diverging",))
    states = sampler.get_samples()
    vectors = np.asarray(jax.jit(lambda s: jax.lax.map(lambda one: latent(one)[0], s))(states))
    moving = {name: states[name] for name in theta}
    values = program.constrained(moving) if theta else {}
    return Chains(
        vectors.reshape(chains, -1, len(chosen)),
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
    spread = np.eye(len(prior)) + turn @ (covariance - np.eye(len(mean))) @ turn.T
    return turn @ mean, np.asarray(cholesky(jnp.asarray(0.5 * (spread + spread.T))).lower)


def _subject(
    posterior: Posterior, most_entities: int, refit: bool, progress_bar: bool
) -> tuple[Posterior, NDArray[np.intp], str]:
    """The posterior, the entries of its latent vector that are compared, and what to say of the choice.

    Of many entities it is the posterior of the answers among some well answered ones. Their prior is what the whole prior says of
    them: no other entity's answers, relations or attributes get lost from it.
    """
    size = posterior.belief.size
    if posterior.kind != "utilities" or size <= most_entities:
        return posterior, np.arange(size), ""
    if posterior.sampled:
        raise DataError(
            f"the posterior is made of draws of {size} entities, and there is no engine to fit a part of them again; "
            f"compare all with most_entities={size}"
        )
    data, origin = posterior.datasets()["data"], posterior.origin
    assert origin is not None  # from an engine
    chosen = well_answered(data, most_entities)
    smaller = data.select_comparisons(np.isin(data.winner, chosen) & np.isin(data.loser, chosen))
    part = origin.with_argument(data, smaller)
    changes = {} if refit else {"fixed": posterior.hyperparameters}
    again = part.run(None, posterior.key, progress_bar=progress_bar, **changes)
    how = "hyperparameters fitted again" if refit else "the same hyperparameters"
    note = (
        f"Compared on {len(chosen)} of {size} entities, which have many answers among themselves, by {smaller.num_answers} of "
        f"{data.num_answers} answers and with {how}."
    )
    return again, chosen, note


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


def _compared(
    posterior: Posterior, chosen: NDArray[np.intp], belief: Belief, nuts: Chains, note: str
) -> Check:
    latent, utilities = nuts.latent, posterior.kind == "utilities"
    if utilities:  # only their differences are reported
        latent = latent - latent.mean(axis=-1, keepdims=True)
    r_hat, ess = convergence(latent)
    # Chains of NUTS may lean from one side to the other: their means are then known better than their spread.
    ess = min(ess, convergence(np.square(latent - latent.mean(axis=(0, 1))))[1])
    exact = DrawsBelief(nuts.latent.reshape(-1, nuts.latent.shape[-1]))
    sampled = replace(posterior, belief=exact, hyperparameter_draws=nuts.hyperparameters)
    reported, true = posterior.reported(belief, chosen), sampled.reported(exact, chosen)
    own = np.inf  # effective number of draws that the posterior itself consists of
    if posterior.sampled:
        own = convergence(by_chain(belief.as_mixture()[0], posterior.chains))[1]
    elif posterior.hyperparameter_draws:
        own = posterior.effective_draws or float(1 / np.sum(np.square(belief.weights)))
    both = 1 / (1 / ess + 1 / own)
    error = pd.DataFrame({"mean": true["sd"] / np.sqrt(both), "sd": true["sd"] / np.sqrt(2 * both)})
    table, far, what = comparison(reported, true, error), np.nan, ""
    if utilities:
        data = posterior.datasets()["data"]
        place = np.full(data.num_entities, -1)
        place[chosen] = np.arange(len(chosen))
        pairs = place[data.winner], place[data.loser]
        shifts, what = belief.differences(*pairs).positive, "that one of an asked pair is the better"
        far = float(np.max(np.abs(shifts - exact.differences(*pairs).positive), initial=0.0))
    elif posterior.kind == "classes":
        chances, what = [each.predict_proba().to_numpy() for each in (posterior, sampled)], "of a class"  # type: ignore[attr-defined]
        far = float(np.max(np.abs(chances[0] - chances[1])))
    numbers: dict[str, Any] = {
        "table": table,
        "probability_shift": far,
        "hyperparameters": _hyperparameters(posterior, nuts) if nuts.hyperparameters else None,
        "r_hat": r_hat,
        "ess": ess,
        "divergences": nuts.divergences,
    }
    engine = "The sample" if posterior.sampled else posterior.engine
    if posterior.hyperparameter_draws and not posterior.sampled:
        engine += ", averaged over hyperparameters,"
    count = len(latent)
    facts = f"{count} chain{'' if count == 1 else 's'}, R-hat {r_hat:.3f}, {ess:.0f} effective draws"
    if not (r_hat <= _AGREE and ess >= _ENOUGH):
        sentence = f"NUTS did not converge ({facts}), so it cannot say anything about {engine}; ask for more draws. {note}"
        return Check("undecided", sentence.strip(), **numbers)
    wrong = dict(zip(("means", "sds"), off(table), strict=True))
    worst = table["shift"].abs()
    label = worst.index[int(np.argmax(worst.to_numpy()))]
    differences = (
        f"off by up to {worst.max():.2f} posterior sd ({called(label)}) in the mean; sds are {table['sd_ratio'].min():.2f} to "
        f"{table['sd_ratio'].max():.2f} times those of NUTS"
    )
    if what:
        differences += f", and probabilities {what} differ by up to {far:.3f}"
    counted = [f"{part.sum()} of {len(table)} {which}" for which, part in wrong.items() if part.any()]
    unequal = bool(counted) or far > _PROBABILITY + 3 * 0.5 / np.sqrt(ess)
    more = f" Off by more than a tenth: {' and '.join(counted)}." if counted else ""
    if nuts.divergences:
        more += f" NUTS reported {nuts.divergences} divergent steps, so it may be off itself."
    over = " over hyperparameters, too" if nuts.hyperparameters else ""
    word = "differs from" if unequal else "agrees with"
    sentence = f"{engine} {word} NUTS{over}: {differences} ({facts}).{more} {note}"
    return Check("differs" if unequal else "agrees", sentence.strip(), **numbers)


def _hyperparameters(posterior: Posterior, nuts: Chains) -> pd.DataFrame:
    rows: dict[str, dict[str, float]] = {}
    for name, draws in nuts.hyperparameters.items():
        values = np.ravel(np.broadcast_to(posterior.hyperparameters[name], draws.shape[1:]))
        for at, (value, column) in enumerate(zip(values, draws.reshape(len(draws), -1).T, strict=True)):
            label = name if draws.ndim == 1 else f"{name}[{at}]"
            rows[label] = {
                "value": float(value),
                "nuts_mean": float(column.mean()),
                "nuts_sd": float(column.std(ddof=1)),
            }
    return pd.DataFrame.from_dict(rows, orient="index")
