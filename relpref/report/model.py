"""Hyperparameters, computation and descriptions of a posterior's model."""

import platform
from importlib.metadata import version
from inspect import Parameter, signature
from typing import Any

import numpy as np
from scipy.special import ndtr

from relpref._version import __version__
from relpref.description import Description, describe
from relpref.diagnostics.comparison import ATTRIBUTES, INDIVIDUAL, parts_of, site_part
from relpref.kernels import Kendall, RegularizedLaplacian
from relpref.likelihoods.answers import SPREADS
from relpref.models import preference_gp, ranking_classifier, xpgp
from relpref.models.preference import default_kernel, kernels_by_part
from relpref.posterior.gaussian import Floats
from relpref.posterior.points import interval as interval_of
from relpref.registry import find, unbound
from relpref.report.blocks import Chapter, Facts, cell, clean, fixed, percent, plain, significant
from relpref.report.words import OURS, Words

_MOST_ROWS = 40
_MEMBERS = 3  # shown of many members, with the smallest and with the largest values
_LONGEST_READING = 400
_SHARES = ("lapse", "linear_share")  # at most 1, unlike intervals of a few smoothed points
_NAMES = {ATTRIBUTES: "attributes", INDIVIDUAL: "items themselves"}


def options_of(posterior: Any) -> dict[str, Any]:
    """Keywords of the program; empty if it is unknown."""
    return {} if posterior.origin is None else posterior.origin.keywords


def program_of(posterior: Any) -> Any:
    """Program without bound keywords; None if it is unknown."""
    origin = posterior.origin
    return None if origin is None else unbound(origin.program, (), {})[0]


def kernels_of(posterior: Any) -> dict[str, Description]:
    """Descriptions of kernels by part; empty if the program does not tell them."""
    if posterior.kind == "relation":
        return {}
    program, options = program_of(posterior), options_of(posterior)
    if program is ranking_classifier:
        return {"rankings": describe(options.get("kernel") or Kendall())}
    if posterior.kind != "utilities" or program not in (xpgp, preference_gp):
        return {}
    used: dict[str, Any] = kernels_by_part(posterior.data, options.get("relation_kernels"))
    used[ATTRIBUTES] = options.get("attribute_kernel") or default_kernel(
        options.get("standardize", True)
    )
    parts = [part for part in parts_of(posterior) if part != INDIVIDUAL]
    return {part: describe(used.get(part, RegularizedLaplacian())) for part in parts}


