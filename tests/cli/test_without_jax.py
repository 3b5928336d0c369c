"""What people wait for and JAX has no part in: rankings, preferences, help, and what is wrong with
arguments and files.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import relpref
from relpref.cli.commands import COMMANDS

BEGIN = """
import contextlib, io, json, shlex, sys

def loaded():
    return [name for name in ("jax", "numpyro") if name in sys.modules]
"""
# Command by command in one process, until one of them imports what it should not.
SCRIPT = """
from relpref.cli import main
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(shlex.split(arguments))
    print(json.dumps([arguments, code, out.getvalue() + err.getvalue(), loaded()]))
    if loaded():
        break
"""
PYTHON = """
import relpref
posterior = relpref.load(sys.argv[1])
posterior.ranking(), posterior.tiers(), posterior.to_json(), posterior.plot(), posterior.prefer([("tea", "water")]), posterior.utilities(), posterior.explain(), posterior.shares()
posterior.mean(), posterior.sd(), posterior.sample(3), posterior.subset(["tea", "water"]).ranking(), repr(posterior)
posterior.info, posterior.hyperparameters, posterior.origin is None, posterior.data.describe()
print(json.dumps(loaded()))
posterior.update([("tea", "water")])
print(json.dumps(loaded()))
"""


def lines(script: str, *arguments: str) -> list[Any]:
    settings = os.environ | {"PYTHONPATH": str(Path(relpref.__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-c", BEGIN + script, *arguments]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_commands_that_need_no_jax(place: Path) -> None:
    (place / "bad.csv").write_text("winner,looser\ntea,water\n")
    (place / "odd.csv").write_text("name,size\ntea,large\n")
    tables = "--items tables/entities.csv --answers tables/comparisons.csv --out other"
    answers, out = "--answers tables/comparisons.csv", "--out other"
    actions = [
        f"{name} {action}" for name, command in COMMANDS.items() for action in command.actions
    ]
    fine = [
        "rank run",
        "rank run -o json",
        "rank run -o csv --top 2",
        "prefer run tea water",
        "prefer run tea water -o csv",
        "tiers run",
        "data list",
        "--help",
        "--version",
        *(f"{name} --help" for name in (*COMMANDS, *actions)),
        *(f"{name} --help-all" for name in COMMANDS),
    ]
    wrong = [
        "",
        "rank",
        "rank run --top many",
        "rank nowhere",
        "rank tables",
        "prefer run tea",
        "prefer run tea milk",
        "prefer run tea water --rater ann",
        "fit --out other",
        f"fit --items tables/entities.csv --answers nowhere.csv {out}",
        f"fit --items tables/entities.csv --answers bad.csv {out}",
        f"fit --items odd.csv {answers} {out}",
        f"fit --items tables/entities.csv {answers} --out run",
        *(
            f"fit {tables} {option} nothing"
            for option in ("--engine", "--model", "--likelihood", "--fixed", "--columns")
        ),
        f"fit {tables} --kernel hot=nothing",
        f"fit {tables} --relation hot=nowhere.csv",
        f"conditional fit --nodes nowhere.csv --relation bad.csv {out}",
        "conditional rank run tea",
        "ask run --port 8000",
        "ask run --rater ''",
        *(
            f"{command} nowhere"
            for command in ("tiers", "plot", "report", "check", "sbc", "ask", "serve")
        ),
        "classify nowhere.csv --classes nowhere.csv",
        "demo --out run",
        "data get nothing",
    ]
    found = lines(SCRIPT, json.dumps(fine + wrong))
    assert [(arguments, heavy) for arguments, _, _, heavy in found if heavy] == []
    codes = [code for _, code, _, _ in found]
    assert codes == [0] * len(fine) + [2] * len(wrong), found
    assert not (place / "other").exists()


def test_help_and_missing_files_load_nothing_heavy(place: Path) -> None:
    heavy = ("jax", "numpy", "numpyro", "pandas", "scipy", "matplotlib", "jinja2")
    script = BEGIN.replace('("jax", "numpyro")', str(heavy)) + SCRIPT
    (place / "there.csv").write_text("winner,loser\ntea,water\n")
    missing = [
        "fit nowhere.csv",
        "fit there.csv --items nowhere.csv",
        "classify nowhere.csv --classes there.csv",
        "conditional fit --nodes there.csv --relation nowhere.csv",
    ]
    others = ["--help", "rank --help", "rank nowhere", "fit"]
    found = lines(script, json.dumps([*missing, *others]))
    error = "relpref: error: nowhere.csv: there is no such file; check the path\n"
    assert [row[1:] for row in found[:4]] == 4 * [[2, error, []]]
    assert [(code, loaded) for _, code, _, loaded in found[4:]] == [
        (0, []),
        (0, []),
        (2, []),
        (2, []),
    ]
    assert "--items and --answers are missing" in found[-1][2]


def test_posteriors_that_are_read_and_asked_need_no_jax(place: Path) -> None:
    assert lines(PYTHON, "run/posterior.nc") == [[], ["jax", "numpyro"]]
