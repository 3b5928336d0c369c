"""Certificates: whether a posterior agrees with the exact one, by importance weights or chains."""

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from relpref.blas import threads_for
from relpref.infer.large.problem import answered
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.reweighting import MIN_EFFECTIVE, require_draws, weighted_draws
from relpref.infer.sampling import UNMIXED
from relpref.infer.smoothing import by_chain, convergence, threshold
from relpref.posterior.base import Posterior
from relpref.posterior.summary import row_name

Verdict = Literal["exact", "good", "undecided", "doubtful", "failed"]

# A posterior is called right if every mean is off by at most a tenth of a posterior sd and every sd
# by at most a tenth, even with three Monte Carlo errors added. It is called wrong if one is off by
# more even with three Monte Carlo errors subtracted.
TOLERANCE, ERRORS = 0.1, 3.0
CHECK = "compare with NUTS instead (relpref check, or relpref.diagnostics.check)"
_MANY = 600  # dimensions above which weights often fail for right posteriors, too
_AGREE, _ENOUGH = 1.01, 400  # R-hat and effective draws (Vehtari et al. 2021)
_DISAGREE = 1.05
_MIN_DRAWS = 50  # effective draws of hyperparameters
# Largest ratio of errors after twice the draws for which more draws help; 0.71 is expected.
_FALLEN = 0.95
_EQUAL = 1e-3  # sd of log weights that are equal up to rounding

# Sentences by verdict and case; a case alone serves several verdicts.
_SENTENCES = {
    "failed unfinished": "The engine did not finish, so the posterior is not the exact one: {why}",
    "exact algebra": "The posterior is exact: prior and noise are Gaussian (solver {solver}).",
    "failed empty": "There is no posterior to certify: {why}",
    "exact prior": "There are no answers, so the posterior is the prior, which is exact.",
    "exact weights": "All draws have equal weights: at its hyperparameters the posterior is exact.",
    "failed stuck": "{still} of {size} values never move in {number} draws: the sampler is stuck.",
    "failed few": "Draws that are too few, or not finite, cannot be compared ({facts}); "
    "draw longer chains.",
    "failed chains": "The draws do not agree among themselves ({facts}); draw longer chains.",
    "doubtful chains": "The draws are too few, or do not quite agree ({facts}); "
    "draw longer chains.",
    "doubtful chain": "The draws are of one chain, which agrees with itself ({facts}). So do all "
    "draws of a variational guide (SVI), and so may a chain that is stuck: draw several chains "
    "with NUTS and pass num_chains, or {check}.",
    "good chains": "{chains} chains agree ({facts}). For NUTS that is all that can be tested; "
    "draws of a variational guide (SVI) always agree, so for them it says nothing: {check}.",
    "failed hyperparameters": "The chains over the hyperparameters do not agree ({facts}); "
    "raise draws and warmup.",
    "doubtful hyperparameters": "The hyperparameters were drawn too few times ({facts}); raise "
    "draws, at least until {least} are effective.",
    "good weights": "{engine} is certified: against the exact posterior{at} no mean is off by more "
    "than {largest}, and {ratios} ({facts}).",
    "undecided weights": "Whether {engine} is right is not decided: means seem off by up to "
    "{largest}, {ratios}, and the Monte Carlo errors reach over the tolerance of a tenth "
    "({facts}). Raise num_samples, or use the draws themselves: posterior.reweighted().",
    "reliability": "Importance weights cannot certify this posterior, {cause} ({facts}; reliable "
    "weights have a k-hat of at most {limit:.2f} and at least {least} effective draws): {check}.",
    "doubtful weights": "{engine} is off: by up to {largest} in the mean, and {ratios}. The "
    "weights are reliable ({facts}): use posterior.reweighted(), or a more accurate engine.",
}