def takes_likelihood(posterior: Any) -> bool:
    """Whether the program takes a likelihood of answers given utilities."""
    program = program_of(posterior)
    parameters = {} if program is None else signature(program).parameters
    return "likelihood" in parameters or any(
        parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def likelihood_of(posterior: Any) -> Description | None:
    """Description of the likelihood of answers; None if the posterior is not of utilities."""
    if posterior.kind != "utilities":
        return None
    if takes_likelihood(posterior):
        return describe(posterior.likelihood, posterior.data.comparisons)
    name = getattr(program_of(posterior), "__name__", "that is not known")
    return Description(f"How an answer follows from utilities is up to the program {name}.")


def engine_of(posterior: Any) -> Description | None:
    """Description of the engine; None if the posterior is represented by draws."""
    if posterior.sampled:
        return None
    engine = find("engine", posterior.engine)
    if engine is None:
        return Description(f"The posterior was computed by {clean(posterior.engine)}.")
    return describe(engine)


def methods(posterior: Any, facts: Facts) -> Chapter:
    """Chapter on model and computation, by the macro for the kind of posterior."""
    engine, likelihood = engine_of(posterior), likelihood_of(posterior)
    descriptions = (engine, likelihood, *kernels_of(posterior).values())
    citations = {part.citation for part in descriptions if part is not None}
    common = {
        "posterior": posterior,
        "engine": engine,
        "likelihood": likelihood,
        "cited": sorted(filter(None, citations)),
    }
    return Chapter("Methods", f"{posterior.kind}.html:methods", {**facts, **common})


def part_name(part: str, posterior: Any, words: Words = OURS) -> str:
    """Name of a part of the covariance."""
    if part in _NAMES:
        return words(_NAMES[part])
    related = posterior.kind == "utilities" and part in posterior.data.relations
    return f"relation {part}" if related else clean(part)


def hyperparameters(posterior: Any, words: Words = OURS) -> Chapter | None:
    """Chapter on hyperparameters; None if there are none."""
    if not posterior.hyperparameters:
        return None
    utilities = posterior.kind == "utilities"
    draws = getattr(posterior, "hyperparameter_draws", {})
    held = [name for name in posterior.info.get("held", ()) if name in draws]
    fixed = () if getattr(posterior, "origin", None) is None else posterior.origin.fixed
    rows, meanings = [], []
    for name, value in posterior.hyperparameters.items():
        array = np.atleast_1d(np.asarray(value, dtype=np.float64))
        part = site_part(posterior, name) if utilities else None
        kind = name if part is None else name.removeprefix(f"{part}_")
        owners, numbers = _owners(posterior, part, kind, array, words), array.ravel()
        intervals = [""] * array.size
        if name in draws and name not in held:
            most = 1.0 if kind in _SHARES else np.inf
            columns = np.reshape(draws[name], (len(draws[name]), -1))
            ends = [interval_of(column, posterior.belief.weights, 0.9) for column in columns.T]
            intervals = [f"{plain(lower)} to {plain(min(upper, most))}" for lower, upper in ends]
        many = kind in SPREADS and array.size > 2 * _MEMBERS + 1
        order = np.arange(array.size)
        if many or kind == "lengthscale":
            order = np.argsort(numbers, kind="stable")
        lines = []
        for entry in order:
            texts = name, owners[entry], plain(numbers[entry]), intervals[entry]
            reading = words(_reading(posterior, part, kind, numbers[entry]))
            lines.append([*map(cell, texts), cell(reading, _LONGEST_READING)])
        if many:  # the smallest and the largest, and between them a row for all others
            others = [plain(number) for number in numbers[order[_MEMBERS:-_MEMBERS]]]
            texts = name, f"{len(others)} other raters", f"{others[0]} to {others[-1]}", ""
            lines[_MEMBERS:-_MEMBERS] = [[*map(cell, texts), cell("")]]
        rows += lines
        meanings.append(words(_meaning(posterior, part, kind)))
    headings = ("Name", "Of", ">Value", "~>90% interval", "~Reading")
    table = zip(headings, zip(*rows[:_MOST_ROWS], strict=True), strict=True)
    facts = {
        "posterior": posterior,
        "averaged": bool(draws),
        "held": [clean(name) for name in held],
        "given": [clean(name) for name in posterior.hyperparameters if name in fixed],
        "unanswered": utilities and not posterior.data.num_answers,
        # Without empty columns.
        "columns": [
            (name, cells)
            for name, cells in table
            if name == ">Value" or any(entry.text for entry in cells)
        ],
        "total": len(rows),
        "meanings": [text for text in dict.fromkeys(meanings) if text],
    }
    return Chapter("Hyperparameters", "common.html:hyperparameters", facts)


def _owners(posterior: Any, part: str | None, kind: str, array: Floats, words: Words) -> list[str]:
    """Name of the part, attribute or rater of each entry of a hyperparameter."""
    if part == ATTRIBUTES and kind == "lengthscale":
        names = posterior.data.attribute_names
        if array.shape == (len(names),):
            return [f"attribute {clean(name)}" for name in names]
        if array.size == 1:
            return ["all attributes"]
    if part is not None:
        return [part_name(part, posterior, words)] * array.size
    if kind in SPREADS and posterior.kind == "utilities":
        raters = posterior.data.comparisons.raters
        if array.shape == (len(raters),):
            return [f"rater {clean(rater)}" for rater in raters]
    return [""] if array.size == 1 else [f"entry {entry + 1}" for entry in range(array.size)]


_AMPLITUDE = (
    "Amplitude: the size of a part. Two items that this part treats as unrelated differ by about "
    "1.4 times as much, "
    "in the unit of the answers' noise. Near 0 the part is switched off."
)


def _meaning(posterior: Any, part: str | None, kind: str) -> str:
    """Meaning of a hyperparameter; empty if its kernel or likelihood does not describe it."""
    if part is None:
        description = likelihood_of(posterior) or kernels_of(posterior).get("rankings")
        return "" if description is None else description.parameters.get(kind, "")
    kernel = kernels_of(posterior).get(part)
    if kernel is None and part != INDIVIDUAL:
        return ""
    return _AMPLITUDE if kind == "amplitude" or kernel is None else kernel.parameters.get(kind, "")


def _reading(posterior: Any, part: str | None, kind: str, number: float) -> str:
    """Value of a hyperparameter in words; empty if its kernel does not describe it."""
    if posterior.kind == "relation":
        # The hyperparameter of a program is the standard deviation of the noise; beside λ it is
        # the variance that λ stands for.
        noise = (
            "variance" if "regularization" in posterior.hyperparameters else "standard deviation"
        )
        return {
            "regularization": "λ: how much labels are distrusted; larger means smoother scores",
            "scale": "common factor of prior and noise, estimated from the labels",
            "noise": f"{noise} of the error of one label",
        }.get(kind, "")
    if kind == "lapse":
        return f"{percent(number)} of the answers are given at random"
    if kind == "tie_margin":
        logistic = getattr(posterior.likelihood, "noise", None) == "logistic"
        share = np.tanh(0.5 * number) if logistic else 2 * ndtr(number) - 1
        return f"two equals tie in {percent(share)} of the answers"
    if part == INDIVIDUAL:
        return f"two items typically differ by {fixed(np.sqrt(2) * number)}, all else equal"
    kernel = None if part is None else kernels_of(posterior).get(part)
    if kernel is None or part is None:
        return ""
    scaled = options_of(posterior).get("standardize" if part == ATTRIBUTES else "normalize", True)
    if kind == "amplitude":
        if not (kernel.unit and (scaled or part == ATTRIBUTES)):
            return ""
        return f"{kernel.unit} typically differ by {fixed(np.sqrt(2) * number)}"
    if kind not in kernel.readings or (part == ATTRIBUTES and not scaled):
        return ""
    return kernel.readings[kind](number, posterior.data.relations.get(part))


_ELSEWHERE = ("engine", "result", "groups", "hyperparameters", "model", "seed", "data", "notes")
_TITLES = {"iterations": "Sweeps", "r_hat": "R-hat", "ess": "Effective draws"}
_LONGEST_VALUE = 20  # in the table; longer text is a note below it


def computation(posterior: Any) -> Chapter:
    """Chapter on the computation, from the information of the engine."""
    titles = dict(_TITLES)
    if posterior.sampled or posterior.kind == "relation":
        titles["iterations"] = "Draws" if posterior.sampled else "Iterations"
    rows = [("Engine", posterior.engine), ("Result", posterior.result.name.replace("_", " "))]
    if posterior.log_evidence is not None:
        rows.append(("Log evidence", fixed(posterior.log_evidence)))
    rows += [
        (titles.get(name) or clean(name).replace("_", " ").capitalize(), _value(value))
        # In the same order before and after the posterior is saved.
        for name, value in sorted(posterior.info.items())
        if name not in _ELSEWHERE and isinstance(value, str | int | float | bool)
    ]
    facts = {
        "rows": [row for row in rows if len(row[1]) <= _LONGEST_VALUE],
        "notes": [f"{title}: {text}" for title, text in rows if len(text) > _LONGEST_VALUE],
    }
    return Chapter("How the computation went", "common.html:computation", facts)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return fixed(value, 0) if value.is_integer() and abs(value) < 1e6 else significant(value)
    return clean(value)


def versions(posterior: Any) -> Chapter:
    """Chapter on versions and the random key, shown as its seed or as its words."""
    numbers = [int(word) for word in posterior.key]
    key = f"seed {numbers[1]}" if numbers[:-1] == [0] else " ".join(map(str, numbers))
    packages = [(name, version(name)) for name in ("jax", "numpyro", "numpy")]
    rows = [
        ("relpref", __version__),
        ("Python", platform.python_version()),
        *packages,
        ("Random key", key),
    ]
    return Chapter("Versions", "common.html:versions", {"rows": rows})
