"""A posterior as a proposal for the exact one: importance weights, and what they say (Vehtari et al. 2024).

The exact posterior p(u | answers) ∝ p(answers | u) N(u; location, K) is known up to its evidence. Where the Gaussian q that an engine
found is near it, the weights p(answers | u) N(u; location, K) / q(u) of draws of q vary little.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.diagnostics.certificates.certificate import Certificate, comparison
from relpref.diagnostics.certificates.reweighted import reweighted
from relpref.diagnostics.certificates.tables import moments
from relpref.diagnostics.certificates.target import Target
from relpref.diagnostics.certificates.words import (
    LEAST,
    exact_algebra,
    of_draws,
    of_weights,
    prior_alone,
    same_weights,
    unusable,
)
from relpref.diagnostics.psis import smoothed, threshold
from relpref.errors import DataError
from relpref.infer.belief import DrawsBelief, Floats, GaussianBelief, generator
from relpref.infer.large.answered import answered
from relpref.infer.mixture import MixtureBelief
from relpref.infer.posterior import Posterior
from relpref.infer.refit import engine_again
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Result
from relpref.infer.utility_posterior import UtilityPosterior
from relpref.linalg import cholesky

_FEWEST = 100  # draws from which a tail can be fitted
_COMPONENTS = 25  # of a mixture that are looked at
_GROUPS = 50  # of draws, by which errors are found
_EQUAL = 1e-3  # sd of log weights that are equal but for rounding
# Where the weights cannot be relied on yet, four and sixteen times as many draws are taken: few draws may see the foot of a tail that
# is light further out. Not where that could not help, nor where it would take more than so many numbers (160 MB).
_ROUNDS = (1, 3, 12)
_NUMBERS = 20_000_000


class Proposal(NamedTuple):
    """A Gaussian to draw from, for a target; the engine's log evidence there, which its hyperparameters were drawn by, or 0."""

    target: Target
    belief: GaussianBelief
    log_evidence: float


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
        Draws to be weighted, at least 100; up to 16 times as many where these do not suffice. They come in pairs on either side of the mean.
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
    if Result[posterior.info["result"]].empty:
        return unusable(posterior)
    posterior = answered(posterior)
    belief = posterior.belief
    if isinstance(belief, DrawsBelief):
        return of_draws(belief, int(posterior.info.get("chains", 1)))
    if isinstance(posterior, UtilityPosterior) and not posterior.data.num_answers:
        return prior_alone()
    rng = generator(posterior.key if key is None else key)
    most = _NUMBERS // max(belief.size, 1)
    parts: list[Weighted] = []
    with jax.enable_x64(True):
        proposals = _proposals(posterior)
        each = 2 * -(-num_samples // (2 * len(proposals)))  # pairs
        for rounds in _ROUNDS:
            parts += [weighted(proposal, each, rng) for _ in range(rounds) for proposal in proposals]
            log_weights = np.concatenate([part.log_weights for part in parts])
            found, number = smoothed(log_weights), len(log_weights)
            if np.all(np.isfinite(log_weights)) and np.std(log_weights) < _EQUAL:
                return same_weights(number, float(np.mean(log_weights)))
            reliable = float(found.k_hat) <= threshold(number) and float(found.ess) >= LEAST
            hopeless = float(found.ess) / number * sum(_ROUNDS) * num_samples < LEAST
            if reliable or hopeless or 4 * number > most:
                break
    numbers = (float(found.k_hat), float(found.ess), number)
    if not reliable:
        return of_weights(posterior, *numbers, None, np.nan)
    highest = log_weights.max()
    log_evidence = float(highest + np.log(np.mean(np.exp(log_weights - highest))))
    draws = np.concatenate([part.draws for part in parts])
    groups = _groups(len(proposals), each, len(parts) // len(proposals))
    exact, errors = reweighted(posterior, draws, np.exp(found.log_weights), groups)
    table = comparison(moments(posterior, belief), exact, errors)
    return of_weights(posterior, *numbers, table, log_evidence if len(proposals) == 1 else np.nan)


def weighted(proposal: Proposal, number: int, rng: np.random.Generator) -> Weighted:
    """Antithetic draws of a Gaussian, an even number of them, and their weights for the target; inside ``enable_x64``.

    In coordinates w in which the prior is N(0, I): directions in which it does not vary have no part in either density.
    """
    target = proposal.target
    mean, covariance = target.whitened(proposal.belief)
    lower = np.asarray(cholesky(jax.numpy.asarray(covariance)).lower)
    half = rng.standard_normal((number // 2, len(mean)))
    noise = np.concatenate([half, -half])
    white = mean + noise @ lower.T
    draws = target.location + white @ target.root.T
    log_prior = -0.5 * np.sum(np.square(white), axis=1)
    log_proposal = -0.5 * np.sum(np.square(noise), axis=1) - np.sum(np.log(np.diagonal(lower)))
    return Weighted(draws, target.log_likelihood(draws) + log_prior - log_proposal - proposal.log_evidence)


def _proposals(posterior: Posterior) -> list[Proposal]:
    """The Gaussian, or some components of a mixture.

    The hyperparameters θ of a mixture were drawn from p(θ) Z_q(θ), the engine's evidence, and u from q(u | θ): for the joint posterior the
    weight of both together is p(answers | u) p(u | θ) / (q(u | θ) Z_q(θ)).
    """
    belief, origin = posterior.belief, posterior.origin
    if not isinstance(belief, MixtureBelief):
        assert isinstance(belief, GaussianBelief)  # draws have been dealt with
        return [Proposal(Target.of(posterior, dict(posterior.hyperparameters)), belief, 0.0)]
    total = len(belief.locations)
    found = []
    for at in np.unique(np.linspace(0, total - 1, min(total, _COMPONENTS)).astype(int)):
        moving = {name: draws[at] for name, draws in posterior.hyperparameter_draws.items()}
        values = {**posterior.hyperparameters, **moving}
        target = Target.of(posterior, values)
        assert origin is not None  # or there were no target
        again = engine_again(origin, fixed=values).run_from(
            None, 0, *origin.args, progress_bar=False, **origin.kwargs
        )
        assert again.log_evidence is not None  # EP and Laplace compute it
        found.append(Proposal(target, belief.components[at], again.log_evidence))
    return found


def _groups(proposals: int, each: int, rounds: int) -> NDArray[np.intp]:
    """Which draws may know of one another: of a mixture those of one component, of a Gaussian the pairs."""
    if proposals > 1:
        return np.tile(np.repeat(np.arange(proposals), each), rounds)
    return np.tile(np.arange(each // 2) % _GROUPS, 2 * rounds)
