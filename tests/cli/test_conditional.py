"""``relpref conditional``: what it answers is what the estimators answer, and what it refuses it
names.
"""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref.rls
from relpref.cli import main
from relpref.data_loaders import play_rock_paper_scissors
from relpref.rls import ConditionalRanker, ConditionalRankerCV

DRUGS = "drug,size,charge\na,1,0.5\nb,2,-1\nc,0.5,0\nd,1.5,2\n"
TARGETS = "target,pocket\nx,1\ny,-1\nz,0.25\n"
KNOWN = "source,target,value\na,x,1\na,y,0\nb,x,0\nb,z,1\nc,y,1\nc,z,0\nd,x,1\nd,y,0.5\nd,z,0\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with drugs, targets and games; it is the current one."""
    games = play_rock_paper_scissors(10.0, players=20, games=200, seed=1)
    games.players.to_csv(tmp_path / "players.csv")
    games.games.to_csv(tmp_path / "games.csv", index=False)
    games.test_players.to_csv(tmp_path / "new.csv")
    for name, text in {"drugs": DRUGS, "targets": TARGETS, "known": KNOWN}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


GAMES = "conditional fit --nodes players.csv --relation games.csv --symmetry reciprocal --out run"
FIT_DRUGS = "conditional fit --nodes drugs.csv --objects targets.csv --relation known.csv --out run"


def read(file: str) -> pd.DataFrame:
    return pd.read_csv(file, index_col=0)


def test_it_ranks_as_the_estimator_does(place: Path, ask: Any) -> None:
    said = ask(f"{GAMES} --regularization 0.5")
    first, *_, last = said.splitlines()
    assert first == "Read: 20 nodes with 3 features, 200 labels of 400 pairs"
    assert last == "The run is in run: try relpref conditional rank run player_00"

    ranker = ConditionalRanker(symmetry="reciprocal", regularization=0.5)
    ranker.fit(read("players.csv"), pd.read_csv("games.csv"))
    expected = ranker.posterior_.ranking("player_03")
    found = pd.read_csv(io.StringIO(ask("conditional rank run player_03 -o csv")), index_col=0)
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=1e-9)
    assert list(found.index) == list(expected.index) and "player_03" not in found.index

    document = json.loads(ask("conditional rank run player_03 -o json --top 2"))
    assert [row["object"] for row in document["ranking"]] == list(expected.index[:2])
    shown = ask("conditional rank run player_03 --top 1 --interval 0.8").splitlines()
    assert (
        "object" in shown[0]
        and "score" in shown[0]
        and "80% interval" in shown[0]
        and len(shown) == 2
    )


def test_new_nodes_are_ranked_and_ranked_for(place: Path, ask: Any) -> None:
    assert ask(f"{GAMES} --quiet") == ""
    ranker = ConditionalRanker(symmetry="reciprocal").fit(
        read("players.csv"), pd.read_csv("games.csv")
    )
    new = read("new.csv")
    mixed = new[["scissors", "rock", "paper"]]  # columns in another order
    mixed.to_csv("mixed.csv")
    for file, objects in (("new.csv", None), ("mixed.csv", new)):
        more = [] if objects is None else ["--new-objects", "new.csv"]
        said = ask("conditional rank run new_player_07 --new", file, *more, "-o", "json")
        found = {row["object"]: row["mean"] for row in json.loads(said)["ranking"]}
        expected = ranker.posterior_.ranking(new.loc[["new_player_07"]], objects)["mean"]
        assert found == pytest.approx(expected.to_dict(), abs=1e-9)
    ask("conditional rank run player_01 --new new.csv")


def test_the_regularization_is_chosen_as_by_the_estimator(place: Path, ask: Any) -> None:
    said = ask(f"{GAMES} --regularization 10,0.1,1 -o json")
    found = json.loads(said)
    ranker = ConditionalRanker(symmetry="reciprocal")
    search = ConditionalRankerCV(ranker, regularizations=(0.1, 1.0, 10.0))
    search.fit(read("players.csv"), pd.read_csv("games.csv"))
    assert found["options"]["regularization"] == search.regularization_
    assert [row["regularization"] for row in found["left_out"]] == [0.1, 1.0, 10.0]
    assert [row["concordance"] for row in found["left_out"]] == pytest.approx(search.scores_)
    assert found["data"] == {
        "description": "20 nodes with 3 features, 200 labels of 400 pairs",
        "nodes": 20,
        "labels": 200,
    }
    text = ask(f"{GAMES} --regularization 0.1,1 --force").splitlines()[1]
    assert text.startswith("Concordance of the rankings for nodes left out: 0.")


