"""Reads the command line, and writes its help. Nothing heavy is imported before a command is known."""

import argparse
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from relpref._version import __version__
from relpref.cli.commands import COMMANDS, TYPES, Command
from relpref.errors import DataError

_EXITS = "exit codes: 0 fine, 1 inference failed, 2 input or storage cannot be used, 130 stopped"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments; ``command`` of the result is the function to call with it, ``name`` its name.

    Raises
    ------
    DataError
        If they make no sense.
    SystemExit
        After ``--help``, ``--help-all`` and ``--version``.
    """
    parser = _parser()
    chosen, rest = parser.parse_known_args(arguments)
    # Before Python 3.13, a table of answers is not found behind options.
    if (
        chosen.name == "fit"
        and chosen.answers is None
        and len(rest) == 1
        and not rest[0].startswith("-")
    ):
        chosen.answers = rest.pop()
    if rest:
        raise DataError(
            f"unrecognized arguments: {' '.join(rest)} (see relpref {chosen.name} --help)"
        )
    # What every command may ask about its output.
    form = getattr(chosen, "form", "table")
    chosen.json, chosen.csv = form == "json", form == "csv"
    return chosen


def words() -> dict[str, dict[str, str]]:
    """By command, such as ``conditional fit``, its options and what stands for their values; for the completion in shells."""
    known: dict[str, dict[str, str]] = {}
    for name, command in COMMANDS.items():
        tables = {name: [command.options, command.more]}
        tables |= {
            f"{name} {action}": [one.options, one.more] for action, one in command.actions.items()
        }
        for path, some in tables.items():
            known[path] = {}
            for table in some:
                known[path] |= {
                    word.partition(" ")[0]: word.partition(" ")[2] for word in _flat(table)
                }
    return known


def _flat(options: Mapping[str, Any]) -> list[str]:
    parts = [_flat(said) if isinstance(said, Mapping) else [word] for word, said in options.items()]
    return [word for part in parts for word in part]


def _parser() -> "_Parser":
    parser = _Parser(
        prog="relpref",
        usage="relpref COMMAND [options]",
        description="Rank things by pairwise answers, their attributes and the relations between "
        "them.",
        epilog="example: relpref fit answers.csv; relpref COMMAND --help shows those of "
        f"each.\n{_EXITS}",
    )
    parser.add_argument(
        "--version", action="version", version=f"relpref {__version__}", help="show the version"
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser, prog="relpref"
    )
    for name, command in COMMANDS.items():
        one = _made(commands, name, command)
        one.set_defaults(command=partial(_call, command.function), name=name, reads=command.reads)
        if command.actions:
            actions = one.add_subparsers(
                title="actions",
                dest="action",
                metavar="ACTION",
                required=True,
                parser_class=_Parser,
                prog=one.prog,
            )
            for action, two in command.actions.items():
                _made(actions, action, two).set_defaults(name=f"{name} {action}", reads=two.reads)
    return parser


def _made(parsers: Any, name: str, command: Command) -> "_Parser":
    one: _Parser = parsers.add_parser(
        name,
        help=command.summary,
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example:\n  {command.example}",
    )
    _add(one, command.options)
    rare = one.add_argument_group("more options")
    _add(rare, command.more)
    one.rare = rare
    places = [
        word.partition(" ")[2]
        for word in command.options
        if not word.startswith("-") and " " in word
    ]
    one.usage = " ".join([one.prog, *places, *(["ACTION"] if command.actions else []), "[options]"])
    return one


class _Help(argparse.Action):
    """Shows the help on one screen, or all of it."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.print_help() if self.const else parser.print_screen()
        parser.exit()


class _Format(argparse.RawDescriptionHelpFormatter):
    """Options in one column, their help in another."""

    def __init__(self, prog: str) -> None:
        super().__init__(
            prog, max_help_position=28, width=min(shutil.get_terminal_size().columns, 110)
        )


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as every other error is reported."""

    rare: Any = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Format, "add_help": False, **options})
        self.add_argument("-h", "--help", nargs=0, action=_Help, const=False, help="show this help")
        self.add_argument("--help-all", nargs=0, action=_Help, const=True, help=argparse.SUPPRESS)

    def print_screen(self) -> None:
        """Print the usual options, each on a line of its own as far as its first clause."""
        for action in self._actions:
            if self.rare is not None and action in self.rare._group_actions:
                action.help = argparse.SUPPRESS
            elif action.help is not None and ";" in action.help:
                action.help = action.help.partition(";")[0]
        self.epilog = (
            f"{self.epilog}\n\nmore options, and more about these: {self.prog} --help-all"
            * (self.rare is not None)
        )
        self.print_help()

    def error(self, message: str) -> NoReturn:
        raise DataError(f"{message} (see {self.prog} --help)")


def _add(parser: Any, options: Mapping[str, Any]) -> None:
    """Add the options of a table, see `relpref.cli.commands`."""
    for words, said in options.items():
        if isinstance(said, Mapping):
            group = parser.add_mutually_exclusive_group()
            _add(group, said)
            continue
        name, _, metavar = words.partition(" ")
        help, more = said if isinstance(said, tuple) else (said, {})
        keywords: dict[str, Any] = {"help": help}
        if not metavar:
            keywords["action"] = "store_true"
        elif metavar.startswith("{"):
            choices = metavar.strip("{}").split(",")
            keywords |= {"choices": choices, "default": choices[0]}
        else:
            keywords |= {"metavar": metavar, "type": TYPES.get(metavar, str)}
        keywords |= more
        if keywords.get("default") and "nargs" not in keywords:
            keywords["help"] += f" (default: {keywords['default']})"
        parser.add_argument(name, **keywords)


def _call(function: str, chosen: argparse.Namespace) -> None:
    if hasattr(chosen, "run"):
        from relpref.runs import read_record

        read_record(Path(chosen.run))  # refuses what is no run before anything heavy is imported
    files = [getattr(chosen, name) for name in chosen.reads]
    if chosen.reads and not any(files) and not chosen.folder:
        raise DataError("--items and --answers are missing; give one of them or both, or --folder")
    for file in filter(None, files):
        from relpref.files import reading

        with reading(file):
            Path(file).stat()
    module, name = function.split(":")
    getattr(import_module(f"relpref.cli.{module}"), name)(chosen)
