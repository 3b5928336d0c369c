"""The commands and their options, as tables.

An option is named with what stands for its value: letters, N and K (whole numbers), P (a number),
or {choices}, of which the first is the default; without it, the option is a flag. What is said of
it is the help, of which ``--help`` shows the part before the first semicolon, or the help and
keywords of argparse. A table within a table holds options that exclude each other.
"""

import argparse
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from relpref.errors import DataError
from relpref.parallel import FORMS, Scheduler

Options = Mapping[str, Any]


class Command(NamedTuple):
    """A command, or an action of one."""

    function: str  # module:function in this package
    summary: str
    example: str
    options: Options
    more: Options = MappingProxyType({})  # of the long help
    actions: Mapping[str, "Command"] = MappingProxyType({})
    reads: tuple[str, ...] = ()  # the options that name files to read


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


TYPES: dict[str, Callable[[str], Any]] = {
    "N": whole(1),
    "K": whole(1),
    "P": number,
    "G": number,
    "D": number,
}


def _with(help: str, **keywords: Any) -> tuple[str, dict[str, Any]]:
    return help, keywords


def _many(help: str) -> tuple[str, dict[str, Any]]:
    return _with(help, action="append", default=[])


_RUN = {"run RUN": "the folder of a run, which relpref fit wrote"}
_SEED = {
    "--seed N": _with("of the random numbers (default: 0)", type=whole(0, 2**32 - 1), default=0)
}
_TEXT = {"-o {table,json}": _with("the form of the output", dest="form")}
_TABLE = {"-o {table,csv,json}": _with("the form of the output; csv has all digits", dest="form")}
_QUIET = {"--quiet": "no progress, and no words about the result"}
_OUT = {"--out FOLDER": _with("where the run goes", default="run")}
_FORCE = {"--force": "replace the run that is there"}
_INTERVAL = {"--interval P": _with("probability of the intervals", default=0.9)}
_TOP = {"--top K": "show the first K only"}
_INCOMPLETE = {
    "--incomplete {top-k,subset}": _with(
        "what a missing item of a PrefLib ballot means; below all others, or not asked for",
        default=None,
    ),
}
_PORT = {"--port N": _with("of the page (default: a free one)", type=whole(), default=0)}

