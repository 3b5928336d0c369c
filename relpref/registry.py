"""Objects that plug in, by name: those of the package, and those given to `register`.

Files reach registered objects only, and nothing is imported because a file says so.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

from relpref.errors import DataError

Kind = Literal["program", "kernel", "likelihood", "engine", "score", "chapter"]
# Parts of the package that those below them look up by name; nothing can be added to these.
Closed = Literal["posterior", "record", "function"]

KINDS: tuple[Kind, ...] = get_args(Kind)
# Kinds of posteriors, which begin the names of chapters.
POSTERIORS = ("utilities", "relation", "classes", "program")
GROUP = "relpref"  # of entry points

_PROGRAMS = (
    "conditional_ranking",
    "kronecker_classifier",
    "preference_gp",
    "ranking_classifier",
    "xpgp",
)
CLIQUES = "HiddenCommonCauseCliques"  # stands for HiddenCommonCause(method="cliques")
# What people choose by name for a model of utilities, the default first.
CHOICES = {
    "program": ("xpgp", "preference_gp"),
    "engine": ("EP", "Laplace"),
    "likelihood": ("Probit", "Logistic"),
    "attribute kernel": (
        "SquaredExponentialPlusLinear",
        "SquaredExponential",
        "Matern32",
        "Matern52",
        "Linear",
    ),
    "relation kernel": (
        "RegularizedLaplacian",
        "Diffusion",
        "HiddenCommonCause",
        CLIQUES,
        "RelationVectors",
    ),
}
_SHORT = {"matern": "Matern52"}
_KERNELS = (
    "Cut",
    "EdgeLandmarks",
    "GivenFeatures",
    "Kendall",
    "Landmarks",
    "Mallows",
    "Precomputed",
    *CHOICES["attribute kernel"],
    *(name for name in CHOICES["relation kernel"] if name != CLIQUES),
)
_SCORES = {
    "ratio": "Ratio",
    "variance": "Variance",
    "bald": "Bald",
    "mutual_information": "MutualInformation",
    "look_ahead": "LookAhead",
    "eubo": "Eubo",
    "top_k": "TopK",
    "random": "Random",
}

# Dataclasses of tables that files hold.
_RECORDS = (
    "Comparisons",
    "Graph",
    "EdgeTable",
    "PreferenceData",
    "Rankings",
    "Relation",
    "RelationData",
    "RelationValues",
    "ScaleReference",
)

# Objects of the package: module that has them, and the attribute if that is not the name.
OWN: dict[Kind | Closed, dict[str, str]] = {
    "program": dict.fromkeys(_PROGRAMS, "relpref.models"),
    "kernel": dict.fromkeys(_KERNELS, "relpref.kernels")
    | {"NodeKernel": "relpref.rls.node_kernels"},
    "likelihood": dict.fromkeys(CHOICES["likelihood"], "relpref.likelihoods"),
    "engine": dict.fromkeys(CHOICES["engine"], "relpref.infer"),
    "score": {name: f"relpref.explore:{attribute}" for name, attribute in _SCORES.items()},
    "chapter": {},
    "posterior": {
        "program": "relpref.posterior.base:Posterior",
        "utilities": "relpref.posterior.utility:UtilityPosterior",
        "classes": "relpref.posterior.classes:ClassPosterior",
        "relation": "relpref.infer.relation_posterior:RelationPosterior",
        "implicit": "relpref.infer.large.stored:implicit_belief",
    },
    "record": dict.fromkeys(_RECORDS, "relpref.data")
    | {"Covariate": "relpref.data.covariates", "Parts": "relpref.posterior.base"},
    "function": {
        "compare": "relpref.diagnostics:compare",
        "next_pairs": "relpref.explore:next_pairs",
        "report": "relpref.report:write",
        "robustness": "relpref.diagnostics:robustness",
    },
}

_added: dict[Kind, dict[str, Any]] = {kind: {} for kind in KINDS}
_with_entry_points = False


def register(kind: Kind, name: str, object: Any) -> None:
    """Register a custom object by name.

    Saved files, the report, the command line and `relpref.explore.next_pairs` find it by this name.
    Call it before `relpref.load`, in every session that reads such files. Files keep the name, and
    for kernels and likelihoods the values of the fields, never the code.

    Parameters
    ----------
    kind : {"program", "kernel", "likelihood", "engine", "score", "chapter"}
    name : str
        None of the package's names. The name of a chapter is the kind of posterior (``utilities``,
        ``relation``, ``classes``, ``program``), a dot, and a name: ``utilities.regret``.
    object : callable or class
        The function of a program; the class of an engine or a score; the dataclass of a kernel or
        likelihood, which is rebuilt from its fields after their values were checked against their
        annotations; or for a chapter a function from the posterior to a `relpref.report.Section`,
        or to None for no section.

    Raises
    ------
    DataError
        If there is no such kind, the name is taken, or the object is not of that kind.

    Examples
    --------
    >>> import relpref
    >>> from relpref.models import xpgp
    >>> def my_program(data, *, standardize: bool = True):
    ...     xpgp(data, standardize=standardize)
    >>> relpref.register("program", "my_program", my_program)
    """
    if kind not in KINDS:
        raise DataError(
            f"kind is {kind!r}; it is {', '.join(map(repr, KINDS[:-1]))} or {KINDS[-1]!r}"
        )
    if not isinstance(name, str) or not name:
        raise DataError(f"name is {name!r}; give the {kind} a name, as text")
    if name in OWN[kind] or _added[kind].get(name, object) is not object:
        raise DataError(
            f"the {kind} {name!r} is registered already, as another object; choose another name"
        )
    if not callable(object):
        raise DataError(
            f"the {kind} {name!r} is {object!r}, which is not callable; give the {kind} itself"
        )
    if kind in ("kernel", "likelihood") and not (isinstance(object, type) and is_dataclass(object)):
        raise DataError(
            f"the {kind} {name!r} is {object!r}; give its class, a dataclass, so that a file can "
            "keep its fields"
        )
    if kind in ("engine", "score") and not isinstance(object, type):
        raise DataError(f"the {kind} {name!r} is {object!r}; give its class")
    if kind == "chapter" and name.partition(".")[0] not in POSTERIORS:
        raise DataError(
            f"the chapter {name!r} names no kind of posterior; begin its name with "
            f"{', '.join(POSTERIORS)} and a dot"
        )
    _added[kind][name] = object


def find(kind: Kind | Closed, name: str) -> Any:
    """Registered object of that name; None if there is none."""
    if name in OWN[kind]:
        module, _, attribute = OWN[kind][name].partition(":")
        return getattr(import_module(module), attribute or name)
    if kind not in KINDS:
        return None
    if name not in _added[kind]:
        for point in _entry_points():
            if point.name == f"{kind}.{name}":
                register(kind, name, point.load())
    return _added[kind].get(name)


def word_for(name: str) -> str:
    """Return how a name is written on the command line, such as hidden-common-cause."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def choose(where: str, choice: str, word: object) -> str:
    """Return the registered name that a word stands for, in either case and with - or _.

    Parameters
    ----------
    where : str
        The argument or option, for errors.
    choice : str
        A key of `CHOICES`, whose last word is the kind; names that were added fit, too.
    word : object

    Raises
    ------
    DataError
        If there is no such name, with those that there are.
    """
    kind: Any = choice.rpartition(" ")[2]
    offered = [*CHOICES[choice], *(name for name in names(kind) if name not in OWN[kind])]
    if word in offered:
        return str(word)
    sought = _SHORT.get(_plain(str(word)), str(word))
    fitting = [name for name in offered if _plain(name) == _plain(sought)]
    if len(fitting) != 1:
        *others, last = map(word_for, offered)
        raise DataError(
            f"{where}: there is no {choice} {word!r}; use {', '.join(others)} or {last}"
        )
    return fitting[0]


