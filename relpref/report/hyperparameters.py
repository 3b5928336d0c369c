"""The chapter on hyperparameters: their values, and what each kind means."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import ndtr

from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL, site_part
from relpref.infer import Posterior, UtilityPosterior
from relpref.report.blocks import (
    Block,
    Cell,
    Chapter,
    Items,
    Picture,
    Text,
    clean,
    fixed,
    percent,
    significant,
)
from relpref.report.model import kernels_of, likelihood_of, options_of
from relpref.report.plots import NARROW, WIDE, cell, densities, grid
from relpref.report.utilities.contributions import part_name

_TITLE = "Hyperparameters"
_MOST_ROWS = 40
_MOST_DRAWN = 12
_MEANINGS = {
    "amplitude": (
        "Amplitude: the size of a part. Two entities that this part treats as unrelated differ by about 1.4 times as much, "
        "in the unit of the answers' noise. Near 0 the part is switched off."
    ),
}

_COPIES = 50  # of the value with the largest weight

Reading = Callable[[UtilityPosterior, str, float], str]


def hyperparameters(posterior: Posterior) -> Chapter | None:
    """The chapter; None where there are no hyperparameters."""
    if not posterior.hyperparameters:
        return None
    rows, meanings = [], []
    for name, value in posterior.hyperparameters.items():
        rows += list(_rows(posterior, name, value))
        meanings.append(_meaning(posterior, name))
    unanswered = isinstance(posterior, UtilityPosterior) and not posterior.data.num_answers
    if posterior.hyperparameter_draws:
        intro = "Averages over their posterior, with 90% intervals."
    elif posterior.searched and unanswered:
        intro = "Nothing was answered yet, so these are the most probable values under their prior."
    elif posterior.searched and not posterior.converged:
        intro = "Values at which the search for the most credible ones stopped, which they may be far from."
    elif posterior.searched:
        intro = "Found by maximising the log evidence plus the log prior: the values under which the answers are most credible."
    else:
        intro = "These were given, not fitted."
    blocks: list[Block] = [Text(intro)]
    meanings = [text for text in dict.fromkeys(meanings) if text]
    kept = [column for column in range(4) if any(row[column].text for row in rows)]
    columns = [("Name", "Of", "Value", "Reading")[column] for column in kept]
    shown = [[row[column] for column in kept] for row in rows[:_MOST_ROWS]]
    blocks += _pictures(posterior)
    blocks.append(grid("Values of the hyperparameters", columns, shown, (columns.index("Value"),)))
    if len(rows) > _MOST_ROWS:
        blocks.append(Text(f"The first {_MOST_ROWS} of {len(rows)} values are shown.", small=True))
    if meanings:
        blocks.append(Items(meanings))
    return Chapter(_TITLE, blocks)


def _pictures(posterior: Posterior) -> list[Block]:
    """Densities of the hyperparameters that were drawn."""
    drawn = {}
    for name, draws in posterior.hyperparameter_draws.items():
        columns = np.asarray(draws, dtype=np.float64).reshape(len(draws), -1)
        kind = _kind(posterior, name)
        owners = _owners(posterior, site_part(posterior, name), kind, columns[0])
        for owner, values in zip(owners, columns.T, strict=True):
            if np.ptp(values) > 0:
                drawn[f"{kind}, {owner}" if columns.shape[1] > 1 else name] = values[_resampled(posterior)]
    drawn = dict(list(drawn.items())[:_MOST_DRAWN])
    if not drawn:
        return []
    description = "A density for each hyperparameter, with a dot at its mean and a line for its 90% interval; the table below holds the numbers."
    wide, narrow = (
        densities(drawn, f"hyperparameters{shape.width:.0f}", description, shape) for shape in (WIDE, NARROW)
    )
    return [Picture(wide, "Posterior densities, with mean and 90% interval.", narrow=narrow)]


def _resampled(posterior: Posterior) -> Any:
    """Positions of the values of the hyperparameters, each as often as its weight says."""
    weights = posterior.belief.weights
    if not np.ptp(weights):
        return slice(None)
    counts = np.round(_COPIES * weights / weights.max()).astype(int)
    return np.repeat(np.arange(len(counts)), counts)


def _kind(posterior: Posterior, name: str) -> str:
    part = site_part(posterior, name)
    return name if part is None else name.removeprefix(f"{part}_")


def _rows(posterior: Posterior, name: str, value: Any) -> Iterator[list[Cell]]:
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    part, kind = site_part(posterior, name), _kind(posterior, name)
    owners = _owners(posterior, part, kind, array)
    draws = posterior.hyperparameter_draws.get(name)
    columns = None if draws is None else np.asarray(draws).reshape(len(draws), -1)
    order = np.argsort(array.ravel(), kind="stable") if kind == "lengthscale" else range(array.size)
    for entry in order:
        number = float(array.ravel()[entry])
        shown = significant(number)
        if columns is not None:
            lower, upper = np.quantile(columns[_resampled(posterior), entry], [0.05, 0.95])
            shown += f" ({significant(lower)} to {significant(upper)})"
        yield [cell(name), cell(owners[entry]), Cell(shown), Cell(_reading(posterior, part, kind, number))]


def _owners(posterior: Posterior, part: str | None, kind: str, array: Any) -> list[str]:
    """What each entry of a hyperparameter belongs to."""
    if kind == "rater_noise" and isinstance(posterior, UtilityPosterior):
        raters = posterior.data.comparisons.raters
        if array.shape == (len(raters),):
            return [f"rater {clean(label)}" for label in raters]
    if part is None:
        return [""] * array.size if array.size == 1 else [f"entry {entry + 1}" for entry in range(array.size)]
    if isinstance(posterior, UtilityPosterior) and part == ATTRIBUTES and kind == "lengthscale":
        names = posterior.data.attribute_names
        if array.shape == (len(names),):
            return [f"attribute {clean(name)}" for name in names]
        if array.size == 1:
            return ["all attributes"]
    return [part_name(part, posterior)] * array.size


def _meaning(posterior: Posterior, name: str) -> str:
    """What a hyperparameter means, as far as what it belongs to says so."""
    if not isinstance(posterior, UtilityPosterior):
        return ""
    part, kind = site_part(posterior, name), _kind(posterior, name)
    if part is None:
        return likelihood_of(posterior).parameters.get(name, "")
    if part != INDIVIDUAL and part not in kernels_of(posterior):
        return ""
    return _MEANINGS.get(kind) or kernels_of(posterior)[part].parameters.get(kind, "")


def _reading(posterior: Posterior, part: str | None, kind: str, number: float) -> str:
    """A value in words, where the kernel is one whose meaning is known."""
    if kind == "lapse":
        return f"{percent(number)} of the answers are given at random"
    if kind == "tie_margin":
        return f"two equals tie in {percent(float(2 * ndtr(number) - 1))} of the answers"
    if part is None or not isinstance(posterior, UtilityPosterior):
        return ""
    if part == INDIVIDUAL:
        return f"two entities typically differ by {fixed(np.sqrt(2) * number)}, all else equal"
    kernel, options = kernels_of(posterior).get(part), options_of(posterior)
    if kernel is None:
        return ""
    scaled = options.get("standardize" if part == ATTRIBUTES else "normalize", True)
    if kind == "amplitude":
        scaled = scaled or part == ATTRIBUTES
        return (
            f"{kernel.unit} typically differ by {fixed(np.sqrt(2) * number)}"
            if kernel.unit and scaled
            else ""
        )
    if kind not in kernel.readings or (part == ATTRIBUTES and not scaled):
        return ""
    return kernel.readings[kind](number, posterior.data.relations.get(part))
