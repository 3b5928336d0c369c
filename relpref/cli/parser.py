"""What can be said on the command line. Nothing heavy is imported before a command is known."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from relpref._version import __version__
from relpref.errors import DataError
from relpref.parallel import FORMS, Scheduler

_EXITS = "exit codes: 0 fine, 1 inference failed, 2 input or storage cannot be used, 130 interrupted"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments; ``command`` of the result is the function to call with it, ``name`` its name.

    Raises
    ------
    DataError
        If they make no sense.
    SystemExit
        After ``--help`` and ``--version``.
    """
    parser = _Parser(
        prog="relpref",
        description="Rank things by pairwise answers, their attributes and the relations between them.",
        epilog=f"relpref COMMAND --help shows an example of each. {_EXITS}. RELPREF_MAX_DECOMPRESSED: gigabytes that a compressed "
        "file may become (default: 2).",
    )
    parser.add_argument("--version", action="version", version=f"relpref {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, command in _COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.set_defaults(command=partial(_call, command.function), name=name)
        _add(one, command.options)
        if command.actions:
            actions = one.add_subparsers(
                title="actions", dest="action", metavar="ACTION", required=True, parser_class=_Parser
            )
            for action, (summary, options) in command.actions.items():
                two = actions.add_parser(action, help=summary)
                two.set_defaults(name=f"{name} {action}")
                _add(two, options)
    current = list(arguments)
    for place, argument in enumerate(current):
        option, equals, value = argument.partition("=")
        if option in _FORMER:
            print(f"relpref: warning: {option} is {_FORMER[option]} now", file=sys.stderr)
            current[place] = f"{_FORMER[option]}{equals}{value}"
    return parser.parse_args(current)


# Former names of options, which work for one release.
_FORMER = {"--entities": "--items", "--comparisons": "--answers", "--fix": "--fixed"}


def _spelled(text: str) -> str:
    """The choice of a former name."""
    if text != "maximise":
        return text
    print("relpref: warning: maximise is maximize now", file=sys.stderr)
    return "maximize"


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as every other error is reported."""

    def error(self, message: str) -> NoReturn:
        raise DataError(f"{message} (see {self.prog} --help)")


# Options by their name and what stands for their value: letters, N and K (whole numbers), P (a number), or {choices}, of which the first
# is the default. Without it, an option is a flag. What is said of it is the help, or the help and keywords of argparse.
# A table within a table holds options that exclude each other.
_Options = Mapping[str, Any]


class _Command(NamedTuple):
    function: str  # module:function in this package
    summary: str
    example: str
    options: _Options
    actions: Mapping[str, tuple[str, _Options]] = {}


def _add(parser: Any, options: _Options) -> None:
    for words, said in options.items():
        if isinstance(said, Mapping):
            _add(parser.add_mutually_exclusive_group(), said)
            continue
        name, _, metavar = words.partition(" ")
        help, more = said if isinstance(said, tuple) else (said, {})
        keywords: dict[str, Any] = {"help": help}
        if not metavar:
            keywords["action"] = "store_true"
        elif metavar.startswith("{"):
            choices = metavar.strip("{}").split(",")
            keywords |= {"choices": choices, "default": choices[0], "type": _spelled}
        else:
            keywords |= {"metavar": metavar, "type": _TYPES.get(metavar, str)}
        keywords |= more
        if keywords.get("default") and "nargs" not in keywords:
            keywords["help"] += f" (default: {keywords['default']})"
        parser.add_argument(name, **keywords)


def _call(function: str, chosen: argparse.Namespace) -> None:
    module, name = function.split(":")
    getattr(import_module(f"relpref.cli.{module}"), name)(chosen)


def whole(least: int | None = None, most: int | None = None) -> Callable[[str], int]:
    """Read a whole number within bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if most is not None and not (least or 0) <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        if least is not None and number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return read


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def regularizations(text: str) -> list[float]:
    """Read positive numbers between commas; ascending."""
    values = [number(part) for part in text.split(",")]
    if not all(0 < value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text}: a regularization is a positive number")
    return sorted(set(values))


def scheduler(text: str) -> str:
    """Read where many computations are done."""
    try:
        Scheduler.read(text)
    except DataError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {FORMS}") from None
    return text


def _with(help: str, **keywords: Any) -> tuple[str, dict[str, Any]]:
    return help, keywords


def _many(help: str) -> tuple[str, dict[str, Any]]:
    return _with(help, action="append", default=[])


_TYPES: dict[str, Callable[[str], Any]] = {
    "N": whole(1),
    "K": whole(1),
    "P": number,
    "G": number,
    "D": number,
}
_FIRST_COLUMN = "the first column is the label, the others numeric "
_RUN = {"run RUN": "the folder that relpref fit wrote"}
_SEED = {"--seed N": _with("of the random numbers (default: 0)", type=whole(0, 2**32 - 1), default=0)}
_JSON = {"--json": "as one JSON document"}
_QUIET = {**_JSON, "--quiet": "no progress, and no words about the result"}
_OUT = {"--out FOLDER": _with("where the run goes", required=True)}
_FORCE = {"--force": "replace the run that is there"}
_RANKED = {
    "--interval P": _with("of the intervals", default=0.9),
    "--top K": "show the first K only",
    "form": {"--csv": "as a CSV table, all digits", **_JSON},
}

_FIT = {
    "--items FILE": f"{_FIRST_COLUMN}attributes; without it the items are those that the comparisons name",
    "--answers FILE": "columns winner, loser or first, second, winner or first, second, probability; and, if need be, tie, strength, "
    "rater, shown_first, count; leave it out where nothing was asked yet, relpref ask does",
    "--columns NAME=COLUMN,...": _many(
        "what the file of comparisons calls its columns, such as winner=better,rater=who"
    ),
    "--relation NAME=FILE[:KIND]": _many(
        "columns source, target and, if need be, weight; KIND is undirected (the default), directed (who links to whom matters), "
        "random_walk (directed, by the traffic along the links) or bipartite (items to something else), with options after commas "
        "(bipartite,max_degree=50); may be repeated"
    ),
    "--folder FOLDER": "read items.csv, answers.csv and relations/*.csv from here instead",
    **_OUT,
    "--model MODEL": _with(
        "xpgp uses attributes and relations, preference_gp attributes alone; or a program that an installed package offers as an "
        "entry point of the group relpref",
        default="xpgp",
    ),
    "--attribute-kernel KERNEL": "how utility varies with the attributes: squared-exponential (the default), matern32, matern52 or "
    "linear, or one that is registered or offered by an installed package",
    "--shared-lengthscale": "one lengthscale for all attributes, not one for each",
    "--no-individual": "attributes and relations say all: items have no parts of their own",
    "--kernel NAME=KERNEL": _many(
        "how utility varies along a relation: regularized-laplacian (the default), diffusion, hidden-common-cause, "
        "hidden-common-cause-cliques or relation-vectors; may be repeated"
    ),
    "--likelihood NAME": _with(
        "noise of the answers: probit for every kind of them, logistic for winners alone, or one that is registered or offered by an "
        "installed package",
        default="probit",
    ),
    "--lapse": "some answers are given at random: learn how many, so that a few mistakes do not weigh much",
    "--engine NAME": _with(
        "ep is the more accurate, laplace what most packages do, or one that is registered or offered by an installed package",
        default="ep",
    ),
    "--structure {auto,dense,sparse}": "dense keeps a matrix of all items, sparse none; auto is sparse above 4000 of them",
    "--hyperparameters {integrate,maximize,em,nuts}": "average over them by weighted points, maximize the evidence, do so by EM, or sample "
    "them and average",
    "--fixed NAME=VALUE": _many("a hyperparameter that is known, such as cites_range=2; may be repeated"),
    "--draws N": "of the hyperparameters, with --hyperparameters nuts",
    **_SEED,
    "--restarts N": _with("starts of the search", default=1),
    **_FORCE,
    **_QUIET,
}

_CHECK = {
    **_RUN,
    "--items N": _with(
        "of more than N compare N with many answers among themselves", type=whole(2), default=150
    ),
    "--draws N": _with("of NUTS, all chains together", type=whole(100), default=2000),
    "--chains N": _with("of NUTS", default=4),
    "--hyperparameters": "let NUTS sample the hyperparameters, too, and not hold them at those of the run: what their uncertainty adds",
    **_SEED,
    **_JSON,
}

_SBC = {
    **_RUN,
    "--simulations N": _with("how many", default=200),
    "--engine {ep,laplace,exact,nuts,svi}": _with(
        "what fits them: nuts samples the whole program, svi is numpyro's mean field (default: the run's own, ep or laplace; exact for "
        "relpref conditional)",
        default=None,
    ),
    "--hyperparameters {given,integrate,nuts,maximize}": "whether the engine is told those of the simulation, samples them, or takes the "
    "best",
    "--scheduler WHERE": _with(
        "threads, processes, threads:N, processes:N, or tcp://HOST:PORT of a Dask scheduler; all but threads need Dask, pip install "
        "'relpref[dask]' (default: one simulation after the other)",
        type=scheduler,
    ),
    "--out FOLDER": "where simulations and picture go; goes on where it was interrupted (default: RUN-sbc, beside the run)",
    **_SEED,
    **_JSON,
}

_ASK = {
    **_RUN,
    "--rater NAME": "who answers (default: me; on the page, who says so there)",
    "--score NAME": "how questions are chosen, see docs/scores.md",
    "--answers N": "stop after N answers",
    "--title TEXT": "what stands above the questions; kept for later",
    "--question TEXT": "what is asked, such as 'Which would you rather drink?'; kept for later",
    "--show FILE": "what is shown: the label, then text, image, link and any other columns; kept for later",
    "--items A,B,...": "ask about these only; a label with a comma in quotation marks",
    "--most-appearances N": "do not ask about an item that was in N answers",
    "--hardest P": "leave out pairs whose preference probability is nearer than P to one half, such as 0.02",
    "--repeats N": _with("ask a pair again up to N times (default: 0)", type=whole(), default=0),
    "--goal P": _with(
        "say that enough is known where this share of pairs is expected to be in the wrong order", default=0.1
    ),
    "--top K": "the same about who the K best are, instead of the order of all",
    "--no-ties": "equally good is no answer",
    **_SEED,
    "way": {
        "--web": "in a browser, on a page of this computer",
        "--export FILE": "write all answers as a table that relpref fit reads; ask nothing",
        "--import FILE": _with(
            "add the answers of a table as for relpref fit; ask nothing", dest="import_from"
        ),
    },
    "--port N": _with("of the page (default: a free one)", type=whole(), default=0),
    "--per-page N": _with("questions on the page at once", default=1),
}

_CONDITIONAL_FIT = {
    "--nodes FILE": _with(f"{_FIRST_COLUMN}features", required=True),
    "--objects FILE": "where the second argument of the relation is of another kind",
    "--relation FILE": _with(
        "columns source, target, value; pairs that are not there are not known", required=True
    ),
    **_OUT,
    "--kernel {gaussian,linear,polynomial,precomputed}": "of nodes and objects; precomputed: the files hold kernel matrices with labels",
    "--no-standardize": "take features as they are (default: each with mean 0 and standard deviation 1)",
    "--gamma G": "of the polynomial and the gaussian kernel (default: 1/features)",
    "--degree D": _with("of the polynomial kernel", default=3),
    "--symmetry {none,symmetric,reciprocal}": "whether (a, b) has the label of (b, a), or the opposite one",
    "--loss {ranking,regression}": "ranking looks at differences of labels of one node, regression at the labels",
    "--regularization L[,L...]": _with(
        "of several the one with which conditioning nodes left out are ranked best (default: by the evidence)",
        type=regularizations,
    ),
    "--condition {first,second}": "rank targets for a source, or sources for a target",
    **_SEED,
    **_FORCE,
    **_QUIET,
}
_CONDITIONAL_RANK = {
    "run RUN": "the folder that relpref conditional fit wrote",
    "query LABEL": "of the node that objects are ranked for",
    "--new FILE": "features of nodes that the run does not know; LABEL may be one",
    "--new-objects FILE": "rank these new objects instead of the known ones",
    **_RANKED,
}

_PREFER = {
    **_RUN,
    "labels LABEL": _with("two labels for each question; write -- before one that begins with -", nargs="+"),
    "--rater LABEL": "who is asked (default: a typical rater)",
    "--shown-first {first,second}": _with(
        "which of each two is shown first, where answers lean to one side (default: as if that did not matter)",
        default=None,
    ),
    **_JSON,
}
_REPORT = {
    **_RUN,
    "--out FILE": "where the page goes (default: report.html in the run)",
    "--title TEXT": "what stands at the top of the page",
    "--evidence": "fit again without each part of the model, to say what it is worth; takes from seconds to minutes",
    **_JSON,
}
_GET = {
    "set NAME": "as in the list",
    "--folder FOLDER": "where the data sets go (default: what RELPREF_DATA says, otherwise data)",
    **_QUIET,
}

_COMMANDS = {
    "demo": _Command(
        "demo:run",
        "rank national football teams (bundled data), say what a relation adds",
        "relpref demo --out demo/",
        {"--out FOLDER": _with("where the run goes", default="demo"), **_SEED, **_QUIET},
    ),
    "fit": _Command(
        "fit:run",
        "fit tables, save the run",
        "relpref fit --items items.csv --answers answers.csv --relation cites=links.csv --out run/",
        _FIT,
    ),
    "rank": _Command(
        "rank:run",
        "rank the items of a run, best first",
        "relpref rank run/ --top 10",
        {**_RUN, **_RANKED},
    ),
    "prefer": _Command(
        "rank:prefer_run",
        "how likely the first of two is preferred",
        "relpref prefer run/ tea coffee water coffee",
        _PREFER,
    ),
    "report": _Command(
        "rank:report_run", "write a page about a run", "relpref report run/ --out ranking.html", _REPORT
    ),
    "check": _Command(
        "check:run", "hold a run against the exact posterior", "relpref check run/ --items 100", _CHECK
    ),
    "sbc": _Command(
        "check:sbc_run", "try a run's intervals on simulations", "relpref sbc run/ --simulations 1000", _SBC
    ),
    "ask": _Command(
        "ask:run",
        "ask a person which of two, keep every answer, learn from it",
        "relpref ask run/ --rater ann\n  relpref ask run/ --web\n  relpref ask run/ --export comparisons.csv",
        _ASK,
    ),
    "serve": _Command(
        "ask:serve_run",
        "show all runs of a folder in the browser",
        "relpref serve runs/\n  relpref serve runs/ --ask",
        {
            "folder FOLDER": "the folder that holds the runs, or a run",
            "--ask": "let people answer questions; otherwise nothing is written",
            "--port N": _with("of the page (default: a free one)", type=whole(), default=0),
        },
    ),
    "conditional": _Command(
        "conditional:run",
        "rank objects for a given node, by a partly known relation",
        "relpref conditional fit --nodes drugs.csv --objects targets.csv --relation known.csv --out run/\n"
        "  relpref conditional rank run/ aspirin --top 10",
        {},
        {
            "fit": ("learn from the known part of a relation, save the run", _CONDITIONAL_FIT),
            "rank": ("objects for one node, best first", _CONDITIONAL_RANK),
        },
    ),
    "data": _Command(
        "data:run",
        "list public data sets, fetch one",
        "relpref data get cora --folder data/",
        {},
        {
            "list": ("names, terms and addresses", _JSON),
            "get": ("fetch a set whose terms allow it; go on where it broke off", _GET),
        },
    ),
}
