import os
import subprocess
import sys
from pathlib import Path

import pytest

import relpref
from relpref.cli import main


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"relpref {relpref.__version__}\n"
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("demo", "fit", "rank", "prefer", "report", "conditional", "data"):
        assert f"\n    {command}" in text
        assert main([command, "--help"]) == 0
        assert f"example:\n  relpref {command} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "the following arguments are required: COMMAND (see relpref --help)"),
        (["fitt"], "invalid choice: 'fitt'"),
        (["fit", "--folder", "x"], "the following arguments are required: --out (see relpref fit --help)"),
        (["rank"], "the following arguments are required: RUN"),
        (["rank", "run", "--top", "0"], "0 is less than 1"),
        (["rank", "run", "--interval", "wide"], "'wide' is not a number"),
        (["rank", "run", "--csv", "--json"], "not allowed with argument"),
        (["prefer", "run"], "the following arguments are required: LABEL"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("relpref: error: ") and said.err.count("\n") == 1
    assert reason in said.err


def test_help_loads_nothing_heavy() -> None:
    heavy = ("jax", "numpy", "numpyro", "pandas", "scipy", "matplotlib", "jinja2")
    script = (
        "import sys; from relpref.cli import main; code = main(['--help']); "
        f"print([name for name in {heavy} if name in sys.modules], code)"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    environment = os.environ | {"PYTHONPATH": str(Path(relpref.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
