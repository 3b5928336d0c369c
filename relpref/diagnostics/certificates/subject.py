"""What is compared with NUTS: all of a posterior, or a part of it that is small enough."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer.belief import DrawsBelief
from relpref.infer.posterior import Posterior
from relpref.infer.refit import engine_again
from relpref.infer.utility_posterior import UtilityPosterior


class Subject(NamedTuple):
    """A posterior, the entries of its latent vector that are compared, and what to say of the choice."""

    posterior: Posterior
    chosen: NDArray[np.intp]
    note: str


def subject(posterior: Posterior, most_entities: int, refit: bool, progress_bar: bool) -> Subject:
    """The posterior, or one of the answers among some well answered entities.

    Their prior is what the whole prior says of them: no other entity's answers, relations or attributes get lost from it.

    Parameters
    ----------
    posterior : Posterior
    most_entities : int
    refit : bool
        Whether hyperparameters are fitted again where a part is taken, and not kept.
    progress_bar : bool
    """
    everything = np.arange(posterior.belief.size)
    if not isinstance(posterior, UtilityPosterior) or len(everything) <= most_entities:
        return Subject(posterior, everything, "")
    if isinstance(posterior.belief, DrawsBelief):
        raise DataError(
            f"the posterior is made of draws of {len(everything)} entities, and there is no engine to fit a part of them again; "
            f"compare all with most_entities={len(everything)}"
        )
    data, origin = posterior.data, posterior.origin
    assert origin is not None  # from an engine
    chosen = well_answered(data, most_entities)
    inside = np.isin(data.winner, chosen) & np.isin(data.loser, chosen)
    smaller = data.select_comparisons(inside)
    changes: dict[str, Any] = {}
    if not refit:
        changes["fixed"] = posterior.hyperparameters
    part = origin.with_argument(data, smaller)
    again = engine_again(part, **changes).run_from(
        None, posterior.key, *part.args, progress_bar=progress_bar, **part.kwargs
    )
    how = "hyperparameters fitted again" if refit else "the same hyperparameters"
    note = (
        f"Compared on {len(chosen)} of {len(everything)} entities, which have many answers among themselves, by {smaller.num_answers} of "
        f"{data.num_answers} answers and with {how}."
    )
    return Subject(again, chosen, note)


def well_answered(data: PreferenceData, number: int) -> NDArray[np.intp]:
    """Entities with many answers among themselves: the most answered one, then always the one with the most answers about those before."""
    size = data.num_entities
    ends = (np.concatenate([data.winner, data.loser]), np.concatenate([data.loser, data.winner]))
    counts = sparse.csr_array((np.tile(data.count, 2), ends), shape=(size, size))
    total = np.asarray(counts.sum(axis=1), dtype=np.float64)
    shared, chosen = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(min(number, size)):
        # Of equally many shared answers the entity with more answers in all.
        order = np.where(chosen, -1.0, shared + total / (1 + total.max(initial=0.0)))
        best = int(np.argmax(order))
        chosen[best] = True
        row = slice(counts.indptr[best], counts.indptr[best + 1])
        shared[counts.indices[row]] += counts.data[row]
    return np.flatnonzero(chosen)
