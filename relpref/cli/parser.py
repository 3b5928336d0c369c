"""What can be said on the command line. Nothing heavy is imported before a command is known."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from relpref import __version__
from relpref.errors import DataError
from relpref.parallel import FORMS, Scheduler


def report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``relpref report``."""
    parser.add_argument("--out", metavar="FILE", help="where the page goes (default: report.html in the run)")
    parser.add_argument("--title", metavar="TEXT", help="what stands at the top of the page")
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="fit again without each part of the model, to say what it is worth; takes from seconds to minutes",
    )


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def seed_number(text: str) -> int:
    number = whole(text)
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {2**32 - 1}")
    return number


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def scheduler(text: str) -> str:
    """Where many computations are done."""
    try:
        Scheduler.read(text)
    except DataError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {FORMS}") from None
    return text


def regularizations(text: str) -> list[float]:
    """Positive numbers between commas, ascending."""
    values = [number(part) for part in text.split(",")]
    if not all(0 < value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text}: a regularization is a positive number")
    return sorted(set(values))


def add_check_options(check: Any) -> None:
    """How a run is compared with NUTS."""
    check.add_argument(
        "--entities",
        type=_from(2),
        default=150,
        metavar="N",
        help="of more than N compare N with many answers among themselves (default: 150)",
    )
    check.add_argument(
        "--draws",
        type=_from(100),
        default=2000,
        metavar="N",
        help="of NUTS, all chains together (default: 2000)",
    )
    check.add_argument("--chains", type=positive, default=4, metavar="N", help="of NUTS (default: 4)")
    check.add_argument(
        "--hyperparameters",
        action="store_true",
        help="let NUTS sample the hyperparameters, too, and not hold them at those of the run: what their uncertainty adds",
    )


