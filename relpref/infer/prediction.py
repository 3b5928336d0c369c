"""What the next answer will be: the likelihood's own expectation over the belief about a gap and over its parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.data import Comparisons, PreferenceData
from relpref.data.messages import listed, nearest, shown
from relpref.errors import DataError, UnknownLabelError
from relpref.infer.belief import Margins
from relpref.infer.posterior import Posterior
from relpref.likelihoods import AnswerModel
from relpref.likelihoods.models import PLATES
from relpref.linalg import real

Positions = NDArray[np.int32]


def questions(
    data: PreferenceData, first: Positions, second: Positions, rater: Any, shown_first: Any
) -> Comparisons:
    """Pairs as answers of the data's kind, by a typical rater and with no position known where none is named.

    Parameters
    ----------
    data : PreferenceData
    first, second : array of int32, shape (k,)
    rater : label or None
    shown_first : iterable of k labels or None

    Raises
    ------
    DataError
        If the data does not speak of raters or positions, or a label is none of the pair.
    UnknownLabelError
        If the rater never answered.
    """
    known = data.comparisons
    columns: dict[str, Any] = {
        name: np.zeros(len(first), column.dtype) for name, column in known.columns.items()
    }
    columns |= {"winner": first, "loser": second, "rater": None, "shown_first": None}
    if rater is not None:
        columns["rater"] = np.full(len(first), _rater(known, rater), dtype=np.int32)
    if shown_first is not None:
        if known.shown_first is None:
            raise DataError(
                "shown_first is given, but the answers do not say which entity was shown first; leave it out, "
                "or fit answers with a column shown_first"
            )
        columns["shown_first"] = _shown_first(data, first, second, shown_first)
    return Comparisons(**columns, raters=known.raters, strengths=known.strengths)


def of_one_rater(asked: Comparisons, parameters: Mapping[str, Any]) -> tuple[Comparisons, dict[str, Any]]:
    """Answers of one rater, or of a typical one, without all the others: how many there are must not matter to what is compiled.

    Parameters
    ----------
    asked : Comparisons
    parameters : mapping from site to array
        Those of raters have one entry for each along the last axis.
    """
    if asked.rater is None:
        known = {site: value for site, value in parameters.items() if site not in PLATES}
        return replace(asked, raters=()), known
    rater = int(asked.rater[0])
    known = {
        site: np.asarray(value)[..., rater : rater + 1] if site in PLATES else value
        for site, value in parameters.items()
    }
    alone: dict[str, Any] = {"rater": np.zeros_like(asked.rater), "raters": asked.raters[rater : rater + 1]}
    return replace(asked, **alone), known


def expectations(
    posterior: Posterior, model: AnswerModel, answers: Comparisons, asked: Comparisons, gaps: Margins
) -> dict[str, Any]:
    """Expectations over the next answers, column by column, shape (k,); ``answers`` are those that the posterior comes from.

    Raises
    ------
    DataError
        If the posterior's program does not have the parameters of the likelihood.
    """
    draws = posterior.hyperparameter_draws
    parameters = {}
    for site in model.parameters(answers):
        if site not in posterior.hyperparameters:
            raise DataError(
                f"the posterior has no hyperparameter {site!r}, so nobody knows what its program makes of the columns of the answers; "
                "use a program of relpref.models, or leave the columns out"
            )
        parameters[site] = draws[site] if site in draws else np.asarray(posterior.hyperparameters[site])[None]
    asked, parameters = of_one_rater(asked, parameters)
    with jax.enable_x64(True):
        found = _expectations(model, asked, parameters, gaps.means, gaps.variances, gaps.weights)
        columns = {name: np.asarray(value) for name, value in found.items()}
    if asked.tie is None:
        columns.pop("tie", None)
    return columns


@partial(jax.jit, static_argnums=0)
def _expectations(
    model: AnswerModel,
    asked: Comparisons,
    parameters: Mapping[str, Array],
    means: Array,
    variances: Array,
    weights: Array,
) -> dict[str, Array]:
    def one(parameters: Mapping[str, Array], mean: Array, variance: Array) -> dict[str, Array]:
        return model(real(mean), asked, **parameters).predict(real(mean), real(variance))

    # A fixed parameter beside draws of the others has one value for all.
    size = len(means)
    spread = {site: jnp.broadcast_to(value, (size, *value.shape[1:])) for site, value in parameters.items()}
    found = jax.lax.map(lambda each: one(*each), (spread, means, variances))
    return {name: jnp.asarray(weights) @ value for name, value in found.items()}


def _rater(known: Comparisons, rater: Any) -> int:
    if known.rater is None:
        raise DataError(
            f"rater is {shown(rater)}, but the answers do not say who gave them; leave it out, or fit answers with a column rater"
        )
    if rater not in known.raters:
        close = nearest(rater, known.raters)
        hint = f"nearest: {listed(close)}" if close else f"the raters are {listed(known.raters)}"
        raise UnknownLabelError(
            f"rater: {shown(rater)} has given no answer; {hint}; leave rater out for a typical one"
        )
    return known.raters.index(rater)


def _shown_first(
    data: PreferenceData, first: Positions, second: Positions, labels: Iterable[Any]
) -> NDArray[np.int8]:
    given = [labels] if isinstance(labels, str) else list(labels)
    if len(given) != len(first):
        raise DataError(f"shown_first has {len(given)} labels for {len(first)} pairs; give one for each")
    ends = np.full(len(given), -1, dtype=np.int32)
    named = [row for row, label in enumerate(given) if label is not None]
    ends[named] = data.index([given[row] for row in named])
    for row in named:
        if ends[row] not in (first[row], second[row]):
            raise DataError(
                f"shown_first[{row}] is {shown(given[row])}, which is not in the pair; name one of its two"
            )
    return np.where(ends < 0, 0, np.where(ends == first, 1, -1)).astype(np.int8)
