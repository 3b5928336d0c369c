"""Tiers, pictures, ballots, and answers alone."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.posterior.classes import ClassPosterior
from relpref.runs import load_run


def test_answers_alone_are_a_run(place: Path, ask: Any, refused: Any) -> None:
    answers = "winner,loser\ngreen tea,coffee\ncoffee,water\ngreen tea,water\n"
    (place / "my answers.csv").write_text(answers.replace("\n", "\r\n"))
    said = ask("fit 'my answers.csv' --out 'new run' --hyperparameters maximize")
    assert "Read: 3 items" in said
    ranked = ask("rank 'new run' -o csv")
    assert pd.read_csv(StringIO(ranked))["item"].tolist() == ["green tea", "coffee", "water"]
    (place / "links too.csv").write_text("source,target\ngreen tea,coffee\n")
    options = "--relation 'alike=links too.csv' --hyperparameters maximize --quiet --out two"
    ask(f"fit {options} 'my answers.csv'")
    refused("fit 'my answers.csv' --out two")  # never in place of another


def test_tiers_are_those_of_the_posterior(place: Path, ask: Any, invoke: Any) -> None:
    posterior: Any = relpref.load(place / "run" / "posterior.nc")
    table = posterior.tiers()
    said = ask("tiers run -o json")
    assert [row["item"] for row in json.loads(said)["tiers"]] == list(table.index)
    printed = pd.read_csv(StringIO(ask("tiers run -o csv --top 2")))
    np.testing.assert_array_equal(printed["rank_upper_all"], table["rank_upper_all"].iloc[:2])
    assert "tier" in ask("tiers run") and invoke("tiers run --probability 2").code == 2


def test_the_ranking_is_drawn(place: Path, ask: Any, refused: Any) -> None:
    pytest.importorskip("matplotlib")
    for name, begin in (("a picture.png", b"\x89PNG"), ("b.svg", b"<?xml")):
        ask("plot run --out", name)
        assert (place / name).read_bytes().startswith(begin)
    assert (
        "a picture ends in" in refused("plot run --out ranking.gif2")
        and not (place / "ranking.gif2").exists()
    )


@pytest.fixture
def ballots(place: Path) -> Path:
    """Two groups that rank four drinks in opposite orders, with noise."""
    rng = np.random.default_rng(0)
    rows, voters = [], []
    for voter in range(24):
        order = np.argsort(np.arange(4) * (1 if voter % 2 else -1) + 0.7 * rng.normal(size=4))
        rows += [(f"v{voter}", "abcd"[item], place + 1) for place, item in enumerate(order)]
        voters.append((f"v{voter}", "hot" if voter % 2 else "cold"))
    pd.DataFrame(rows, columns=["ranker", "item", "position"]).to_csv(
        place / "ballots.csv", index=False
    )
    pd.DataFrame(voters, columns=["voter", "group"]).to_csv(place / "voters.csv", index=False)
    return place


def test_ballots_without_a_class_are_classified(
    ballots: Path, ask: Any, invoke: Any, refused: Any
) -> None:
    known = pd.read_csv(ballots / "voters.csv")
    known.assign(group=known["group"].where(known.index < 18)).to_csv(
        ballots / "some.csv", index=False
    )
    said = ask("classify ballots.csv --classes some.csv --kernel concave -o csv --out some")
    for name in ("ballots", "some"):
        text = (ballots / f"{name}.csv").read_text()
        (ballots / f"{name}_16.csv").write_bytes(text.encode("utf-16-le"))
    options = "--kernel concave -o csv --out other --encoding utf-16-le"
    assert ask(f"classify ballots_16.csv --classes some_16.csv {options}") == said
    found = pd.read_csv(StringIO(said))
    assert found["ranker"].tolist() == [f"v{voter}" for voter in range(18, 24)]
    assert (found["class"] == known["group"].iloc[18:].to_numpy()).mean() > 0.8
    np.testing.assert_allclose(found[["p(cold)", "p(hot)"]].sum(axis=1), 1.0)
    saved = load_run("some")
    assert isinstance(saved.posterior, ClassPosterior)
    assert saved.metadata["command"] == "classify" and len(saved.metadata["tables"]) == 2
    assert len(saved.posterior.examples()[0]) == 18 and saved.posterior.classes == ("cold", "hot")
    assert "there is a run already" in refused("classify ballots.csv --classes some.csv --out some")
    assert invoke("report some").code == 0 and (ballots / "some" / "report.html").exists()


def test_ballots_are_classified_by_those_of_others(ballots: Path, ask: Any, refused: Any) -> None:
    found = json.loads(ask("classify ballots.csv --classes voters.csv -o json"))
    assert len(found["ballots"]) == 24 and found["right"] > 0.8
    groups = pd.read_csv(ballots / "voters.csv")
    rng = np.random.default_rng(1)  # where the group says nothing, it is not found
    groups.assign(group=rng.permutation(groups["group"])).to_csv(
        ballots / "shuffled.csv", index=False
    )
    assert (
        json.loads(ask("classify ballots.csv --classes shuffled.csv -o json --force"))["right"]
        < 0.75
    )
    (ballots / "wrong.csv").write_text("voter,group\nv99,hot\n")
    assert "wrong.csv, line 2: 'v99' gave no ballot" in refused(
        "classify ballots.csv --classes wrong.csv --out none"
    )
