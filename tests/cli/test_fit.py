import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relpref
from relpref import PreferenceData
from relpref.cli import fit
from relpref.data.relation import find_files
from relpref.report.blocks import LITTLE
from relpref.runs import copies, load_run

TABLES = "--items tables/entities.csv --answers tables/comparisons.csv"
RELATION = "--relation hot=tables/relations/hot.csv"


def test_says_what_was_read_and_where_the_result_is(place: Path, ask: Any, snapshot: Any) -> None:
    said = ask(f"fit {TABLES} {RELATION} --out new/run")
    lines = said.splitlines()
    assert lines[0] == f"Read: {PreferenceData.from_folder('tables').describe()}"
    assert len(lines) == 5
    assert re.fullmatch(
        r"NA, tea .* lead: one of .* NA is the best with a probability of \d\d%\.", lines[1]
    )
    assert lines[2].startswith("About ") and lines[2].endswith(".")
    assert re.fullmatch(r"The most informative question now: \w+ or \w+\?", lines[3])
    assert lines[-1] == "The run is in new/run: try relpref rank new/run"
    said = ask(f"fit {TABLES} {RELATION} --out new/other --verbose --hyperparameters maximize")
    assert said.splitlines()[4].startswith("Fitted ")
    assert "log evidence -" in said and "  individual_amplitude: 1." in said
    files = snapshot(place / "new/run")
    tables = ["data/comparisons.csv", "data/entities.csv", "data/relations/hot.csv"]
    assert sorted(files) == [*tables, "posterior.nc", "run.json"]
    assert files == snapshot(place / "run")  # files, a folder and the time make no difference


def test_a_question_with_a_certain_answer_says_why_it_is_named(place: Path, ask: Any) -> None:
    Path("sure.csv").write_text("winner,loser,count\na,b,200\nb,c,200\nc,d,200\n")
    question = ask("fit sure.csv --out new --answer-word vote").splitlines()[-2]
    assert question.endswith("? " + LITTLE.replace("an answer", "a vote"))


def test_large_files_are_named_before_they_are_read(
    place: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "LARGE", 50)
    (place / "tables/relations/hot.csv").write_text("source,target\ntea,milk\n")
    wrong = f"fit {TABLES} {RELATION} --out new"
    assert not invoke(wrong).err.startswith("Reading")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert invoke(wrong).err.splitlines()[0] == (
        "Reading tables/entities.csv (0 MB), tables/comparisons.csv (0 MB)"
    )
    assert not invoke(wrong, "--quiet").err.startswith("Reading")


def test_copies_keep_the_endings_of_compressed_files(place: Path) -> None:
    links = place / "tables/relations/hot.csv"
    (place / "tables/relations/hot.directed.csv.gz").write_bytes(gzip.compress(links.read_bytes()))
    links.unlink()
    kept = {one.name: one.source for one in copies(find_files("tables"))}
    assert sorted(kept) == [
        "data/comparisons.csv",
        "data/entities.csv",
        "data/relations/hot.directed.csv.gz",
    ]


def test_nothing_may_have_been_asked_yet(place: Path, ask: Any, snapshot: Any) -> None:
    said = ask(f"fit --items tables/entities.csv {RELATION} --out new")
    assert said.splitlines()[-1] == "The run is in new: try relpref ask new"
    assert "data/comparisons.csv" not in snapshot(place / "new")
    assert set(ask("rank new -o csv").splitlines()[1].split(",")[1:2]) == {"0.0"}


def test_a_relation_that_is_not_looked_at_is_mentioned(place: Path, ask: Any) -> None:
    said = ask("fit --folder tables --out other --model preference_gp --hyperparameters maximize")
    assert "a model of attributes and the items themselves does not use relations" in said
    assert "hot_amplitude" not in said


def test_copies_are_the_files_byte_for_byte(place: Path, ask: Any) -> None:
    answers = place / "tables/comparisons.csv"
    answers.write_text(f"{answers.read_text()}tea,coffee,1\n")
    odd = "\ufeff" + (place / "tables/entities.csv").read_text().replace("\n", "\r\n")
    (place / "items.CSV").write_bytes(odd.encode())
    (place / "other").mkdir()  # an empty folder is used
    said = ask(
        f"fit --items items.CSV --answers tables/comparisons.csv {RELATION} --out other --hyperparameters maximize"
    )
    assert said.startswith("Read: 6 items, 2 attributes, 11 answers to 6 pairs,")
    assert (place / "other/data/entities.csv").read_bytes() == odd.encode()
    record = json.loads((place / "other/run.json").read_text())
    assert [table["given"] for table in record["tables"]] == [
        "items.CSV",
        "comparisons.csv",
        "hot.csv",
    ]


