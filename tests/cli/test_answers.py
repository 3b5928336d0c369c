import csv
import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.cli.output import document
from relpref.data.arrays import label, text_table
from relpref.likelihoods import Logistic, Probit
from relpref.runs import load_run


def test_rank_for_people(place: Path, ask: Any) -> None:
    said = ask("rank run/")
    lines = said.splitlines()
    assert lines[0].split() == [
        "item",
        "utility",
        "90%",
        "interval",
        "rank",
        "90%",
        "interval",
        "p",
        "best",
        "tier",
    ]
    posterior: Any = load_run("run").posterior
    ranking = posterior.ranking()
    assert [line.split()[1] for line in lines[1:]] == list(ranking.index)
    assert len(ask("rank run --top 2").splitlines()) == 3
    assert len(ask("rank run --top 200").splitlines()) == 7


def test_rank_as_csv_and_json_agree_to_the_last_digit(place: Path, ask: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(ask("rank run -o csv"))))
    found = json.loads(ask("rank run -o json"))
    assert found["items"] == 6
    assert [row["item"] for row in rows] == [row["item"] for row in found["ranking"]]
    assert {"007", "NA"} <= {row["item"] for row in rows}  # labels from CSV are text
    for one, other in zip(rows, found["ranking"], strict=True):
        assert {name: float(value) for name, value in one.items() if name != "item"} == {
            name: value for name, value in other.items() if name in one and name != "item"
        }
    posterior: Any = load_run("run").posterior
    document = json.loads(posterior.to_json())
    assert {name: found[name] for name in document} == document


def test_interval(place: Path, ask: Any, refused: Any) -> None:
    narrow = json.loads(ask("rank run -o json --interval 0.5"))
    wide = json.loads(ask("rank run -o json"))
    assert (narrow["interval"], wide["interval"]) == (0.5, 0.9)
    for one, other in zip(narrow["ranking"], wide["ranking"], strict=True):
        assert other["lower"] < one["lower"] < one["upper"] < other["upper"]
    assert "50% interval" in ask("rank run --interval 0.5")
    for wrong in ("0", "1", "90", "nan"):
        assert "a probability between 0 and 1" in refused("rank run --interval", wrong)


def test_prefer(place: Path, ask: Any) -> None:
    said = ask("prefer run tea coffee coffee tea -o json")
    there, back = json.loads(said)["pairs"]
    assert (there["first"], there["second"]) == ("tea", "coffee")
    assert there["probability"] + back["probability"] == pytest.approx(1, abs=1e-12)
    posterior: Any = load_run("run").posterior
    expected = posterior.prefer([("tea", "coffee")])
    assert there["probability"] == pytest.approx(
        expected["probability"][0], rel=1e-12
    )  # in another batch
    lines = ask("prefer run tea coffee NA 007").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["tea", "coffee"], ["NA", "007"]]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("cofee tea", "position 0: 'cofee' is not the label of an item; nearest: 'coffee'; use"),
        ("tea coffee water", "the label 'water' has no other to be compared with"),
    ],
)
def test_prefer_wants_pairs_of_labels(place: Path, refused: Any, labels: str, reason: str) -> None:
    assert reason in refused(f"prefer run {labels} -o json")


def relabelled(place: Path, name: str, labels: dict[str, str]) -> Path:
    """The tables with other labels: equal shapes need no further compilation."""
    target = place / name
    for file in sorted((place / "tables").rglob("*.csv")):
        copied = target / file.relative_to(place / "tables")
        copied.parent.mkdir(parents=True, exist_ok=True)
        cells = [line.split(",") for line in file.read_text().splitlines()]
        copied.write_text(
            "".join(",".join(labels.get(cell, cell) for cell in row) + "\n" for row in cells)
        )
    return target


def test_labels_that_are_no_text_are_found_by_how_they_are_printed(
    place: Path, ask: Any, refused: Any
) -> None:
    pytest.importorskip("pyarrow")
    numbers = {"tea": 3, "coffee": 1, "water": 2, "cola": 5, "007": 7, "NA": 9}
    folder = place / "parquet"
    (folder / "relations").mkdir(parents=True)
    for name in ("entities", "comparisons", "relations/hot"):
        table = pd.read_csv(
            place / "tables" / f"{name}.csv", dtype={"name": str}, keep_default_na=False
        )
        table.replace(numbers).infer_objects().to_parquet(folder / f"{name}.parquet", index=False)
    ask("fit --hyperparameters maximize --out numbers --folder", folder)
    assert (place / "numbers/data/entities.parquet").exists()
    pair = json.loads(ask("prefer numbers 3 1 -o json"))["pairs"][0]
    assert (pair["first"], pair["second"]) == (3, 1)
    assert "'4' is not the label of an item" in refused("prefer numbers 3 4")


