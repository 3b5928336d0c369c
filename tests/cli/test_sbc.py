"""``relpref sbc``: simulations of a run, kept in a folder beside it."""

import json
from pathlib import Path
from typing import Any

import pytest


def test_a_run_is_simulated_and_goes_on(ask: Any, refused: Any, place: Path) -> None:
    before = {path.name for path in (place / "run").iterdir()}
    said = ask("sbc run --simulations 8")
    assert "the items themselves; EP, hyperparameters given" in said
    assert "of 8 simulations" in said
    assert f"The picture is in {Path('run-sbc').absolute() / 'ecdf.svg'}" in said
    assert {path.name for path in (place / "run").iterdir()} == before
    out = place / "run-sbc"
    assert {path.name for path in out.iterdir()} == {"simulations.jsonl", "ecdf.svg", "summary.csv"}
    kept = (out / "simulations.jsonl").read_bytes()
    found = json.loads(ask("sbc run --simulations 10 -o json"))
    assert found["verdict"] == "too few" and found["quantities"][0]["simulations"] == 10
    assert (out / "simulations.jsonl").read_bytes().startswith(kept)
    assert "run-sbc/simulations.jsonl: its records have key" in refused("sbc run --seed 1")
    assert "--scheduler: 'many' is not 'threads', 'processes'" in refused(
        "sbc run --scheduler many"
    )
    assert "this is the run" in refused("sbc run --out run")


def test_interrupted_it_says_what_is_kept(
    invoke: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, file: Path, **options: Any) -> None:
        file.write_text("settings\nfirst\nsecond\nhal", encoding="utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr("relpref.diagnostics.calibrate", interrupted)
    said = invoke("sbc run")
    kept = Path("run-sbc").absolute() / "simulations.jsonl"
    assert said.code == 130
    assert (
        said.err
        == f"relpref: interrupted; 2 simulations are in {kept}, and the same command goes on\n"
    )


def test_a_relation_whose_labels_cannot_be_drawn_is_refused_with_a_remedy(
    ask: Any, refused: Any, tmp_path: Path
) -> None:
    (tmp_path / "nodes.csv").write_text("name,x\na,1\nb,0\nc,2\n", encoding="utf-8")
    (tmp_path / "known.csv").write_text("source,target,value\na,b,1\nb,c,0.4\n", encoding="utf-8")
    tables = f"--nodes {tmp_path}/nodes.csv --relation {tmp_path}/known.csv"
    ask(f"conditional fit {tables} --symmetry reciprocal --out {tmp_path}/run")
    assert "relpref conditional fit --loss regression" in refused("sbc", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("symmetry", ["none", "symmetric"])
def test_a_relation_is_simulated_with_the_kernels_of_its_run(
    ask: Any, refused: Any, tmp_path: Path, symmetry: str
) -> None:
    (tmp_path / "nodes.csv").write_text("name,x,y\na,1,2\nb,0,1\nc,1,1\nd,2,0\n", encoding="utf-8")
    (tmp_path / "known.csv").write_text(
        "source,target,value\na,b,1\nb,c,0.4\na,d,2\nc,d,1\n", encoding="utf-8"
    )
    tables = f"--nodes {tmp_path}/nodes.csv --relation {tmp_path}/known.csv"
    options = f"--loss regression --symmetry {symmetry} --kernel gaussian"
    ask(f"conditional fit {tables} {options} --out {tmp_path}/run")
    said = ask("sbc", tmp_path / "run", "--simulations", 100)
    assert "No sign of miscalibration of the difference" in said
    assert "one kernel and one regularization" in refused(
        "sbc", tmp_path / "run", "--hyperparameters", "integrate"
    )
