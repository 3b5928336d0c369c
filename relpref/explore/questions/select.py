"""The best pairs of a pool by a score: quickly over all of them, then exactly among the best few."""

from itertools import repeat

import numpy as np

from relpref.explore.scores.answers import Singles
from relpref.explore.scores.gap_scores import Scorer, State
from relpref.explore.scores.gaps import BLOCK, Gaps, Positions
from relpref.infer.belief import Floats

# Scores that differ by less, relatively, are tied: rounding must not choose the question. The quick ones may be single precision.
_TIE, _QUICK_TIE = 1e-9, 3e-7


def best(
    state: State, scorer: Scorer, hardest: float | None, rng: np.random.Generator, size: int = BLOCK
) -> tuple[Gaps, Floats]:
    """The best few pairs, best first, and their exact scores; ties in random order.

    Parameters
    ----------
    state : State
    scorer : Scorer
    hardest : float or None
        Pairs whose answer's probability is nearer than that to one half are left out.
    rng : numpy Generator
    size : int
        Pairs looked at together.
    """
    first, second = shortlist(state, scorer, hardest, rng, size)
    gaps = state.belief.gaps(first, second)
    if hardest is not None and len(first):
        now = state.now.gaps(first, second)
        easy = np.abs(state.answers.forecast(now.mean, now.variance).favoured - 0.5) >= hardest
        gaps = state.belief.gaps(first[easy], second[easy])
    if not len(gaps.mean):
        return gaps, np.zeros(0)
    values = np.asarray(scorer.exact(gaps), dtype=np.float64)
    order = np.argsort(-_untied(values, gaps, rng, _TIE), kind="stable")
    return state.belief.gaps(gaps.first[order], gaps.second[order]), values[order]


def shortlist(
    state: State, scorer: Scorer, hardest: float | None, rng: np.random.Generator, size: int = BLOCK
) -> tuple[Positions, Positions]:
    """Positions of the best few pairs by the quick score, in no order."""
    kept: list[tuple[Floats, Positions, Positions]] = []
    floor, waiting = -np.inf, 0
    # How hard a pair is to the one who answers does not change by what a batch is expected to teach the model.
    known = state.pool.blocks(state.now, size) if hardest is not None else repeat(None)
    for (gaps, closed), now in zip(state.pool.blocks(state.belief, size), known, strict=False):
        values = _untied(scorer.quick(gaps), gaps, rng, _QUICK_TIE)
        if now is not None and hardest is not None:
            values[state.answers.undecided(now[0]) < hardest] = -np.inf
        flat = values.ravel()
        flat[closed] = -np.inf
        good = np.flatnonzero(flat > floor)
        rows = np.unravel_index(good, values.shape)
        kept.append(
            (
                flat[good],
                np.broadcast_to(gaps.first, values.shape)[rows],
                np.broadcast_to(gaps.second, values.shape)[rows],
            )
        )
        waiting += len(good)
        if waiting > 4 * scorer.few:
            kept = [_top(kept, scorer.few)]
            floor, waiting = float(kept[0][0].min()), scorer.few
    if not kept:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return _top(kept, scorer.few)[1:]


def _top(kept: list[tuple[Floats, Positions, Positions]], few: int) -> tuple[Floats, Positions, Positions]:
    values, first, second = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    if len(values) > few:
        top = np.argpartition(-values, few)[:few]
        values, first, second = values[top], first[top], second[top]
    return values, first, second


def _untied(values: Floats | Singles, gaps: Gaps, rng: np.random.Generator, tie: float) -> Floats:
    """Scores with ties broken; where they are infinite, the larger variance is the better (XPGP before the first answer)."""
    if np.isposinf(values.max(initial=0.0)):
        values = np.where(np.isposinf(values), 1e200 * gaps.variance, values)
    noise = rng.random(values.shape, dtype=np.float32)
    scale = np.abs(values).astype(np.float64)  # single precision would make ties of its own
    scale *= tie
    scale += 1e-30
    scale *= noise
    scale += values
    return scale