def test_a_choice_among_few_nodes(place: Path, ask: Any, refused: Any) -> None:
    ask(f"{FIT_DRUGS} --regularization 0.1,1")
    (place / "drugs.csv").write_text("drug,size\na,1\n")
    (place / "known.csv").write_text("source,target,value\na,x,1\na,y,0\n")
    assert "and there is only one node; give one value" in refused(
        f"{FIT_DRUGS} --regularization 0.1,1 --force --quiet"
    )


def test_objects_of_another_kind_and_the_other_argument(place: Path, ask: Any) -> None:
    ask(f"{FIT_DRUGS} --kernel gaussian --gamma 0.5")
    found = json.loads(ask("conditional rank run a -o json"))["ranking"]
    assert {row["object"] for row in found} == {"x", "y", "z"}
    said = ask(f"{FIT_DRUGS} --kernel gaussian --gamma 0.5 --condition second --force")
    assert said.splitlines()[-1].endswith("conditional rank run x")
    found = json.loads(ask("conditional rank run y -o json"))["ranking"]
    assert {row["object"] for row in found} == {"a", "b", "c", "d"}


def test_a_kernel_matrix(place: Path, ask: Any, refused: Any) -> None:
    players = read("players.csv")
    kernel = pd.DataFrame(players @ players.T, index=players.index, columns=players.index)
    kernel[kernel.columns[::-1]].to_csv("players.csv")
    ask(f"{GAMES} --kernel precomputed --out kernel")
    players.to_csv("players.csv")
    ask(f"{GAMES} --kernel linear --no-standardize")
    ranked = [
        json.loads(ask("conditional rank", run, "player_05", "-o", "json"))["ranking"]
        for run in ("kernel", "run")
    ]
    for one, other in zip(*ranked, strict=True):
        assert one["object"] == other["object"] and one["mean"] == pytest.approx(
            other["mean"], abs=1e-8
        )
    assert "the run was fitted to a kernel matrix" in refused(
        "conditional rank kernel new_player_01 --new new.csv"
    )


def test_the_folder_of_a_run(
    place: Path, ask: Any, refused: Any, snapshot: Callable[[Path], dict[str, bytes]]
) -> None:
    ask(GAMES)
    first = snapshot(place / "run")
    assert set(first) == {"run.json", "posterior.nc", "data/nodes.csv", "data/relation.csv"}
    record = json.loads(first["run.json"])
    assert record["command"] == "conditional fit" and record["options"]["symmetry"] == "reciprocal"
    assert "--force replaces it" in refused(GAMES)
    ask(f"{GAMES} --force")
    assert snapshot(place / "run") == first
    for command in (["rank", "run"], ["prefer", "run", "a", "b"]):
        assert "use relpref conditional rank run NODE" in refused(*command)
    ask("report run --title Games")
    assert "<h1>Games</h1>" in (place / "run" / "report.html").read_text("utf-8")


def test_a_run_of_items_has_no_relation(
    place: Path, ask: Any, refused: Any, write_tables: Callable[..., Path]
) -> None:
    write_tables(place / "tables")
    ask("fit --folder tables --out run --quiet")
    assert "relpref rank run ranks its items" in refused("conditional rank run tea")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        (
            "drugs.csv",
            "drug,size,charge\na,1,x\nb,1,2\n",
            "drugs.csv, line 2 (label 'a'), column 'charge': 'x'",
        ),
        (
            "drugs.csv",
            "drug\na\nb\n",
            "drugs.csv: there are labels and nothing else; add numeric columns",
        ),
        ("drugs.csv", "drug,size\na,1\na,2\n", "drugs.csv, line 3 (label 'a')"),
        ("known.csv", "source,target\na,x\n", "known.csv: there is no column 'value'"),
        ("known.csv", "source,target,value\na,q,1\n", "known.csv, line 2, column 'target': 'q'"),
        (
            "known.csv",
            "source,target,value\na,x,much\n",
            "known.csv, line 2, column 'value': 'much'",
        ),
        (
            "known.csv",
            "source,target,value\na,x,1\na,y,1\n",
            "gives all its objects the same label",
        ),
    ],
)
def test_tables_that_cannot_be_used(
    place: Path, refused: Any, file: str, text: str, reason: str
) -> None:
    (place / file).write_text(text)
    assert reason in refused(FIT_DRUGS)
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("--regularization 1,x", "'x' is not a number"),
        ("--regularization 0", "0: a regularization is a positive number"),
        ("--symmetry symmetric", "only a relation of one set of nodes with itself can be"),
        (
            "--kernel precomputed",
            "drugs.csv: a kernel matrix has the same labels in its rows and columns",
        ),
        ("--gamma -1 --kernel gaussian", "gamma is -1.0; it must be positive"),
        ("--loss hinge", "invalid choice: 'hinge'"),
    ],
)
def test_options_that_do_not_fit(place: Path, refused: Any, more: str, reason: str) -> None:
    assert reason in refused(f"{FIT_DRUGS} {more}")


