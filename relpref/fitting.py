"""Function that fits a model to tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from relpref.data import PreferenceData
from relpref.data.arrays import did_you_mean, listed
from relpref.description import model_words
from relpref.errors import DataError
from relpref.options import OPTIONS
from relpref.registry import CLIQUES, choose, find, name_of

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
    encoding: str | None = None,
    sheet: str | None = None,
    engine: str = "EP",
    progress_bar: bool = True,
    **options: Any,
) -> "UtilityPosterior":
    """Fit a model to tables of items, answers and relations.

    Short for ``EP(xpgp).run(seed, PreferenceData.from_tables(items, answers, relations))``.

    Parameters
    ----------
    items, answers, relations, columns, covariates, encoding, sheet
        See `PreferenceData.from_tables`; answers may be a PrefLib file of complete orders, too.
        Without items, they are the labels in the answers and the relations. A single table is one
        of answers.
    model : str or callable
        Name of a registered program, ``"xpgp"`` (attributes, relations and the items themselves)
        or ``"preference_gp"`` (the same without relations); or a numpyro program that takes
        `PreferenceData`.
    seed : int
        Equal tables and seeds give equal numbers.
    engine : str
        Name of a registered engine, ``"EP"`` or ``"Laplace"``.
    progress_bar : bool
        Show the search while it runs, if stderr is a terminal.
    **options
        Options of `PreferenceData.from_tables`, such as ``better="low"``; keywords of the engine,
        such as ``hyperparameters="maximize"``, and of the model, such as ``individual=False``. A
        likelihood or a kernel may be given by name: ``likelihood="logistic"``,
        ``attribute_kernel="matern"`` (Matérn 5/2),
        ``relation_kernels={"roaster": "hidden-common-cause"}``. The cliques of a relation with the
        kernel ``HiddenCommonCause("cliques")`` are counted.

        All names fit in either case, and with - or _. They are listed under other parameters.

    Returns
    -------
    UtilityPosterior
        ``info`` has the ``model``, the ``seed``, the size of the ``data`` and, as ``notes``, how
        the tables were read.

    Other Parameters
    ----------------
    hyperparameters : {"integrate", "maximize", "em", "nuts"}, default "integrate"
        Average over hyperparameters, or take those of the highest evidence times prior.
    fixed : mapping from site to value, optional
        Hyperparameters that are known.
    restarts : int, default 1
        Starting points of the search for hyperparameters.
    draws, warmup : int, default 200
        With ``"nuts"``: draws of hyperparameters to keep, and tuning steps.
    tol : float, default 1e-8
        Tolerance of convergence.
    max_sweeps, max_evaluations : int, default 500 and 200
        Largest number of sweeps at one value of the hyperparameters, and of evaluations.
    space : {"auto", "latent", "observation"}, default "auto"
        Space of the linear algebra; with very many items also "entity" and "gap".
    structure : {"auto", "dense", "sparse"}, default "auto"
        Matrices, or, above 4,000 items, covariances that are evaluated where they are needed.
    check : {"auto", True, False}, default "auto"
        Compare the posterior with the exact one, and correct it.
    throw : bool, default True
        Raise an error if the engine does not converge.
    attribute_kernel : AttributeKernel or str, optional
        Covariance of attributes; the squared exponential plus a linear one by default.
    relation_kernels : mapping from relation to GraphKernel or str, optional
        Covariances of relations; `RegularizedLaplacian` by default.
    priors : mapping from site to distribution, optional
        Priors of hyperparameters in place of the default ones.
    likelihood : AnswerModel or str, optional
        How answers follow from utilities; `Probit` by default.
    standardize : bool, default True
        Center and scale every attribute.
    normalize : bool, default True
        Scale every covariance of a relation to a mean gap variance of 2.
    individual : bool, default True
        Give every item a part of its own.
    better : {"low", "high"}, optional
        Which times or points of the items of an event are the best.
    unplaced : {"last", "out"}, optional
        Whether items without a place (DNF) are below all others.
    both_bad, unsure : {"tie", "drop"}, optional
        Whether an answer that both are bad, or that nobody is sure, is a tie.

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
    program: Any = model
    if isinstance(model, str):
        program = find("program", model) or find("program", choose("model", "program", model))
        model = name_of("program", program) or model
    others = {"RelationData": "relpref.rls.ConditionalRanker", "Rankings": "relpref.classifiers"}
    for parameter in list(signature(program).parameters.values())[:1]:
        kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        if kind in others:
            raise DataError(
                f"model: {model!r} is for {kind}, not for answers to pairs; see {others[kind]}"
            )
    engine_class = find("engine", choose("engine", "engine", engine))
    engine_names, model_names = _keywords(engine_class), _keywords(program)[1:]
    names_of_options = [*engine_names, *model_names, *OPTIONS]
    for name in options:
        if name not in names_of_options:
            hint = did_you_mean(name, names_of_options, f"they are {', '.join(names_of_options)}")
            raise DataError(f"fit: there is no option {name!r}; {hint}")
    reading: Any = {name: options.pop(name) for name in OPTIONS if name in options}
    reading |= {"columns": columns, "covariates": covariates, "encoding": encoding, "sheet": sheet}
    try:
        named, compared = (items, answers) if answers is not None else (None, items)
        data = PreferenceData.from_tables(named, compared, relations, **reading)
    except DataError as error:
        if answers is not None:
            raise
        read = "" if items is None else f"; read as answers: {error}"
        raise DataError(
            "fit: there are no answers; write relpref.fit(items, answers), or relpref.fit(answers) "
            "where these name the items. The prior alone: EP(xpgp).run(0, "
            f"PreferenceData.from_tables(items)){read}"
        ) from None
    engine_options = {name: options.pop(name) for name in engine_names if name in options}
    for name in ("likelihood", "attribute_kernel"):
        if name in options:
            options[name] = made(name, name.replace("_", " "), options[name])
    if kernels := options.get("relation_kernels"):
        data, options["relation_kernels"] = with_kernels("relation_kernels", data, kernels)
    fitted = engine_class(program, **engine_options)
    posterior = fitted.run(seed, data, progress_bar=progress_bar, **options)
    title = model if isinstance(model, str) else getattr(model, "__name__", repr(model))
    notes = notes_of(title, data)
    info = {"model": title, "seed": seed, "data": data.describe(), "notes": notes}
    return replace(posterior, info={**posterior.info, **info})