def _from(least: int) -> Callable[[str], int]:
    """A whole number that is large enough, or nothing is computed."""

    def read(text: str) -> int:
        number = whole(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return read


ENGINES = ("ep", "laplace", "exact", "nuts", "svi")


def sbc_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``relpref sbc``."""
    parser.add_argument(
        "--simulations", type=positive, default=200, metavar="N", help="how many (default: 200)"
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="what fits them: nuts samples the whole program, svi is numpyro's mean field (default: the run's own, ep or laplace; exact for "
        "relpref conditional)",
    )
    parser.add_argument(
        "--hyperparameters",
        default="given",
        choices=("given", "integrate", "nuts", "maximise"),
        help="whether the engine is told those of the simulation, samples them, or takes the best (default: given)",
    )
    parser.add_argument(
        "--scheduler",
        type=scheduler,
        metavar="WHERE",
        help="threads, processes, threads:N, processes:N, or tcp://HOST:PORT of a Dask scheduler; all but threads need Dask, pip install "
        "'relpref[dask]' (default: one simulation after the other)",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="where simulations and picture go; goes on where it was interrupted (default: RUN-sbc, beside the run)",
    )


_EXITS = "exit codes: 0 fine, 1 inference failed, 2 input or storage cannot be used, 130 interrupted"


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
    """Reports wrong usage as every other error is reported."""

    def error(self, message: str) -> NoReturn:
        raise DataError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="relpref",
        description="Rank things by pairwise answers, their attributes and the relations between them.",
        epilog=f"relpref COMMAND --help shows an example of each. {_EXITS}. RELPREF_MAX_DECOMPRESSED: gigabytes that a compressed "
        "file may become (default: 2).",
    )
    parser.add_argument("--version", action="version", version=f"relpref {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    demo = _add(
        commands, "demo", "fit bundled real data, say what its relation adds", "relpref demo --out demo/"
    )
    demo.add_argument("--out", default="demo", metavar="FOLDER", help="where the run goes (default: demo)")
    _seed(demo)
    _quiet(demo)

    fit = _add(
        commands,
        "fit",
        "fit tables, save the run",
        "relpref fit --entities items.csv --comparisons answers.csv --relation cites=links.csv --out run/",
    )
    fit.add_argument(
        "--entities",
        metavar="FILE",
        help="the first column is the label, the others numeric attributes; without it the entities are those that the comparisons name",
    )
    fit.add_argument(
        "--comparisons",
        metavar="FILE",
        help="columns winner, loser or first, second, winner or first, second, probability; and, if need be, tie, strength, rater, "
        "shown_first, count; leave it out where nothing was asked yet, relpref ask does",
    )
    fit.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="NAME=COLUMN,...",
        help="what the file of comparisons calls its columns, such as winner=better,rater=who",
    )
    fit.add_argument(
        "--relation",
        action="append",
        default=[],
        metavar="NAME=FILE[:KIND]",
        help="columns source, target and, if need be, weight; KIND is undirected (the default), directed (who links to whom "
        "matters), random_walk (directed, by the traffic along the links) or bipartite (entities to something else), with options after "
        "commas (bipartite,max_degree=50); may be repeated",
    )
    fit.add_argument(
        "--folder", help="read entities.csv, comparisons.csv and relations/*.csv from here instead"
    )
    fit.add_argument("--out", required=True, metavar="FOLDER", help="where the run goes")
    fit.add_argument(
        "--model",
        default="xpgp",
        help="xpgp uses attributes and relations, preference_gp attributes alone; or a program that an installed package offers as "
        "an entry point of the group relpref (default: xpgp)",
    )
    fit.add_argument(
        "--attribute-kernel",
        choices=("squared-exponential", "matern32", "matern52", "linear"),
        help="how utility varies with the attributes (default: squared-exponential)",
    )
    fit.add_argument(
        "--shared-lengthscale",
        action="store_true",
        help="one lengthscale for all attributes, not one for each",
    )
    fit.add_argument(
        "--no-individual",
        action="store_true",
        help="attributes and relations say all: entities have no parts of their own",
    )
    fit.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="NAME=KERNEL",
        help="how utility varies along a relation: regularized-laplacian (the default), diffusion, hidden-common-cause, "
        "hidden-common-cause-cliques or vectors; may be repeated",
    )
    fit.add_argument(
        "--likelihood",
        default="probit",
        choices=("probit", "logistic"),
        help="noise of the answers: probit for every kind of them, logistic for winners alone (default: probit)",
    )
    fit.add_argument(
        "--lapse",
        action="store_true",
        help="some answers are given at random: learn how many, so that a few mistakes do not weigh much",
    )
    fit.add_argument(
        "--engine",
        default="ep",
        choices=("ep", "laplace"),
        help="ep is the more accurate, laplace what most packages do (default: ep)",
    )
    words = (
        "dense keeps a matrix of all entities, sparse none; auto is sparse above 4000 of them (default: auto)"
    )
    fit.add_argument("--structure", default="auto", choices=("auto", "dense", "sparse"), help=words)
    fit.add_argument(
        "--hyperparameters",
        default="integrate",
        choices=("integrate", "maximise", "em", "nuts"),
        help="average over them by weighted points, maximise the evidence, do so by EM, or sample them and average (default: integrate)",
    )
    fit.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a hyperparameter that is known, such as cites_range=2; may be repeated",
    )
    fit.add_argument(
        "--draws", type=positive, metavar="N", help="of the hyperparameters, with --hyperparameters nuts"
    )
    _seed(fit)
    fit.add_argument(
        "--restarts", type=positive, default=1, metavar="N", help="starts of the search (default: 1)"
    )
    fit.add_argument("--force", action="store_true", help="replace the run that is there")
    _quiet(fit)

    rank = _add(commands, "rank", "rank the entities of a run, best first", "relpref rank run/ --top 10")
    _run(rank)
    _ranked(rank)

    prefer = _add(
        commands,
        "prefer",
        "how likely the first of two is preferred",
        "relpref prefer run/ tea coffee water coffee",
    )
    _run(prefer)
    prefer.add_argument(
        "labels",
        nargs="+",
        metavar="LABEL",
        help="two labels for each question; write -- before one that begins with -",
    )
    prefer.add_argument("--rater", metavar="LABEL", help="who is asked (default: a typical rater)")
    prefer.add_argument(
        "--shown-first",
        choices=("first", "second"),
        help="which of each two is shown first, where answers lean to one side (default: as if that did not matter)",
    )
    _json(prefer)

    report = _add(commands, "report", "write a page about a run", "relpref report run/ --out ranking.html")
    _run(report)
    report_options(report)
    _json(report)

    check = _add(
        commands, "check", "hold a run against the exact posterior", "relpref check run/ --entities 100"
    )
    _run(check)
    add_check_options(check)
    _seed(check)
    _json(check)
    sbc = _add(commands, "sbc", "try a run's intervals on simulations", "relpref sbc run/ --simulations 1000")
    _run(sbc)
    sbc_options(sbc)
    _seed(sbc)
    _json(sbc)

    ask = _add(
        commands,
        "ask",
        "ask a person which of two, keep every answer, learn from it",
        "relpref ask run/ --rater ann\n  relpref ask run/ --web\n  relpref ask run/ --export comparisons.csv",
    )
    _run(ask)
    _asked(ask)

    conditional = _add(
        commands,
        "conditional",
        "rank objects for a given node, by a partly known relation",
        "relpref conditional fit --nodes drugs.csv --objects targets.csv --relation known.csv --out run/\n"
        "  relpref conditional rank run/ aspirin --top 10",
    )
    _conditional(
        conditional.add_subparsers(
            title="actions", metavar="ACTION", dest="action", required=True, parser_class=_Parser
        )
    )

    data = _add(commands, "data", "list public data sets, fetch one", "relpref data get cora --folder data/")
    actions = data.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, parser_class=_Parser
    )
    listing = actions.add_parser("list", help="names, terms and addresses")
    _json(listing)
    get = actions.add_parser("get", help="fetch a set whose terms allow it; go on where it broke off")
    get.add_argument("name", metavar="NAME", help="as in the list")
    get.add_argument(
        "--folder", help="where the data sets go (default: what RELPREF_DATA says, otherwise data)"
    )
    _quiet(get)
    return parser


def _asked(ask: Any) -> None:
    ask.add_argument(
        "--rater", metavar="NAME", help="who answers (default: me; on the page, who says so there)"
    )
    ask.add_argument("--score", metavar="NAME", help="how questions are chosen, see docs/scores.md")
    ask.add_argument("--answers", type=positive, metavar="N", help="stop after N answers")
    ask.add_argument(
        "--show",
        metavar="FILE",
        help="what is shown: the label, then text, image, link and any other columns; kept for later",
    )
    ask.add_argument(
        "--entities", metavar="A,B,...", help="ask about these only; a label with a comma in quotation marks"
    )
    ask.add_argument(
        "--most-appearances",
        type=positive,
        metavar="N",
        help="do not ask about an entity that was in N answers",
    )
    ask.add_argument(
        "--hardest",
        type=number,
        metavar="P",
        help="leave out pairs whose preference probability is nearer than P to one half, such as 0.02",
    )
    ask.add_argument(
        "--repeats", type=whole, default=0, metavar="N", help="ask a pair again up to N times (default: 0)"
    )
    ask.add_argument(
        "--goal",
        type=number,
        default=0.1,
        metavar="P",
        help="say that enough is known where this share of pairs is expected to be in the wrong order (default: 0.1)",
    )
    ask.add_argument(
        "--top",
        type=positive,
        metavar="K",
        help="the same about who the K best are, instead of the order of all",
    )
    ask.add_argument("--no-ties", action="store_true", help="equally good is no answer")
    _seed(ask)
    way = ask.add_mutually_exclusive_group()
    way.add_argument("--web", action="store_true", help="in a browser, on a page of this computer")
    way.add_argument(
        "--export", metavar="FILE", help="write all answers as a table that relpref fit reads; ask nothing"
    )
    way.add_argument(
        "--import",
        dest="import_from",
        metavar="FILE",
        help="add the answers of a table as for relpref fit; ask nothing",
    )
    ask.add_argument("--port", type=whole, default=0, metavar="N", help="of the page (default: a free one)")


def _conditional(actions: Any) -> None:
    fit = actions.add_parser("fit", help="learn from the known part of a relation, save the run")
    fit.add_argument(
        "--nodes",
        required=True,
        metavar="FILE",
        help="the first column is the label, the others numeric features",
    )
    fit.add_argument(
        "--objects", metavar="FILE", help="where the second argument of the relation is of another kind"
    )
    fit.add_argument(
        "--relation",
        required=True,
        metavar="FILE",
        help="columns source, target, value; pairs that are not there are not known",
    )
    fit.add_argument("--out", required=True, metavar="FOLDER", help="where the run goes")
    fit.add_argument(
        "--kernel",
        default="gaussian",
        choices=("linear", "polynomial", "gaussian", "precomputed"),
        help="of nodes and objects; precomputed: the files hold kernel matrices with labels (default: gaussian)",
    )
    fit.add_argument(
        "--no-standardize",
        action="store_true",
        help="take features as they are (default: each with mean 0 and standard deviation 1)",
    )
    fit.add_argument(
        "--gamma",
        type=number,
        metavar="G",
        help="of the polynomial and the gaussian kernel (default: 1/features)",
    )
    fit.add_argument(
        "--degree", type=number, default=3, metavar="D", help="of the polynomial kernel (default: 3)"
    )
    fit.add_argument(
        "--symmetry",
        default="none",
        choices=("none", "symmetric", "reciprocal"),
        help="whether (a, b) has the label of (b, a), or the opposite one (default: none)",
    )
    fit.add_argument(
        "--loss",
        default="ranking",
        choices=("ranking", "regression"),
        help="ranking looks at differences of labels of one node, regression at the labels (default: ranking)",
    )
    fit.add_argument(
        "--regularization",
        type=regularizations,
        metavar="L[,L...]",
        help="of several the one with which conditioning nodes left out are ranked best (default: by the evidence)",
    )
    fit.add_argument(
        "--condition",
        default="first",
        choices=("first", "second"),
        help="rank targets for a source, or sources for a target (default: first)",
    )
    _seed(fit)
    fit.add_argument("--force", action="store_true", help="replace the run that is there")
    _quiet(fit)

    rank = actions.add_parser("rank", help="objects for one node, best first")
    rank.add_argument("run", metavar="RUN", help="the folder that relpref conditional fit wrote")
    rank.add_argument("query", metavar="LABEL", help="of the node that objects are ranked for")
    rank.add_argument(
        "--new", metavar="FILE", help="features of nodes that the run does not know; LABEL may be one"
    )
    rank.add_argument(
        "--new-objects", metavar="FILE", help="rank these new objects instead of the known ones"
    )
    _ranked(rank)


def _ranked(rank: Any) -> None:
    """How a ranking is shown."""
    rank.add_argument(
        "--interval", type=number, default=0.9, metavar="P", help="of the intervals (default: 0.9)"
    )
    rank.add_argument("--top", type=positive, metavar="K", help="show the first K only")
    form = rank.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as a CSV table, all digits")
    _json(form)


# Commands that share a module with another one.
_ELSEWHERE = {
    "data": ("model", "run"),
    "prefer": ("rank", "prefer_run"),
    "report": ("rank", "report_run"),
    "sbc": ("check", "sbc_run"),
}


def _add(commands: Any, name: str, summary: str, example: str) -> Any:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_deferred(name))
    return parser


def _deferred(name: str) -> Callable[[argparse.Namespace], None]:
    module, function = _ELSEWHERE.get(name, (name, "run"))

    def command(chosen: argparse.Namespace) -> None:
        getattr(import_module(f"relpref.cli.{module}"), function)(chosen)

    return command


def _run(parser: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder that relpref fit wrote")


def _seed(parser: Any) -> None:
    parser.add_argument(
        "--seed", type=seed_number, default=0, metavar="N", help="of the random numbers (default: 0)"
    )


def _json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def _quiet(parser: Any) -> None:
    _json(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, and no words about the result")
