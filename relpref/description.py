"""What kernels, likelihoods, engines and scores say of themselves, for reports and the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relpref.errors import DataError


@dataclass(frozen=True)
class Description:
    """What something that plugs in does, in words.

    Parameters
    ----------
    sentence : str
        One or more plain sentences. A source is cited as in "(Minka 2001)".
    citation : str, optional
        That source in full, for the list of sources.
    parameters : mapping from name to str
        The meaning of each hyperparameter, as a sentence.
    unit : str, optional
        Of kernels: which items differ by √2 amplitudes on average, such as "two items far apart". Amplitudes of kernels that
        say so can be compared with each other.
    readings : mapping from name to callable
        Of kernels: from a value of a hyperparameter and the domain (the standardized attributes' data, or the graph) to a clause that
        says what the value means, such as "correlation 0.61 one standard deviation apart".
    coverage : str, optional
        Of engines: how often the intervals at searched hyperparameters held the truth in a simulation, as a sentence.
    """

    sentence: str
    citation: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    readings: Mapping[str, Callable[[float, Any], str]] = field(default_factory=dict)
    coverage: str | None = None


def describe(thing: Any, *context: Any) -> Description:
    """What ``thing.describe(*context)`` returns; of a thing without that method, its name and nothing else."""
    own = getattr(thing, "describe", None)
    if own is None:
        name = getattr(thing, "__name__", type(thing).__name__)
        return Description(f"{name} does not describe itself.")
    description = own(*context)
    if not isinstance(description, Description):
        raise DataError(
            f"{thing!r}.describe() returned a {type(description).__name__}; return a relpref.description.Description"
        )
    return description
