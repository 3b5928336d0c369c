"""Where all pairs are too many: the entities whose pairs are looked at."""

import numpy as np

from relpref.explore.scores.gap_scores import Score
from relpref.explore.scores.gaps import Belief, Positions

_SAMPLE = 128  # entities whose average utility stands for that of all


def screened(members: Positions, belief: Belief, score: Score, rng: np.random.Generator) -> Positions:
    """At most as many of the members as the score looks at, ascending.

    Half of them are those whose utility, relative to the average, is the most uncertain; for a score about the best, those whose mean
    plus sd is the highest. The other half are drawn at random, so that nobody is left out for ever.
    """
    if len(members) <= score.most_entities:
        return members
    sample = rng.choice(members, _SAMPLE, replace=False)
    rows = belief.covariance[sample][:, members]
    own = np.diagonal(belief.covariance)[members]
    average = belief.covariance[np.ix_(sample, sample)].mean()
    promise = np.sqrt(np.maximum(own - 2 * rows.mean(axis=0) + average, 0.0))
    if score.about_the_best:
        promise = promise + belief.mean[members]
    half = score.most_entities // 2
    order = rng.permutation(len(members))
    order = order[np.argsort(-promise[order], kind="stable")]
    others = rng.choice(order[half:], score.most_entities - half, replace=False)
    return np.sort(members[np.concatenate([order[:half], others])])