def test_a_run_can_be_fitted_again_from_its_own_tables(
    place: Path, ask: Any, snapshot: Any
) -> None:
    before = snapshot(place / "run")
    ask("fit --folder run/data --out run --force")
    assert snapshot(place / "run") == before


def test_json_is_one_document(place: Path, ask: Any) -> None:
    said = ask("fit --folder tables --out other --seed 7 --restarts 2 -o json")
    found = json.loads(said)
    assert found["run"] == "other"
    assert found["seed"] == 7
    assert found["result"] == "converged"
    assert found["data"]["answers"] == 10
    assert found["data"]["relations"] == {"hot": 4}
    run = load_run("other")
    assert found["log_evidence"] == run.posterior.log_evidence
    assert run.metadata["options"] == {
        "engine": "ep",
        "hyperparameters": "integrate",
        "restarts": 2,
    }
    assert len(found["hyperparameters"]["attributes_lengthscale"]) == 2


@pytest.mark.slow
def test_the_engine_and_its_search_can_be_chosen(place: Path, ask: Any) -> None:
    chosen = (
        "--engine",
        "laplace",
        "--hyperparameters",
        "em",
        "--fixed",
        "attributes_lengthscale=1.5",
    )
    ask("fit --folder tables --out other", *chosen)
    posterior = load_run("other").posterior
    assert (posterior.info["engine"], posterior.info["hyperparameters"]) == ("Laplace", "em")
    np.testing.assert_array_equal(posterior.hyperparameters["attributes_lengthscale"], 1.5)


@pytest.mark.slow
def test_hyperparameters_are_drawn(place: Path, ask: Any) -> None:
    drawn = ("--hyperparameters", "nuts", "--draws", 200)
    ask("fit --folder tables --out other", *drawn)
    assert len(load_run("other").posterior.belief.weights) == 200
    ask("report other")
    assert "no-U-turn sampler" in (place / "other/report.html").read_text()


def test_a_run_that_is_there_is_kept(place: Path, invoke: Any, snapshot: Any) -> None:
    before = snapshot(place)
    said = invoke("fit --folder tables --out run")
    assert said == (
        2,
        "",
        (
            "relpref: error: run: there is a run already; --force replaces it, or give the name of "
            "a "
            "new folder\n"
        ),
    )
    assert snapshot(place) == before


def test_force_replaces_a_run_whole(place: Path, invoke: Any, snapshot: Any) -> None:
    before = snapshot(place / "run")
    (place / "run/report.html").write_text("about the earlier run")
    assert invoke("fit --folder tables --out run --force --quiet") == (0, "", "")
    assert snapshot(place / "run") == before
    assert sorted(path.name for path in place.iterdir()) == [
        "run",
        "tables",
    ]  # nothing hidden is left


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("there", ["notes.txt", "run.json", "data/entities.csv"])
def test_a_folder_that_is_no_run_is_never_touched(
    place: Path, refused: Any, there: str, force: tuple[str, ...], snapshot: Any
) -> None:
    mine = place / "mine" / there
    mine.parent.mkdir(parents=True)
    mine.write_text('{"scripts": {}}')
    before = snapshot(place)
    assert "mine: it holds something else than a run, which is never touched" in refused(
        "fit --folder tables --out mine", *force
    )
    assert snapshot(place) == before


def test_a_run_with_files_of_somebody_else_is_not_replaced(
    place: Path, refused: Any, snapshot: Any
) -> None:
    (place / "run/data/answers.sqlite").write_text("answers")
    before = snapshot(place)
    assert "run/data/answers.sqlite is not part of it and would be lost" in refused(
        "fit --folder tables --out run --force"
    )
    assert snapshot(place) == before


