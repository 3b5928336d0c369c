"""Whether an approximate posterior is the exact one, as far as importance weights can tell, in numbers and in a sentence."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from relpref.infer.large.answered import answered
from relpref.infer.psis import by_chain, convergence, threshold
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.reweighting import MIN_EFFECTIVE, require_draws, weighted_draws
from relpref.infer.search import UNMIXED
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import generator

Verdict = Literal["exact", "good", "undecided", "doubtful", "failed"]

# A posterior is called right where every mean is known to be off by at most a tenth of a posterior sd and every sd by at most a tenth:
# with three Monte Carlo errors on either side. It is called wrong where one is off by more, and they do not reach back.
TOLERANCE, ERRORS = 0.1, 3.0
CHECK = "compare with NUTS instead (relpref check, or relpref.diagnostics.check)"
_MANY = 600  # dimensions from which weights often fail of themselves
_AGREE, _ENOUGH = 1.01, 400  # R-hat and effective draws that can be relied on (Vehtari et al. 2021)
_DISAGREE = 1.05
_MIN_HYPERPARAMETER_DRAWS = 50  # effective ones, over which a posterior is only averaged
_EQUAL = 1e-3  # sd of log weights that are equal but for rounding

# By verdict and case.
_SENTENCES = {
    "failed unfinished": "The engine did not finish, so the posterior is not the exact one: {why}",
    "exact algebra": "The posterior is exact: prior and noise are Gaussian, so it was solved for and not approximated "
    "(solver {solver}).",
    "failed empty": "There is no posterior to certify: {why}",
    "exact prior": "There are no answers, so the posterior is the prior, which is exact.",
    "exact weights": "Every draw has the same weight: at its hyperparameters this posterior is the exact one.",
    "failed stuck": "{still} of {size} values never move in {number} draws: a sampler that is stuck says nothing of the posterior.",
    "failed few": "Draws that are too few, or not finite, cannot be compared ({facts}); draw longer chains.",
    "failed chains": "The draws do not agree among themselves ({facts}); draw longer chains.",
    "doubtful chains": "The draws are too few, or do not quite agree ({facts}); draw longer chains.",
    "doubtful chain": "The draws are of one chain, which agrees with itself ({facts}). Draws of a variational guide (SVI) always do, "
    "whatever the guide is worth, and so may a chain that is stuck: draw several chains with NUTS and pass num_chains, or {check}.",
    "good chains": "{chains} chains agree ({facts}). That is what can be asked of NUTS; draws of a variational guide (SVI) always "
    "agree, and for them it says nothing: {check}.",
    "failed hyperparameters": "The chains over the hyperparameters do not agree ({facts}); raise draws and warmup.",
    "doubtful hyperparameters": "The hyperparameters were drawn too few times ({facts}); raise draws, at least until {least} are "
    "effective.",
    "good weights": "{engine} is certified: against the exact posterior{at} no mean is off by more than {largest}, and {ratios} "
    "({facts}).",
    "undecided weights": "Whether {engine} is right is not decided: means seem off by up to {largest}, {ratios}, and the Monte Carlo "
    "errors reach over the tolerance of a tenth ({facts}). Raise num_samples, or use the draws themselves: posterior.reweighted().",
    "doubtful weights": "{engine} is off: by up to {largest} in the mean, and {ratios}. The weights can be relied on ({facts}): use "
    "posterior.reweighted(), or a more accurate engine.",
}


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a posterior is as an approximation of the exact one.

    Attributes
    ----------
    verdict : {"exact", "good", "undecided", "doubtful", "failed"}
        "exact": nothing is approximated. "good": shown to be right, within the tolerance. "undecided": the weights can be relied on,
        but their Monte Carlo errors reach over the tolerance after all draws. "doubtful": the weights can be relied on and show that
        something is off, or they are at the border of what can be relied on. "failed": nothing can be said, or worse, draws disagree;
        that alone does not show that the posterior is wrong, see ``sentence``.
    sentence : str
        In plain words.
    k_hat : float
        Shape of the tail of the importance weights; at most 0.7 is fine. NaN where there are no weights.
    ess : float
        Effective sample size: so many independent draws of the exact posterior say as much as the weighted ones.
    efficiency : float
        ``ess`` over the number of draws.
    num_samples : int
    table : DataFrame or None
        Where the weights can be relied on, see `comparison`; the exact posterior by reweighting. By entity (relative to the average of
        all), by example for classifiers, by site and position otherwise.
    log_evidence : float
        Of the exact model at the posterior's hyperparameters, by reweighting; NaN where there are no weights to rely on, and of a mixture.
    """

    verdict: Verdict
    sentence: str
    k_hat: float = np.nan
    ess: float = np.nan
    num_samples: int = 0
    table: pd.DataFrame | None = field(default=None, repr=False)
    log_evidence: float = np.nan

    @classmethod
    def _of(cls, case: str, numbers: dict[str, Any] | None = None, **words: Any) -> "Certificate":
        verdict: Any = case.split()[0]
        return cls(verdict, _SENTENCES[case].format(check=CHECK, **words), **(numbers or {}))

    @property
    def efficiency(self) -> float:
        """Effective draws for each draw; NaN where there are none."""
        return self.ess / self.num_samples if self.num_samples else np.nan

    @property
    def mean(self) -> pd.Series | None:
        """Reweighted mean, where the weights can be relied on."""
        return None if self.table is None else self.table["exact_mean"]

    @property
    def sd(self) -> pd.Series | None:
        """Reweighted standard deviation, where the weights can be relied on."""
        return None if self.table is None else self.table["exact_sd"]