def _plain(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()


def known(kind: Kind | Closed, name: str) -> bool:
    """Whether `find` has such an object; those of the package are not imported."""
    return name in OWN[kind] or find(kind, name) is not None


def names(kind: Kind) -> list[str]:
    """Names that `find` knows, with those of entry points if these are used."""
    points = sorted(point.name for point in _entry_points() if point.name.startswith(f"{kind}."))
    offered = (name.partition(".")[2] for name in points)
    return list(dict.fromkeys([*OWN[kind], *_added[kind], *offered]))


def _entry_points() -> Iterable[Any]:
    """Entry points of installed packages; none outside `entry_points_for_unknown_names`."""
    if not _with_entry_points:
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def name_of(kind: Kind | Closed, object: Any) -> str | None:
    """Name by which `find` gives exactly this object; None if it is not registered."""
    name = getattr(object, "__name__", None)
    if name in OWN[kind] and find(kind, name) is object:
        return str(name)
    added = _added[kind].items() if kind in KINDS else ()
    return next((name for name, other in added if other is object), None)


@contextmanager
def entry_points_for_unknown_names() -> Iterator[None]:
    """Let `find` load unknown names from entry points of installed packages."""
    global _with_entry_points
    before, _with_entry_points = _with_entry_points, True
    try:
        yield
    finally:
        _with_entry_points = before


def unbound(
    program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Move arguments bound by ``functools.partial`` into the arguments of a call."""
    while isinstance(program, partial):
        program, args, kwargs = program.func, (*program.args, *args), {**program.keywords, **kwargs}
    return program, args, dict(kwargs)
