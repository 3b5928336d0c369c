"""A posterior against NUTS on the same answers."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import numpy as np
import pandas as pd

from relpref.diagnostics.certificates.certificate import called, comparison, moments, off
from relpref.diagnostics.certificates.certify import Chains, Settings, Subject, sample, subject
from relpref.diagnostics.psis import convergence
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.large.answered import answered
from relpref.infer.relation_posterior import RelationPosterior
from relpref.posterior.base import Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.gaussian import Belief, DrawsBelief, GaussianBelief, MixtureBelief, as_key
from relpref.posterior.utility import UtilityPosterior

AGREE, ENOUGH = 1.02, 200  # largest R-hat and fewest effective draws with which NUTS may judge
PROBABILITY = 0.05  # by which a probability may be off


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
        shows what it means to have maximised them, and takes a Cholesky factor for every step. A mixture over hyperparameters, and samples of them,
        are compared with NUTS over all.
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
    for name, number, least in (
        ("most_entities", most_entities, 2),
        ("draws", draws, 100),
        ("chains", chains, 1),
        ("warmup", warmup, 10),
    ):
        if number < least:
            raise DataError(f"{name} is {number}; it must be at least {least}")
    if isinstance(posterior, RelationPosterior):
        return Check(
            "agrees" if posterior.converged else "undecided",
            "The posterior is the solution of linear equations, not an approximation, so there is nothing that NUTS could tell. "
            + posterior.result.value,
        )
    posterior = answered(posterior)
    result = posterior.result
    if result.empty:
        raise InferenceError(f"there is no posterior to check: {result.name}: {result.value}", result)
    if isinstance(posterior, UtilityPosterior) and not posterior.data.num_answers:
        return Check(
            "agrees", "There are no answers, so the posterior is the prior, and nothing was approximated."
        )
    joint = hyperparameters or bool(posterior.hyperparameter_draws)
    if joint and posterior.origin is not None and not posterior.origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep, so that hyperparameters cannot be sampled; check "
            "before saving, or with the hyperparameters held"
        )
    found = subject(posterior, most_entities, joint, progress_bar)
    belief = _chosen(found)
    with jax.enable_x64(True):
        nuts = sample(
            found.posterior,
            found.chosen,
            _near(belief),
            joint,
            as_key(_key(posterior, key)),
            Settings(draws, chains, warmup, progress_bar),
        )
    return _compared(found, belief, nuts)


def _key(posterior: Posterior, key: Any) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(posterior.key)) if key is None else key


def _chosen(found: Subject) -> Belief:
    """The belief about the chosen entries."""
    belief = found.posterior.belief
    if len(found.chosen) == belief.size:
        return belief
    return belief.project(np.eye(belief.size)[found.chosen])


def _near(belief: Belief) -> GaussianBelief:
    """A Gaussian to whiten by."""
    if isinstance(belief, GaussianBelief):
        return belief
    covariance, number = belief.covariance(), belief.size
    if isinstance(belief, DrawsBelief):  # of few draws the covariance is singular
        weight = len(belief.draws) / (len(belief.draws) + number)
        covariance = weight * covariance + (1 - weight) * np.diag(np.diagonal(covariance))
    return GaussianBelief(belief.mean(), covariance)


def _compared(found: Subject, belief: Belief, nuts: Chains) -> Check:
    posterior = found.posterior
    by_chain = nuts.latent
    if isinstance(posterior, UtilityPosterior):  # what is reported of utilities
        by_chain = by_chain - by_chain.mean(axis=-1, keepdims=True)
    r_hat, ess = convergence(by_chain)
    # Chains of NUTS may lean from one side to the other: their means are then known better than their spread.
    ess = min(ess, convergence(np.square(by_chain - by_chain.mean(axis=(0, 1))))[1])
    exact = DrawsBelief(nuts.latent.reshape(-1, nuts.latent.shape[-1]))
    sampled = replace(posterior, belief=exact, hyperparameter_draws=nuts.hyperparameters)
    labels = found.chosen if isinstance(posterior, UtilityPosterior) else None
    reported, true = moments(posterior, belief, labels), moments(sampled, exact, labels)
    both = 1 / (
        1 / ess + 1 / _own_draws(posterior, belief)
    )  # what is compared may be known from draws itself
    error = pd.DataFrame({"mean": true["sd"] / np.sqrt(both), "sd": true["sd"] / np.sqrt(2 * both)})
    table = comparison(reported, true, error)
    numbers: dict[str, Any] = {
        "table": table,
        "probability_shift": _probability_shift(found, belief, sampled),
        "hyperparameters": _hyperparameters(posterior, nuts) if nuts.hyperparameters else None,
        "r_hat": r_hat,
        "ess": ess,
        "divergences": nuts.divergences,
    }
    return Check(*_judged(found, numbers, nuts), **numbers)


def _own_draws(posterior: Posterior, belief: Belief) -> float:
    """Effective number of draws that a posterior consists of."""
    if isinstance(belief, MixtureBelief):
        return posterior.effective_draws or float(1 / np.sum(np.square(belief.weights)))
    if isinstance(belief, DrawsBelief):
        chains = posterior.chains
        per_chain = len(belief.draws) // chains
        return convergence(belief.draws[: chains * per_chain].reshape(chains, per_chain, -1))[1]
    return np.inf


def _probability_shift(found: Subject, belief: Belief, sampled: Posterior) -> float:
    """The largest, over the pairs that were asked, or over examples and classes."""
    posterior = found.posterior
    if isinstance(posterior, ClassPosterior):
        assert isinstance(sampled, ClassPosterior)
        return float(
            np.max(np.abs(posterior.predict_proba().to_numpy() - sampled.predict_proba().to_numpy()))
        )
    if not isinstance(posterior, UtilityPosterior):
        return np.nan
    data, place = posterior.data, np.full(posterior.data.num_entities, -1)
    place[found.chosen] = np.arange(len(found.chosen))
    first, second = place[data.winner], place[data.loser]
    shifts = belief.differences(first, second).positive - sampled.belief.differences(first, second).positive
    return float(np.max(np.abs(shifts), initial=0.0))


def _hyperparameters(posterior: Posterior, nuts: Chains) -> pd.DataFrame:
    rows: dict[str, dict[str, float]] = {}
    for name, draws in nuts.hyperparameters.items():
        values = np.ravel(np.broadcast_to(posterior.hyperparameters[name], draws.shape[1:]))
        flat = draws.reshape(len(draws), -1)
        for at, value in enumerate(values):
            label = name if draws.ndim == 1 else f"{name}[{at}]"
            rows[label] = {
                "value": float(value),
                "nuts_mean": float(flat[:, at].mean()),
                "nuts_sd": float(flat[:, at].std(ddof=1)),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def _judged(
    found: Subject, numbers: dict[str, Any], nuts: Chains
) -> tuple[Literal["agrees", "differs", "undecided"], str]:
    table: pd.DataFrame = numbers["table"]
    engine = "The sample" if found.posterior.sampled else found.posterior.engine
    if isinstance(found.posterior.belief, MixtureBelief):
        engine += ", averaged over hyperparameters,"
    chains = nuts.latent.shape[0]
    said = f"{chains} chain{'' if chains == 1 else 's'}, R-hat {numbers['r_hat']:.3f}, {numbers['ess']:.0f} effective draws"
    over = " over hyperparameters, too" if nuts.hyperparameters else ""
    if not (numbers["r_hat"] <= AGREE and numbers["ess"] >= ENOUGH):
        return "undecided", (
            f"NUTS did not converge ({said}), so it cannot say anything about {engine}; ask for more draws. {found.note}".strip()
        )
    means, sds = off(table)
    far = numbers["probability_shift"]
    worst = table["shift"].abs()
    label = worst.index[int(np.argmax(worst.to_numpy()))]
    differences = (
        f"off by up to {worst.max():.2f} posterior sd ({called(label)}) in the mean; sds are {table['sd_ratio'].min():.2f} to "
        f"{table['sd_ratio'].max():.2f} times those of NUTS"
    )
    if np.isfinite(far):
        what = (
            "of a class"
            if isinstance(found.posterior, ClassPosterior)
            else "that one of an asked pair is the better"
        )
        differences += f", and probabilities {what} differ by up to {far:.3f}"
    unequal = means.any() or sds.any() or far > PROBABILITY + 3 * 0.5 / np.sqrt(numbers["ess"])
    word = "differs from" if unequal else "agrees with"
    more = ""
    if unequal:
        counted = [
            f"{part.sum()} of {len(table)} {which}"
            for part, which in ((means, "means"), (sds, "sds"))
            if part.any()
        ]
        more = f" Off by more than a tenth: {' and '.join(counted)}." if counted else ""
    if nuts.divergences:
        more += f" NUTS reported {nuts.divergences} divergent steps, so it may be off itself."
    sentence = f"{engine} {word} NUTS{over}: {differences} ({said}).{more} {found.note}".strip()
    return ("differs" if unequal else "agrees"), sentence
