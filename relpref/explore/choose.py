"""The next questions."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.messages import listed, shown
from relpref.errors import DataError
from relpref.explore.answers import Answers
from relpref.explore.gap_scores import Score, State
from relpref.explore.gaps import Belief, Pool, Positions
from relpref.explore.scores import DEFAULT, SCORES
from relpref.explore.screen import screened
from relpref.explore.select import best
from relpref.infer import UtilityPosterior
from relpref.infer.belief import generator
from relpref.infer.prediction import expectations, questions
from relpref.infer.ranks import objects, pairs_of_labels


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
    chosen_by = score_of(score)
    _check(k, repeats, most_appearances, hardest)
    rng = posterior._rng(None) if key is None else generator(key)
    asked = _Asked(posterior, repeats, most_appearances)
    members = _members(posterior, entities)
    wanted = None if pairs is None else _positions(posterior, pairs, "pairs")
    avoided = _positions(posterior, avoid, "avoid")
    answers = answers_of(posterior, rater)
    now = belief = belief_of(posterior)
    found: list[tuple[int, int, float]] = []
    while len(found) < k:
        willing = asked.willing(members)
        if wanted is None:
            willing = screened(willing, belief, chosen_by, rng)
        pool = Pool(willing, np.concatenate([asked.closed(), avoided], axis=1), wanted)
        state = State(belief, now, answers, pool)
        gaps, values = best(state, chosen_by.scorer(state), hardest, rng)
        if not len(values):
            break
        first, second = int(gaps.first[0]), int(gaps.second[0])
        found.append((first, second, float(values[0])))
        if len(found) < k:
            asked.add(first, second)
            shrinkage = float(answers.forecast(gaps.mean[:1], gaps.variance[:1]).shrinkage[0])
            belief = belief.after(first, second, shrinkage)
    return _table(posterior, rater, found)


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
    return Answers(posterior.likelihood, asked, parameters).shared()


class _Asked:
    """How often each pair and each entity was asked about, with the questions of a batch."""

    def __init__(self, posterior: UtilityPosterior, repeats: int, most_appearances: int | None) -> None:
        known = posterior.data.comparisons
        self._number = posterior.data.num_entities
        self._repeats, self._most = repeats, most_appearances
        low, high = np.minimum(known.winner, known.loser), np.maximum(known.winner, known.loser)
        codes = low.astype(np.int64) * self._number + high
        self._codes, where = np.unique(codes, return_inverse=True)
        self._times = np.bincount(where, weights=known.count, minlength=len(self._codes))
        ends = np.concatenate([known.winner, known.loser])
        self._appearances = np.bincount(ends, weights=np.tile(known.count, 2), minlength=self._number)

    def closed(self) -> Positions:
        """Pairs that were asked too often, shape (2, c)."""
        return np.stack(np.divmod(self._codes[self._times > self._repeats], self._number))

    def willing(self, members: Positions) -> Positions:
        """Those of the members that were not in too many answers."""
        return members if self._most is None else members[self._appearances[members] < self._most]

    def add(self, first: int, second: int) -> None:
        """A question of a batch."""
        code = min(first, second) * self._number + max(first, second)
        place = int(np.searchsorted(self._codes, code))
        if place == len(self._codes) or self._codes[place] != code:
            self._codes = np.insert(self._codes, place, code)
            self._times = np.insert(self._times, place, 0)
        self._times[place] += 1
        self._appearances[[first, second]] += 1


def _members(posterior: UtilityPosterior, entities: Iterable[Any] | None) -> Positions:
    if entities is None:
        return np.arange(posterior.data.num_entities)
    if isinstance(entities, str):
        raise DataError(f"entities is the text {shown(entities)}; give a list of labels, [{shown(entities)}]")
    return np.unique(posterior.data.index(list(entities))).astype(np.int64)


def _positions(posterior: UtilityPosterior, pairs: Iterable[Any], name: str) -> Positions:
    """Distinct pairs of positions, the lower first, shape (2, p)."""
    labels = pairs_of_labels(pairs)
    ends = [posterior.data.index([pair[side] for pair in labels]).astype(np.int64) for side in (0, 1)]
    same = np.flatnonzero(ends[0] == ends[1])
    if len(same):
        raise DataError(
            f"{name}[{same[0]}] compares {shown(labels[same[0]][0])} with itself; name two entities"
        )
    return np.unique(np.sort(np.stack(ends), axis=0), axis=1)


def _check(k: int, repeats: int, most_appearances: int | None, hardest: float | None) -> None:
    for name, value, least in (
        ("k", k, 1),
        ("repeats", repeats, 0),
        ("most_appearances", most_appearances, 1),
    ):
        if value is None and name == "most_appearances":
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise DataError(f"{name} is {shown(value)}; give a whole number, {least} or more")
    if hardest is not None and not 0 <= hardest < 0.5:
        raise DataError(
            f"hardest is {hardest!r}; it is the distance of a probability from one half, at least 0 and below 0.5, such as 0.02"
        )


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