def comparison(reported: pd.DataFrame, exact: pd.DataFrame, error: pd.DataFrame) -> pd.DataFrame:
    """How far reported means and sds are from exact ones that are known up to Monte Carlo errors.

    Parameters
    ----------
    reported, exact : DataFrame
        ``mean`` and ``sd`` of the same things.
    error : DataFrame
        Of the exact means and sds, ``mean`` and ``sd``.

    Returns
    -------
    DataFrame
        ``mean`` and ``sd`` as reported; ``exact_mean`` and ``exact_sd``; ``shift``, the first mean less the second, in reported sds;
        ``sd_ratio``, the first sd over the second; ``shift_error`` and ``sd_ratio_error``, their Monte Carlo errors.
    """
    scale = reported["sd"].where(reported["sd"] > 0, 1.0)
    exact_sd = exact["sd"].where(exact["sd"] > 0)
    ratio = (reported["sd"] / exact_sd).fillna(1.0)  # where nothing is uncertain
    return reported.assign(
        exact_mean=exact["mean"],
        exact_sd=exact["sd"],
        shift=(reported["mean"] - exact["mean"]) / scale,
        shift_error=error["mean"] / scale,
        sd_ratio=ratio,
        sd_ratio_error=ratio * (error["sd"] / exact_sd).fillna(0.0),
    )


def _sizes(table: pd.DataFrame) -> list[tuple[pd.Series, pd.Series]]:
    """How far means and sds are off, each with its Monte Carlo error."""
    ratio = (table["sd_ratio"] - 1).abs(), table["sd_ratio_error"]
    return [(table["shift"].abs(), table["shift_error"]), ratio]


def off(table: pd.DataFrame) -> list[pd.Series]:
    """Which means and which sds are off by more than the tolerance, beyond their Monte Carlo errors."""
    # What cannot be computed is off.
    return [~(size <= TOLERANCE + ERRORS * error) for size, error in _sizes(table)]


def _is_open(table: pd.DataFrame) -> bool:
    """Whether for some mean or sd the Monte Carlo errors reach over the tolerance, and no other is off."""
    right = all((size + ERRORS * error <= TOLERANCE).all() for size, error in _sizes(table))
    return not right and not any(wrong.any() for wrong in off(table))


