"""What a saved posterior keeps as JSON: labels, and how its program was called."""

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd

from relpref.errors import StorageError
from relpref.infer.posterior import Origin


def encode_label(label: Any) -> Any:
    """A label as JSON; what JSON has no type for becomes an object with one key, the type's name."""
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    if type(label) in (str, int, bool):
        return label
    if type(label) is float:
        return {"float": repr(label)}
    if isinstance(label, pd.Timestamp):
        return {"timestamp": label.isoformat()}
    if isinstance(label, datetime):
        return {"datetime": label.isoformat()}
    if type(label) is date:
        return {"date": label.isoformat()}
    raise StorageError(
        f"the label {label!r} is a {type(label).__name__}, which cannot be stored; "
        "use text, numbers, bools, dates or tuples of these as labels"
    )


def decode_label(stored: Any) -> Any:
    """The inverse of `encode_label`."""
    if not isinstance(stored, dict):
        return stored
    ((kind, value),) = stored.items()
    if kind == "tuple":
        return tuple(decode_label(part) for part in value)
    if kind == "float":
        return float(value)
    if kind == "timestamp":
        return pd.Timestamp(value)
    if kind == "datetime":
        return datetime.fromisoformat(value)
    if kind == "date":
        return date.fromisoformat(value)
    raise StorageError(f"a stored label is of the unknown kind {kind!r}; the file is from a newer relpref")


def dump(value: Any) -> str:
    """JSON with sorted keys, so that equal content gives equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def encode_labels(labels: Iterable[Any]) -> str:
    """Labels as one JSON text."""
    return dump([encode_label(label) for label in labels])


Keep = Callable[[Any], Any]  # from what JSON cannot hold to how it can be found again, or None
Restore = Callable[[Any], Any]


def encode_origin(origin: Origin | None, keep: Keep | None = None) -> str | None:
    """How the program was called, if a later session can call it the same way.

    That is: a program of this package, with the data as its only positional argument, and options that are plain values, kernels
    without matrices (unless there is a place to ``keep`` them), or likelihoods of the package. Priors are left out, and the origin is
    marked as incomplete then.
    """
    if origin is None or len(origin.args) != 1 or not _ours(origin.program):
        return None
    kwargs = {name: value for name, value in origin.kwargs.items() if name != "priors"}
    try:
        call = {
            "program": _name(origin.program),
            "kwargs": encode(kwargs, keep),
            "engine": dict(origin.engine),
        }
        return dump(call | {"complete": origin.complete and not origin.kwargs.get("priors")})
    except TypeError:
        return None


def decode_origin(stored: str | None, data: Any, restore: Restore | None = None) -> Origin | None:
    """The inverse of `encode_origin`; imports from this package only, whatever the file says."""
    if stored is None:
        return None
    content = json.loads(stored)
    kwargs = decode(content["kwargs"], restore)
    return Origin(_find(content["program"]), (data,), kwargs, content["engine"], content["complete"])


def encode_likelihood(likelihood: Any) -> Any:
    """A likelihood of this package.

    Raises
    ------
    StorageError
        If it is of another make: nobody could predict answers from the file.
    """
    try:
        return encode(likelihood)
    except TypeError:
        raise StorageError(
            f"the likelihood {type(likelihood).__name__} cannot be stored; those of relpref.likelihoods can"
        ) from None


def _ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("relpref.") and hasattr(thing, "__qualname__")


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module.startswith("relpref.") or not attribute.isidentifier():
        raise StorageError(
            f"the file names the program {name!r}, which is not part of relpref; it is damaged"
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise StorageError(f"the file needs {name}, which this version of relpref does not have") from None


def encode(value: Any, keep: Keep | None = None) -> Any:
    """Options, as far as JSON, the names of this package and ``keep`` can hold them.

    Raises
    ------
    TypeError
        If they are something else.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"mapping": {str(key): encode(part, keep) for key, part in value.items()}}
    kept = None if keep is None else keep(value)
    if kept is not None:
        return {"kept": kept}
    if isinstance(value, type) and _ours(value):
        return {"type": _name(value)}
    if is_dataclass(value) and _ours(type(value)):
        return {
            "object": _name(type(value)),
            "fields": {f.name: encode(getattr(value, f.name), keep) for f in fields(value)},
        }
    raise TypeError(f"{type(value).__name__} cannot be stored")


def decode(stored: Any, restore: Restore | None = None) -> Any:
    """Options as they were; imports from this package only."""
    if not isinstance(stored, dict):
        return stored
    if "mapping" in stored:
        return {key: decode(part, restore) for key, part in stored["mapping"].items()}
    if "kept" in stored:
        if restore is None:
            raise StorageError("the file lacks a part that it refers to; it is damaged")
        return restore(stored["kept"])
    if "type" in stored:
        return _find(stored["type"])
    return _find(stored["object"])(**{key: decode(part, restore) for key, part in stored["fields"].items()})
