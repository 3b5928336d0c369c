"""Everything that plugs in, by name: the package's own, and what `register` was given.

Nothing but what is registered is reachable from a file, and nothing is imported because a file says
so.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

from relpref.errors import DataError

Kind = Literal["program", "kernel", "likelihood", "engine", "score", "chapter"]

KINDS: tuple[Kind, ...] = get_args(Kind)
POSTERIORS = (
    "utilities",
    "relation",
    "classes",
    "program",
)  # what a chapter can be about: the `kind` of a posterior
GROUP = "relpref"  # of entry points

_PROGRAMS = (
    "conditional_ranking",
    "kronecker_classifier",
    "preference_gp",
    "ranking_classifier",
    "xpgp",
)
_KERNELS = {  # by the module that they were in when files named modules
    "attribute": ("SquaredExponential", "Matern32", "Matern52", "Linear"),
    "edge_landmarks": ("EdgeLandmarks",),
    "graph": ("RegularizedLaplacian", "Diffusion"),
    "hidden_common_cause": ("HiddenCommonCause",),
    "landmarks": ("Landmarks",),
    "precomputed": ("Precomputed",),
    "ranking": ("GivenFeatures", "Cut", "Kendall", "Mallows"),
    "relation_vectors": ("RelationVectors",),
}
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

# The package's own, with the module that each is imported from when it is first wanted;
# ``module:attribute`` where that is not the name.
OWN: dict[Kind, dict[str, str]] = {
    "program": dict.fromkeys(_PROGRAMS, "relpref.models"),
    "kernel": {name: "relpref.kernels" for name in sorted(sum(_KERNELS.values(), ()))}
    | {"NodeKernel": "relpref.rls.node_kernels"},
    "likelihood": dict.fromkeys(("Logistic", "Probit"), "relpref.likelihoods"),
    "engine": dict.fromkeys(("EP", "Laplace"), "relpref.infer"),
    "score": {name: f"relpref.explore:{attribute}" for name, attribute in _SCORES.items()},
    "chapter": {},
}

# What files called them that were written before this registry was.
EARLIER: dict[str, tuple[Kind, str]] = {
    **{f"relpref.models.{name}:{name}": ("program", name) for name in _PROGRAMS},
    **{
        f"relpref.kernels.{m}:{name}": ("kernel", name)
        for m, names in _KERNELS.items()
        for name in names
    },
    "relpref.rls.node_kernels:NodeKernel": ("kernel", "NodeKernel"),
    **{
        f"relpref.likelihoods.models:{name}": ("likelihood", name)
        for name in ("Probit", "Logistic")
    },
}

_added: dict[Kind, dict[str, Any]] = {kind: {} for kind in KINDS}
_with_entry_points = False


def register(kind: Kind, name: str, object: Any) -> None:
    """Register a custom object by name, for saved files, the report, the command line and `relpref.explore.next_pairs`.

    Call it before `relpref.load`, in every session that reads such files. Files keep the name, and
    for kernels and likelihoods the values of the fields, never the code.

    Parameters
    ----------
    kind : {"program", "kernel", "likelihood", "engine", "score", "chapter"}
    name : str
        Not one of the package's own names. Of a chapter the kind of posterior (``utilities``,
        ``relation``, ``classes``, ``program``), a dot, and a name: ``utilities.regret``.
    object : callable or class
        Of a program the function itself. Of a kernel or likelihood the class, a dataclass: it is
        made again from its fields, after their values were checked against their annotations. Of an
        engine or a score the class. Of a chapter a function from the posterior to a
        `relpref.report.Section`, or to None for no section.

    Raises
    ------
    DataError
        If there is no such kind, the name is taken, or the object is none of that kind.

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


def find(kind: Kind, name: str) -> Any:
    """The registered object of that name; None where there is none."""
    if name in OWN[kind]:
        module, _, attribute = OWN[kind][name].partition(":")
        return getattr(import_module(module), attribute or name)
    if name not in _added[kind] and _with_entry_points:
        from importlib.metadata import entry_points

        for point in entry_points(group=GROUP, name=f"{kind}.{name}"):
            register(kind, name, point.load())
    return _added[kind].get(name)


def known(kind: Kind, name: str) -> bool:
    """Whether `find` has such an object; the package's own are not imported for that."""
    return name in OWN[kind] or find(kind, name) is not None


def names(kind: Kind) -> list[str]:
    """What `find` knows: the package's own names, those registered, and those that installed packages offer where these are let in."""
    offered: list[str] = []
    if _with_entry_points:
        from importlib.metadata import entry_points

        points = [point.name.partition(".") for point in entry_points(group=GROUP)]
        offered = [name for of, _, name in points if of == kind]
    return list(dict.fromkeys([*OWN[kind], *_added[kind], *sorted(offered)]))


def name_of(kind: Kind, object: Any) -> str | None:
    """The name by which `find` gives exactly this object; None where it is not registered."""
    name = getattr(object, "__name__", None)
    if name in OWN[kind] and find(kind, name) is object:
        return str(name)
    return next((name for name, known in _added[kind].items() if known is object), None)


@contextmanager
def entry_points_for_unknown_names() -> Iterator[None]:
    """Let `find` load what installed packages offer in the group of entry points, for names that it does not know."""
    global _with_entry_points
    before, _with_entry_points = _with_entry_points, True
    try:
        yield
    finally:
        _with_entry_points = before


def unbound(
    program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The same call with what was bound by ``functools.partial`` among the arguments."""
    while isinstance(program, partial):
        program, args, kwargs = program.func, (*program.args, *args), {**program.keywords, **kwargs}
    return program, args, dict(kwargs)
