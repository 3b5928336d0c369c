"""The experiments with drugs and targets: what is held out, how tables of folds are joined, and
small versions of them.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from benchmarks.reproduce import suite
from benchmarks.reproduce.classifiers import drug_target, landmarks
from benchmarks.reproduce.classifiers.__main__ import SUITE
from benchmarks.reproduce.classifiers.metrics import reliability
from benchmarks.reproduce.rows import Row, Rows
from relpref.data_loaders.drug_target import DrugTarget


def drugs(shape: tuple[int, int] = (9, 6)) -> DrugTarget:
    links = pd.DataFrame(np.random.default_rng(0).integers(0, 2, shape).astype(float))
    return DrugTarget(links, pd.DataFrame(np.eye(shape[0])), pd.DataFrame(np.eye(shape[1])), ())


def test_what_is_new_is_not_known_at_all() -> None:
    known, judged = drug_target.held_out(drugs(), "both known", 0)
    assert judged.sum() == 18 and (known.isna() == judged).all(axis=None)
    for setting, axis in (("new drug", 1), ("new target", 0)):
        known, judged = drug_target.held_out(drugs(), setting, 1)
        assert_array_equal(judged.all(axis), judged.any(axis))
        assert_array_equal(known.isna(), judged)
    known, judged = drug_target.held_out(drugs(), "both new", 5)
    assert judged.sum() == 3 * 2 and known.count().sum() == 6 * 4
    assert known[judged.any(axis=1)].isna().all(axis=None)


def test_tables_of_folds_are_joined() -> None:
    rng = np.random.default_rng(2)
    said = rng.uniform(size=(3, 50)) ** 3
    truth = rng.uniform(size=(3, 50)) < said
    rows = []
    for one in range(3):
        bins = reliability(truth[one], said[one], drug_target.EDGES).reindex(drug_target.BINS)
        rows.append(
            {f"{name}_{at}": bins.loc[at, name] for at in drug_target.BINS for name in bins}
        )
    joined = drug_target.pooled(pd.DataFrame(rows))
    whole = reliability(truth.ravel(), said.ravel(), drug_target.EDGES)
    pd.testing.assert_frame_equal(joined, whole[list(joined)], check_names=False, check_dtype=False)


@pytest.mark.slow
def test_small_versions(real_data: Path, tmp_path: Path) -> None:
    experiment = drug_target.EXPERIMENT
    rows = Rows(tmp_path / "rows.csv", experiment.key)
    part = ("nr", "both known", 0)
    rows.add(suite.compute(suite.Item(SUITE, experiment.name, part, True)))
    left = experiment.left(Rows(tmp_path / "rows.csv", experiment.key).rows, quick=True)
    assert len(left) == len(experiment.parts(True)) - 1 and part not in left
    found = rows.rows.set_index("method")
    assert found["log_loss"]["GP classifier"] < found["log_loss"][drug_target.CONSTANT]
    assert "60 landmarks leave out" in experiment.markdown(rows.rows)
    assert suite.draw(experiment, rows, tmp_path / "figure")
    other = landmarks.EXPERIMENT
    more: list[Row] = [
        row | {"family": "nr", "number": number}
        for number in (-1, 50)
        for row in other.compute(("nr", number), True)
    ]
    assert "| nr | 50 |" in other.markdown(pd.DataFrame(more))
    kept = Rows(tmp_path / "more.csv", other.key)
    kept.add(more)
    assert suite.draw(other, kept, tmp_path / "more")
