"""The experiments on rankings: what they draw, and what their tables say."""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.reproduce.classifiers import (
    cut_features,
    dishes,
    ranking_kernels,
    submodular,
    sushi,
)
from relpref.data_loaders import rank_dishes


def test_the_five_kinds_are_what_they_are_called() -> None:
    kinds = {
        name: set(censor(rank_dishes(20, 1.0), 0).kinds)
        for name, (_, censor) in dishes.KINDS.items()
    }
    # Of five blocks of eight dishes, the first four are single dishes now and then: that is a top-k
    # ranking.
    assert kinds.pop("exhaustive interleaving") <= {"top-k", "exhaustive"}
    assert kinds == {
        "full": {"full"},
        "top-6": {"top-k"},
        "top-3": {"top-k"},
        "interleaving": {"non-exhaustive"},
    }


def test_classes_are_balanced_and_seeds_differ() -> None:
    rankings = rank_dishes(40, 1.0)[:30].with_labels(["east"] * 22 + ["west"] * 8)
    drawn = sushi.balanced(rankings, 10, seed=1)
    assert_array_equal(np.bincount(np.asarray(drawn.label)), [5, 5])
    assert len(set(drawn.rankers)) == 10
    assert drawn.rankers != sushi.balanced(rankings, 10, seed=2).rankers


@pytest.mark.slow
def test_every_kernel_tells_the_eaters_apart_where_there_is_no_noise() -> None:
    rows = pd.DataFrame(
        ranking_kernels.judged(rank_dishes(60, 0.3), 0, mallows_landmarks=20)
    ).set_index("kernel")
    assert set(rows.index) == {*ranking_kernels.NAMES, ranking_kernels.CONSTANT}
    assert (rows.loc[list(ranking_kernels.NAMES), "accuracy"] > 0.9).all()
    assert rows.loc["constant", "log_loss"] == pytest.approx(np.log(2))
    assert rows.loc["constant", "f1"] == pytest.approx(2 / 3)


@pytest.mark.usefixtures("real_data")
def test_the_code_gives_the_features_of_the_paper() -> None:
    rows = pd.DataFrame(
        {"graph": name} | row
        for name in cut_features.GRAPHS
        for row in cut_features.compute((name,), True)
    )
    assert_allclose(rows["reversed"], -rows["feature"], atol=1e-12)
    text = cut_features.markdown(rows)
    assert "| code | 4.224 | 2.366 | 2.366 | 0.006 |" in text and "| text | 4.630 |" in text


def fake(names: tuple[str, ...], parts: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    scores = dict.fromkeys((*ranking_kernels.SCORES, "seconds"), 0.5)
    return pd.DataFrame(
        [
            dict(zip(names, part, strict=True))
            | {"kernel": kernel}
            | scores
            | {"accuracy": 0.5 + 0.1 * at}
            for part in parts
            for at, kernel in enumerate((*ranking_kernels.NAMES, ranking_kernels.CONSTANT))
        ]
    )


def test_tables_average_over_seeds() -> None:
    parts = [(*part, noise) for part, noise in itertools.product(dishes.parts(False), dishes.NOISE)]
    text = dishes.markdown(fake(("kind", "seed", "noise"), parts))
    assert "| full | kendall | 0.60 | 0.60 |" in text
    text = sushi.markdown(fake(("setting", "seed"), sushi.parts(False)))
    assert "| large, interleaving | mallows | 0.700 ± 0.000 |" in text
    text = submodular.markdown(fake(("setting", "seed"), submodular.parts(False)))
    assert "| dishes, top-3 | concave | 0.800 ± 0.000 | 0.500 ± 0.000 |" in text
