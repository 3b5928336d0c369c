"""Descriptions of kernels, likelihoods, engines and scores, for reports and the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relpref.errors import DataError


@dataclass(frozen=True)
class Description:
    """Description of a kernel, likelihood, engine or score in words.

    Parameters
    ----------
    sentence : str
        One or more plain sentences. A source is cited as in "(Minka 2001)".
    citation : str, optional
        The source in full, for the list of sources.
    parameters : mapping from name to str
        Meaning of each hyperparameter, as a sentence.
    unit : str, optional
        Items that differ by √2 amplitudes of a kernel on average, such as "two items far apart".
        Amplitudes of kernels with a unit can be compared with each other.
    readings : mapping from name to callable
        Functions from a value of a kernel's hyperparameter and the domain (the standardized
        attributes, or the graph) to a clause on its meaning, such as "correlation 0.61 one standard
        deviation apart".
    coverage : str, optional
        Sentence on how often an engine's intervals at searched hyperparameters held the truth in a
        simulation.
    """

    sentence: str
    citation: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    readings: Mapping[str, Callable[[float, Any], str]] = field(default_factory=dict)
    coverage: str | None = None


_MODELS = {
    "xpgp": "attributes, relations and the items themselves",
    "preference_gp": "attributes and the items themselves",
}


def model_words(name: str) -> str:
    """Return what a model's utilities are made of, or the name of a custom program."""
    return _MODELS.get(name, name)


def describe(thing: Any, *context: Any) -> Description:
    """Return ``thing.describe(*context)``, or only the name if there is no such method."""
    if getattr(thing, "describe", None) is None:
        name = getattr(thing, "__name__", type(thing).__name__)
        return Description(f"{name} does not describe itself.")
    description = thing.describe(*context)
    if not isinstance(description, Description):
        raise DataError(
            f"{thing!r}.describe() returned a {type(description).__name__}; return a "
            "relpref.description.Description"
        )
    return description