def test_odd_labels(place: Path, ask: Any) -> None:
    odd = {
        "tea": '"a\nb"',
        "coffee": "\x1b[31mred",
        "water": "日本",
        "cola": '"c, ""d"""',
        "NA": "--json",
        "007": "-1",
    }
    folder = relabelled(place, "odd", odd)
    ask("fit --hyperparameters maximize --out oddities --folder", folder)
    shown = ask("rank oddities")
    assert len(shown.splitlines()) == 7  # each stays on its line
    assert "a\\nb" in shown and "\\x1b[31mred" in shown and "日本" in shown
    labels = {"a\nb", "\x1b[31mred", "日本", 'c, "d"', "--json", "-1"}
    exact = json.loads(ask("rank oddities -o json"))
    assert {row["item"] for row in exact["ranking"]} == labels
    rows = csv.DictReader(io.StringIO(ask("rank oddities -o csv"), newline=""))
    assert {row["item"] for row in rows} == labels
    said = ask("prefer oddities -- --json -1")
    assert said.splitlines()[1].split()[:2] == ["--json", "-1"]


def test_report(
    place: Path, ask: Any, invoke: Any, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(place / "run")
    said = invoke("report run/")
    assert said == (0, "The report is in run/report.html\n", "")
    page = (place / "run/report.html").read_bytes()
    assert {**before, "report.html": page} == snapshot(place / "run")
    monkeypatch.setattr("relpref.report.page.render", lambda *_, title, **__: title)
    said = ask("report run --title Drinks --out page.html -o json")
    assert json.loads(said)["report"] == "page.html"
    assert (place / "page.html").read_text() == "Drinks"
    ask("rank run")  # it is still a run


@pytest.mark.parametrize("out", ["no/such/folder.html", "tables"])
def test_report_that_cannot_be_written(
    place: Path, refused: Any, out: str, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    before = snapshot(place)
    refused("report run --out", out)
    assert snapshot(place) == before


def test_columns_line_up_with_wide_letters() -> None:
    lines = text_table(("what", "n"), [("日本", "1"), ("e\u0301a", "10")]).splitlines()
    assert lines == ["what   n", "日本   1", "e\u0301a    10"]


def test_label_escapes_what_cannot_be_shown() -> None:
    assert label("a\tb\x00\u202e") == "a\\tb\\x00\\u202e"
    assert label(("a", 1)) == "('a', 1)"
    assert label("naïve 日本") == "naïve 日本"


def test_a_document_is_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    document(
        Namespace(name="try", run="run"),
        number=np.float64("nan"),
        array=np.array([1.5, np.inf]),
        label=("a", 1, True, None),
        day=pd.Timestamp("2020-02-03"),
        other={2: 1 + 2j},
        text="\ud800",
    )
    assert json.loads(capsys.readouterr().out) == {
        "command": "try",
        "run": "run",
        "number": None,
        "array": [1.5, None],
        "label": ["a", 1, True, None],
        "day": "2020-02-03T00:00:00",
        "other": {"2": "(1+2j)"},
        "text": "\ud800",
    }


def test_answers_with_ties_and_raters(
    place: Path, ask: Any, invoke: Any, refused: Any, write_tables: Any
) -> None:
    table = (
        "better,worse,tie,who,shown_first\ntea,coffee,true,ann,tea\ncoffee,water,false,bob,coffee\n"
        "cola,water,false,ann,\n007,cola,false,ann,cola\nNA,007,false,bob,NA\n"
    )
    write_tables(place / "graded", comparisons=table)
    names = "--columns winner=better,loser=worse --columns rater=who"
    values = {
        "tie_margin": 0.5,
        "rater_noise": 2,
        "position_bias": 0.1,
        "attributes_amplitude": 1,
        "attributes_lengthscale": 1,
        "attributes_linear_share": 0.5,
    }
    fixed = " ".join(f"--fixed={name}={value}" for name, value in values.items())
    fit = f"fit --folder graded {names} {fixed} --model preference_gp"
    said = invoke(f"{fit} --out graded_run")
    assert said.code == 0 and "1 tie, 2 raters" in said.err + said.out
    record = json.loads((place / "graded_run/run.json").read_text())
    assert record["options"]["columns"] == {"winner": "better", "loser": "worse", "rater": "who"}
    lines = ask("prefer graded_run tea coffee").splitlines()
    assert "p tie" in lines[0]
    typical, ann = (
        json.loads(ask(f"prefer graded_run tea coffee {who} -o json"))["pairs"][0]
        for who in ("", "--rater ann --shown-first second")
    )
    assert ann["tie"] < typical["tie"]
    for side in ("Second", "coffee"):
        said = ask(f"prefer graded_run tea coffee --rater ann --shown-first {side} -o json")
        assert json.loads(said)["pairs"] == [ann]
    assert "'milk'" in refused("prefer graded_run tea coffee --shown-first milk")
    each = "tea coffee tea coffee --rater ann --rater bob -o json"
    one, other = json.loads(ask(f"prefer graded_run {each}"))["pairs"]
    assert one["tie"] == other["tie"] < typical["tie"]
    assert "rater has 2 labels for 1 question" in refused(
        "prefer graded_run tea coffee --rater ann --rater bob"
    )
    assert "'anne' has given no answer; nearest: 'ann'" in refused(
        "prefer graded_run tea coffee --rater anne"
    )
    logistic = "--likelihood logistic --ties davidson"
    ask(f"{fit} {logistic} --out davidson")
    found: Any = load_run(place / "davidson")
    assert found.metadata["options"]["ties"] == "davidson"
    assert found.posterior.likelihood == Logistic(ties="davidson")
    assert "--likelihood probit: it cannot be made with --ties" in refused(
        f"fit --folder graded --out no {names} --ties davidson"
    )
    ask(f"{fit} --lapse --fixed lapse=0.2 --out lapses")
    run: Any = load_run(place / "lapses")
    assert run.metadata["options"]["lapse"] is True
    assert run.posterior.likelihood == Probit(lapse=True)
    assert run.posterior.hyperparameters["lapse"] == 0.2
    (place / "cross.csv").write_text(",tea,milk,rum\ntea,0,3,1\nmilk,2,0,0\nrum,0,1,0\n")
    assert "item in '' is the loser: --columns loser=" in invoke("look cross.csv").err
    assert "7 answers to 3 pairs" in ask("look cross.csv --columns loser=")
    assert "write our name and the file's" in refused(
        "fit --folder graded --out no --columns winner"
    )


def test_answers_with_covariates(
    place: Path,
    ask: Any,
    invoke: Any,
    refused: Any,
    write_tables: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = (
        "winner,loser,host,length_winner,length_loser\ntea,coffee,tea,9,2\ncoffee,water,,4,3\ncola,water,water,2,8\n"
        "NA,cola,NA,5,5\n007,NA,007,3,1\n"
    )
    write_tables(place / "sides", comparisons=table)
    options = "--covariates home,length --columns home=host --model preference_gp"
    fixed = "--fixed individual_amplitude=1 --fixed effect_scale=1"
    said = invoke(f"fit sides/comparisons.csv --out sides_run {options} {fixed}")
    assert said.code == 0 and "covariates: home, length" in said.err + said.out
    record = json.loads((place / "sides_run/run.json").read_text())
    assert record["options"]["covariates"] == ["home,length"]
    lengths = "--covariate length_first=9 --covariate length_second=1"
    plain, at_home, longer = (
        json.loads(ask(f"prefer sides_run tea coffee {more} -o json"))["pairs"][0]
        for more in ("", "--home first", lengths)
    )
    assert plain["probability"] < at_home["probability"]
    assert plain["probability"] != longer["probability"]
    assert plain["gap_mean"] == at_home["gap_mean"]
    assert "--covariate length_first=long: the value is not a number" in refused(
        "prefer sides_run tea coffee --covariate length_first=long"
    )
    assert "there is no column 'width_winner'" in refused(
        "fit sides/comparisons.csv --out no --covariates width"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\nb\nq\n"))
    said = ask("ask sides_run --score variance")
    assert "2 answers given now" in said
    run: Any = load_run(place / "sides_run")
    assert (
        run.posterior.data.num_answers == 7
        and run.posterior.data.comparisons.covariates is not None
    )
    page = place / "sides_run/report.html"
    ask("report sides_run --out", str(page))
    assert (
        "Effects of covariates" in page.read_text()
        and "Effect scale: the standard" in page.read_text()
    )
