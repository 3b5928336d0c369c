"""Input that cannot be used: one clear line, exit code 2, nothing written."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from relpref.posterior.codec import SCHEMA

ITEMS = "tables/entities.csv"
COMPARISONS = "tables/comparisons.csv"
LINKS = "tables/relations/hot.csv"

# file -> what it holds instead -> what the message says
CASES: list[tuple[str, str | bytes | None, str]] = [
    (ITEMS, None, "there is no items.csv"),
    (ITEMS, "", "the file is empty"),
    (ITEMS, "name,x\n", "the table has no rows"),
    (ITEMS, "name,x\ntea,1\ntea,2\n", "line 3 (label 'tea'): the label 'tea' was already used"),
    (ITEMS, "name,x\ntea,1\ncoffee,inf\n", "is not finite"),
    (ITEMS, "name,x\ntea,big\ncoffee,1\n", "'big' is not a number"),
    (ITEMS, "name,x\ntea,1e200\ncoffee,1\n", "rescale"),
    (ITEMS, "name,x,x\ntea,1,2\n", "the column 'x' occurs twice"),
    (ITEMS, "name,x\ntea,1\n,2\n", "the label is empty"),
    (ITEMS, b"name,x\nt\xc3\xa9a,1\nc\xe9,2\n", "some cells are UTF-8, but not 'cé'"),
    (ITEMS, "name,x\ntea,1\n".encode("utf-16-le"), "if it is UTF-16, say so"),
    (ITEMS, b"\x89PNG\r\n\x1a\n\x00\x00", "there is a zero byte at offset 8"),
    (ITEMS, 'name,x\n"tea,1\ncoffee,2\n', "quotation mark that is not closed"),
    (ITEMS, "name,x\ntea,1\ncoffee\n", "line 3: 1 cell where the header has 2"),
    (ITEMS, "name" + "".join(f",x{i}" for i in range(10_000)) + "\n", "more than the limit of"),
    (COMPARISONS, None, "there is no answers.csv"),
    (COMPARISONS, "winner,loser\n", "the table has no rows"),
    (COMPARISONS, "winner,loser\ntea,tea\n", "'tea' is compared with itself"),
    (
        COMPARISONS,
        "winner,loser\ntea,cofee\n",
        "'cofee' is not the label of an item; nearest: 'coffee'",
    ),
    (
        COMPARISONS,
        "Winers,Loser\ntea,coffee\ncoffee,water\n",
        "did you mean 'winner' where it says 'Winers'?",
    ),
    (COMPARISONS, "tea,coffee\nwater,tea\n", "names of the columns may be missing"),
    (COMPARISONS, "winner,loser,rater\ntea,coffee,\n", "the rater is blank"),
    (COMPARISONS, "winner,loser,count\ntea,coffee,-1\n", "not a positive whole number"),
    (COMPARISONS, "winner,loser,count\ntea,coffee,1.5\n", "not a positive whole number"),
    (COMPARISONS, "winner,loser,count\ntea,coffee,99999999999\n", "not a positive whole number"),
    (LINKS, "source,target\n", "the table has no rows"),
    (LINKS, "source,target\ntea,milk\n", "'milk' is not the label of an item"),
    (LINKS, "source,target\ntea,tea\n", "no edge is left"),
    (LINKS, "source,target,weight\ntea,coffee,-1\n", "the weight -1.0 is negative"),
    (LINKS, "source,target,weight\ntea,coffee,heavy\n", "'heavy' is not a number"),
    (LINKS, "source,target,weight\ntea,coffee,1\ncoffee,tea,2\n", "has the weight 2.0"),
    (LINKS, "from,to\ntea,coffee\n", "there is no column 'source'"),
]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    CASES,
    ids=[f"{i}-{case[2][:30]}" for i, case in enumerate(CASES)],
)
def test_tables(
    place: Path, refused: Any, snapshot: Any, file: str, content: str | bytes | None, reason: str
) -> None:
    if content is None:
        (place / file).unlink()
    else:
        (place / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = snapshot(place)
    for how in ("other", "other -o json", "run --force"):
        said = refused(f"fit --folder tables --out {how}")
        assert reason in said and len(said) < 600
    assert snapshot(place) == before


def test_the_file_is_named(place: Path, refused: Any) -> None:
    (place / "items.xlsx").write_bytes(b"PK")
    (place / "folder.csv").mkdir()
    for items, reason in (
        ("missing.csv", "missing.csv: there is no such file"),
        (
            "items.xlsx",
            "items.xlsx: this is not a readable Excel file",
        ),
        ("tables", "this is a directory, not a table"),
        ("folder.csv", "folder.csv"),
    ):
        assert reason in refused(f"fit --items {items} --answers {COMPARISONS} --out other")


def test_labels_alone(place: Path, ask: Any, refused: Any) -> None:
    (place / ITEMS).write_text("name\ntea\ncoffee\n")
    (place / COMPARISONS).write_text("winner,loser\ntea,coffee\n")
    tables = f"--items {ITEMS} --answers {COMPARISONS} --relation hot={LINKS}"
    command = f"fit {tables} --model preference_gp --out other --hyperparameters maximize"
    assert "is not the label of an item" in refused(command)
    (place / LINKS).write_text("source,target\ntea,coffee\n")
    said = ask(command)
    assert "a model of attributes and the items themselves does not use relations" in said
    # Without a table of items, the answers name them.
    alone = ask(f"fit --answers {COMPARISONS} --out alone --hyperparameters maximize")
    assert "2 items" in alone
    assert [path.name for path in (place / "alone/data").iterdir()] == ["comparisons.csv"]
    assert ask("rank alone").splitlines()[-2].split()[1] == "tea"
    assert "needs attributes or a relation" in refused(
        f"fit --answers {COMPARISONS} --no-individual --out nothing --quiet"
    )
    assert "--items and --answers are missing" in refused("fit --out nothing")


def test_inference_that_fails_is_exit_code_1(
    place: Path, invoke: Any, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relpref.errors import InferenceError, UnsupportedProgramError
    from relpref.infer import EP, Result

    before = snapshot(place)
    for error in (
        InferenceError("diverged: the sites moved away", Result.diverged),
        UnsupportedProgramError("no such program"),
    ):

        def fail(
            self: object, *arguments: object, error: Exception = error, **options: object
        ) -> None:
            raise error

        monkeypatch.setattr(EP, "run", fail)
        said = invoke("fit --folder tables --out run --force -o json")
        assert said == (1, "", f"relpref: error: {error}\n")
    assert snapshot(place) == before


@pytest.mark.parametrize("command", ["rank {}", "prefer {} tea coffee", "report {}"])
def test_runs(place: Path, refused: Any, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(folder: str) -> str:
        return str(refused(command.format(folder)))

    assert "missing: there is no such folder" in said("missing")
    assert "run.json: this is a file, not a folder" in said("run/run.json")
    assert "relpref fit --folder tables --out run/" in said("tables")
    assert "give the folder that relpref fit --out wrote" in said("tables/relations")

    def broken(name: str, content: bytes | None) -> str:
        shutil.copytree("run", "broken", dirs_exist_ok=True)
        if content is None:
            (place / "broken" / name).unlink()
        else:
            (place / "broken" / name).write_bytes(content)
        return said("broken")

    posterior, record = (
        (place / "run/posterior.nc").read_bytes(),
        (place / "run/run.json").read_bytes(),
    )
    assert "posterior.nc: cannot be read" in broken("posterior.nc", None)
    for damaged in (b"", posterior[:-1], posterior[:1000], posterior.replace(b"\x3f", b"\x3e", 1)):
        message = broken("posterior.nc", damaged)
        assert "damaged or was changed" in message and "fit again" in message
    for damaged in (
        b"",
        record[:100],
        b"[]",
        b'{"name": "x"}',
        b"\xff\xfe",
        b'{"relpref_run": true}',
    ):
        assert "broken/run.json" in broken("run.json", damaged)
    newer = record.replace(b'"relpref_run": 1', b'"relpref_run": 2')
    assert "has the schema 2, this relpref reads up to 1; install a newer one" in broken(
        "run.json", newer
    )
    assert "there is no 'posterior' in it" in broken("run.json", b'{"relpref_run": 1}')
    # A posterior from a newer version is one whose reader is older.
    monkeypatch.setattr("relpref.posterior.storage.SCHEMA", SCHEMA - 1)
    assert (
        f"has schema {SCHEMA}; this relpref reads up to {SCHEMA - 1}: install a newer one"
        in said("run")
    )
