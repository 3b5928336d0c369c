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
    gram_times,
    ranking_kernels,
    submodular,
    sushi,
    training,
)
from relpref.data_loaders import rank_dishes
from relpref.kernels import Kendall
from relpref.models import ranking_classifier


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
    kernels = pd.DataFrame({"kernel": [*ranking_kernels.NAMES, ranking_kernels.CONSTANT]})
    scores = dict.fromkeys((*ranking_kernels.SCORES, "seconds"), 0.5)
    scores["accuracy"] = 0.5 + 0.1 * kernels.index
    return pd.DataFrame(parts, columns=names).merge(kernels.assign(**scores), how="cross")


def test_tables_average_over_seeds() -> None:
    parts = [(*part, noise) for part, noise in itertools.product(dishes.parts(False), dishes.NOISE)]
    text = dishes.markdown(fake(("kind", "seed", "noise"), parts))
    assert "| full | kendall | 0.60 | 0.60 |" in text
    text = sushi.markdown(fake(("setting", "seed"), sushi.parts(False)))
    assert "| large, interleaving | mallows | 0.700 ± 0.000 |" in text
    text = submodular.markdown(fake(("setting", "seed"), submodular.parts(False)))
    assert "| dishes, top-3 | concave | 0.800 ± 0.000 | 0.500 ± 0.000 |" in text


@pytest.mark.parametrize("name", gram_times.ENUMERATED)
@pytest.mark.parametrize("panel", ["top-3", "4 blocks"])
def test_enumeration_agrees_with_the_kernels(panel: str, name: str) -> None:
    rankings = gram_times.PANELS[panel][1](rank_dishes(9, 1.0), 3)
    gram = gram_times.KERNELS[name.split(",")[0]](rankings)
    assert_allclose(gram_times.KERNELS[name](rankings), gram, atol=1e-6)


def test_a_series_ends_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram_times, "LIMIT", 0.0)
    panel, kernel = "top-3", "Kendall, enumerated"
    rows = pd.DataFrame(gram_times.compute((panel, kernel), quick=True))
    text = gram_times.markdown(rows.assign(panel=panel, kernel=kernel))
    assert "| Kendall, enumerated | NA | NA |" in text


def test_the_search_is_recorded() -> None:
    engine = training.Recorded(ranking_classifier, hyperparameters="maximize")
    posterior = engine.run(0, rank_dishes(40, 1.0), kernel=Kendall())
    first, *_, last = posterior.info["history"]
    assert first < posterior.log_evidence == pytest.approx(last, abs=1e-3)
