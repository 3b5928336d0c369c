"""Which images show the same digit, for new images of known digits and of digits never seen: an
experiment that needs no file.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from benchmarks.measure import table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.rls import ConditionalRanker, gram, leave_nodes_out, per_node, ranking_error

NEW = (7, 8, 9)
FOLDS = 5
REGULARIZATIONS = tuple(float(value) for value in 10.0 ** np.arange(-3, 4))
GAMMA = 0.02
SIZES = (50, 100, 250)
LOSSES = ("regression", "ranking")
CONTROL = "the kernel alone"
TESTS = ("known digits", "new digits")


def drawn(size: int, seed: int) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Images of the known and of the new digits, and whether two of them show the same digit.

    Scikit-learn's 8 x 8 pixels (a part of Alpaydin & Kaynak's set, UCI), between 0 and 1; ``size``
    images of each kind. No image is compared with itself: the diagonal is NaN.
    """
    bunch = load_digits()
    apart = np.isin(bunch.target, NEW)
    rng = np.random.default_rng(seed)
    parts = []
    for candidates in (np.flatnonzero(~apart), np.flatnonzero(apart)):
        rows = np.sort(rng.choice(candidates, size, replace=False))
        labels = pd.Index([f"image_{row:04d}" for row in rows], name="image")
        same = np.equal.outer(bunch.target[rows], bunch.target[rows]).astype(np.float64)
        np.fill_diagonal(same, np.nan)
        pixels = pd.DataFrame(bunch.data[rows] / 16.0, index=labels, columns=bunch.feature_names)
        parts.append((pixels, pd.DataFrame(same, index=labels, columns=labels)))
    return parts


def compute(part: Part, quick: bool) -> list[Row]:
    """Choose λ with some of the images left out, then rank new images for one another."""
    size = int(part[0])
    (old, same_old), (unseen, same_unseen) = drawn(2 * size, seed=size)
    rows = np.random.default_rng(size).permutation(2 * size)
    known, new = np.sort(rows[:size]), np.sort(rows[size:])
    images = old.iloc[known]
    # An image shows the digit that it shows: with the diagonal the relation is complete, and the
    # closed form is there.
    relation = same_old.iloc[known, known].fillna(1.0)
    tests = {
        "known digits": (old.iloc[new], same_old.iloc[new, new].to_numpy()),
        "new digits": (unseen.iloc[new], same_unseen.iloc[new, new].to_numpy()),
    }
    folds = np.random.default_rng(size + 1).permutation(size) % FOLDS
    found: list[Row] = []
    for test, (nodes, truth) in tests.items():
        kernel = gram(nodes.to_numpy(), kernel="gaussian", gamma=GAMMA)
        found.append(
            {"test": test, "method": CONTROL, "error": per_node(ranking_error, truth, kernel).mean}
        )
    for loss in LOSSES:
        ranker = ConditionalRanker(kernel="gaussian", gamma=GAMMA, standardize=False, loss=loss)
        problem = ranker.problem(images, relation)
        guesses = leave_nodes_out(problem, REGULARIZATIONS, rows=folds, columns=folds)
        errors = [per_node(ranking_error, _seen(relation, guess), guess).mean for guess in guesses]
        best = REGULARIZATIONS[int(np.argmin(errors))]
        ranker.set_params(regularization=best).fit(images, relation)
        for test, (nodes, truth) in tests.items():
            error = per_node(ranking_error, truth, ranker.predict(nodes, nodes).to_numpy()).mean
            found.append({"test": test, "method": loss, "error": error, "regularization": best})
    return found


def _seen(relation: pd.DataFrame, guess: np.ndarray) -> np.ndarray:
    """The labels of the pairs that were predicted; no image is judged by itself."""
    truth = np.where(np.isnan(guess), np.nan, relation.to_numpy())
    np.fill_diagonal(truth, np.nan)
    return truth


def markdown(rows: pd.DataFrame) -> str:
    """Error by method, test and number of known images."""
    errors = rows.pivot(index=["test", "method"], columns="size", values="error")
    lines = [
        [test, method, *(f"{errors.loc[(test, method), size]:.3f}" for size in errors)]
        for test in TESTS
        for method in (CONTROL, *LOSSES)
    ]
    return table(["new images of", "method", *(f"{size} known images" for size in errors)], lines)


EXPERIMENT = Experiment(
    name="digits",
    title="Same digit",
    part=("size",),
    key=("size", "test", "method"),
    parts=lambda quick: [(size,) for size in (SIZES[:1] if quick else SIZES)],
    compute=compute,
    markdown=markdown,
)
