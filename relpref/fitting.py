"""Function that fits a model to tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from relpref.data import PreferenceData
from relpref.data.arrays import did_you_mean, listed
from relpref.data.rankings import read_ballots
from relpref.errors import DataError
from relpref.registry import Kind, find, names

if TYPE_CHECKING:
    from relpref.posterior.utility import UtilityPosterior


def fit(
    items: Any = None,
    answers: Any = None,
    relations: Mapping[str, Any] | None = None,
    model: str | Callable[..., Any] = "xpgp",
    seed: int = 0,
    *,
    columns: Mapping[str, str] | None = None,
    covariates: Sequence[str] = (),
    engine: str = "EP",
    progress_bar: bool = True,
    **options: Any,
) -> "UtilityPosterior":
    """Fit a model to tables of items, answers and relations.

    Short for ``EP(xpgp).run(seed, PreferenceData.from_tables(items, answers, relations))``.

    Parameters
    ----------
    items, answers, relations, columns, covariates
        See `PreferenceData.from_tables`; answers may be a PrefLib file of complete orders, too.
        Without items, they are the labels in the answers and the relations.
    model : str or callable
        Name of a registered program, ``"xpgp"`` (attributes, relations, and the items themselves)
        or ``"preference_gp"`` (the same without relations); or a numpyro program that takes
        `PreferenceData`.
    seed : int
        Equal tables and seeds give equal numbers.
    engine : str
        Name of a registered engine, ``"EP"`` or ``"Laplace"``.
    progress_bar : bool
        Show the search while it runs, if stderr is a terminal.
    **options
        Keywords of the engine, such as ``hyperparameters="maximize"``, and of the model, such as
        ``individual=False``. The cliques of a relation with the kernel
        ``HiddenCommonCause("cliques")`` are counted.

    Returns
    -------
    UtilityPosterior
        ``info`` has the ``model``, the ``seed``, the size of the ``data`` and, as ``notes``, how
        the tables were read.

    Raises
    ------
    DataError
        If a table cannot be used, or there is no such model, engine or option.
    InferenceError
        If the engine did not converge.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> posterior.ranking().index.tolist()
    ['tea', 'coffee', 'water']
    """
    program = _registered("program", "model", model) if isinstance(model, str) else model
    others = {"RelationData": "relpref.rls.ConditionalRanker", "Rankings": "relpref.classifiers"}
    for parameter in list(signature(program).parameters.values())[:1]:
        kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        if kind in others:
            raise DataError(
                f"model: {model!r} is for {kind}, not for answers to pairs; see {others[kind]}"
            )
    engine_class = _registered("engine", "engine", engine)
    engine_names, model_names = _keywords(engine_class), _keywords(program)[1:]
    names_of_options = [*engine_names, *model_names]
    for name in options:
        if name not in names_of_options:
            hint = did_you_mean(name, names_of_options, f"they are {', '.join(names_of_options)}")
            raise DataError(f"fit: there is no option {name!r}; {hint}")
    if answers is None:
        raise DataError(
            "fit: there are no answers; write relpref.fit(items, answers), or relpref.fit("
            "answers=answers) where these name the items. The prior alone: EP(xpgp).run(0, "
            "PreferenceData.from_tables(items))"
        )
    data = PreferenceData.from_tables(
        items, read_ballots(answers), relations, columns=columns, covariates=covariates
    )
    engine_options = {name: options.pop(name) for name in engine_names if name in options}
    for name, kernel in (options.get("relation_kernels") or {}).items():
        if getattr(kernel, "method", None) == "cliques" and name in data.relations:
            data = data.with_cliques(name)
    fitted = engine_class(program, **engine_options)
    posterior = fitted.run(seed, data, progress_bar=progress_bar, **options)
    title = model if isinstance(model, str) else getattr(model, "__name__", repr(model))
    notes = list(data.notes)
    if title == "preference_gp" and data.relations:
        notes.append(f"preference_gp does not use relations: {listed(data.relations)}")
    info = {"model": title, "seed": seed, "data": data.describe(), "notes": notes}
    return replace(posterior, info={**posterior.info, **info})


def _registered(kind: Kind, argument: str, name: str) -> Any:
    """Look up a registered object, or suggest names that exist."""
    registered = find(kind, name)
    if registered is None:
        hint = did_you_mean(name, names(kind), f"use {' or '.join(map(repr, names(kind)))}")
        raise DataError(f"{argument}: there is no {kind} {name!r}; {hint}")
    return registered


def _keywords(function: Any) -> list[str]:
    """Parameters that can be given by name."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in kinds]