def test_out_that_cannot_be_written_is_found_before_anything_else(
    place: Path, refused: Any
) -> None:
    (place / "file").write_text("")
    (place / "link").symlink_to("run")
    (place / "empty").mkdir()
    reasons = {
        "file": "file: this is a file or a link",
        "link": "link: this is a file or a link",
        "file/run": "is a file, not a folder",
        ".": "this is the folder you are in",
        "/proc": "this is where a disk is mounted",
    }
    (place / "tables/entities.csv").write_text("not even a table")
    for out, reason in reasons.items():
        assert reason in refused("fit --folder tables --out", out)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (f"--folder tables {TABLES}", "--folder stands for --items"),
        ("", "--items and --answers are missing"),
        (f"{TABLES} --relation tables/relations/hot.csv", "write the name and the file"),
        (f"{TABLES} --relation =tables/relations/hot.csv", "write the name and the file"),
        (f"{TABLES} --relation hot=", "write the name and the file"),
        (f"{TABLES} {RELATION} {RELATION}", "'hot' is named twice"),
        (
            f"{TABLES} --relation 'a  b=tables/relations/hot.csv'",
            "'a  b' cannot be the name of a relation",
        ),
        (
            f"{TABLES} --relation ../x=tables/relations/hot.csv",
            "'../x' cannot be the name of a relation",
        ),
        (
            f"{TABLES} --model xgp",
            "--model: there is no program 'xgp'; use xpgp or preference_gp",
        ),
        (f"{TABLES} --model ranking_classifier", "there is no program 'ranking_classifier'"),
        (f"{TABLES} --restarts 0", "0 is less than 1"),
        (f"{TABLES} --restarts two", "'two' is not a whole number"),
        (f"{TABLES} --engine vb", "there is no engine 'vb'; use ep or laplace"),
        (f"{TABLES} --hyperparameters guess", "invalid choice: 'guess'"),
        (f"{TABLES} --draws 50", "draws are for --hyperparameters nuts"),
        (f"{TABLES} --fixed attributes_amplitude", "write the name and a number"),
        (f"{TABLES} --fixed attributes_amplitude=big", "write the name and a number"),
        (f"{TABLES} --seed -1", "-1 is not between 0 and"),
        (f"{TABLES} --sed 1", "unrecognized arguments: --sed"),
    ],
)
def test_wrong_usage(place: Path, refused: Any, arguments: str, reason: str, snapshot: Any) -> None:
    before = snapshot(place)
    assert reason in refused(f"fit {arguments} --out other")
    assert snapshot(place) == before


def test_names_fit_in_either_case(place: Path, ask: Any, snapshot: Any) -> None:
    options = "--fixed attributes_amplitude=1 --hyperparameters maximize"
    kernels = ("--attribute-kernel matern52", "--attribute-kernel Matern")
    for at, names in enumerate(zip(kernels, ("--engine laplace", "--engine Laplace"), strict=True)):
        likelihood = ("logistic", "LOGISTIC")[at]
        said = ask(
            f"fit {TABLES} {RELATION} {options} {' '.join(names)} --likelihood {likelihood} "
            f"--kernel hot={('hidden-common-cause', 'Hidden_Common_Cause')[at]} --out run{at}"
        )
        assert "xpgp" not in said
    one, other = (snapshot(place / f"run{at}") for at in (0, 1))
    assert one["posterior.nc"] == other["posterior.nc"]


def test_ballots_and_orders_are_answers(place: Path, ask: Any, invoke: Any, refused: Any) -> None:
    (place / "votes.soi").write_text(
        "# DATA TYPE: soi\n# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 3\n# ALTERNATIVE NAME 1: "
        "tea\n"
        "# ALTERNATIVE NAME 2: water\n# ALTERNATIVE NAME 3: milk\n2: 1,2\n1: 3,1\n"
    )
    assert "incomplete='top-k'" in refused("fit votes.soi --out votes")
    ask("fit votes.soi --incomplete top-k --out votes --hyperparameters maximize")
    posterior: Any = relpref.load("votes")
    assert posterior.data.comparisons.num_lists == 3
    (place / "orders.csv").write_text(
        "race;driver;place\n1;Ann;1\n1;Bo;2\n1;Cy;3\n2;Bo;1\n2;Ann;2\n2;Cy;3\n"
    )
    said = ask(
        "fit orders.csv --columns list=race,item=driver --out races --hyperparameters maximize"
    )
    assert "the rows were read as orders" in said
    assert ask("rank races").splitlines()[1].split()[1] in ("Ann", "Bo")
    (place / "unplaced.csv").write_text("list,item,place\n1,Ann,1\n1,Bo,2\n1,Cy,0\n")
    assert "line 4, column 'place': '0' is no place" in refused("fit unplaced.csv --out other")
    wrong = invoke("fit orders.csv --incomplete subset --out other")
    assert "orders.csv is no PrefLib file" in wrong.err


def test_the_users_words_for_items_and_answers(place: Path, ask: Any, refused: Any) -> None:
    """They are kept with the run, for reports and questions; a report may have others."""
    assert (
        "the word for item is 'a/b/c'" in refused(f"fit {TABLES} --out new --item-word a/b/c")
        and not (place / "new").exists()
    )
    nouns = "--item-word drink --answer-word entry/entries"
    said = ask(f"fit {TABLES} --out new --hyperparameters maximize {nouns}")
    assert "more entries would" in said or "more entry would" in said
    ask("report new")
    page = (place / "new/report.html").read_text("utf-8")
    assert "A ranking of 6 drinks, based on 10 entries" in page
    ask("report new --item-word cup")
    page = (place / "new/report.html").read_text("utf-8")
    assert "A ranking of 6 cups, based on 10 entries" in page
