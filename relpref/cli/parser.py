"""Read the command line and write its help, without importing anything heavy."""

import argparse
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

from relpref._version import __version__
from relpref.cli.commands import COMMANDS, TYPES, Command
from relpref.errors import DataError
from relpref.files import reading
from relpref.runs import check_target, read_record

_EXITS = "exit codes: 0 fine, 1 inference failed, 2 input or storage cannot be used, 130 stopped"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments.

    Returns
    -------
    argparse.Namespace
        The values of the options; ``command`` is the function to call with it, ``name`` the name
        of the command; ``json`` and ``csv`` are the form of the output, and ``speaks`` is true
        if the command prints text for people.

    Raises
    ------
    DataError
        If the arguments are wrong.
    SystemExit
        After ``--help``, ``--help-all`` and ``--version``.
    """
    parser = _parser()
    chosen, rest = parser.parse_known_args(arguments)
    # Before Python 3.13, argparse does not see a table of answers that follows options.
    if (
        chosen.name in ("fit", "look")
        and chosen.answers is None
        and len(rest) == 1
        and not rest[0].startswith("-")
    ):
        chosen.answers = rest.pop()
    if rest:
        hint = f"see relpref {chosen.name} --help"
        more = [word for word in rest if "=" in word]
        if more and getattr(chosen, "columns", None):
            columns = quote(",".join([*chosen.columns, *more]))
            hint = f"write a comma between names of columns: --columns {columns}"
        raise DataError(f"unrecognized arguments: {' '.join(rest)} ({hint})")
    form = getattr(chosen, "form", "table")
    chosen.json, chosen.csv = form == "json", form == "csv"
    chosen.arguments = arguments
    chosen.speaks = form == "table" and not getattr(chosen, "quiet", False)
    return chosen


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
    _add_commands(parser, "command", COMMANDS)
    return parser


def _add_commands(parent: "_Parser", noun: str, commands: Mapping[str, Command]) -> None:
    """Add the parsers of commands, or of the actions of a command."""
    parsers = parent.add_subparsers(
        title=f"{noun}s",
        metavar=noun.upper(),
        required=True,
        parser_class=_Parser,
        prog=parent.prog,
    )
    for name, command in commands.items():
        summary = command.summary
        parser = parsers.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.\n{command.forms}".strip(),
            epilog=f"example:\n  {command.example}",
        )
        _add_options(parser, command.options)
        parser.rare = parser.add_argument_group("more options")
        _add_options(parser.rare, command.more)
        places = [words.partition(" ")[2] for words in command.options if words[0] != "-"]
        if command.actions:
            places = ["ACTION"]
            _add_commands(parser, "action", command.actions)
        parser.usage = " ".join([parser.prog, *filter(None, places), "[options]"])
        parser.set_defaults(
            command=partial(_call, command.function),
            name=parser.prog.removeprefix("relpref "),
            reads=command.reads,
        )


class _Help(argparse.Action):
    """Show the help on one screen, or all of it (``const``)."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.print_help() if self.const else parser.print_screen()
        parser.exit()


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Make a formatter with options in one column, and their help in another."""
    width = min(shutil.get_terminal_size().columns, 110)
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width)


class _Parser(argparse.ArgumentParser):
    """Parser that raises wrong usage as a DataError, with a short and a long help."""

    rare: Any = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _formatter, "add_help": False, **options})
        self.add_argument("-h", "--help", nargs=0, action=_Help, const=False, help="show this help")
        self.add_argument("--help-all", nargs=0, action=_Help, const=True, help=argparse.SUPPRESS)

    def print_screen(self) -> None:
        """Print the usual options, each on one line with the first clause of its help."""
        for action in self._actions:
            if self.rare is not None and action in self.rare._group_actions:
                action.help = argparse.SUPPRESS
            elif action.help is not None:
                action.help = action.help.partition(";")[0]
        if self.rare is not None:
            self.epilog = (
                f"{self.epilog}\n\nmore options, and more about these: {self.prog} --help-all"
            )
        self.print_help()

    def error(self, message: str) -> NoReturn:
        raise DataError(f"{message} (see {self.prog} --help)")


def _add_options(parser: Any, options: Mapping[str, Any]) -> None:
    """Add the options of a table, see `relpref.cli.commands`."""
    for words, description in options.items():
        if isinstance(description, Mapping):
            _add_options(parser.add_mutually_exclusive_group(), description)
            continue
        name, _, metavar = words.partition(" ")
        help, more = description if isinstance(description, tuple) else (description, {})
        keywords: dict[str, Any] = {"help": help}
        if not metavar:
            keywords |= {"action": "store_true", "default": None}
            if name.startswith("--no-"):
                dest = name.removeprefix("--no-").replace("-", "_")
                keywords |= {"action": "store_false", "dest": dest}
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
    """Call a command, ``module:function``, after checks that need nothing heavy."""
    if hasattr(chosen, "run"):
        read_record(Path(chosen.run))  # refuses a folder that is no run
    files = [getattr(chosen, name) for name in chosen.reads]
    if chosen.reads and not any(files) and not chosen.folder:
        raise DataError("--items and --answers are missing; give one of them or both, or --folder")
    for file in filter(None, files):
        with reading(file):
            Path(file).stat()
    if hasattr(chosen, "force"):
        check_target(chosen.out, replace=chosen.force, how="--force replaces it")
    module, name = function.split(":")
    getattr(import_module(f"relpref.cli.{module}"), name)(chosen)
