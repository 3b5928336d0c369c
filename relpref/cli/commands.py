"""The commands and their options, as tables.

A key is the name of an option and a placeholder for its value: letters (N and K are whole numbers,
P, G and D numbers), or {choices}, of which the first is the default. An option without a
placeholder is a flag: true if it is given, ``--no-NAME`` false under that name, None if it is left
out. A value is the help, of which ``--help`` shows the part before the first semicolon, or a pair
of the help and further keywords of argparse. A table within a table holds options that exclude each
other. Options that have a parameter in Python have its name in the namespace of argparse.
"""

import argparse
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from relpref.errors import DataError
from relpref.options import OPTIONS
from relpref.parallel import FORMS, read_scheduler

Options = Mapping[str, Any]


class Command(NamedTuple):
    """A command, or an action of a command."""

    function: str  # module:function in this package; empty if there are actions
    summary: str
    example: str
    options: Options
    more: Options = MappingProxyType({})  # shown by --help-all alone
    actions: Mapping[str, "Command"] = MappingProxyType({})
    reads: tuple[str, ...] = ()  # the options that name files to read
    forms: str = ""  # of tables, below the summary


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """Make a reader of whole numbers within bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if most is not None and not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        if number < least:
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
    """Read positive numbers separated by commas, and sort them."""
    values = [number(part) for part in text.split(",")]
    if not all(0 < value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text}: a regularization is a positive number")
    return sorted(set(values))


def scheduler(text: str) -> str:
    """Check the form of a scheduler, see `relpref.parallel`."""
    try:
        read_scheduler(text)
    except DataError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {FORMS}") from None
    return text


TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys("NK", integer(1)),
    **dict.fromkeys("PGD", number),
}


def _with(help: str, **keywords: Any) -> tuple[str, dict[str, Any]]:
    return help, keywords


def _many(help: str) -> tuple[str, dict[str, Any]]:
    return _with(help, action="append", default=[])


_RUN = {"run RUN": "the folder of a run, written by relpref fit"}
_SEED = {
    "--seed N": _with(
        "seed of the random numbers (default: 0)", type=integer(0, 2**32 - 1), default=0
    )
}
_TEXT = {"-o {table,json}": _with("form of the output", dest="form")}
_TABLE = {"-o {table,csv,json}": _with("form of the output; csv has all digits", dest="form")}
_QUIET = {"--quiet": "print neither progress nor the result"}
_OUT = {"--out FOLDER": _with("folder of the run", default="run")}
_WORDS = {
    "--item-word NOUN": "your word for an item; such as coffee, or entry/entries with its plural",
    "--answer-word NOUN": "your word for an answer; such as vote",
}
_FORCE = {"--force": "replace an existing run"}
_INTERVAL = {"--interval P": _with("probability of the intervals", default=0.9)}
_TOP = {"--top K": "show the first K only"}
_INCOMPLETE = {
    "--incomplete {top-k,subset}": _with(
        "what a missing item of a PrefLib ballot means; ranked below all others (top-k), or not "
        "part of the question (subset)",
        default=None,
    )
}
_ENCODING = {
    "--encoding NAME": "encoding of the files, such as cp1252 or utf-16; by default that of their "
    "byte order mark, or UTF-8, or cp1252 where a file is not UTF-8"
}
# Options that say which tables are read, and how.
_ANSWERS = {
    "answers ANSWERS": _with(
        "a table in one of these forms; CSV or other text, JSON, Excel or Parquet, or a file of "
        "PrefLib. Leave it out to ask the first questions with relpref ask",
        nargs="?",
        default=argparse.SUPPRESS,
    ),
    "--items FILE": "labels and attributes; the first column is the label; without it the "
    "items are those of the answers",
    "--relation NAME=FILE": _many(
        "links: columns source, target; optional column: weight; may be repeated. "
        "NAME=FILE:KIND: undirected (the default), directed (who links to whom matters), "
        "random_walk (directed, by the traffic along the links) or bipartite (items to "
        "something else), with options after commas (bipartite,max_degree=50)"
    ),
    "--folder FOLDER": "read items.csv, answers.csv and relations/*.csv; from this folder",
}
_READING = {
    "--answers FILE": "the same as ANSWERS",
    "--columns NAME=COLUMN,...": _many(
        "names of columns in the file of answers; such as winner=better,rater=who"
    ),
    "--covariates NAME,...": _many(
        "properties of the two sides of an answer that may favor one of them: numbers or "
        "categories in the columns NAME_winner and NAME_loser (or NAME_first, "
        "NAME_second), or a column NAME with the label of the side that has the property, "
        "such as home"
    ),
    **{
        f"--{name.replace('_', '-')} {{{','.join(values)}}}": _with(help, default=None)
        for name, (values, help) in OPTIONS.items()
    },
    **_INCOMPLETE,
    **_ENCODING,
    "--sheet NAME": "the sheet of an Excel file of answers; by default the first",
}
_FORMS = """
Tables of answers have these columns, in any case and order (* optional: tie,
strength, rater, group, shown_first, count, weight):
  winner, loser *                 who was preferred to whom
  first, second, winner *         two items, and which of them was preferred
  first, second, result *         1 where the first won, 0 where not, .5 a tie
  first, second, probability *    that the first is the better
  list, item, place *             orders, a row an item; or 1st, 2nd, ..., a row
                                  an order; or a column an item, with its places
  choice, item, chosen *          one chosen of several
  best, worst, item_1, item_2 *   the best and the worst of what was shown
  home_team, away_team, goals ... and the like: relpref look says how it is read
