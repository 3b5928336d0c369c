from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from relpref.errors import DataError
from relpref.infer import Posterior
from relpref.posterior.gaussian import GaussianBelief
from relpref.posterior.plots import ROW, plot_forest
from relpref.rls import ConditionalRanker


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    pyplot.close("all")


def words(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def bands(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_forest_draws_the_ranking(posterior: Any) -> None:
    axes, ranking = posterior.plot(5, interval=0.8), posterior.ranking(0.8).head(5)
    assert words(axes) == list(ranking.index)
    dots = axes.lines[0].get_xydata()
    np.testing.assert_array_equal(dots, np.column_stack([ranking["mean"], range(5)]))
    segments = np.array(axes.collections[0].get_segments())
    np.testing.assert_array_equal(segments[:, :, 0], ranking[["lower", "upper"]])
    assert axes.yaxis_inverted() and "80% intervals" in axes.get_xlabel()
    level = replace(posterior, belief=GaussianBelief(np.zeros(12), posterior.covariance()))
    assert bands(level.plot()) == []
    assert posterior.plot(2, axes=axes) is axes
    with pytest.raises(DataError, match="between 0 and 1"):
        posterior.plot(interval=90)


def test_tiers_have_bands(posterior: Any) -> None:
    heights = np.repeat([0.0, 50.0, 100.0], 4)
    certain = replace(posterior, belief=GaussianBelief(heights, posterior.covariance()))
    axes = certain.plot()
    assert bands(axes) == ["tier 1", "tier 2", "tier 3"]
    assert [patch.get_y() for patch in axes.patches] == [-0.5, 7.5]
    assert bands(certain.plot(5)) == ["tier 1", "tier 2"]


def test_the_name_of_a_tier_touches_no_line() -> None:
    table = pd.DataFrame(
        {"mean": [3.0, 0.5, 0.4], "lower": [0.0, 0.0, 0.0], "upper": 4.0, "tier": [1, 1, 2]},
        index=[*"abc"],
    )
    with matplotlib.rc_context({"font.size": 12}):  # as in reports, with rows of their height
        figure = pyplot.figure(figsize=(3, 3 * ROW / 72))
        axes = plot_forest(table, 3, "utility", figure.add_axes((0, 0, 1, 1)))
        figure.canvas.draw()
    for text, row in zip(axes.texts, (0, 2), strict=True):
        line = axes.transData.transform((0, row))[1]
        assert text.get_window_extent().y0 > line + 2


def test_the_name_of_a_tier_is_not_on_the_line_at_zero() -> None:
    table = pd.DataFrame({"mean": [2.0, 0.5], "lower": [1.5, -0.2], "upper": [3.0, 0.6]})
    figure = pyplot.figure(figsize=(3, 2))
    axes = plot_forest(table.assign(tier=[1, 2]), 2, "utility", figure.add_axes((0, 0, 1, 1)))
    figure.canvas.draw()
    zero = axes.transData.transform((0, 0))[0]
    for text in axes.texts:
        box = text.get_window_extent()
        assert not box.x0 <= zero <= box.x1


def test_names_are_not_mathematics(posterior: Any) -> None:
    labels = ["$x^2$", "a" * 60, *posterior.data.labels[2:]]
    axes = replace(posterior, data=replace(posterior.data, labels=tuple(labels))).plot()
    assert {r"\$x^2\$", "a" * 39 + "…"} < set(words(axes))
    axes.figure.savefig("/dev/null", format="svg")


def test_other_posteriors(posterior: Any) -> None:
    names = ("belief", "hyperparameters", "log_evidence", "info", "sites", "parts", "key")
    sites = {"w": slice(0, 5), "b": slice(5, 12)}
    plain = Posterior(**{name: getattr(posterior, name) for name in names}, slices=sites)
    shown = words(plain.plot())
    assert len(shown) == 12 and {"w 4", "b 6"} < set(shown)
    nodes = pd.DataFrame({"x": [0.0, 1.0, 2.0, 4.0]}, index=list("abcd"))
    scores = np.random.default_rng(0).standard_normal((4, 4))
    relation = ConditionalRanker("gaussian").fit(nodes, scores).posterior_
    assert words(relation.plot("a", top=2)) == list(relation.ranking("a").index[:2])
    assert (relation.tiers("a")["tier"] == relation.ranking("a")["tier"]).all()
