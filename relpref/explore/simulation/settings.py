"""What tells two simulations apart: a digest of a truth, and names of what is called."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from relpref.explore.questions.choose import score_of
from relpref.explore.simulation.run import Strategy
from relpref.explore.simulation.truth import Truth


def settings_of(
    truth: Truth | Callable[[int], Truth], fit: Callable[..., Any], limits: Mapping[str, Any], answers: int
) -> dict[str, Any]:
    """What all runs of one file share, as JSON values."""
    return {
        "answers": answers,
        "fit": described(fit),
        "limits": described(dict(limits)),
        "truth": digest(truth) if isinstance(truth, Truth) else described(truth),
    }


def strategy_text(strategy: Strategy) -> str:
    """What asks: a score with its options, or the name of a callable."""
    return described(score_of(strategy) if isinstance(strategy, str) else strategy)


def described(value: Any) -> str:
    """A text that is the same in another process, which an address in memory is not."""
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def digest(truth: Truth) -> str:
    """SHA-256 of entities, attributes, relations, answers, and of everything that decides how questions are answered."""
    content = {
        "data": truth.data,
        "utilities": truth.utilities,
        "noise": float(truth.noise),
        "tie_margin": float(truth.tie_margin),
        "recorded": None if truth.recorded is None else truth.answers_by_pair,
    }
    found = hashlib.sha256()
    for part in _bytes(content):
        found.update(len(part).to_bytes(8, "big"))  # so that ab, c is not a, bc
        found.update(part)
    return found.hexdigest()


def _bytes(value: Any) -> Iterator[bytes]:
    """The content of arrays, and of whatever holds some."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str} {value.shape}".encode()
        yield value.tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for each in fields(value):
            yield each.name.encode()
            yield from _bytes(getattr(value, each.name))
    elif isinstance(value, Mapping):
        for key, content in value.items():
            yield repr(key).encode("utf-8", "surrogatepass")
            yield from _bytes(content)
    else:
        yield described(value).encode("utf-8", "surrogatepass")