""".strip("\n")
_PORT = {"--port N": _with("port of the page (default: a free one)", type=integer(0), default=0)}

COMMANDS = {
    "demo": Command(
        "demo:run",
        "rank national football teams (bundled data)",
        "relpref demo --out demo/",
        {"--out FOLDER": _with("folder of the run", default="demo"), **_TEXT, **_QUIET, **_SEED},
    ),
    "fit": Command(
        "fit:run",
        "fit tables, save the run",
        "relpref fit answers.csv\n"
        "  relpref fit answers.csv --items items.csv --relation cites=links.csv",
        {
            **_ANSWERS,
            **_OUT,
            **_FORCE,
            **_TEXT,
            **_QUIET,
            **_SEED,
        },
        {
            **_READING,
            "--model MODEL": _with(
                "xpgp uses attributes, relations and the items themselves, preference_gp no "
                "relations; or a program that an installed package offers as an entry point of "
                "the group relpref",
                default="xpgp",
            ),
            "--attribute-kernel KERNEL": "how utility varies with the attributes: "
            "squared-exponential-plus-linear (the default), squared-exponential, matern32, "
            "matern52 (short: matern) or linear, or a kernel that is registered or offered by an "
            "installed package",
            "--shared-lengthscale": "use the same lengthscale for all attributes",
            "--no-individual": "explain utility by attributes and relations alone, without a part "
            "for each item",
            "--kernel NAME=KERNEL": _many(
                "how utility varies along a relation: regularized-laplacian (the default), "
                "diffusion, hidden-common-cause, hidden-common-cause-cliques or relation-vectors; "
                "may be repeated"
            ),
            "--likelihood NAME": _with(
                "noise of the answers: probit for every kind of answer, logistic for all but "
                "probabilities, or a likelihood that is registered or offered by an installed "
                "package",
                default="probit",
            ),
            "--margins {common,rater}": _with(
                "margin within which an answer is a tie: common to all answers, or for each rater",
                default=None,
            ),
            "--ties {rao-kupper,davidson}": _with(
                "ties of logistic answers: a margin on the noisy difference (rao-kupper), or a "
                "multiple of the geometric mean (davidson)",
                default=None,
            ),
            "--lapse": "some answers are given at random: learn how many, so that a few mistakes "
            "have little weight",
            "--engine NAME": _with(
                "ep is the more accurate, laplace the more common, or an engine that is "
                "registered or offered by an installed package",
                default="ep",
            ),
            "--structure {auto,dense,sparse}": "dense keeps a matrix of all items, sparse none; "
            "auto is sparse above 4000 items",
            "--hyperparameters {integrate,maximize,em,nuts}": "average over weighted points, "
            "maximize the evidence, maximize it by EM, or average over samples of NUTS",
            "--fixed NAME=VALUE": _many(
                "value of a hyperparameter, such as cites_range=2; may be repeated"
            ),
            "--draws N": "number of samples of the hyperparameters, with --hyperparameters nuts",
            "--restarts N": _with("starts of the search", default=1),
            "--verbose": "print the log evidence, the hyperparameters and the options used, too",
            **_WORDS,
            "--option NAME=VALUE": _many(
                "any other option of the model or the engine, such as normalize=false or "
                "warmup=500; may be repeated"
            ),
        },
        reads=("items", "answers"),
        forms=_FORMS,
    ),
    "look": Command(
        "look:run",
        "show how tables are read, and what a fit would use",
        "relpref look answers.csv",
        _ANSWERS,
        _READING,
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
        "group the items of a run into tiers",
        "relpref tiers run/",
        {
            **_RUN,
            "--probability P": _with(
                "probability that all ordered pairs are in the right order", default=0.95
            ),
            **_TOP,
            **_TABLE,
        },
    ),
    "prefer": Command(
        "rank:prefer_run",
        "show how likely the first of two is preferred",
        "relpref prefer run/ tea coffee water coffee",
        {
            **_RUN,
            "labels LABEL": _with(
                "two labels for each question; write -- before a label that begins with -",
                nargs="+",
            ),
            "--rater LABEL": _many(
                "who is asked; once for all questions, or repeated for each (default: a typical "
                "rater)"
            ),
            "--shown-first SIDE": _with(
                "which of each two is shown first: first, second or a label; matters where answers "
                "lean to one side (default: no side is favored)",
                default=None,
            ),
            "--home SIDE": _with(
                "which of each two is at home: first, second or a label (default: neither)",
                default=None,
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
                "file of the picture; its ending selects the format", default="ranking.png"
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
            "--out FILE": "file of the page (default: report.html in the run)",
            "--title TEXT": "title of the page",
            "--evidence": "refit without each part, to show what it adds; takes seconds to minutes",
            **_WORDS,
            **_TEXT,
        },
    ),
    "ask": Command(
        "ask:run",
        "ask which of two is preferred, and learn from the answers",
        "relpref ask run/ --rater ann\n"
        "  relpref ask run/ --web --question 'Which would you rather drink?'",
        {
            **_RUN,
            "--rater NAME": "who answers; me by default, or the name that is typed on the page",
            "--answers N": "stop after N answers; in the terminal",
            "--title TEXT": "title above the questions; kept for later",
            "--question TEXT": _with("text of the question; kept for later", dest="prompt"),
            "--show FILE": "table of what is shown of the items; the label, then text, image, "
            "link and any other columns; kept for later (default: the run's table of items)",
            "way": {
                "--web": "ask in the browser, on a page of this computer",
                "--export FILE": "write all answers as a table for relpref fit; ask nothing",
                "--import FILE": _with(
                    "add the answers of a table; ask nothing", dest="import_from"
                ),
            },
            **_PORT,
        },
        {
            **_WORDS,
            **_ENCODING,
            "--per-page N": _with("questions on the page at once", default=1),
            "--score NAME": "how questions are chosen, see docs/scores.md",
            "--items A,B,...": "ask about these only; a label with a comma in quotation marks",
            "--most-appearances N": "do not ask about an item that was in N answers",
            "--max-wrong P": "leave out pairs whose less likely answer has a probability above P, "
            "such as 0.48",
            "--repeats N": _with(
                "ask a pair again up to N times (default: 0)", type=integer(0), default=0
            ),
            "--goal P": _with(
                "suggest to stop when this share of pairs is expected to be in the wrong order",
                default=0.1,
            ),
            "--top K": "apply the goal to the set of the K best, not to the order of all items",
            "--no-ties": "do not offer equally good as an answer",
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
                "compare at most N items; those with the most answers", type=integer(2), default=150
            ),
            "--draws N": _with(
                "samples of NUTS, of all chains together", type=integer(100), default=2000
            ),
            "--chains N": _with("chains of NUTS", default=4),
            "--hyperparameters": "sample the hyperparameters, too; otherwise they stay at the "
            "values of the run",
            **_TEXT,
            **_SEED,
        },
    ),
    "sbc": Command(
        "check:sbc_run",
        "test a run's intervals on simulations",
        "relpref sbc run/ --simulations 1000",
        {
            **_RUN,
            "--simulations N": _with("number of simulations", default=200),
            "--out FOLDER": "folder of the simulations and the picture (default: RUN-sbc); an "
            "interrupted command goes on there",
            **_TEXT,
            **_SEED,
        },
        {
            "--engine {ep,laplace,exact,nuts,svi}": _with(
                "what fits the simulations: nuts samples the whole program, svi is numpyro's mean "
                "field (default: the engine of the run, ep or laplace; exact for relpref "
                "conditional)",
                default=None,
            ),
            "--hyperparameters {given,integrate,nuts,maximize}": "whether the engine is given the "
            "hyperparameters of the simulation, averages over them, samples them, or maximizes "
            "the evidence",
            "--scheduler WHERE": _with(
                "threads, processes, threads:N, processes:N, or tcp://HOST:PORT of a Dask "
                "scheduler; all but threads need Dask, pip install 'relpref[dask]' (default: one "
                "simulation after the other)",
                type=scheduler,
            ),
        },
    ),
    "conditional": Command(
        "",
        "rank objects for a given node, by a partly known relation",
        "relpref conditional fit --nodes drugs.csv --relation known.csv\n"
        "  relpref conditional rank run aspirin --top 10",
        {},
        actions={
            "fit": Command(
                "conditional:fit",
                "learn from the known part of a relation, save the run",
                "relpref conditional fit --nodes drugs.csv --relation known.csv",
                {
                    "--nodes FILE": _with(
                        "labels and features; the first column is the label", required=True
                    ),
                    "--objects FILE": "labels and features of the second argument, where it is "
                    "of another kind",
                    "--relation FILE": _with(
                        "columns source, target, value; absent pairs are unknown", required=True
                    ),
                    **_OUT,
                    **_FORCE,
                    **_TEXT,
                    **_QUIET,
                    **_SEED,
                },
                {
                    **_ENCODING,
                    "--kernel {gaussian,linear,polynomial,precomputed}": "kernel of nodes and "
                    "objects; precomputed: the files hold kernel matrices with labels",
                    "--no-standardize": "take features as they are (default: each with mean 0 and "
                    "standard deviation 1)",
                    "--gamma G": "gamma of the polynomial and the gaussian kernel (default: "
                    "1/features)",
                    "--degree D": _with("degree of the polynomial kernel", default=3),
                    "--symmetry {none,symmetric,reciprocal}": "whether (a, b) has the label of (b, "
                    "a), or the opposite label",
                    "--loss {ranking,regression}": "ranking compares the labels of each node, "
                    "regression fits the labels",
                    "--regularization L[,L...]": _with(
                        "regularization; of several, the value that ranks best for nodes left out "
                        "(default: by the evidence)",
                        type=regularizations,
                    ),
                    "--condition {first,second}": "rank targets for a source, or sources for a "
                    "target",
                },
                reads=("nodes", "objects", "relation"),
            ),
            "rank": Command(
                "conditional:rank",
                "rank objects for a node, best first",
                "relpref conditional rank run/ aspirin --top 10",
                {
                    "run RUN": "the folder of a run, written by relpref conditional fit",
                    "query LABEL": "label of the node that objects are ranked for",
                    "--new FILE": "features of new nodes; LABEL may be one of them",
                    "--new-objects FILE": "rank these new objects instead of those of the run",
                    **_ENCODING,
                    **_INTERVAL,
                    **_TOP,
                    **_TABLE,
                },
            ),
        },
    ),
    "classify": Command(
        "classify:run",
        "predict the group behind each ballot",
        "relpref classify ballots.csv --classes voters.csv",
        {
            "ballots BALLOTS": "rankings: columns ranker, item, position; or a column for each "
            "item; or a file of PrefLib",
            "--classes FILE": _with(
                "columns ranker, class; ballots of rankers without a class are classified; if all "
                "have one, each is classified by the ballots of other rankers",
                required=True,
            ),
            "--kernel {kendall,concave,mallows}": "how ballots are compared",
            **_INCOMPLETE,
            "--out FOLDER": _with("folder of the run", default="classes"),
            **_FORCE,
            **_TOP,
            **_TABLE,
            **_SEED,
        },
        _ENCODING,
        reads=("ballots", "classes"),
    ),
    "data": Command(
        "",
        "list public data sets, fetch one",
        "relpref data get cora --folder data/",
        {},
        actions={
            "list": Command(
                "data:list_sets", "names, terms and addresses", "relpref data list", _TEXT
            ),
            "get": Command(
                "data:get",
                "fetch a set whose terms allow it; continue an interrupted download",
                "relpref data get cora --folder data/",
                {
                    "set NAME": "a name in the list",
                    "--folder FOLDER": "folder of the data sets (default: RELPREF_DATA, or data)",
                    **_TEXT,
                    **_QUIET,
                },
            ),
        },
    ),
}
