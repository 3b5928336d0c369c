"""What a certificate says, in numbers and in a sentence."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.diagnostics.psis import convergence, threshold
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.search import UNMIXED
from relpref.posterior.base import Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.gaussian import Belief, DrawsBelief, MixtureBelief
from relpref.posterior.utility import UtilityPosterior, objects

Verdict = Literal["exact", "good", "undecided", "doubtful", "failed"]

# A posterior is called right where every mean is known to be off by at most a tenth of a posterior sd and every sd by at most a tenth:
# with three Monte Carlo errors on either side. It is called wrong where one is off by more, and they do not reach back.
TOLERANCE, ERRORS = 0.1, 3.0


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a posterior is as an approximation of the exact one.

    Attributes
    ----------
    verdict : {"exact", "good", "undecided", "doubtful", "failed"}
        "exact": nothing is approximated. "good": shown to be right, within the tolerance. "undecided": the weights can be relied on, but
        their Monte Carlo errors reach over the tolerance after all draws. "doubtful": the weights can be relied on and show that something is
        off, or they are at the border of what can be relied on. "failed": nothing can be said, or worse, draws disagree; that alone does not show that the
        posterior is wrong, see ``sentence``.
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
        Where the weights can be relied on, see `comparison`; the exact posterior by reweighting. By entity (relative to the average of all), by
        example for classifiers, by site and position otherwise.
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
    ratio = (reported["sd"] / exact["sd"].where(exact["sd"] > 0)).fillna(1.0)  # where nothing is uncertain
    return reported.assign(
        exact_mean=exact["mean"],
        exact_sd=exact["sd"],
        shift=(reported["mean"] - exact["mean"]) / scale,
        shift_error=error["mean"] / scale,
        sd_ratio=ratio,
        sd_ratio_error=ratio * (error["sd"] / exact["sd"].where(exact["sd"] > 0)).fillna(0.0),
    )


def off(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Which means and which sds are off by more than the tolerance, beyond their Monte Carlo errors."""
    means = table["shift"].abs() <= TOLERANCE + ERRORS * table["shift_error"]
    sds = (table["sd_ratio"] - 1).abs() <= TOLERANCE + ERRORS * table["sd_ratio_error"]
    return ~means, ~sds  # what cannot be computed is off


def is_open(table: pd.DataFrame) -> bool:
    """Whether for some mean or sd the Monte Carlo errors reach over the tolerance, and no other is off."""
    means = table["shift"].abs() + ERRORS * table["shift_error"] <= TOLERANCE
    sds = (table["sd_ratio"] - 1).abs() + ERRORS * table["sd_ratio_error"] <= TOLERANCE
    return not (means.all() and sds.all()) and not any(wrong.any() for wrong in off(table))


def called(label: Any) -> str:
    """The label of a row as it is said in a sentence."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def moments(posterior: Posterior, belief: Belief, entities: NDArray[np.intp] | None = None) -> pd.DataFrame:
    """``mean`` and ``sd`` of what people look at, if a belief took the place of the posterior's own.

    Of utilities less their average, by entity; of a classifier's latent functions, by example (and by class, where there are more than
    two); of another program's Gaussian sites, by site and position. A belief about utilities may be one about some entities only.
    """
    if isinstance(posterior, UtilityPosterior):
        labels = objects(posterior.data.entities)
        index = pd.Index(labels if entities is None else labels[entities], name="entity", tupleize_cols=False)
        centred = belief.centred()
        return pd.DataFrame({"mean": centred.mean(), "sd": centred.sd()}, index=index)
    if isinstance(posterior, ClassPosterior):
        table = replace(posterior, belief=belief).latent()
        return table if table.columns.nlevels == 1 else table.stack(level=1, future_stack=True)
    places = [(site, row) for site, rows in posterior.slices.items() for row in range(rows.stop - rows.start)]
    order = np.concatenate([np.arange(rows.start, rows.stop) for rows in posterior.slices.values()])
    index = pd.MultiIndex.from_tuples(places, names=["site", "position"])
    return pd.DataFrame({"mean": belief.mean()[order], "sd": belief.sd()[order]}, index=index)


LEAST = 100  # effective draws: below, a tail that looks light may look so by luck
_MANY = 600  # dimensions from which weights often fail of themselves
_AGREE, _ENOUGH = 1.01, 400  # R-hat and effective draws that can be relied on (Vehtari et al. 2021)
_DISAGREE = 1.05
_FEW = 50  # effective draws of the hyperparameters, over which a posterior is only averaged
CHECK = "compare with NUTS instead (relpref check, or relpref.diagnostics.check)"


def exact_algebra(posterior: RelationPosterior) -> Certificate:
    result = posterior.result
    if not result.ok:
        return Certificate(
            "failed", f"The engine did not finish, so the posterior is not the exact one: {result.value}"
        )
    return Certificate(
        "exact",
        "The posterior is exact: prior and noise are Gaussian, so it was solved for and not approximated "
        f"(solver {posterior.solver}).",
    )


def prior_alone() -> Certificate:
    return Certificate("exact", "There are no answers, so the posterior is the prior, which is exact.")


def same_weights(number: int, log_evidence: float) -> Certificate:
    return Certificate(
        "exact",
        "Every draw has the same weight: at its hyperparameters this posterior is the exact one.",
        ess=float(number),
        num_samples=number,
        log_evidence=log_evidence,
    )


def unusable(posterior: Posterior) -> Certificate:
    """Where the engine found no posterior."""
    return Certificate("failed", f"There is no posterior to certify: {posterior.result.value}")


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
    engine = posterior.engine
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
    r_hat, ess = posterior.r_hat, posterior.effective_draws
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
