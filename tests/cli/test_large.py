"""Runs without a matrix of all items: every command works on them as on others."""

import csv
import io
import json
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from relpref.cli import main, rank
from relpref.errors import StorageError
from relpref.infer.large import fit as large_fit
from relpref.infer.large.covariance import ImplicitBelief
from relpref.runs import copied, load_run

HELD = ("attributes_amplitude", "attributes_lengthscale", "hot_amplitude", "hot_range")
FIXED = " ".join(f"--fixed={name}=1" for name in HELD)
FIT = f"--structure sparse --fixed attributes_linear_share=0.5 {FIXED}"


@pytest.fixture(scope="module")
def fitted(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run, and what the command said; do not write into it."""
    folder = tmp_path_factory.mktemp("large")
    tables = f"--folder {made}/tables --out {folder}/run"
    with redirect_stdout(io.StringIO()) as said:
        assert main(f"fit {tables} {FIT}".split()) == 0
    return folder, said.getvalue()


@pytest.fixture
def run(fitted: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run of one's own; it is the current folder's ``run``."""
    shutil.copytree(fitted[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_what_was_chosen_is_said(fitted: tuple[Path, str]) -> None:
    assert "The structure is sparse: there is no matrix of all 6 items" in fitted[1]
    record = json.loads((fitted[0] / "run/run.json").read_text())
    assert record["options"]["structure"] == "sparse"
    posterior = load_run(fitted[0] / "run").posterior
    assert isinstance(posterior.belief, ImplicitBelief)


def test_people_see_the_top_and_machines_all(
    run: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank, "_TOP", 4)
    lines = ask("rank run").splitlines()
    assert len(lines) == 6 and lines[-1] == "... and 2 more: --top K shows more of them, -o csv all"
    assert "expected" not in lines[0] and "p best" not in lines[0]
    assert len(ask("rank run --top 5").splitlines()) == 6
    rows = list(csv.DictReader(io.StringIO(ask("rank run -o csv"))))
    found = json.loads(ask("rank run -o json"))["ranking"]
    assert [row["item"] for row in rows] == [row["item"] for row in found]
    assert [float(row["sd"]) for row in rows] == [row["sd"] for row in found]
    assert lines[1].split()[1] == rows[0]["item"]
    assert len(json.loads(ask("rank run -o json --top 2"))["ranking"]) == 2


def test_preferences(run: Path, ask: Any) -> None:
    pairs = json.loads(ask("prefer run tea coffee -o json"))["pairs"]
    assert 0.5 < pairs[0]["probability"] < 1


def test_answers_are_learnt(run: Path, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads(ask("prefer run 007 tea -o json"))["pairs"][0]["p_better"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\nb\nwhy\nr\nu\nq\n"))
    said = ask("ask run --score variance")
    assert "1 answer given now, all kept in run/answers.sqlite" in said and "●" in said
    record = json.loads((run / "run.json").read_text())
    assert record["posterior"]["file"] == f"posterior-{record['answers']['version']}.nc"
    posterior = load_run(run).posterior
    assert posterior.data.num_answers == 11 and "quick_answers" not in posterior.info
    after = json.loads(ask("prefer run 007 tea -o json"))["pairs"][0]["p_better"]
    assert after != before


def test_an_interrupted_fit_leaves_the_run_as_it_was(
    run: Path, made: Path, invoke: Any, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(large_fit, "fit_reduced", interrupted)
    before = snapshot(run)
    said = invoke(f"fit --folder {made}/tables --out run --force {FIT}")
    assert said.code == 130 and "interrupted" in said.err
    assert snapshot(run) == before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_table_that_changed_while_it_was_fitted_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "entities.csv"
    table.write_text("name\na\n")
    (copy,) = copied({"entities": table})
    table.write_text("name\nb\n")
    with pytest.raises(StorageError, match="was changed after it was read"):
        copy.write(tmp_path / "copy.csv")
