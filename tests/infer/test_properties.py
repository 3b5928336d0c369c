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
from numpy.testing import assert_allclose

import relpref
from relpref.data import PreferenceData
from relpref.infer import EP
from relpref.models import xpgp

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=5, deadline=None, derandomize=True)


def rebuilt(items: Any, comparisons: Any, links: Any) -> PreferenceData:
    return PreferenceData.from_tables(items, comparisons, {"next": links})


@FEW
@given(seed=SEEDS)
def test_names_and_order_of_the_rows_do_not_matter(
    seed: int, make_data: Callable[..., PreferenceData], fit: Any
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
