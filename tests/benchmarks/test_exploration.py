"""The experiments with active exploration: truths, tables and figures, on made-up rows."""

import itertools

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from benchmarks.reproduce.exploration import selection, simulators, truths
from benchmarks.reproduce.exploration.experiments import EXPERIMENTS
from relpref.explore import DEFAULT, SCORES


def made_up() -> pd.DataFrame:
    """Every score but random falls twice as fast on the first simulator, and not at all on the
    second.
    """
    runs = ["attributes", "graph"], ["bald", "random"], [0], range(4), range(11)
    names = ["simulator", "strategy", "block", "seed", "answers"]
    rows = pd.MultiIndex.from_product(runs, names=names).to_frame(index=False)
    bald = np.where(rows["simulator"] == "graph", 0, 2)
    speed = np.where(rows["strategy"] == "random", 1, bald)
    value = 0.5 - 0.02 * speed * rows["answers"] + 0.01 * rows["seed"]
    return rows.assign(**dict.fromkeys(simulators.MEASURES, value))


def test_answers_needed_stand_in_the_table() -> None:
    text = simulators.markdown(made_up())
    assert "| bald | **0.50 (0.50 to 0.50)** | > 1 (> 1 to > 1) | 1 | 1 |" in text
    assert "| random | 1 | 1 |  |  |" in text
    assert "random questions need for it, 10 (> 1" in text
    rows = made_up()
    flat = (rows["simulator"] == "graph") & (rows["strategy"] == "random") & (rows["answers"] > 7)
    rows.loc[flat, "error"] = 0.5 - 0.02 * 7 + 0.01 * rows["seed"]
    assert "random questions need for it, 10, 7 on graph (> 1" in simulators.markdown(rows)


def test_curves_and_selections_are_drawn() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    simulators.draw(made_up(), figure)
    assert [axis.get_title() for axis in figure.axes] == ["attributes", "graph"]
    rows = pd.DataFrame(
        [
            {
                "protocol": "trec",
                "query": query,
                "strategy": strategy,
                "setting": "links",
                "rerun": rerun,
                "error": {"random": 0.2 + 0.02 * rerun, "ratio": 0.1 if query else 0.3}[strategy],
                "auc": 0.9,
            }
            for query, strategy, rerun in itertools.product(range(3), ("random", "ratio"), range(3))
        ]
    )
    # Errors of 0.3, 0.1 and 0.1 against 0.22, whose standard deviation is 0.02.
    assert "| ratio | 0.167 | 0.900 | 2 of 3 | 0 of 3 | -2.7 |" in selection.markdown(rows)
    figure = Figure()
    selection.draw(rows, figure)
    assert len(figure.axes) == 2


def test_every_score_is_tried() -> None:
    assert DEFAULT in SCORES
    for experiment in EXPERIMENTS.values():
        parts = experiment.parts(False)
        assert set(SCORES) <= {value for part in parts for value in part}
        assert len(set(parts)) == len(parts) > len(experiment.parts(True))


@pytest.mark.parametrize("name", ["misspecified", "digits"])
def test_truths_follow_from_the_seed(name: str) -> None:
    one, again, other = (truths.TRUTHS[name](seed) for seed in (3, 3, 4))
    assert_array_equal(one.utilities, again.utilities)
    assert_array_equal(one.data.attributes, again.data.attributes)
    assert one.data.num_items == truths.SIZE and not one.data.num_answers
    assert np.ptp(one.utilities) > 1 and not np.array_equal(one.utilities, other.utilities)
