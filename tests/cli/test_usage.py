from typing import Any

import pytest

import relpref
from relpref.cli import main
from relpref.cli.commands import COMMANDS


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"relpref {relpref.__version__}\n"
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n    {command}" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_one_screen_with_an_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path in ([command], *([command, action] for action in COMMANDS[command].actions)):
        assert main([*path, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        one = COMMANDS[command] if len(path) == 1 else COMMANDS[command].actions[path[1]]
        forms = one.forms.splitlines()
        assert len(forms) < 12 and set(forms) <= set(lines)
        assert len(lines) - len(forms) <= 24 and max(map(len, lines)) <= 80
        assert lines[lines.index("example:") + 1].strip().startswith("relpref ")
        assert main([*path, "--help-all"]) == 0
        long = capsys.readouterr().out
        for word in (*one.options, *one.more):
            assert word.split(" ")[0] in long or not word.startswith("-"), word


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "the following arguments are required: COMMAND (see relpref --help)"),
        ("fitt", "invalid choice: 'fitt'"),
        (
            "fit a.csv --columns winner=x loser=y rater=z",
            "write a comma between names of columns: --columns winner=x,loser=y,rater=z",
        ),
        ("fit a.csv b.csv", "unrecognized arguments: b.csv (see relpref fit --help)"),
        ("rank", "the following arguments are required: RUN"),
        ("rank run --top 0", "0 is less than 1"),
        ("rank run --interval wide", "'wide' is not a number"),
        ("rank run -o text", "invalid choice: 'text'"),
        ("prefer run", "the following arguments are required: LABEL"),
    ],
)
def test_wrong_usage(refused: Any, arguments: str, reason: str) -> None:
    assert reason in refused(arguments)