def notes_of(model: str, data: PreferenceData) -> list[str]:
    """Return what a person should know of how a model reads the data."""
    notes = list(data.notes)
    if model == "preference_gp" and data.relations:
        words = f"a model of {model_words(model)}"
        notes.append(f"{words} does not use relations: {listed(data.relations)}")
    return notes


def made(where: str, choice: str, given: Any, **options: Any) -> Any:
    """Return the likelihood or kernel of a name; anything else as it is given.

    ``where`` and ``choice`` are those of `relpref.registry.choose`.
    """
    if not isinstance(given, str):
        return given
    name = choose(where, choice, given)
    if name == CLIQUES:
        name, options = "HiddenCommonCause", {"method": "cliques"}
    return find("likelihood" if choice == "likelihood" else "kernel", name)(**options)


def with_kernels(
    where: str, data: PreferenceData, given: Mapping[str, Any]
) -> tuple[PreferenceData, dict[str, Any]]:
    """Return data with the cliques that kernels of relations need, and these kernels."""
    kernels = {name: made(where, "relation kernel", kernel) for name, kernel in given.items()}
    for name, kernel in kernels.items():
        if getattr(kernel, "method", None) == "cliques" and name in data.relations:
            data = data.with_cliques(name)
    return data, kernels


def _keywords(function: Any) -> list[str]:
    """Parameters that can be given by name."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in kinds]