def called(label: Any) -> str:
    """The label of a row as it is said in a sentence."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


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
        Draws to be weighted, at least 100; up to 16 times as many, until the verdict is decided. They come in pairs on either side of
        the mean.
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
    require_draws(num_samples)
    if posterior.kind == "relation":
        case = "exact algebra" if posterior.converged else "failed unfinished"
        return Certificate._of(case, solver=posterior.solver, why=posterior.result.value)
    if posterior.empty:
        return Certificate._of("failed empty", why=posterior.result.value)
    posterior = answered(posterior)
    if posterior.sampled:
        return _of_draws(posterior)
    if not posterior.has_answers:
        return Certificate._of("exact prior")
    table = None
    for found in weighted_draws(posterior, num_samples, generator(posterior.key if key is None else key)):
        log_weights = found.log_weights
        if np.all(np.isfinite(log_weights)) and np.std(log_weights) < _EQUAL:
            number, mean = len(log_weights), float(np.mean(log_weights))
            numbers = {"ess": float(number), "num_samples": number, "log_evidence": mean}
            return Certificate._of("exact weights", numbers)
        table = comparison(posterior.reported(), *found.moments(posterior)) if found.reliable else None
        if table is not None and not _is_open(table):
            break
    facts: dict[str, Any] = {
        "k_hat": float(found.smoothed.k_hat),
        "ess": float(found.smoothed.ess),
        "num_samples": len(found.log_weights),
        "table": table,
        "log_evidence": found.log_evidence,
    }
    return _of_weights(posterior, table, facts)


def _of_draws(posterior: Posterior) -> Certificate:
    """Of samples: whether the chains agree."""
    draws, chains = posterior.belief.as_mixture()[0], posterior.chains
    r_hat, ess = convergence(by_chain(draws, chains))
    still = int(np.sum(np.ptp(draws, axis=0) == 0))
    case = "failed stuck" if still else "doubtful chain" if chains == 1 else "good chains"
    if not still and not np.isfinite(r_hat):
        case = "failed few"
    elif not still and not (r_hat <= _AGREE and ess >= _ENOUGH):
        case = "failed chains" if r_hat > _DISAGREE else "doubtful chains"
    facts = f"R-hat {r_hat:.3f}, {ess:.0f} effective draws of {len(draws)}"
    words = {"facts": facts, "chains": chains, "still": still, "size": draws.shape[1], "number": len(draws)}
    return Certificate._of(case, {"ess": ess, "num_samples": len(draws)}, **words)


def _of_weights(posterior: Posterior, table: pd.DataFrame | None, numbers: dict[str, Any]) -> Certificate:
    """Of importance weights; ``table`` is there where they can be relied on."""
    k_hat, ess, number = (numbers[name] for name in ("k_hat", "ess", "num_samples"))
    facts = f"k-hat {k_hat:.2f}, {ess:.0f} effective draws of {number}"
    if table is None:
        size = posterior.belief.size
        cause = "the posterior may be right or wrong"
        if size > _MANY:
            cause = f"with {size} dimensions that happens even where every mean and sd is right"
        sentence = (
            f"Importance weights cannot certify this posterior, {cause} ({facts}; to be relied on, k-hat is at most "
            f"{threshold(number):.2f} and at least {MIN_EFFECTIVE} draws are effective): {CHECK}."
        )
        return Certificate("doubtful" if k_hat <= 1 else "failed", sentence, **numbers)
    # Weights cannot see hyperparameters that were never drawn.
    r_hat, drawn = posterior.r_hat, posterior.effective_draws
    if (
        r_hat is not None
        and drawn is not None
        and not (r_hat <= UNMIXED and drawn >= _MIN_HYPERPARAMETER_DRAWS)
    ):
        case = f"{'doubtful' if r_hat <= UNMIXED else 'failed'} hyperparameters"
        facts = f"R-hat {r_hat:.3f}, {drawn:.0f} effective draws of the hyperparameters"
        return Certificate._of(case, numbers, facts=facts, least=_MIN_HYPERPARAMETER_DRAWS)
    engine, at = posterior.engine, " at its hyperparameters"
    if posterior.hyperparameter_draws:
        engine, at = f"{engine}, averaged over hyperparameters,", ", hyperparameters included,"
    wrong = any(part.any() for part in off(table))
    verdict = "undecided" if _is_open(table) else "doubtful" if wrong else "good"
    shifts, ratios = table["shift"].abs(), table["sd_ratio"]
    worst = int(np.argmax(shifts.to_numpy()))
    ends = dict.fromkeys(f"{end:.2f}" for end in (ratios.min(), ratios.max()))
    return Certificate._of(
        f"{verdict} weights",
        numbers,
        engine=engine,
        at=at,
        largest=f"{max(shifts.iloc[worst], 0.01):.2f} posterior sd ({called(shifts.index[worst])})",
        ratios=f"sds are {' to '.join(ends)} times the exact ones",
        facts=facts,
    )
