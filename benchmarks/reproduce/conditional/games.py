"""Rock, paper, scissors (Pahikkala et al. 2010, section 6.1 and Fig. 2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import wilcoxon
from sklearn.svm import LinearSVC

from benchmarks.measure import table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.results import p_value
from benchmarks.reproduce.rows import Row
from relpref.data_loaders import RockPaperScissors, play_rock_paper_scissors
from relpref.rls import ConditionalRanker, per_node, ranking_error

Array = NDArray[np.float64]

WEIGHTS = (1, 10, 100)
REPETITIONS, QUICK_REPETITIONS = 100, 5
# "Close to zero" in the paper, where regularization was found to be harmful.
REGULARIZATION = 1e-4
COST = 1.0  # the loss is a sum over some ten thousand pairs
PAPER = {
    "RLS": (0.4875, 0.04172, 0.001384),
    "RLS, reciprocal": (0.4868, 0.04145, 0.001370),
    "RankRLS": (0.4876, 0.04519, 0.001428),
    "RankRLS, reciprocal": (0.4880, 0.04291, 0.001358),
    "ranking SVM": (0.4984, 0.04724, 0.007408),
    "ranking SVM, reciprocal": (0.4930, 0.04273, 0.006123),
}
Predict = Callable[[RockPaperScissors], Array]


def both_ways(games: pd.DataFrame) -> pd.DataFrame:
    """Each game is two edges, one from each player (section 6.1)."""
    back = games.rename(columns={"source": "target", "target": "source"}).assign(
        value=-games["value"]
    )
    return pd.concat([games, back[list(games.columns)]], ignore_index=True)


def _rls(loss: str, symmetry: str) -> Predict:
    def predict(drawn: RockPaperScissors) -> Array:
        ranker = ConditionalRanker(
            kernel="linear",
            standardize=False,
            loss=loss,
            symmetry=symmetry,
            regularization=REGULARIZATION,
        )
        ranker.fit(drawn.players, both_ways(drawn.games))
        return np.asarray(ranker.predict(drawn.test_players, drawn.test_players))

    return predict


def _svm(reciprocal: bool) -> Predict:
    """Joachims' ranking SVM on the nine products of two players' features, the hinge loss of pairs
    of edges of one node.
    """

    def features(left: Array, right: Array) -> Array:
        products = left[:, :, None] * right[:, None, :]
        if reciprocal:
            products = products - products.transpose(0, 2, 1)
        return products.reshape(len(products), -1)

    def predict(drawn: RockPaperScissors) -> Array:
        edges = both_ways(drawn.games)
        known, value = drawn.players, edges["value"].to_numpy()
        ends = [known.loc[edges[end]].to_numpy() for end in ("source", "target")]
        rows = features(*ends)
        better, worse = [], []
        for of_one in edges.groupby("source").indices.values():
            won, lost = of_one[value[of_one] > 0], of_one[value[of_one] < 0]
            better.append(np.repeat(won, len(lost)))
            worse.append(np.tile(lost, len(won)))
        gaps = rows[np.concatenate(better)] - rows[np.concatenate(worse)]
        # Every gap once, half of them the other way round, so that there are two classes.
        sign = np.where(np.arange(len(gaps)) % 2, -1.0, 1.0)
        machine = LinearSVC(
            C=COST, loss="hinge", fit_intercept=False, dual=True, max_iter=100_000, random_state=0
        )
        weights = machine.fit(gaps * sign[:, None], sign).coef_[0]
        players = drawn.test_players.to_numpy()
        size = len(players)
        left, right = np.repeat(players, size, axis=0), np.tile(players, (size, 1))
        return np.asarray((features(left, right) @ weights).reshape(size, size))

    return predict


METHODS: dict[str, Predict] = {
    "RLS": _rls("regression", "none"),
    "RLS, reciprocal": _rls("regression", "reciprocal"),
    "RankRLS": _rls("ranking", "none"),
    "RankRLS, reciprocal": _rls("ranking", "reciprocal"),
    "ranking SVM": _svm(False),
    "ranking SVM, reciprocal": _svm(True),
}


def parts(quick: bool) -> list[Part]:
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    return [(weight, repetition) for weight in WEIGHTS for repetition in range(repetitions)]


def compute(part: Part, quick: bool) -> list[Row]:
    """Train every method on the same games, and judge it on the same new players."""
    weight, repetition = int(part[0]), int(part[1])
    drawn = play_rock_paper_scissors(weight, seed=(2010, weight, repetition))
    relation = drawn.test_relation.to_numpy()
    return [
        {"method": name, "error": per_node(ranking_error, relation, method(drawn)).mean}
        for name, method in METHODS.items()
    ]


def markdown(rows: pd.DataFrame) -> str:
    """Mean errors beside the paper's, and Wilcoxon's test for pairs of each method with RLS and
    with its own reciprocal version.
    """
    errors = rows.pivot(index=["weight", "repetition"], columns="method", values="error")
    lines = []
    for at, weight in enumerate(WEIGHTS):
        of_weight = errors.loc[weight]
        for name in METHODS:
            mine = of_weight[name]
            reciprocal = f"{name}, reciprocal"
            lines.append(
                [
                    str(weight),
                    name,
                    f"{mine.mean():.4g}",
                    f"{mine.std(ddof=1) / np.sqrt(len(mine)):.2g}",
                    f"{PAPER[name][at]:.4g}",
                    "" if name == "RLS" else _compared(mine, of_weight["RLS"]),
                    _compared(mine, of_weight[reciprocal]) if reciprocal in METHODS else "",
                ]
            )
    header = [
        "w",
        "method",
        "error",
        "standard error",
        "the paper's error",
        "against RLS",
        "against its reciprocal",
    ]
    return f"{table(header, lines)}\n\n{errors.groupby('weight').size().min()} repetitions of each."


def _compared(mine: pd.Series, other: pd.Series) -> str:
    difference = mine - other
    if not (difference != 0).any():
        return "equal"
    word = "worse" if difference.mean() > 0 else "better"
    return f"{word}, p {_equals(p_value(float(wilcoxon(difference).pvalue)))}"


def _equals(text: str) -> str:
    return text if text.startswith("<") else f"= {text}"


EXPERIMENT = Experiment(
    name="rock-paper-scissors",
    title="Rock, paper, scissors",
    part=("weight", "repetition"),
    key=("weight", "repetition", "method"),
    parts=parts,
    compute=compute,
    markdown=markdown,
)
