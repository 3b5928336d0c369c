"""The next questions."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.messages import listed, shown
from relpref.errors import DataError
from relpref.explore.questions.candidates import narrowed
from relpref.explore.questions.limits import Asked, Limits, whole_number
from relpref.explore.questions.screen import screened
from relpref.explore.questions.select import best
from relpref.explore.scores import DEFAULT, SCORES
from relpref.explore.scores.answers import Answers
from relpref.explore.scores.gap_scores import Score, State
from relpref.explore.scores.gaps import Belief
from relpref.infer import UtilityPosterior
from relpref.infer.belief import generator
from relpref.infer.prediction import expectations, of_one_rater, questions
from relpref.infer.ranks import objects

_MOVES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def next_pairs(
    posterior: UtilityPosterior,
    k: int = 1,
    *,
    score: str | Score = DEFAULT,
    entities: Iterable[Any] | None = None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    repeats: int = 0,
    most_appearances: int | None = None,
    hardest: float | None = None,
    rater: Any = None,
    avoid: Iterable[tuple[Any, Any]] = (),
    key: Any = None,
) -> pd.DataFrame:
    """The next questions to ask, best first.

    Parameters
    ----------
    posterior : UtilityPosterior
    k : int
        How many. The members of a batch account for each other: each is chosen as if those before it had been answered, with the
        covariance that is then expected.
    score : str or Score
        One of `SCORES` by name, or an instance, such as ``TopK(10)``.
    entities : iterable of labels, optional
        Ask about these only.
    pairs : iterable of (label, label), optional
        Ask about these pairs only.
    repeats : int
        How often a pair may be asked again; 0 for never one that was answered, by whomever.
    most_appearances : int, optional
        An entity that was in so many answers is not asked about again.
    hardest : float, optional
        Pairs whose preference probability is nearer than that to one half are left out: people tire of them. 0.02 leaves out
        those between 0.48 and 0.52, a tie counting one half.
    rater : label, optional
        Who is asked; a typical rater by default.
    avoid : iterable of (label, label)
        Pairs that are not to be asked now, for example because they were skipped.
    key : JAX key or int, optional
        For ties between scores; the posterior's own by default.

    Returns
    -------
    DataFrame
        ``first``, ``second``, ``score``; and, as in `UtilityPosterior.prefer`, ``probability``, ``gap_mean`` and ``gap_sd`` by what is
        known now. Fewer than k rows where fewer pairs are left, none where none is.

    Raises
    ------
    UnknownLabelError
        If a label is no entity, or the rater never answered.
    DataError
        If an argument cannot be used.
    """
    limits = Limits(entities, pairs, repeats, most_appearances, hardest, avoid)
    chosen = plan(posterior, k, score, limits, rater, key)
    return _table(chosen.posterior, rater, chosen.questions)


class Plan(NamedTuple):
    """Questions, best first, and what is believed before and, as is to be expected, after their answers.

    Attributes
    ----------
    posterior : UtilityPosterior
        Of the entities that were looked at, to which positions refer.
    questions : list of (position, position, score)
    before : Belief
    answers : Answers
    left : int
        Questions that may be asked, these among them; more than these only where there are as many as were wanted.
    """

    posterior: UtilityPosterior
    questions: list[tuple[int, int, float]]
    before: Belief
    answers: Answers
    left: int

    def beliefs(self) -> Iterator[Belief]:
        """Before any answer, after the first, and so on to after the last."""
        belief = self.before
        yield belief
        for first, second, _ in self.questions:
            belief = _answered(self.before, belief, self.answers, first, second)
            yield belief


def plan(
    posterior: UtilityPosterior, k: int, score: str | Score, limits: Limits, rater: Any, key: Any
) -> Plan:
    """Choose k questions one after the other, each as if those before it had been answered; arguments as in `next_pairs`."""
    chosen_by = score_of(score)
    whole_number("k", k, 1)
    rng = posterior._rng(None) if key is None else generator(key)
    posterior, limits, often = narrowed(posterior, limits, rng)
    asked = Asked(posterior.data, limits, often)
    left = asked.left()
    answers = answers_of(posterior, rater)
    now = belief = belief_of(posterior)
    found: list[tuple[int, int, float]] = []
    while len(found) < k:
        if found:
            belief = _answered(now, belief, answers, *found[-1][:2])
        pool = asked.pool()
        if pool.listed is None:
            pool = replace(pool, members=screened(pool.members, belief, chosen_by, rng))
        state = State(belief, now, answers, pool)
        gaps, values = best(state, chosen_by.scorer(state), limits.hardest, rng)
        if not len(values):
            break
        first, second = int(gaps.first[0]), int(gaps.second[0])
        found.append((first, second, float(values[0])))
        asked.add(first, second)
    return Plan(posterior, found, now, answers, left if len(found) == k else len(found))


def _answered(before: Belief, belief: Belief, answers: Answers, first: int, second: int) -> Belief:
    """With the covariance that is expected after one more answer.

    Answers between ``before`` and ``belief`` will have moved the gap's mean; how far is known in distribution: N(m, v_before − v).
    """
    then, now = (each.gaps(np.array([first]), np.array([second])) for each in (before, belief))
    moved = then.mean + np.sqrt(np.maximum(then.variance - now.variance, 0.0)) * _MOVES
    shrinkage = answers.forecast(moved, np.broadcast_to(now.variance, moved.shape)).shrinkage
    return belief.after(first, second, float(_WEIGHTS @ shrinkage))


def score_of(score: str | Score) -> Score:
    """The score that is meant.

    Raises
    ------
    DataError
        If there is no such score.
    """
    if isinstance(score, str) and score in SCORES:
        return SCORES[score]()
    if isinstance(score, type) or not isinstance(score, Score):
        raise DataError(
            f"score is {shown(score)}; name one of {', '.join(SCORES)}, or give an instance of a score"
        )
    return score


def belief_of(posterior: UtilityPosterior) -> Belief:
    """Its moments.

    Raises
    ------
    DataError
        If they are no numbers, because the engine found none.
    """
    mean, covariance = posterior.belief.mean(), posterior.belief.covariance()
    if not np.all(np.isfinite(mean)) or not np.all(np.isfinite(np.diagonal(covariance))):
        raise DataError(
            f"the posterior has no numbers to choose a question by ({posterior.info['result']}); fit it again first"
        )
    return Belief(mean, covariance)


def answers_of(posterior: UtilityPosterior, rater: Any = None) -> Answers:
    """What an answer of a rater tells, at the posterior's hyperparameters."""
    first, second = np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.int32)
    asked = questions(posterior.data, first, second, rater, None)
    names = posterior.likelihood.parameters(posterior.data.comparisons)
    missing = [name for name in names if name not in posterior.hyperparameters]
    if missing:
        raise DataError(
            f"the posterior has no hyperparameter {listed(missing)}, so nobody knows what an answer would tell; "
            "use a program of relpref.models, or leave the columns of answers out that it belongs to"
        )
    parameters = {name: posterior.hyperparameters[name] for name in names}
    return Answers(posterior.likelihood, *of_one_rater(asked, parameters)).shared()


def _table(posterior: UtilityPosterior, rater: Any, found: list[tuple[int, int, float]]) -> pd.DataFrame:
    first, second = (np.array([row[side] for row in found], dtype=np.int32) for side in (0, 1))
    labels = posterior.data.entities
    table = pd.DataFrame(
        {"first": objects(labels[i] for i in first), "second": objects(labels[i] for i in second)}
    )
    table["score"] = np.array([row[2] for row in found], dtype=np.float64)
    columns = dict.fromkeys(("probability", "gap_mean", "gap_sd"), np.zeros(0))
    if found:
        margins = posterior.belief.differences(first, second)
        asked = questions(posterior.data, first, second, rater, None)
        known = posterior.data.comparisons
        expected = expectations(posterior, posterior.likelihood, known, asked, margins)
        columns = {"probability": expected["probability"], "gap_mean": margins.mean, "gap_sd": margins.sd}
    return table.assign(**columns)
