"""The sentences of certificates."""

from typing import Any

import numpy as np
import pandas as pd

from relpref.diagnostics.certificates.certificate import Certificate, Verdict, called, is_open, off
from relpref.diagnostics.psis import convergence, threshold
from relpref.infer.belief import DrawsBelief
from relpref.infer.integrate import UNMIXED
from relpref.infer.mixture import MixtureBelief
from relpref.infer.posterior import Posterior
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Result

LEAST = 100  # effective draws: below, a tail that looks light may look so by luck
_MANY = 600  # dimensions from which weights often fail of themselves
_AGREE, _ENOUGH = 1.01, 400  # R-hat and effective draws that can be relied on (Vehtari et al. 2021)
_DISAGREE = 1.05
_FEW = 50  # effective draws of the hyperparameters, over which a posterior is only averaged
CHECK = "compare with NUTS instead (relpref check, or relpref.diagnostics.check)"


def exact_algebra(posterior: RelationPosterior) -> Certificate:
    """Of the exact engine."""
    result = Result[posterior.info["result"]]
    if not result.ok:
        return Certificate(
            "failed", f"The engine did not finish, so the posterior is not the exact one: {result.value}"
        )
    return Certificate(
        "exact",
        "The posterior is exact: prior and noise are Gaussian, so it was solved for and not approximated "
        f"(solver {posterior.info['solver']}).",
    )


def prior_alone() -> Certificate:
    """Where nothing was answered."""
    return Certificate("exact", "There are no answers, so the posterior is the prior, which is exact.")


def same_weights(number: int, log_evidence: float) -> Certificate:
    """Where nothing was approximated."""
    return Certificate(
        "exact",
        "Every draw has the same weight: at its hyperparameters this posterior is the exact one.",
        ess=float(number),
        num_samples=number,
        log_evidence=log_evidence,
    )


def unusable(posterior: Posterior) -> Certificate:
    """Where the engine found no posterior."""
    return Certificate(
        "failed", f"There is no posterior to certify: {Result[posterior.info['result']].value}"
    )


def of_draws(belief: DrawsBelief, chains: int) -> Certificate:
    """Of samples: whether the chains agree."""
    per_chain = len(belief.draws) // chains
    by_chain = belief.draws[: chains * per_chain].reshape(chains, per_chain, -1)
    r_hat, ess = convergence(by_chain)
    said = f"R-hat {r_hat:.3f}, {ess:.0f} effective draws of {len(belief.draws)}"

    def certificate(verdict: Verdict, sentence: str) -> Certificate:
        return Certificate(verdict, sentence, ess=ess, num_samples=len(belief.draws))

    still = int(np.sum(np.ptp(belief.draws, axis=0) == 0))
    if still:
        return certificate(
            "failed",
            f"{still} of {belief.size} values never move in {len(belief.draws)} draws: a sampler that is stuck says nothing of the posterior.",
        )
    if not np.isfinite(r_hat):
        return certificate(
            "failed",
            f"Draws that are too few, or not finite, cannot be compared ({said}); draw longer chains.",
        )
    if r_hat > _DISAGREE:
        return certificate("failed", f"The draws do not agree among themselves ({said}); draw longer chains.")
    if not (r_hat <= _AGREE and ess >= _ENOUGH):
        return certificate(
            "doubtful",
            f"The draws are too few, or do not quite agree ({said}); draw longer chains.",
        )
    if chains == 1:
        return certificate(
            "doubtful",
            f"The draws are of one chain, which agrees with itself ({said}). Draws of a variational guide (SVI) always do, whatever the guide is "
            f"worth, and so may a chain that is stuck: draw several chains with NUTS and pass num_chains, or {CHECK}.",
        )
    return certificate(
        "good",
        f"{chains} chains agree ({said}). That is what can be asked of NUTS; draws of a variational guide (SVI) always agree, and for them "
        f"it says nothing: {CHECK}.",
    )


def of_weights(
    posterior: Posterior,
    k_hat: float,
    ess: float,
    number: int,
    table: pd.DataFrame | None,
    log_evidence: float,
) -> Certificate:
    """Of importance weights; ``table`` is there where they can be relied on."""
    engine = posterior.info["engine"]
    if isinstance(posterior.belief, MixtureBelief):
        engine = f"{engine}, averaged over hyperparameters,"
    numbers: dict[str, Any] = {
        "k_hat": k_hat,
        "ess": ess,
        "num_samples": number,
        "table": table,
        "log_evidence": log_evidence,
    }
    said = f"k-hat {k_hat:.2f}, {ess:.0f} effective draws of {number}"
    if table is None:
        return Certificate(
            "doubtful" if k_hat <= 1 else "failed", _unreliable(posterior, said, number), **numbers
        )
    if (unmixed := _unmixed(posterior)) is not None:
        return Certificate(*unmixed, **numbers)
    means, sds = off(table)
    largest = _largest(table["shift"].abs())
    ends = dict.fromkeys(f"{end:.2f}" for end in (table["sd_ratio"].min(), table["sd_ratio"].max()))
    ratios = f"sds are {' to '.join(ends)} times the exact ones"
    if is_open(table):
        return Certificate(
            "undecided",
            f"Whether {engine} is right is not decided: means seem off by up to {largest}, {ratios}, and the Monte Carlo errors reach over "
            f"the tolerance of a tenth ({said}). Raise num_samples, or use the draws themselves: posterior.reweighted().",
            **numbers,
        )
    if not means.any() and not sds.any():
        sentence = (
            f"{engine} is certified: against the exact posterior at its hyperparameters no mean is off by more than {largest}, and "
            f"{ratios} ({said})."
        )
        if isinstance(posterior.belief, MixtureBelief):
            sentence = sentence.replace(" at its hyperparameters", ", hyperparameters included,", 1)
        return Certificate("good", sentence, **numbers)
    return Certificate(
        "doubtful",
        f"{engine} is off: by up to {largest} in the mean, and {ratios}. The weights can be relied on ({said}): use "
        "posterior.reweighted(), or a more accurate engine.",
        **numbers,
    )


def _unmixed(posterior: Posterior) -> tuple[Verdict, str] | None:
    """Of a mixture whose hyperparameters were drawn too badly: weights cannot see hyperparameters that were never drawn."""
    r_hat, ess = posterior.info.get("r_hat"), posterior.info.get("ess")
    if r_hat is None or ess is None:
        return None
    said = f"R-hat {r_hat:.3f}, {ess:.0f} effective draws of the hyperparameters"
    if not r_hat <= UNMIXED:
        return "failed", f"The chains over the hyperparameters do not agree ({said}); raise draws and warmup."
    if ess < _FEW:
        return (
            "doubtful",
            f"The hyperparameters were drawn too few times ({said}); raise draws, at least until {_FEW} are effective.",
        )
    return None


def _largest(values: pd.Series) -> str:
    at = int(np.argmax(values.to_numpy()))
    return f"{max(values.iloc[at], 0.01):.2f} posterior sd ({called(values.index[at])})"


def _unreliable(posterior: Posterior, said: str, number: int) -> str:
    size = posterior.belief.size
    cause = (
        f"with {size} dimensions that happens even where every mean and sd is right"
        if size > _MANY
        else "the posterior may be right or wrong"
    )
    return (
        f"Importance weights cannot certify this posterior, {cause} ({said}; to be relied on, k-hat "
        f"is at most {threshold(number):.2f} and at least {LEAST} draws are effective): {CHECK}."
    )
