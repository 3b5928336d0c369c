"""A posterior as a proposal for the exact one: importance weights, and what they say (Vehtari et al. 2024).

The exact posterior p(u | answers) ∝ p(answers | u) N(u; location, K) is known up to its evidence. Where the Gaussian q that an engine
found is near it, the weights p(answers | u) N(u; location, K) / q(u) of draws of q vary little.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.diagnostics.certificates.certificate import Certificate, comparison, is_open
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
from relpref.diagnostics.psis import Smoothed, smoothed, threshold
from relpref.errors import DataError, InferenceError
from relpref.infer.belief import DrawsBelief, Floats, GaussianBelief, generator
from relpref.infer.large.answered import answered
from relpref.infer.mixture import MixtureBelief
from relpref.infer.posterior import Posterior
from relpref.infer.refit import engine_again
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Result
from relpref.infer.samples import from_samples
from relpref.infer.utility_posterior import UtilityPosterior
from relpref.linalg import cholesky

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
_NUMBERS = 20_000_000


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
    if Result[posterior.info["result"]].empty:
        return unusable(posterior)
    posterior = answered(posterior)
    belief = posterior.belief
    if isinstance(belief, DrawsBelief):
        return of_draws(belief, int(posterior.info.get("chains", 1)))
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
    info = {**found.info, "engine": f"{posterior.info['engine']}, reweighted", "k_hat": k_hat, "ess": ess}
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
    most = _NUMBERS // max(posterior.belief.size, 1)
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
