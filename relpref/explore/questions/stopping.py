"""What further answers are worth, and why a question is asked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, owens_t

from relpref.data.messages import counted, shown
from relpref.errors import DataError
from relpref.explore.questions.choose import plan, score_of
from relpref.explore.questions.limits import Limits, whole_number
from relpref.explore.scores import DEFAULT
from relpref.explore.scores.gap_scores import Score
from relpref.explore.scores.gaps import Belief, Pool
from relpref.infer import UtilityPosterior
from relpref.infer.belief import Floats, generator

_MOST_ENTITIES = 1000  # of which all pairs are looked at; of more, so many are drawn


@dataclass(frozen=True)
class Worth:
    """What further answers are expected to do to the share of pairs that are in the wrong order.

    Attributes
    ----------
    answers : int
        How many; fewer than asked for where fewer questions are left.
    wrong_now, wrong_after : float
        Expected share of the pairs whose order, by the posterior means, is wrong; between 0 and 1/2.
    everybody : bool
        Whether all entities' pairs are meant; of too many for a matrix those of the candidates are, see `next_pairs`.
    """

    answers: int
    wrong_now: float
    wrong_after: float
    everybody: bool = True

    @property
    def gain(self) -> float:
        """By how much the share falls."""
        return self.wrong_now - self.wrong_after

    @property
    def sentence(self) -> str:
        """In words."""
        pairs = "all pairs" if self.everybody else "the candidates' pairs"
        now = f"About {self.wrong_now:.1%} of {pairs} are expected to be in the wrong order"
        if not self.answers:
            return f"{now}; no question is left to ask."
        return (
            f"{now}; {counted(self.answers, 'more answer')} would bring that to about {self.wrong_after:.1%}."
        )

    def enough(self, threshold: float = 0.005) -> bool:
        """Whether to stop: the answers together are expected to put less than this share of all pairs right.

        Parameters
        ----------
        threshold : float
            Between 0 and 1.

        Raises
        ------
        DataError
            If it is not.
        """
        if not 0 <= threshold <= 1:
            raise DataError(f"threshold is {threshold!r}; it is a share of all pairs, such as 0.005")
        return self.gain < threshold or not self.answers


def worth(
    posterior: UtilityPosterior,
    answers: int = 10,
    *,
    score: str | Score = DEFAULT,
    rater: Any = None,
    key: Any = None,
    **limits: Any,
) -> Worth:
    """Say what further answers are worth.

    Parameters
    ----------
    posterior : UtilityPosterior
    answers : int
        How many further answers.
    score : str or Score
        How their questions are chosen.
    rater : label, optional
        Who answers; a typical rater by default.
    key : JAX key or int, optional
        For ties between scores, and for the 1000 entities whose pairs stand for all where there are more; the posterior's own by
        default.
    **limits
        What may be asked, as in `next_pairs`.

    Returns
    -------
    Worth

    Notes
    -----
    With gap mean m and variance v now and v' after the answers, the mean then is N(m, v − v'), seen from now. That it then is on the
    wrong side of 0 has the probability ``2 T(|m|/√v, √(v'/(v − v')))``, T Owen's function; before any answer, with v' = v,
    this is ``Φ(−|m|/√v)``. The answers are those of a batch: questions that are chosen answer by answer may do better. In simulations
    that start from some answers the share after 20 or 30 more comes out within 1 % of itself, before any answer up to 11 % too high.

    Raises
    ------
    DataError, UnknownLabelError
        As `next_pairs`.
    """
    whole_number("answers", answers, 1)
    chosen = plan(posterior, answers, score, Limits(**limits), rater, key)
    n = len(chosen.before.mean)
    everyone = np.arange(n)
    if n > _MOST_ENTITIES:
        rng = posterior._rng(None) if key is None else generator(key)
        everyone = np.sort(rng.choice(n, _MOST_ENTITIES, replace=False))
    now, after = wrong_shares(chosen.before, chosen.after, Pool(everyone, np.zeros((2, 0), dtype=np.int64)))
    everybody = chosen.posterior.data.num_entities == posterior.data.num_entities
    return Worth(len(chosen.questions), now, after, everybody)


def wrong_shares(before: Belief, after: Belief, pool: Pool) -> tuple[float, float]:
    """Expected share of the pool's pairs in the wrong order, by the means before and by those after more answers."""
    now, then, number = 0.0, 0.0, 0
    for (gaps, closed), (left, _) in zip(pool.blocks(before), pool.blocks(after), strict=True):
        open_ = np.ones(gaps.mean.size, dtype=bool)
        open_[closed] = False
        mean, variance, rest = (x.ravel()[open_] for x in (gaps.mean, gaps.variance, left.variance))
        now += float(_wrong(mean, variance).sum())
        then += float(_wrong_after(mean, variance, rest).sum())
        number += len(mean)
    return (now / number, then / number) if number else (0.0, 0.0)


def why(posterior: UtilityPosterior, first: Any, second: Any, score: str | Score = DEFAULT) -> str:
    """Say why a question is asked, to the one who is asked.

    Parameters
    ----------
    posterior : UtilityPosterior
    first, second : label
    score : str or Score
        By which the question was chosen.

    Returns
    -------
    str
        Two sentences.

    Raises
    ------
    UnknownLabelError
        If a label is no entity.
    """
    reason = score_of(score).reason
    found = posterior.prefer([(first, second)]).iloc[0]
    better = float(found["p_better"])
    if abs(better - 0.5) < 0.05:
        known = "So far nothing tells which of the two is the better"
    else:
        label = first if better > 0.5 else second
        known = f"So far {shown(label)} is thought to be the better with a probability of {max(better, 1 - better):.0%}"
    return f"{known}. This pair was chosen because {reason}."


def _wrong(mean: Floats, variance: Floats) -> Floats:
    """Φ(−|m|/√v); two that are the same to the model are in no order that could be wrong."""
    sd = np.sqrt(variance)
    z = np.divide(np.abs(mean), sd, out=np.full(sd.shape, np.inf), where=sd > 0)
    return np.asarray(ndtr(-z))


def _wrong_after(mean: Floats, variance: Floats, rest: Floats) -> Floats:
    """The same after answers that leave the variance v', averaged over what they could be."""
    sd = np.sqrt(variance)
    learned = np.maximum(variance - rest, 0.0)
    z = np.divide(np.abs(mean), sd, out=np.full(sd.shape, np.inf), where=sd > 0)
    slope = np.divide(rest, learned, out=np.full(sd.shape, np.inf), where=learned > 0)
    # Sheppard's formula is the case m = 0.
    return np.where(np.isfinite(z), 2 * owens_t(np.where(np.isfinite(z), z, 0.0), np.sqrt(slope)), 0.0)