@dataclass(frozen=True, eq=False)
class Certificate:
    """Accuracy of a posterior as an approximation of the exact one.

    Attributes
    ----------
    verdict : {"exact", "good", "undecided", "doubtful", "failed"}
        "exact": nothing is approximated. "good": right within the tolerance. "undecided": Monte
        Carlo errors reach over the tolerance after all draws. "doubtful": something is off, or the
        weights are barely reliable. "failed": there is no evidence, or draws disagree, which alone
        does not show that the posterior is wrong.
    sentence : str
    k_hat : float
        Shape of the tail of the importance weights; at most 0.7 is fine. NaN where there are no
        weights.
    ess : float
        Effective sample size: the number of independent draws of the exact posterior with the same
        Monte Carlo error as the weighted ones.
    num_samples : int
    table : DataFrame or None
        The columns of `comparison`, with the exact posterior by reweighting; None if the weights
        are unreliable. Rows are items (relative to the average of all) and effects of covariates,
        examples for classifiers, sites and positions otherwise.
    log_evidence : float
        Log evidence of the exact model at the posterior's hyperparameters, by reweighting; NaN for
        a mixture or where the weights are unreliable.
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
        """Certificate with the sentence of a case, such as ``"good chains"``, filled with words."""
        verdict, _, reason = case.partition(" ")
        sentence = _SENTENCES.get(case) or _SENTENCES[reason]
        return cls(cast(Verdict, verdict), sentence.format(check=CHECK, **words), **(numbers or {}))

    @property
    def efficiency(self) -> float:
        """Effective draws per draw; NaN without draws."""
        return self.ess / self.num_samples if self.num_samples else np.nan

    @property
    def mean(self) -> pd.Series | None:
        """Reweighted mean; None if the weights are unreliable."""
        return None if self.table is None else self.table["exact_mean"]

    @property
    def sd(self) -> pd.Series | None:
        """Reweighted standard deviation; None if the weights are unreliable."""
        return None if self.table is None else self.table["exact_sd"]


def comparison(reported: pd.DataFrame, exact: pd.DataFrame, error: pd.DataFrame) -> pd.DataFrame:
    """Compare reported means and sds with exact ones that have Monte Carlo errors.

    Returns
    -------
    DataFrame
        ``mean`` and ``sd`` as reported; ``exact_mean`` and ``exact_sd``; ``shift``, the first mean
        less the second, in reported sds; ``sd_ratio``, the first sd over the second;
        ``shift_error`` and ``sd_ratio_error``, their Monte Carlo errors.
    """
    scale = reported["sd"].where(reported["sd"] > 0, 1.0)
    exact_sd = exact["sd"].where(exact["sd"] > 0)
    ratio = (reported["sd"] / exact_sd).fillna(1.0)  # both are 0
    return reported.assign(
        exact_mean=exact["mean"],
        exact_sd=exact["sd"],
        shift=(reported["mean"] - exact["mean"]) / scale,
        shift_error=error["mean"] / scale,
        sd_ratio=ratio,
        sd_ratio_error=ratio * (error["sd"] / exact_sd).fillna(0.0),
    )


def _sizes(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors of ``means`` and ``sds``, and three Monte Carlo errors of each."""
    sizes = pd.DataFrame({"means": table["shift"].abs(), "sds": (table["sd_ratio"] - 1).abs()})
    return sizes, ERRORS * table[["shift_error", "sd_ratio_error"]].set_axis(
        ["means", "sds"], axis=1
    )


def off(table: pd.DataFrame) -> pd.DataFrame:
    """Mask of ``means`` and ``sds`` that are off by more than the tolerance and their errors."""
    sizes, errors = _sizes(table)
    return ~(sizes - errors <= TOLERANCE)  # NaN is off


def _verdict(table: pd.DataFrame) -> Literal["good", "undecided", "doubtful"]:
    """Verdict on a table of `comparison`."""
    sizes, errors = _sizes(table)
    if off(table).any(axis=None):
        return "doubtful"
    return "good" if (sizes + errors <= TOLERANCE).all(axis=None) else "undecided"


