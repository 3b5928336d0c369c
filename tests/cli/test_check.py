"""``relpref check``; NUTS is replaced by draws of the posterior itself, except where a test is
slow.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relpref.diagnostics.nuts import Chains
from relpref.errors import InferenceError
from relpref.infer import Result


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """NUTS that has converged on what the posterior says; the tail of this mixture is such that
    other draws may differ in their sds.
    """

    def sample(
        posterior: Any, chosen: Any, belief: Any, free: bool, key: Any, **settings: Any
    ) -> Chains:
        draws = posterior.belief.draw(settings["draws"], np.random.default_rng(1))[:, chosen]
        shape = (settings["chains"], -1, len(chosen))
        names = posterior.hyperparameters if free else {}
        values = {name: np.array([value] * settings["draws"]) for name, value in names.items()}
        return Chains(draws.reshape(shape), values, 0)

    monkeypatch.setattr("relpref.diagnostics.nuts.sample", sample)


def test_a_run_is_checked(place: Path, quick: None, ask: Any) -> None:
    said = ask("check run")
    assert said.startswith("Certificate: ")
    assert "off by, in sd" in said
    assert "coffee" in said
    last = said.rstrip().splitlines()[-1]
    assert last.startswith("NUTS: EP, averaged over hyperparameters, agrees with NUTS")
    part = ask("check run --items 3 --hyperparameters --draws 400 --chains 2")
    assert "3 of 6 items" in part
    assert "hot_amplitude" in part


def test_as_a_document(place: Path, quick: None, ask: Any) -> None:
    first = ask("check run -o json")
    content = json.loads(first)
    assert content["command"] == "check"
    assert content["certificate"]["verdict"] in ("good", "doubtful", "undecided", "failed")
    assert content["nuts"]["verdict"] == "agrees"
    assert {row["label"] for row in content["nuts"]["table"]} == {
        "tea",
        "coffee",
        "water",
        "cola",
        "007",
        "NA",
    }
    assert ask("check run -o json") == first
    assert json.loads(ask("check run -o json --seed 5"))["certificate"] != content["certificate"]


def test_runs_without_anything_to_compare(place: Path, ask: Any) -> None:
    (place / "nobody.csv").write_text("name,size\ntea,1\ncoffee,2\n", encoding="utf-8")
    ask("fit --items nobody.csv --out empty --quiet")
    said = ask("check empty")
    assert "There are no answers" in said
    (place / "known.csv").write_text(
        "source,target,value\ntea,coffee,1\ncoffee,tea,2\n", encoding="utf-8"
    )
    options = "--nodes nobody.csv --relation known.csv --loss regression --out rel --quiet"
    ask(f"conditional fit {options}")
    said = ask("check rel")
    assert "exact" in said
    assert "nothing that NUTS could tell" in said


def test_what_cannot_be_checked(
    place: Path, invoke: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused("check nowhere")
    for options in ("--items 1", "--draws 3", "--chains 0", "--draws many"):
        said = invoke(f"check run {options}")
        assert (said.code, said.out, said.err.startswith("relpref: error: ")) == (2, "", True)

    def fails(*_: Any, **__: Any) -> Any:
        raise InferenceError("nothing converged", Result.diverged)

    monkeypatch.setattr("relpref.diagnostics.nuts.sample", fails)
    assert invoke("check run").code == 1

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("relpref.diagnostics.nuts.sample", interrupted)
    assert invoke("check run").code == 130


@pytest.mark.slow
def test_in_earnest(place: Path, ask: Any) -> None:
    (place / "two.csv").write_text("name,size\ntea,1\ncoffee,2\n", encoding="utf-8")
    (place / "asked.csv").write_text("winner,loser\ntea,coffee\n", encoding="utf-8")
    ask("fit --items two.csv --answers asked.csv --out two --quiet")
    for run in ("two", "run"):
        said = ask("check", run)
        assert "agrees with NUTS" in said
