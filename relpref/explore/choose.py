"""Choice of the next questions: the pairs that may be asked, and the best of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref import limits as sizes
from relpref.data import PreferenceData
from relpref.data.arrays import counted, listed, shown
from relpref.data.tables import as_table, is_table
from relpref.errors import DataError
from relpref.explore.forecast import (
    AnswerForecast,
    Belief,
    Floats,
    Gaps,
    Pool,
    Positions,
    Singles,
    shared,
)
from relpref.explore.scores import DEFAULT, Score, Scorer, State
from relpref.infer import UtilityPosterior
from relpref.infer.large.problem import touched
from relpref.posterior.gaussian import Margins
from relpref.posterior.tables import (
    expectations,
    of_its_raters,
    pairs_of_labels,
    preference_table,
    questions,
    sites_of_answers,
)
from relpref.registry import find, names

_MEAN_ITEMS = 128  # random items whose average utility estimates that of all
# Scores with a smaller relative difference are tied, because rounding must not choose the question.
# Quick scores may be in single precision.
_TIE, _QUICK_TIE = 1e-9, 3e-7
# Gauss-Hermite rule for averages over a standard normal variable.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Attributes that every score has.
_OF_A_SCORE = ("name", "reason", "about_the_best", "max_items", "scorer")


@dataclass(frozen=True)
class Limits:
    """Limits on questions, see `next_pairs`; raises DataError for invalid ones."""

    items: Iterable[Any] | None = None
    pairs: Any = None
    repeats: int = 0
    most_appearances: int | None = None
    max_wrong: float | None = None
    avoid: Any = ()

    def __post_init__(self) -> None:
        for name, pairs in (("pairs", self.pairs), ("avoid", self.avoid)):
            if pairs is not None:
                object.__setattr__(self, name, _labels(name, pairs))
        whole_number("repeats", self.repeats, 0)
        if self.most_appearances is not None:
            whole_number("most_appearances", self.most_appearances, 1)
        if isinstance(self.items, str):
            text = shown(self.items)
            raise DataError(f"items is the text {text}; give a list of labels, [{text}]")
        if self.max_wrong is not None and not 0 < self.max_wrong <= 0.5:
            raise DataError(
                f"max_wrong is {self.max_wrong!r}; give a probability above 0 and at most 0.5, "
                "such as 0.48"
            )


def _labels(name: str, pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Read pairs of labels; raise DataError for a table with more than its two item columns."""
    if is_table(pairs) and len(columns := list(as_table(pairs, name).frame)) > 2:
        raise DataError(
            f"{name} is a table with the columns {listed(columns)}; a question is chosen by its "
            "two items alone, so give a table of these two columns"
        )
    return pairs_of_labels(pairs)