@pytest.mark.parametrize(
    ("query", "text", "reason"),
    [
        (
            "player_5",
            None,
            (
                "run: no node 'player_5' is known; nearest: 'player_15', 'player_05', 'player_19'; "
                "give"
            ),
        ),
        (
            "nobody",
            None,
            (
                "no node 'nobody' is known; there are 'player_00', 'player_01', 'player_02' and 17 "
                "more; give the features"
            ),
        ),
        (
            "new_99",
            "player,rock,paper,scissors\nnew_9,1,0,0\n",
            "nearest: 'new_9'; new.csv has others",
        ),
        (
            "new",
            "player,rock,paper\nnew,1,0\n",
            "new.csv: there is no column 'scissors', which the known nodes have",
        ),
        (
            "new",
            "player,rock,paper,scissors,age\nnew,1,0,0,7\n",
            "new.csv: the column 'age' is not used",
        ),
        (
            "new",
            "player,rock,paper,scissors\nplayer_00,1,0,0\n",
            "'player_00' is in the run already",
        ),
    ],
)
def test_queries_that_cannot_be_answered(
    place: Path, refused: Any, query: str, text: str | None, reason: str
) -> None:
    assert main(f"{GAMES} --quiet".split()) == 0
    if text is not None:
        (place / "new.csv").write_text(text)
    assert reason in refused(
        "conditional rank run", query, *([] if text is None else ["--new", "new.csv"])
    )


@pytest.mark.filterwarnings("default::relpref.infer.InferenceWarning")
def test_a_fit_that_does_not_converge_is_none(
    place: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relpref.rls, "ConditionalRanker", partial(ConditionalRanker, max_iter=2))
    said = invoke(f"{GAMES} --kernel gaussian --regularization 1e-6")
    assert (
        said.code == 1
        and "did not converge" in said.err
        and "take a larger --regularization" in said.err
    )
    assert not (place / "run").exists()


def test_a_kernel_matrix_that_is_none(place: Path, refused: Any) -> None:
    """The relation has gaps, so that no closed form looks at the eigenvalues."""
    players = read("players.csv")
    matrix = pd.DataFrame(
        np.cos(5.0 * np.add.outer(np.arange(20), np.arange(20))),
        index=players.index,
        columns=players.index,
    )
    matrix.to_csv("kernel.csv")
    (place / "kernel.csv").replace(place / "players.csv")
    assert "indefinite" in refused(f"{GAMES} --kernel precomputed --regularization 0.001 --quiet")
    assert not (place / "run").exists()


def test_one_attribute_of_a_reciprocal_relation(place: Path, ask: Any, refused: Any) -> None:
    """The linear kernel of one feature is 0 for every pair: the default is another, and this one is
    refused.
    """
    (place / "players.csv").write_text("player,skill\na,10\nb,20\nc,30\nd,40\ne,50\n")
    pairs = [(one, other) for one in "abcde" for other in "abcde" if one < other]
    rows = "".join(f"{one},{other},{0.5 - 0.1 * (ord(other) - ord(one))}\n" for one, other in pairs)
    (place / "games.csv").write_text(f"source,target,value\n{rows}")
    said = ask(GAMES)
    assert "chosen by the evidence" in said
    ranked = json.loads(ask("conditional rank run c -o json"))["ranking"]
    assert [row["object"] for row in ranked] == ["a", "b", "d", "e"]
    assert ranked[0]["mean"] - ranked[-1]["mean"] > 0.3
    estimator = ConditionalRanker(symmetry="reciprocal").fit(
        read("players.csv"), pd.read_csv("games.csv")
    )
    assert {row["object"]: row["mean"] for row in ranked} == pytest.approx(
        estimator.posterior_.ranking("c")["mean"].to_dict(), abs=1e-9
    )
    said = refused(f"{GAMES} --kernel linear --force")
    assert "is 0 for every pair" in said and "gaussian" in said


def test_files_in_a_named_encoding(place: Path, ask: Any, refused: Any) -> None:
    expected = ask(FIT_DRUGS)
    for file in place.glob("*.csv"):
        file.write_bytes(file.read_text().encode("utf-16-le"))
    (place / "more.csv").write_bytes("drug,size,charge\nµ,1,0\n".encode("utf-16-le"))
    assert "--encoding utf-16-le" in refused(f"{FIT_DRUGS} --force")
    assert ask(f"{FIT_DRUGS} --force --encoding utf-16-le") == expected
    ask("conditional rank run µ --new more.csv --encoding utf-16-le")
