"""What can be said on the command line. Nothing heavy is imported before a command is known."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from relpref._version import __version__
from relpref.errors import DataError
from relpref.parallel import FORMS, Scheduler

_EXITS = "exit codes: 0 fine, 1 inference failed, 2 input or storage cannot be used, 130 interrupted"
_FORCE = "replace the run that is there"
_FIRST_COLUMN = "the first column is the label, the others numeric "


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments; ``command`` of the result is the function to call with it.

    Raises
    ------
    DataError
        If they make no sense.
    SystemExit
        After ``--help`` and ``--version``.
    """
    return _parser().parse_args(list(arguments))


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as every other error is reported, and adds options in one line."""

    def error(self, message: str) -> NoReturn:
        raise DataError(f"{message} (see {self.prog} --help)")

    def option(self, name: str, help: str, metavar: str | None = None, **keywords: Any) -> None:
        self.add_argument(name, help=help, metavar=metavar, **keywords)

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, help=help, action="store_true")

    def repeated(self, name: str, help: str, metavar: str) -> None:
        self.add_argument(name, help=help, metavar=metavar, action="append", default=[])

    def number(
        self, name: str, help: str, metavar: str, type: Callable[[str], Any], default: Any = None
    ) -> None:
        shown = help if default is None else f"{help} (default: {default})"
        self.add_argument(name, help=shown, metavar=metavar, type=type, default=default)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="relpref",
        description="Rank things by pairwise answers, their attributes and the relations between them.",
        epilog=f"relpref COMMAND --help shows an example of each. {_EXITS}. RELPREF_MAX_DECOMPRESSED: gigabytes that a compressed "
        "file may become (default: 2).",
    )
    parser.add_argument("--version", action="version", version=f"relpref {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (function, summary, example, options) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=partial(_call, function))
        options(command)
    return parser


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


positive = whole(1)


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


def _run(parser: _Parser, command: str = "fit") -> None:
    parser.option("run", f"the folder that relpref {command} wrote", "RUN")


def _seed(parser: _Parser) -> None:
    parser.number("--seed", "of the random numbers", "N", whole(0, 2**32 - 1), 0)


def _json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def _quiet(parser: _Parser) -> None:
    _json(parser)
    parser.flag("--quiet", "no progress, and no words about the result")


def _ranked(parser: _Parser) -> None:
    """How a ranking is shown."""
    parser.number("--interval", "of the intervals", "P", number, 0.9)
    parser.number("--top", "show the first K only", "K", positive)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as a CSV table, all digits")
    _json(form)


def _demo(demo: _Parser) -> None:
    demo.option("--out", "where the run goes (default: demo)", "FOLDER", default="demo")
    _seed(demo)
    _quiet(demo)


def _fit(fit: _Parser) -> None:
    without = "attributes; without it the entities are those that the comparisons name"
    fit.option("--entities", _FIRST_COLUMN + without, "FILE")
    fit.option(
        "--comparisons",
        "columns winner, loser or first, second, winner or first, second, probability; and, if need be, tie, strength, rater, "
        "shown_first, count; leave it out where nothing was asked yet, relpref ask does",
        "FILE",
    )
    fit.repeated(
        "--columns",
        "what the file of comparisons calls its columns, such as winner=better,rater=who",
        "NAME=COLUMN,...",
    )
    fit.repeated(
        "--relation",
        "columns source, target and, if need be, weight; KIND is undirected (the default), directed (who links to whom matters), "
        "random_walk (directed, by the traffic along the links) or bipartite (entities to something else), with options after commas "
        "(bipartite,max_degree=50); may be repeated",
        "NAME=FILE[:KIND]",
    )
    fit.option("--folder", "read entities.csv, comparisons.csv and relations/*.csv from here instead")
    fit.option("--out", "where the run goes", "FOLDER", required=True)
    fit.option(
        "--model",
        "xpgp uses attributes and relations, preference_gp attributes alone; or a program that an installed package offers as an "
        "entry point of the group relpref (default: xpgp)",
        default="xpgp",
    )
    fit.option(
        "--attribute-kernel",
        "how utility varies with the attributes: squared-exponential (the default), matern32, matern52 or linear, or one that is "
        "registered or offered by an installed package",
        "KERNEL",
    )
    fit.flag("--shared-lengthscale", "one lengthscale for all attributes, not one for each")
    fit.flag("--no-individual", "attributes and relations say all: entities have no parts of their own")
    fit.repeated(
        "--kernel",
        "how utility varies along a relation: regularized-laplacian (the default), diffusion, hidden-common-cause, "
        "hidden-common-cause-cliques or vectors; may be repeated",
        "NAME=KERNEL",
    )
    noise = (
        "noise of the answers: probit (the default) for every kind of them, logistic for winners alone, or one that is registered or "
        "offered by an installed package"
    )
    fit.option("--likelihood", noise, "NAME", default="probit")
    lapse = "some answers are given at random: learn how many, so that a few mistakes do not weigh much"
    fit.flag("--lapse", lapse)
    engine = (
        "ep (the default) is the more accurate, laplace what most packages do, or one that is registered or offered by an installed "
        "package"
    )
    fit.option("--engine", engine, "NAME", default="ep")
    structure = (
        "dense keeps a matrix of all entities, sparse none; auto is sparse above 4000 of them (default: auto)"
    )
    fit.option("--structure", structure, choices=("auto", "dense", "sparse"), default="auto")
    fit.option(
        "--hyperparameters",
        "average over them by weighted points, maximise the evidence, do so by EM, or sample them and average (default: integrate)",
        choices=("integrate", "maximise", "em", "nuts"),
        default="integrate",
    )
    fix = "a hyperparameter that is known, such as cites_range=2; may be repeated"
    fit.repeated("--fix", fix, "NAME=VALUE")
    fit.number("--draws", "of the hyperparameters, with --hyperparameters nuts", "N", positive)
    _seed(fit)
    fit.number("--restarts", "starts of the search", "N", positive, 1)
    fit.flag("--force", _FORCE)
    _quiet(fit)


def _rank(rank: _Parser) -> None:
    _run(rank)
    _ranked(rank)


def _prefer(prefer: _Parser) -> None:
    _run(prefer)
    labels = "two labels for each question; write -- before one that begins with -"
    prefer.option("labels", labels, "LABEL", nargs="+")
    prefer.option("--rater", "who is asked (default: a typical rater)", "LABEL")
    prefer.option(
        "--shown-first",
        "which of each two is shown first, where answers lean to one side (default: as if that did not matter)",
        choices=("first", "second"),
    )
    _json(prefer)


def _report(report: _Parser) -> None:
    _run(report)
    report.option("--out", "where the page goes (default: report.html in the run)", "FILE")
    report.option("--title", "what stands at the top of the page", "TEXT")
    evidence = (
        "fit again without each part of the model, to say what it is worth; takes from seconds to minutes"
    )
    report.flag("--evidence", evidence)
    _json(report)


def _check(check: _Parser) -> None:
    _run(check)
    entities = "of more than N compare N with many answers among themselves"
    check.number("--entities", entities, "N", whole(2), 150)
    check.number("--draws", "of NUTS, all chains together", "N", whole(100), 2000)
    check.number("--chains", "of NUTS", "N", positive, 4)
    check.flag(
        "--hyperparameters",
        "let NUTS sample the hyperparameters, too, and not hold them at those of the run: what their uncertainty adds",
    )
    _seed(check)
    _json(check)


def _sbc(sbc: _Parser) -> None:
    _run(sbc)
    sbc.number("--simulations", "how many", "N", positive, 200)
    sbc.option(
        "--engine",
        "what fits them: nuts samples the whole program, svi is numpyro's mean field (default: the run's own, ep or laplace; exact for "
        "relpref conditional)",
        choices=("ep", "laplace", "exact", "nuts", "svi"),
    )
    sbc.option(
        "--hyperparameters",
        "whether the engine is told those of the simulation, samples them, or takes the best (default: given)",
        choices=("given", "integrate", "nuts", "maximise"),
        default="given",
    )
    sbc.option(
        "--scheduler",
        "threads, processes, threads:N, processes:N, or tcp://HOST:PORT of a Dask scheduler; all but threads need Dask, pip install "
        "'relpref[dask]' (default: one simulation after the other)",
        "WHERE",
        type=scheduler,
    )
    out = "where simulations and picture go; goes on where it was interrupted (default: RUN-sbc, beside the run)"
    sbc.option("--out", out, "FOLDER")
    _seed(sbc)
    _json(sbc)


def _ask(ask: _Parser) -> None:
    _run(ask)
    ask.option("--rater", "who answers (default: me; on the page, who says so there)", "NAME")
    ask.option("--score", "how questions are chosen, see docs/scores.md", "NAME")
    ask.number("--answers", "stop after N answers", "N", positive)
    show = "what is shown: the label, then text, image, link and any other columns; kept for later"
    ask.option("--show", show, "FILE")
    ask.option("--entities", "ask about these only; a label with a comma in quotation marks", "A,B,...")
    ask.number("--most-appearances", "do not ask about an entity that was in N answers", "N", positive)
    hardest = "leave out pairs whose preference probability is nearer than P to one half, such as 0.02"
    ask.number("--hardest", hardest, "P", number)
    ask.number("--repeats", "ask a pair again up to N times", "N", whole(), 0)
    goal = "say that enough is known where this share of pairs is expected to be in the wrong order"
    ask.number("--goal", goal, "P", number, 0.1)
    ask.number("--top", "the same about who the K best are, instead of the order of all", "K", positive)
    ask.flag("--no-ties", "equally good is no answer")
    _seed(ask)
    way = ask.add_mutually_exclusive_group()
    way.add_argument("--web", action="store_true", help="in a browser, on a page of this computer")
    export = "write all answers as a table that relpref fit reads; ask nothing"
    way.add_argument("--export", metavar="FILE", help=export)
    imported = "add the answers of a table as for relpref fit; ask nothing"
    way.add_argument("--import", dest="import_from", metavar="FILE", help=imported)
    ask.option("--port", "of the page (default: a free one)", "N", type=whole(), default=0)


def _conditional(conditional: _Parser) -> None:
    actions = conditional.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=_Parser
    )
    fit = actions.add_parser("fit", help="learn from the known part of a relation, save the run")
    fit.option("--nodes", _FIRST_COLUMN + "features", "FILE", required=True)
    fit.option("--objects", "where the second argument of the relation is of another kind", "FILE")
    relation = "columns source, target, value; pairs that are not there are not known"
    fit.option("--relation", relation, "FILE", required=True)
    fit.option("--out", "where the run goes", "FOLDER", required=True)
    fit.option(
        "--kernel",
        "of nodes and objects; precomputed: the files hold kernel matrices with labels (default: gaussian)",
        choices=("linear", "polynomial", "gaussian", "precomputed"),
        default="gaussian",
    )
    standardize = "take features as they are (default: each with mean 0 and standard deviation 1)"
    fit.flag("--no-standardize", standardize)
    gamma = "of the polynomial and the gaussian kernel (default: 1/features)"
    fit.number("--gamma", gamma, "G", number)
    fit.number("--degree", "of the polynomial kernel", "D", number, 3)
    symmetry = "whether (a, b) has the label of (b, a), or the opposite one (default: none)"
    fit.option("--symmetry", symmetry, choices=("none", "symmetric", "reciprocal"), default="none")
    loss = "ranking looks at differences of labels of one node, regression at the labels (default: ranking)"
    fit.option("--loss", loss, choices=("ranking", "regression"), default="ranking")
    best = (
        "of several the one with which conditioning nodes left out are ranked best (default: by the evidence)"
    )
    fit.number("--regularization", best, "L[,L...]", regularizations)
    condition = "rank targets for a source, or sources for a target (default: first)"
    fit.option("--condition", condition, choices=("first", "second"), default="first")
    _seed(fit)
    fit.flag("--force", _FORCE)
    _quiet(fit)

    rank = actions.add_parser("rank", help="objects for one node, best first")
    _run(rank, "conditional fit")
    rank.option("query", "of the node that objects are ranked for", "LABEL")
    rank.option("--new", "features of nodes that the run does not know; LABEL may be one", "FILE")
    rank.option("--new-objects", "rank these new objects instead of the known ones", "FILE")
    _ranked(rank)


def _data(data: _Parser) -> None:
    actions = data.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=_Parser
    )
    _json(actions.add_parser("list", help="names, terms and addresses"))
    get = actions.add_parser("get", help="fetch a set whose terms allow it; go on where it broke off")
    get.option("name", "as in the list", "NAME")
    get.option("--folder", "where the data sets go (default: what RELPREF_DATA says, otherwise data)")
    _quiet(get)


# Of each command the function that does it, what it does, an example and its options.
_COMMANDS: dict[str, tuple[str, str, str, Callable[[_Parser], None]]] = {
    "demo": (
        "demo:run",
        "fit bundled real data, say what its relation adds",
        "relpref demo --out demo/",
        _demo,
    ),
    "fit": (
        "fit:run",
        "fit tables, save the run",
        "relpref fit --entities items.csv --comparisons answers.csv --relation cites=links.csv --out run/",
        _fit,
    ),
    "rank": ("rank:run", "rank the entities of a run, best first", "relpref rank run/ --top 10", _rank),
    "prefer": (
        "rank:prefer_run",
        "how likely the first of two is preferred",
        "relpref prefer run/ tea coffee water coffee",
        _prefer,
    ),
    "report": (
        "rank:report_run",
        "write a page about a run",
        "relpref report run/ --out ranking.html",
        _report,
    ),
    "check": (
        "check:run",
        "hold a run against the exact posterior",
        "relpref check run/ --entities 100",
        _check,
    ),
    "sbc": (
        "check:sbc_run",
        "try a run's intervals on simulations",
        "relpref sbc run/ --simulations 1000",
        _sbc,
    ),
    "ask": (
        "ask:run",
        "ask a person which of two, keep every answer, learn from it",
        "relpref ask run/ --rater ann\n  relpref ask run/ --web\n  relpref ask run/ --export comparisons.csv",
        _ask,
    ),
    "conditional": (
        "conditional:run",
        "rank objects for a given node, by a partly known relation",
        (
            "relpref conditional fit --nodes drugs.csv --objects targets.csv --relation known.csv --out run/\n"
            "  relpref conditional rank run/ aspirin --top 10"
        ),
        _conditional,
    ),
    "data": (
        "model:run",
        "list public data sets, fetch one",
        "relpref data get cora --folder data/",
        _data,
    ),
}
