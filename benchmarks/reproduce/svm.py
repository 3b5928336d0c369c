"""The ranking SVM (Joachims 2002) with a radial basis function, on scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

Array = NDArray[np.float64]
Pairs = NDArray[np.int64]  # (m, 2), winner first

GAMMAS = (
    0.1,
    0.5,
    2.5,
    12.5,
    62.5,
)  # of squared distances, which are 2 between two random documents
COSTS = (1.0, 100.0)
FOLDS = 5


def fit(distances: Array, pairs: Pairs) -> Array:
    """Score every document; gamma and C by cross-validation over the known pairs.

    Parameters
    ----------
    distances : array, shape (n, n)
        Squared distances of the documents.
    pairs : array, shape (m, 2)
        Winner, loser.

    Returns
    -------
    array, shape (n,)
    """
    fold = np.arange(len(pairs)) % FOLDS  # the pairs were drawn at random
    best: tuple[float, float, float] | None = None
    for gamma, cost in itertools.product(GAMMAS, COSTS):
        kernel = np.exp(-gamma * distances)
        wrong = 0.0
        for held_out in range(FOLDS):
            scores = _scores(kernel, pairs[fold != held_out], cost)
            gaps = scores[pairs[fold == held_out, 0]] - scores[pairs[fold == held_out, 1]]
            wrong += np.sum(gaps < 0) + 0.5 * np.sum(gaps == 0)
        if best is None or wrong < best[0]:
            best = (wrong, gamma, cost)
    assert best is not None
    return _scores(np.exp(-best[1] * distances), pairs, best[2])


def _scores(kernel: Array, pairs: Pairs, cost: float) -> Array:
    """Train on phi(winner) - phi(loser) against its negative: by this symmetry the plane goes
    through the origin.
    """
    rows = kernel[pairs[:, 0]] - kernel[pairs[:, 1]]
    gram = rows[:, pairs[:, 0]] - rows[:, pairs[:, 1]]
    both = np.block([[gram, -gram], [-gram, gram]])
    labels = np.repeat([1, -1], len(pairs))
    machine = SVC(C=cost, kernel="precomputed").fit(both, labels)
    weights = np.zeros(2 * len(pairs))
    weights[machine.support_] = machine.dual_coef_[0]
    return np.asarray((weights[: len(pairs)] - weights[len(pairs) :]) @ rows)