COMMANDS = {
    "demo": Command(
        "demo:run",
        "rank national football teams (bundled data)",
        "relpref demo --out demo/",
        {"--out FOLDER": _with("where the run goes", default="demo"), **_TEXT, **_QUIET, **_SEED},
    ),
    "fit": Command(
        "fit:run",
        "fit tables, save the run",
        "relpref fit answers.csv\n  relpref fit answers.csv --items items.csv --relation "
        "cites=links.csv",
        {
            "answers ANSWERS": _with(
                "who was preferred: columns winner, loser; or first, second, winner; or first, "
                "second, probability; and, if need be, tie, "
                "strength, rater, group, shown_first, count, weight. Orders: list, item, place; "
                "choices: choice, item, chosen; best, worst, item_1, item_2, "
                "...; or a PrefLib file. Leave it out where nothing was asked yet, relpref ask "
                "does",
                nargs="?",
                default=argparse.SUPPRESS,
            ),
            "--items FILE": "labels and attributes; the first column is the label; without it the "
            "items are those of the answers",
            "--relation NAME=FILE": _many(
                "links: columns source, target; and, if need be, weight; may be repeated. "
                "NAME=FILE:KIND: undirected (the default), directed "
                "(who links to whom matters), random_walk (directed, by the traffic along the "
                "links) or bipartite (items to something "
                "else), with options after commas (bipartite,max_degree=50)"
            ),
            "--folder FOLDER": "read items.csv, answers.csv and relations/*.csv; from here instead",
            **_OUT,
            **_FORCE,
            **_TEXT,
            **_QUIET,
            **_SEED,
        },
        {
            "--answers FILE": "the same as ANSWERS",
            "--columns NAME=COLUMN,...": _many(
                "what the answers call their columns; such as winner=better,rater=who"
            ),
            "--covariates NAME,...": _many(
                "what is known of the two sides of an answer and may favor one: numbers or "
                "categories in the columns NAME_winner and "
                "NAME_loser (or NAME_first, NAME_second), or a column NAME with the label of the "
                "side that has it, such as home"
            ),
            "--lists {exact,pairs}": _with(
                "what pairs are that have the same value in the column list: exact takes them for "
                "one look at its items, pairs for "
                "independent answers",
                default="exact",
            ),
            **_INCOMPLETE,
            "--model MODEL": _with(
                "xpgp uses attributes and relations, preference_gp attributes alone; or a program "
                "that an installed package offers as an "
                "entry point of the group relpref",
                default="xpgp",
            ),
            "--attribute-kernel KERNEL": "how utility varies with the attributes: "
            "squared-exponential (the default), matern32, matern52 or "
            "linear, or one that is registered or offered by an installed package",
            "--shared-lengthscale": "one lengthscale for all attributes, not one for each",
            "--no-individual": "attributes and relations say all: items have no parts of their own",
            "--kernel NAME=KERNEL": _many(
                "how utility varies along a relation: regularized-laplacian (the default), "
                "diffusion, hidden-common-cause, "
                "hidden-common-cause-cliques or relation-vectors; may be repeated"
            ),
            "--likelihood NAME": _with(
                "noise of the answers: probit for every kind of them, logistic for all but "
                "probabilities, or one that is registered or "
                "offered by an installed package",
                default="probit",
            ),
            "--margins {common,rater,item,both}": _with(
                "what the margin depends on within which an answer is a tie: each rater, each "
                "item, or both may have one of its own",
                default=None,
            ),
            "--ties {rao-kupper,davidson}": _with(
                "of logistic answers: a margin on the noisy difference (rao-kupper), or a multiple "
                "of the geometric mean (davidson)",
                default=None,
            ),
            "--lapse": "some answers are given at random: learn how many, so that a few mistakes "
            "do not weigh much",
            "--engine NAME": _with(
                "ep is the more accurate, laplace what most packages do, or one that is registered "
                "or offered by an installed package",
                default="ep",
            ),
            "--structure {auto,dense,sparse}": "dense keeps a matrix of all items, sparse none; "
            "auto is sparse above 4000 of them",
            "--hyperparameters {integrate,maximize,em,nuts}": "average over them by weighted "
            "points, maximize the evidence, do "
            "so by EM, or "
            "sample them and average",
            "--fixed NAME=VALUE": _many(
                "a hyperparameter that is known, such as cites_range=2; may be repeated"
            ),
            "--draws N": "of the hyperparameters, with --hyperparameters nuts",
            "--restarts N": _with("starts of the search", default=1),
        },
        reads=("items", "answers"),
    ),
    "rank": Command(
        "rank:run",
        "rank the items of a run, best first",
        "relpref rank run/ --top 10",
        {**_RUN, **_INTERVAL, **_TOP, **_TABLE},
    ),
    "tiers": Command(
        "rank:tiers_run",
        "say which items are settled above which",
        "relpref tiers run/",
        {
            **_RUN,
            "--probability P": _with("that all settled pairs are in the right order", default=0.95),
            **_TOP,
            **_TABLE,
        },
    ),
    "prefer": Command(
        "rank:prefer_run",
        "say how likely the first of two is preferred",
        "relpref prefer run/ tea coffee water coffee",
        {
            **_RUN,
            "labels LABEL": _with(
                "two labels for each question; write -- before one that begins with -", nargs="+"
            ),
            "--rater LABEL": _many(
                "who is asked; once for all questions, or again for each; by default a typical "
                "rater"
            ),
            "--shown-first {first,second}": _with(
                "which of each two is shown first; where answers lean to one side (default: as if "
                "that did not matter)",
                default=None,
            ),
            "--home {first,second}": _with(
                "which of each two is at home (default: neither)", default=None
            ),
            "--covariate COLUMN=VALUE": _many(
                "a covariate of one side of each two, such as length_first=120; may be repeated "
                "(default: both sides are equal)"
            ),
            **_TABLE,
        },
    ),
    "plot": Command(
        "rank:plot_run",
        "draw the ranking of a run",
        "relpref plot run/ --out ranking.png --top 20",
        {
            **_RUN,
            "--out FILE": _with(
                "where the picture goes; the ending says of which kind", default="ranking.png"
            ),
            "--top K": _with("draw the first K only", default=30),
            **_INTERVAL,
            **_TEXT,
        },
    ),
    "report": Command(
        "rank:report_run",
        "write a page about a run",
        "relpref report run/ --out ranking.html",
        {
            **_RUN,
            "--out FILE": "where the page goes (default: report.html in the run)",
            "--title TEXT": "what stands at the top of the page",
            "--evidence": "refit without each part, to say what it is worth; takes from seconds to "
            "minutes",
            **_TEXT,
        },
    ),
    "ask": Command(
        "ask:run",
        "ask which of two is preferred, and learn from the answers",
        "relpref ask run/ --rater ann\n  relpref ask run/ --web --question 'Which would you rather "
        "drink?'",
        {
            **_RUN,
            "--rater NAME": "who answers; by default me, and on the page who says so there",
            "--answers N": "stop after N answers; in the terminal",
            "--title TEXT": "what stands above the questions; kept for later",
            "--question TEXT": "what is asked; kept for later",
            "--show FILE": "what is shown of the items; the label, then text, image, link and any "
            "other columns; kept for later",
            "way": {
                "--web": "in a browser, on a page of this computer",
                "--export FILE": "write all answers as a table that relpref fit reads; ask nothing",
                "--import FILE": _with(
                    "add the answers of a table; ask nothing", dest="import_from"
                ),
            },
            **_PORT,
        },
        {
            "--per-page N": _with("questions on the page at once", default=1),
            "--score NAME": "how questions are chosen, see docs/scores.md",
            "--items A,B,...": "ask about these only; a label with a comma in quotation marks",
            "--most-appearances N": "do not ask about an item that was in N answers",
            "--hardest P": "leave out pairs whose preference probability is nearer than P to one "
            "half, such as 0.02",
            "--repeats N": _with(
                "ask a pair again up to N times (default: 0)", type=whole(), default=0
            ),
            "--goal P": _with(
                "say that enough is known where this share of pairs is expected to be in the wrong "
                "order",
                default=0.1,
            ),
            "--top K": "the same about who the K best are, instead of the order of all",
            "--no-ties": "equally good is no answer",
            **_SEED,
        },
    ),
    "serve": Command(
        "ask:serve_run",
        "show all runs of a folder in the browser",
        "relpref serve runs/\n  relpref serve runs/ --ask",
        {
            "folder FOLDER": "the folder that holds the runs, or a run",
            "--ask": "let people answer questions; otherwise nothing is written",
            **_PORT,
        },
    ),
    "check": Command(
        "check:run",
        "compare a run with the exact posterior",
        "relpref check run/ --items 100",
        {
            **_RUN,
            "--items N": _with(
                "of more items compare N among themselves; those with many answers",
                type=whole(2),
                default=150,
            ),
            "--draws N": _with("of NUTS, all chains together", type=whole(100), default=2000),
            "--chains N": _with("of NUTS", default=4),
            "--hyperparameters": "let NUTS sample the hyperparameters, too; instead of holding "
            "them at those of the run: what their "
            "uncertainty adds",
            **_TEXT,
            **_SEED,
        },
    ),
    "sbc": Command(
        "check:sbc_run",
        "try a run's intervals on simulations",
        "relpref sbc run/ --simulations 1000",
        {
            **_RUN,
            "--simulations N": _with("how many", default=200),
            "--out FOLDER": "for simulations and picture (default: RUN-sbc); goes on where it was "
            "interrupted",
            **_TEXT,
            **_SEED,
        },
        {
            "--engine {ep,laplace,exact,nuts,svi}": _with(
                "what fits them: nuts samples the whole program, svi is numpyro's mean field "
                "(default: the run's own, ep or laplace; exact for "
                "relpref conditional)",
                default=None,
            ),
            "--hyperparameters {given,integrate,nuts,maximize}": "whether the engine is told those "
            "of the simulation, samples them, "
            "or takes "
            "the best",
            "--scheduler WHERE": _with(
                "threads, processes, threads:N, processes:N, or tcp://HOST:PORT of a Dask "
                "scheduler; all but threads need Dask, pip install "
                "'relpref[dask]' (default: one simulation after the other)",
                type=scheduler,
            ),
        },
    ),
    "conditional": Command(
        "conditional:run",
        "rank objects for a given node, by a partly known relation",
        "relpref conditional fit --nodes drugs.csv --relation known.csv\n  relpref conditional "
        "rank run aspirin --top 10",
        {},
        {},
        {
            "fit": Command(
                "",
                "learn from the known part of a relation, save the run",
                "relpref conditional fit --nodes drugs.csv --relation known.csv",
                {
                    "--nodes FILE": _with(
                        "labels and features; the first column is the label", required=True
                    ),
                    "--objects FILE": "where the second argument is of another kind; labels and "
                    "features",
                    "--relation FILE": _with(
                        "columns source, target, value; pairs that are not there are not known",
                        required=True,
                    ),
                    **_OUT,
                    **_FORCE,
                    **_TEXT,
                    **_QUIET,
                    **_SEED,
                },
                {
                    "--kernel {gaussian,linear,polynomial,precomputed}": "of nodes and objects; "
                    "precomputed: the files "
                    "hold kernel matrices "
                    "with "
                    "labels",
                    "--no-standardize": "take features as they are (default: each with mean 0 and "
                    "standard deviation 1)",
                    "--gamma G": "of the polynomial and the gaussian kernel (default: 1/features)",
                    "--degree D": _with("of the polynomial kernel", default=3),
                    "--symmetry {none,symmetric,reciprocal}": "whether (a, b) has the label of (b, "
                    "a), or the opposite one",
                    "--loss {ranking,regression}": "ranking looks at differences of labels of one "
                    "node, regression at the labels",
                    "--regularization L[,L...]": _with(
                        "of several the one with which conditioning nodes left out are ranked best "
                        "(default: by the evidence)",
                        type=regularizations,
                    ),
                    "--condition {first,second}": "rank targets for a source, or sources for a "
                    "target",
                },
                reads=("nodes", "objects", "relation"),
            ),
            "rank": Command(
                "",
                "objects for one node, best first",
                "relpref conditional rank run/ aspirin --top 10",
                {
                    "run RUN": "the folder that relpref conditional fit wrote",
                    "query LABEL": "of the node that objects are ranked for",
                    "--new FILE": "features of nodes that the run does not know; LABEL may be one",
                    "--new-objects FILE": "rank these new objects instead of the known ones",
                    **_INTERVAL,
                    **_TOP,
                    **_TABLE,
                },
            ),
        },
    ),
    "classify": Command(
        "classify:run",
        "say which group gave a ballot",
        "relpref classify ballots.csv --classes voters.csv",
        {
            "ballots BALLOTS": "rankings: columns ranker, item, position; or a column for each "
            "item; or a file of PrefLib",
            "--classes FILE": _with(
                "columns ranker, class; ballots of rankers without a class are classified, "
                "otherwise each ballot by those of other rankers",
                required=True,
            ),
            "--kernel {kendall,mallows}": "how ballots are compared",
            **_INCOMPLETE,
            "--out FOLDER": _with("where the run goes", default="classes"),
            **_FORCE,
            **_TOP,
            **_TABLE,
            **_SEED,
        },
        reads=("ballots", "classes"),
    ),
    "data": Command(
        "data:run",
        "list public data sets, fetch one",
        "relpref data get cora --folder data/",
        {},
        {},
        {
            "list": Command("", "names, terms and addresses", "relpref data list", _TEXT),
            "get": Command(
                "",
                "fetch a set whose terms allow it; go on where it broke off",
                "relpref data get cora --folder data/",
                {
                    "set NAME": "as in the list",
                    "--folder FOLDER": "where the data sets go (default: what RELPREF_DATA says, "
                    "otherwise data)",
                    **_TEXT,
                    **_QUIET,
                },
            ),
        },
    ),
    "completion": Command(
        "completion:run",
        "print what makes a shell complete commands",
        "source <(relpref completion bash)",
        {"shell SHELL": _with("bash, zsh or fish", choices=("bash", "zsh", "fish"))},
    ),
}
