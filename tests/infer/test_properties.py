import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import relpref
from relpref.data import PreferenceData
from relpref.infer import EP
from relpref.models import xpgp

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=12, deadline=None, derandomize=True)


def rebuilt(items: Any, comparisons: Any, links: Any) -> PreferenceData:
    return PreferenceData.from_tables(items, comparisons, {"next": links})


@FEW
@given(seed=SEEDS)
def test_names_and_order_of_the_rows_do_not_matter(
    seed: int, make_data: Callable[..., PreferenceData], fit: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(seed)
    data = make_data(seed % 7, count=rng.integers(1, 6, 30))
    items, comparisons, relations = data.to_tables()
    names = dict(
        zip(data.labels, rng.permutation([f"n{k}" for k in range(12)]).tolist(), strict=True)
    )
    shuffled = rebuilt(
        items.iloc[rng.permutation(12)].rename(index=names),
        comparisons.iloc[rng.permutation(30)].replace({"winner": names, "loser": names}),
        relations["next"].iloc[rng.permutation(14)].replace({"source": names, "target": names}),
    )
    one, other = fit(data, tol=1e-11), fit(shuffled, tol=1e-11)
    assert abs(one.log_evidence - other.log_evidence) <= 1e-9
    left = one.utilities().rename(index=names)
    right = other.utilities().loc[left.index]
    assert_allclose(left, right, rtol=0, atol=1e-8)
    left = one.explain().rename(index=names)
    assert_allclose(left, other.explain().loc[left.index], rtol=0, atol=1e-8)


@FEW
@given(seed=SEEDS)
def test_a_count_is_so_many_rows(
    seed: int, make_data: Callable[..., PreferenceData], fit: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(seed)
    data = make_data(seed % 5, count=rng.integers(1, 8, 30))
    items, comparisons, relations = data.to_tables()
    repeated = comparisons.loc[comparisons.index.repeat(comparisons["count"])].drop(columns="count")
    again = rebuilt(items, repeated.sample(frac=1, random_state=seed), relations["next"])
    one, other = fit(data), fit(again)
    assert one.log_evidence == other.log_evidence
    assert_array_equal(one.mean(), other.mean())
    assert_array_equal(one.covariance(), other.covariance())


@FEW
@given(seed=SEEDS)
def test_the_opposite_answers_give_the_opposite_utilities(
    seed: int, make_data: Callable[..., PreferenceData], fit: Callable[..., Any]
) -> None:
    data = make_data(seed % 11, count=np.random.default_rng(seed).integers(1, 4, 30))
    items, comparisons, relations = data.to_tables()
    swapped = comparisons.rename(columns={"winner": "loser", "loser": "winner"})
    one = fit(data, tol=1e-11)
    other = fit(rebuilt(items, swapped, relations["next"]), tol=1e-11)
    assert_allclose(one.mean(), -other.mean(), rtol=0, atol=1e-8)
    assert_allclose(one.covariance(), other.covariance(), rtol=0, atol=1e-8)
    assert abs(one.log_evidence - other.log_evidence) <= 1e-9


@FEW
@given(seed=SEEDS, row=st.integers(0, 29))
def test_one_more_answer_moves_the_gap_its_way(
    seed: int, row: int, make_data: Callable[..., PreferenceData], fit: Callable[..., Any]
) -> None:
    before = make_data(seed % 13)
    count = before.count.copy()
    count[row] += 1
    pairs = list(zip(before.winner.tolist(), before.loser.tolist(), strict=True))
    after = make_data(attributes=before.attributes, pairs=pairs, count=count)
    question = [(before.labels[before.winner[row]], before.labels[before.loser[row]])]
    first, second = (fit(data).prefer(question).iloc[0] for data in (before, after))
    assert second["gap_mean"] > first["gap_mean"]
    assert second["gap_sd"] < first["gap_sd"]


SCRIPT = """
import sys
import jax, relpref
from relpref.infer import EP
from relpref.models import xpgp
data = relpref.PreferenceData.from_folder(sys.argv[1])
EP(xpgp).run(7, data).save(sys.argv[2])
"""


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(data: PreferenceData, tmp_path: Path) -> None:
    items, comparisons, relations = data.to_tables()
    (tmp_path / "relations").mkdir()
    items.to_csv(tmp_path / "entities.csv")
    comparisons.to_csv(tmp_path / "comparisons.csv", index=False)
    relations["next"].to_csv(tmp_path / "relations" / "next.csv", index=False)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    written = [tmp_path / "one.nc", tmp_path / "other.nc"]
    commands = [
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), str(file)] for file in written
    ]
    pipes: Any = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "env": environment,
    }
    running = [subprocess.Popen(command, **pipes) for command in commands]
    for process in running:
        said, _ = process.communicate()
        assert (process.returncode, said) == (0, "")
    assert written[0].read_bytes() == written[1].read_bytes()
    # In a process that has compiled much before, the last bits may come out otherwise.
    read = relpref.PreferenceData.from_folder(tmp_path)
    here: Any = EP(xpgp).run(7, read)
    assert_allclose(here.mean(), relpref.load(written[0]).mean(), rtol=0, atol=1e-11)
