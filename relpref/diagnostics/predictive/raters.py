"""Who answers otherwise than the others would lead one to expect."""

import numpy as np
import pandas as pd
from scipy.stats import pearson3

from relpref.diagnostics.predictive.leave_one_out import left_out
from relpref.errors import DataError
from relpref.infer import Posterior, UtilityPosterior
from relpref.infer.belief import Floats
from relpref.infer.large.answered import answered
from relpref.infer.ranks import objects
from relpref.infer.refit import engine_again

NOISE = "rater_noise"


def raters(posterior: Posterior, *, false_alarms: float = 0.01) -> pd.DataFrame:
    """How well each rater's answers are predicted by all the others, beside how well those of a usual rater would be.

    Parameters
    ----------
    posterior : UtilityPosterior
        As for `leave_one_out`, of answers with raters.
    false_alarms : float
        Probability that anybody at all is said to be at odds where all raters are alike, as it would be if the model were known; where
        noises are fitted it is two to three times that, see Notes.

    Returns
    -------
    DataFrame
        By rater, those most at odds first: ``answers``; ``log_loss``, the average of −log probability of each answer without it;
        ``expected``, what it would be on average, and ``sd``, its standard deviation, if the answers came from the model; ``z``, the
        difference in those; ``p_value``, of a log loss as high as that; ``at_odds``, whether that is below ``false_alarms`` divided by
        the number of raters (Bonferroni). Where raters have a noise of their own it is in ``noise``, and all are judged by the median of
        them: else who answers at random would be expected to.

    Raises
    ------
    DataError
        If the answers do not say who gave them, or it is not known what they could have been.
    UnsupportedProgramError
        As for `leave_one_out`.

    Notes
    -----
    Each answer's log loss has a known distribution given the others'; those of a rater are added up as if they were independent, and the
    tail of the sum is that of a Pearson distribution of type III with its mean, variance and skewness. A rater with few answers can
    be at odds only by very improbable ones. Other answers of the same rater stay: of one who gave most of the answers to an entity,
    they agree with each other (`k_fold` with ``by="rater"`` leaves them out together).

    Where everybody's noise is fitted the median of them is itself uncertain, and a little low. With eight equal raters of 25 answers
    each, 15 of 613 simulated tables (2.4 %) had somebody at odds at ``false_alarms=0.01``, and 7 at 0.003; with one of the eight at random or contrary,
    no other rater was in 219.
    """
    if not 0 < false_alarms < 1:
        raise DataError(f"false_alarms is {false_alarms}; it is a probability, such as 0.01")
    answers = posterior.data.comparisons if isinstance(posterior, UtilityPosterior) else None
    rater = None if answers is None else answers.rater
    if answers is None or rater is None:
        raise DataError("the answers do not say who gave them; fit answers with a column rater")
    posterior = answered(posterior)
    noise = posterior.hyperparameters.get(NOISE)
    usual = {} if noise is None else {NOISE: np.full(np.shape(noise), np.median(noise))}
    left = left_out(posterior, usual)
    origin = posterior.origin
    if (
        np.isnan(left.predictive.moments).any()
        and posterior.hyperparameter_draws
        and origin
        and origin.engine
    ):
        # The scores of numbers have known moments in one Gaussian only: that at the averages of the hyperparameters.
        engine = engine_again(origin, fixed=posterior.hyperparameters)
        alone = engine.run_from(None, posterior.key, *origin.args, progress_bar=False, **origin.kwargs)
        left = left_out(alone, usual)
    loss, moments = -left.log_score, left.predictive.moments
    if np.isnan(moments).any():
        raise DataError(
            "nobody knows what the answers could have been: the likelihood is one of its own, or the posterior is a sample"
        )

    def total(values: Floats) -> Floats:
        sums = np.bincount(rater, weights=answers.count * values, minlength=len(answers.raters))
        return np.asarray(sums, dtype=np.float64)

    number = total(np.ones_like(loss))
    observed, expected = total(loss), -total(moments[0])
    variance, third = total(moments[1]), -total(moments[2])
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(variance)
        z = np.where(sd > 0, (observed - expected) / sd, 0.0)
        p_value = np.where(sd > 0, pearson3.sf(z, np.where(sd > 0, third / sd**3, 0.0)), 1.0)
        columns = {
            "answers": number.astype(int),
            "log_loss": observed / number,
            "expected": expected / number,
            "sd": sd / number,
            "z": z,
            "p_value": p_value,
            "at_odds": p_value < false_alarms / len(number),
        }
    if noise is not None:
        columns["noise"] = np.broadcast_to(noise, number.shape)
    index = pd.Index(objects(answers.raters), name="rater", tupleize_cols=False)
    table = pd.DataFrame(columns, index=index)
    return table[number > 0].sort_values("p_value", kind="stable")