def certify(
    posterior: Posterior | RelationPosterior, num_samples: int = 4000, rng_key: Any = None
) -> Certificate:
    """Check by importance weights whether a posterior agrees with the exact one.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        A posterior from EP or Laplace is checked at its hyperparameters, a mixture over
        hyperparameters as a proposal for hyperparameters and latent vector together (of a sample
        of hyperparameters by 25), samples by the agreement of their chains. One from `Exact` is
        exact.
    num_samples : int
        Draws to be weighted, at least 100, in antithetic pairs. Up to 16 times as many are drawn
        until the verdict is decided, or until more draws of the same components of a mixture do
        not reduce the errors.
    rng_key : JAX key or int, optional
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
    Weights vary more in more dimensions, even where every margin is right: with hundreds of items
    they may fail although EP is right. Compare with NUTS then, see `check`.

    Where a fit averages over points of the hyperparameters, the posterior at each point and the
    points' weights are checked, not whether the points are enough: `check` shows that.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> relpref.diagnostics.certify(posterior).verdict in ("good", "undecided")
    True
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
    table, before = None, np.inf
    with threads_for(posterior.belief.size):
        for weighted in weighted_draws(posterior, num_samples, posterior._rng(rng_key)):
            log_weights = weighted.log_weights
            if np.all(np.isfinite(log_weights)) and np.std(log_weights) < _EQUAL:
                number, mean = len(log_weights), float(np.mean(log_weights))
                numbers = {"ess": float(number), "num_samples": number, "log_evidence": mean}
                return Certificate._of("exact weights", numbers)
            table = (
                comparison(posterior.reported(), *weighted.moments(posterior))
                if weighted.reliable
                else None
            )
            if table is None:
                continue
            error = float(
                np.sqrt(np.square(table[["shift_error", "sd_ratio_error"]]).mean(axis=None))
            )
            # Errors that do not fall come from the choice of components, not from their draws.
            exhausted = len(weighted.values) > 1 and error > _FALLEN * before
            if _verdict(table) != "undecided" or exhausted:
                break
            before = error
    facts: dict[str, Any] = {
        "k_hat": float(weighted.smoothed.k_hat),
        "ess": float(weighted.smoothed.ess),
        "num_samples": len(weighted.log_weights),
        "table": table,
        "log_evidence": weighted.log_evidence,
    }
    return _of_weights(posterior, table, facts)


def _of_draws(posterior: Posterior) -> Certificate:
    """Certificate of samples, by the agreement of their chains."""
    draws, chains = posterior.full.locations, posterior.chains
    r_hat, ess = convergence(by_chain(draws, chains))
    still = int(np.sum(np.ptp(draws, axis=0) == 0))
    case = "failed stuck" if still else "doubtful chain" if chains == 1 else "good chains"
    if not still and not np.isfinite(r_hat):
        case = "failed few"
    elif not still and not (r_hat <= _AGREE and ess >= _ENOUGH):
        case = "failed chains" if r_hat > _DISAGREE else "doubtful chains"
    number, size = draws.shape
    facts = f"R-hat {r_hat:.3f}, {ess:.0f} effective draws of {number}"
    words = {"facts": facts, "chains": chains, "still": still, "size": size, "number": number}
    return Certificate._of(case, {"ess": ess, "num_samples": number}, **words)


def _of_weights(
    posterior: Posterior, table: pd.DataFrame | None, numbers: dict[str, Any]
) -> Certificate:
    """Certificate by importance weights; ``table`` is None if they are unreliable."""
    k_hat, ess, number = (numbers[name] for name in ("k_hat", "ess", "num_samples"))
    facts = f"k-hat {k_hat:.2f}, {ess:.0f} effective draws of {number}"
    if table is None:
        size = posterior.full.size
        many = f"which with {size} dimensions happens even where every mean and sd is right"
        cause = many if size > _MANY else "which may be right or wrong"
        words = {"cause": cause, "facts": facts, "limit": threshold(number), "least": MIN_EFFECTIVE}
        return Certificate._of(
            f"{'doubtful' if k_hat <= 1 else 'failed'} reliability", numbers, **words
        )
    # Weights say nothing about hyperparameters that were never drawn.
    r_hat, drawn = posterior.r_hat, posterior.effective_draws
    if r_hat is not None and drawn is not None and not (r_hat <= UNMIXED and drawn >= _MIN_DRAWS):
        case = f"{'doubtful' if r_hat <= UNMIXED else 'failed'} hyperparameters"
        facts = f"R-hat {r_hat:.3f}, {drawn:.0f} effective draws of the hyperparameters"
        return Certificate._of(case, numbers, facts=facts, least=_MIN_DRAWS)
    engine, at = posterior.engine, " at its hyperparameters"
    if posterior.hyperparameter_draws:
        held = ", ".join(posterior.info.get("held", ()))
        which = f"hyperparameters other than {held}" if held else "hyperparameters"
        engine, at = f"{engine}, averaged over hyperparameters,", f", {which} included,"
    shifts, ratios = table["shift"].abs(), table["sd_ratio"]
    worst = int(np.argmax(shifts.to_numpy()))
    label = row_name(shifts.index[worst], ", ")
    ends = dict.fromkeys(f"{end:.2f}" for end in (ratios.min(), ratios.max()))
    return Certificate._of(
        f"{_verdict(table)} weights",
        numbers,
        engine=engine,
        at=at,
        largest=f"{max(shifts.iloc[worst], 0.01):.2f} posterior sd ({label})",
        ratios=f"sds are {' to '.join(ends)} times the exact ones",
        facts=facts,
    )
