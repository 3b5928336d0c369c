"""The commands of the README and of the pages in docs, run as they stand, in folders that hold the
tables they name.

Not run here: commands that make environments (``make``, ``pip``), those that reach another
computer, and the experiments of ``python -m benchmarks``, which take hours and have tests of their
own at small size.
"""

import io
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from relpref.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def items(folder: Path, file: str, names: list[str], column: str = "name", seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    values = {
        "size": rng.normal(size=len(names)).round(3),
        "price": rng.uniform(1, 9, len(names)).round(2),
    }
    pd.DataFrame({column: names, **values}).to_csv(folder / file, index=False)


def answers(folder: Path, file: str, names: list[str], **columns: object) -> None:
    pairs = [(first, second) for row, first in enumerate(names) for second in names[row + 1 :]]
    table = pd.DataFrame(pairs, columns=["winner", "loser"]).assign(**columns)
    table.to_csv(folder / file, index=False)


def links(folder: Path, file: str, names: list[str]) -> None:
    pd.DataFrame({"source": names[:-1], "target": names[1:]}).to_csv(folder / file, index=False)


def games(folder: Path, file: str, names: list[str]) -> None:
    rng = np.random.default_rng(1)
    pairs = [(first, second) for row, first in enumerate(names) for second in names[row + 1 :]]
    table = pd.DataFrame(pairs, columns=["source", "target"])
    table.assign(value=rng.uniform(0.2, 0.8, len(pairs)).round(2)).to_csv(
        folder / file, index=False
    )


def readme(folder: Path) -> None:
    coffees = ["gesha", "mocha", "sumatra", "house"]
    items(folder, "items.csv", coffees)
    answers(folder, "answers.csv", coffees)
    links(folder, "links.csv", coffees)


def asking(folder: Path) -> None:
    dishes = ["soup", "cake", "stew", "salad"]
    items(folder, "dishes.csv", dishes)
    answers(folder, "answers.csv", dishes[:3])
    pd.DataFrame({"dish": dishes, "text": [f"a {dish}" for dish in dishes]}).to_csv(
        folder / "dishes_to_show.csv", index=False
    )
    answers(folder, "more.csv", dishes[2:])
    (folder / "runs").mkdir()
    run("relpref fit --items dishes.csv --answers answers.csv --out runs/one/ --quiet")


def fitted(folder: Path) -> None:
    items(folder, "items.csv", list("abc"))
    answers(folder, "answers.csv", list("abc"))
    run("relpref fit --items items.csv --answers answers.csv --out run/ --quiet")


def large(folder: Path) -> None:
    users = [f"user{number}" for number in range(6)]
    items(folder, "users.csv", users)
    answers(folder, "answers.csv", users)
    pd.DataFrame({"source": users[:-1], "target": users[1:]}).to_csv(
        folder / "follows.csv.gz", index=False
    )


def relation(folder: Path) -> None:
    players = [f"player {number}" for number in range(6)]
    items(folder, "players.csv", players)
    games(folder, "games.csv", players)
    items(folder, "newcomers.csv", ["newcomer"], seed=3)


TABLES = {
    "README": readme,
    "index": readme,
    "ask": asking,
    "checking": fitted,
    "calibration": fitted,
    "conditional": relation,
    "large": large,
}


def blocks(file: Path, language: str) -> list[str]:
    text = file.read_text(encoding="utf-8")
    found = re.findall(r"^```([^\n]*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [block for named, block in found if named == language]


def commands(file: Path) -> list[str]:
    """Commands of the blocks of a page that name no language, comments and continued lines taken
    care of.
    """
    found = []
    for block in blocks(file, ""):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s#.*", "", line).strip()
            if command.startswith("relpref "):
                found.append(command)
    return found


def run(command: str) -> None:
    arguments = shlex.split(command)[1:]
    if "--web" in arguments or arguments[0] == "serve":
        serve([sys.executable, "-u", "-m", "relpref", *arguments])
        return
    assert main(arguments) == 0, command


# What a shell runs in the background ignores interrupts, and so would its children.
LISTEN = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def serve(program: list[str]) -> None:
    """Start a server, wait for its address, and end it as Ctrl-C does."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LISTEN, *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said = next(
            (
                line
                for line in process.stdout
                if line.startswith(("Answer at ", "The runs are at "))
            ),
            "",
        )
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
        assert "http://127.0.0.1:" in said, program


def test_every_page_with_commands_is_known() -> None:
    with_commands = {file.stem for file in PAGES if commands(file)}
    assert with_commands == set(TABLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLES))
def test_commands_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nq\n"))
    TABLES[name](tmp_path)
    (file,) = (page for page in PAGES if page.stem == name)
    for command in commands(file):
        if command.split()[:2] == ["relpref", "demo"]:
            continue  # it has tests of its own
        if "comparisons.csv" in command:
            (tmp_path / "comparisons.csv").unlink(missing_ok=True)  # an export replaces nothing
        run(f"{command} --simulations 4" if command.startswith("relpref sbc") else command)
    for query in blocks(file, "sql"):
        with sqlite3.connect(tmp_path / "run" / "answers.sqlite") as store:
            assert store.execute(query).fetchall()
    for script in blocks(file, ""):
        if script.startswith("from relpref"):
            serve([sys.executable, "-u", "-c", script])
