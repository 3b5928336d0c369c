"""What a reader should be warned about, in plain words."""

import numpy as np
from numpy.typing import NDArray

from relpref.diagnostics.relations import ATTRIBUTES, parts_of
from relpref.infer import Result
from relpref.report.checked import Unknown
from relpref.report.text import clean, counted, fixed, isolated, listed, sentence, shorten
from relpref.report.utilities.asked import contradicted
from relpref.report.utilities.subject import Subject

_FEW = 4.0  # answers about a typical entity, below which intervals rest mostly on the prior
_FEW_EACH = 10  # answers for each hyperparameter, below which maximising them makes intervals too narrow
_PRIOR_LEFT = 0.9  # of an entity's prior standard deviation, above which its place is the prior's
_STEEP = 0.1  # slope at which a search for hyperparameters has not ended, in nats for a factor of e
_SWITCHED_OFF = 0.05  # an amplitude, where the noise of one answer is 1


def warnings(subject: Subject) -> list[str]:
    """The warnings, as sentences; none where nothing stands out."""
    return [
        *_convergence(subject),
        *_coverage(subject),
        *_prior(subject),
        *_agreement(subject),
        *_groups(subject),
        *_raters(subject),
        *fitted(subject),
    ]


def _convergence(subject: Subject) -> list[str]:
    result = Result[subject.posterior.info["result"]]
    if result.ok:
        return []
    return [
        f"The computation did not converge, so nothing below or above is to be relied on: {sentence(result.value)}"
    ]


def _coverage(subject: Subject) -> list[str]:
    """Entities that few or no answers are about."""
    if not subject.posterior.data.num_answers:
        return ["There are no answers, so every interval is that of the prior."]
    asked = subject.asked
    found = _never(subject, asked == 0)
    typical = float(np.median(asked))
    if typical < _FEW:
        found.append(
            f"There are few answers: {fixed(typical, 1).removesuffix('.0')} about a typical entity. "
            "The intervals rest to a good part on the prior."
        )
    return found


def _never(subject: Subject, never: NDArray[np.bool_]) -> list[str]:
    """Entities that were never compared, and what their places rest on."""
    if not never.any():
        return []
    data, parts = subject.posterior.data, parts_of(subject.posterior)
    linked = np.zeros(data.num_entities, dtype=bool)
    for part, graph in data.relations.items():
        if part in parts or not parts:
            linked[graph.source] = linked[graph.target] = True
    known = ["attributes"] if data.attribute_names and (ATTRIBUTES in parts or not parts) else []
    found = []
    for which, rests in (
        (never & linked, [*known, "relations"]),
        (never & ~linked, known or ["the prior"]),
    ):
        positions = np.flatnonzero(which)
        if len(positions):
            were = "was" if len(positions) == 1 else "were"
            places = "its place rests" if len(positions) == 1 else "their places rest"
            found.append(
                f"{_named(subject, positions)} {were} never compared; {places} on {listed(rests)} alone."
            )
    return found


def _named(subject: Subject, positions: NDArray[np.intp]) -> str:
    """Entities by name; of more than a few the names would bury their number."""
    named = [subject.names.inline(int(position)) for position in positions[:10]]
    return listed([*named, *[""] * (len(positions) - len(named))], most=10)


def _prior(subject: Subject) -> list[str]:
    """Entities of which the answers say hardly more than the prior."""
    prior = subject.checked.prior_sd
    if isinstance(prior, Unknown) or not subject.posterior.data.num_answers:
        return []
    left = subject.posterior.belief.centred().sd() / np.where(prior > 0, prior, np.inf)
    found = np.flatnonzero((left > _PRIOR_LEFT) & (subject.asked > 0))
    if not len(found):
        return []
    share = f"over {_PRIOR_LEFT:.0%} of the uncertainty before any answer is left"
    return [f"Of {_named(subject, found)} the answers say little: {share}."]


def _agreement(subject: Subject) -> list[str]:
    both = contradicted(subject)
    if not both:
        return []
    pairs = "1 pair was" if both == 1 else f"{counted(both, 'pair')} were"
    return [f"{pairs} answered both ways. That is no mistake: answers are taken to be noisy."]


def _groups(subject: Subject) -> list[str]:
    groups = subject.posterior.info.get("groups")
    return [sentence(str(groups))] if groups else []


def _raters(subject: Subject) -> list[str]:
    """Raters whose answers fit the rest worse than chance explains."""
    table = subject.checked.raters
    if isinstance(table, Unknown):
        return []
    odd = [isolated(shorten(clean(label))) for label in table.index[table["at_odds"]]]
    if not odd:
        return []
    verb = "is" if len(odd) == 1 else "are"
    return [f"{listed(odd, most=6)} {verb} at odds with the others, more than chance explains."]


def fitted(subject: Subject) -> list[str]:
    """Values that were maximised from too little, or lie at an edge."""
    posterior = subject.posterior
    answers = posterior.data.num_answers
    if not answers or "evaluations" not in posterior.info or posterior.hyperparameter_draws:
        return []
    found = []
    values = {name: np.atleast_1d(value) for name, value in posterior.hyperparameters.items()}
    number = sum(value.size for value in values.values())
    if number and answers < _FEW_EACH * number:
        found.append(
            f"{counted(number, 'hyperparameter')} {'was' if number == 1 else 'were'} set to the best values by {counted(answers, 'answer')}. With so few, the "
            "intervals are too narrow; a fit that averages over all plausible values, the default, mends that."
        )
    if float(posterior.info.get("gradient_norm", 0.0)) > _STEEP:
        found.append("The search for hyperparameters ended before it came to a maximum.")
    off = [
        name.removesuffix("_amplitude")
        for name, value in values.items()
        if name.endswith("_amplitude") and np.all(value < _SWITCHED_OFF)
    ]
    if off:
        found.append(
            f"The fit switched off {listed([f'“{part}”' for part in off])}: the answers do not follow it."
        )
    return found