def whole_number(name: str, value: Any, least: int) -> None:
    """Raise DataError unless a value is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{name} is {shown(value)}; give a whole number, {least} or more")


def appearances(data: PreferenceData) -> Floats:
    """Number of answers about each item, with their repeats, shape (n,)."""
    ends = np.concatenate([data.winner, data.loser])
    counts = np.bincount(ends, weights=np.tile(data.count, 2), minlength=data.num_items)
    return np.asarray(counts, np.float64)


class Asked:
    """Counts of answers by pair and by item, each question of the current batch counted as one.

    They decide which pairs may still be asked. ``often``, shape (n,), replaces the counts by item
    if ``data`` has only some of the answers.
    """

    def __init__(self, data: PreferenceData, limits: Limits, often: Floats | None = None) -> None:
        comparisons, self._number, self._limits = data.comparisons, data.num_items, limits
        self._members = np.arange(self._number)
        if limits.items is not None:
            self._members = np.unique(data.index(list(limits.items))).astype(np.int64)
        self._listed = None if limits.pairs is None else _positions(data, limits.pairs, "pairs")
        self._avoided = _positions(data, limits.avoid, "avoid")
        # Pairs with answers, in ascending order: low · n + high.
        low, high = np.sort([comparisons.winner, comparisons.loser], axis=0).astype(np.int64)
        self._codes, where = np.unique(low * self._number + high, return_inverse=True)
        self._times = np.bincount(where, weights=comparisons.count, minlength=len(self._codes))
        self._appearances = appearances(data) if often is None else often.copy()

    def pool(self) -> Pool:
        """Pairs that may be asked now: those asked too often or to be avoided are closed."""
        members, most = self._members, self._limits.most_appearances
        if most is not None:
            members = members[self._appearances[members] < most]
        often = np.stack(np.divmod(self._codes[self._times > self._limits.repeats], self._number))
        return Pool(members, np.concatenate([often, self._avoided], axis=1), self._listed)

    def left(self) -> int:
        """Count the questions that may still be asked; each repeat of a pair is one of them.

        That is ``repeats + 1`` for each pair, less its answers, and 0 for a pair to be avoided.
        """
        pool, most = self.pool(), self._limits.repeats + 1
        avoided = self._avoided[0] * self._number + self._avoided[1]
        codes = np.union1d(self._codes, avoided)
        used = np.zeros(len(codes))
        used[np.isin(codes, self._codes)] = np.minimum(self._times, most)  # both are sorted
        used[np.isin(codes, avoided)] = most
        inside = np.isin(np.divmod(codes, self._number), pool.members).all(axis=0)
        pairs = len(pool.members) * (len(pool.members) - 1) // 2
        if self._listed is not None:
            inside &= np.isin(codes, self._listed[0] * self._number + self._listed[1])
            pairs = int(np.isin(self._listed, pool.members).all(axis=0).sum())
        return max(pairs * most - int(used[inside].sum()), 0)

    def add(self, first: int, second: int) -> None:
        """Count the question about two items, by position, as answered once more."""
        code = min(first, second) * self._number + max(first, second)
        place = int(np.searchsorted(self._codes, code))
        if place == len(self._codes) or self._codes[place] != code:
            self._codes = np.insert(self._codes, place, code)
            self._times = np.insert(self._times, place, 0)
        self._times[place] += 1
        self._appearances[[first, second]] += 1


def _positions(data: PreferenceData, labels: list[tuple[Any, Any]], name: str) -> Positions:
    """Positions of distinct pairs of labels, the lower first, shape (2, p)."""
    ends = [data.index([pair[side] for pair in labels]).astype(np.int64) for side in (0, 1)]
    same = np.flatnonzero(ends[0] == ends[1])
    if len(same):
        raise DataError(
            f"{name}[{same[0]}] compares {shown(labels[same[0]][0])} with itself; name two items"
        )
    return np.unique(np.sort(np.stack(ends), axis=0), axis=1)


def narrowed(
    posterior: UtilityPosterior, limits: Limits, rng: np.random.Generator
) -> tuple[UtilityPosterior, Limits, Floats]:
    """Restrict a large posterior, which has no covariance matrix, to items to be asked about.

    These are the items of the limits, or else `_candidates`. Other posteriors stay as they are.
    Returns the posterior, its limits, and the number of all answers about each of its items, (n,).
    """
    if not posterior.large:
        return posterior, limits, appearances(posterior.data)
    data = posterior.data
    if limits.pairs is not None:
        positions = np.unique(data.index([label for pair in limits.pairs for label in pair]))
    elif limits.items is not None:
        positions = np.unique(data.index(list(limits.items)))
        limits = replace(limits, items=None)
    else:
        positions = np.unique(_candidates(posterior, limits, rng))
    if len(positions) > 5 * sizes.MAX_CANDIDATES:
        raise DataError(
            f"{len(positions)} items were named; name at most {5 * sizes.MAX_CANDIDATES} where "
            "there are so many"
        )
    ends = data.index([label for pair in limits.avoid for label in pair]).reshape(-1, 2)
    inside = np.isin(ends, positions).all(axis=1)
    limits = replace(limits, avoid=[limits.avoid[row] for row in np.flatnonzero(inside)])
    some = posterior.at_positions(positions.astype(np.int64), parts=False)
    return some, limits, appearances(data)[positions]


def _candidates(posterior: UtilityPosterior, limits: Limits, rng: np.random.Generator) -> Positions:
    """Choose positions of items with answers and of items without, fewer if there is much data.

    Half of each are those with the highest means. The others are drawn, so that any item can be
    asked about.
    """
    data, mean = posterior.data, posterior.belief.mean()
    most = np.inf if limits.most_appearances is None else limits.most_appearances
    open_ = appearances(data) < most
    answered = np.zeros(data.num_items, dtype=bool)
    answered[touched(data)] = True
    links = sum(2 * graph.num_edges + graph.num_nodes for graph in data.relations.values())
    affordable = sizes.MAX_ANSWERS_SQUARED_TIMES_CANDIDATES / max(data.num_comparisons, 1) ** 2
    number = int(np.clip(affordable, sizes.MIN_CANDIDATES, sizes.MAX_CANDIDATES))
    affordable = sizes.MAX_LINKS_TIMES_CANDIDATES / max(links, 1)
    new = int(np.clip(affordable, 20, sizes.MAX_NEW_CANDIDATES))
    groups = ((answered & open_, number - new), (~answered & open_, new))
    chosen = np.concatenate(
        [_halves(np.flatnonzero(group), mean, size, rng) for group, size in groups]
    )
    # If no item may be asked about, none of these may be either.
    return chosen if len(chosen) > 1 else touched(data)[:2]


def _halves(group: Positions, promise: Floats, number: int, rng: np.random.Generator) -> Positions:
    """At most ``number`` of a group: half with the highest ``promise``, half drawn at random."""
    if len(group) <= number:
        return group
    group = rng.permutation(group)  # so that ties are broken at random
    best = group[np.argpartition(-promise[group], number // 2)[: number // 2]]
    others = np.setdiff1d(group, best, assume_unique=True)
    return np.concatenate([best, rng.choice(others, number - len(best), replace=False)])


def screened(
    members: Positions, belief: Belief, score: Score, rng: np.random.Generator
) -> Positions:
    """Choose the members whose pairs are scored, at most ``score.max_items``, in ascending order.

    Half are the most promising and half are drawn at random. The most promising have the largest sd
    of the utility relative to the average or, for a score about the best, the largest mean plus sd.
    """
    if len(members) <= score.max_items:
        return members
    sample = rng.choice(members, _MEAN_ITEMS, replace=False)
    rows = belief.covariance[sample]
    average = rows[:, sample].mean()
    promise = np.sqrt(
        np.maximum(np.diagonal(belief.covariance) - 2 * rows.mean(axis=0) + average, 0.0)
    )
    if score.about_the_best:
        promise = promise + belief.mean
    return np.sort(_halves(members, promise, score.max_items, rng))


def best(
    state: State, scorer: Scorer, max_wrong: float | None, rng: np.random.Generator
) -> tuple[Gaps, Floats]:
    """Find the few pairs with the highest scores, best first, ties in random order.

    Pairs whose less likely answer has a probability above ``max_wrong`` are left out. Returns the
    gaps of at most ``scorer.few`` pairs and their exact scores, shape (k,).
    """
    first, second = _shortlist(state, scorer, max_wrong, rng)
    if max_wrong is not None and len(first):
        now = state.now.gaps(first, second)
        decided = np.abs(state.answers.forecast(now.mean, now.variance).favored - 0.5)
        easy = decided >= 0.5 - max_wrong
        first, second = first[easy], second[easy]
    gaps = state.belief.gaps(first, second)
    if not len(first):
        return gaps, np.zeros(0)
    values = np.asarray(scorer.exact(gaps), dtype=np.float64)
    order = np.argsort(-_untied(values, gaps, rng, _TIE), kind="stable")
    return state.belief.gaps(first[order], second[order]), values[order]


def _shortlist(
    state: State, scorer: Scorer, max_wrong: float | None, rng: np.random.Generator
) -> tuple[Positions, Positions]:
    """Positions of the ``scorer.few`` best pairs by the quick score, (k,) each, in no order."""
    none = np.zeros(0, dtype=np.int64)
    kept: tuple[Any, ...] = (np.zeros(0), none, none)
    floor = -np.inf
    # Earlier questions of a batch change what the model is expected to know, but not how hard a
    # pair is for the rater: that is judged by the belief now.
    present = repeat(None) if max_wrong is None else state.pool.blocks(state.now)
    for (gaps, closed), now in zip(state.pool.blocks(state.belief), present, strict=False):
        values = _untied(scorer.quick(gaps), gaps, rng, _QUICK_TIE)
        if now is not None and max_wrong is not None:
            values[state.answers.decided(now[0]) < 0.5 - max_wrong] = -np.inf
        flat = values.ravel()
        flat[closed] = -np.inf
        good = np.flatnonzero(flat > floor)
        rows = np.unravel_index(good, values.shape)
        ends = (np.broadcast_to(end, values.shape)[rows] for end in (gaps.first, gaps.second))
        kept = tuple(np.concatenate(parts) for parts in zip(kept, (flat[good], *ends), strict=True))
        if len(kept[0]) > 4 * scorer.few:
            kept = _top(kept, scorer.few)
            floor = float(kept[0].min())
    _, first, second = _top(kept, scorer.few)
    return first, second


def _top(kept: tuple[Any, ...], few: int) -> tuple[Any, ...]:
    # The entries of all arrays where the first array, the scores, is highest.
    if len(kept[0]) <= few:
        return kept
    top = np.argpartition(-kept[0], few)[:few]
    return tuple(part[top] for part in kept)


def _untied(values: Floats | Singles, gaps: Gaps, rng: np.random.Generator, tie: float) -> Floats:
    """Break ties of scores: add random numbers of at most ``tie`` times each score.

    Infinite scores (XPGP before the first answer) are replaced first by the gap's variance times a
    large number.
    """
    if np.isposinf(values.max(initial=0.0)):
        values = np.where(np.isposinf(values), 1e200 * gaps.variance, values)
    noise = rng.random(values.shape, dtype=np.float32)
    scale = np.abs(values).astype(np.float64)  # single precision would make ties of its own
    scale *= tie
    scale += 1e-30
    scale *= noise
    scale += values
    return scale


def next_pairs(
    posterior: UtilityPosterior,
    k: int = 1,
    *,
    score: str | Score = DEFAULT,
    items: Iterable[Any] | None = None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    repeats: int = 0,
    most_appearances: int | None = None,
    max_wrong: float | None = None,
    rater: Any = None,
    avoid: Iterable[tuple[Any, Any]] = (),
    rng_key: Any = None,
) -> pd.DataFrame:
    """Choose the next questions to ask, best first.

    Where answers have groups, each is scored as an answer in a new group; where they have
    covariates, the two sides are equal in them.

    Parameters
    ----------
    posterior : UtilityPosterior
    k : int
        Number of questions, each chosen as if those before it had been answered.
    score : str or Score
        One of `SCORES` by name, or an instance, such as ``TopK(10)``.
    items : iterable of labels, optional
        Ask about these only.
    pairs : iterable of (label, label) or table of two columns, optional
        Ask about these only.
    repeats : int
        Number of times that a pair may be asked again; 0 for no pair that any rater answered.
    most_appearances : int, optional
        An item with this many answers is not asked about again.
    max_wrong : float, optional
        Largest probability of the less likely answer, a tie counting one half: 0.48 leaves out
        pairs between 0.48 and 0.52, because people cannot answer them.
    rater : label, optional
        The rater who is asked; a typical rater by default.
    avoid : iterable of (label, label)
        Pairs that are not to be asked now, for example because they were skipped.
    rng_key : JAX key or int, optional
        For ties between scores, and for the choice of items to look at if there are many; the
        posterior's own by default.

    Returns
    -------
    DataFrame
        ``first``, ``second``, ``score``; and, as in `UtilityPosterior.prefer`, ``probability``,
        ``gap_mean`` and ``gap_sd`` before these answers. There are fewer than k rows if fewer
        pairs are left; ``attrs["notes"]`` then says why, and `UtilityPosterior.next_pairs` warns.

    Raises
    ------
    DataError, UnknownLabelError
        If an argument cannot be used, a label is no item, or the rater never answered.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> question = relpref.explore.next_pairs(posterior)
    >>> question.columns[:3].tolist()
    ['first', 'second', 'score']
    """
    limits = Limits(items, pairs, repeats, most_appearances, max_wrong, avoid)
    chosen = plan(posterior, k, score, limits, rater, rng_key)
    data, asked = chosen.posterior.data, chosen.questions
    first, second = ([question[side] for question in asked] for side in (0, 1))
    gaps, expected = expected_answers(chosen.posterior, first, second, rater)
    pairs = [(data.labels[i], data.labels[j]) for i, j, _ in asked]
    table = preference_table(pairs, expected, gaps)
    table["score"] = np.array([value for _, _, value in asked], dtype=np.float64)
    table = table[["first", "second", "score", "probability", "gap_mean", "gap_sd"]]
    if len(asked) < k:
        why = "the rest were answered or are ruled out; raise repeats to ask again"
        if max_wrong is not None:
            why += f", and a max_wrong above {max_wrong} allows more"
        note = f"next_pairs: {counted(len(asked), 'question')} of {k} can be asked: {why}"
        table.attrs["notes"] = (note,)
    return table


def expected_answers(
    posterior: UtilityPosterior, first: Any, second: Any, rater: Any = None
) -> tuple[Margins, dict[str, Any]]:
    """Expected answers about pairs of positions, shape (k,) each.

    Returns the distribution of the gaps, and the columns of expectations by name, see
    `UtilityPosterior.prefer`.
    """
    first, second = (np.asarray(end, dtype=np.int32) for end in (first, second))
    gaps = posterior.belief.differences(first, second)
    return gaps, expectations(posterior, questions(posterior.data, first, second, rater), gaps)


class Plan(NamedTuple):
    """Batch of questions in the order of choice, and the beliefs and answers they rest on."""

    posterior: UtilityPosterior  # of the items that were looked at, to which positions refer
    questions: list[tuple[int, int, float]]  # two positions and the score
    before: Belief
    answers: AnswerForecast
    left: int  # questions that may be asked, these included

    def beliefs(self) -> Iterator[Belief]:
        """Yield the belief before any answer, after the first, and so on to after the last."""
        belief = self.before
        yield belief
        for first, second, _ in self.questions:
            belief = _answered(self.before, belief, self.answers, first, second)
            yield belief


def plan(
    posterior: UtilityPosterior, k: int, score: str | Score, limits: Limits, rater: Any, key: Any
) -> Plan:
    """Choose k questions, each as if those before it were answered; see `next_pairs`."""
    chosen_by = score_of(score)
    whole_number("k", k, 1)
    rng = posterior._rng(key)
    posterior, limits, often = narrowed(posterior, limits, rng)
    asked = Asked(posterior.data, limits, often)
    left = asked.left()
    answers = answers_of(posterior, rater)
    mean, covariance = posterior.belief.mean(), posterior.belief.covariance()
    if not np.all(np.isfinite(mean)) or not np.all(np.isfinite(np.diagonal(covariance))):
        raise DataError(
            f"the posterior has no numbers to choose by ({posterior.result.name}); fit it again"
        )
    now = belief = Belief(mean, covariance)
    chosen: list[tuple[int, int, float]] = []
    while len(chosen) < k:
        if chosen:
            belief = _answered(now, belief, answers, *chosen[-1][:2])
        pool = asked.pool()
        if pool.listed is None:
            pool = replace(pool, members=screened(pool.members, belief, chosen_by, rng))
        state = State(belief, now, answers, pool)
        gaps, values = best(state, chosen_by.scorer(state), limits.max_wrong, rng)
        if not len(values):
            break
        first, second = int(gaps.first[0]), int(gaps.second[0])
        chosen.append((first, second, float(values[0])))
        asked.add(first, second)
    return Plan(posterior, chosen, now, answers, left if len(chosen) == k else len(chosen))


def _answered(
    before: Belief, belief: Belief, answers: AnswerForecast, first: int, second: int
) -> Belief:
    """Belief that is expected after an answer about a pair: its covariance shrinks, its mean stays.

    The shrinkage κ depends on the gap's mean. The answers expected between ``before`` and
    ``belief`` will move that mean, to N(m, v_before − v), so κ is averaged over it.
    """
    then, now = (each.gaps(np.array([first]), np.array([second])) for each in (before, belief))
    moved = then.mean + np.sqrt(np.maximum(then.variance - now.variance, 0.0)) * _NODES
    shrinkage = answers.forecast(moved, np.broadcast_to(now.variance, moved.shape)).shrinkage
    return belief.after(first, second, float(_WEIGHTS @ shrinkage))


def score_of(score: str | Score) -> Score:
    """Score with the given name, or the given instance; raises DataError if it is neither."""
    if isinstance(score, str) and (kind := find("score", score)) is not None:
        score = kind()
    if isinstance(score, str | type) or not all(hasattr(score, name) for name in _OF_A_SCORE):
        raise DataError(
            f"score is {shown(score)}; name one of {', '.join(names('score'))}, or give an instance"
        )
    return score


def answers_of(posterior: UtilityPosterior, rater: Any = None) -> AnswerForecast:
    """Model of the next answer of a rater, at the posterior's hyperparameters; cached."""
    first, second = np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.int32)
    asked, names = questions(posterior.data, first, second, rater), sites_of_answers(posterior)
    missing = [name for name in names if name not in posterior.hyperparameters]
    if missing:
        raise DataError(
            f"the posterior has no hyperparameter {listed(missing)}, so the information of an "
            "answer is unknown; use a program of relpref.models, or leave out the columns of "
            "answers that it belongs to"
        )
    parameters = {name: posterior.hyperparameters[name] for name in names}
    return shared(AnswerForecast(posterior.likelihood, *of_its_raters(asked, parameters)))
